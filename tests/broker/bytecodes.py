"""What something costs in bytecode instructions: the same number each time, whatever the machine does."""

import gc
import sys
from collections.abc import Callable
from typing import Any


def bytecodes(do: Callable[[], object]) -> int:
    """Count the bytecode instructions that a call executes, in functions that C calls, too. The garbage collector
    rests meanwhile: hypothesis has it call a function of Python, at moments that depend on the tests before."""
    count = 0

    def trace(frame: Any, event: str, _arg: object) -> Any:
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return trace

    before, collects = sys.gettrace(), gc.isenabled()
    gc.disable()
    sys.settrace(trace)
    try:
        do()
    finally:
        sys.settrace(before)
        if collects:
            gc.enable()
    return count
