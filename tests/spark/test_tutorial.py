"""docs/spark-tutorial.md, block by block and in its order; and the pipelines of other pages."""

import ast
import re
import shutil

import pytest

pytest.importorskip("click")
pytest.importorskip("pyspark")
from docsite.blocks import ROOT, Reader, blocks_of
from patience import patience
from railway import capture as received
from spark.live_rounds import wait_for

from stompcodec import Parser
from stompcodec.capture import CaptureWriter, octets_of
from stompcodec.testing import StompBroker

PAGE = ROOT / "docs" / "spark-tutorial.md"
#: Rows with the time of a run, or with whichever bodies came first into quarantine.
OF_A_RUN = re.compile(r"\|?20\d\d-\d\d-\d\d|\|.*\| ?\[(?:[0-9A-F]{2} |\])|\+[-+]+$")
QUEUES = ("/queue/TD_ALL_SIG_AREA", "/queue/TRAIN_MVT_ALL_TOC")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PAGE.is_file(), reason="without docs: this is not the whole tree"),
]


def printed_by_each_run(text):
    """The lines of an output that are the same in each run. Counts come in any order, and a terminal shows no NUL."""
    lines = [" ".join(line.replace("\0", " ").split()) for line in text.splitlines() if line.strip()]
    return [ast.literal_eval(line) if line[0] == "{" else line for line in lines if not OF_A_RUN.match(line)]


def until_it_listens(broker):
    """Wait until the query has subscribed. Messages sent before would lag, by as much as the machine is slow."""
    for queue in QUEUES:
        broker.wait_subscribed(queue, timeout=patience(60))


def until_all_is_archived(query, broker):
    """Wait until the broker has no message any more, and the sink all that the query received; then stop the query."""
    wait_for(lambda: not any(map(broker.queued, QUEUES)), query)
    query.processAllAvailable()
    query.stop()


@pytest.fixture
def folder(beside_spark, monkeypatch):
    """The current folder, of Spark, too. What a test makes there is removed."""
    monkeypatch.chdir(beside_spark)
    before = {*beside_spark.iterdir()}
    yield beside_spark
    for made in {*beside_spark.iterdir()} - before:
        if made.is_dir():
            shutil.rmtree(made)
        else:
            made.unlink()


def test_the_page_does_what_it_says(spark, folder):
    blocks = blocks_of(PAGE)
    first = next(number for number, block in enumerate(blocks) if "examples/railway.py" in block.text)
    tried = [block for block in blocks[first:] if not block.untried]
    assert [block.language for block in tried[:2]] == ["sh", "python"]
    assert len([block for block in tried if block.language != "text"]) > 10
    with StompBroker() as broker:
        reader = Reader(broker)
        put_in = {
            "--rate 200": "--rate 1e6",
            'every="1 minute"': 'every="200 milliseconds"',
            "job.awaitTermination()": "until_it_listens(broker)",
            "archive = jobs": "until_all_is_archived(job.query, broker)\narchive = jobs",
            "stomp://broker:61613": broker.url,
        }
        waits = {"until_it_listens": until_it_listens, "until_all_is_archived": until_all_is_archived}
        reader.names.update(waits, broker=broker)
        for block in tried:
            if block.language == "text":
                assert printed_by_each_run(reader.printed) == printed_by_each_run(block.text), block
                continue
            text = block.text
            for there, here in put_in.items():
                text = text.replace(there, here)
            reader.read(block._replace(text=text))
    archived = spark.read.parquet("archive").select("headers").collect()
    assert len({row.headers["feed-id"] for row in archived}) == len(archived) == 4950


@pytest.mark.parametrize(
    ("page", "language", "capture", "makes"),
    [
        ("docs/pipeline.md", "sh", "feed.stompcap", ["archive", "td/rows", "metrics", "report/report.html"]),
        ("docs/pipeline.md", "python", "feed.stompcap", ["td/rows", "td/_quarantine"]),
        ("docs/network-rail.md", "sh", "td.stompcap", ["archive", "td/rows", "report/report.html"]),
    ],
)
def test_a_pipeline(spark, folder, page, language, capture, makes):
    with CaptureWriter(folder / capture) as writer:
        for number, frame in enumerate(Parser().feed(b"".join(received(400)))):
            writer.append(octets_of(frame), time=1_700_000_000_000_000 + number)
    with StompBroker() as broker:
        for block in blocks_of(ROOT / page):
            if block.language == language and not block.untried:
                Reader(broker).read(block)
    assert [made for made in makes if not (folder / made).exists()] == []
    assert spark.read.parquet("td/rows").where("descr is not null").count() > 100
