"""Collect the files of changes/ into CHANGELOG.md, under this version and a date.

    python scripts/news.py                     today, in UTC
    python scripts/news.py --date 2030-01-31

towncrier does that. The sections "[Unreleased]" and "[X.Y.Z] - unreleased" are from before changes/ existed, and
become part of this version.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path

import repository

ROOT = Path(__file__).resolve().parents[1]
#: The groups of changes, in the order of a section.
KINDS = ("Removed before the first release", "Added", "Changed", "Deprecated", "Removed", "Fixed", "Security")
_HEADING = re.compile(r"^## \[([^\]]+)\](?: - (.+))?$", re.MULTILINE)


def fragments(root: Path) -> list[Path]:
    """Return the files of changes/ that hold news."""
    return sorted(path for path in (root / "changes").glob("*.md") if path.name != "README.md")


def sections(changelog: str) -> list[tuple[str, str | None, str]]:
    """Return version, date and text of each section; None where the heading has no date.

    >>> sections("# Changelog\\n\\n## [2.0] - 2030-01-31\\n\\n### Added\\n\\n- a\\n\\n## [Unreleased]\\n")
    [('2.0', '2030-01-31', '\\n\\n### Added\\n\\n- a\\n\\n'), ('Unreleased', None, '\\n')]
    """
    found = list(_HEADING.finditer(changelog))
    ends = [match.start() for match in found[1:]] + [len(changelog)]
    return [(match[1], match[2], changelog[match.end() : end]) for match, end in zip(found, ends)]


def has_section(changelog: str, version: str) -> bool:
    """Return whether the version has a section with a date."""
    return any(name == version and date and date[:2] == "20" for name, date, _ in sections(changelog))


def _by_kind(text: str) -> dict[str, str]:
    parts = re.split(r"^### (.+)$", text, flags=re.MULTILINE)
    if parts[0].strip():
        raise ValueError(f"CHANGELOG.md has a change outside of a group: {parts[0].strip().splitlines()[0]}")
    return {kind: lines.strip("\n") for kind, lines in zip(parts[1::2], parts[2::2])}


def merge(changelog: str, version: str) -> str:
    """Return the changelog with what is unreleased as part of the section of the version, which comes first.

    Raises:
        ValueError: the first section is not that of the version, or a change stands outside of a group.
    """
    found = sections(changelog)
    if not found or found[0][0] != version:
        raise ValueError(f"the first section of CHANGELOG.md is not [{version}]")
    merged: dict[str, list[str]] = {}
    kept = ""
    for index, (name, date, text) in enumerate(found):
        if not index or name == "Unreleased" or (name, date) == (version, "unreleased"):
            for kind, lines in _by_kind(text).items():
                merged.setdefault(kind, []).append(lines)
        else:
            kept += f"## [{name}]{f' - {date}' if date else ''}{text}"
    unknown = set(merged) - set(KINDS)
    if unknown:
        raise ValueError(f"CHANGELOG.md has a group that Keep a Changelog does not know: {min(unknown)}")
    start = _HEADING.search(changelog)
    assert start is not None
    groups = "\n\n".join(f"### {kind}\n\n" + "\n".join(merged[kind]) for kind in KINDS if kind in merged)
    section = f"## [{version}] - {found[0][1]}\n\n{groups}\n"
    return changelog[: start.start()] + section + (f"\n{kept}" if kept else "")


def collect(root: Path, version: str, date: str) -> int:
    """Collect the news, and return how many files held some.

    Raises:
        CalledProcessError: towncrier failed.
        ValueError: CHANGELOG.md does not have the form of Keep a Changelog.
    """
    count = len(fragments(root))
    command = [sys.executable, "-m", "towncrier", "build", "--yes", "--version", version, "--date", date]
    subprocess.run(command, cwd=root, check=True, stdout=subprocess.DEVNULL)
    page = root / "CHANGELOG.md"
    page.write_text(merge(page.read_text(encoding="utf-8"), version), encoding="utf-8")
    return count


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--date", default=datetime.now(timezone.utc).date().isoformat(), help="YYYY-MM-DD")
    date = parser.parse_args(arguments).date
    version = repository.version()
    if not fragments(ROOT):
        print("changes/ holds no news")
        return 1
    print(f"CHANGELOG.md: {collect(ROOT, version, date)} files of changes/ are now in [{version}] - {date}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
