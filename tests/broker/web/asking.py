"""Plain HTTP requests to a broker on sockets."""

import asyncio
import base64
from typing import NamedTuple

from patience import patience

from stompcodec.broker.auth import Rule, User, hash_passcode
from stompcodec.broker.config import Config
from stompcodec.broker.server import Server

HASH = hash_passcode("x", n=16)
USERS = {name: User(name, HASH) for name in ("ada", "bob", "eve")}
CONFIG = Config(port=0, ws_port=0, web_health=True, web_metrics=True, web_page=True)
WITH_USERS = CONFIG.replace(users=USERS, rules=(Rule("ada", "manage"), Rule("*", "*")))


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


def login(name: str, passcode: str = "x", scheme: str = "Basic") -> dict[str, str]:
    return {"Authorization": f"{scheme} {base64.b64encode(f'{name}:{passcode}'.encode()).decode()}"}


async def get(server: Server, path: str, method: str = "GET", **headers: str) -> Reply:
    """Send a request, and read until the broker closes. Names of headers have underscores for hyphens."""
    pairs = {"Host": f"localhost:{server.ws_port}", **{name.replace("_", "-"): text for name, text in headers.items()}}
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in pairs.items()), "", ""]
    assert server.ws_port is not None
    reader, writer = await asyncio.open_connection("127.0.0.1", server.ws_port)
    writer.write("\r\n".join(lines).encode())
    try:
        head, _, body = (await asyncio.wait_for(reader.read(), patience(30))).partition(b"\r\n\r\n")
    finally:
        writer.close()
    status, *lines = head.decode("ascii").split("\r\n")
    found = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    assert int(found["content-length"]) == len(body)
    return Reply(int(status.split()[1]), found, body)
