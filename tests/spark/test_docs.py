"""The pages about Spark: the tests, files and options that they name are there."""

import ast
import re
from pathlib import Path

import pytest

TREE = Path(__file__).parents[2]
DOCS = TREE / "docs"
PAGES = sorted(DOCS.glob("spark-*.md"))
HERE = Path(__file__).parent


def names_in(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.ClassDef))}


def test_every_line_of_the_semantics_names_tests_that_exist():
    page = (DOCS / "spark-semantics.md").read_text(encoding="utf-8")
    lines = [line for line in page.splitlines() if re.match(r"\| .* \| .* \|$", line) and "`" in line]
    proven = [line for line in lines if "::" in line]
    assert len(proven) > 30
    for line in proven:
        named = re.findall(r"`([\w./]+\.py)::(\w+)`", line.rpartition(" | ")[2])
        assert named, line
        for file, name in named:
            path = (HERE / file).resolve()
            assert path.is_file(), f"{file} is not there: {line}"
            assert name in names_in(path), f"{file} has no {name}: {line}"


def test_every_line_of_a_table_of_promises_has_a_test():
    page = (DOCS / "spark-semantics.md").read_text(encoding="utf-8")
    for table in re.findall(r"\| what is certain \| test \|\n\| --- \| --- \|\n((?:\|.*\n)+)", page):
        for line in table.splitlines():
            assert "::" in line, f"without a test: {line}"


def test_options_that_the_pages_name_are_options():
    pytest.importorskip("pyspark")
    from stompcodec.spark.link import LINK_OPTIONS, LIVE_OPTIONS, SINK_OPTIONS
    from stompcodec.spark.options import FILE_OPTIONS

    known = {option.name for table in (FILE_OPTIONS, LINK_OPTIONS, LIVE_OPTIONS, SINK_OPTIONS) for option in table}
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for name in re.findall(r"\.options?\(\"(\w+)\"", text):
            assert name in known, f"{page.name}: there is no option {name}"


def test_the_tables_of_options_are_complete():
    pytest.importorskip("pyspark")
    from stompcodec.spark.link import LINK_OPTIONS, LIVE_OPTIONS, SINK_OPTIONS
    from stompcodec.spark.options import CHOICE_OPTIONS, FILE_OPTIONS

    page = (DOCS / "spark-tutorial.md").read_text(encoding="utf-8")
    tables = re.findall(r"\| option of .*\n\| -.*\n((?:\|.*\n)+)", page)
    listed = [re.findall(r"^\| `(\w+)` \| .* \| (.+) \|$", table, re.MULTILINE) for table in tables]
    for rows, options in zip(listed, ((*FILE_OPTIONS, *CHOICE_OPTIONS), LINK_OPTIONS, LIVE_OPTIONS, SINK_OPTIONS)):
        assert {name for name, _ in rows} == {option.name for option in options}
        for option in options:
            assert any(meaning.startswith(option.meaning) for name, meaning in rows if name == option.name), option.name
    assert len(listed) == 4


def test_reads_lead_with_a_schema():
    """Spark prunes nothing of a Python source: without a schema a count costs as much as all columns."""
    pages = [page for page in PAGES if page.name != "spark-filter-pushdown.md"]
    found = 0
    for page in [*pages, DOCS / "pipeline.md", TREE / "README.md"]:
        for block in re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
            reads = r"(?:read|readStream)\b\s*\.format\(\"stomp(?:file)?\"\).*?(?:\.load|\.read|\Z)"
            for read in re.findall(reads, block, re.DOTALL):
                assert ".schema(" in read, f"{page.name}: {read}"
                found += 1
    assert found >= 11
