"""The reference of public names: a page for each part of the package, written from its `__all__`."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from sitepages.tables import table


class Part(NamedTuple):
    """A page of the reference."""

    title: str
    guides: str
    modules: tuple[str, ...]


def _of(package: str, *below: str) -> tuple[str, ...]:
    return (f"stompcodec.{package}", *(f"stompcodec.{package}.{name}" for name in below))


#: The pages by name. tests/docsite/test_reference.py checks that all public modules are here.
PARTS = {
    "codec": Part("Codec", "[the codec](../codec.md)", ("stompcodec",)),
    "client": Part("Client", "[the client](../client.md)", _of("client")),
    "middleware": Part(
        "Middleware",
        "[middleware](../middleware.md), [tracing and metrics](../tracing.md)",
        _of("client.middleware", "otel", "prometheus"),
    ),
    "broker": Part("Broker", "[the broker](../broker.md), [configuration](../broker.md#configuration)", _of("broker")),
    "testing": Part("Testing", "[testing](../testing.md)", _of("testing")),
    "capture": Part("Captures", "[the format](../capture-format.md)", _of("capture")),
    "spark": Part(
        "Spark", "[Spark](../spark-tutorial.md), [the pipeline](../pipeline.md)", _of("spark", "jobs", "report")
    ),
    "bridge": Part("Bridge", "[the bridge](../bridge.md)", _of("bridge")),
    "compat": Part(
        "Other libraries on our codec", "[existing programs](../compat.md)", _of("compat", "stomppy", "stompman")
    ),
    "transport": Part(
        "Transport", "[architecture](../architecture.md)", _of("transport", "aio", "sync", "tls", "websocket")
    ),
}
#: Modules that have no `__all__`, and their public names.
_NAMES = {
    "stompcodec.client.middleware.otel": ["OpenTelemetry"],
    "stompcodec.client.middleware.prometheus": ["Prometheus"],
}
_OPTIONS = "    options:\n      show_root_heading: false\n      show_root_toc_entry: false\n"


def names_of(module: str) -> list[str]:
    return list(_NAMES.get(module) or importlib.import_module(module).__all__)


def pages() -> dict[str, str]:
    """Return the texts of all pages by their names."""
    return {f"reference/{name}.md": "\n".join(_page(part)) for name, part in PARTS.items()}


def _page(part: Part) -> Iterator[str]:
    yield f"# {part.title}: reference\n\nWritten from the docstrings of the code. The guides: {part.guides}.\n"
    shown: dict[int, str] = {}
    for module in part.modules:
        names = names_of(module)
        yield f"## `{module}`\n"
        first = (inspect.getdoc(importlib.import_module(module)) or "").split("\n\n")[0].replace("\n", " ")
        yield f"{first}\n"
        for name in names:
            found = getattr(importlib.import_module(module), name)
            yield f"{heading(module, name)}\n"
            if id(found) in shown and _documents_itself(found):
                yield f"The same as [`{shown[id(found)]}`](#{shown[id(found)]}).\n"
                continue
            shown[id(found)] = f"{module}.{name}"
            yield from _entry(module, name, found)


def heading(module: str, name: str) -> str:
    """Return the heading of a name, with its full name as anchor; in HTML where Markdown sees bold text."""
    if name.startswith("__"):
        return f'<h3 id="{module}.{name}"><code>{name}</code></h3>'
    return f"### `{name}` {{ #{module}.{name} }}"


def _documents_itself(found: Any) -> bool:
    return inspect.isclass(found) or inspect.isroutine(found)


def _entry(module: str, name: str, found: Any) -> Iterator[str]:
    if _documents_itself(found):
        is_part = any(base.__name__.startswith("_") for base in getattr(found, "__mro__", ()))  # of a private class
        yield f"::: {_path_of(found)}\n{_OPTIONS}{'      inherited_members: true' * is_part}\n"
    elif isinstance(found, ModuleType):
        yield f"A module, see below: `{found.__name__}`.\n"
    else:
        comment, value = _comment_of(module, name), repr(found)
        rows = [["type", f"`{type(found).__name__}`"]]
        if len(value) <= 100 and " at 0x" not in value:
            rows.append(["value", f"`{value}`"])
        yield f"{comment}\n\n" + "\n".join(table(["", ""], rows)) + "\n"


def _path_of(found: Any) -> str:
    """Return where Griffe finds the docstring; for the C backend that is its twin, which has the same ones."""
    module = re.sub(r"\b_codec_c\b", "_codec_py", found.__module__)
    return f"{module}.{found.__qualname__}"


def _comment_of(module: str, name: str) -> str:
    """Return the comment above a constant, which begins with `#:`."""
    source = Path(inspect.getsourcefile(importlib.import_module(module)) or "").read_text("utf-8")
    for node in ast.parse(source).body:
        if isinstance(node, ast.ImportFrom) and any(each.name == name for each in node.names) and node.module:
            return _comment_of(node.module, name)
    found = re.search(rf"^((?:#:.*\n)+){name}\b", source, re.MULTILINE)
    return " ".join(line.removeprefix("#:").strip() for line in found[1].splitlines()) if found else ""
