"""Options: what a user may write, and what is said to who wrote something else."""

from __future__ import annotations

from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompcodec.spark.options import (
    FILE_OPTIONS,
    Choice,
    FileOptions,
    Option,
    OptionError,
    parse,
    parse_file,
    paths_of,
)


def test_the_table_and_the_record_agree() -> None:
    record = FileOptions()
    assert [*(option.field for option in FILE_OPTIONS), "choice"] == [field.name for field in fields(FileOptions)]
    assert {option.field: option.default for option in FILE_OPTIONS} | {"choice": Choice()} == vars(record)
    assert parse_file({}) == record


@pytest.mark.parametrize(
    ("name", "text", "field", "value"),
    [
        ("splitBytes", "32m", "split_bytes", 32 * 2**20),
        ("splitBytes", "1", "split_bytes", 1),
        ("batchBytes", "2GB", "batch_bytes", 2 * 2**30),
        ("batchRows", "10k", "batch_rows", 10_000),
        ("mode", "failfast", "mode", "FAILFAST"),
        ("commands", "MESSAGE, ERROR,MESSAGE", "commands", ("MESSAGE", "ERROR")),
        ("headers", "FALSE", "headers", False),
        ("maxFramesPerTrigger", " 5 ", "max_frames_per_trigger", 5),
    ],
)
def test_values(name: str, text: str, field: str, value: object) -> None:
    for spelled in (name, name.lower(), name.upper()):
        assert getattr(parse_file({spelled: text}), field) == value


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("splitBytes", "0"),
        ("splitBytes", "-1"),
        ("splitBytes", "much"),
        ("splitBytes", "1e9"),
        ("splitBytes", "٣"),
        ("batchRows", "1.5"),
        ("mode", "STRICT"),
        ("headers", "1"),
        ("commands", " , "),
        ("version", "1.3"),
        ("decode", ""),
        ("maxBytesPerTrigger", "9" * 40),
    ],
)
def test_a_bad_value_is_told_in_one_line(name: str, text: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse_file({name.lower(): text})
    message = str(caught.value)
    assert message.startswith(f"option {name} is {text!r:.80}: it must be ")
    assert "\n" not in message


def test_unknown_and_missing_options_are_told_and_those_of_spark_passed_over() -> None:
    with pytest.raises(OptionError, match="unknown option 'splitbyte': did you mean splitBytes"):
        parse_file({"splitbyte": "1"})
    with pytest.raises(OptionError, match="the options are mode, commands"):
        parse_file({"zzz": "1"})
    assert parse_file({"path": "x", "checkpointlocation": "y", "queryname": "z"}) == FileOptions()
    table = [Option("spoolDir", "text", ..., "where frames are kept"), Option("wait", "seconds", 1.0, "how long")]
    with pytest.raises(OptionError, match="option spoolDir is missing: where frames are kept"):
        parse(table, {})
    assert parse(table, {"spooldir": "d", "wait": "2.5m"}) == {"spool_dir": "d", "wait": 150.0}


@given(st.dictionaries(st.sampled_from([option.name for option in FILE_OPTIONS]), st.text(max_size=30)))
def test_any_text_is_a_value_or_an_option_error(options: dict[str, str]) -> None:
    try:
        parsed = parse_file(options)
    except OptionError as error:
        told = str(error)
    else:
        told = ""
        assert parsed.batch_rows > 0
        assert parsed.split_bytes > 0
    assert "\n" not in told


def test_paths() -> None:
    assert paths_of({"path": "a b/c.stompcap"}) == ["a b/c.stompcap"]
    assert paths_of({"path": "file:///data/a%20b"}) == ["/data/a b"]
    assert paths_of({"paths": '["x", "file:/y"]'}) == ["x", "/y"]
    with pytest.raises(OptionError, match="option path is missing"):
        paths_of({})
    with pytest.raises(OptionError, match="only local paths"):
        paths_of({"path": "s3://bucket/x"})
