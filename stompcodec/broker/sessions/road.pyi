"""The reader of plain frames: in the extension alone, from src/hot/road.pyx."""

from collections.abc import Callable
from typing import Any, final

from stompcodec.codec import Frame

__test__: dict[str, str]

def prepare(
    send_handler: Callable[[Any, Frame], None],
    ack_handler: Callable[[Any, Frame], None],
    failed: Callable[[Any, Exception, str, str | None], None],
    slow: tuple[str, ...],
    without: tuple[str, ...],
) -> None: ...
def switch(on: bool) -> bool: ...

@final
class Road:
    @property
    def left(self) -> int: ...
    @property
    def hook(self) -> object: ...
    def __new__(cls, session: Any, each: int) -> Road: ...
    def begin(self, left: int) -> None: ...
    def close(self) -> None: ...
