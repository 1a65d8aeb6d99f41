"""The subscriptions that a map becomes at a broker whose wildcards it uses."""

import pytest

from stompcodec.bridge import Mapping, Request
from stompcodec.bridge.sources import GIVERS, _wild_lanes


@pytest.mark.parametrize(
    ("selector", "made"),
    [(None, "bridge_refused IS NULL"), ("a = 1 OR b = 2", "bridge_refused IS NULL AND (a = 1 OR b = 2)")],
)
def test_a_wildcard_of_activemq_leaves_out_dead_letters(selector, made):
    mapping = Mapping.parse(["/queue/a.*"])
    (lane,) = _wild_lanes(GIVERS["activemq"], mapping.rules[0], Request(mapping, selector=selector))
    assert (lane.destination, lane.selector) == ("/queue/a.>", made)


@pytest.mark.parametrize(("broker", "wild"), [("activemq", ">"), ("rabbitmq", "#"), ("artemis", "#")])
def test_a_wildcard_for_topics_has_the_users_selector_alone(broker, wild):
    mapping = Mapping.parse(["/topic/a.*"])
    (lane,) = _wild_lanes(GIVERS[broker], mapping.rules[0], Request(mapping, selector="a = 1"))
    assert (lane.destination, lane.selector) == (f"/topic/a.{wild}", "a = 1")
