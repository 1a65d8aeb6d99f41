"""Groups of verbs, with suggestions for unknown verbs, exit statuses in the help texts, and handling of Ctrl-C."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any, NoReturn

import click

from stompcodec.cli.statuses import STATUSES

#: The exit status after Ctrl-C: 128 plus the number of SIGINT, as in shells.
INTERRUPTED = 130
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
    **dict.fromkeys(("benchmark", "perf", "latency"), "bench"),
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
    """Return the verb of a context without the name of the program, as in "bench rtt"; "" for the program itself."""
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
        """Add the exit statuses to a verb's help."""
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
        except (KeyboardInterrupt, click.Abort):  # an Abort is Ctrl-C or end of input at a prompt
            if ctx.parent is not None:
                raise
            click.echo(err=True)
            ctx.exit(INTERRUPTED)
