"""Every message of the code: the site lists them on the page of trouble, where its search finds them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from sitepages.staging import DOCS, ROOT
from stompcodec.errors import ERROR_KINDS

PACKAGE = ROOT / "stompcodec"
PAGE = (DOCS / "troubleshooting.md").read_text("utf-8")
#: Stand in the page where the site lists the kinds of malformed frames, and the messages.
KINDS, LIST = "<!-- the kinds of errors -->", "<!-- every message of the code -->"
#: Calls whose arguments are a message that somebody sees.
_LOGS = r"(?i:log)\.(warning|error|critical|exception)$"
_REFUSED = r"(Refused|Unready|\b_refusal|\b_refused|(session|self|other)\.fail)$"
_RAISED = r"(Error|Exit|Exception|Fault|Parameter|BadRequest|_Broken|Unreadable)$"
_SAYS = rf"{_LOGS}|{_REFUSED}|{_RAISED}|(complain|\bfault|fail|_bad|_error|_differs)$"
_CODE = re.compile(r"SELECT|PRAGMA|tuple\[|[\^ ,:(]|\W*$")
#: Path and call -> how the last table of the page begins its row. The first that fits counts.
_FAMILIES = {
    _LOGS: "The log",
    "^cli/": "The command line",
    "^spark/": "Spark",
    "^bridge/": "The bridge",
    "^compat/": "`PeerError`",
    f"(broker/|connection.py:).*{_REFUSED}": "ERROR frames",
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
    def section(self) -> str:
        """The section of the page that quotes this message of a client; or how a row of its last table begins."""
        quoted = rows() if re.match("client/|transport/|connection.py", self.place) else {}
        fitting = [row for row in quoted if re.search(re.escape(row).replace("…", ".*"), self.text)]
        if fitting:
            return quoted[max(fitting, key=len)]
        return next(row for place, row in _FAMILIES.items() if re.search(place, self.place))


@cache
def messages() -> dict[Message, None]:
    """Return each message of several words once for each place."""
    found: dict[Message, None] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        name, nodes = path.relative_to(PACKAGE).as_posix(), [*ast.walk(ast.parse(path.read_text("utf-8")))]
        if not re.match("client/sync/(?!waiting)", name):  # written from client/aio
            known: dict[str, list[ast.AST]] = {}
            for each in nodes:
                if isinstance(each, ast.Assign | ast.For):
                    for part in ast.walk(each.target if isinstance(each, ast.For) else each.targets[0]):
                        values = known.setdefault(getattr(part, "id", ""), [])
                        values.append(each.iter if isinstance(each, ast.For) else each.value)
                elif isinstance(each, ast.FunctionDef):
                    known[each.name] = [part for part in ast.walk(each) if isinstance(part, ast.Return)]
            for call in (each for each in nodes if isinstance(each, ast.Call)):
                if re.search(_SAYS, said := ast.unparse(call.func)):
                    values = [*(call.args[:1] if re.search(_LOGS, said) else call.args), *call.keywords]
                    found |= {Message(text, f"{name}:{said}"): None for value in values for text in texts(value, known)}
    return {each: None for each in found if re.search(r"\w\S* .*\w", each.text) and not _CODE.match(each.text)}


def texts(node: ast.AST, known: dict[str, list[ast.AST]], depth: int = 2) -> Iterator[str]:
    """Yield the texts in an expression, also where its module has a name for them: `what = …`."""
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
                parts[title].append(f"- `` {text} ``")
    return page.replace(KINDS, kinds).replace(LIST, "\n".join("\n".join((*lines, "")) for lines in parts.values()))
