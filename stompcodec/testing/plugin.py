"""The pytest plugin: a broker of its own for each test, and clients of it. It is loaded by itself.

    def test_orders(stomp_broker, stomp_client):
        run_my_service(stomp_broker.url)
        stomp_broker.wait_subscribed("/queue/orders")
        stomp_client.send("/queue/orders", b"{}")
        assert stomp_broker.expect("ACK")

How the broker is: `@pytest.mark.stomp_broker(prefetch=1, dialect="activemq")` with fields of
`stompcodec.broker.Config`, for one test, a class or (as `pytestmark`) a module; or a fixture `stomp_broker_config` that
returns them. What it does wrong: `@pytest.mark.stomp_faults(lose="RECEIPT", cut={"command": "SEND", "nth": 2})`, by the
methods of `stomp_broker.faults`. When a test fails, its report shows the frames.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from stompcodec.client import AsyncClient, Client
    from stompcodec.testing.broker import StompBroker

__all__ = ["async_stomp_client", "stomp_broker", "stomp_broker_config", "stomp_broker_factory", "stomp_client"]

#: The clients agree on no heart-beats: `stomp_broker.advance` would find them dead.
_NO_BEATS = (0, 0)
_MARKERS = (
    "stomp_broker(**fields): how the broker of the fixture stomp_broker is, see stompcodec.broker.Config",
    "stomp_faults(**faults): what that broker does wrong, by methods of stompcodec.testing.FrameFaults",
)
_BROKERS = pytest.StashKey["list[StompBroker]"]()


def pytest_configure(config: pytest.Config) -> None:
    """Make the markers known."""
    for marker in _MARKERS:
        config.addinivalue_line("markers", marker)


@pytest.hookimpl(hookwrapper=True)  # not the newer `wrapper`: this is loaded into every pytest, also older ones
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, None]:
    """Show what went over the wire where a test fails."""
    report: pytest.TestReport = (yield).get_result()
    if report.failed:
        nothing: list[StompBroker] = []
        brokers = item.stash.get(_BROKERS, nothing)
        for number, broker in enumerate(brokers, 1):
            title = "STOMP frames" if number == 1 else f"STOMP frames of broker {number}"
            report.sections.append((f"{title} (> to the broker, < from it)", broker.expectations() or "none"))


def _fields(node: pytest.Item, name: str) -> dict[str, Any]:
    """What markers of a name give; the one that is nearest to the test wins."""
    fields: dict[str, Any] = {}
    for marker in reversed(list(node.iter_markers(name))):
        if marker.args:
            raise pytest.UsageError(f"@pytest.mark.{name} takes names and values only: {name}(name=value)")
        fields.update(marker.kwargs)
    return fields


def _set_faults(broker: StompBroker, faults: Mapping[str, Any]) -> None:
    for name, how in faults.items():
        if name == "silent":
            broker.faults.silent = bool(how)
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
    """Fields of `stompcodec.broker.Config` for the broker of each test. Override it in a conftest.py or a module."""
    return {}


@pytest.fixture
def stomp_broker_factory(request: pytest.FixtureRequest) -> Iterator[Callable[..., StompBroker]]:
    """Makes brokers: `stomp_broker_factory(**fields)` is one that listens, until the end of the test."""
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
    """A broker that listens on a free port, in memory: a `stompcodec.testing.StompBroker`. Each test has a new one."""
    broker = stomp_broker_factory(**{**stomp_broker_config, **_fields(request.node, "stomp_broker")})
    _set_faults(broker, _fields(request.node, "stomp_faults"))
    return broker


@pytest.fixture
def stomp_client(stomp_broker: StompBroker) -> Iterator[Client]:
    """A client of `stomp_broker`, connected: a `stompcodec.client.Client`."""
    from stompcodec.client import connect

    with connect(stomp_broker.url, heart_beat=_NO_BEATS) as client:
        yield client


@pytest.fixture
def async_stomp_client(stomp_broker: StompBroker) -> Iterator[AsyncClient]:
    """A client for asyncio, connected to `stomp_broker`: a `stompcodec.client.AsyncClient`.

    It works in whatever event loop the test has: that of pytest-asyncio, of anyio, or of `asyncio.run`.
    """
    from stompcodec.testing.client import OpenedClient

    client = OpenedClient(stomp_broker.url, heart_beat=_NO_BEATS)
    client.open_here()
    yield client
    client.close_here()
