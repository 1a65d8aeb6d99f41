"""HTTP of a client: headers of the handshakes of WebSocket and SockJS, and the heads of answers."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

#: The largest head of an answer in bytes.
MAX_HEAD = 16 * 1024
_STATUS = re.compile(rb"HTTP/1\.([0-9]) ([1-5][0-9]{2})(?: ([^\r\n]*))?\r?\n")
_END = re.compile(rb"\r?\n\r?\n")
#: Names that users cannot give, since they are those of the request itself.
_RESERVED = re.compile("host|upgrade|connection|content-length|transfer-encoding|sec-websocket-.*", re.IGNORECASE)
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]*")
_VALUE = re.compile(r"[^\0-\x08\x0a-\x1f\x7f\ud800-\udfff]*")
_EXPIRED = re.compile(r";\s*max-age\s*=\s*(0|-)", re.IGNORECASE)


class Answer(NamedTuple):
    """The head of an answer."""

    status: int
    text: str
    """The status with its reason."""
    headers: list[tuple[str, str]]
    closes: bool
    """True for HTTP/1.0, which closes the connection behind it."""


def take_answer(octets: bytes) -> tuple[Answer | None, bytes]:
    """Return the first answer, None if its head is incomplete, and the bytes behind that.

    Raises ValueError, whose text continues a sentence, if there is no such head.
    """
    end = _END.search(octets[: MAX_HEAD + 4])
    if end is None and len(octets) > MAX_HEAD:
        raise ValueError(f"is longer than {MAX_HEAD} bytes")
    match = None if end is None else _STATUS.match(octets)
    if match is None and (end is not None or not b"HTTP/1.".startswith(octets[:7])):
        raise ValueError("is not HTTP")
    if end is None or match is None:
        return None, octets
    reason = "".join(each for each in (match[3] or b"")[:60].decode("latin-1") if each.isprintable())
    lines = octets[: end.start()].decode("latin-1").splitlines()[1:]
    headers = [(name.strip(), value.strip()) for name, _, value in (line.partition(":") for line in lines)]
    text = f"{int(match[2])} {reason}".rstrip()
    return Answer(int(match[2]), text, headers, match[1] == b"0"), octets[end.end() :]


def check_http(headers: object) -> None:
    """Raise TypeError or ValueError for headers that a handshake cannot have. The message shows no value."""
    if not isinstance(headers, Mapping):
        raise TypeError(f"http_headers gives {type(headers).__name__}: it must be a mapping of str to str")
    for name, value in headers.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise TypeError("http_headers holds something else than str")
        token = _TOKEN.match(name)[0]  # type: ignore[index]  # it always matches; the rest may be a secret
        if not name or token != name:
            raise ValueError(f"http_headers holds a name that is no token; it begins with {token[:60]!r}")
        if _RESERVED.fullmatch(name):
            raise ValueError(f"http_headers holds {name[:60]!r}, which the handshake writes itself")
        if not _VALUE.fullmatch(value):
            raise ValueError(f"http_headers holds a control character in the value of {name[:60]!r}")


def http_of(lines: Iterable[str]) -> dict[str, str]:
    """Return the headers of lines NAME:VALUE. Raise ValueError, which shows no value, for what `check_http` refuses."""
    pairs = [line.partition(":") for line in lines]
    if not all(colon for _, colon, _ in pairs):
        raise ValueError("http_headers: write NAME:VALUE")
    headers = {name: value.strip() for name, _, value in pairs}
    check_http(headers)
    return headers


def read_http(path: str) -> dict[str, str]:
    """Return the headers of a file. Empty lines do not count, nor those that begin with #. Raises as `http_of`."""
    try:
        with open(path, encoding="utf-8") as stream:
            lines = stream.read().split("\n")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not UTF-8"
        raise ValueError(f"http_headers_file: {path} cannot be read: {why}") from None
    return http_of(line for line in lines if line.strip() and line[0] != "#")


class Handshake:
    """The HTTP headers of the requests, WebSocket and SockJS, of one attempt to connect.

    Its cookies and its login last for all connections of the attempt, which ask one endpoint: paths of cookies are not
    compared. `headers` are those of the user, as `check_http` wants them; login and passcode are sent only to a server
    that asks for Basic, unless the user gives Authorization.

    >>> handshake = Handshake({"Cookie": "a=1"}, "ann", "x")
    >>> head = b"HTTP/1.1 401 No\\r\\nWWW-Authenticate: Basic\\r\\nSet-Cookie: b=2; Path=/\\r\\n\\r\\n"
    >>> handshake.is_asked(take_answer(head)[0])
    True
    >>> handshake.headers()
    {'Authorization': 'Basic YW5uOng=', 'Cookie': 'a=1; b=2'}
    """

    def __init__(
        self, headers: Mapping[str, str] | None = None, login: str | None = None, passcode: str | None = None
    ) -> None:
        self.knows_info = False
        """True once a server of SockJS has answered /info."""
        self._headers: dict[str, str] = {}
        self._cookies: dict[str, str] = {}
        self._login = None if login is None else f"{login}:{passcode or ''}".encode()
        for name, value in (headers or {}).items():
            if name.lower() == "cookie":
                pairs = (pair.strip() for pair in value.split(";"))
                self._cookies |= {pair.partition("=")[0].rstrip(): pair for pair in pairs if pair}
            else:
                self._headers[name] = value

    def headers(self) -> dict[str, str]:
        return self._headers | ({"Cookie": "; ".join(self._cookies.values())} if self._cookies else {})

    def take_cookies(self, headers: list[tuple[str, str]]) -> None:
        """Send the cookies that an answer sets from now on."""
        for value in (value for name, value in headers if name.lower() == "set-cookie"):
            pair = value.partition(";")[0].strip()
            key = pair.partition("=")[0].rstrip()
            self._cookies.pop(key, None)
            if "=" in pair and pair.isascii() and pair.isprintable() and not _EXPIRED.search(value):
                self._cookies[key] = pair

    def is_asked(self, answer: Answer) -> bool:
        """Take an answer that refuses; return whether to ask again, with the login and with its cookies."""
        self.take_cookies(answer.headers)
        ways = [value.lower() for name, value in answer.headers if name.lower() == "www-authenticate"]
        if answer.status != 401 or "basic" not in " ".join(ways) or self._login is None or self._has_login:
            return False
        self._headers["Authorization"] = f"Basic {base64.b64encode(self._login).decode()}"
        return True

    @property
    def _has_login(self) -> bool:
        return "authorization" in map(str.lower, self._headers)

    @property
    def hint(self) -> str:
        """What to do about the status 401."""
        return "it does not accept this login" if self._has_login else "it wants an HTTP login: see http_headers"
