"""Proof that everything arrived exactly once: the sender's account against the Parquet files, read without Spark."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import unquote, urlsplit
from urllib.request import url2pathname

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from stompcodec.spark.demo.feed import ID_HEADER, Ledger


@dataclass(frozen=True)
class Proof:
    """Numbers of messages sent and stored. Messages are counted by the id that the feed gave them.

    Attributes:
        produced: distinct messages that the broker confirmed.
        in_sink: rows of the archive.
        missing: produced messages that are not in the archive.
        duplicates: rows of the archive beyond the first of each message.
        damaged: messages with a body that was never sent.
        left_in_broker: messages that the broker still had at the end.
        sent_twice: messages that the feed sent twice.
        redelivered: rows that the broker delivered again after the kill.
        malformed, quarantined: messages sent with an invalid body, and messages in quarantine.
        events, typed_rows: items in all valid bodies, and rows of the typed tables.
        wrong: every discrepancy, in words; empty if all is well.
    """

    produced: int
    in_sink: int
    missing: int
    duplicates: int
    damaged: int
    left_in_broker: int
    sent_twice: int
    redelivered: int
    late: int
    malformed: int
    quarantined: int
    events: int
    typed_rows: int
    wrong: tuple[str, ...] = ()

    def figures(self) -> dict[str, int]:
        """Return all numbers by name."""
        return {name: figure for name, figure in asdict(self).items() if name != "wrong"}


def local_path(uri: str) -> str:
    """Return the path of a file that Spark names by a URI.

    >>> local_path("file:///data/destination=%252Fqueue%252Fa/part-0.parquet")
    '/data/destination=%2Fqueue%2Fa/part-0.parquet'
    """
    return url2pathname(urlsplit(uri).path) if uri.startswith("file:") else unquote(uri)


def _tables(files: Iterable[str], columns: list[str]) -> Iterator[pa.Table]:
    for uri in files:
        # ParquetFile ignores the partition columns in folder names.
        yield pq.ParquetFile(local_path(uri)).read(columns)


def _ids(table: pa.Table) -> list[str | None]:
    headers = table.column("headers").cast(pa.map_(pa.string(), pa.string()))
    ids: list[str | None] = pc.map_lookup(headers, ID_HEADER, "first").to_pylist()
    return ids


def prove(ledger: Ledger, files: dict[str, list[str]], left_in_broker: int) -> Proof:
    """Compare the sender's account with the sink, given the URIs of its Parquet files: archive, rows, quarantine."""
    seen: Counter[str | None] = Counter()
    names: dict[str, str] = {}  # message-id -> the feed's id
    damaged: set[str | None] = set()
    redelivered = 0
    for table in _tables(files["archive"], ["message_id", "redelivered", "headers", "body"]):
        redelivered += pc.sum(table.column("redelivered")).as_py() or 0
        columns = (_ids(table), table.column("message_id").to_pylist(), table.column("body").to_pylist())
        for feed_id, message_id, body in zip(*columns):
            seen[feed_id] += 1
            names[message_id] = feed_id or ""
            if feed_id is None or ledger.bodies.get(feed_id) != zlib.crc32(body or b""):
                damaged.add(feed_id)
    quarantined = {
        names.get(message_id, "")
        for table in _tables(files["quarantine"], ["message_id"])
        for message_id in table.column("message_id").to_pylist()
    }
    proof = Proof(
        produced=len(ledger.bodies),
        in_sink=seen.total(),
        missing=len(ledger.bodies.keys() - seen.keys()),
        duplicates=seen.total() - len(seen),
        damaged=len(damaged),
        left_in_broker=left_in_broker,
        sent_twice=ledger.twice,
        redelivered=redelivered,
        late=len(ledger.late),
        malformed=len(ledger.malformed),
        quarantined=len(quarantined),
        events=ledger.events,
        typed_rows=sum(pq.read_metadata(local_path(uri)).num_rows for uri in files["rows"]),
    )
    return Proof(**(asdict(proof) | {"wrong": tuple(_wrong(proof, quarantined ^ ledger.malformed))}))


def _wrong(proof: Proof, misjudged: set[Any]) -> Iterator[str]:
    if not proof.produced:
        yield "nothing was produced"
    for count, what in (
        (proof.missing, "messages are missing in the sink"),
        (proof.duplicates, "rows of the sink are duplicates"),
        (proof.damaged, "messages in the sink are not what was sent"),
        (proof.left_in_broker, "messages were left in the broker"),
        (len(misjudged), "messages are wrongly in quarantine, or wrongly not"),
        (abs(proof.events - proof.typed_rows), "rows of the typed tables are too few or too many"),
    ):
        if count:
            yield f"{count:,} {what}"
