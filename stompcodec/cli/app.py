"""The program: its verbs, each imported on use, suggestions for unknown ones, handling of Ctrl-C, and exit statuses."""

from __future__ import annotations

import sys
from difflib import get_close_matches
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any, NoReturn

import click

import stompcodec
from stompcodec.errors import MissingExtraError

#: The exit status after Ctrl-C: 128 plus the number of SIGINT, as in shells.
INTERRUPTED = 130
#: The exit status when nothing came for --expect-every.
SILENT = 4
#: Names of verbs in other tools.
_SYNONYMS = {
    **dict.fromkeys(("publish", "send", "produce", "producer", "put", "write"), "pub"),
    **dict.fromkeys(("subscribe", "receive", "consume", "consumer", "get", "listen", "tail"), "sub"),
    **dict.fromkeys(("request", "rpc", "ask"), "req"),
    **dict.fromkeys(("answer", "respond"), "reply"),
    **dict.fromkeys(("server", "serve", "start", "run", "listen-on"), "broker"),
    **dict.fromkeys(("parse", "cat", "show", "dump", "print", "read"), "decode"),
    **dict.fromkeys(("serialize", "frame"), "encode"),
    **dict.fromkeys(("check", "validate", "verify"), "lint"),
    **dict.fromkeys(("view", "open", "look"), "inspect"),
    **dict.fromkeys(("connect", "status", "test"), "ping"),
    **dict.fromkeys(("capture", "save"), "record"),
    **dict.fromkeys(("export", "import", "transform"), "convert"),
    **dict.fromkeys(("shovel", "migrate", "mirror", "forward", "federate"), "bridge"),
    **dict.fromkeys(("sniff", "intercept", "tap", "mitm", "mitmproxy"), "proxy"),
    **dict.fromkeys(("spark", "etl"), "pipeline"),
    **dict.fromkeys(("peek", "queue"), "browse"),
    **dict.fromkeys(("drain", "empty", "clear", "truncate"), "purge"),
    **dict.fromkeys(("dead-letters", "deadletter", "dead", "requeue"), "dlq"),
    **dict.fromkeys(("repair", "recover", "fix"), "salvage"),
    **dict.fromkeys(("watch", "monitor", "stats", "dashboard"), "top"),
    "fsck": "check",
}
#: Required similarity of names, from 0 to 1: almost equal, then similar.
_ALIKE = (0.8, 0.5)


def verb_path(context: click.Context) -> str:
    """Return the verb of a context without the name of the program, as in "dlq retry"; "" for the program itself."""
    names = []
    at: click.Context | None = context
    while at is not None and at.parent is not None:
        names.append(at.info_name or "")
        at = at.parent
    return " ".join(reversed(names))


class Verbs(click.Group):
    """A group of verbs. Each verb's help ends with its exit statuses from `STATUSES`."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        command = super().get_command(ctx, cmd_name)
        return None if command is None else self.documented(ctx, cmd_name, command)

    def documented(self, ctx: click.Context, name: str, command: click.Command) -> click.Command:
        path = f"{verb_path(ctx)} {name}".strip()
        if command.epilog is None and path in STATUSES:
            lines = "\n".join(f"  {status:<4} {meaning}" for status, meaning in STATUSES[path].items())
            command.epilog = f"\b\nExit status:\n{lines}"
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        known = name.startswith("-") or ctx.resilient_parsing or self.get_command(ctx, name) is not None
        if not known:
            self._unknown(ctx, name)
        return super().resolve_command(ctx, args)

    def _unknown(self, ctx: click.Context, name: str) -> NoReturn:
        verbs = self.list_commands(ctx)
        folded = name.lower()
        near = [verb for verb in verbs if verb == folded or _SYNONYMS.get(folded) == verb]
        for alike in _ALIKE:
            near = near or get_close_matches(folded, verbs, n=3, cutoff=alike)
        near = near or [verb for verb in verbs if len(folded) > 1 and (folded in verb or verb in folded)]
        if near:
            advice = f"Did you mean {' or '.join(repr(verb) for verb in near)}?"
        else:
            advice = f"The verbs are {', '.join(verbs)}."
        ctx.fail(f"unknown verb {name!r}. {advice}")

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except MissingExtraError as error:
            raise click.UsageError(str(error)) from None
        except (KeyboardInterrupt, click.Abort):  # an Abort is Ctrl-C or end of input at a prompt
            if ctx.parent is not None:
                raise
            click.echo(err=True)
            ctx.exit(INTERRUPTED)


_USAGE = {2: "wrong usage, or a package is missing; the message names it"}
_STOPPED = {130: "ended by Ctrl-C"}
#: Of verbs that run until Ctrl-C, which is 0 then.
_BEFORE = "ended by Ctrl-C before it had started"


def _of(good: str, bad: str, usage: dict[int, str] = _USAGE) -> dict[int, str]:
    return {0: good, 1: bad, **usage, **_STOPPED}


_UNREACHABLE = "the broker cannot be reached, or refused"
_SILENCE = {SILENT: "nothing came for --expect-every"}
_CONTEXTS = {2: "wrong usage, an unknown name, or the file of contexts is broken, not writable, or open to others"}
_FOLDER = {2: "wrong usage, or nothing could be read: not a data folder, or in use by a broker"}
_SHOWN = {2: "wrong usage, or the broker cannot show queues, or knows no selectors; nothing was taken"}

_FAILED = "it failed; the message says why"
_TOOL = {
    0: "every message that was there was handled",
    1: f"{_UNREACHABLE}; not confirmed; other consumers hold messages; or some stayed, as the output says",
    2: "wrong usage; no terminal and no --yes; or the broker knows no selectors: nothing was done",
    130: "ended by Ctrl-C, SIGTERM or SIGHUP: each message was handled, or is still there",
}


#: Meanings by verb and status.
STATUSES: dict[str, dict[int, str]] = {
    "decode": _of("every frame was shown", "a file cannot be read, or a frame is broken; good frames were shown"),
    "encode": _of("every frame was written", "a frame cannot be written, or a file cannot be read"),
    "lint": _of("no errors; warnings and notes do not count", "an error was found, or a file cannot be read"),
    "inspect": _of("every frame was shown", "a frame is broken or missing, or a file cannot be used"),
    "pub": _of("the broker has every message", f"{_UNREACHABLE}; some messages may not have arrived"),
    "sub": {
        **_of("all went well", f"{_UNREACHABLE}; a message could not be handled; or fewer than --count came"),
        **_SILENCE,
        130: "ended by Ctrl-C, SIGTERM or SIGHUP, after the message at hand was handled",
    },
    "req": _of("the answer was shown", f"{_UNREACHABLE}; or no answer came within --timeout"),
    "reply": {
        0: "ended by --count, --wait, SIGTERM, SIGHUP or Ctrl-C; each request was answered",
        1: f"{_UNREACHABLE}; a request could not be answered; or fewer than --count came within --wait",
        **_USAGE,
        **_SILENCE,
        130: _BEFORE,
    },
    "ping": _of("the broker answered", _UNREACHABLE),
    "broker": {
        0: "stopped by SIGTERM or Ctrl-C, or its terminal was closed",
        1: "it cannot start: a port, the data folder or the configuration cannot be used",
        **_USAGE,
        3: "files of its data folder were removed or replaced while it ran: do not start it again by itself",
        130: _BEFORE,
    },
    "broker backup": _of("everything was copied", f"{_UNREACHABLE}; or NEW_DIR cannot be made"),
    "broker check": _of("everything is intact", "something is damaged or missing; it is listed", _FOLDER),
    "broker salvage": _of(
        "everything was copied",
        "something is lost; it is listed",
        {2: "wrong usage; not a data folder, of another version, in use by a broker, or NEW_DIR exists"},
    ),
    "record": {
        0: "ended by --count, --wait, SIGTERM, SIGHUP or Ctrl-C; everything acknowledged is on the disk",
        1: f"{_UNREACHABLE}; the disk failed; CAPTURE was removed or replaced; or fewer than --count came in --wait",
        **_USAGE,
        **_SILENCE,
        130: _BEFORE,
    },
    "replay": _of(
        "the broker has every message", f"{_UNREACHABLE}; CAPTURE is missing or damaged; or messages were left out"
    ),
    "bridge": {
        0: "ended by --drain, --count, --wait, SIGTERM, SIGHUP, Ctrl-C; TO has every message that FROM has given away",
        1: f"{_UNREACHABLE}; messages were refused, and are in the dead letters of FROM; or --drain left some there",
        2: "wrong usage; FROM is TO; no destination matches, or FROM cannot do what the map asks for",
        **_SILENCE,
        130: "ended by Ctrl-C, SIGTERM or SIGHUP before both brokers were connected",
    },
    **dict.fromkeys(("browse", "dlq list", "dlq show"), _of("the messages were shown", _UNREACHABLE, _SHOWN)),
    **dict.fromkeys(("move", "purge", "dlq retry"), _TOOL),
    "context add": _of("the context is in the file", "the passcode could not be read", _CONTEXTS),
    **{f"context {name}": {0: "all went well", **_CONTEXTS, **_STOPPED} for name in ("use", "list", "show", "remove")},
    "proxy": {
        0: "ended by Ctrl-C, SIGTERM or SIGHUP",
        1: "it cannot listen there; or its output or the capture cannot be written",
        **_USAGE,
        130: _BEFORE,
    },
    "top": {
        0: "ended by q, --once, SIGTERM, SIGHUP or Ctrl-C",
        1: f"{_UNREACHABLE}; it has no management over STOMP; or no rule allows it",
        **_USAGE,
        130: "ended by Ctrl-C, SIGTERM or SIGHUP before there was an answer",
    },
    "convert": _of("every frame was written", "a frame is broken or cannot be written, or a file cannot be used"),
    **{f"pipeline {job}": _of("the output is complete", _FAILED) for job in ("archive", "explode", "metrics")},
    "pipeline replay": _of("the broker has every message", _FAILED),
    "pipeline report": _of("the feed is not unhealthy", "the feed is unhealthy, or the report failed"),
}


def markdown() -> str:
    """Return the table of docs/cli.md. Equal verbs share a row; the page says what is left out: the usual 2 and 130.

    >>> print(markdown().splitlines()[2])
    | `decode` | every frame was shown | a file cannot be read, or a frame is broken; good frames were shown | |
    """
    usual = _USAGE | _STOPPED
    verbs: dict[tuple[tuple[int, str], ...], list[str]] = {}
    for verb, statuses in STATUSES.items():
        verbs.setdefault(tuple(statuses.items()), []).append(f"`{verb}`")
    lines = ["| verb | 0 | 1 | others |", "| --- | --- | --- | --- |"]
    for meanings, names in verbs.items():
        others = [
            f"{status}: {text}" for status, text in meanings if status > 1 and text not in (usual.get(status), _BEFORE)
        ]
        failed = dict(meanings).get(1, "").replace(_UNREACHABLE, "no broker")
        row = ", ".join(names), dict(meanings)[0], failed, "; ".join(others)
        lines.append(f"| {' | '.join(row)} |".replace("|  |", "| |"))
    return "\n".join(lines) + "\n"


def write(page: Path) -> None:
    head, line, _ = page.read_text(encoding="utf-8").partition(markdown().splitlines()[0])
    if not line:
        raise SystemExit(f"{page}: no table of exit statuses to replace")
    page.write_text(head + markdown(), encoding="utf-8")


#: Verbs that the help of the program describes, and those that it names under "More".
_FIRST = ("broker", "pub", "sub", "record", "convert", "top", "browse", "dlq")
_MORE = {
    "frames in files": ("decode", "encode", "lint", "inspect"),
    "messages": ("req", "reply", "replay", "move", "purge"),
    "brokers": ("ping", "context", "bridge", "proxy"),
    "Spark": ("pipeline",),
}
#: To add a verb, add its name there, its exit statuses above, and a module in `verbs` with a click command `command`.
VERBS = (*_FIRST, *chain.from_iterable(_MORE.values()))
#: Verbs that share a module, where the command has the verb's name.
_TOGETHER = {**dict.fromkeys(("browse", "move", "purge", "dlq"), "queues"), "reply": "req"}


class Lazy(Verbs):
    """The verbs of the program, each imported on use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        module = import_module(f"stompcodec.cli.verbs.{_TOGETHER.get(cmd_name, cmd_name)}")
        command = getattr(module, cmd_name if cmd_name in _TOGETHER else "command")
        assert isinstance(command, click.Command)
        return self.documented(ctx, cmd_name, command)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        commands = {name: self.get_command(ctx, name) for name in _FIRST}
        with formatter.section("Commands"):
            formatter.write_dl([(name, verb.get_short_help_str(150)) for name, verb in commands.items() if verb])
        with formatter.section("More"):
            formatter.write_dl([(about, ", ".join(names)) for about, names in _MORE.items()])


@click.group(cls=Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(stompcodec.__version__, message=f"stompcodec %(version)s, backend {stompcodec.BACKEND}")
def app() -> None:
    """Read, write and check STOMP frames; talk to brokers; run one.

    \b
      stompcodec broker --memory                  a broker on 127.0.0.1:61613
      stompcodec sub /queue/a --url host:61613    show messages as they come
      stompcodec pub /queue/a hello -u host:61613
      stompcodec decode frames.stomp              the frames of a file

    `stompcodec VERB --help` shows the options, examples and exit statuses of a verb.
    """


if __name__ == "__main__":
    write(Path(sys.argv[1]))
