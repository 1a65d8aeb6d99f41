"""stompcodec broker: run a broker, or check and salvage its folder."""

from __future__ import annotations

import errno
import json
import logging
import os
import re
import socket
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn

import click
from click.core import ParameterSource

import stompcodec
from stompcodec.cli import streams
from stompcodec.cli.app import Verbs
from stompcodec.cli.connecting import broker_options, connected, new_passcode, passcode_of, reporting_errors
from stompcodec.cli.inputs import complain
from stompcodec.cli.screen import printable, screen
from stompcodec.errors import MissingExtraError, StompError

if TYPE_CHECKING:
    from collections.abc import Callable

    from stompcodec.broker.config import Config
    from stompcodec.broker.server import Server
    from stompcodec.broker.storage.salvage import Findings


def _show(verb: str, run: Callable[[], Findings], as_json: bool, done: str) -> NoReturn:
    try:
        findings = run()
    except (OSError, StompError) as error:
        print(f"stompcodec broker {verb}: {printable(str(error))}", file=sys.stderr)
        sys.exit(2)
    if as_json:
        print(json.dumps(findings.record))
    else:
        for message in findings.lost:
            where = f"{message['id'] or 'a message'} of {message['destination'] or 'an unknown destination'}"
            print(f"lost: {printable(where)}: {message['why']}")
        for problem in findings.problems:
            print(f"damaged: {printable(problem)}")
        for note in findings.notes:
            print(f"note: {printable(note)}")
        print(
            f"{done}: {findings.messages} messages ({findings.octets} bytes) in {findings.queues} queues, "
            f"{findings.subscriptions} durable subscriptions; {len(findings.lost)} messages lost, "
            f"{len(findings.problems)} other faults"
        )
    sys.exit(0 if findings.whole else 1)


@click.command("check")
@click.argument("folder", metavar="DIR", type=click.Path())
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of lines.")
def check(folder: str, as_json: bool) -> None:
    """Check a data folder, and list what is damaged.

    DIR is the data folder of a broker that is stopped, or a copy of one. Nothing in it is changed. A folder in use by
    a broker is refused. All rows, bodies, totals and the write-ahead log are compared with their checksums.

    \b
      stompcodec broker check stompcodec-data
    """
    from stompcodec.broker.storage.salvage import check as run

    _show("check", lambda: run(folder), as_json, "intact")


@click.command("salvage")
@click.argument("folder", metavar="DIR", type=click.Path())
@click.argument("new", metavar="NEW_DIR", type=click.Path())
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of lines.")
def salvage(folder: str, new: str, as_json: bool) -> None:
    """Copy what is intact in a damaged data folder to a new one, and list the rest.

    DIR is the data folder of a broker that is stopped; it is not changed. SQLite may call it malformed: then what it
    still finds is copied. NEW_DIR must not exist, and appears when the copy is complete. Then start the broker with
    --data NEW_DIR. Messages that were acknowledged just before the damage may be delivered again.

    \b
      stompcodec broker salvage stompcodec-data rescued
      stompcodec broker --data rescued
    """
    from stompcodec.broker.storage.salvage import salvage as run

    _show("salvage", lambda: run(folder, new), as_json, "copied")


#: Seconds to wait for a copy of the largest data folder.
_LONG = 86_400.0


@click.command("backup")
@click.argument("new", metavar="NEW_DIR", type=click.Path())
@broker_options
def backup(new: str, **broker: Any) -> None:
    """Copy the data folder of a running broker to a new one.

    The broker makes NEW_DIR on its machine, in a folder that exists, and goes on meanwhile. It copies all that is
    stored when it begins, large bodies, too: there must be room for both. Its rules must allow the order
    /management/backup. To restore, start a broker with a copy of NEW_DIR as --data.

    \b
      stompcodec broker backup /backup/monday
    """
    from stompcodec.cli.figures import Asker, CannotAskError

    try:
        with reporting_errors(), connected(**broker) as client:
            made = Asker(client, _LONG).order("backup", {"to": os.path.abspath(new)})
    except CannotAskError as error:
        complain(str(error))
        sys.exit(1)
    print(f"copied to {printable(str(made.get('to')))}")


#: Default data folder.
_DATA = "stompcodec-data"
_PORT = click.IntRange(0, 65535)
#: How to choose a port: by a flag, or by a key of the configuration.
_WAYS = {
    **{"port": "--port {}", "ws_port": "--ws-port {}", "tls_port": "--tls-port {}"},
    "legacy_port": "listen.legacy = {}",
    "ports": "listen.port = [0, {}]",
}
#: Remedies if the system refuses a port or an address.
_REMEDIES = {
    errno.EADDRINUSE: "another program listens there: stop it, or use another port with {another}; "
    "{free} picks a free one",
    errno.EADDRNOTAVAIL: "no network interface of this machine has the address: see --host",
}
_REFUSED_PORT = "ports below 1024 need administrator rights: use another one with {another}"


def _fail(error: Exception, config: Config | None) -> None:
    from stompcodec.broker.storage.folder import StoreGone

    text = str(error)
    if isinstance(error, OSError) and error.errno is not None:
        what = error.strerror or text
        text = f"{error.filename}: {what}" if error.filename else what
        port = re.search(r"^cannot listen at \S+ port (\d+): ", what)
        remedy = _REMEDIES.get(error.errno, _REFUSED_PORT if error.errno == errno.EACCES else "")
        if port is not None and remedy:
            way = _way(int(port[1]), config)
            text = f"{what} ({remedy.format(another=way.format('N'), free=way.format(0))})"
    print(f"stompcodec broker: {printable(text, keep=chr(10))}", file=sys.stderr)
    sys.exit(3 if isinstance(error, StoreGone) else 1)


def _way(port: int, config: Config | None) -> str:
    """Return the flag that changes a port, or the key if it has no flag, with a placeholder for the number."""
    found = "port"
    if config is not None:
        named = {**{name: (getattr(config, name),) for name in _WAYS if name != "ports"}, "ports": config.ports}
        found = next((name for name, numbers in named.items() if port in numbers), found)
    return _WAYS[found]


def _help_config(context: click.Context, _option: click.Parameter, wanted: bool) -> None:
    if wanted:
        from stompcodec.broker.config import explain

        click.echo(explain(), nl=False)
        context.exit()


def _hash_passcode(context: click.Context, _option: click.Parameter, wanted: bool) -> None:
    if wanted:
        from stompcodec.broker.auth import hash_passcode

        try:
            click.echo(hash_passcode(new_passcode()))
        except ValueError as error:
            raise click.UsageError(str(error)) from None
        context.exit()


def _config(file: str | None, memory: bool, login: str | None, passcode: str | None, **flags: Any) -> Config:
    from stompcodec.broker.auth import User, hash_passcode
    from stompcodec.broker.config import load_config, parse_config

    changes = {name: value for name, value in flags.items() if value is not None}
    if "tls_cert" in changes:
        changes.setdefault("tls_key", changes["tls_cert"])
    names = ("dialect", "ws_port", "tls_port", "tls_cert")
    needed = {name: changes[name] for name in names if name in changes}  # by keys of the file
    config = parse_config("", **needed) if file is None else load_config(file, **needed)
    if memory:
        changes["data"] = None
    elif config.data is None and config.durable != "none":
        changes.setdefault("data", _DATA)
    if login is not None:
        changes["users"] = {login: User(login, hash_passcode(passcode or ""))}
    return config.replace(**changes)


def _announce(server: Server) -> None:
    host, config = server.config.host, server.config
    shown = f"[{host}]" if ":" in host else host
    ports = [("stomp", server.port), ("ws", server.ws_port), ("stomp+ssl", server.tls_port)]
    places = ", ".join(f"{scheme}://{shown}:{port}" for scheme, port in ports if port is not None)
    places += f", its page http://{shown}:{server.ws_port}/" if config.web_page else ""
    what, kept = "nothing survives", ""
    if config.data is not None and config.durable != "none":
        what = "messages to queues survive" if config.durable == "all" else "messages with persistent:true survive"
        kept = f", in {config.data}"
    line = f"stompcodec {stompcodec.__version__} listens on {places}; {what} a restart{kept}"
    screen().print(printable(line), soft_wrap=True)
    sys.stdout.flush()
    if path := os.environ.get("NOTIFY_SOCKET"):  # systemd waits for it if the unit has Type=notify
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
            systemd.sendto(b"READY=1", f"\0{path[1:]}" if path[0] == "@" else path)


@click.group("broker", cls=Verbs, invoke_without_command=True)
@click.pass_context
@click.option(
    "--config", "file", type=click.Path(), metavar="FILE", help="A TOML file; options take precedence over it."
)
@click.option("--dialect", metavar="NAME", help="Behave like rabbitmq, activemq or artemis.  [default: stompcodec]")
@click.option("--host", metavar="HOST", help="The address to listen on.  [default: 127.0.0.1]")
@click.option("--port", type=_PORT, metavar="N", help="The port of STOMP; 0 picks a free one.  [default: 61613]")
@click.option("--ws-port", type=_PORT, metavar="N", help="The port of STOMP over WebSocket, served on any path.")
@click.option("--tls-port", type=_PORT, metavar="N", help="The port of STOMP over TLS; 61614 with --tls-cert.")
@click.option("--tls-cert", type=click.Path(), metavar="FILE", help="The certificate chain, PEM.")
@click.option("--tls-key", type=click.Path(), metavar="FILE", help="Its private key, PEM, if not in the same file.")
@click.option("--data", type=click.Path(), metavar="DIR", help=f"Folder of messages.  [default: ./{_DATA}]")
@click.option("--force-fs", is_flag=True, help="Accept a data folder on a file system of the network.")
@click.option("--memory", is_flag=True, help="Keep everything in memory: nothing survives a restart.")
@click.option("--login", metavar="NAME", help="The only user, with the passcode in STOMPCODEC_PASSCODE, or a prompt.")
@click.option(
    "--ready-file", type=click.Path(), metavar="PATH", help="Write a JSON file with the ports while they are open."
)
@click.option("--uvloop/--no-uvloop", default=False, show_default="asyncio's", help="Event loop: uvloop or asyncio's.")
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="warning",
    show_default=True,
    help="What to log on standard error; info logs each connection.",
)
@click.option("--help-config", is_flag=True, is_eager=True, expose_value=False, callback=_help_config,
              help="Print every key of the TOML file, and exit.")  # fmt: skip
@click.option("--hash-passcode", is_flag=True, is_eager=True, expose_value=False, callback=_hash_passcode,
              help="Read a passcode from a prompt or a pipe, print its hash for the TOML file, and exit.")  # fmt: skip
def command(
    context: click.Context, /, file: str | None, ready_file: str | None, uvloop: bool, log_level: str, **flags: Any
) -> None:
    """Run a STOMP broker for versions 1.0, 1.1 and 1.2.

    Queues, topics, transactions, acknowledgements with redelivery, and messages that survive a crash.
    It prints the addresses on which it listens. On SIGTERM and SIGINT, and if its terminal is closed, it notifies its
    clients, saves messages, and exits. Without a terminal, SIGHUP is ignored.

    \b
      stompcodec broker                      on 127.0.0.1:61613, data in ./stompcodec-data
      stompcodec broker --memory --port 0    in memory, on any free port
      stompcodec broker check DIR            look for damage in the data folder of a stopped broker
    """
    if context.invoked_subcommand is not None:
        given = [name for name in context.params if context.get_parameter_source(name) is ParameterSource.COMMANDLINE]
        if given:
            raise click.UsageError(f"{context.invoked_subcommand} does not take the options of the broker")
        return
    if flags["memory"] and flags["data"] is not None:
        raise click.UsageError("--memory and --data exclude each other")
    passcode = None if flags["login"] is None else passcode_of([], flags["login"], None)
    if not passcode and flags["login"] is not None:
        raise click.UsageError("--login needs a passcode: in STOMPCODEC_PASSCODE, or from a terminal")
    streams.hand_over("stdout")  # a reader that does not read must not stop the broker
    streams.hand_over("stderr")
    logging.basicConfig(
        level=log_level.upper(), stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    from stompcodec.broker.server import run

    config = None
    try:
        config = _config(file, passcode=passcode, **flags)
        run(config, ready=ready_file, uvloop=uvloop, started=_announce)
    except MissingExtraError:
        raise
    except (OSError, StompError) as error:
        _fail(error, config)


for _verb in (backup, check, salvage):
    command.add_command(_verb)
