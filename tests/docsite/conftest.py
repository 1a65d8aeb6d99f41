"""The scripts of the docs site, for tests of its pages; the built site on a server, and a browser."""

from __future__ import annotations

import contextlib
import functools
import http.server
import importlib.util
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from chromium import Chromium

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


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args: object) -> None:
        pass


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[str]:
    """Serve a folder over HTTP. Yields its address."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="session")
def address() -> Iterator[str]:
    """The address of the built site."""
    with serving(ROOT / "build" / "site" / "html") as found:
        yield found


@pytest.fixture(scope="session")
def browser() -> Iterator[Chromium]:
    with Chromium() as chromium:
        yield chromium


@pytest.fixture(scope="session")
def module() -> ModuleType:
    """The Python of the playground."""
    pytest.importorskip("click")
    pytest.importorskip("rich")
    spec = importlib.util.spec_from_file_location(
        "playground_of_the_site", ROOT / "docs" / "site" / "static" / "playground" / "playground.py"
    )
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made
