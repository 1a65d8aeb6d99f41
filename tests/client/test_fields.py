"""Our client and our broker, in each dialect that the broker speaks: one test for each field of the client's table."""

import pytest
from client.broker import BrokerThread
from interop.fields import FIELDS, Place

from stompcodec.broker.dialects import DIALECTS
from stompcodec.client.dialects import BROKERS, BrokerDialect


@pytest.fixture(scope="module", params=DIALECTS)
def broker(request):
    with BrokerThread(dialect=request.param, jms=BROKERS[request.param].jms) as broker:
        yield broker


@pytest.fixture
def place(broker, shell):
    return Place(broker.config.dialect, lambda **options: shell.connect(broker.url, **options))


def test_each_field_of_the_table_has_a_check():
    assert set(FIELDS) == set(BrokerDialect._fields)
    assert set(DIALECTS) <= set(BROKERS)


@pytest.mark.parametrize("field", FIELDS)
def test_a_field_of_the_table_holds(place, field):
    FIELDS[field](place)
