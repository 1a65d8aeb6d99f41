"""Invariant: a body of any octets is transformed into a body of the other notation within its bound, or ContentError
says why not, soon; what came out says the same as what went in; and coming back, nothing changes any more.

An input is an octet that chooses the forms and the bound, then the body.
"""

from __future__ import annotations

import time

import covered  # noqa: F401 - it has to come before stompcodec
from engine import drive

from stompcodec.broker.bodies.xml_json import FORMS, Element, Form, parse_json, parse_xml, transformed
from stompcodec.errors import ContentError

NAMES = sorted(FORMS)
BOUNDS = (100, 10_000)
MOST = 10**7
SOON = 5.0  # seconds, under sanitizers
READ = {"xml": parse_xml, "json": parse_json}


def check(data: bytes) -> None:
    how, body = data[0] if data else 0, data[1:]
    source, target = FORMS[NAMES[how % 7]], FORMS[NAMES[how // 7 % 7]]
    began = time.monotonic()
    try:
        made = transformed(body, source, target, BOUNDS[how // 49 % 2])
    except ContentError as error:
        if len(str(error)) < 100:
            return
        raise AssertionError("an error shows too much") from error
    finally:
        assert time.monotonic() - began < SOON
    if source.notation == target.notation or target.kind == "byte":
        assert made == body
        return
    assert len(made) <= BOUNDS[how // 49 % 2]
    check_back(made, target, source)


def check_back(made: bytes, target: Form, source: Form) -> None:
    """There and back: the tree is the same, and the octets are once they are ours."""
    try:
        back = transformed(made, target, source, MOST)
    except ContentError as error:  # JSON says what XML cannot
        if source.notation == "xml" or has_order(READ[target.notation](made)):
            return
        raise AssertionError("what XML says, JSON can say") from error
    again = transformed(back, source, target, MOST)
    assert shape(READ[target.notation](made)) == shape(READ[target.notation](again))
    assert transformed(again, target, source, MOST) == back


def has_order(element: Element) -> bool:
    """Elements of one name stand apart somewhere in it: XML says that, and JSON cannot."""
    names = [child.name for child in element.children]
    runs = [name for name, before in zip(names, [None, *names]) if name != before]
    return len(runs) > len(set(runs)) or any(map(has_order, element.children))


def shape(element: Element) -> tuple[object, ...]:
    return element.name, element.text, element.attributes, [shape(child) for child in element.children]


if __name__ == "__main__":
    drive(check)
