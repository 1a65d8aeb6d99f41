"""The pytest plugin: fixtures and markers of docs/testing.md, and frames in reports. pytest loads it automatically."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from stompcodec.client import AsyncClient, Client
    from stompcodec.testing.broker import StompBroker
    from stompcodec.testing.frame_faults import FrameFaults

__tracebackhide__ = True  # pytest shows the test's line instead
#: The clients have no heart-beats, with which `stomp_broker.advance` would time them out.
_NO_BEATS = (0, 0)
_MARKERS = (
    "stomp_broker(**fields): how the broker of the fixture stomp_broker is, see stompcodec.testing.StompBroker",
    "stomp_faults(**faults): what that broker does wrong, by methods of stompcodec.testing.FrameFaults",
)
_FAULTS = ("refuse", "error", "lose", "cut", "duplicate", "change", "delay", "crlf", "repeat_headers")
_BROKERS = pytest.StashKey["list[StompBroker]"]()
_NOT_PASSED = pytest.StashKey[bool]()
_READ = pytest.StashKey[bool]()


def _running() -> list[StompBroker]:
    """Return the brokers that run; without loading their module, which few tests need."""
    module = sys.modules.get("stompcodec.testing.broker")
    return module.RUNNING if module else []


def pytest_configure(config: pytest.Config) -> None:
    for marker in _MARKERS:
        config.addinivalue_line("markers", marker)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """End the test of the brokers that outlast it, and refuse its own markers if nothing can have read them."""
    passed = not item.stash.get(_NOT_PASSED, False)
    with ExitStack() as ends:  # all of them end, and the last call is that for the first one
        for broker in _running():
            ends.callback(broker.end_test, passed)
    readers = {"stomp_broker", "stomp_broker_factory"}.intersection(getattr(item, "fixturenames", ()))
    is_read = readers or _READ in item.stash or item.config.getoption("setuponly", False)
    for marker in item.own_markers if passed and not is_read else ():
        if marker.name in ("stomp_broker", "stomp_faults"):
            pytest.fail(f"@pytest.mark.{marker.name}: the test does not use the fixture stomp_broker", pytrace=False)


@pytest.hookimpl(hookwrapper=True)  # not `wrapper`, which older versions of pytest do not have
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any]) -> Generator[None, Any, None]:
    """Let the faults that a fixture of several tests has set outlast each of them."""
    yield
    for broker in _running() if fixturedef.scope != "function" else ():
        broker.faults.keep()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, None]:
    """Add the frames to the report of a failed test, unless its error shows them, and forget them after the test."""
    report: pytest.TestReport = (yield).get_result()
    nothing: list[StompBroker] = []
    brokers = item.stash.get(_BROKERS, nothing)
    brokers = [*brokers, *(broker for broker in _running() if broker not in brokers and broker.frames)]
    if not report.passed:
        item.stash[_NOT_PASSED] = True
        for broker in _running() if call.when != "teardown" else ():
            broker.faults.excused = True  # a fixture may stop it before the test's end
    for number, broker in enumerate(brokers if report.failed else (), 1):
        title, text = "STOMP frames" if number == 1 else f"STOMP frames of broker {number}", broker.expectations()
        if not text or call.excinfo is None or text not in str(call.excinfo.value):
            report.sections.append((f"{title} (> to the broker, < from it)", text or "none"))
    for broker in _running() if call.when == "teardown" else ():
        broker.record.clear()


def _fields(node: pytest.Item, name: str) -> dict[str, Any]:
    """Return the fields of all markers of a name; the one nearest to the test wins."""
    fields: dict[str, Any] = {}
    for marker in reversed(list(node.iter_markers(name))):
        if marker.args:
            pytest.fail(f"@pytest.mark.{name} takes names and values only: {name}(name=value)", pytrace=False)
        fields.update(marker.kwargs)
    return fields


def _set_fault(faults: FrameFaults, name: str, how: Any) -> None:
    if name in ("silent", "strict"):
        setattr(faults, name, bool(how))
    elif name not in _FAULTS or not isinstance(how, Mapping | str | bool):
        example = 'lose="SEND", lose={"command": "SEND", "nth": 2} or refuse=True'
        raise ValueError(f"write {example}; there are {', '.join(_FAULTS)}, silent and strict")
    elif isinstance(how, Mapping):
        getattr(faults, name)(**how)
    elif how:
        getattr(faults, name)(*() if how is True else (how,))


@pytest.fixture
def stomp_broker_config() -> dict[str, Any]:
    """Return arguments of `StompBroker` for `stomp_broker`. Override it in a conftest.py or a module."""
    return {}


@pytest.fixture
def stomp_broker_factory(request: pytest.FixtureRequest) -> Iterator[Callable[..., StompBroker]]:
    """Return a function that starts brokers: `stomp_broker_factory(**fields)`. They stop at the end of the test."""
    from stompcodec.testing.broker import StompBroker

    node, brokers = request.node, request.node.stash.setdefault(_BROKERS, [])

    def make(**fields: Any) -> StompBroker:
        broker = StompBroker(**fields)
        broker.start()
        brokers.append(broker)
        ends.callback(lambda: broker.end_test(not node.stash.get(_NOT_PASSED, False)))
        ends.callback(broker.stop)
        return broker

    with ExitStack() as ends:
        yield make


@pytest.fixture
def stomp_broker(
    request: pytest.FixtureRequest,
    stomp_broker_factory: Callable[..., StompBroker],
    stomp_broker_config: Mapping[str, Any],
) -> StompBroker:
    """Return a new, listening `stompcodec.testing.StompBroker`, in memory and on a free port."""
    request.node.stash[_READ] = True
    fields, faults = (_fields(request.node, name) for name in ("stomp_broker", "stomp_faults"))
    where = "stomp_broker"
    try:
        broker = stomp_broker_factory(**{**stomp_broker_config, **fields})
        for name, how in faults.items():
            where = f"@pytest.mark.stomp_faults({name}={how!r:.200})"
            _set_fault(broker.faults, name, how)
    except (TypeError, ValueError) as error:
        raise pytest.fail.Exception(f"{where}: {error}", pytrace=False) from None
    return broker


@pytest.fixture
def stomp_client(stomp_broker: StompBroker) -> Iterator[Client]:
    """Yield a `stompcodec.client.Client` that is connected to `stomp_broker`."""
    from stompcodec.client import connect

    with connect(stomp_broker.url, heart_beat=_NO_BEATS) as client:
        yield client


@pytest.fixture
def async_stomp_client(stomp_broker: StompBroker) -> Iterator[AsyncClient]:
    """Yield a `stompcodec.client.AsyncClient` that is connected to `stomp_broker`.

    It works in any event loop: that of pytest-asyncio, of anyio, or of `asyncio.run`.
    """
    from stompcodec.client import Options
    from stompcodec.testing.client import MovingClient
    from stompcodec.testing.faults import LoopThread

    client = MovingClient(stomp_broker.url, Options(heart_beat=_NO_BEATS))
    thread = LoopThread.running("stomp-client", client.open())
    yield client
    thread.end(client.close())
