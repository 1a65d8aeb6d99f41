"""Presets for `explode`: small JSON files, or a user's schema; docs/pipeline.md describes them. Needs no Spark."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from stompcodec.errors import ConfigError

#: Column types, besides Spark's arrays, structs, maps and decimals.
SCALARS = ("string", "long", "int", "double", "boolean", "date", "timestamp", "ms", "seconds", "binary")
#: Spark's names for them.
_SAME = {"integer": "int", "bigint": "long", "short": "int", "smallint": "int", "byte": "int", "tinyint": "int"}
_SAME |= {"float": "double", "bool": "boolean", "timestamp_ltz": "timestamp", "timestamp_ntz": "timestamp"}
_NESTED = re.compile(r"(array|struct|map)\s*<.*>|decimal\s*(\(\s*\d+\s*,\s*\d+\s*\))?", re.DOTALL)
_COLUMN = re.compile(r"(?P<type>.+?)(?P<required>!)?(\s+as\s+(?P<name>\w+))?", re.DOTALL)
#: Columns that every row has; a column of the body with such a name is called body_…
TAKEN = frozenset({"destination", "message_id", "received_at", "spool", "pos", "item", "batch", "_reason", "_raw"})
_MOST_OCTETS = 2**20


@dataclass(frozen=True)
class Column:
    """A column of the table, and the field that it is made from."""

    path: str
    """Name of the field; `section.field` for a field in an object of the record."""
    name: str
    type: str
    """One of `SCALARS`, or Spark's name of a nested type."""
    required: bool = False

    @property
    def nested(self) -> bool:
        return self.type not in SCALARS


@dataclass(frozen=True)
class Preset:
    """Rules that turn JSON bodies of a feed into rows.

    >>> load("networkrail-td").unwrap[0]
    'CA_MSG'
    """

    name: str
    columns: tuple[Column, ...]
    about: str = ""
    unwrap: tuple[str, ...] = ()
    """Names of which each record has exactly one as its only field; the value of that field is the record."""
    none: tuple[str, ...] = ()
    """Texts that mean a missing value, besides empty and blank ones."""
    rest: str | None = None
    """Column for the other fields: a map of texts."""

    @property
    def sections(self) -> tuple[str, ...]:
        """Objects in a record whose fields are columns."""
        return tuple(dict.fromkeys(column.path.partition(".")[0] for column in self.columns if "." in column.path))


def preset_names() -> list[str]:
    """Return the names of the built-in presets.

    >>> preset_names()
    ['networkrail-td', 'networkrail-trust', 'networkrail-vstp']
    """
    return sorted(entry.name[:-5] for entry in _folder().iterdir() if entry.name.endswith(".json"))


def _folder() -> Any:
    return files("stompcodec.spark.jobs") / "presets"


def load(preset: str | os.PathLike[str]) -> Preset:
    """Return a preset, given its name or the path of its file; raise ConfigError if it is unknown or invalid.

    >>> load("networkrail-td").columns[1]
    Column(path='time', name='time', type='ms', required=True)
    """
    name = os.fspath(preset)
    if name in preset_names():
        return _preset(name, json.loads((_folder() / f"{name}.json").read_text(encoding="utf-8")))
    if not name.endswith(".json") and os.sep not in name:
        raise ConfigError(
            f"unknown preset {name!r}: use one of {', '.join(preset_names())}, or a file that ends in .json"
        )
    return _preset(name, _parsed(name, _text(name)))


def of_schema(schema: Any) -> Preset:
    """Return a preset for JSON bodies from a schema; raise ConfigError if it is invalid.

    It is Spark's StructType, its JSON, or DDL such as "id long, at timestamp"; text, or the path of a file with it or
    with a preset. Fields that are not nullable are required.

    >>> of_schema('{"type": "struct", "fields": [{"name": "n", "type": "integer", "nullable": false}]}').columns
    (Column(path='n', name='n', type='int', required=True),)
    """
    if hasattr(schema, "jsonValue"):
        return _of_struct("schema", schema.jsonValue())
    text, name = os.fspath(schema), "schema"
    if os.path.isfile(text):
        text, name = _text(text), text
    if not text.lstrip().startswith("{"):
        return _of_struct(name, _of_ddl(name, text))
    value = _parsed(name, text)
    return _preset(name, value) if "columns" in value else _of_struct(name, value)


def _text(file: str) -> str:
    try:
        path = Path(file)
        if path.stat().st_size > _MOST_OCTETS:
            raise ConfigError(f"{file}: too large for a preset or a schema")
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{file}: not UTF-8") from None


def _parsed(name: str, text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{name}: not JSON: {error}") from None
    if not isinstance(value, dict):
        raise ConfigError(f"{name}: not a JSON object")
    return value


def _of_ddl(name: str, text: str) -> dict[str, Any]:
    from pyspark.sql.types import StructType

    try:
        value = StructType.fromDDL(text).jsonValue()
    except Exception as error:  # of several kinds, also without a session
        line = str(error).strip().partition("\n")[0]
        raise ConfigError(f"{name}: neither Spark's JSON of a StructType nor DDL: {line}") from None
    assert isinstance(value, dict)
    return value


def _of_struct(name: str, value: dict[str, Any]) -> Preset:
    fields = value.get("fields")
    if value.get("type") != "struct" or not isinstance(fields, list) or not fields:
        raise ConfigError(f'{name}: not a StructType: write {{"type": "struct", "fields": [...]}}, DDL, or a preset')
    columns = []
    for field in fields:
        if not isinstance(field, dict) or not isinstance(field.get("name"), str) or "type" not in field:
            raise ConfigError(f"{name}: a field without name or type: {str(field)[:60]}")
        kind = _type_of(name, field["name"], _ddl_of(field["type"]))
        columns.append(Column(field["name"], field["name"], kind, field.get("nullable") is False))
    return Preset(name, _named(name, columns))


def _ddl_of(value: Any) -> str:
    """Return the DDL of a type given as Spark's JSON.

    >>> _ddl_of({"type": "array", "elementType": {"type": "struct", "fields": [{"name": "a b", "type": "long"}]}})
    'array<struct<`a b`:long>>'
    """
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        kind = value.get("type")
        if kind == "array":
            return f"array<{_ddl_of(value.get('elementType'))}>"
        if kind == "map":
            return f"map<{_ddl_of(value.get('keyType'))},{_ddl_of(value.get('valueType'))}>"
        if kind == "struct":
            fields = [(str(field["name"]).replace("`", "``"), _ddl_of(field["type"])) for field in value["fields"]]
            return f"struct<{','.join(f'`{name}`:{inner}' for name, inner in fields)}>"
    raise ConfigError(f"unknown type {str(value)[:60]!r}")


def _preset(name: str, value: dict[str, Any]) -> Preset:
    unknown = value.keys() - {"name", "about", "unwrap", "none", "columns", "rest"}
    if unknown:
        raise ConfigError(f"{name}: unknown key {sorted(unknown)[0]!r}")
    rest = value.get("rest")
    listed = {key: value.get(key, []) for key in ("unwrap", "none")}
    for key, texts in listed.items():
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise ConfigError(f"{name}: {key} must be a list of strings")
    columns = value.get("columns")
    if not isinstance(columns, dict) or not columns:
        raise ConfigError(f'{name}: columns must be an object such as {{"time": "ms"}}')
    if rest is not None and not isinstance(rest, str):
        raise ConfigError(f"{name}: rest must be the name of a column")
    made = _named(name, [_column(name, path, text) for path, text in columns.items()], *filter(None, [rest]))
    return Preset(
        str(value.get("name", name)),
        made,
        str(value.get("about", "")),
        tuple(listed["unwrap"]),
        tuple(listed["none"]),
        rest,
    )


def _column(name: str, path: str, text: Any) -> Column:
    match = _COLUMN.fullmatch(text.strip()) if isinstance(text, str) else None
    if match is None or not path:
        raise ConfigError(f"{name}: column {path!r}: {text!r}: write TYPE, with ! if it is required, then as NAME")
    kind = _type_of(name, path, match["type"].strip())
    return Column(path, match["name"] or path.rpartition(".")[2], kind, match["required"] is not None)


def _type_of(name: str, field: str, text: str) -> str:
    kind = _SAME.get(text.lower(), text)
    if kind.lower() in SCALARS:
        return kind.lower()
    if _NESTED.fullmatch(kind.strip()):
        return kind
    raise ConfigError(
        f"{name}: {field}: unknown type {text!r}: use {', '.join(SCALARS)}, array<…>, struct<…> or map<…>"
    )


def _named(name: str, columns: list[Column], *more: str) -> tuple[Column, ...]:
    """Return the columns with names that are unique for Spark, which ignores case."""
    made: list[Column] = []
    seen = {each.lower() for each in more}
    for column in columns:
        chosen = f"body_{column.name}" if column.name.lower() in TAKEN else column.name
        if chosen.lower() in seen:
            raise ConfigError(f"{name}: two columns are called {chosen!r}")
        seen.add(chosen.lower())
        made.append(Column(column.path, chosen, column.type, column.required))
    return tuple(made)
