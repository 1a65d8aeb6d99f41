"""Our client and our broker, in each dialect that the broker speaks: one test for each field of the client's table."""

from functools import partial

import pytest
from client.broker import BrokerThread
from interop.fields import FIELDS, Place

from stompcodec.broker.config import DIALECTS
from stompcodec.client.dialects import BROKERS, BrokerDialect


@pytest.fixture(scope="module", params=DIALECTS)
def broker(request):
    jms = request.param in ("activemq", "artemis")
    with BrokerThread(dialect=request.param, jms=jms, detect_legacy=True) as broker:
        yield broker


def test_each_field_of_the_table_has_a_check():
    assert set(FIELDS) == set(BrokerDialect._fields)
    assert set(DIALECTS) <= set(BROKERS)


#: A check may be that of several fields.
CHECKS = {function: name for name, function in FIELDS.items()}
each_check = pytest.mark.parametrize("check", CHECKS, ids=CHECKS.get)


@each_check
@pytest.mark.parametrize("shell", ["async"], indirect=True)
def test_a_field_of_the_table_holds(broker, shell, check):
    check(Place(broker.config.dialect, lambda **options: shell.connect(broker.url, **options), own=True))


@each_check
@pytest.mark.parametrize("version", ["1.0", "legacy"])
@pytest.mark.parametrize("shell", ["sync"], indirect=True)
def test_a_field_of_the_table_holds_in_versions_that_lack_something(broker, shell, check, version):
    options = {"versions": [version], "login": "fred", "passcode": "x"}
    connect = partial(shell.connect, broker.url, **options)
    check(Place(broker.config.dialect, connect, own=True, version=version))
