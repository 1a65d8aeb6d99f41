"""The pages about Spark: the tests, files and options that they name are there."""

import ast
import re
from pathlib import Path

import pytest

TREE = Path(__file__).parents[2]
PAGES = sorted(TREE.glob("docs/spark-*.md"))
SEMANTICS = TREE / "docs" / "spark-semantics.md"


def names_in(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.ClassDef))}


def test_every_line_of_the_semantics_names_tests_that_exist():
    page = SEMANTICS.read_text(encoding="utf-8")
    tables = re.findall(r"\| what is certain \| test \|\n\| --- \| --- \|\n((?:\|.*\n)+)", page)
    lines = [line for table in tables for line in table.splitlines()]
    assert len(lines) > 30
    for line in lines:
        assert "::" in line.rpartition(" | ")[2], f"without a test: {line}"
    for file, name in re.findall(r"`([\w./]+\.py)::(\w+)`", page):
        path = (Path(__file__).parent / file).resolve()
        assert path.is_file(), f"{file} is not there"
        assert name in names_in(path), f"{file} has no {name}"


def test_the_tables_of_options_are_complete():
    pytest.importorskip("pyspark")
    from stompcodec.spark.link import LINK_OPTIONS, LIVE_OPTIONS, SINK_OPTIONS
    from stompcodec.spark.options import CHOICE_OPTIONS, FILE_OPTIONS

    known = ((*FILE_OPTIONS, *CHOICE_OPTIONS), LINK_OPTIONS, LIVE_OPTIONS, SINK_OPTIONS)
    page = (TREE / "docs" / "spark-tutorial.md").read_text(encoding="utf-8")
    tables = re.findall(r"\| option of .*\n\| -.*\n((?:\|.*\n)+)", page)
    assert len(tables) == 4
    for table, options in zip(tables, known):
        rows = dict(re.findall(r"^\| `(\w+)` \| .* \| (.+) \|$", table, re.MULTILINE))
        assert rows.keys() == {option.name for option in options}
        assert [option.name for option in options if not rows[option.name].startswith(option.meaning)] == []
    names = {option.name for options in known for option in options}
    for path in PAGES:
        assert {*re.findall(r"\.options?\(\"(\w+)\"", path.read_text(encoding="utf-8"))} <= names, path


def test_reads_lead_with_a_schema():
    """Spark prunes nothing of a Python source: without a schema a count costs as much as all columns."""
    found = []
    for page in [*PAGES, TREE / "docs" / "pipeline.md", TREE / "README.md"]:
        for block in re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
            reads = r"(?:read|readStream)\b\s*\.format\(\"stomp(?:file)?\"\).*?(?:\.load|\.read|\Z)"
            found += [(page.name, read) for read in re.findall(reads, block, re.DOTALL)]
    assert len(found) >= 9
    assert [each for each in found if ".schema(" not in each[1]] == []
