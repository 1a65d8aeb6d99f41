"""The pytest plugin: fixtures and markers of docs/testing.md, and frames in reports. pytest loads it automatically."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from stompcodec.client import AsyncClient, Client
    from stompcodec.testing.broker import StompBroker

__tracebackhide__ = True  # pytest shows the test's line instead
#: The clients have no heart-beats, with which `stomp_broker.advance` would time them out.
_NO_BEATS = (0, 0)
_MARKERS = (
    "stomp_broker(**fields): how the broker of the fixture stomp_broker is, see stompcodec.testing.StompBroker",
    "stomp_faults(**faults): what that broker does wrong, by methods of stompcodec.testing.FrameFaults",
)
_FAULTS = ("refuse", "error", "lose", "cut", "duplicate", "change", "delay", "crlf", "repeat_headers")
_BROKERS = pytest.StashKey["list[StompBroker]"]()
_OLDER = pytest.StashKey["list[StompBroker]"]()
_NOT_PASSED = pytest.StashKey[bool]()
_READ = pytest.StashKey[bool]()


def pytest_configure(config: pytest.Config) -> None:
    for marker in _MARKERS:
        config.addinivalue_line("markers", marker)


def _running() -> list[StompBroker]:
    """Return the brokers that run, without importing their module."""
    module = sys.modules.get("stompcodec.testing.broker")
    return [] if module is None else list(module.RUNNING)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Begin a test of the brokers that outlast it."""
    item.stash[_OLDER] = _running()
    for broker in item.stash[_OLDER]:
        broker.begin_test()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """Keep the faults that fixtures set when they started a broker."""
    for broker in _running():
        if broker not in item.stash[_OLDER]:
            broker.faults.begin_test()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """End the test of the brokers that outlast it, and refuse its own markers if nothing has read them."""
    passed = not item.stash.get(_NOT_PASSED, False)
    for broker in _running():
        broker.end_test(passed)
    for marker in item.own_markers if passed and _READ not in item.stash else ():
        if marker.name in ("stomp_broker", "stomp_faults"):
            pytest.fail(f"@pytest.mark.{marker.name}: the test does not use the fixture stomp_broker", pytrace=False)


@pytest.hookimpl(hookwrapper=True)  # not `wrapper`, which older versions of pytest do not have
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, None]:
    """Add the frames to the report of a failed test, unless its error shows them."""
    report: pytest.TestReport = (yield).get_result()
    if not report.passed:
        item.stash[_NOT_PASSED] = True
    if report.failed:
        nothing: list[StompBroker] = []
        brokers = item.stash.get(_BROKERS, nothing)
        brokers = [*brokers, *(each for each in _running() if each not in brokers and each.frames)]
        error = "" if call.excinfo is None else str(call.excinfo.value)
        for number, broker in enumerate(brokers, 1):
            title, text = "STOMP frames" if number == 1 else f"STOMP frames of broker {number}", broker.expectations()
            if not text or text not in error:
                report.sections.append((f"{title} (> to the broker, < from it)", text or "none"))


def _fields(node: pytest.Item, name: str) -> dict[str, Any]:
    """Return the fields of all markers of a name; the one nearest to the test wins."""
    fields: dict[str, Any] = {}
    for marker in reversed(list(node.iter_markers(name))):
        if marker.args:
            pytest.fail(f"@pytest.mark.{name} takes names and values only: {name}(name=value)", pytrace=False)
        fields.update(marker.kwargs)
    return fields


def _set_fault(broker: StompBroker, name: str, how: Any) -> None:
    if name in ("silent", "strict"):
        setattr(broker.faults, name, bool(how))
    elif name not in _FAULTS:
        raise ValueError(f"there is no such fault, only {', '.join(_FAULTS)}, silent and strict")
    elif isinstance(how, Mapping):
        getattr(broker.faults, name)(**how)
    elif isinstance(how, str):
        getattr(broker.faults, name)(how)
    elif not isinstance(how, bool):
        raise TypeError('it must be a command, a dict such as {"command": "SEND", "nth": 2}, or True')
    elif how:  # refuse=True
        getattr(broker.faults, name)()


@pytest.fixture
def stomp_broker_config() -> dict[str, Any]:
    """Return fields of `stompcodec.broker.Config` for all brokers. Override it in a conftest.py or a module."""
    return {}


@pytest.fixture
def stomp_broker_factory(request: pytest.FixtureRequest) -> Iterator[Callable[..., StompBroker]]:
    """Return a function that starts brokers: `stomp_broker_factory(**fields)`. They stop at the end of the test."""
    from stompcodec.testing.broker import StompBroker

    brokers: list[StompBroker] = []
    request.node.stash[_BROKERS] = brokers

    def make(**fields: Any) -> StompBroker:
        broker = StompBroker(**fields)
        broker.start()
        brokers.append(broker)
        return broker

    yield make
    errors = []
    for broker in brokers:
        try:
            broker.stop()
            if not request.node.stash.get(_NOT_PASSED, False):
                broker.faults.check()
        except Exception as error:
            errors.append(error)
    if errors:
        raise errors[0]


@pytest.fixture
def stomp_broker(
    request: pytest.FixtureRequest,
    stomp_broker_factory: Callable[..., StompBroker],
    stomp_broker_config: Mapping[str, Any],
) -> StompBroker:
    """Return a new, listening `stompcodec.testing.StompBroker`, in memory and on a free port."""
    request.node.stash[_READ] = True
    fields = _fields(request.node, "stomp_broker")
    try:
        broker = stomp_broker_factory(**{**stomp_broker_config, **fields})
    except (TypeError, ValueError) as error:
        raise pytest.fail.Exception(f"stomp_broker: {error}", pytrace=False) from None
    for name, how in _fields(request.node, "stomp_faults").items():
        try:
            _set_fault(broker, name, how)
        except (TypeError, ValueError) as error:
            said = f"@pytest.mark.stomp_faults({name}={how!r:.200}): {error}"
            raise pytest.fail.Exception(said, pytrace=False) from None
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
    from stompcodec.testing.client import OpenedClient

    client = OpenedClient(stomp_broker.url, heart_beat=_NO_BEATS)
    client.open_here()
    yield client
    client.close_here()
