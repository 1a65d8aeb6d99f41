"""stompcodec top: a running broker on a terminal, with keys and a screen, or as JSON."""

from __future__ import annotations

import codecs
import os
import re
import selectors
import signal
import socket
import sys
import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from stompcodec.cli import figures as numbers
from stompcodec.cli.app import INTERRUPTED
from stompcodec.cli.connecting import Stopped, broker_options, connected, report_reconnect, reporting_errors
from stompcodec.cli.figures import (
    BY_NAME,
    HELP,
    MOST_ROWS,
    VIEWS,
    Asker,
    CannotAskError,
    Choice,
    Column,
    Row,
    Snapshot,
    View,
    Wish,
    address_of,
)
from stompcodec.cli.inputs import complain, time_option
from stompcodec.cli.screen import cut, pad, printable, screen, write_json
from stompcodec.cli.streams import is_stuck, stop_on_signals
from stompcodec.errors import StompError
from stompcodec.shown import compact, duration, finite, octets

if TYPE_CHECKING:
    from stompcodec.client import Client

try:
    import termios
except ImportError:  # Windows: there are no keys, and Ctrl-C ends
    termios = None  # type: ignore[assignment]

#: Escape sequences of keys, without the ESC.
_SEQUENCES = {
    **{"[A": "up", "[B": "down", "[C": "right", "[D": "left", "[H": "home", "[F": "end", "[Z": "back-tab"},
    **{"OA": "up", "OB": "down", "OC": "right", "OD": "left", "OH": "home", "OF": "end"},
    **{"[5~": "page-up", "[6~": "page-down", "[1~": "home", "[7~": "home", "[4~": "end", "[8~": "end"},
}
_SINGLE = {"\r": "enter", "\n": "enter", "\t": "tab", "\x7f": "rubout", "\x08": "rubout", "\x1b": "escape"}
_KEY = re.compile(r"\x1b(\[[0-9;?]*[ -/]*[@-~]|O.)|(.)", re.DOTALL)
_UNFINISHED = re.compile(r"\x1b(\[[0-9;?]*[ -/]*|O)?\Z")
#: Seconds in which the rest of an escape sequence follows.
_REST = 0.05
_LONGEST = 64
SUSPEND = "\x1a"


def keys_of(text: str) -> tuple[list[str], str]:
    """Return the keys of what a terminal sent, and what may be the beginning of a further one.

    >>> keys_of("q\\x1b[A\\x1b[99~/ä\\x1b[")
    (['q', 'up', '/', 'ä'], '\\x1b[')
    """
    rest = ""
    unfinished = _UNFINISHED.search(text)
    if unfinished is not None and len(unfinished[0]) < _LONGEST:
        text, rest = text[: unfinished.start()], unfinished[0]
    found = []
    for match in _KEY.finditer(text):
        sequence, letter = match.groups()
        key = (
            _SEQUENCES.get(sequence, "") if sequence else "escape" if letter == "\x1b" else _SINGLE.get(letter, letter)
        )
        found += [key] if key else []
    return found, rest


class Terminal:
    """The keys of standard input, if that is a terminal. Other threads, and signals, end a wait by `wake`."""

    def __init__(self) -> None:
        self._near, self._far = socket.socketpair()
        self._near.setblocking(False)
        self._far.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._near, selectors.EVENT_READ)
        self._fd = sys.stdin.fileno() if termios is not None and sys.stdin.isatty() else None
        self._before: list[Any] | None = None
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""
        self._resize: Any = None
        if self._fd is not None:
            self._selector.register(self._fd, selectors.EVENT_READ)

    def __enter__(self) -> Terminal:
        if threading.current_thread() is threading.main_thread() and hasattr(signal, "SIGWINCH"):
            self._resize = signal.signal(signal.SIGWINCH, lambda _number, _frame: self.wake())
        self.take()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.give_back()
        if self._resize is not None:
            signal.signal(signal.SIGWINCH, self._resize)
        self._selector.close()
        self._near.close()
        self._far.close()

    def take(self) -> None:
        if self._fd is None:
            return
        self._before = termios.tcgetattr(self._fd)
        mode = termios.tcgetattr(self._fd)
        mode[3] &= ~(termios.ICANON | termios.ECHO)
        mode[6] = [*mode[6]]
        mode[6][termios.VMIN], mode[6][termios.VTIME] = 1, 0
        mode[6][termios.VSUSP] = b"\0"  # Ctrl-Z comes as a key, for the screen has to be left first
        termios.tcsetattr(self._fd, termios.TCSADRAIN, mode)

    def give_back(self) -> None:
        if self._fd is not None and self._before is not None:
            before, self._before = self._before, None
            with suppress(termios.error):  # it was closed
                termios.tcsetattr(self._fd, termios.TCSADRAIN, before)

    def wake(self) -> None:
        with suppress(OSError):  # full, so the wait ends anyway; or over
            self._far.send(b"x")

    def wait(self, timeout: float | None = None) -> list[str]:
        found: list[str] = []
        ready = self._selector.select(_REST if self._rest else timeout)
        for key, _ in ready:
            if key.fileobj is self._near:
                self._near.recv(4096)
            else:
                found += self._read()
        if not ready and self._rest:  # nothing followed
            found, self._rest = keys_of(self._rest + "\0")[0][:1], ""
        return found

    def _read(self) -> list[str]:
        assert self._fd is not None
        try:
            data = os.read(self._fd, 1024)
        except OSError:
            data = b""
        if not data:  # the terminal was closed
            self._selector.unregister(self._fd)
            return []
        found, self._rest = keys_of(self._rest + self._decoder.decode(data))
        return found


#: Lines around the rows of a table: three of the head, one of titles, one of the foot.
AROUND = 5
#: Rates that are remembered, of how many names.
_WIDTH, _MOST = 20, 4000
#: The least width of names.
_NAMES = 20


class History:
    """The last rates of the broker and of the destinations that were shown."""

    def __init__(self) -> None:
        self.messages: deque[float] = deque(maxlen=_WIDTH)
        self._rates: OrderedDict[str, deque[float]] = OrderedDict()

    def add(self, shown: Snapshot) -> None:
        rate = finite(shown.broker.get("messages_rate"))
        if rate is not None:
            self.messages.append(rate)
        for row in shown.rows:
            rate, name = finite(row.get("received_rate")), shown.wish.view.name_of(row)
            if rate is not None:
                self._rates.setdefault(name, deque(maxlen=_WIDTH)).append(rate)
                self._rates.move_to_end(name)
        while len(self._rates) > _MOST:
            self._rates.popitem(last=False)

    def rates(self, name: str) -> deque[float]:
        return self._rates.get(name, deque())


def head(shown: Snapshot, history: History, address: str, trouble: str | None, width: int) -> list[Text]:
    broker, store = shown.broker, shown.store
    first = Text(
        cut(f"stompcodec {numbers.text(broker.get('version'))} at {printable(address)}", max(20, width // 2)), "bold"
    )
    first.append(f"  up {numbers.seconds(broker.get('uptime'))}", "not bold")
    for name in ("sessions", "queues", "topics", "subscriptions"):
        first.append(f"  {name} ", "not bold dim").append(compact(broker.get(name)), "not bold")
    second = Text("messages ", "dim").append(f"{compact(broker.get('messages_rate'))}/s ", "bold not dim")
    second.append(numbers.sparkline(history.messages, 12).strip(), "cyan not dim")
    used, limit = broker.get("memory_used"), broker.get("memory_limit")
    second.append("  memory ").append(numbers.bar(used, limit, 10), "green not dim")
    second.append(f" {octets(used)} of {octets(limit)}", "not dim").append("  store ")
    second.append(_store(store), "not dim")
    for sign, words in (("behind", "the disk is slow"), ("refusing", "the disk is nearly full")):
        if store.get(sign) is True:
            second.append(f", {words}", "bold red not dim")
    lines = [first, second, _third(shown, trouble)]
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return lines


def _store(store: Row) -> str:
    if store.get("kind") in ("none", None):
        return "none"
    last, most = (duration(store.get(name)) for name in ("commit_time", "commit_time_most"))
    took = "" if last == numbers.UNKNOWN else f", commit {last}, longest {most}"
    return f"{numbers.text(store.get('kind'))} {octets(store.get('bytes'))}{took}"


def _third(shown: Snapshot, trouble: str | None) -> Text:
    if trouble is not None:
        return Text(printable(trouble[:300]), "bold red")
    wish = shown.wish
    line = Text(wish.view.name, "bold").append(f" by {wish.sort.replace('_', ' ')}", "not bold")
    if wish.match:
        line.append(f", names with {printable(wish.match)}", "not bold yellow")
    if wish.page:
        line.append(f", page {wish.page + 1}", "not bold")
    if shown.partial:
        line.append(f", of the first {MOST_ROWS:,} that the broker lists", "not bold yellow")
    return line


def table(shown: Snapshot, history: History, width: int, selected: int | None = None) -> list[Text]:
    view = shown.wish.view
    columns = _fitting(view, width)
    names = width - sum(column.width + 1 for column in columns)
    marked = "▾" if shown.wish.sort == BY_NAME else ""
    titles = pad(" ".join(view.names) + marked, names)
    for column in columns:
        titles += f" {_aligned(column.title + '▾' * (column.field == shown.wish.sort), column)}"
    lines = [Text(titles, "reverse")]
    for number, row in enumerate(shown.rows):
        name = view.name_of(row)
        line = Text(pad(name, names))
        for column in columns:
            line.append(" ")
            line.append(_aligned(_cell(column, row, history, name), column), _style(column, row))
        if number == selected:
            line.stylize("bold underline")
        lines.append(line)
    if not shown.rows:
        lines.append(Text("nothing matches" if shown.wish.match else "there are none", "dim"))
    return lines


def _fitting(view: View, width: int) -> list[Column]:
    columns = [column for column in view.columns if column.need <= width]
    while columns and width - sum(column.width + 1 for column in columns) < _NAMES:
        columns.pop()
    return columns


def _aligned(cell: str, column: Column) -> str:
    if column.show in (numbers.text, str) or not column.field:
        return pad(cell, column.width)
    return cut(cell, column.width).rjust(column.width)


def _cell(column: Column, row: Row, history: History, name: str) -> str:
    if column.field == "rates":
        return numbers.sparkline(history.rates(name), column.width)
    return column.show(row.get(column.field) if column.field else row)


def _style(column: Column, row: Row) -> str:
    value = finite(row.get(column.field)) or 0
    if column.field == "dead_letters" and value:
        return "red"
    if column.field == "ready" and value:
        return "yellow" if not row.get("consumers") else "bold"
    if column.field == "rates":
        return "cyan"
    return "" if value or column.show in (numbers.text, numbers.seconds) or not column.field else "dim"


def screen_of(
    shown: Snapshot | None, choice: Choice, history: History, address: str, trouble: str | None, width: int, height: int
) -> list[Text]:
    if shown is None:
        return [Text(cut(printable(trouble or f"asking the broker at {address}"), width))]
    current = shown.wish == choice.wish()
    lines = head(shown, history, address, trouble, width)
    if choice.helping:
        view = choice.view
        sorts = ", ".join(f"{column.key} {column.title}" for column in view.columns if column.key)
        told = [*HELP[:3], ("capitals", f"sort {view.name} by {sorts}"), *HELP[3:]]
        lines += [Text(), *(Text(f"{keys:12}", "bold").append(what, "not bold") for keys, what in told)]
    else:
        row = min(choice.row, max(0, len(shown.rows) - 1))
        lines += table(shown, history, width, row if current else None)
        selected = shown.wish.view.name_of(shown.rows[row]) if shown.rows else ""
    lines = lines[: height - 1]
    lines += [Text()] * (height - 1 - len(lines))
    foot = _foot(choice, selected if not choice.helping else "", current)
    foot.truncate(width, overflow="ellipsis")
    for line in lines:
        line.truncate(width)
    return [*lines, foot]


def _foot(choice: Choice, selected: str, current: bool) -> Text:
    if choice.typed is not None:
        return Text(f"/{printable(choice.typed)}█  ", "bold").append("Enter filters, Esc leaves it", "not bold dim")
    keys = "q quit  ? help  / filter" if current else "asking …"
    return Text(f"{keys}  ", "dim").append(selected, "not dim")


#: The least seconds over which the broker takes a rate.
_LEAST = 1.0
#: Seconds between two attempts to ask a broker that does not answer.
_AGAIN = 0.5


class Connection:
    """The state of the connection: an `on_state` of clients."""

    def __init__(self) -> None:
        self.lost: str | None = None
        """Why the connection was lost; None while there is one."""
        self.changed: Callable[[], None] = lambda: None
        self.report = False
        """Lost connections are reported on standard error."""

    def __call__(self, state: str, error: Exception | None) -> None:
        self.lost = None if state == "connected" else str(error) if error is not None else state
        if self.report:
            report_reconnect(state, error)
        self.changed()


class Watcher:
    """Asks in a thread of its own: each interval, and whenever the wish changes."""

    def __init__(self, client: Client, asker: Asker, wish: Wish, interval: float, changed: Callable[[], None]) -> None:
        self._client = client
        self._asker = asker
        self._interval = interval
        self._changed = changed
        self._look = threading.Event()
        self._over = False
        self.wish = wish
        self.shown: Snapshot | None = None
        self.answers = 0
        self.error: BaseException | None = None
        """What ended it."""
        self.silence: str | None = None
        """Why the last question has no answer."""
        self._thread = threading.Thread(target=self._run, name="stompcodec-top", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._over = True
        self._look.set()

    def look(self, wish: Wish, *, now: bool = False) -> None:
        if wish != self.wish or now:
            self.wish = wish
            self._look.set()

    def _run(self) -> None:
        while not self._over:
            self._look.clear()
            try:
                self.shown = self._asker.ask(self.wish)
                self.answers, self.silence = self.answers + 1, None
                rest = self._interval
            except StompError as error:
                if self.shown is None or self._client.state == "closed":
                    self.error = error
                self.silence, rest = str(error), _AGAIN
            except BaseException as error:  # the main thread raises it
                self.error = error
            self._changed()
            if self.error is not None:
                return
            self._look.wait(rest)


def show(console: Console, shown: Snapshot, history: History, address: str) -> None:
    history.add(shown)
    for line in (*head(shown, history, address, None, console.width), *table(shown, history, console.width)):
        line.rstrip()
        console.print(line, soft_wrap=True)


class Stream:
    """Writes a snapshot each interval. A lost connection leaves some out."""

    def __init__(
        self, client: Client, connection: Connection, asker: Asker, wish: Wish, write: Callable[[Snapshot], None]
    ) -> None:
        self._client = client
        self._connection = connection
        self._asker = asker
        self._wish = wish
        self._write = write
        self._look = threading.Event()
        self._stopped = False
        self._written = 0
        self._silence: str | None = None

    def run(self, interval: float, *, once: bool) -> bool:
        """Write every `interval` seconds, or `once` after the second; return whether one was. Raises as `Asker.ask`."""
        wait = max(interval, _LEAST) if once else interval
        watcher = Watcher(self._client, self._asker, self._wish, wait, self._look.set)
        with stop_on_signals(self._stop):
            watcher.start()
            try:
                while not self._stopped and not (once and self._written):
                    self._look.wait()
                    self._look.clear()
                    if not self._stopped:
                        self._take(watcher, after=1 if once else 0)
            except OSError:
                if not is_stuck():  # by then a signal has ended it
                    raise
            finally:
                watcher.stop()
        return bool(self._written)

    def _stop(self) -> None:
        self._stopped = True
        self._look.set()

    def _take(self, watcher: Watcher, after: int) -> None:
        """Write the latest answer if it is new, and not one of the first `after`."""
        if watcher.error is not None:
            raise watcher.error
        if watcher.silence != self._silence:
            self._silence = watcher.silence
            if self._silence is not None and self._client.state == "connected":  # a lost connection was reported
                complain(f"{printable(self._silence)}; asking again")
        if watcher.shown is not None and watcher.answers > max(self._written, after):
            self._written, self._connection.report = watcher.answers, True
            self._write(watcher.shown)
            sys.stdout.flush()


class Screen:
    """The screen of a terminal, which keys change."""

    def __init__(
        self, console: Console, client: Client, asker: Asker, choice: Choice, connection: Connection, address: str
    ) -> None:
        self._console = console
        self._client = client
        self._asker = asker
        self._choice = choice
        self._connection = connection
        self._address = address
        self._history = History()
        self._stopped = False
        self._answers = 0

    def run(self, interval: float) -> bool:
        """Show it until a key or a signal ends it. Return whether there was anything to show. Raises as `Asker.ask`."""
        with Terminal() as terminal:
            self._choice.fit(self._console.height - AROUND)
            watcher = Watcher(self._client, self._asker, self._choice.wish(), interval, terminal.wake)
            self._connection.changed = terminal.wake

            def stop() -> None:
                self._stopped = True
                terminal.wake()

            live = Live(console=self._console, screen=True, auto_refresh=False, redirect_stdout=False)
            with stop_on_signals(stop):
                watcher.start()
                try:
                    while watcher.shown is None and watcher.error is None and not self._stopped:
                        terminal.wait()  # before the screen is taken, for the first answer may be a refusal
                    if watcher.error is None and not self._stopped:
                        with live:
                            self._loop(watcher, terminal, live)
                except OSError:
                    if not is_stuck():  # by then a signal has ended it
                        raise
                finally:
                    watcher.stop()
                    self._connection.changed = lambda: None
        if watcher.error is not None and not self._stopped:
            raise watcher.error
        return watcher.shown is not None

    def _loop(self, watcher: Watcher, terminal: Terminal, live: Live) -> None:
        while not self._stopped and watcher.error is None:
            self._draw(watcher, live)
            for key in terminal.wait():
                if key == SUSPEND:
                    self._suspend(terminal, live)
                elif not self._choice.press(key, watcher.shown):
                    return
                watcher.look(self._choice.wish(), now=key == " " and self._choice.typed is None)

    def _draw(self, watcher: Watcher, live: Live) -> None:
        width, height = self._console.size
        self._choice.fit(height - AROUND)
        watcher.look(self._choice.wish())
        shown = watcher.shown
        if shown is not None and watcher.answers != self._answers:
            self._answers = watcher.answers
            self._history.add(shown)
        lost = self._connection.lost
        trouble = watcher.silence if lost is None else f"reconnecting: {lost}"
        lines = screen_of(shown, self._choice, self._history, self._address, trouble, width, height)
        live.update(Group(*lines), refresh=True)

    def _suspend(self, terminal: Terminal, live: Live) -> None:
        """Leave the screen, stop as Ctrl-Z does, and come back."""
        live.stop()
        terminal.give_back()
        os.kill(os.getpid(), signal.SIGSTOP)
        terminal.take()
        live.start()


_LEAST_INTERVAL = 0.1


def _checked_sort(view: str, sort: str | None) -> str:
    known = (BY_NAME, *VIEWS[view].sorts)
    if sort is None:
        return VIEWS[view].sort
    if sort not in known:
        raise click.BadParameter(f"{sort!r}: {view} can be sorted by {', '.join(known)}", param_hint="'--sort'")
    return sort


@click.command("top")
@click.option(
    "--view", type=click.Choice(list(VIEWS)), default="destinations", show_default=True, help="What the table lists."
)
@click.option("-s", "--sort", metavar="COLUMN", help="Show the highest of this column first; or name.")
@click.option("--match", metavar="TEXT", help="Show only names with TEXT; * stands for any characters.")
@time_option("-i", "--interval", default=2.0, least=_LEAST_INTERVAL, help="How often to ask.")
@click.option("--once", is_flag=True, help="Ask twice, an interval apart for the rates, show it and end.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object each interval.")
@broker_options
def command(
    view: str,
    sort: str | None,
    match: str | None,
    interval: float,
    once: bool,
    as_json: bool,
    **broker: Any,
) -> None:
    """Show what a broker is doing: rates, destinations, sessions, subscriptions.

    It asks the management of our broker, which its rules must allow. On a terminal, ? lists the keys and q ends.
    Elsewhere a table follows the other.

    \b
      stompcodec top --url broker:61613
      stompcodec top --sort received_rate --match /queue/orders.*
      stompcodec top --once --json | jq '.rows[] | select(.ready > 1000)'
    """
    choice = Choice(VIEWS[view], _checked_sort(view, sort), match, MOST_ROWS)
    try:
        with reporting_errors():
            _run(choice, interval, once, as_json, broker)
    except CannotAskError as error:
        complain(str(error))
        sys.exit(1)


def _run(choice: Choice, interval: float, once: bool, as_json: bool, broker: dict[str, Any]) -> None:
    from stompcodec.client import Backoff

    console, connection, history, stopped = screen(), Connection(), History(), Stopped()
    broker |= {"reconnect": Backoff(most=2.0), "on_state": connection}
    with stop_on_signals(stopped.set), connected(stopped, **broker) as client:
        asker, address = Asker(client, broker["timeout"]), address_of(client)

        def write(shown: Snapshot) -> None:
            if as_json:
                write_json(shown.json())
                return
            show(console, shown, history, address)
            if not once:
                console.print()

        if not once and not as_json and sys.stdout.isatty() and os.environ.get("TERM") != "dumb":
            was_shown = Screen(console, client, asker, choice, connection, address).run(interval)
        else:
            was_shown = Stream(client, connection, asker, choice.wish(), write).run(interval, once=once)
    if not was_shown:
        sys.exit(INTERRUPTED)
