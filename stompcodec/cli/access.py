"""Options for the permissions of recorded files."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

from stompcodec.disk import access_of, mode_of


def _mode(_context: click.Context, _option: click.Parameter, text: str | None) -> int | None:
    try:
        return None if text is None else mode_of(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def access_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --mode and --group to a verb, which gets them as `access`.

    By default files are 0600 and folders 0700, whatever the umask.
    """

    @click.option(
        "--mode", callback=_mode, metavar="OCTAL", help="Mode of new files.  [default: 0600; 0640 with --group]"
    )
    @click.option("--group", metavar="NAME", help="Group that may read new files.")
    @functools.wraps(command)
    def wrapped(*args: Any, mode: int | None, group: str | None, **options: Any) -> Any:
        try:
            access = access_of(mode, group)
        except ValueError as error:
            raise click.BadParameter(str(error).removeprefix("group: "), param_hint="'--group'") from None
        return command(*args, access=access, **options)

    return wrapped
