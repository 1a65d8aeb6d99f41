"""The playground of the site: it reads, lints, cuts, escapes and shares frames, and answers its page in JSON.

The page runs this file under Pyodide, in a worker; the tests run it in CPython. All that it knows of STOMP comes from
the package.
"""

from __future__ import annotations

import json
import re
import tempfile
import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import stompcodec
from stompcodec import HEARTBEAT, Frame, FrameError, Limits, Parser, serialize
from stompcodec.capture.index import ROW, read_trailer
from stompcodec.cli.inputs import Broken, FrameReader
from stompcodec.cli.packets import is_packets
from stompcodec.cli.screen import cut, printable
from stompcodec.cli.verbs.inspect import Book, Inspection
from stompcodec.errors import SECRET_WORDS

#: Largest input in bytes, packed or not.
MOST = 8 * 2**20
#: Bytes up to which an input can be cut at a place, and at each place.
CUT = 64 * 1024
CUT_EVERYWHERE = 4096
#: Characters of a fragment: what mail programs and chats pass on whole.
FRAGMENT = 24 * 1024
#: Entries on the page, and bytes of all of them.
ENTRIES = 1000
_ROOM = 3_000_000
_VERSIONS = ("auto", "1.0", "1.1", "1.2", "legacy")
_BROKEN_LINK = "The link is broken or was cut short: ask for it again."
_NULS = ("\0", "^@", "\u2400")
#: Characters that cannot be seen, as the page shows them. Few fonts have the signs of Unicode for them.
_SIGNS = {10: "\u21b5", 13: "^M", 0: "^@"}
_WORDS = "|".join(SECRET_WORDS).encode()
_SECRET = re.compile(rb"(?i)((?:%s)(?:[a-z0-9_.-]*:)?)([^\n\0]*?)(?=\r?(?:[\n\0]|\Z))" % _WORDS)
#: What stands before the host of an address such as stomp://me:secret@host, also with colons escaped. A search for the
#: password itself would take quadratic time in a text of colons.
_USER = re.compile(rb"((?::|\\c)//)([^\s/@\0]+)(?=@)")


class Problem(Exception):
    """Why an input cannot be shown, in one line."""


def octets_of(text: str) -> bytes:
    """Return the bytes of a text in which ^@ or ␀ stands for NUL, and ^M for CR. Without those, \\0 is NUL.

    >>> octets_of("ACK^M\\nid:7\\n\\n^@"), octets_of("x\\\\0"), octets_of("^@\\\\0")
    (b'ACK\\r\\nid:7\\n\\n\\x00', b'x\\x00', b'\\x00\\\\0')
    """
    if not any(sign in text for sign in _NULS):
        text = text.replace("\\0", "\0")
    for sign in _NULS:
        text = text.replace(sign, "\0")
    return text.replace("^M", "\r").encode("utf-8", "replace")


def text_of(octets: bytes) -> str | None:
    """Return bytes as a text that `octets_of` turns back into them; None if there is none.

    >>> text_of(b"ACK\\nid:7\\n\\n\\0"), text_of(b"\\xff"), text_of(b"^@")
    ('ACK\\nid:7\\n\\n^@', None, None)
    """
    try:
        text = octets.decode()
    except UnicodeDecodeError:
        return None
    text = text.replace("\0", "^@").replace("\r", "^M")
    plain = text.isprintable() or all(letter >= " " or letter in "\n\t" for letter in text)
    return text if plain and octets_of(text) == octets else None


def masked(octets: bytes) -> bytes:
    """Return bytes with all that may be a secret replaced by as many stars, in headers and bodies.

    A secret reaches from a word such as "passcode" to the end of its line; names of headers stay.

    >>> masked(b"CONNECT\\npasscode:x\\n\\n\\0"), masked(b"SEND\\nx:a\\\\c//me\\\\cpw@b\\n\\n\\0")
    (b'CONNECT\\npasscode:*\\n\\n\\x00', b'SEND\\nx:a\\\\c//me\\\\c**@b\\n\\n\\x00')
    """
    octets = _SECRET.sub(lambda found: found[1] + b"*" * len(found[2]), octets)
    return _USER.sub(_without_password, octets)


def _without_password(found: re.Match[bytes]) -> bytes:
    colon = re.search(rb":|\\c", found[2])
    kept = colon.end() if colon else len(found[2])
    return found[1] + found[2][:kept] + b"*" * (len(found[2]) - kept)


def _size(octets: int) -> str:
    return f"{octets / 2**20:.1f} MB" if octets >= 2**20 else f"{octets:,} bytes"


def _inflated(octets: bytes, name: str) -> bytes:
    """Return what gzip has packed, at most `MOST` bytes."""
    unpacked, rest = b"", octets
    try:
        while rest.startswith(b"\x1f\x8b"):
            stream = zlib.decompressobj(31)
            unpacked += stream.decompress(rest, MOST + 1 - len(unpacked))
            if len(unpacked) > MOST:
                raise Problem(f"{name} has more than 8 MB unpacked, which is the most that this page takes.")
            if not stream.eof:
                raise Problem(f"{name} is packed by gzip, and was cut short.")
            rest = stream.unused_data
    except zlib.error:
        raise Problem(f"{name} looks packed by gzip, but cannot be unpacked.") from None
    return unpacked


def _is_binary(octets: bytes) -> bool:
    text = octets[:65536].decode("utf-8", "replace")[:-3]
    return any(letter == "\ufffd" or (letter < " " and letter not in "\n\r\t\0") for letter in text)


def _event(event: Any) -> tuple[str, object]:
    """Return an event as a line, and as all that has to be the same."""
    if event is HEARTBEAT:
        return "heart-beat", None
    assert isinstance(event, Frame)
    about = event.get("destination") or event.get("id") or event.get("receipt-id") or ""
    line = f"{printable(event.command)} {cut(printable(about), 60)}".rstrip()
    return f"{line}, {len(event.body)} bytes of body", (event.command, tuple(event.headers.pairs()), event.body)


def events_of(reads: Iterable[bytes], version: str, lenient: bool = False) -> list[list[tuple[str, object]]]:
    """Return the events that each read completes; an error, and the end inside a frame, stand with the last.

    >>> [[line for line, _ in events] for events in events_of([b"ACK\\nid", b":7\\n\\n\\0\\n"], "1.2")]
    [[], ['ACK 7, 0 bytes of body', 'heart-beat']]
    """
    pieces = iter([each for each in reads if each])
    reader = FrameReader(lambda _size: next(pieces, b""), version, lenient=lenient)
    batches: list[list[tuple[str, object]]] = []
    for found in reader.events():
        if isinstance(found, Broken):
            error = found.error
            batches[-1].append((f"{error.kind} at byte {error.offset}", (error.kind, error.offset)))
        else:
            batches.append([_event(event) for event in found])
    return batches[1:] or batches  # the first is of no read


def _joined(batches: list[list[tuple[str, object]]]) -> list[tuple[str, object]]:
    return [event for batch in batches for event in batch]


def _signs(text: str) -> str:
    return printable(text.translate(_SIGNS))


def _written(value: str, version: str) -> str:
    try:
        wire = serialize(Frame("MESSAGE", {"x": value}), version=version)
    except FrameError as error:
        return f"cannot be written: {error.detail or error.kind}"
    return _signs(wire[len(b"MESSAGE\nx:") :].rpartition(b"\n\n")[0].decode())


def _read(value: str, version: str) -> str:
    if "\n" in value or "\0" in value:
        return "not a value on the wire: LF ends the line, NUL the frame"
    parser = Parser(version)
    parser.feed(b"MESSAGE\nx:" + value.encode("utf-8", "replace") + b"\n\n\0")
    try:
        [frame] = [event for event in parser if isinstance(event, Frame)]
    except FrameError as error:
        return f"{error.kind} at byte {(error.offset or 0) - len('MESSAGE x:')} of the value"
    return _signs(frame.headers["x"])


class Playground:
    """The bytes that the page looks at, and the answers to its requests.

    >>> playground = Playground()
    >>> json.loads(playground.answer('{"what": "text", "text": "ACK\\\\nid:7\\\\n\\\\n^@"}'))["size"]
    11
    """

    def __init__(self) -> None:
        self._octets = b""
        self._name = "The text"
        self._form = "raw"
        self._version = "auto"
        self._lenient = False

    def answer(self, request: str, data: bytes | None = None) -> str:
        """Return the answer to a request, as JSON. What cannot be done is an object with one `line`."""
        wanted: dict[str, Any] = json.loads(request)
        parts: dict[str, Callable[..., dict[str, Any]]] = {
            "text": self._text,
            "file": self._file,
            "fragment": self._fragment,
            "look": self._look,
            "size": self._measure,
            "cut": self._cut,
            "everywhere": self._everywhere,
            "escapes": self._escapes,
            "share": self._share,
        }
        if data is not None:
            wanted["data"] = data
        try:
            answer = parts[wanted.pop("what")](**wanted)
        except Problem as problem:
            answer = {"line": str(problem)}
        return json.dumps(answer)

    def _text(self, text: str) -> dict[str, Any]:
        return self._take(octets_of(text), "The text")

    def _file(self, name: str, data: bytes) -> dict[str, Any]:
        return self._take(bytes(data), cut(printable(name), 80))

    def _take(self, octets: bytes, name: str) -> dict[str, Any]:
        self._octets, self._form = b"", "raw"
        if len(octets) > MOST:
            raise Problem(f"{name} has {_size(len(octets))}: this page takes up to 8 MB. For more: stompcodec inspect.")
        if octets.startswith(b"\x1f\x8b"):
            octets = _inflated(octets, name)
        if read_trailer(octets[-ROW:], len(octets)) is not None:
            self._form = "capture"
        elif is_packets(octets[:12]):
            self._form = "pcapng"
        self._octets, self._name = octets, name
        text = text_of(octets) if self._form == "raw" and len(octets) <= CUT else None
        return {"text": text, "size": len(octets), "nuls": octets.count(0), "form": self._form, "name": name}

    def _fragment(self, fragment: str) -> dict[str, Any]:
        found = re.fullmatch(r"frames=([A-Za-z0-9_-]+)", fragment[: FRAGMENT + 100])
        stream = zlib.decompressobj()
        try:
            packed = urlsafe_b64decode(found[1] + "=" * (-len(found[1]) % 4)) if found else b""
            head, found_line, octets = stream.decompress(packed, MOST).partition(b"\n")
            version = head.decode("ascii")
        except (ValueError, zlib.error):
            raise Problem(_BROKEN_LINK) from None
        if version not in _VERSIONS or not found_line or not stream.eof or stream.unused_data:
            raise Problem(_BROKEN_LINK)
        self._version = version
        return {**self._take(octets, "The frames of the link"), "version": version}

    def _look(self, version: str, lenient: bool) -> dict[str, Any]:
        self._version, self._lenient = version, lenient
        problems: list[str] = []
        options = {"version": version, "lenient": lenient, "limits": Limits(), "resync": True}
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "input.stompcap" if self._form == "capture" else "input")
            path.write_bytes(self._octets)
            inspection = Inspection(str(path), problems.append, options)
            inspection.name = self._name
            book = Book(False, _ROOM)
            frames = 0
            for entry in inspection.entries(ENTRIES):
                frames += entry.place is not None
                if not book.add(entry):
                    inspection.full = True
                    inspection.left += 1
        if not frames and self._form == "raw" and _is_binary(self._octets):
            raise Problem(f"{self._name} is binary, and does not begin with a STOMP frame.")
        said = [line.replace(str(path), self._name) for line in problems] if self._form != "raw" else []
        return {**json.loads(book.text(inspection.left)), "problems": said, "stompcodec": stompcodec.__version__}

    def _measure(self) -> dict[str, Any]:
        return {"size": len(self._octets)}

    def _cuttable(self, most: int) -> bytes:
        if self._form != "raw" or len(self._octets) > most:
            raise Problem(f"Cutting is for frames of up to {most // 1024} KiB.")
        return self._octets

    def _cut(self, at: int) -> dict[str, Any]:
        octets = self._cuttable(CUT)
        reads = octets[:at], octets[at:]
        batches = events_of(reads, self._version, self._lenient)
        whole = _joined(events_of([octets], self._version, self._lenient))
        first = batches[0] if reads[0] else []
        return {
            "first": [line for line, _ in first],
            "second": [line for line, _ in _joined(batches[bool(reads[0]) :])],
            "same": _joined(batches) == whole,
            "before": _signs(masked(octets)[:at][-24:].decode("utf-8", "replace")),
            "after": _signs(masked(octets)[at:][:24].decode("utf-8", "replace")),
        }

    def _everywhere(self) -> dict[str, Any]:
        octets = self._cuttable(CUT_EVERYWHERE)
        whole = _joined(events_of([octets], self._version, self._lenient))
        wrong = [
            at
            for at in range(1, len(octets))
            if _joined(events_of([octets[:at], octets[at:]], self._version, self._lenient)) != whole
        ]
        return {"cuts": max(0, len(octets) - 1), "events": len(whole), "different": wrong[:10]}

    def _escapes(self, value: str) -> dict[str, Any]:
        value = value[:2000].replace("^M", "\r")
        return {"rows": [[each, _written(value, each), _read(value, each)] for each in ("1.0", "1.1", "1.2")]}

    def _share(self) -> dict[str, Any]:
        if self._form != "raw":
            raise Problem("Only frames can be shared by a link, not a capture.")
        hidden = masked(self._octets)
        packed = zlib.compress(self._version.encode() + b"\n" + hidden, 9)
        fragment = "frames=" + urlsafe_b64encode(packed).decode().rstrip("=")
        if len(fragment) > FRAGMENT:
            raise Problem(f"The link would have {len(fragment):,} characters, of {FRAGMENT:,} at most: send the file.")
        return {"fragment": fragment, "masked": hidden != self._octets}
