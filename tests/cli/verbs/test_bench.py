"""stompcodec bench codec: everyone does the same work, and the figures agree with each other. No time is judged."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("click")
pytest.importorskip("rich")

from cli.benches import agrees, bench, good, lines_of

import stompcodec
from stompcodec.capture import CaptureWriter
from stompcodec.cli.benching import codec, libraries
from stompcodec.cli.benching.codec import MEASURES, Group, Race, generated, grouped
from stompcodec.cli.benching.libraries import Library, Part, ours

pytestmark = pytest.mark.long

TINY = ("--frames", "20", "--duration", "0.05")


def test_both_backends_are_measured_in_all_ways() -> None:
    found = json.loads(good("codec", "--json", "--size", "40", *TINY))
    names = [library.name for library in ours()]
    assert [(row["measure"], row["who"]) for row in found["results"]] == [
        (how, who) for how in MEASURES for who in names
    ]
    assert found["versions"] == dict.fromkeys(names, stompcodec.__version__)
    assert found["rounds"] >= 1
    assert found["whole"] is True
    octets = len(b"".join(group.data for group in grouped(generated(40, 20), 1, pytest.fail)[0]))
    for row in found["results"]:
        agrees(row, "frames")
        assert (row["frames"], row["octets"]) == (20, octets)
        first = next(each for each in found["results"] if each["measure"] == row["measure"])
        assert row["ratio"] == pytest.approx(first["frames_per_s"] / row["frames_per_s"])


def test_lines_for_programs_and_a_table_for_people() -> None:
    rows = lines_of(good("codec", "--csv", *TINY))
    assert {row["measure"] for row in rows} == set(MEASURES)
    assert all(float(row["frames_per_s"]) == pytest.approx(20 / float(row["seconds"])) for row in rows)
    table = good("codec", *TINY)
    assert "\x1b" not in table
    for text in (*MEASURES.values(), "frames/s", "MB/s", "1.00×", "20 frames"):
        assert text in table


def test_the_generated_frames_have_bodies_of_that_size() -> None:
    found = list(generated(33, 7))
    assert [len(part.body) for part, _ in found] == [33] * 7
    assert found == list(generated(33, 7))
    assert len({part.pairs[1] for part, _ in found}) == 7


@pytest.mark.parametrize("suffix", ["stomp", "stompcap"])
def test_the_frames_of_a_file(tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"feed.{suffix}"
    data = [b"MESSAGE\nmessage-id:%d\ndestination:/topic/a\nsubscription:0\n\n%s\0" % (n, b"x" * n) for n in range(30)]
    if suffix == "stomp":
        file.write_bytes(b"\n".join(data))  # a heart-beat between each two
    else:
        with CaptureWriter(file) as capture:
            for each in data:
                capture.append(each, 1)
    found = json.loads(good("codec", file, "--json", "--read", "7", "--duration", "0.05"))
    assert found["source"] == str(file)
    assert {(row["frames"], row["octets"]) for row in found["results"]} == {(30, sum(map(len, data)))}


def test_a_file_that_is_broken_or_empty(tmp_path: Path) -> None:
    broken, empty = tmp_path / "broken.stomp", tmp_path / "empty.stomp"
    broken.write_bytes(b"SEND\ndestination:/queue/a\n\n\0SEND\nnonsense\n\n\0")
    empty.write_bytes(b"")
    result = bench("codec", broken, "--json", "--duration", "0.05")
    assert result.exit_code == 1
    assert "missing-colon" in result.stderr or "octet" in result.stderr
    assert json.loads(result.stdout)["results"][0]["frames"] == 1
    result = bench("codec", empty)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "no frame" in result.stderr
    assert "cannot be read" in bench("codec", tmp_path / "nothing.stomp").stderr


def test_a_large_file_is_measured_up_to_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "feed.stomp"
    file.write_bytes(b"SEND\ndestination:/queue/a\n\n\0" * 100)
    monkeypatch.setattr(codec, "MOST", 28 * 10)
    found = json.loads(good("codec", file, "--json", "--duration", "0.05"))
    assert found["whole"] is False
    assert found["results"][0]["frames"] == 10
    assert "not all of it" in good("codec", file, "--duration", "0.05")


def test_groups_hold_every_frame_once() -> None:
    groups, whole = grouped(generated(10, 2500), 1, pytest.fail)
    assert whole
    assert [len(group.parts) for group in groups] == [1000, 1000, 500]
    assert [part for group in groups for part in group.parts] == [part for part, _ in generated(10, 2500)]
    assert [len(group.parts) for group in grouped(generated(10, 2500), 10**6, pytest.fail)[0]] == [2500]


@pytest.mark.parametrize("name", ["stompcodec C", "stompcodec Python", *libraries.PEERS])
@pytest.mark.parametrize("read", [1, 64, 65536])
def test_each_contestant_does_all_of_it(name: str, read: int) -> None:
    """Whoever skipped frames would win."""
    library = _library(name)
    [group], _ = grouped(generated(50, 40), 1, pytest.fail)
    pieces = [group.data[at : at + read] for at in range(0, len(group.data), read)]
    found = list(library.frames(library.parser(), pieces))
    assert [dict(frame.headers) for frame in found] == [dict(part.pairs) for part in group.parts]
    assert [frame.body for frame in found] == [part.body for part in group.parts]
    made = [library.native(part) for part in group.parts]
    assert [(frame.headers["message-id"], frame.body) for frame in made] == [
        (dict(part.pairs)["message-id"], part.body) for part in group.parts
    ]
    if name.startswith("stompcodec"):
        assert library.encode["serialize_many"](made) == group.data


def _library(name: str) -> Library:
    try:
        return {each.name: each for each in ours()}.get(name) or libraries.peer(name)
    except (ImportError, KeyError):
        pytest.skip(f"{name} is not there")


def test_of_repeated_headers_others_get_the_first() -> None:
    assert Part("SEND", [("a", "1"), ("a", "2"), ("b", "3")], b"").first == {"a": "1", "b": "3"}


class Touched:
    """A frame that notes what is asked of it, of either kind."""

    def __init__(self, theirs: bool) -> None:
        self.asked: list[str] = []
        self._theirs = theirs

    def get(self, name: str) -> None:
        self.asked.append(name)

    @property
    def headers(self) -> Any:
        if self._theirs:
            return self
        self.asked.append("headers")
        return {}

    @property
    def body(self) -> bytes:
        self.asked.append("body")
        return b""


@pytest.mark.parametrize("name", ["stompcodec Python", *libraries.PEERS])
def test_what_is_read_of_each_frame(name: str) -> None:
    library = _library(name)
    asked = []
    for way in ("decode", "read"):
        frame = Touched(not name.startswith("stompcodec"))
        library.decode[way]([frame])
        asked.append(frame.asked)
    assert asked == [[], ["destination", "message-id", "body"]]
    ours_read = Touched(False)
    ours()[0].decode["dict"]([ours_read])
    assert ours_read.asked == ["headers"]


def test_the_least_time_of_a_turn_counts() -> None:
    times = iter([0.004, 0.0005, 0.003, 0.0001])
    assert codec._least(lambda: next(times)) == 0.0005
    assert next(times) == 0.0001  # the turn was over


@pytest.fixture
def one_measure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "MEASURES", {"decode": "decode"})


def _after(turns: int) -> Callable[[], bool]:
    """Says that it is to be stopped after so many turns."""
    asked = itertools.count()
    return lambda: next(asked) >= turns


def _runner(name: str) -> Library:
    return Library(name, "1", object, lambda _parser, pieces: pieces, {"decode": list}, lambda part: part, {})


@pytest.mark.usefixtures("one_measure")
def test_the_best_round_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = {"a": iter([3.0, 1.0, 2.0]), "b": iter([8.0, 6.0, 5.0])}
    order: list[str] = []

    def turn(_self: Race, _measure: str, library: Library, *_rest: object) -> float:
        order.append(library.name)
        return next(taken[library.name])

    monkeypatch.setattr(Race, "_turn", turn)
    race = Race([Group([Part("SEND", [], b"")] * 4, b"....")], [_runner("a"), _runner("b")], 2)
    race.run(60, _after(6), lambda _text: None)
    assert order == ["a", "b"] * 3
    rows = {row["who"]: row for row in race.rows()}
    assert (rows["a"]["seconds"], rows["a"]["frames_per_s"], rows["a"]["ratio"]) == (1.0, 4.0, 1.0)
    assert (rows["b"]["seconds"], rows["b"]["ratio"]) == (5.0, 5.0)


@pytest.mark.usefixtures("one_measure")
@pytest.mark.parametrize(("turns", "frames"), [(1, []), (2, [1000] * 2), (3, [1000] * 2), (6, [2500] * 2)])
def test_a_race_that_is_stopped_tells_of_what_everyone_has_done(turns: int, frames: list[int]) -> None:
    groups, _ = grouped(generated(10, 2500), 1, pytest.fail)
    race = Race(groups, [_runner("a"), _runner("b")], 65536)
    race.run(60, _after(turns), lambda _text: None)
    assert [row["frames"] for row in race.rows()] == frames


@pytest.mark.usefixtures("one_measure")
def test_a_race_ends_when_its_time_is_over() -> None:
    groups, _ = grouped(generated(10, 2500), 1, pytest.fail)
    race = Race(groups, [_runner("a")], 65536)
    race.run(1e-9, lambda: False, lambda _text: None)
    assert [row["frames"] for row in race.rows()] == [1000]  # one group at least, and it is said how many


# ---- other libraries ----


def test_others_take_part() -> None:
    pytest.importorskip("stomp")
    pytest.importorskip("stompman")
    found = json.loads(good("codec", "--json", "--compare", "stomp.py, stompman", *TINY))
    for name in ("stomp.py", "stompman"):
        rows = [row for row in found["results"] if row["who"] == name]
        assert [row["measure"] for row in rows] == ["decode", "read", "dict", "serialize"]
        assert all(row["frames"] == 20 and row["ratio"] > 0 for row in rows)
        assert found["versions"][name][0].isdigit()
    assert found["not_compared"] == {}


def test_one_that_is_not_installed_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "stompman.serde", None)
    monkeypatch.setitem(sys.modules, "stompman", None)
    result = bench("codec", "--json", "--compare", "stompman", *TINY)
    assert result.exit_code == 0
    assert "stompman is not compared: it is not installed" in result.stderr
    found = json.loads(result.stdout)
    assert list(found["not_compared"]) == ["stompman"]
    assert "stompman" not in {row["who"] for row in found["results"]}


@pytest.mark.parametrize(
    ("frames", "told"),
    [(lambda _parser, pieces: pieces[:0], "finds 0 of 20 frames"), (lambda _parser, _pieces: 1 / 0, "ZeroDivision")],
)
def test_one_that_cannot_read_them_is_left_out(monkeypatch: pytest.MonkeyPatch, frames: Any, told: str) -> None:
    blind = Library("stompman", "1", object, frames, {"decode": list}, lambda part: part, {})
    monkeypatch.setitem(libraries.PEERS, "stompman", lambda: blind)
    result = bench("codec", "--compare", "stompman", *TINY)
    assert result.exit_code == 0
    assert told in result.stderr
    assert "stompman" not in result.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        *([verb, "--clients", "0"] for verb in ("pub", "sub", "rtt")),
        *([verb, "--duration", "0"] for verb in ("codec", "pub", "sub", "rtt")),
        *([verb, "--size", "many"] for verb in ("codec", "pub", "sub", "rtt")),
        ["sub", "--ack", "never"],
        ["codec", "--read", "0"],
        ["codec", "--frames", "0"],
        ["codec", "a.stomp", "--frames", "3"],
        ["codec", "--size", "64M"],
        ["codec", "--size", "1M", "--frames", "1000"],
        ["codec", "--compare", "telepathy"],
        ["nonsense"],
    ],
)
def test_wrong_usage(arguments: list[str]) -> None:
    result = bench(*arguments)
    assert result.exit_code == 2
    assert "Error: " in result.stderr
