"""stompcodec context: named brokers, with login and TLS options."""

from __future__ import annotations

import os
from typing import Any

import click

from stompcodec.cli.app import Verbs
from stompcodec.cli.connecting import Context as Named
from stompcodec.cli.connecting import (
    Contexts,
    changing,
    check_url,
    checked_name,
    context_named,
    load,
    new_passcode,
    path_of,
    save,
)
from stompcodec.cli.screen import pad, printable, screen
from stompcodec.errors import ConfigError
from stompcodec.spec import VERSIONS


@click.group("context", cls=Verbs)
def command() -> None:
    """Keep brokers under a name, with login and TLS options.

    Each verb that connects takes --context NAME, or context:NAME as a URL; without one, it uses the selected context.
    The contexts are in a file that only you can read.

    \b
      stompcodec context add prod stomp+ssl://broker:61614 --login ann --ask-passcode
      stompcodec context use prod
      stompcodec sub /queue/a --context prod
    """


def _name(_context: click.Context, _argument: click.Parameter, value: str) -> str:
    return checked_name(value)


@command.command("add")
@click.argument("name", metavar="NAME", callback=_name)
@click.argument("address", metavar="URL")
@click.option("--login", metavar="NAME", help="The login.")
@click.option(
    "--passcode-file",
    "file",
    metavar="FILE",
    type=click.Path(),
    help="Read the passcode from the first line of FILE at each use.",
)
@click.option(
    "--ask-passcode",
    "asked",
    is_flag=True,
    help="Store a passcode: from a prompt without echo, or from standard input if that is not a terminal.",
)
@click.option("--vhost", metavar="NAME", help="The virtual host, for the header host.")
@click.option("--version", type=click.Choice(VERSIONS), help="Offer this STOMP version only.")
@click.option("--ca", type=click.Path(), metavar="FILE", help="Trust the certificates in FILE (PEM).")
@click.option("--insecure", is_flag=True, help="Do not check the broker's certificate.")
def add(name: str, address: str, file: str | None, asked: bool, **fields: Any) -> None:
    """Add a context for the broker at URL. Nothing is connected.

    \b
      stompcodec context add local localhost:61613
      stompcodec context add prod stomp+ssl://broker --login ann --passcode-file ~/.prod
    """
    if file is not None and asked:
        raise click.UsageError("--passcode-file and --ask-passcode both give a passcode: give one of them")
    try:
        check_url(address)
    except ConfigError as error:
        what = str(error).replace("which is a field of its own", "which others can see here: give --ask-passcode")
        raise click.BadParameter(what, param_hint="URL") from None
    _check_free(load(), name)
    passcode = new_passcode() if asked else None
    paths = {"passcode_file": file, "ca": fields.pop("ca")}
    paths = {key: None if value is None else os.path.abspath(os.path.expanduser(value)) for key, value in paths.items()}
    with changing() as contexts:
        _check_free(contexts, name)  # another process may have been faster
        made = Named(name, address, passcode=passcode, **paths, **fields)
        save(Contexts({**contexts.all, name: made}, contexts.selected))


def _check_free(contexts: Contexts, name: str) -> None:
    if name in contexts.all:
        raise click.UsageError(f"there is a context {name} already: remove it first, or take another name")


@command.command("use")
@click.argument("name", metavar="NAME")
def use(name: str) -> None:
    """Select the context that counts where neither --context nor a URL is given.

    \b
      stompcodec context use prod
    """
    with changing() as contexts:
        context_named(name, "NAME")
        save(contexts._replace(selected=name))


@command.command("list")
def list_command() -> None:
    """List the contexts. A star marks the selected one.

    \b
      stompcodec context list
    """
    contexts = load()
    rows = [contexts.all[name] for name in sorted(contexts.all)]
    console = screen()
    from rich.text import Text

    width = max([len(each.name) for each in rows], default=0)
    for each in rows:
        mark = "*" if each.name == contexts.selected else " "
        login = f"  login {printable(each.login)}" if each.login else ""
        line = Text(f"{mark} ", "bold green").append(pad(each.name, width), "bold")
        console.print(line.append(f"  {printable(each.shown_url)}", "not bold default").append(login), soft_wrap=True)
    if not rows:
        click.echo("there are no contexts; `stompcodec context add NAME URL` makes one", err=True)


@command.command("show")
@click.argument("name", metavar="[NAME]", required=False)
def show(name: str | None) -> None:
    """Show a context, or the selected one. A passcode is masked.

    \b
      stompcodec context show prod
    """
    contexts = load()
    if name is None and contexts.selected is None:
        raise click.UsageError("no context is selected: give a NAME")
    context = context_named(name or contexts.selected or "", "NAME")
    console = screen()
    from rich.text import Text

    shown = {**context.shown(), "file": str(path_of())}
    for field, value in shown.items():
        text = "yes" if value is True else printable(str(value))
        console.print(Text(f"{field.replace('_', ' '):14}", "dim").append(text, "not dim"), soft_wrap=True)


@command.command("remove")
@click.argument("name", metavar="NAME")
def remove(name: str) -> None:
    """Remove a context.

    \b
      stompcodec context remove old
    """
    with changing() as contexts:
        context_named(name, "NAME")
        rest = {each: contexts.all[each] for each in contexts.all if each != name}
        save(Contexts(rest, None if contexts.selected == name else contexts.selected))
