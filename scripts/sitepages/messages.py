"""Every message of the code: the site lists them on the page of error messages, where its search finds them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import NamedTuple

from sitepages.staging import DOCS, ROOT
from stompcodec.errors import ERROR_KINDS

PACKAGE = ROOT / "stompcodec"
PAGE = (DOCS / "error-messages.md").read_text("utf-8")
#: Stand in the page where the site lists the kinds of malformed frames, and the messages.
KINDS, LIST = "<!-- the kinds of errors -->", "<!-- every message of the code -->"
#: Calls whose arguments are a message that somebody sees; the last ones have what is wrong, and what to do.
_SAYS = (
    r"(Error|Exit|Exception|Fault|Parameter|BadRequest|_Broken|Unreadable|complain|\bfault|fail|_bad|_error|_differs)$"
)
_LOGS = r"(?i:log)\.(warning|error|critical|exception)$"
_TWO = r"(Refused|Unready|\b_refusal|\b_refused|(session|self|other)\.fail)$"
#: Path and call -> how the last table of the page begins its row. The first that fits counts.
_FAMILIES = {
    _LOGS: "The log",
    "^cli/": "The command line",
    "^spark/": "Spark",
    "^bridge/": "The bridge",
    "^compat/": "`PeerError`",
    f"(broker/|connection.py:).*{_TWO}": "ERROR frames",
    "BadRequest|management/": "Answers",
    "SelectorFault|selectors.py": "`SelectorError`",
    "^(content|broker/bodies).py": "`ContentError`",
    "^(transport/|uri.py)": "Addresses",
    "^broker/(config|settings|auth|core|hot).py|^disk.py:ValueError": "`ConfigError`",
    "storage/|capture/|disk.py": "`StoreError`",
    "": "`TypeError`",
}


class Message(NamedTuple):
    """A text of the code, with … for what is put in, and its place, as in client/core.py:LocalProtocolError."""

    text: str
    place: str

    @property
    def words(self) -> int:
        return len([word for word in self.text.split() if re.search(r"\w", word)])

    @property
    def section(self) -> str:
        """The section of the page that quotes this message of a client; or how a row of its last table begins."""
        quoted = rows() if re.match("client/|transport/|connection.py", self.place) else {}
        fitting = [row for row in quoted if re.search(re.escape(row).replace("…", ".*"), self.text)]
        if fitting:
            return quoted[max(fitting, key=len)]
        return next(row for place, row in _FAMILIES.items() if re.search(place, self.place))


@cache
def messages() -> list[Message]:
    """Return each message of at least two words once for each place."""
    found: dict[Message, None] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        if not re.match("client/sync/(?!waiting)", name):  # written from client/aio
            said = _said(ast.parse(path.read_text("utf-8")))
            found |= dict.fromkeys(Message(text, f"{name}:{call}") for call, text in said)
    return [each for each in found if each.words > 1 and not each.text.startswith(("SELECT", "^"))]


def _said(tree: ast.Module) -> Iterator[tuple[str, str]]:
    functions = [each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
    branches = ast.Module([each for each in tree.body if isinstance(each, ast.If | ast.Try)], [])
    everywhere = _named([*tree.body, *functions])
    for scope in (branches, *functions):
        known = everywhere | _named(ast.walk(scope))
        for call in (each for each in ast.walk(scope) if isinstance(each, ast.Call) and each.args):
            name = ast.unparse(call.func)
            if re.search(f"{_SAYS}|{_LOGS}|{_TWO}", name):
                values = call.args[: 1 if re.search(_LOGS, name) else None]
                values += [each.value for each in call.keywords if each.arg == "detail"]
                first, *others = ([*texts(value, known)] for value in values)
                if re.search(_TWO, name) and first and others:
                    remedies = [text for text in others[0] if " " in text]
                    yield from ((name, f"{first[0]}\n{text}") for text in remedies or ["…"])
                else:
                    yield from ((name, text) for part in (first, *others) for text in part)


def _named(nodes: Iterable[ast.AST]) -> dict[str, list[ast.expr]]:
    """Return the values of variables and functions by their names."""
    known: dict[str, list[ast.expr]] = {}
    for each in nodes:
        if isinstance(each, ast.Assign):
            known.setdefault(ast.unparse(each.targets[0]), []).append(each.value)
        elif isinstance(each, ast.For):
            known |= {part.id: [each.iter] for part in ast.walk(each.target) if isinstance(part, ast.Name)}
        elif isinstance(each, ast.FunctionDef):
            known[each.name] = [part.value for part in ast.walk(each) if isinstance(part, ast.Return) and part.value]
    return known


def texts(node: ast.AST, known: dict[str, list[ast.expr]], depth: int = 2) -> Iterator[str]:
    """Yield the texts in an expression, also where its function or module has a name for them: `what = …`."""
    if isinstance(node, ast.JoinedStr):
        yield "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield re.sub(r"%[-+.\d]*[a-z]", "…", node.value)
    elif isinstance(node, ast.Name | ast.Attribute):
        name = node.attr if isinstance(node, ast.Attribute) else node.id
        for value in known.get(name, ()) if depth >= 0 else ():
            yield from texts(value, known, depth - 1)
    else:
        for child in ast.iter_child_nodes(node):
            yield from texts(child, known, depth)


@cache
def rows() -> dict[str, str]:
    """Return the texts that the page quotes in its tables of messages, and the kinds of errors, and their sections."""
    sections = [each.partition("\n") for each in PAGE.split("\n## ")[1:-1]]
    cells = [(title, cell) for title, _, text in sections for cell in re.findall(r"^\| (`.+?) \| ", text, re.MULTILINE)]
    kinds = dict.fromkeys((text.what for text in ERROR_KINDS.values()), "Reading and writing frames")
    return kinds | {text: title for title, cell in cells for text in re.findall(r"`([^`]+)`", cell)}


def families() -> list[tuple[str, str]]:
    """Return the rows of the last table of the page."""
    return re.findall(r"^\| (.+?) \| (.+) \|$", PAGE.rpartition("\n## ")[2], re.MULTILINE)[2:]


def filled(page: str) -> str:
    """Return the page with the kinds of errors, and the messages that have no row of their own."""
    kinds = "\n".join(f"- `{kind}`: `{text.what}`. {text.remedy}" for kind, text in ERROR_KINDS.items())
    parts = {title: [f"### {title}", "", meaning, ""] for title, meaning in families()}
    for text, section in dict.fromkeys((each.text, each.section) for each in messages()):
        for title in parts:
            if title.startswith(section):
                parts[title].append(f"- `` {text} ``".replace("\n", " ``: `` "))
    return page.replace(KINDS, kinds).replace(LIST, "\n".join("\n".join((*lines, "")) for lines in parts.values()))
