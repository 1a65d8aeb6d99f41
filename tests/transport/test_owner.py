"""The small parts that both shells stand on."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompcodec.transport.owner import BIG, Over, gather, name_of


@given(st.lists(st.one_of(st.binary(max_size=20), st.sampled_from([bytes(BIG - 1), bytes(BIG), bytes(BIG + 1)]))))
def test_chunks_are_joined_unless_they_are_big(chunks):
    pieces = gather(chunks)
    assert b"".join(pieces) == b"".join(chunks)
    big = [chunk for chunk in chunks if len(chunk) >= BIG]
    assert [id(piece) for piece in pieces if any(piece is chunk for chunk in big)] == [id(chunk) for chunk in big]
    assert len(pieces) <= 2 * len(big) + 1


@pytest.mark.parametrize(
    ("address", "name"),
    [
        (("127.0.0.1", 80), "127.0.0.1:80"),
        (("::1", 80, 0, 0), "[::1]:80"),
        ("", "?"),
        (None, "?"),
        ("/run/stomp", "/run/stomp"),
    ],
)
def test_names_of_peers(address, name):
    assert name_of(address) == name


class Reversed:
    """A layer whose handshake is one letter each, and that turns octets around."""

    def __init__(self, letter):
        self.letter = letter
        self.opened = self.ended = self.waiting = False
        self.error = None
        self.output = []

    def start(self):
        self.output.append(self.letter)

    def receive(self, data):
        data = bytes(data)
        if not self.opened:
            if data[:1] != self.letter:
                self.error = ValueError(data)
                return []
            self.opened, data = True, data[1:]
        if data.endswith(b"."):
            self.ended = True
        return [data[::-1]] if data else []

    def send(self, chunks):
        self.output += [chunk[::-1] for chunk in chunks]

    def take_output(self):
        output, self.output = self.output, []
        return output

    def close(self):
        self.output.append(b"bye")

    def bound(self, octets):
        self.most = octets

    def discard(self):
        self.output = [b"discarded"]


def test_two_layers_are_one():
    """The upper one starts when the lower one is opened, and all it says goes through the lower one."""
    layer = Over(Reversed(b"l"), Reversed(b"u"))
    layer.start()
    assert layer.take_output() == [b"l"]
    assert layer.receive(b"l") == []
    assert (layer.opened, layer.take_output()) == (False, [b"u"])
    assert layer.receive(b"ba" + b"u") == [b"ba"]
    assert layer.opened
    layer.send([b"abc"])
    assert layer.take_output() == [b"abc"]
    layer.bound(5)
    assert layer.upper.most == 5
    layer.discard()
    assert layer.upper.output == layer.lower.output == [b"discarded"]
    layer.upper.output, layer.lower.output = [], []
    layer.close()
    assert layer.take_output() == [b"eyb", b"bye"]
    assert layer.receive(b".") == [b"."]
    assert layer.ended
