"""Pages of the site, block by block and in their order, on a broker: what their commands and their Python print."""

from pathlib import Path
from typing import Any

import pytest
from cli.packets import ACK, CLIENT, SERVER, SYN, ethernet, pcapng, tcp
from docsite.blocks import ROOT, Block, blocks_of
from docsite.reader import Reader

from stompcodec import Frame, serialize
from stompcodec.testing import StompBroker

#: The pages, and how the broker is configured that they talk to.
PAGES: dict[str, dict[str, Any]] = {
    "docs/tutorial.md": {},
    "docs/traffic.md": {},
    "docs/rabbitmq.md": {"dialect": "rabbitmq"},
    "docs/activemq.md": {"dialect": "activemq"},
    "docs/artemis.md": {"dialect": "artemis"},
}


def _packets() -> bytes:
    """Return a capture as tcpdump writes it, of a connection that sends a message."""
    frames = serialize(Frame("SEND", {"destination": "/queue/a"}, b"hello"))
    opened = [tcp(CLIENT, SERVER, 0, flags=SYN), tcp(SERVER, CLIENT, 0, flags=SYN | ACK)]
    return pcapng([(0, ethernet(packet)) for packet in (*opened, tcp(CLIENT, SERVER, 1, frames))])


@pytest.mark.long
@pytest.mark.parametrize("page", PAGES)
def test_a_page_does_what_it_says(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if page == "docs/tutorial.md":
        pytest.importorskip("pyarrow")
    monkeypatch.chdir(tmp_path)
    if page == "docs/traffic.md":
        (tmp_path / "traffic.pcapng").write_bytes(_packets())
    tried = [block for block in blocks_of(ROOT / page) if not block.untried]
    assert len(tried) > 1
    with StompBroker(**PAGES[page]) as broker:
        reader = Reader(broker)
        for block in tried:
            reader.read(block)


def test_a_wrong_block_is_noticed() -> None:
    with StompBroker() as broker:
        reader = Reader(broker)
        reader.read(Block("p", 1, "python", "print(1 + 1)\n", ""))
        reader.read(Block("p", 2, "text", "2\n", ""))
        with pytest.raises(AssertionError, match="it prints something else"):
            reader.read(Block("p", 3, "text", "3\n", ""))
        with pytest.raises(ZeroDivisionError):
            reader.read(Block("p", 4, "python", "1 / 0\n", ""))
