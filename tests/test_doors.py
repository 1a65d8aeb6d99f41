"""What is public has a docstring with an example, and says what it raises."""

import importlib
import inspect

import pytest

DOORS = ["", ".bridge", ".broker", ".capture", ".client", ".compat", ".spark", ".testing", ".transport"]
DOORS += [f".transport.{name}" for name in ("aio", "sync", "tls", "websocket")]


def _public():
    for door in DOORS:
        try:
            module = importlib.import_module(f"stompcodec{door}")
        except ImportError:  # an extra that is not installed
            continue
        for name in module.__all__:
            found = getattr(module, name)
            if inspect.isclass(found) or inspect.isroutine(found):  # constants are explained where they are made
                yield pytest.param(found, id=f"{door}.{name}".strip("."))


PUBLIC = list(_public())


def _members(kind):
    """Public methods and properties that the class itself defines; those of a layer are documented by the protocol."""
    for name, found in vars(kind).items():
        found = found.fget if isinstance(found, property) else found
        if not name.startswith("_") and inspect.isroutine(found):
            yield name, found


@pytest.mark.parametrize("found", PUBLIC)
def test_it_and_its_members_are_documented(found):
    text = inspect.getdoc(found) or ""
    assert ">>>" in text or "has an example" in text
    if not inspect.isclass(found):
        assert "Raises:" in text or "errors are those of" in text or "_layer" in found.__name__
        parameters = [name for name in inspect.signature(found).parameters if name not in ("args", "kwargs")]
        assert "Args:" in text or "Arguments and errors are those of" in text or not parameters
    if inspect.isclass(found) and "stompcodec.transport.Layer" not in (found.__doc__ or ""):
        assert [name for name, member in _members(found) if not inspect.getdoc(member)] == []
