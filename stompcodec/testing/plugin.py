"""The pytest plugin: fixtures and markers of docs/testing.md, and frames in reports. pytest loads it automatically."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from stompcodec.client import AsyncClient, Client
    from stompcodec.testing.broker import StompBroker

#: The clients have no heart-beats, with which `stomp_broker.advance` would time them out.
_NO_BEATS = (0, 0)
_MARKERS = (
    "stomp_broker(**fields): how the broker of the fixture stomp_broker is, see stompcodec.broker.Config",
    "stomp_faults(**faults): what that broker does wrong, by methods of stompcodec.testing.FrameFaults",
)
_BROKERS = pytest.StashKey["list[StompBroker]"]()
_NOT_PASSED = pytest.StashKey[bool]()


def pytest_configure(config: pytest.Config) -> None:
    for marker in _MARKERS:
        config.addinivalue_line("markers", marker)


@pytest.hookimpl(hookwrapper=True)  # not `wrapper`, which older versions of pytest do not have
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, None]:
    """Add the frames to the report of a failed test."""
    report: pytest.TestReport = (yield).get_result()
    if not report.passed:
        item.stash[_NOT_PASSED] = True
    if report.failed:
        nothing: list[StompBroker] = []
        brokers = item.stash.get(_BROKERS, nothing)
        for number, broker in enumerate(brokers, 1):
            title = "STOMP frames" if number == 1 else f"STOMP frames of broker {number}"
            report.sections.append((f"{title} (> to the broker, < from it)", broker.expectations() or "none"))


def _fields(node: pytest.Item, name: str) -> dict[str, Any]:
    """Return the fields of all markers of a name; the one nearest to the test wins."""
    fields: dict[str, Any] = {}
    for marker in reversed(list(node.iter_markers(name))):
        if marker.args:
            raise pytest.UsageError(f"@pytest.mark.{name} takes names and values only: {name}(name=value)")
        fields.update(marker.kwargs)
    return fields


def _set_faults(broker: StompBroker, faults: Mapping[str, Any]) -> None:
    for name, how in faults.items():
        if name in ("silent", "strict"):
            setattr(broker.faults, name, bool(how))
            continue
        method = getattr(broker.faults, name)
        if isinstance(how, Mapping):
            method(**how)
        elif isinstance(how, str):
            method(how)
        elif how:  # refuse=True
            method()


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
    broker = stomp_broker_factory(**{**stomp_broker_config, **_fields(request.node, "stomp_broker")})
    _set_faults(broker, _fields(request.node, "stomp_faults"))
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
