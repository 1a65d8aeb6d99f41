"""PySpark of other versions: none, broken, too old, and 4.0 and 4.1, which have no admission control."""

import json
import logging
import subprocess
import sys

import pytest
from spark.making import ids, make_capture, message, schema_of

from stompcodec.errors import ConfigError
from stompcodec.spark import session
from stompcodec.spark.base import Batches, plain
from stompcodec.spark.options import FileOptions
from stompcodec.spark.reading import FileStreamReader
from stompcodec.spark.sessions import stand_in

DATASOURCE = "class DataSource:\n    pass\nclass InputPartition:\n    pass\n"
#: What is found in place of PySpark: files and what is in them.
UNSUITABLE = {
    "none": None,
    "an empty package": {"__init__.py": ""},
    "3.5, without data sources": {"__init__.py": "__version__ = '3.5.8'", "sql/__init__.py": ""},
    "half installed": {"__init__.py": "", "sql/__init__.py": "", "sql/datasource.py": DATASOURCE},
    "broken by a syntax error": {"__init__.py": "def (", "sql/__init__.py": ""},
    "broken by an import": {"__init__.py": "import no_such_module_at_all"},
    "broken by an attribute": {"__init__.py": "", "sql/__init__.py": "raise AttributeError('gone')"},
}


@pytest.mark.parametrize("kind", UNSUITABLE)
def test_a_look_for_sources_survives_any_pyspark(tmp_path, kind):
    """Spark imports both modules when it looks for any source: an error in one would break csv, too."""
    files = UNSUITABLE[kind]
    for name, text in (files or {}).items():
        file = tmp_path / "pyspark" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    code = "import sys\n"
    code += "sys.modules['pyspark'] = None\n" if files is None else f"sys.path.insert(0, {str(tmp_path)!r})\n"
    for module in ("pyspark_stomp", "pyspark_stompfile"):
        code += f"import {module}\nsource = getattr({module}, 'DefaultSource', None)\nprint(source and source.name())\n"
    result = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == (["stomp", "stompfile"] if kind == "half installed" else ["None", "None"])


def test_what_cannot_be_used_says_why(monkeypatch):
    source = stand_in("stomp", ImportError("no module named x"))
    assert source.name() == "stomp"
    with pytest.raises(ImportError, match=r'"stomp" cannot be used .* no module named x .*pip install'):
        source({})
    monkeypatch.setattr(sys.modules["stompcodec.spark.sessions"], "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"4\.0 or newer"):
        session()


def reader_of(folder, **options):
    return FileStreamReader([str(folder)], schema_of(message_id="frame"), FileOptions(**options))


class Engine:
    """What Spark 4.0 and 4.1 do: offsets without arguments, a batch where they differ, kept as JSON."""

    def __init__(self, reader, offsets):
        self.reader, self.offsets = reader, offsets
        if offsets:
            last = json.loads(offsets[-1])
            assert reader.partitions(last, last) == []  # so a restarted query tells where it is
        else:
            offsets.append(json.dumps(reader.initialOffset()))

    def batch(self):
        """The rows of the next batch."""
        start, end = self.offsets[-1], json.dumps(self.reader.latestOffset())
        if end == start:
            return []
        self.offsets.append(end)
        parts = self.reader.partitions(json.loads(start), json.loads(end))
        return [row["message_id"] for part in parts for batch in self.reader.read(part) for row in batch.to_pylist()]


def test_a_stream_without_admission_control(tmp_path, caplog):
    """The first batch takes what there is, for it may be the only one; later ones have their bounds. Said once."""
    folder = make_capture(tmp_path / "a.stompcap", map(message, range(10)), single=False, seal=False)
    offsets = []
    with caplog.at_level(logging.WARNING, "stompcodec.spark"):
        engine = Engine(reader_of(folder, max_frames_per_trigger=4), offsets)
        assert [len(engine.batch()) for _ in range(2)] == [10, 0]
        make_capture(folder, map(message, range(10, 20)), seal=False)
        assert [len(engine.batch()) for _ in range(4)] == [4, 4, 2, 0]
    (ours,) = [record.getMessage() for record in caplog.records if record.name == "stompcodec.spark"]
    assert "no admission control" in ours
    make_capture(folder, [message(20)], seal=False)
    again = Engine(reader_of(folder), offsets)
    assert [again.batch(), again.batch()] == [ids(20), []]


def test_the_last_batch_is_known_to_be_done_by_an_empty_one():
    batches = Batches()
    assert batches.settled
    batches.planned({}, {"a": 5})
    assert (batches.settled, batches.done) == (False, {})
    tick = batches.following({"a": 5}, tick=True)
    assert tick != {"a": 5}
    assert plain(tick) == {"a": 5}
    batches.planned({"a": 5}, tick)
    assert (batches.settled, batches.done) == (True, {"a": 5})
    assert batches.following({"a": 5}) == tick  # no further batch
    again = Batches()
    again.planned(tick, tick)  # after a restart nothing is known to be done
    assert not again.settled
    assert again.following({"a": 5}, tick=True) not in (tick, {"a": 5})
