"""Check that this tree can be released, then build it and try what was built: `make release-check`.

    python scripts/release.py                every reason against a release, then sdist and wheels are built and tried
    python scripts/release.py --tag v1.2.3   what the workflow asks when that tag was pushed; nothing is built

setup.py takes `long_description` from here. Only building needs more than the standard library.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
#: The top-level domain that RFC 2606 reserves for names that never resolve: a person writes the real ones.
PLACEHOLDER = "repository.invalid"
_LINK = re.compile(r"""(`+)[^`].*?\1 | (\]\(|^\[[^\]]+\]:\ |\b(?:src|srcset|href)=")([^()\s"]+)""", re.VERBOSE)
_ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:|//", re.IGNORECASE)
_PICTURES = (".png", ".svg", ".gif", ".jpg", ".webp")


def version(root: Path = ROOT) -> str:
    """Return `__version__` of the package, read without importing it."""
    text = (root / "stompcodec" / "__init__.py").read_text(encoding="utf-8")
    (found,) = re.findall(r'^__version__ = "([^"]+)"$', text, re.MULTILINE)
    return str(found)


def absolute(markdown: str, url: str, ref: str) -> str:
    """Return a page of the top of the tree with absolute links to `ref` of the repository; code stays as it is.

    >>> absolute("[a](docs/a.md#b), ![c](docs/c.svg), [d](#e), [f](https://g.org), `[h](i)`", "https://r.org/s", "v1")
    '[a](https://r.org/s/blob/v1/docs/a.md#b), ![c](https://r.org/s/raw/v1/docs/c.svg), [d](https://r.org/s#e), \
[f](https://g.org), `[h](i)`'
    """

    def target(link: str) -> str:
        if _ELSEWHERE.match(link):
            return link
        if link.startswith("#"):
            return url + link
        raw = link.partition("#")[0].lower().endswith(_PICTURES)
        return f"{url}/{'raw' if raw else 'blob'}/{ref}/{link.removeprefix('./')}"

    def replaced(match: re.Match[str]) -> str:
        return match[0] if match[1] else match[2] + target(match[3])

    lines, fenced = [], False
    for line in markdown.splitlines(keepends=True):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced and not line.startswith("    "):
            line = _LINK.sub(replaced, line)
        lines.append(line)
    return "".join(lines)


def long_description() -> str:
    """Return README.md for a package index, which shows it away from the tree: links lead to the tag."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    return absolute(readme, project["urls"]["Source"], f"v{version()}")


def _git(root: Path, *arguments: str) -> list[str]:
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)
    return done.stdout.splitlines()


def refusals(root: Path, tag: str = "") -> list[str]:
    """Return every reason against a release of the tree, or against publishing what a tag holds."""
    number = version(root)
    page = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    collected = re.search(rf"^## \[{re.escape(number)}\] - \d{{4}}-\d\d-\d\d$", page, re.MULTILINE)
    left = sorted(path.name for path in (root / "changes").glob("*.*.md"))
    found = []
    if tag and tag != f"v{number}":
        found.append(f"wrong tag: the tag is {tag}, and the package says {number}")
    if not tag and (changed := _git(root, "status", "--porcelain")):
        found.append(f"dirty tree: {changed[0][3:]}: commit the change, or remove it")
    if not tag and _git(root, "tag", "--list", f"v{number}"):
        found.append(f"existing tag: v{number} is tagged: set a new __version__ in stompcodec/__init__.py")
    if not collected and (tag or not left):
        found.append(f"no news: CHANGELOG.md has no section [{number}] with a date: run towncrier build")
    if collected and left:
        found.append(f"news left: CHANGELOG.md has [{number}] already, and changes/ has {left[0]}")
    if named := _git(root, "grep", "-lF", PLACEHOLDER, "--", ".", ":!scripts", ":!tests", ":!RELEASING.md"):
        found.append(f"placeholder: {PLACEHOLDER} stands in {', '.join(named)}: RELEASING.md says what to write")
    return found


def build(folder: Path) -> None:
    """Build the sdist, a pure wheel and a wheel of it, check them, and run the vectors on each wheel.

    Raises:
        CalledProcessError: a step failed; its output was shown.
    """
    # The time of the commit is that of all files: two builds of it are equal.
    times = {"SOURCE_DATE_EPOCH": _git(ROOT, "log", "-1", "--format=%ct")[0]}
    python = [sys.executable, "-m"]
    _run(*python, "build", "--outdir", folder, ROOT, STOMPCODEC_BUILD_EXTENSION="yes", **times)
    _run(*python, "build", "--wheel", "--outdir", folder, ROOT, STOMPCODEC_BUILD_EXTENSION="any", **times)
    _run(*python, "twine", "check", "--strict", *folder.iterdir())
    for wheel in folder.glob("*.whl"):
        with tempfile.TemporaryDirectory() as scratch:
            own = Path(scratch, "venv", "Scripts" if os.name == "nt" else "bin", "python")
            _run(*python, "venv", Path(scratch, "venv"))
            _run(own, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", wheel)
            only = ["--backend", "python"] if "none-any" in wheel.name else []
            _run(own, ROOT / "tests" / "packaging" / "run_backends.py", *only, cwd=scratch)


def _run(*command: object, cwd: object = ROOT, **variables: str) -> None:
    print("+", *command, flush=True)
    subprocess.run([*map(str, command)], cwd=str(cwd), env={**os.environ, **variables}, check=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tag", default="", help="the tag that was pushed")
    tag = parser.parse_args().tag
    found = refusals(ROOT, tag)
    for reason in found:
        print(f"refused: {reason}")
    if not tag:  # built all the same: what is refused is often only the version's date
        with tempfile.TemporaryDirectory() as folder:
            try:
                build(Path(folder))
            except subprocess.CalledProcessError as error:
                found.append(str(error))
                print(f"refused: {error}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
