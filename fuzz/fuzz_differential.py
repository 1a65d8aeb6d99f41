"""Invariant: both backends hand out the same frames, heart-beats and pieces, then the same error at the same offset,
and say the same of what is buffered, however they are fed. The octet-at-a-time model agrees with them."""

from __future__ import annotations

from typing import Any

from case import Case, Outcome, case_of, run
from engine import drive
from model.reference import Reference

from stompcodec import _codec_c, _codec_py

MODELLED = 300  # octets: the model takes its time


def check(data: bytes) -> None:
    case = case_of(data)
    c = run(_codec_c, case)
    python = run(_codec_py, case)
    assert c == python, f"the backends differ on {case}\n     C: {c}\nPython: {python}"
    if len(case.wire) <= MODELLED and not case.switches:
        model = by_model(case)
        assert whole(c) == model, f"the model differs on {case}\n    C: {whole(c)}\nmodel: {model}"


def by_model(case: Case) -> list[Any]:
    """What the model reads; frames and heart-beats without their offsets, which parsers do not tell."""
    wanted = {name: case.options[name] for name in ("version", "limits", "lenient", "commands")}
    events = Reference(wanted.pop("version"), **wanted).read(case.wire, eof=True)
    kept = [event[:1] if event[0] == "heartbeat" else event[:4] for event in events]
    return kept if case.options["heartbeats"] else [event for event in kept if event[0] != "heartbeat"]


def whole(outcome: Outcome) -> list[Any]:
    """An outcome in the model's form: bodies that came in pieces are put together, unfinished ones go."""
    events: list[Any] = []
    body = b""
    for event in outcome.events:
        if event[0] == "streamed":
            head, body = event, b""
        elif event[0] == "piece":
            body = event[1]
        elif event[0] == "end":
            events.append(("frame", *head[1:], body))
        else:
            events.append(event)
    return events if outcome.error is None else [*events, ("error", *outcome.error)]


if __name__ == "__main__":
    drive(check)
