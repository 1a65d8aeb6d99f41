"""The scripts of the docs site, for tests of its pages."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "scripts"


def _load(name: str, path: Path) -> None:
    """Make a script importable by its name. Its folder is not put on the path: it has modules called as our folders."""
    folder = [str(path.parent)] if path.name == "__init__.py" else None
    spec = importlib.util.spec_from_file_location(name, path, submodule_search_locations=folder)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)


if (SCRIPTS / "sitepages").is_dir():
    _load("sitepages", SCRIPTS / "sitepages" / "__init__.py")
else:
    collect_ignore_glob = ["test_*.py"]  # without the scripts: this is not the whole tree


@pytest.fixture(scope="session")
def generated() -> dict[str, str]:
    """The pages that are written from the code."""
    pytest.importorskip("click")
    pytest.importorskip("prometheus_client")
    pytest.importorskip("opentelemetry")
    pytest.importorskip("pyspark")
    from sitepages.generated import pages

    return pages()


@pytest.fixture(scope="session")
def staged(generated: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that Zensical gets."""
    from sitepages import staging

    folder = tmp_path_factory.mktemp("site") / "pages"
    staging.stage(folder, generated)
    return folder
