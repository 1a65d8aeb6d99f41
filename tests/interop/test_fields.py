"""Each field of our client's table against the brokers of other people, where they are installed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("click")

from interop.brokers import BROKERS
from interop.driver import Target
from interop.fields import FIELDS, run_fields

pytestmark = [pytest.mark.slow, pytest.mark.no_asan]


@pytest.fixture(scope="module", params=["rabbitmq", "activemq"])
def broker(request: pytest.FixtureRequest) -> Iterator[Target]:
    candidate = BROKERS[request.param]()
    if candidate.missing:
        pytest.skip(candidate.missing)
    with candidate as target:
        yield target


@pytest.mark.parametrize("name", FIELDS)
def test_a_field_of_the_table_holds(broker: Target, name: str) -> None:
    outcome = run_fields(broker, [name])[name]
    assert outcome.word == "ok", outcome.why
