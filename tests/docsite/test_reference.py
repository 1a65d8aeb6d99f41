"""The reference names everything: public names, verbs and options, errors, rules."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import click
import pytest

pytest.importorskip("griffe")

from sitepages import api, commands

import stompcodec
from stompcodec.cli.app import app
from stompcodec.client import Options
from stompcodec.client.options import Backoff
from stompcodec.errors import ERROR_KINDS
from stompcodec.spec import Limits

#: Modules with `__all__` that are not for programs: parts of a door, and programs.
INTERNAL = {
    "stompcodec._codec_py": "a backend, behind stompcodec",
    "stompcodec.codec": "a part of stompcodec",
    "stompcodec.cli": "the program",
    "stompcodec.spark.base": "what the sources and the sink of Spark share",
    "stompcodec.client.sync.waiting": "a part of stompcodec.client",
    "stompcodec.client.aio.waiting": "a part of stompcodec.client",
}


def test_all_public_modules_have_a_page() -> None:
    folder = Path(stompcodec.__path__[0])
    public = {
        ".".join(("stompcodec", *path.relative_to(folder).with_suffix("").parts)).removesuffix(".__init__")
        for path in folder.rglob("*.py")
        if re.search(r"^__all__ = ", path.read_text("utf-8"), re.MULTILINE)
    }
    written = {module for part in api.PARTS.values() for module in part.modules}
    assert public - INTERNAL.keys() <= written
    assert INTERNAL.keys() <= public, "no longer there"


def test_every_public_name_is_in_the_reference(generated: dict[str, str]) -> None:
    count = 0
    for name, part in api.PARTS.items():
        page = generated[f"reference/{name}.md"]
        for module in part.modules:
            for public in api.names_of(module):
                assert page.count(f"\n{api.heading(module, public)}\n") == 1, f"{module}.{public}"
                count += 1
    assert count > 150


def test_every_verb_and_option_is_in_the_reference(generated: dict[str, str]) -> None:
    page = generated["reference/command-line.md"]
    found = list(commands.verbs(app, click.Context(app, info_name="stompcodec")))
    assert len(found) > 30
    for name, verb, _ in found:
        section = page.partition(f"\n## `{name}` {{")[2].partition("\n## ")[0]
        assert section, name
        for parameter in verb.params:
            if isinstance(parameter, click.Option) and not parameter.hidden:
                for option in parameter.opts:
                    assert option in section, (name, option)


@pytest.mark.parametrize(
    ("page", "names"),
    [
        ("client-options", [each.name for kind in (Options, Backoff) for each in fields(kind)]),
        ("client-options", list(Limits._fields)),
        ("errors", list(ERROR_KINDS)),
        ("errors", ["StompError", "FrameError", "stompcodec.client.SendManyError", "stompcodec.bridge.BridgeError"]),
    ],
)
def test_tables_are_complete(generated: dict[str, str], page: str, names: list[str]) -> None:
    lines = generated[f"reference/{page}.md"].splitlines()
    for name in names:
        [line] = [each for each in lines if each.startswith(f"| `{name}` |")]
        assert re.search(r"\w", re.split(r"(?<!\\)\|", line)[-2]), f"nothing is said of {name}"


def test_every_rule_is_in_the_reference(generated: dict[str, str]) -> None:
    from stompcodec.cli.linting import _titles

    page = generated["reference/lint-rules.md"]
    assert len(_titles()) > 300
    assert all(f"\n| `{rule}` | " in page for rule in _titles())
