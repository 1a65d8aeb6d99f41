import pytest

from stompcodec.testing import StompBroker


@pytest.fixture
def broker():
    with StompBroker() as broker:
        yield broker
