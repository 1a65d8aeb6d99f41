"""@stomp/stompjs in a page of headless Chromium. The page fetches its orders from here and posts the answers."""

import os
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

HERE = Path(__file__).parent
STOMPJS = Path(os.environ["STOMPCODEC_NODE_MODULES"], "node_modules/@stomp/stompjs/bundles/stomp.umd.js")
PAGE = b"""<!doctype html><meta charset="utf-8"><title>stompjs</title>
<script src="/stomp.umd.js"></script><script src="/stompjs_program.js"></script>
<script>
(async () => {
  const answer = stompjsProgram(StompJs, navigator.userAgent.match(/Chrome.([0-9.]+)/)[1]);
  for (;;) {
    const order = await (await fetch("/order")).json();
    await fetch("/answer", { method: "POST", body: JSON.stringify(await answer(order)) });
  }
})();
</script>"""
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --disable-dev-shm-usage"
)

orders: queue.Queue[bytes] = queue.Queue()
answers: queue.Queue[bytes] = queue.Queue()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body in one write: in two, each answer waits 40 ms for the ACK of the first
    disable_nagle_algorithm = True

    def log_message(self, format: str, *arguments: object) -> None:
        pass

    def _say(self, kind: str, body: bytes) -> None:
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        if self.path == "/order":
            self._say("application/json", orders.get())
        elif self.path == "/stomp.umd.js":
            self._say("text/javascript", STOMPJS.read_bytes())
        elif self.path == "/stompjs_program.js":
            self._say("text/javascript", (HERE / "stompjs_program.js").read_bytes())
        else:
            self._say("text/html", PAGE)

    def do_POST(self) -> None:
        answers.put(self.rfile.read(int(self.headers["content-length"])))
        self._say("text/plain", b"")


def main() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    profile = tempfile.mkdtemp(prefix="stompcodec-chromium-")
    command = [shutil.which("chromium") or "chromium", *FLAGS.split(), f"--user-data-dir={profile}"]
    browser = subprocess.Popen(
        [*command, f"http://127.0.0.1:{server.server_port}/"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        for line in sys.stdin.buffer:
            orders.put(line)
            sys.stdout.buffer.write(answers.get(timeout=60) + b"\n")
            sys.stdout.buffer.flush()
    finally:
        browser.terminate()
        browser.wait(10)
        shutil.rmtree(profile, ignore_errors=True)


main()
