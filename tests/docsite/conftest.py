"""The scripts of the docs site, for tests of its pages."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
if (ROOT / "scripts" / "sitepages").is_dir():
    sys.path.append(str(ROOT / "scripts"))  # behind everything else: names there are not those of packages
else:
    collect_ignore_glob = ["test_*.py"]  # without the scripts: this is not the whole tree


@pytest.fixture(scope="session")
def generated() -> dict[str, str]:
    """The pages that are written from the code."""
    pytest.importorskip("click")
    pytest.importorskip("prometheus_client")
    pytest.importorskip("opentelemetry")
    pytest.importorskip("pyspark")
    from build_site import generated as pages

    return pages()


@pytest.fixture(scope="session")
def staged(generated: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that Zensical gets."""
    from sitepages import staging

    folder = tmp_path_factory.mktemp("site") / "pages"
    staging.stage(folder, generated)
    return folder
