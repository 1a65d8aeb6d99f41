"""Use broker, clients, captures and the command line as on any system. Run by tests/isolated/windows.py."""

import asyncio
import warnings
from importlib.util import find_spec
from pathlib import Path

import stompcodec
import stompcodec.client as stomp
from stompcodec.broker import Config, serve
from stompcodec.capture import Capture, CaptureBusyError, CaptureWriter
from stompcodec.spark.reading.window import looker

warnings.simplefilter("error")
LARGE = bytes(range(256)) * 8192


def with_threads(url: str) -> None:
    """Send in a transaction and with a receipt, receive in order, acknowledge."""
    with stomp.connect(url) as client:
        with client.transaction() as transaction:
            transaction.send("/queue/a", b"1")
            transaction.send("/queue/a", b"2")
        client.send("/queue/a", LARGE, receipt=True)
        bodies = []
        for message in client.subscribe("/queue/a", ack="client-individual"):
            with message.processing():
                bodies.append(message.body)
            if len(bodies) == 3:
                break
        assert bodies == [b"1", b"2", LARGE]


async def with_asyncio(url: str) -> None:
    async with stomp.connect_async(url) as client:
        await client.send("/queue/b", b"hello", receipt=True)
        async for message in client.subscribe("/queue/b", ack="client-individual"):
            async with message.processing():
                assert message.body == b"hello"
            break


async def broker(folder: Path) -> None:
    """A durable broker, over TCP and WebSocket; what it has stored is there after a restart."""
    config = Config(port=0, data=str(folder / "data"), large=2**20)
    if find_spec("websockets"):
        config = config.replace(ws_port=0)
    async with serve(config) as server:
        urls = [f"stomp://127.0.0.1:{server.port}"]
        if config.ws_port is not None:
            urls.append(f"ws://127.0.0.1:{server.ws_port}/ws")
        for url in urls:
            await asyncio.to_thread(with_threads, url)
            await with_asyncio(url)
        async with stomp.connect_async(urls[0]) as client:
            for body in (b"kept", LARGE):
                await client.send("/queue/kept", body, headers={"persistent": "true"}, receipt=True)
    async with serve(config) as server, stomp.connect_async(f"stomp://127.0.0.1:{server.port}") as client:
        kept = []
        async for message in client.subscribe("/queue/kept", ack="client-individual"):
            async with message.processing():
                kept.append(message.body)
            if len(kept) == 2:
                break
        assert kept == [b"kept", LARGE]


def captures(folder: Path) -> None:
    frame = stompcodec.Frame("MESSAGE", {"destination": "/queue/a", "message-id": "1"}, b"hello")
    for name, options in (("chain", {"segment_octets": 64}), ("one.stompcap", {"single": True})):
        path = folder / name
        with CaptureWriter(path, **options) as writer:  # type: ignore[arg-type]
            for at in range(3):
                writer.append(stompcodec.serialize(frame), 1_700_000_000_000_000 + at)
            writer.sync()
            try:
                CaptureWriter(path)
            except CaptureBusyError:
                pass
            else:
                raise AssertionError("two writers at once")
        with CaptureWriter(path, **options) as writer:  # type: ignore[arg-type]
            writer.append(stompcodec.serialize(frame), 1_700_000_000_000_009)
        assert len(list(Capture(path).frames())) == 4, name
    look = looker(str(folder / "one.stompcap"), None)
    assert (look(0), look(1), look(10**6)) == (b"M", b"E", b"")


def command_line(folder: Path, url: str) -> None:
    from click.testing import CliRunner

    from stompcodec.cli.app import app

    def call(*words: object) -> str:
        done = CliRunner().invoke(app, [str(word) for word in words])
        assert done.exit_code == 0, (words, done.output, done.exc_info)
        return done.output

    def frames(path: Path) -> str:
        call("convert", path, path.with_suffix(".jsonl"))
        return path.with_suffix(".jsonl").read_text("utf-8")

    assert frames(folder / "one.stompcap").count("hello") == 4
    call("convert", folder / "chain", folder / "raw.stomp")
    assert call("decode", "--json", folder / "raw.stomp").count("hello") == 4
    call("inspect", folder / "raw.stomp", "-o", folder / "page.html")
    assert (folder / "page.html").stat().st_size > 1000
    for body in ("first", "second"):
        call("pub", "/queue/c", body, "--url", url)
    assert "first" in call("sub", "/queue/c", "--count", 1, "--url", url)
    call("record", url, "/queue/c", "-o", folder / "feed.stompcap", "--count", 1)
    assert "second" in frames(folder / "feed.stompcap")


async def with_broker(folder: Path) -> None:
    async with serve(Config(port=0)) as server:
        await asyncio.to_thread(command_line, folder, f"stomp://127.0.0.1:{server.port}")


def main(folder: Path) -> None:
    asyncio.run(broker(folder))
    print("broker and clients work")
    captures(folder)
    print("captures work")
    if find_spec("click") and find_spec("rich"):
        asyncio.run(with_broker(folder))
        print("the command line works")


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        main(Path(folder))
