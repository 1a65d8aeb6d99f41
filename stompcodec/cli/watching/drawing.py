"""The screen: head, table and foot as lines of text, each of them as wide as the terminal at most."""

from __future__ import annotations

from collections import OrderedDict, deque

from rich.text import Text

from stompcodec.cli.screen import cut, pad, printable
from stompcodec.cli.watching import numbers
from stompcodec.cli.watching.asking import MOST_ROWS, Snapshot
from stompcodec.cli.watching.choice import HELP, Choice
from stompcodec.cli.watching.views import BY_NAME, Column, Row, View

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
        """Note the rates of a snapshot."""
        rate = numbers.number_of(shown.broker.get("messages_rate"))
        if rate is not None:
            self.messages.append(rate)
        for row in shown.rows:
            rate, name = numbers.number_of(row.get("received_rate")), shown.wish.view.name_of(row)
            if rate is not None:
                self._rates.setdefault(name, deque(maxlen=_WIDTH)).append(rate)
                self._rates.move_to_end(name)
        while len(self._rates) > _MOST:
            self._rates.popitem(last=False)

    def rates(self, name: str) -> deque[float]:
        """Return the rates in of a destination."""
        return self._rates.get(name, deque())


def head(shown: Snapshot, history: History, address: str, trouble: str | None, width: int) -> list[Text]:
    """Return the three lines above the table."""
    broker, store = shown.broker, shown.store
    first = Text(
        cut(f"stompcodec {numbers.text(broker.get('version'))} at {printable(address)}", max(20, width // 2)), "bold"
    )
    first.append(f"  up {numbers.seconds(broker.get('uptime'))}", "not bold")
    for name in ("sessions", "queues", "topics", "subscriptions"):
        first.append(f"  {name} ", "not bold dim").append(numbers.count(broker.get(name)), "not bold")
    second = Text("messages ", "dim").append(f"{numbers.rate(broker.get('messages_rate'))}/s ", "bold not dim")
    second.append(numbers.sparkline(history.messages, 12).strip(), "cyan not dim")
    used, limit = broker.get("memory_used"), broker.get("memory_limit")
    second.append("  memory ").append(numbers.bar(used, limit, 10), "green not dim")
    second.append(f" {numbers.size(used)} of {numbers.size(limit)}", "not dim").append("  store ")
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
    last, most = (numbers.milliseconds(store.get(name)) for name in ("commit_time", "commit_time_most"))
    took = "" if last == numbers.UNKNOWN else f", commit {last}, longest {most}"
    return f"{numbers.text(store.get('kind'))} {numbers.size(store.get('bytes'))}{took}"


def _third(shown: Snapshot, trouble: str | None) -> Text:
    """Return the line that says what the table shows, or why it is old."""
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
    """Return the titles and rows of a table."""
    view = shown.wish.view
    columns = _fitting(view, width)
    names = width - sum(column.width + 1 for column in columns)
    marked = "▾" if shown.wish.sort == BY_NAME else ""
    titles = pad(" ".join(view.names) + marked, names)
    titles += "".join(f" {_aligned(_title(column, shown.wish.sort), column)}" for column in columns)
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
    """Return the columns that leave room for names."""
    columns = [column for column in view.columns if column.need <= width]
    while columns and width - sum(column.width + 1 for column in columns) < _NAMES:
        columns.pop()
    return columns


def _title(column: Column, sort: str) -> str:
    return column.title + ("▾" if column.field == sort else "")


def _aligned(cell: str, column: Column) -> str:
    if column.show in (numbers.text, str) or not column.field:
        return pad(cell, column.width)
    return cut(cell, column.width).rjust(column.width)


def _cell(column: Column, row: Row, history: History, name: str) -> str:
    if column.field == "rates":
        return numbers.sparkline(history.rates(name), column.width)
    return column.show(row.get(column.field) if column.field else row)


def _style(column: Column, row: Row) -> str:
    value = numbers.number_of(row.get(column.field)) or 0
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
    """Return all lines of the screen."""
    if shown is None:
        return [Text(cut(printable(trouble or f"asking the broker at {address}"), width))]
    current = shown.wish == choice.wish()
    lines = head(shown, history, address, trouble, width)
    if choice.helping:
        lines += [Text(), *(Text(f"{keys:12}", "bold").append(what, "not bold") for keys, what in _help(choice.view))]
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


def _help(view: View) -> list[tuple[str, str]]:
    sorts = [f"{column.key} {column.title}" for column in view.columns if column.key]
    keys = [*HELP[:3], ("capitals", f"sort {view.name} by " + ", ".join(sorts)), *HELP[3:]]
    return keys


def _foot(choice: Choice, selected: str, current: bool) -> Text:
    if choice.typed is not None:
        return Text(f"/{printable(choice.typed)}█  ", "bold").append("Enter filters, Esc leaves it", "not bold dim")
    keys = "q quit  ? help  / filter" if current else "asking …"
    return Text(f"{keys}  ", "dim").append(selected, "not dim")
