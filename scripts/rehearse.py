"""Rehearse a release: everything that the workflow does but publishing, on a clone. The tree stays as it is.

    python scripts/rehearse.py [--extras ws cli ...] [--python python3.12 ...] [--keep DIR] [--json]

A dirty tree, an existing tag, a version without news or a missing tool is refused before anything is built. Then the
news are collected, sdist and wheels are built twice in different folders and compared, checked by twine, served as a
package index, and installed from it into an empty environment for each extra. There the vectors
and the doctests run, and the SBOM is written. Progress goes to standard error, the table or JSON to standard
output. The exit status is 0 if all steps passed, 1 if one failed, 2 if the release was refused.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import news
import rehearsal_builds
import rehearsal_installs
import release_checks
import repository

ROOT = Path(__file__).resolve().parents[1]


@dataclass
class Step:
    """A step of the rehearsal.

    Args:
        name: what it does.
        status: `ok`, `failed`, or `note` for what a person has to do before the release.
        seconds: how long it took.
        detail: what came out, in a line.
    """

    name: str
    status: str
    seconds: float
    detail: str


@dataclass
class Report:
    """All that a rehearsal found."""

    version: str
    commit: str
    date: str
    steps: list[Step] = field(default_factory=list)
    files: dict[str, dict[str, str | int]] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        return all(step.status != "failed" for step in self.steps)

    def run(self, name: str, work: Callable[[], str]) -> bool:
        """Run a step, say what it does and how it ended, and return whether it passed."""
        print(f"{len(self.steps) + 1:3}. {name} ...", file=sys.stderr, flush=True)
        start = time.monotonic()
        try:
            with contextlib.redirect_stdout(sys.stderr):
                detail = work()
            status = "note" if detail.startswith("note: ") else "ok"
        except subprocess.CalledProcessError as error:
            said = (str(error.stdout or "") + str(error.stderr or "")).strip()
            print(said, file=sys.stderr)
            status, detail = "failed", (said.splitlines() or [str(error)])[-1]
        except (OSError, ValueError) as error:
            status, detail = "failed", str(error)
        seconds = time.monotonic() - start
        self.steps.append(Step(name, status, round(seconds, 1), detail.removeprefix("note: ")))
        print(f"     {status}, {seconds:.1f} s: {self.steps[-1].detail}", file=sys.stderr, flush=True)
        return status != "failed"

    def table(self) -> str:
        """Return the report for people."""
        width = max(len(step.name) for step in self.steps)
        lines = [f"{step.name:{width}}  {step.status:6} {step.seconds:7.1f} s  {step.detail}" for step in self.steps]
        lines += ["", *(f"{row['sha256']}  {row['bytes']:>9} bytes  {name}" for name, row in self.files.items())]
        failed = sum(step.status == "failed" for step in self.steps)
        lines += ["", f"stompcodec {self.version}: {len(self.steps) - failed} steps passed, {failed} failed"]
        return "\n".join(lines)


def git(*arguments: str | Path) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


@contextlib.contextmanager
def unchanged() -> Iterator[None]:
    """Raise ValueError at the end if the tree or its tags are not what they were."""

    def state() -> tuple[str, str, str]:
        return git("status", "--porcelain", "--ignored=no"), git("tag", "--list"), git("rev-parse", "HEAD")

    before = state()
    yield
    if state() != before:
        raise ValueError("the tree or its tags were changed during the rehearsal")


def collect_news(source: Path, report: Report) -> str:
    """Collect the news in the clone, unless a commit has done so."""
    if not news.fragments(source):
        return f"CHANGELOG.md has [{report.version}] already"
    count = news.collect(source, report.version, report.date)
    for refusal in release_checks.without_news(source, report.version, collected=True):
        raise ValueError(str(refusal))
    return f"{count} files of changes/ in [{report.version}] - {report.date}"


def check_names(source: Path) -> str:
    """Check what the constants of scripts/repository.py stand in."""
    subprocess.run(
        [sys.executable, "scripts/repository.py", "--check"], cwd=source, check=True, capture_output=True, text=True
    )
    left = repository.placeholders()
    return f"note: {' and '.join(left)} of scripts/repository.py must be set before the release" if left else "agree"


def rehearse(options: argparse.Namespace, work: Path, report: Report) -> None:
    """Run every step in the folder, up to the first that the others need."""
    source = work / "source"

    def clone() -> str:
        subprocess.run(["git", "clone", "--quiet", ROOT, source], check=True, capture_output=True, text=True)
        subprocess.run(
            ["git", "checkout", "--quiet", report.commit], cwd=source, check=True, capture_output=True, text=True
        )
        return f"{report.commit[:12]} of {report.date}"

    builds = rehearsal_builds.Builds(source, work, [sys.executable, *options.python])
    needed: list[tuple[str, Callable[[], str]]] = [
        ("clone", clone),
        ("collect the news", lambda: collect_news(source, report)),
        ("repository, contact, version", lambda: check_names(source)),
        ("build sdist and wheels", lambda: builds.build("first")),
    ]
    if not all(report.run(name, step) for name, step in needed):
        return
    report.files = builds.digests("first")
    report.run("build them again, elsewhere", lambda: builds.build("second-in-a-longer-folder"))
    report.run("the same digests", lambda: builds.compare("first", "second-in-a-longer-folder"))
    report.run("no paths in binaries", lambda: builds.look_for_paths("first"))
    report.run("twine check --strict", lambda: builds.twine("first"))
    with rehearsal_installs.served(work / "first", work / "index") as url:
        installs = rehearsal_installs.Installs(builds.unpacked, work, url, report.version, work / "first")
        for extra in options.extras or installs.extras():
            report.run(f"install [{extra}]" if extra else "install", functools.partial(installs.install, extra))
            for name, step in installs.proofs(extra):
                report.run(name, step)
            installs.remove(extra)
        report.files.update(installs.sboms)
    if options.keep:
        report.run("keep the files", lambda: builds.keep("first", work / "sbom", options.keep))


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--extras", nargs="*", metavar="EXTRA", help="install these alone; '' is the bare package")
    parser.add_argument("--python", nargs="*", default=[], metavar="PATH", help="build wheels for these, too")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="copy what was built there")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> int:
    options = parsed(arguments)
    refusals = release_checks.before_building(ROOT)
    if refusals:
        if options.json:
            print(json.dumps({"passed": False, "refused": [refusal._asdict() for refusal in refusals]}))
        for refusal in refusals:
            print(f"refused: {refusal}", file=sys.stderr)
        return 2
    epoch = git("log", "-1", "--format=%ct")
    date = time.strftime("%Y-%m-%d", time.gmtime(int(epoch)))
    os.environ["SOURCE_DATE_EPOCH"] = epoch
    report = Report(repository.version(), git("rev-parse", "HEAD"), date)
    with unchanged(), tempfile.TemporaryDirectory(prefix="rehearsal-") as folder:
        rehearse(options, Path(folder), report)
    if options.json:
        print(json.dumps({"passed": report.passed, **asdict(report)}, indent=1))
    else:
        print(report.table())
    return 0 if report.passed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
