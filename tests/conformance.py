"""The adapter for the conformance vectors: over whatever backend stompcodec picked."""

import base64
from collections.abc import Iterable, Mapping
from typing import Any

import stompcodec
from stompcodec import content, states

try:
    from run_vectors import Refused
except ImportError:

    class Refused(Exception):
        """The implementation refuses; the argument is the error kind."""


Pairs = list[tuple[str, str]]


def _version(name: str) -> str | None:
    return None if name == "none" else name


def _ask(function: Any, *args: Any, **named: Any) -> Any:
    try:
        return function(*args, **named)
    except stompcodec.FrameError as error:
        raise Refused(error.kind) from error


class Adapter:
    """One method for each kind of vector; `run_vectors` says what they take and return."""

    def __init__(self, codec: Any = stompcodec) -> None:
        self._codec = codec

    def decode(
        self, version: str, chunks: Iterable[bytes], eof: bool, limits: Mapping[str, int], lenient: bool
    ) -> list[tuple[Any, ...]]:
        parser = self._codec.Parser(
            _version(version), limits=stompcodec.Limits(**limits), lenient=lenient, heartbeats=True
        )
        events = []
        try:
            for chunk in chunks:
                for event in parser.feed(chunk):
                    if event is stompcodec.HEARTBEAT:
                        events.append(("heartbeat",))
                    else:
                        events.append(("frame", event.command, event.headers.pairs(), event.body, event.get))
            if eof:
                parser.close()
        except stompcodec.FrameError as error:
            events.append(("error", error.kind))
        return events

    def encode(
        self, version: str, command: str, headers: Pairs, body: bytes, options: Mapping[str, str], lenient: bool
    ) -> bytes:
        frame = self._codec.Frame(command, headers, body)
        return _ask(self._codec.serialize, frame, _version(version), lenient=lenient, **options)

    def encode_heartbeat(self, given: Mapping[str, Any]) -> dict[str, str]:
        return {"wire_b64": base64.b64encode(b"\n").decode()}

    def negotiate(self, given: Mapping[str, Any]) -> dict[str, str]:
        return {"version": _ask(states.negotiate, given["accept_version"], given["server"])}

    def negotiate_client(self, given: Mapping[str, Any]) -> dict[str, str]:
        return {"version": _ask(states.negotiate_client, given["connected_version"], given["offered"])}

    def negotiate_wishlist(self, given: Mapping[str, Any]) -> dict[str, str]:
        return {"version": _ask(states.negotiate_wishlist, given["client_version"], given["server_version"])}

    def validate(self, given: Mapping[str, Any]) -> dict[str, list[str]]:
        pairs = [(name, value) for name, value in given["headers"]]
        return {"missing": _ask(states.missing_headers, given["version"], given["sender"], given["command"], pairs)}

    def heartbeat_parse(self, given: Mapping[str, Any]) -> dict[str, list[int]]:
        return {"pair": list(_ask(states.parse_heart_beat, given["value"]))}

    def heartbeat(self, given: Mapping[str, Any]) -> dict[str, int]:
        pair = _ask(states.negotiate_heart_beat, given.get("connect"), given.get("connected"))
        return dict(zip(("client_to_server", "server_to_client"), pair))

    def artemis_ttl(self, given: Mapping[str, Any]) -> Any:
        return _ask(states.artemis_ttl, given["version"], given.get("connect"), given["acceptor"])

    def artemis_server_ping(self, given: Mapping[str, Any]) -> dict[str, int]:
        return {"server_to_client": _ask(states.artemis_server_ping, given.get("connect"))}

    def content_type(self, given: Mapping[str, Any]) -> dict[str, str | None]:
        return {"encoding": _ask(content.encoding_of, given["value"])}

    def json_header(self, given: Mapping[str, Any]) -> dict[str, Any]:
        return {"json": _ask(content.json_value, given["text"])}

    def content_encoding(self, given: Mapping[str, Any]) -> dict[str, str]:
        # The vectors name no limit but where one is tested.
        limit = {"max_size": given["max_size"]} if "max_size" in given else {}
        body = _ask(content.decode_content, given["encoding"], base64.b64decode(given["wire_b64"]), **limit)
        return {"body_b64": base64.b64encode(body).decode()}
