"""The verbs of the command, each in a module of the same name in `verbs`, imported on use."""

from __future__ import annotations

from importlib import import_module

import click

import stompcodec
from stompcodec.cli.groups import Verbs

#: To add a verb, add its name here and a module in `verbs` with a click command called `command`.
VERBS = (
    *("decode", "encode", "lint", "inspect", "convert"),
    *("pub", "sub", "req", "reply", "ping", "broker", "record", "replay", "bridge", "proxy"),
    *("browse", "move", "purge", "dlq", "context", "top"),
    "pipeline",
)


class Lazy(Verbs):
    """The verbs of the program, each imported on use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        command = import_module(f"stompcodec.cli.verbs.{cmd_name.replace('-', '_')}").command
        assert isinstance(command, click.Command)
        return self.documented(ctx, cmd_name, command)


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

    \b
    Completion of verbs and options, for bash (or zsh, fish), in ~/.bashrc:
      eval "$(_STOMPCODEC_COMPLETE=bash_source stompcodec)"
    """
