"""Copy the Markdown of the tree into one folder for Zensical, with links that fit there.

Pages of `docs/` keep their names. Pages of the root, such as ARCHITECTURE.md, get names in lower case. A link to a file
that is not a page, such as a test, becomes plain text: the site is read without the tree.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
_ROOT_PAGES = ("ARCHITECTURE", "CHANGELOG", "CONTRIBUTING", "GLOSSARY", "RELEASING", "SECURITY")
#: Pages outside `docs/`, and their names on the site.
OTHERS = {f"{name}.md": f"{name.lower()}.md" for name in _ROOT_PAGES} | {"changes/README.md": "writing-news.md"}
#: Files that are copied to the site as they are. Pages link to those of HTML by their place in the tree.
STATIC = DOCS / "site" / "static"
#: Stands in a written page where the generated ones are listed.
LIST = "<!-- the generated pages -->"
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+(?:\([^()\s]*\))?)\)")
_FENCE = re.compile(r"\s*(```+|~~~+)")
_OUTSIDE = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)


def sources() -> dict[str, Path]:
    """Return the files of all written pages by their names on the site."""
    pages = {path.name: path for path in sorted(DOCS.glob("*.md"))}
    return {**pages, **{name: ROOT / source for source, name in OTHERS.items()}}


def prose(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines outside of fenced code, with their numbers from 1."""
    fence = ""
    for number, line in enumerate(text.split("\n"), 1):
        found = _FENCE.match(line)
        if fence:
            if found and found[1].startswith(fence):
                fence = ""
        elif found:
            fence = found[1]
        else:
            yield number, line


def links(text: str) -> Iterator[tuple[int, str]]:
    """Yield the links of a page that stand outside of code: line and target."""
    for number, line in prose(text):
        for found in _LINK.finditer(re.sub(r"`+[^`]*`+", lambda code: "" if "](" in code[0] else code[0], line)):
            yield number, found[3]


def target_of(source: Path, target: str) -> Path | None:
    """Return the file that a link of a page in the tree means; None for an address outside of it."""
    path = target.partition("#")[0]
    if _OUTSIDE.match(target):
        return None
    if not path:
        return source
    found = Path(os.path.normpath(source.parent / path))
    return found / "README.md" if found.is_dir() and (found / "README.md").is_file() else found


def staged(name: str, source: Path, names: dict[Path, str]) -> str:
    """Return the text of a page, `name` on the site; `names` are those of all files that have one.

    Raises:
        ValueError: a link leads to a file that is not there.
    """

    def rewrite(found: re.Match[str]) -> str:
        picture, text, target = found.groups()
        file = target_of(source, target)
        if file is None or target.startswith("#"):
            return found[0]
        page = names.get(file)
        if page is None:
            if not file.exists():
                raise ValueError(f"{source.relative_to(ROOT)}: the link to {target} has no target")
            return str(text)
        _, mark, anchor = target.partition("#")
        relative = os.path.relpath(page, PurePosixPath(name).parent).replace(os.sep, "/")
        return f"{picture}[{text}]({relative}{mark}{anchor})"

    text = source.read_text("utf-8")
    lines = text.split("\n")
    for number, line in prose(text):
        lines[number - 1] = _LINK.sub(rewrite, line)
    return "\n".join(lines)


def stage(folder: Path, generated: dict[str, str]) -> None:
    """Fill a folder anew with all pages and their pictures. The page with `LIST` lists the generated ones there."""
    from sitepages import messages

    shutil.rmtree(folder, ignore_errors=True)
    pages = sources()
    pictures = {path.relative_to(DOCS).as_posix(): path for path in (*DOCS.glob("*.svg"), *DOCS.glob("images/*"))}
    static = {path.relative_to(STATIC).as_posix(): path for path in STATIC.rglob("*.html")}
    names = {path: name for name, path in {**pages, **pictures, **static}.items()}
    names |= {ROOT / "README.md": "index.md"} | {DOCS / name: name for name in generated}
    titles = {name: text.partition("\n")[0].removeprefix("# ") for name, text in generated.items()}
    listed = "\n".join(f"- [{title}]({name})" for name, title in titles.items())
    texts = {name: staged(name, path, names).replace(LIST, listed) for name, path in pages.items()}
    texts["troubleshooting.md"] = messages.filled(texts["troubleshooting.md"])
    for name, text in {**texts, **generated}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, "utf-8")
    for name, path in pictures.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, folder / name)
    shutil.copytree(STATIC, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__", ".*"))
