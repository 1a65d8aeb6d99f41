"""Where the package under test comes from, and files of the tree that are imported from where they lie."""

import importlib.metadata
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from patience import patience

import stompcodec

__all__ = ["ROOT", "TREE", "environment", "is_editable", "is_source_tree", "load", "program"]
TREE = Path(__file__).resolve().parents[1]
#: Where the stompcodec under test was imported from.
ROOT = str(Path(stompcodec.__file__).parents[1])


def environment(*paths, **more):
    """Return the variables of processes that use the stompcodec under test; `paths` are searched after it."""
    places = [ROOT, *map(str, paths), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(places), **more}


def program(*arguments, **options):
    """Return what Python prints with these arguments; it has to end well."""
    options = {"env": environment(), "timeout": patience(300), **options}
    done = subprocess.run([sys.executable, *map(str, arguments)], capture_output=True, **options)
    assert done.returncode == 0, (done.stdout + done.stderr).decode(errors="replace")
    return done.stdout.decode()


def is_editable() -> bool:
    """Return whether the package is installed as a link to its sources, as `make dev` does."""
    made = (each.read_text("direct_url.json") for each in importlib.metadata.distributions(name="stompcodec"))
    return any(json.loads(text).get("dir_info", {}).get("editable") for text in made if text)


def is_source_tree(module: Path) -> bool:
    """Return whether `stompcodec/__init__.py` is a file of this tree that was never installed. There the C backend is
    missing, or as old as the last build: tests of it would be skipped, or prove nothing."""
    return module.resolve().parents[1] == TREE and not is_editable()


def load(path: str, name: str | None = None) -> ModuleType:
    """Return a file of the tree, or a package, as a module; skip the test where it is not: this is not the whole tree.

    Args:
        path: from the root of the tree.
        name: by which others can import it; otherwise nobody can.
    """
    file = TREE / path
    if not file.exists():
        pytest.skip(f"{path} is not here")
    folder = [str(file)] if file.is_dir() else None
    target = file / "__init__.py" if folder else file
    spec = importlib.util.spec_from_file_location(
        name or f"tree_{file.stem}", target, submodule_search_locations=folder
    )
    module = importlib.util.module_from_spec(spec)
    if name:
        sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
