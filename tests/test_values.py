"""Values: one spelling, read alike by broker.toml, the command line, URIs and Spark's options."""

import math
from collections.abc import Callable
from typing import Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompcodec.broker.config import parse_config
from stompcodec.cli.connecting import size as size_option
from stompcodec.cli.inputs import Duration
from stompcodec.errors import ConfigError
from stompcodec.spark.options import Option, OptionError, parse
from stompcodec.uri import parse_uri
from stompcodec.values import boolean, count, duration, shown_duration, shown_size, size

UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
TIMES = {
    **{"ms": 0.001, "millisecond": 0.001, "s": 1, "seconds": 1},
    **{"m": 60, "min": 60, "minutes": 60, "h": 3600, "d": 86400},
}
cased = st.sampled_from([str.lower, str.upper, str.title])


@given(st.integers(0, 10**6), st.sampled_from([*UNITS]), st.sampled_from(["", "b", "ib"]), st.booleans(), cased)
def test_each_spelling_of_a_size_is_the_same_size(number, unit, end, space, case):
    end = "b" if not unit and end else end
    assert size(f"{number}{' ' * space}{case(unit + end)}") == number * UNITS[unit]


@given(st.integers(0, 10**6), st.sampled_from([*TIMES]), st.booleans(), cased)
def test_each_spelling_of_a_time_is_the_same_time(number, unit, space, case):
    assert duration(f"{number}{' ' * space}{case(unit)}") == pytest.approx(number * TIMES[unit])


@given(st.integers(0, 2**60), st.integers(0, 10**9))
def test_what_is_shown_is_read_back(octets: int, millis: int) -> None:
    assert size(shown_size(octets)) == octets
    assert round(duration(shown_duration(millis / 1000)) * 1000) == millis


@pytest.mark.parametrize("read", [size, duration, count, boolean])
@given(given=st.text(max_size=8) | st.none() | st.floats() | st.binary(max_size=3))
def test_anything_else_is_a_value_error(read: Callable[[Any], Any], given: Any) -> None:
    try:
        value = read(given)
    except ValueError:
        with pytest.raises(ValueError, match=r"^it must be "):
            read(given)
    else:
        assert 0 <= value < math.inf


@pytest.mark.parametrize("text", ["-1", "1.5M", "MiB", "1 2", "1e3", "٣", "10X", "1iB", "9" * 20])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(ValueError, match="128MiB"):
        size(text)


def in_broker(text: str, kind: str) -> Any:
    name = {"size": "limits.max_body", "duration": "sessions.login_timeout", "boolean": "messages.jms"}[kind]
    table, _, key = name.partition(".")
    config = parse_config(f'[{table}]\n{key} = "{text}"\n')
    return config.limits.max_body if kind == "size" else getattr(config, key)


def in_command_line(text: str, kind: str) -> Any:
    if kind == "size":
        return size_option(click.Context(click.Command("x")), click.Option(["--size"]), text)
    return Duration().convert(text, None, None)


def in_spark(text: str, kind: str) -> Any:
    kind = {"duration": "seconds", "boolean": "bool"}.get(kind, kind)
    return parse([Option("it", kind, ..., "a value")], {"it": text})["it"]


def in_uri(text: str, kind: str) -> Any:
    return {"true": True, "false": False}[parse_uri(f"stomp://h?artemis_types={text}")[0].options["artemis_types"]]


ROOMS = [
    *[(room, kind) for room in (in_broker, in_spark) for kind in ("size", "duration", "boolean")],
    *[(in_command_line, "size"), (in_command_line, "duration"), (in_uri, "boolean")],
]
SAME = {
    "size": {"128MiB": 2**27, "128MB": 2**27, "128m": 2**27, "64K": 65536, "512": 512},
    "duration": {"30s": 30.0, "500ms": 0.5, "5m": 300.0, "5min": 300.0, "2h": 7200.0, "1.5": 1.5},
    "boolean": {"true": True, "FALSE": False},
}
WRONG = {"size": "128Q", "duration": "5 fortnights", "boolean": "perhaps"}


@pytest.mark.parametrize(("room", "kind"), ROOMS)
def test_every_room_reads_the_same(room: Callable[[str, str], Any], kind: str) -> None:
    assert {text: room(text, kind) for text in SAME[kind]} == SAME[kind]
    with pytest.raises((ConfigError, OptionError, click.BadParameter)) as caught:
        room(WRONG[kind], kind)
    hint = {"size": '"128MiB"', "duration": '"30s"', "boolean": "true or false"}[kind]
    assert hint in str(caught.value)


def test_the_shortest_spelling_is_shown() -> None:
    assert [shown_duration(seconds) for seconds in (300, 90, 0.25, 0)] == ["5m", "90s", "250ms", "0s"]
    assert [shown_size(octets) for octets in (2**27, 65536, 1000)] == ["128MiB", "64KiB", "1000"]
