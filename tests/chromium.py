"""Headless Chromium for tests of pages, driven by its DevTools protocol."""

import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from patience import patience

FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --disable-dev-shm-usage --hide-scrollbars --remote-debugging-port=0"
)
#: A button or row by the beginning of its text; and where it is in the window.
_BUTTON = """[...document.querySelectorAll(WITHIN + " :is(button, tr.row)")].find(
  (each) => each.innerText.trim().startsWith(TEXT) && each.offsetParent && !each.disabled)"""
_PLACE = """(() => {
  const it = FIND;
  it.scrollIntoView({ block: "nearest" });
  const box = it.getBoundingClientRect();
  return [box.x + Math.min(box.width / 2, 40), box.y + box.height / 2];
})()"""
#: For tests that need it.
needs_chromium = pytest.mark.skipif(shutil.which("chromium") is None, reason="Chromium is not installed")


class Page:
    """One tab. `errors` are the exceptions of its scripts, and what its policy has refused."""

    def __init__(self, chromium, target: str, url: str) -> None:
        from websockets.sync.client import connect

        self._chromium, self.target = chromium, target
        self._stack = contextlib.ExitStack()
        address = f"ws://127.0.0.1:{chromium.port}/devtools/page/{target}"
        self._socket = self._stack.enter_context(connect(address, max_size=None))
        self._number, self.errors = 0, []
        self.url, self._worker = url, ""
        for domain in ("Page", "Runtime", "Log"):
            self.order(f"{domain}.enable")
        self.order("Page.bringToFront")
        self.order("Emulation.setFocusEmulationEnabled", enabled=True)
        self.order("Page.navigate", url=url)

    def order(self, method: str, *, session: str = "", **params: object) -> Any:
        """Send a command, to the page or to a session of one of its workers, and return its result."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        self._socket.send(json.dumps({**message, "sessionId": session} if session else message))
        while True:
            answer = json.loads(self._socket.recv(patience(60)))
            if answer.get("id") == self._number:
                assert "error" not in answer, (method, answer)
                return answer["result"]
            self._note(answer)

    def _note(self, event: dict[str, Any]) -> None:
        params = event.get("params", {})
        if event["method"] == "Target.attachedToTarget":
            self._worker = params["sessionId"]
        elif event["method"] == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description", details["text"]))
        elif event["method"] == "Runtime.consoleAPICalled" and params["type"] == "error":
            self.errors.append(str([each.get("description", each.get("value")) for each in params["args"]]))
        elif event["method"] == "Log.entryAdded" and params["entry"]["source"] == "security":
            self.errors.append(params["entry"]["text"])

    def get(self, expression: str) -> Any:
        answer = self.order("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def get_in_worker(self, expression: str) -> Any:
        self.order("Target.setAutoAttach", autoAttach=True, waitForDebuggerOnStart=False, flatten=True)
        assert self._worker
        options = {"returnByValue": True, "awaitPromise": True, "allowUnsafeEvalBlockedByCSP": False}
        answer = self.order("Runtime.evaluate", session=self._worker, expression=expression, **options)
        return answer["result"].get("value")

    def wait(self, expression: str, seconds: float = 10) -> Any:
        """The value of an expression as soon as it is true. The page is not asked more than it can answer."""
        until = time.monotonic() + patience(seconds)
        while time.monotonic() < until:
            answer = self.order("Runtime.evaluate", expression=expression, returnByValue=True)
            value = answer["result"].get("value") if "exceptionDetails" not in answer else None
            if value:
                return value
            time.sleep(0.02)
        raise AssertionError(f"never true: {expression}; errors: {self.errors}; text: {self.text()[:2000]}")

    def text(self, selector: str = "body") -> str:
        return str(self.get(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''"))

    def click(self, text: str, within: str = "body") -> None:
        find = _BUTTON.replace("WITHIN", json.dumps(within)).replace("TEXT", json.dumps(text))
        self.wait(f"Boolean({find})")
        x, y = place = self.get(_PLACE.replace("FIND", find))
        while (again := self.get(_PLACE.replace("FIND", find))) != place:  # the page still moves
            x, y = place = again
        for kind in ("mousePressed", "mouseReleased"):
            self.order("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def type(self, text: str, selector: str | None = None) -> None:
        if selector is not None:
            self.wait(f"Boolean(document.querySelector({json.dumps(selector)}))")
            self.get(f"document.querySelector({json.dumps(selector)}).focus()")
        self.order("Input.insertText", text=text)

    def press(self, key: str) -> None:
        codes = {"Enter": 13, "Escape": 27, "ArrowDown": 40, "ArrowUp": 38, "Tab": 9, "End": 35, "Home": 36}
        code = {"windowsVirtualKeyCode": codes[key]} if key in codes else {}
        text = {"text": "\r"} if key == "Enter" else {"text": key} if len(key) == 1 else {}
        self.order("Input.dispatchKeyEvent", type="keyDown", key=key, **text, **code)
        self.order("Input.dispatchKeyEvent", type="keyUp", key=key, **code)

    def resize(self, width: int, height: int, *, phone: bool = False, scale: float = 1) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": scale, "mobile": phone}
        self.order("Emulation.setDeviceMetricsOverride", **size)

    def prefer(self, scheme: str) -> None:
        self.order("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def close(self) -> None:
        self._chromium.ask(f"/json/close/{self.target}")
        self._stack.close()


class Chromium:
    """A browser with an empty profile, which it does not keep."""

    def __init__(self) -> None:
        self._folder = tempfile.mkdtemp(prefix="stompcodec-chromium-")
        # A preloaded sanitizer is meant for the Python that runs the tests: Chromium hangs with it.
        environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
        command = [shutil.which("chromium") or "chromium", *FLAGS.split(), f"--user-data-dir={self._folder}"]
        silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self._process = subprocess.Popen([*command, "about:blank"], env=environment, **silent)
        self._stack = contextlib.ExitStack()
        self._stack.callback(shutil.rmtree, self._folder, ignore_errors=True)
        self._stack.callback(self._end)
        self.port = self._wait_port()

    def _end(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(patience(20))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _wait_port(self) -> int:
        chosen, until = Path(self._folder, "DevToolsActivePort"), time.monotonic() + patience(60)
        while time.monotonic() < until and self._process.poll() is None:
            lines = chosen.read_text(encoding="ascii").split() if chosen.is_file() else []
            if len(lines) == 2:
                return int(lines[0])
            time.sleep(0.02)
        self._stack.close()
        raise AssertionError("Chromium does not start")

    def open(self, url: str) -> Page:
        return Page(self, json.loads(self.ask("/json/new?about:blank"))["id"], url)

    def ask(self, path: str) -> bytes:
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", method="PUT")
        with urllib.request.urlopen(request, timeout=patience(30)) as answer:
            octets: bytes = answer.read()
        return octets

    def close(self) -> None:
        self._stack.close()

    def __enter__(self):
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


@contextlib.contextmanager
def serving(handler: Callable[..., BaseHTTPRequestHandler]) -> Iterator[str]:
    """Answer requests over HTTP by a handler. Yields the address."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()
