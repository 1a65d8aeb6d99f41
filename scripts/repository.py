"""Write the repository's URL, its contact and the version into every file that names them.

    python scripts/repository.py             write them
    python scripts/repository.py --check     fail if a file is stale
    python scripts/repository.py --release   the same, and fail while URL or CONTACT is the placeholder

setup.py uses `absolute`, too: a package index shows README.md away from the tree, where relative links lead nowhere.
It needs only the standard library: it runs before anything is installed.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path

#: The one place for both. They are placeholders until a person sets them; then run this script.
URL = "https://repository.invalid/stompcodec"
CONTACT = "contact@repository.invalid"

ROOT = Path(__file__).resolve().parents[1]
#: The one place of the version.
PACKAGE = Path("stompcodec", "__init__.py")
#: The top-level domain that RFC 2606 reserves for names that never resolve.
PLACEHOLDER = ".invalid"

#: File, a line or a part of it with one group, and what the group holds.
NAMED = (
    ("pyproject.toml", r'^Homepage = "(.*)"$', "{url}"),
    ("pyproject.toml", r'^Source = "(.*)"$', "{url}"),
    ("pyproject.toml", r'^Issues = "(.*)"$', "{url}/issues"),
    ("pyproject.toml", r'^Changelog = "(.*)"$', "{url}/blob/main/CHANGELOG.md"),
    ("pyproject.toml", r'^Security = "(.*)"$', "{url}/security/policy"),
    ("CITATION.cff", r'^repository-code: "(.*)"$', "{url}"),
    ("CITATION.cff", r'^version: "(.*)"$', "{version}"),
    ("CITATION.cff", r'^    email: "(.*)"$', "{contact}"),
    ("CODE_OF_CONDUCT.md", r"\[maintainers\]\(mailto:(.*?)\)", "{contact}"),
    ("SECURITY.md", r"\[Report a vulnerability\]\((.*?)\)", "{url}/security/advisories/new"),
    ("SECURITY.md", r"\[write to the maintainers\]\(mailto:(.*?)\)", "{contact}"),
    ("CONTRIBUTING.md", r"^    git clone (\S+) && cd stompcodec$", "{url}"),
    ("deploy/docker/Dockerfile", r'image\.source="(.*)"$', "{url}"),
    ("deploy/conda/recipe.yaml", r'^  version: "(.*)"$', "{version}"),
    ("deploy/conda/recipe.yaml", r'^  (?:homepage|repository): "(.*)"$', "{url}"),
    (".github/ISSUE_TEMPLATE/config.yml", r"^    url: (.*)$", "{url}/security/advisories/new"),
)


def version() -> str:
    """Return `__version__` of the package, read without importing it.

    Raises:
        ValueError: the file does not set it exactly once.
    """
    found = re.findall(r'^__version__ = "([^"]+)"$', (ROOT / PACKAGE).read_text(encoding="utf-8"), re.MULTILINE)
    if len(found) != 1:
        raise ValueError(f'{PACKAGE} must have one line __version__ = "X.Y.Z"; it has {len(found)}')
    return str(found[0])


def fill(text: str, pattern: str, value: str) -> str:
    r"""Return the text with the group of each match replaced.

    >>> fill("a: 1\nb: 2\n", r"^b: (.*)$", "3")
    'a: 1\nb: 3\n'

    Raises:
        ValueError: nothing matches.
    """

    def replaced(match: re.Match[str]) -> str:
        start, end = match.start(1) - match.start(), match.end(1) - match.start()
        return match[0][:start] + value + match[0][end:]

    new, count = re.subn(pattern, replaced, text, flags=re.MULTILINE)
    if not count:
        raise ValueError(f"no line matches {pattern}")
    return new


def files() -> Iterator[tuple[Path, str, str]]:
    """Yield each file, its text, and what its text should be."""
    values = {"url": URL, "contact": CONTACT, "version": version()}
    for name in dict.fromkeys(name for name, *_ in NAMED):
        path = ROOT / name
        if not path.is_file():  # the sdist is without .github
            continue
        text = wanted = path.read_text(encoding="utf-8")
        for other, pattern, value in NAMED:
            if other == name:
                try:
                    wanted = fill(wanted, pattern, value.format(**values))
                except ValueError as error:
                    raise ValueError(f"{name}: {error}") from None
        yield path, text, wanted


def placeholders() -> list[str]:
    """Return the names of the constants that a person has to set before a release."""
    return [name for name, value in (("URL", URL), ("CONTACT", CONTACT)) if PLACEHOLDER in value]


_LINK = re.compile(r"""(`+)[^`].*?\1 | (\]\(|^\[[^\]]+\]:\ |\b(?:src|srcset|href)=")([^()\s"]+)""", re.VERBOSE)
_ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:|//", re.IGNORECASE)
_PICTURES = (".png", ".svg", ".gif", ".jpg", ".webp")


def absolute(markdown: str, url: str, ref: str) -> str:
    """Return the page with absolute links; code stays as it is.

    Args:
        markdown: a page at the top of the tree.
        url: of the repository.
        ref: the tag or branch that holds what the page links to.

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

    lines, fence = [], ""
    for line in markdown.splitlines(keepends=True):
        mark = re.match(r" {0,3}(`{3,}|~{3,})", line)
        if mark and (not fence or mark[1].startswith(fence)):
            fence = "" if fence else mark[1]
        elif not fence and not line.startswith("    "):
            line = _LINK.sub(replaced, line)
        lines.append(line)
    return "".join(lines)


def long_description() -> str:
    """Return README.md for a package index; links lead to the tag of this version."""
    return absolute((ROOT / "README.md").read_text(encoding="utf-8"), URL, f"v{version()}")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a file is stale")
    parser.add_argument("--release", action="store_true", help="as --check, and fail while a placeholder is left")
    arguments = parser.parse_args()
    failed = False
    for path, text, wanted in files():
        if text == wanted:
            continue
        if arguments.check or arguments.release:
            print(f"{path.relative_to(ROOT)} is stale: run python scripts/repository.py")
            failed = True
        else:
            path.write_text(wanted, encoding="utf-8")
    if arguments.release and placeholders():
        print(f"scripts/repository.py: placeholder in {', '.join(placeholders())}: set it, and run this script")
        failed = True
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
