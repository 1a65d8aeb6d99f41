"""Probes of a verb that runs for long: a file that is written again each second, and a port that answers HTTP."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import threading
from dataclasses import asdict
from http.server import BaseHTTPRequestHandler, HTTPServer
from socketserver import TCPServer
from typing import TYPE_CHECKING, Any

import click

from stompcodec.cli.inputs import option_group

if TYPE_CHECKING:
    from stompcodec.client import Client

#: Seconds between two writings of the file.
_EVERY = 1.0
#: The most seconds that a connection to the port may take. Meanwhile no other probe gets its answer.
_MOST = 2.0
_PATH = "/healthz"


def _address(_context: click.Context, _option: click.Parameter, value: str | None) -> tuple[str, int] | None:
    """Parse PORT or HOST:PORT: a callback of click."""
    if value is None:
        return None
    host, colon, port = value.rpartition(":")
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and int(port) < 65536) or (colon and not host):
        raise click.BadParameter(f"{value!r}: write PORT or HOST:PORT, with a port up to 65535")
    return host.strip("[]") or "127.0.0.1", int(port)


#: The options of `Probes`.
health_options = option_group(
    click.option(
        "--health-file",
        metavar="FILE",
        type=click.Path(),
        help="Write to FILE each second whether the connection is up (JSON).",
    ),
    click.option(
        "--health-port",
        metavar="[HOST:]PORT",
        callback=_address,
        help="Answer GET /healthz: 200 while the connection is up, else 503. HOST is 127.0.0.1 by default.",
    ),
)


class Probes:
    """Tells supervisors how a client is doing, in a thread each for the file and the port.

    `with Probes(file, address):` opens both, and raises click.UsageError if one cannot be opened. Before `watch` the
    answer is that there is no connection.
    """

    def __init__(self, file: str | None, address: tuple[str, int] | None) -> None:
        self._file = file
        self._address = address
        self._client: Client | None = None
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []
        self._server: _Server | None = None

    def watch(self, client: Client) -> None:
        """Tell from now on how this client is doing."""
        self._client = client

    def told(self) -> dict[str, Any]:
        """Return the answer, as JSON has it."""
        from stompcodec.client import Health

        client = self._client
        health = Health(False, "connecting", None, 0, None) if client is None else client.is_alive()
        return {name: round(value, 3) if isinstance(value, float) else value for name, value in asdict(health).items()}

    @property
    def port(self) -> int | None:
        """The port that answers; None without one."""
        return None if self._server is None else self._server.server_port

    def __enter__(self) -> Probes:
        with contextlib.ExitStack() as undo:
            undo.callback(self._close)
            if self._file is not None:
                try:
                    self._write(self._file)
                except OSError as error:
                    raise click.UsageError(f"--health-file {self._file}: {error.strerror or error}") from None
                self._start(self._keep_written, self._file)
            if self._address is not None:
                try:
                    server = _Server(self._address, self)
                except (OSError, UnicodeError) as error:
                    why = getattr(error, "strerror", None) or error
                    raise click.UsageError(f"--health-port {':'.join(map(str, self._address))}: {why}") from None
                self._start(server.serve_forever, 0.1)
                self._server = server
            undo.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def _start(self, work: Any, *args: Any) -> None:
        thread = threading.Thread(target=work, args=args, name="stompcodec-health", daemon=True)
        thread.start()
        self._threads.append(thread)

    def _close(self) -> None:
        self._over.set()
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
        for thread in self._threads:
            thread.join()
        if self._file is not None and self._threads:
            with contextlib.suppress(OSError):
                os.unlink(self._file)

    def _keep_written(self, path: str) -> None:
        while not self._over.wait(_EVERY):
            with contextlib.suppress(OSError):  # a full disk: the file's age shows it, and the messages go on
                self._write(path)

    def _write(self, path: str) -> None:
        """Replace the file, so that nobody reads half of it."""
        if os.path.exists(path) and not os.path.isfile(path):  # replacing a device would harm others
            raise OSError(errno.EINVAL, "not a regular file")
        new = f"{path}.new"
        with open(new, "w", encoding="utf-8") as file:
            file.write(json.dumps(self.told()) + "\n")
        os.replace(new, path)


class _Server(HTTPServer):
    """Answers one connection after the other, each for `_MOST` seconds at the most."""

    def __init__(self, address: tuple[str, int], probes: Probes) -> None:
        self.probes = probes
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        """Bind without the reverse lookup of the host's name, which may take long."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Answer one connection, which is cut if its request takes too long."""
        cut = threading.Timer(_MOST, _cut, [request])
        cut.daemon = True
        cut.start()
        try:
            super().finish_request(request, client_address)
        finally:
            cut.cancel()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a prober that went away."""


def _cut(connection: socket.socket) -> None:
    """End a connection whose handler waits for it in another thread."""
    with contextlib.suppress(OSError):  # it is closed already
        connection.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    """Answers GET and HEAD of /healthz."""

    server: _Server
    server_version = "stompcodec"
    sys_version = ""

    def do_GET(self) -> None:
        """Tell how the client is doing."""
        if self.path.partition("?")[0] != _PATH:
            self.send_error(404)
            return
        told = self.server.probes.told()
        body = json.dumps(told).encode() + b"\n"
        self.send_response(200 if told["alive"] else 503)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    do_HEAD = do_GET

    def log_message(self, format: str, *args: Any) -> None:
        """Write no line for each probe."""
