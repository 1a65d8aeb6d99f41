"""URIs of brokers: stomp://user:pass@host:61613/vhost, and lists of them.

    host:61613                               the same as stomp://host:61613
    stomp:  tcp:                             plain TCP, port 61613
    stomp+ssl:  stomp+tls:  stomps:  ssl:    TLS, port 61614
    ws:  wss:                                WebSocket, ports 80 and 443
    http:  https:                            a SockJS endpoint, such as that of Spring, ports 80 and 443
    failover:(uri,uri,...)                   several brokers, in the order in which they are tried

All parts may be percent-encoded, and reserved characters must be: the virtual host / of RabbitMQ is stomp://host/%2F.
Without a path, or with the path /, the broker uses its default virtual host.

The options after a question mark are `vhost`, another way to name the virtual host, `artemis_types`, `receipts` and
`websocket_pieces`, which are options of the client, and `http_headers_file`, whose lines NAME:VALUE are its option
`http_headers`. Others are an error, except for WebSocket and SockJS, where all but the last are part of the request.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import quote, unquote

from stompcodec.errors import ConfigError, may_be_secret
from stompcodec.values import boolean

#: Scheme -> its default port.
_PORTS = {"stomp": 61613, "stomp+ssl": 61614, "ws": 80, "wss": 443, "http": 80, "https": 443}
_ALIASES = {"tcp": "stomp", "stomp+tls": "stomp+ssl", "stomps": "stomp+ssl", "ssl": "stomp+ssl"}

#: The last @ ends login and passcode, since a login may be a mail address.
_URI = re.compile(
    r"(?P<scheme>[a-z][a-z0-9+.-]*)://"
    r"(?:(?P<user>[^/?#]*)@)?"
    r"(?P<host>\[[0-9a-f:.]+(?:%25[\w.~-]+)?\]|[^\[\]:/?#@,()]+)(?::(?P<port>[0-9]{1,5}))?"
    r"(?P<path>/[^?#]*)?(?:\?(?P<query>[^#]*))?",
    re.IGNORECASE,
)
_FAILOVER = re.compile(r"failover:(?://)?(?:\((?P<inner>.*)\)(?:\?(?P<query>[^#]*))?|(?P<bare>[^()]*))", re.IGNORECASE)
#: A comma between addresses. A comma in an option, as in heart-beat=0,0, is not followed by a scheme.
_BETWEEN = re.compile(r",(?=[a-z][a-z0-9+.-]*:)", re.IGNORECASE)
_ODD = re.compile(r"[\0-\x20\x7f]")
#: Options of a failover list, and of URIs of other schemes than WebSocket.
_FILE = "http_headers_file"
_OPTIONS = ("vhost", "artemis_types", "receipts", "websocket_pieces", _FILE)
_PIECES = ("auto", "whole", "fragments", "messages")
_NAME = re.compile(r"[A-Za-z0-9._-]{1,40}")
_HOSTS = ("host", "virtualhost", "virtual_host", "virtual-host")


class Address(NamedTuple):
    """The address of a broker, with the login."""

    scheme: str
    """"stomp", "stomp+ssl", "ws", "wss", "http" or "https"."""
    host: str
    """The host name or IP address, without brackets."""
    port: int
    tls: bool
    websocket: bool
    path: str
    """The path and query of the WebSocket request, or of the SockJS endpoint; "" for other schemes."""
    login: str | None
    passcode: str | None
    vhost: str | None
    """The virtual host, from the path or the option `vhost`; None for the broker's default."""
    options: dict[str, str]
    """The options after the question mark."""

    @property
    def sockjs(self) -> bool:
        """True if `path` is that of a SockJS endpoint."""
        return self.scheme in ("http", "https")

    def __str__(self) -> str:
        """Return the address as text for people and logs, with secrets masked."""
        user = "" if self.login is None else f"{_quoted(self.login)}{'' if self.passcode is None else ':***'}@"
        host = f"[{self.host.replace('%', '%25')}]" if ":" in self.host else _quoted(self.host)
        path = "" if self.vhost is None else f"/{_quoted(self.vhost)}"
        shown = [
            f"{_quoted(name)}={'***' if may_be_secret(name) else _quoted(self.options[name])}" for name in self.options
        ]
        text = f"{self.scheme}://{user}{host}:{self.port}{self.path.partition('?')[0] if self.websocket else path}"
        return f"{text}?{'&'.join(shown)}" if shown else text

    def __repr__(self) -> str:
        return f"<Address {self}>"


#: What names brokers: a URI, or a list.
Brokers = str | Sequence[Address | tuple[str, int]]


def parse_uri(uri: str, scheme: str = "stomp", *, tls: str | None = None) -> list[Address]:
    """Return the addresses that a URI names: one, or several for failover.

    Options of a failover list apply to each address that does not have the option itself.

    Args:
        uri: such as "stomp://login:passcode@host:61613/vhost".
        scheme: that of an address without one.
        tls: the option, such as "--ca", that is given for TLS alone: an address without a scheme is TLS then.

    Raises:
        ConfigError: the URI is malformed, has an unknown option, or is without TLS in spite of `tls`. The message never
            shows a passcode.

    >>> [(address.host, address.port) for address in parse_uri("failover:(stomp://a,stomp+ssl://b)")]
    [('a', 61613), ('b', 61614)]
    >>> parse_uri("ws://h:15674/ws")[0].path
    '/ws'
    """
    if tls is not None:
        addresses = parse_uri(uri, "stomp+ssl")
        for each in addresses:
            if not each.tls:
                raise _error(f"{each} is without TLS, for which {tls} is given: write stomp+ssl:// or wss://")
        return addresses
    if _ODD.search(uri):
        raise _error("it contains a space or control character: write it as in %20")
    if not uri[:9].lower().startswith("failover:"):
        return [_address(uri, {}, scheme)]
    match = _FAILOVER.fullmatch(uri)
    if match is None:
        raise _error("write failover:(stomp://a:61613,stomp://b:61613)")
    inner = match["bare"] if match["inner"] is None else match["inner"]
    options = _known(_options(match["query"]))
    return [_address(part, options, scheme) for part in _BETWEEN.split(inner)]


def addresses_of(url: Brokers, scheme: str = "stomp") -> list[Address]:
    """Return the addresses of a URI, or of a list of them as `Address` or as (host, port), which get the scheme.

    >>> addresses_of("localhost:61613"), addresses_of([("::1", 61614)])
    ([<Address stomp://localhost:61613>], [<Address stomp://[::1]:61614>])
    """
    if isinstance(url, str):
        return parse_uri(url, scheme)
    return [each if isinstance(each, Address) else _of_pair(*each, scheme) for each in url]


def _of_pair(host: str, port: int, scheme: str) -> Address:
    return _address(f"[{host}]:{port}" if ":" in host else f"{host}:{port}", {}, scheme)


def _address(uri: str, common: dict[str, str], scheme: str) -> Address:
    match = _URI.fullmatch(uri if "://" in uri else f"{scheme}://{uri}")
    if match is None:
        raise _error(
            "write stomp://host:61613, or stomp://login:passcode@host:61613/vhost,"
            " with / ? # in a login or passcode as %2F %3F %23"
        )
    name = match["scheme"].lower()
    scheme = _ALIASES.get(name, name)
    if scheme not in _PORTS:
        raise _error(f"unknown scheme {name[:20]}: use one of {', '.join((*_PORTS, *_ALIASES))}, failover")
    websocket = scheme in ("ws", "wss", "http", "https")
    port = _PORTS[scheme] if match["port"] is None else int(match["port"])
    if not 0 < port < 65536:
        raise _error(f"the port is {port}: it must be 1 to 65535")
    login, colon, passcode = (match["user"] or "").partition(":")
    own = _options(match["query"])
    options = {**common, **(own if websocket else _known(own))}
    if _FILE in own and not websocket:
        raise _error(f"{_FILE} is for ws, wss, http and https")
    if options.get("websocket_pieces", "auto") not in _PIECES:
        raise _error(f"the option websocket_pieces must be one of {', '.join(_PIECES)}")
    for flag in {"artemis_types", "receipts"} & options.keys():
        try:
            options[flag] = str(boolean(options[flag])).lower()
        except ValueError as error:
            raise _error(f"the option {flag}: {error}") from None
    path = match["path"] or "/"
    query = "&".join(part for part in (match["query"] or "").split("&") if _text(part.partition("=")[0]) != _FILE)
    vhost = ("" if websocket else _text(path[1:])) or options.get("vhost")
    return Address(
        scheme,
        _text(match["host"].strip("[]")),
        port,
        scheme in ("stomp+ssl", "wss", "https"),
        websocket,
        path + (f"?{query}" if query else "") if websocket else "",
        None if match["user"] is None else _text(login),
        _text(passcode) if colon else None,
        vhost or None,
        options,
    )


def _options(query: str | None) -> dict[str, str]:
    """Return the options of a query; the first of a repeated one."""
    options: dict[str, str] = {}
    for part in (query or "").split("&"):
        name, _, value = part.partition("=")
        if part:
            options.setdefault(_text(name), _text(value))
    return options


def _known(options: dict[str, str]) -> dict[str, str]:
    """Return the options if all are known. ConfigError shows no value, and no name that may be part of a passcode."""
    for name in options:
        if name not in _OPTIONS:
            shown = f" {name}" if _NAME.fullmatch(name) else ""
            hint = (
                "write the virtual host as the path, as in stomp://host/%2F for /"
                if name.lower() in _HOSTS
                else "leave it out, and give it to the client as an argument"
            )
            raise _error(f"unknown option{shown} after the question mark: {hint}")
    return options


def _text(quoted: str) -> str:
    try:
        return unquote(quoted, errors="strict")
    except UnicodeDecodeError:
        raise _error("a percent-encoded part is not UTF-8") from None


def _quoted(text: str) -> str:
    return quote(text, safe=",")


def _error(message: str) -> ConfigError:
    return ConfigError(message, key="uri")
