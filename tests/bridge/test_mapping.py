"""The map of destinations."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stompcodec.bridge import Mapping, Rule

NAMES = st.text("ab./é", min_size=1, max_size=8).map(lambda rest: f"/queue/{rest}")


@given(NAMES, NAMES)
def test_an_exact_rule_is_about_one_name(source, other):
    mapping = Mapping.parse([f"{source}=/queue/to"])
    assert mapping.target_of(source) == "/queue/to"
    assert mapping.target_of(other) == ("/queue/to" if other == source else None)


@given(NAMES, NAMES, st.text("ab.", max_size=5))
def test_a_star_keeps_the_rest(source, target, rest):
    mapping = Mapping.parse([f"{source}*={target}*"])
    assert mapping.target_of(source + rest) == target + rest
    assert Mapping.parse([f"{source}*={target}"]).target_of(source + rest) == target
    assert Mapping.parse([f"{source}*"]).target_of(source + rest) == source + rest


@given(st.lists(NAMES, min_size=1, max_size=4, unique=True), NAMES)
def test_the_first_rule_counts_and_an_exact_one_before_patterns(sources, name):
    rules = [Rule(f"{source}*", f"/queue/{number}") for number, source in enumerate(sources)]
    fitting = [rule.target for rule in rules if name.startswith(rule.source[:-1])]
    assert Mapping(rules).target_of(name) == (fitting[0] if fitting else None)
    assert Mapping([*rules, Rule(name, "/queue/exact")]).target_of(name) == "/queue/exact"


def test_what_patterns_do_not_match():
    mapping = Mapping.parse(["*"], excluded=["/queue/dead"])
    names = ["/queue/a", "/queue/dead", "/temp-queue/x", "/reply-queue/amq.gen", "/topic/b", "/queue/a"]
    assert list(mapping.matching(names)) == ["/queue/a", "/topic/b"]
    assert list(Mapping.parse(["/queue/a"]).matching(names)) == []


BAD = {
    "": "write SOURCE=TARGET",
    "=/queue/a": "write SOURCE=TARGET",
    "/queue/a=": "write SOURCE=TARGET",
    "/queue/a=/queue/b=/queue/c": "more than one equals sign",
    "/queue/a=/queue/*": "the star of TARGET",
    "/queue/a*b": "a star stands at the end",
    "/queue/a*b*=/queue/c": "a star stands at the end",
    "/queue/a\n": "no control characters",
    " /queue/a": "no spaces around it",
    "/queue/a= /queue/b": "no spaces around it",
    "/temp-queue/a": "belongs to one session",
    "/queue/a=/temp-queue/a": "belongs to one session",
    "/queue/" + "a" * 4096: "at most 4096 characters",
}


@pytest.mark.parametrize(("text", "why"), BAD.items(), ids=range(len(BAD)))
def test_a_malformed_rule_is_refused(text, why):
    with pytest.raises(ValueError, match=why):
        Mapping.parse([text])


@pytest.mark.parametrize(
    ("texts", "why"),
    [
        ([], "no destination"),
        (["/queue/a", "/queue/a=/queue/b"], "mapped twice"),
        (["/queue/dead=/queue/a"], "where refused messages go"),
    ],
)
def test_rules_that_do_not_go_together(texts, why):
    with pytest.raises(ValueError, match=why):
        Mapping.parse(texts, excluded=["/queue/dead"])


@pytest.mark.parametrize(
    ("text", "native"),
    [("/topic/a.>", True), ("/topic/#", True), ("/topic/a.*.b.>", True), ("/topic/a>b", False), ("/queue/a", False)],
)
def test_wildcards_of_the_broker_keep_the_names(text, native):
    assert Rule.parse(text).is_native == native
    assert not Rule.parse(text).is_pattern
