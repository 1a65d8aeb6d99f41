"""Option tables of the sources and the sink, and the parser that checks users' values against them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from datetime import datetime, timedelta, timezone
from typing import Any, NamedTuple

from stompcodec import values
from stompcodec.arguments import meant
from stompcodec.errors import StompError
from stompcodec.spec import Limits, dialect_of

#: Share of invalid records above which a feed is unhealthy in the report, and `write_exploded` warns.
QUARANTINED = 0.05
#: All commands.
ALL = ("*",)
_USUAL = dialect_of("1.2").commands


class OptionError(StompError, ValueError):
    """Error for an unknown option or an invalid value: one line that names the option."""


class Option(NamedTuple):
    """One option of a source or sink."""

    name: str
    """Name as users write it; Spark ignores its case."""
    kind: str | tuple[str, ...]
    """A key of `_KINDS`, perhaps followed by " positive", or the tuple of allowed values."""
    default: Any
    """Value when the option is not given; `...` makes it mandatory."""
    meaning: str

    @property
    def field(self) -> str:
        """Name in Python: batchRows becomes batch_rows."""
        return re.sub(r"(?<=[a-z])([A-Z])", lambda found: "_" + found[1].lower(), self.name).lower()


#: Positions in a chain, besides times.
EARLIEST, LATEST = "earliest", "latest"
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def _names(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not names:
        raise ValueError
    return names


def _commands(text: str) -> tuple[str, ...]:
    names = _names(text)
    if any(name not in _USUAL and meant(name, _USUAL) for name in names):  # others are commands of a feed's own
        raise ValueError
    return names


def _time(text: str) -> int:
    """Return microseconds since 1970; a time without a zone is UTC."""
    moment = datetime.fromisoformat(text.strip().replace("Z", "+00:00"))
    return (moment.replace(tzinfo=moment.tzinfo or timezone.utc) - _EPOCH) // timedelta(microseconds=1)


def _position(text: str) -> str | int:
    return text.lower() if text.lower() in (EARLIEST, LATEST) else _time(text)


def _text(text: str) -> str:
    if not text:
        raise ValueError
    return text


#: Kinds of options: the function that parses a value, and the text that errors show. " positive" forbids 0.
_KINDS: dict[str, tuple[Callable[[str], Any], str]] = {
    "count": (values.count, values.COUNT),
    "size": (values.size, values.SIZE),
    "seconds": (values.duration, values.DURATION),
    "bool": (values.boolean, values.BOOLEAN),
    "time": (_time, "a time such as 2026-01-31 or 2026-01-31T12:30:00Z"),
    "position": (_position, "earliest, latest, or a time such as 2026-01-31T12:30:00Z"),
    "names": (_names, "names separated by commas"),
    "commands": (_commands, "commands such as MESSAGE,SEND, or * for all"),
    "text": (_text, "a text that is not empty"),
}


def _value(option: Option, text: str) -> Any:
    """Convert a user's value to the kind of its option; raise OptionError if it is invalid."""
    if isinstance(option.kind, tuple):
        for choice in option.kind:
            if choice.lower() == text.strip().lower():
                return choice
        allowed = f"one of {', '.join(option.kind)}"
    else:
        kind, _, positive = option.kind.partition(" ")
        read, allowed = _KINDS[kind]
        try:
            value = read(text.strip())
            if not positive or value > 0:
                return value
        except (ValueError, KeyError):
            pass
        if positive:
            allowed += ", and more than 0"
    raise OptionError(f"option {option.name} is {text!r:.80}: it must be {allowed}")


def parse(table: Iterable[Option], options: Mapping[str, Any], *, also: Iterable[str] = ()) -> dict[str, Any]:
    """Return the values of all options in a table, by their names in Python. An OptionError shows no secret."""
    given = {str(name).lower(): str(value) for name, value in options.items()}
    table = tuple(table)
    names = [option.name for option in table]
    known = {name.lower() for name in names} | {name.lower() for name in also}
    for name in given:
        if name not in known:
            hint = meant(name, names)
            raise OptionError(
                f"unknown option {name!r:.80}: "
                + (f"did you mean {hint}?" if hint else f"the options are {', '.join(names)}")
            )
    values = {}
    for option in table:
        text = given.get(option.name.lower())
        if text is None and option.default is ...:
            raise OptionError(f"option {option.name} is missing: {option.meaning}")
        values[option.field] = option.default if text is None else _value(option, text)
    return values


_MODES = ("PERMISSIVE", "DROPMALFORMED", "FAILFAST")
#: Options of "stompfile". "stomp" shares them.
FILE_OPTIONS = (
    Option("mode", _MODES, "PERMISSIVE", "malformed frames become rows, are dropped, or fail the query"),
    Option("commands", "commands", ("MESSAGE", "SEND"), "frames that become rows; * for all"),
    Option(
        "decode",
        ("none", "gzip", "auto"),
        "none",
        "bodies: unchanged, gunzipped, or as a header or their first bytes say",
    ),
    Option(
        "version",
        ("auto", "1.0", "1.1", "1.2"),
        "auto",
        "STOMP version of bare streams; auto: that of their CONNECTED, else 1.2",
    ),
    Option("checksums", "bool", True, "verify the checksums of captures"),
    Option("maxBody", "size positive", 100 * 2**20, "a frame with a larger body, also when inflated, is malformed"),
    Option("batchRows", "count positive", 8192, "most rows of a record batch"),
    Option("batchBytes", "size positive", 8 * 2**20, "most bytes of frames in a record batch"),
    Option("splitBytes", "size positive", 32 * 2**20, "bytes of frames that a task reads, from one or several files"),
    Option("maxBytesPerTrigger", "size positive", None, "streams: most bytes of a batch; at least one frame"),
    Option("maxFramesPerTrigger", "count positive", None, "streams: most frames of a batch"),
    Option("startingPosition", "position", EARLIEST, "streams: where a new query begins: earliest, latest, or a time"),
    Option("failOnDataLoss", "bool", True, "streams: fail if frames are gone, or executors lack them"),
)
#: Options of "stompfile" alone that choose which frames become rows.
CHOICE_OPTIONS = (
    Option("destination", "names", None, "destinations, whole, of the frames that become rows; default all"),
    Option("since", "time", None, "frames received then or later become rows; needs a capture, which has times"),
    Option("until", "time", None, "frames received before then become rows; needs a capture, which has times"),
)
#: Options that Spark itself reads.
ELSEWHERE = ("path", "checkpointLocation", "queryName")
#: Properties that Spark adds to those of CREATE TABLE, and hands over as options.
RESERVED = (
    "comment", "collation", "location", "provider", "owner", "external", "is_managed_location", "table_type",
)  # fmt: skip


@dataclass(frozen=True)
class Choice:
    """Frames that become rows: those of `destinations` (empty for all), received from `since` to before `until`, in us
    since 1970; None for no bound. With a bound, frames of unknown time are left out.
    """

    destinations: tuple[str, ...] = ()
    since: int | None = None
    until: int | None = None

    @property
    def is_timed(self) -> bool:
        """True if the time of arrival matters."""
        return self.since is not None or self.until is not None


@dataclass(frozen=True)
class FileOptions:
    """Options for reading captures and streams of frames."""

    mode: str = "PERMISSIVE"
    commands: tuple[str, ...] = ("MESSAGE", "SEND")
    decode: str = "none"
    version: str = "auto"
    checksums: bool = True
    max_body: int = 100 * 2**20
    batch_rows: int = 8192
    batch_bytes: int = 8 * 2**20
    split_bytes: int = 32 * 2**20
    max_bytes_per_trigger: int | None = None
    max_frames_per_trigger: int | None = None
    starting_position: str | int = EARLIEST
    fail_on_data_loss: bool = True
    choice: Choice = Choice()

    @property
    def limits(self) -> Limits:
        """Limits of an accepted frame."""
        return Limits(max_body=self.max_body)

    @property
    def most_octets(self) -> int:
        """Most bytes of a frame, head included, that are examined."""
        return self.max_body + 2**24

    @property
    def extra_commands(self) -> tuple[str, ...]:
        """Commands that STOMP does not know but that are read all the same."""
        return tuple(name for name in self.commands if name not in _USUAL and name not in ALL)


def file_options(values: dict[str, Any]) -> FileOptions:
    """Return the options of files among parsed values, which lose them."""
    return FileOptions(**{each.name: values.pop(each.name) for each in fields(FileOptions) if each.name in values})


def parse_file(options: Mapping[str, Any]) -> FileOptions:
    """Return the options of "stompfile". Raises as `parse`."""
    # CREATE TABLE gives each option twice.
    options = {name: text for name, text in options.items() if not name.startswith("option.")}
    values = parse((*FILE_OPTIONS, *CHOICE_OPTIONS), options, also=(*ELSEWHERE, *RESERVED, "paths"))
    choice = Choice(values.pop("destination") or (), values.pop("since"), values.pop("until"))
    return FileOptions(**values, choice=choice)


def paths_of(options: Mapping[str, Any]) -> list[str]:
    """Return the paths and URIs that a user gave to `load`; raise OptionError for none, or a URI with a secret."""
    paths = json.loads(options["paths"]) if options.get("paths") else []
    if options.get("path"):
        paths.append(options["path"])
    if not paths:
        raise OptionError("option path is missing: load(path) takes a capture, a file, a folder of them, or a glob")
    return [uri_of("path", path) for path in paths]


def uri_of(option: str, path: str) -> str:
    """Return a path or URI as `place_of` writes it; raise OptionError if it has a secret."""
    from stompcodec.capture.places import place_of

    try:
        return str(place_of(path))
    except StompError as error:
        raise OptionError(f"option {option}: {error}") from None
