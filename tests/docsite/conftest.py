"""The scripts of the docs site, for tests of its pages; the built site on a server, and a browser."""

import functools
import http.server
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from chromium import Chromium, serving
from installed import TREE, load

# The folder of the scripts is not put on the path: it has modules called as our folders.
if (TREE / "scripts" / "sitepages").is_dir():
    load("scripts/sitepages", "sitepages")
else:
    collect_ignore_glob = ["test_*.py"]  # without the scripts: this is not the whole tree


@pytest.fixture(scope="session")
def generated() -> dict[str, str]:
    pytest.importorskip("click")
    pytest.importorskip("opentelemetry")
    pytest.importorskip("pyspark")
    from sitepages import pages

    return pages()


@pytest.fixture(scope="session")
def staged(generated: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    from sitepages import staging

    folder = tmp_path_factory.mktemp("site") / "pages"
    staging.stage(folder, generated)
    return folder


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture(scope="session")
def address() -> Iterator[str]:
    with serving(functools.partial(_Quiet, directory=str(TREE / "build" / "site" / "html"))) as found:
        yield found


@pytest.fixture(scope="session")
def browser() -> Iterator[Chromium]:
    with Chromium() as chromium:
        yield chromium


@pytest.fixture(scope="session")
def module() -> ModuleType:
    pytest.importorskip("click")
    pytest.importorskip("rich")
    return load("docs/site/static/playground/playground.py")
