"""The page of a broker in headless Chromium."""

from collections.abc import Iterator
from typing import Any

import pytest
from chromium import Chromium, Page

import stompcodec.client as stomp
from stompcodec.testing import StompBroker


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    with Chromium() as chromium:
        yield chromium


@pytest.fixture
def broker() -> Iterator[StompBroker]:
    with StompBroker(ws_port=0, web_page=True) as one:
        yield one


@pytest.fixture
def client(broker: StompBroker) -> Iterator[stomp.Client]:
    with stomp.connect(broker.url) as one:
        yield one


def port_of(broker: StompBroker) -> int:
    server = broker._server
    assert server is not None
    assert server.ws_port is not None
    return server.ws_port


@pytest.fixture
def opened(browser: Chromium) -> Iterator[Any]:
    """Open a view of a broker. At the end, no script had an error, and the policy had nothing to refuse."""
    pages = []

    def open_view(broker: StompBroker, view: str = "") -> Page:
        page = browser.open(f"http://127.0.0.1:{port_of(broker)}/#/{view}")
        pages.append(page)
        page.resize(1500, 900)
        return page

    yield open_view
    for page in pages:
        page.get("1")
        errors = page.errors
        page.close()
        assert errors == []
