"""The typed face of the C backend. It is compared with the built module by stubtest."""

from array import array
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Literal, TypeVar, final, overload

from stompcodec.column_filter import Where
from stompcodec.frame import Mark
from stompcodec.spec import Limits

__all__ = [
    "END_OF_BODY",
    "HEARTBEAT",
    "Columns",
    "Frame",
    "Headers",
    "Parser",
    "frame_ends",
    "parse_columns",
    "serialize",
    "serialize_many",
    "serialize_parts",
    "serialize_tail",
]

_T = TypeVar("_T")
_Length = Literal["auto", "always", "never"]

HEARTBEAT: Final = Mark.HEARTBEAT
END_OF_BODY: Final = Mark.END_OF_BODY

@final
class Headers(dict[str, str]):
    def __init__(self) -> None: ...
    def pairs(self) -> list[tuple[str, str]]: ...
    def getall(self, name: str, /) -> list[str]: ...
    def clear(self, *args: Any, **kwargs: Any) -> None: ...
    def popitem(self, *args: Any, **kwargs: Any) -> tuple[str, str]: ...

@final
class Frame:
    def __new__(
        cls, command: str, headers: Mapping[str, str] | Iterable[tuple[str, str]] = (), body: Any = b""
    ) -> Frame: ...
    @property
    def command(self) -> str: ...
    @property
    def headers(self) -> Headers: ...
    @property
    def body(self) -> bytes: ...
    @overload
    def get(self, name: str, default: None = None, /) -> str | None: ...
    @overload
    def get(self, name: str, default: str | _T, /) -> str | _T: ...
    def has_any(self, *names: str) -> bool: ...
    def text(self) -> str: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    def __lt__(self, other: object, /) -> bool: ...
    def __le__(self, other: object, /) -> bool: ...
    def __gt__(self, other: object, /) -> bool: ...
    def __ge__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __copy__(self) -> Frame: ...
    def __deepcopy__(self, memo: object, /) -> Frame: ...

@final
class Parser:
    def __init__(
        self,
        version: str | None = None,
        *,
        limits: Limits | None = None,
        lenient: bool = False,
        heartbeats: bool = False,
        commands: Iterable[str] = (),
        stream_over: int | None = None,
    ) -> None: ...
    version: str | None
    @property
    def buffered(self) -> int: ...
    def feed(self, data: Any) -> Iterator[Any]: ...
    def get_buffer(self, hint: int = -1) -> memoryview: ...
    def buffer_updated(self, n: int) -> Iterator[Any]: ...
    def close(self) -> None: ...
    def __iter__(self) -> Parser: ...
    def __next__(self) -> Any: ...

@final
class Columns:
    @property
    def rows(self) -> int: ...
    @property
    def consumed(self) -> int: ...
    @property
    def error(self) -> str | None: ...
    def __arrow_c_schema__(self) -> object: ...
    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]: ...

def serialize(
    frame: Frame,
    version: str | None = "1.2",
    *,
    content_length: _Length = "auto",
    lenient: bool = False,
    commands: Iterable[str] = (),
) -> bytes: ...
def serialize_parts(
    frame: Frame,
    version: str | None = "1.2",
    *,
    content_length: _Length = "auto",
    lenient: bool = False,
    commands: Iterable[str] = (),
) -> list[bytes]: ...
def serialize_many(
    frames: Iterable[Frame],
    version: str | None = "1.2",
    *,
    content_length: _Length = "auto",
    lenient: bool = False,
    commands: Iterable[str] = (),
) -> bytes: ...
def serialize_tail(frame: Frame, version: str | None = "1.2", *, without: Iterable[str] = ()) -> bytes: ...
def parse_columns(
    data: Any,
    version: str | None = "1.2",
    names: Iterable[str] | None = None,
    *,
    limits: Limits | None = None,
    lenient: bool = False,
    commands: Iterable[str] = (),
    columns: Iterable[str] | None = None,
    where: Where = (),
    repeats: bool = True,
) -> Columns: ...
def frame_ends(data: Any, every: int = 1, most: int | None = None, *, limits: Limits | None = None) -> array[int]: ...
