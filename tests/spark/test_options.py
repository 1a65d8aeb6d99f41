"""Options of the sources and of the sink: what a user may write, and what is said to who wrote something else."""

from dataclasses import fields

import pytest

pytest.importorskip("pyspark")
from stompcodec.spark.link import parse_live, parse_sink
from stompcodec.spark.options import FILE_OPTIONS, Choice, FileOptions, OptionError, parse_file, paths_of

SECRET = "s3cr3t-Pa55"


def live(options):
    return parse_live({"url": "stomp://h", "destination": "/queue/a", "spoolDir": "s", **options})


def sink(options):
    return parse_sink({"url": "stomp://h", **options})


def test_the_table_and_the_record_agree():
    defaults = {option.field: option.default for option in FILE_OPTIONS} | {"choice": Choice()}
    assert list(defaults) == [field.name for field in fields(FileOptions)]
    assert defaults == vars(FileOptions())
    assert parse_file({"path": "x", "checkpointlocation": "y", "queryname": "z"}) == FileOptions()  # those of Spark
    assert parse_file({"owner": "me", "provider": "stompfile", "option.mode": "FAILFAST"}) == FileOptions()


@pytest.mark.parametrize(
    ("name", "text", "field", "value"),
    [
        *(("splitBytes", "32m", "split_bytes", 32 * 2**20), ("batchRows", "10k", "batch_rows", 10_000)),
        *(("mode", "failfast", "mode", "FAILFAST"), ("maxBody", "5", "most_octets", 5 + 2**24)),
        *(("startingPosition", text, "starting_position", text.lower()) for text in ("LATEST", "earliest")),
        ("startingPosition", "1970-01-01T01:00:01+01:00", "starting_position", 1_000_000),
        ("commands", "MESSAGE, ERROR,MESSAGE", "commands", ("MESSAGE", "ERROR")),
        *(("checksums", "FALSE", "checksums", False), ("maxFramesPerTrigger", " 5 ", "max_frames_per_trigger", 5)),
    ],
)
def test_values(name, text, field, value):
    for spelled in (name, name.lower(), name.upper()):
        assert getattr(parse_file({spelled: text}), field) == value


@pytest.mark.parametrize(
    ("name", "texts"),
    [
        *(("splitBytes", ("0", "-1", "much", "1e9", "٣")), ("maxBytesPerTrigger", ("9" * 40,))),
        *(
            ("batchRows", ("1.5",)),
            ("mode", ("STRICT",)),
            ("checksums", ("1",)),
            ("commands", (" , ", "MESAGE", "*,send")),
        ),
        *(("version", ("1.3",)), ("decode", ("",)), ("startingPosition", ("", "first", "2026-13-01", "5"))),
    ],
)
def test_a_bad_value_is_told_in_one_line(name, texts):
    for text in texts:
        with pytest.raises(OptionError) as caught:
            parse_file({name.lower(): text})
        assert str(caught.value).startswith(f"option {name} is {text!r:.80}: it must be ")
        assert "\n" not in str(caught.value)


def test_paths():
    assert paths_of({"path": "a b/c.stompcap"}) == ["a b/c.stompcap"]
    assert paths_of({"path": "file:///data/a%20b"}) == ["/data/a b"]
    assert paths_of({"paths": '["x", "file:/y", "s3a://bucket/x/"]'}) == ["x", "/y", "s3://bucket/x"]


@pytest.mark.parametrize(
    ("taking", "options", "told"),
    [
        (paths_of, {}, "option path is missing"),
        (paths_of, {"path": f"s3://key:{SECRET}@bucket/x"}, r"option path: s3://\*\*\*: secrets belong into the"),
        (live, {"spoolArchive": "/mnt/archive"}, "option spoolArchive is '/mnt/archive': it must be a URI"),
        (parse_file, {"splitbyte": "1"}, "unknown option 'splitbyte': did you mean splitBytes"),
        (parse_file, {"zzz": "1"}, "the options are mode, commands"),
        (live, {"ackMode": "never"}, "ackMode is 'never': it must be one of spool, batch"),
        (live, {"dedupe": "uuid"}, "option dedupe is 'uuid': use messageId"),
        *((live, {"expectEvery": wrong}, f"expectEvery is '{wrong}': .* more than 0") for wrong in ("0", "-5m")),
        (live, {"spoolDir": "s3://bucket/x"}, "it must be a folder on a mounted disk"),
        (live, {"subscribeHeaders": "a:b"}, "it must be JSON"),
        (live, {"subscriptions": "2", "subscriptionName": "x"}, "has one connection"),
        (live, {"destination": "/queue/a,/queue/b", "subscriptionName": "x"}, "has one destination"),
        (live, {"passcodeEnv": "A", "passcodeFile": "b"}, "give only one of them"),
        (live, {"url": "gopher://h"}, "option url"),
        (live, {"url": "stomp://h?host=/"}, "option url: .*write the virtual host as the path"),
        (live, {"url": "failover:(stomp://a,stomp://b)?timeout=3"}, "option url: .*unknown option timeout"),
        (parse_sink, {}, "option url is missing"),
        (sink, {"transaction": "maybe"}, "option transaction is 'maybe'"),
        (sink, {"receiptEvery": "-1"}, "option receiptEvery is '-1'"),
        (sink, {"recieptEvery": "1"}, "did you mean receiptEvery"),
        (sink, {"dedupeHeader": "Receipt"}, "option dedupeHeader is 'Receipt': the sink writes"),
        (sink, {"idPrefix": "a b"}, "option idPrefix"),
        (sink, {"dialect": "hornet"}, "option dialect is 'hornet'"),
        (sink, {"url": "stomp://h", "caFile": "ca.pem"}, "stomp://h:61613 is without TLS, for which caFile is given"),
    ],
)
def test_options_that_cannot_be(taking, options, told):
    with pytest.raises(OptionError, match=rf"{told}[^\n]*\Z"):
        taking(options)


@pytest.mark.parametrize("taking", [live, sink])
@pytest.mark.parametrize(
    "options",
    [
        *({"url": f"stomp://ann:{SECRET}@h"}, {"url": f"failover:(stomp://h,stomp://ann:{SECRET}@h)"}),
        *({"url": f"ws://h/ws?token={SECRET}"}, {"passcode": SECRET}, {"Password": SECRET}),
    ],
)
def test_secrets_are_not_taken(taking, options):
    with pytest.raises(OptionError, match="passcodeEnv") as told:
        taking(options)
    assert SECRET not in str(told.value)


BATCH = {"ackMode": "batch"}


@pytest.mark.parametrize(
    ("options", "prefetch"),
    [
        *(({}, 1000), ({**BATCH, "prefetch": "7", "maxFramesPerTrigger": "50k"}, 7), (BATCH, 20_000)),
        ({**BATCH, "maxFramesPerTrigger": "10"}, 1000),
        ({**BATCH, "maxFramesPerTrigger": "10k", "subscriptions": "4"}, 5000),
        *(({**BATCH, "maxFramesPerTrigger": "1m"}, 65_000), ({**BATCH, "maxBytesPerTrigger": "4m"}, 16_384)),
        ({**BATCH, "maxBytesPerTrigger": "1t"}, 65_000),
        ({**BATCH, "maxBytesPerTrigger": "4m", "maxFramesPerTrigger": "1k"}, 2000),
        ({**BATCH, "destination": ",".join(map("/queue/{}".format, range(5)))}, 13_000),
    ],
)
def test_the_prefetch_follows_the_bounds_of_a_batch(options, prefetch):
    made = live({"spoolDir": "file:///data/s", "retain": "1.5", "reconnectTimeout": "2m", **options})
    assert (made.prefetch, made.retain, made.reconnect_timeout, made.spool_dir) == (prefetch, 5400.0, 120.0, "/data/s")
