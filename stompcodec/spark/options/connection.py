"""Connection options, shared by the source and the sink "stomp". They say where the passcode is, but never hold it."""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from stompcodec.client.dialects import BROKERS
from stompcodec.errors import ConfigError
from stompcodec.spark.options.options import Option, OptionError, parse
from stompcodec.uri import Address, parse_uri

LINK_OPTIONS = (
    Option("url", "text", ..., "URL of the broker, such as stomp://host:61613, without a passcode"),
    Option("login", "text", None, "login name"),
    Option("passcodeEnv", "text", None, "environment variable with the passcode, on the machines that connect"),
    Option("passcodeFile", "text", None, "file with the passcode, on the machines that connect"),
    Option("caFile", "text", None, "certificates (PEM) to trust instead of the system's"),
    Option("dialect", ("auto", *sorted(BROKERS)), "auto", "broker whose conventions apply where STOMP is open"),
    Option("heartbeat", "seconds", 10.0, "interval of heart-beats; 0 for none"),
)
_SECRETS = ("passcode", "password")
_SAFE = "Spark's plan would show it: use passcodeEnv (a variable's name) or passcodeFile (a path)"


@dataclass(frozen=True)
class LinkOptions:
    """Options of a connection.

    >>> link, rest = parse_link({"url": "stomp://ann@h"}, ())
    >>> link.addresses, link.heartbeat, rest
    ((<Address stomp://ann@h:61613>,), 10.0, {})
    """

    addresses: tuple[Address, ...]
    login: str | None
    passcode_env: str | None
    passcode_file: str | None
    ca_file: str | None
    dialect: str
    heartbeat: float

    def passcode(self) -> str | None:
        """Read the passcode; None if neither passcodeEnv nor passcodeFile is given. Raises OptionError if it cannot."""
        if self.passcode_env is not None:
            passcode = os.environ.get(self.passcode_env)
            if passcode is None:
                raise OptionError(
                    f"option passcodeEnv: the variable {self.passcode_env} is not set: set it before Spark starts"
                )
            return passcode
        if self.passcode_file is not None:
            try:
                with open(self.passcode_file, encoding="utf-8") as stream:
                    return stream.read().rstrip("\r\n")
            except (OSError, UnicodeDecodeError) as error:
                why = getattr(error, "strerror", None) or "it is not UTF-8"
                raise OptionError(f"option passcodeFile: {self.passcode_file} cannot be read: {why}") from None
        return None

    def arguments(self) -> dict[str, Any]:
        """Return keyword arguments for `stompcodec.client.connect`, with the passcode as it can be read now."""
        beat = round(self.heartbeat * 1000)
        arguments: dict[str, Any] = {"dialect": self.dialect, "heart_beat": (beat, beat), "passcode": self.passcode()}
        if self.login is not None:
            arguments["login"] = self.login
        if self.ca_file is not None:
            try:
                arguments["ssl"] = ssl.create_default_context(cafile=self.ca_file)
            except OSError as error:
                why = error.strerror or "it holds no certificates"
                raise OptionError(f"option caFile: {self.ca_file} cannot be read: {why}") from None
        return arguments


def parse_link(
    options: Mapping[str, Any], table: Iterable[Option], *, also: Iterable[str] = ()
) -> tuple[LinkOptions, dict[str, Any]]:
    """Return the options of a connection, and the values of a further table. Raises as `parse`."""
    given = {str(name).lower() for name in options}
    for name in _SECRETS:
        if name in given:
            raise OptionError(f"option {name} is refused: {_SAFE}")
    values = parse((*LINK_OPTIONS, *table), options, also=also)
    values["addresses"] = _addresses(values.pop("url"))
    if values["passcode_env"] is not None and values["passcode_file"] is not None:
        raise OptionError("options passcodeEnv and passcodeFile: give only one of them")
    link = LinkOptions(**{each.name: values.pop(each.name) for each in fields(LinkOptions)})
    return link, values


def _addresses(url: str) -> tuple[Address, ...]:
    try:
        addresses = parse_uri(url if "://" in url or url.startswith("failover:") else f"stomp://{url}")
    except ConfigError as error:
        raise OptionError(f"option url: {error}") from None
    if any(address.passcode is not None or "=***" in str(address) for address in addresses):
        raise OptionError(f"option url has a passcode: {_SAFE}")
    return tuple(addresses)
