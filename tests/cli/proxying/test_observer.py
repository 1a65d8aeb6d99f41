"""The observer of the proxy: all bytes come out again, whatever they are and however they are cut."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompcodec import Frame, serialize
from stompcodec.cli.inputs import FrameReader, Place
from stompcodec.cli.proxying.bytes import Exchange, Foreign, Observer, Passed, Raw

BODIES = st.binary(max_size=30)
TEXT = st.text(st.characters(codec="ascii", exclude_characters="\0"), max_size=8)
FRAMES = st.builds(
    lambda command, headers, body, length: serialize(
        Frame(command, headers, body if command in ("SEND", "MESSAGE") else b""),
        content_length="always" if length or b"\0" in body else "never",
        lenient=True,
    ),
    st.sampled_from(["SEND", "MESSAGE", "ACK", "RECEIPT"]),
    st.dictionaries(st.sampled_from(["destination", "id", "passcode", "x"]), TEXT, max_size=3),
    BODIES,
    st.booleans(),
)
CUTS = st.lists(st.integers(1, 20), max_size=200)


def chunks_of(data, cuts):
    chunks = []
    for size in cuts:
        chunks.append(data[:size])
        data = data[size:]
    return [chunk for chunk in (*chunks, data) if chunk]


@given(st.lists(FRAMES | st.just(b"\n"), max_size=8).map(b"".join), CUTS, st.sampled_from([0, 5, 1000]))
def test_frames_are_those_of_decode(data, cuts, keep):
    """The places, versions and frames that `decode` shows of the same bytes."""
    observer = Observer(keep=keep)
    passed = [event for chunk in chunks_of(data, cuts) for event in observer.feed(chunk) if isinstance(event, Passed)]
    assert observer.fed == len(data)
    found = [place for places in FrameReader(io.BytesIO(data).read).places() for place in places]
    assert all(isinstance(place, Place) for place in found)
    assert [(event.place.start, event.place.body, event.place.end) for event in passed] == [
        (place.start, place.body, place.end) for place in found
    ]
    for event, place in zip(passed, found):
        assert event.head == data[place.start : place.body]
        assert event.place.begin == place.frame.body[:256]
        assert event.streamed == (place.size > keep)
        if not event.streamed:
            assert event.place.frame == place.frame
            assert event.octets == data[place.start : place.end]


@pytest.mark.parametrize(("side", "destination"), [("broker", "a\\c"), ("client", "a:")])
def test_the_version_that_a_broker_says_holds_for_both_directions(side, destination):
    exchange = Exchange()
    exchange.feed(side, b"CONNECTED\nversion:1.0\n\n\0")
    (event,) = exchange.feed("client", b"SEND\ndestination:a\\c\n\n\0")
    assert isinstance(event, Passed)
    assert event.place.version == ("1.0" if side == "broker" else None)
    assert event.place.frame.get("destination") == destination


def test_an_endless_head_is_not_kept():
    observer = Observer(keep=10)
    line = b"x:" + b"y" * 60_000 + b"\n"
    events = [event for data in (b"SEND\n", *[line] * 40) for event in observer.feed(data)]
    assert type(events[0]) is Foreign
    assert {type(event) for event in events[1:]} == {Raw}
    assert b"".join(event.octets for event in events) == b"SEND\n" + line * 40
    assert observer.broken is not None
    assert observer.broken.error.limit == "max_headers"
