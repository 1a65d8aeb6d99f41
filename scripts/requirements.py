"""Print what the extras of pyproject.toml require, one requirement a line, without the package itself.

    python scripts/requirements.py EXTRA ...

An environment can get all of that before the package is built. It needs only Python and pip: nothing is installed yet.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path
from typing import Any

PYPROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"


def required(project: dict[str, Any], extras: list[str]) -> list[str]:
    """Return the requirements of extras, those of other extras that they name among them.

    >>> extras = {"ws": ["websockets"], "all": ["a[ws]", "rich>=13; python_version > '3'"]}
    >>> required({"name": "a", "dependencies": ["b"], "optional-dependencies": extras}, ["all"])
    ['b', 'websockets', "rich>=13; python_version > '3'"]
    """
    own = re.compile(rf"{re.escape(project['name'])}\[([\w,-]+)\]")
    found = list(project["dependencies"])
    for extra in extras:
        for requirement in project["optional-dependencies"][extra]:
            match = own.fullmatch(requirement)
            found += required(project, match[1].split(",")) if match else [requirement]
    return list(dict.fromkeys(found))


def project() -> dict[str, Any]:
    """Return the table `project` of pyproject.toml."""
    table: dict[str, Any] = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]
    return table


def of(extras: list[str]) -> list[str]:
    """Return what the extras of this project require."""
    return required(project(), extras)


if __name__ == "__main__":
    print("\n".join(of(sys.argv[1:])))
