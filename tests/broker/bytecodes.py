"""What something costs in bytecode instructions: the same number each time, whatever the machine does."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

__all__ = ["bytecodes"]


def bytecodes(do: Callable[[], object]) -> int:
    """Count the bytecode instructions that a call executes, in functions that C calls, too."""
    count = 0

    def trace(frame: Any, event: str, _arg: object) -> Any:
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        do()
    finally:
        sys.settrace(before)
    return count
