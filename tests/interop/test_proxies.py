"""Our client through a proxy and a SockJS endpoint that somebody else wrote: proxy.py, and sockjs on aiohttp.

`make interop` installs both; what is not installed is skipped.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("click")
pytest.importorskip("websockets")

from client.broker import BrokerThread
from interop.rows import FOLDER
from patience import patience

import stompcodec.client as stomp

pytestmark = [pytest.mark.slow, pytest.mark.no_asan]

PYTHON = Path(os.environ.get("INTEROP_PYTHON", FOLDER / "venv/bin/python"))
#: The endpoint of the package sockjs: each session is a connection to a broker.
_ENDPOINT = """
import asyncio, codecs, sys
from aiohttp import web
import sockjs

port, target = int(sys.argv[1]), int(sys.argv[2])
brokers = {}

async def answers(session, reader):
    decoder = codecs.getincrementaldecoder("utf-8")()
    while octets := await reader.read(4096):
        if text := decoder.decode(octets):
            session.send(text)
    session.close(3000, "Go away!")

async def handle(manager, session, message):
    if message.type == sockjs.MsgType.OPEN:
        reader, writer = await asyncio.open_connection("127.0.0.1", target)
        brokers[session.id] = writer, asyncio.create_task(answers(session, reader))
    elif message.type == sockjs.MsgType.MESSAGE:
        brokers[session.id][0].write(message.data.encode())
    elif session.id in brokers:
        brokers.pop(session.id)[0].close()

app = web.Application()
sockjs.add_endpoint(app, handle, name="stomp", prefix="/app/stomp")
web.run_app(app, host="127.0.0.1", port=port, print=None)
"""


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


@contextlib.contextmanager
def running(module, command, port):
    """A program of the interop environment that listens on a port."""
    if not PYTHON.exists() or subprocess.run([PYTHON, "-c", f"import {module}"], capture_output=True).returncode:
        pytest.skip(f"{module} is not installed in {PYTHON}: make interop")
    process = subprocess.Popen(
        [PYTHON, *map(str, command)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL,
        start_new_session=True,  # proxy.py has workers, which have to end, too
    )
    try:
        give_up = time.monotonic() + patience(30)
        while True:
            assert process.poll() is None, f"{module} has ended"
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            assert time.monotonic() < give_up, f"{module} does not listen"
            time.sleep(0.05)  # another program's port: nothing tells when it is open
        yield
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    trustme = pytest.importorskip("trustme")
    authority, file = trustme.CA(), tmp_path_factory.mktemp("tls") / "server.pem"
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(file)
    with BrokerThread(tls_port=0, tls_cert=str(file), tls_key=str(file), ws_port=0) as broker:
        import ssl

        broker.context = ssl.create_default_context()
        authority.configure_trust(broker.context)
        yield broker


@pytest.fixture(scope="module")
def proxy():
    """The address of proxy.py, which wants the login ann:s3cret."""
    port = free_port()
    options = ("--hostname", "127.0.0.1", "--port", port, "--basic-auth", "ann:s3cret", "--num-workers", 1)
    with running("proxy", ("-m", "proxy", *options), port):
        yield f"127.0.0.1:{port}"


def converse(url, **options):
    with stomp.connect(url, connect_timeout=patience(20), **options) as client:
        client.send("/queue/a", "hello äöü", receipt=True)
        client.send("/queue/a", iter(["ü".encode() * 50_000]), length=100_000, receipt=True)
        subscription = client.subscribe("/queue/a", ack="client-individual")
        first, second = subscription.get(patience(20)), subscription.get(patience(20))
        assert (first.text(), second.body) == ("hello äöü", "ü".encode() * 50_000)
        for message in (first, second):
            message.ack(receipt=True)


@pytest.mark.parametrize("kind", ["tcp", "tls", "ws"])
def test_http_proxy_tunnels(broker, proxy, kind):
    url = {
        "tcp": broker.url,
        "tls": f"stomp+ssl://127.0.0.1:{broker.tls_port}",
        "ws": f"ws://127.0.0.1:{broker.ws_port}/",
    }[kind]
    converse(url, proxy=f"http://ann:s3cret@{proxy}", ssl=broker.context if kind == "tls" else None)


@pytest.mark.parametrize(("login", "words"), [("", "wants a login"), ("ann:wrong@", "does not accept this login")])
def test_http_proxy_refuses_a_wrong_login(broker, proxy, login, words):
    with pytest.raises(stomp.ConnectionLostError, match=f"407.*{words}"):
        stomp.connect(broker.url, proxy=f"http://{login}{proxy}", connect_timeout=patience(20))


def test_http_proxy_cannot_reach_a_broker_that_is_down(proxy):
    with pytest.raises(stomp.ConnectionLostError):
        stomp.connect(f"stomp://127.0.0.1:{free_port()}", proxy=f"ann:s3cret@{proxy}", connect_timeout=patience(20))


@pytest.fixture(scope="module")
def endpoint(broker):
    """The port of a SockJS server in front of our broker."""
    port = free_port()
    with running("sockjs", ("-c", _ENDPOINT, port, broker.port), port):
        yield port


def test_sockjs_carries_messages(endpoint):
    converse(f"http://127.0.0.1:{endpoint}/app/stomp")


def test_sockjs_through_an_http_proxy(endpoint, proxy):
    converse(f"http://127.0.0.1:{endpoint}/app/stomp", proxy=f"ann:s3cret@{proxy}")


def test_sockjs_closes_with_a_reason(endpoint):
    lost = []
    with stomp.connect(
        f"http://127.0.0.1:{endpoint}/app/stomp",
        reconnect=None,
        connect_timeout=patience(20),
        on_state=lambda _, error: lost.append(error),
    ) as client:
        with pytest.raises(stomp.StompError):  # the broker closes, and the endpoint says so
            client.receive("/queue/a", selector="((")
        assert client.state == "closed" or client.error is not None
    assert any(error is not None for error in lost)


def test_sockjs_refuses_an_unknown_endpoint(endpoint):
    with pytest.raises(stomp.ConnectionLostError, match="404"):
        stomp.connect(f"http://127.0.0.1:{endpoint}/none", connect_timeout=patience(20))


if sys.platform == "win32":
    pytest.skip("the interop environment is that of POSIX", allow_module_level=True)
