"""`message.text()` of what other clients send: without a content-type, and in a charset that the program knows."""

import pytest
from client.scripted import Scripted

from stompcodec.errors import ContentError


def received(body, **headers):
    client = Scripted().connect()
    return client.deliver(client.subscribed(), body=body, **{name.replace("_", "-"): v for name, v in headers.items()})


@pytest.mark.parametrize("body", [b"", b"{}", "café".encode()])
def test_a_body_without_content_type_is_utf_8(body):
    assert received(body).text() == body.decode()


def test_a_body_without_content_type_that_is_not_utf_8_names_what_to_do():
    with pytest.raises(ContentError, match=r"byte 3 of the body is not utf_8: .* no content-type: .*charset='latin-1'"):
        received(b"caf\xe9").text()


@pytest.mark.parametrize("headers", [{}, {"content_type": "application/octet-stream"}, {"content_type": "text/plain"}])
def test_a_charset_that_the_program_names_counts_more_than_the_content_type(headers):
    assert received(b"caf\xe9", **headers).text(charset="Latin-1") == "café"


def test_a_mistake_in_the_charset_is_no_fault_of_the_message():
    """Else a handler would give up every message."""
    message = received(b"x")
    with pytest.raises(ValueError, match="charset is 'utf-99': it must be one that Python knows") as found:
        message.text(charset="utf-99")
    assert not isinstance(found.value, ContentError)
    with pytest.raises(TypeError, match="charset is 8: it must be str"):
        message.text(charset=8)
