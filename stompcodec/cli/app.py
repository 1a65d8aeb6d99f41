"""The verbs of the command, each in a module of its name that is imported when it is asked for."""

from __future__ import annotations

from importlib import import_module

import click

import stompcodec

__all__ = ["app"]

#: A new verb: its name here, and a module with a click command called `command`.
VERBS = (
    *("decode", "encode", "lint", "inspect", "pub", "sub", "req", "ping", "broker", "record", "replay", "convert"),
    *("bench", "conformance", "pipeline", "compat", "spark-env"),
)


class Verbs(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        command = import_module(f"stompcodec.cli.{cmd_name.replace('-', '_')}").command
        assert isinstance(command, click.Command)
        return command


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(stompcodec.__version__, message=f"stompcodec %(version)s, backend {stompcodec.BACKEND}")
def app() -> None:
    """Read, write and check STOMP frames; run a broker."""
