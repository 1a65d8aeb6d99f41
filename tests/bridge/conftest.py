"""Brokers of tests share a machine: bridges would look whether they are one broker, and meet the faults of tests."""

import pytest

from stompcodec.testing import StompBroker


@pytest.fixture(autouse=True)
def apart(monkeypatch):
    monkeypatch.setattr("stompcodec.bridge.bridge.may_be_one", lambda one, other: False)


@pytest.fixture
def one():
    with StompBroker(ws_port=0) as broker:
        yield broker


@pytest.fixture
def other():
    with StompBroker() as broker:
        yield broker
