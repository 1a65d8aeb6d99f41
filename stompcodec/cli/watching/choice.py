"""What the user has chosen to see, and how keys change it."""

from __future__ import annotations

from stompcodec.cli.watching.asking import MOST_ROWS, Snapshot, Wish
from stompcodec.cli.watching.views import BY_NAME, VIEWS, View

#: The longest filter that can be typed.
_LONGEST = 200

#: The keys of all views, for the help.
HELP = (
    ("d  s  u", "show destinations, sessions, subscriptions; Tab shows the next of them"),
    ("← →  < >", "sort by the column to the left or right"),
    ("N", "sort by name, in the order of the broker"),
    ("/", "filter by name: * stands for any characters; an empty filter shows all"),
    ("↑ ↓", "select a row, whose name is shown in full; also k and j"),
    ("PgUp PgDn", "show the page before or the next one; also b and f"),
    ("Home", "show the first page"),
    ("Space", "ask at once"),
    ("?", "show or hide this help"),
    ("q", "quit; also Ctrl-C"),
)


class Choice:
    """View, order, filter, page, and selected row.

    >>> choice = Choice(VIEWS["destinations"], "ready", None, 20)
    >>> [choice.press(key, None) for key in ("I", "/", "a", "enter", "q")], choice.wish().sort, choice.match
    ([True, True, True, True, False], 'received_rate', 'a')
    """

    def __init__(self, view: View, sort: str, match: str | None, limit: int) -> None:
        self.view = view
        self.match = match
        self.page = 0
        self.row = 0
        """The selected row of the page."""
        self.limit = limit
        self.helping = False
        self.typed: str | None = None
        """The filter as far as it is typed; None if none is being typed."""
        self._sorts = {each.name: each.sort for each in VIEWS.values()} | {view.name: sort}

    @property
    def sort(self) -> str:
        """The field by which the view is sorted."""
        return self._sorts[self.view.name]

    def wish(self) -> Wish:
        """Return what to ask for."""
        return Wish(self.view, self.sort, self.match, self.page, self.limit)

    def fit(self, limit: int) -> None:
        """Set the rows of a page."""
        limit = max(1, min(limit, MOST_ROWS))
        if limit != self.limit:
            self.limit, self.page, self.row = limit, 0, 0

    def press(self, key: str, shown: Snapshot | None) -> bool:
        """Do what a key says; return False if it is to end. `shown` is what is on the screen."""
        if self.typed is not None:
            self._type(key)
        elif self.helping:
            self.helping = False
            return key != "q"
        elif key == "q":
            return False
        elif key in ("?", "h"):
            self.helping = True
        elif key == "/":
            self.typed = self.match or ""
        elif not self._change_view(key):
            self._change_sort(key)
            self._move(key, shown)
        return True

    def _type(self, key: str) -> None:
        assert self.typed is not None
        if key == "enter":
            self.match, self.typed, self.page, self.row = self.typed or None, None, 0, 0
        elif key == "escape":
            self.typed = None
        elif key == "rubout":
            self.typed = self.typed[:-1]
        elif key == "\x15":
            self.typed = ""
        elif len(key) == 1 and key.isprintable() and len(self.typed) < _LONGEST:
            self.typed += key

    def _change_view(self, key: str) -> bool:
        views = list(VIEWS.values())
        view = next((each for each in views if each.key == key), None)
        if key in ("tab", "back-tab"):
            view = views[(views.index(self.view) + (1 if key == "tab" else -1)) % len(views)]
        if view is not None:
            self.view, self.page, self.row = view, 0, 0
        return view is not None

    def _change_sort(self, key: str) -> None:
        fields = [BY_NAME, *(column.field for column in self.view.columns if column.field in self.view.sorts)]
        sort = self.view.sort_keys().get(key)
        step = {"left": -1, "<": -1, "right": 1, ">": 1}.get(key)
        if step is not None:
            at = fields.index(self.sort) if self.sort in fields else 0
            sort = fields[min(max(at + step, 0), len(fields) - 1)]
        if sort is not None:
            self._sorts[self.view.name], self.page, self.row = sort, 0, 0

    def _move(self, key: str, shown: Snapshot | None) -> None:
        last = 0 if shown is None else max(0, len(shown.rows) - 1)
        more = shown is not None and shown.more and shown.wish == self.wish()
        if key in ("down", "j"):
            if self.row < last:
                self.row += 1
            elif more:
                self.page, self.row = self.page + 1, 0
        elif key in ("up", "k"):
            if self.row:
                self.row -= 1
            elif self.page:
                self.page, self.row = self.page - 1, self.limit - 1
        elif key in ("page-down", "f") and more:
            self.page, self.row = self.page + 1, 0
        elif key in ("page-up", "b") and self.page:
            self.page, self.row = self.page - 1, 0
        elif key == "home":
            self.page, self.row = 0, 0
        elif key == "end":
            self.row = last
