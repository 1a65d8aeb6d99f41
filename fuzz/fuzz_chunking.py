"""Invariant: what a backend hands out, and the error it ends with, depend on the octets alone, never on how they were
cut, in which kind of object they came, or when they were iterated over."""

from __future__ import annotations

from case import case_of, run
from engine import drive

from stompcodec import _codec_c, _codec_py


def check(data: bytes) -> None:
    case = case_of(data)
    plan = case.plan or len(case.wire) % 255 + 1
    for codec in (_codec_c, _codec_py):
        whole = run(codec, case._replace(plan=0))
        cut = run(codec, case._replace(plan=plan))
        assert (whole.events, whole.error) == (cut.events, cut.error), (
            f"{codec.__name__} depends on the cuts of {case._replace(plan=plan)}\nwhole: {whole}\n  cut: {cut}"
        )


if __name__ == "__main__":
    drive(check)
