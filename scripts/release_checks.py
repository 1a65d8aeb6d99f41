"""Refuse a release by name: a dirty tree, an existing tag, a version without news, a missing tool.

    python scripts/release_checks.py                what `make rehearse` asks before it builds anything
    python scripts/release_checks.py --tag v1.2.3   what the workflow asks when that tag was pushed

With --tag the news have to be in CHANGELOG.md, and scripts/repository.py has to name a repository.
"""

from __future__ import annotations

import argparse
import importlib.util
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import news
import repository

ROOT = Path(__file__).resolve().parents[1]
#: Modules of Python that build, check and describe a release, with the package that has them.
MODULES = {
    "build": "build",
    "towncrier": "towncrier",
    "twine": "twine",
    "cyclonedx_py": "cyclonedx-bom",
}
#: Only Linux needs these: they give a wheel its manylinux tag.
REPAIR = {"auditwheel": "auditwheel"}


class Refusal(NamedTuple):
    """A reason against a release.

    Args:
        name: of the check.
        reason: what is wrong, and what to do.
    """

    name: str
    reason: str

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}"


def _git(root: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True, text=True).stdout


def missing_tools() -> list[Refusal]:
    """Return a refusal for each tool that is not installed."""
    wanted = {**MODULES, **(REPAIR if sys.platform == "linux" else {})}
    missing = [package for module, package in wanted.items() if importlib.util.find_spec(module) is None]
    refusals = [
        Refusal("missing tool", f"{package} is not installed: it is in the extra release, as make rehearse installs it")
        for package in missing
    ]
    if shutil.which("git") is None:
        refusals.append(Refusal("missing tool", "git is not on PATH"))
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    if shutil.which(compiler) is None:
        refusals.append(Refusal("missing tool", f"the C compiler {compiler} is not on PATH"))
    if not Path(sysconfig.get_path("include"), "Python.h").is_file():
        refusals.append(Refusal("missing tool", "Python.h is missing: install the headers of this Python"))
    return refusals


def dirty_tree(root: Path) -> list[Refusal]:
    """Return a refusal if a file is changed or not committed."""
    lines = _git(root, "status", "--porcelain").splitlines()
    if not lines:
        return []
    names = ", ".join(line[3:] for line in lines[:3]) + (" and more" if len(lines) > 3 else "")
    return [Refusal("dirty tree", f"{names}: commit the change, or remove it")]


def existing_tag(root: Path, version: str) -> list[Refusal]:
    """Return a refusal if the version has a tag."""
    if not _git(root, "tag", "--list", f"v{version}").strip():
        return []
    return [Refusal("existing tag", f"v{version} is tagged: set a new __version__ in {repository.PACKAGE.as_posix()}")]


def without_news(root: Path, version: str, collected: bool = False) -> list[Refusal]:
    """Return a refusal if neither changes/ nor a section of CHANGELOG.md tells what the version changes.

    Args:
        root: of the tree.
        version: the one to release.
        collected: the news have to be in CHANGELOG.md by now.
    """
    left = news.fragments(root)
    written = news.has_section((root / "CHANGELOG.md").read_text(encoding="utf-8"), version)
    if written and left:
        return [Refusal("news left", f"CHANGELOG.md has [{version}] already, and changes/ has {left[0].name}")]
    if collected and not written:
        return [Refusal("version without news", f"CHANGELOG.md has no [{version}]: run python scripts/news.py")]
    if not written and not left:
        return [Refusal("version without news", f"changes/ is empty, and CHANGELOG.md has no [{version}] with a date")]
    return []


def before_building(root: Path) -> list[Refusal]:
    """Return every reason against a rehearsal of the tree."""
    refusals = missing_tools()
    if any("git" in refusal.reason for refusal in refusals):
        return refusals
    version = repository.version()
    return [*refusals, *dirty_tree(root), *existing_tag(root, version), *without_news(root, version)]


def for_tag(root: Path, tag: str) -> list[Refusal]:
    """Return every reason against publishing what the tag holds."""
    version = repository.version()
    refusals = without_news(root, version, collected=True)
    if tag != f"v{version}":
        refusals.append(Refusal("wrong tag", f"the tag is {tag}, and the package says {version}"))
    stale = [
        path.relative_to(repository.ROOT).as_posix() for path, text, wanted in repository.files() if text != wanted
    ]
    refusals += [Refusal("stale file", f"{name}: run python scripts/repository.py") for name in stale]
    return refusals + [
        Refusal("placeholder", f"{name} of scripts/repository.py is not set: set it, and run that script")
        for name in repository.placeholders()
    ]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tag", help="the tag that was pushed")
    tag = parser.parse_args(arguments).tag
    refusals = for_tag(ROOT, tag) if tag else before_building(ROOT)
    for refusal in refusals:
        print(f"refused: {refusal}")
    return 1 if refusals else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
