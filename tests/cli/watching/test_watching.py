"""The parts of `stompcodec top` without sockets: what is asked, what keys do, what is drawn."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("click")
pytest.importorskip("rich")

from broker.management.managing import Managed

from stompcodec.broker.management.schema import REQUESTS, SORTS
from stompcodec.cli.watching import figures as views
from stompcodec.cli.watching.figures import (
    BY_NAME,
    HELP,
    MOST_ROWS,
    VIEWS,
    Asker,
    CannotAskError,
    Choice,
    Snapshot,
    View,
    Wish,
    pattern_of,
)
from stompcodec.cli.watching.terminal import History, keys_of, screen_of

NASTY = "\x1b[2J\x9b\u202e\n"


class Client:
    """A client of a broker in this process, which notes what it is asked."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.connected = {"server": "stompcodec/0"}
        self.dialect = "stompcodec"

    def request(self, destination: str, body: str, timeout: float) -> SimpleNamespace:
        name, fields = destination.removeprefix("/management/"), json.loads(body)
        self.asked.append((name, fields))
        return SimpleNamespace(body=json.dumps(self.answer(name, fields)).encode())


def asker(client: Client) -> Asker:
    return Asker(client, "/management/", 1.0)  # type: ignore[arg-type]


def wish(
    view: View = views.DESTINATIONS, sort: str = "ready", match: str | None = None, page: int = 0, limit: int = 20
):
    return Wish(view, sort, match, page, limit)


@pytest.fixture(scope="module")
def many() -> Managed:
    """A broker with some 10,000 queues, of which four have 49 messages, four 48, and so on."""
    bench = Managed(max_destinations=20_000, session_destinations=20_000)
    peer = bench.peer()
    counts = [number % 50 if number < 200 else 1 for number in range(10_000)]
    frames = (peer.octets_of("SEND", destination=f"/queue/{at:05}") * count for at, count in enumerate(counts) if count)
    peer.raw(b"".join(frames))
    return bench


def answer_of(bench: Managed) -> Any:
    return lambda name, fields: bench.management.ask(name, **fields)


# ---- the tables and the broker's schema ----


@pytest.mark.parametrize("view", VIEWS.values(), ids=lambda view: view.name)
def test_views_name_fields_that_the_broker_has(view: View) -> None:
    known = {column.name: column.kind for column in REQUESTS[view.name].columns}
    assert {column.field for column in view.columns} - {"", "rates"} <= set(known)
    assert {*view.names, *view.sorts, view.sort} <= set(known)
    assert {column.field for column in view.columns if column.key} <= set(view.sorts)
    assert all(known[field].startswith(("whole", "number")) for field in view.sorts)
    assert view.sorts == SORTS or not view.by_broker
    keys = ["N", *(column.key for column in view.columns if column.key), *(each.key for each in VIEWS.values())]
    assert len(keys) == len(set(keys))


# ---- what is asked ----


@pytest.mark.long
def test_many_destinations_are_asked_for_by_the_page(many: Managed) -> None:
    client = Client(answer_of(many))
    ask = asker(client).ask
    seen: list[str] = []
    for page in range(3):
        client.asked.clear()
        shown = ask(wish(page=page))
        assert [name for name, _ in client.asked] == ["broker", "store", "destinations"]
        assert client.asked[-1][1].items() >= {"limit": 20, "sort": "ready"}.items()
        assert (len(shown.rows), shown.more, shown.partial) == (20, True, False)
        seen += [row["destination"] for row in shown.rows]
    assert len(seen) == len(set(seen)) == 60
    rows = many.management.ask("destinations", sort="ready", limit=60)["rows"]
    assert seen == [row["destination"] for row in rows]
    assert [row["ready"] for row in rows[:5]] == [49, 49, 49, 49, 48]


def test_a_page_back_and_another_list(many: Managed) -> None:
    client = Client(answer_of(many))
    ask = asker(client).ask
    pages = [[row["destination"] for row in ask(wish(sort=BY_NAME, page=page, limit=3)).rows] for page in (0, 1, 0)]
    assert pages == [[f"/queue/{number:05}" for number in at] for at in ((1, 2, 3), (4, 5, 6), (1, 2, 3))]
    assert "sort" not in client.asked[-1][1]
    shown = ask(wish(sort=BY_NAME, page=1, limit=3, match="09999"))  # the page of another list is not known
    assert [row["destination"] for row in shown.rows] == ["/queue/09999"]
    assert not shown.more
    assert client.asked[-1][1] == {"limit": 3, "match": "*09999*"}


def test_sessions_are_sorted_and_filtered_here() -> None:
    rows = [
        {"peer": f"10.0.0.{number}:1", "user": "ann?" if number % 2 else "[x]", "age": number} for number in range(9)
    ]
    answers = {"broker": {"result": {}}, "store": {"result": {}}, "sessions": {"rows": rows, "next": "more"}}
    client = Client(lambda name, fields: answers[name])
    ask = asker(client).ask
    shown = ask(wish(views.SESSIONS, "age", limit=4))
    assert [row["age"] for row in shown.rows] == [8, 7, 6, 5]
    assert (shown.more, shown.partial, client.asked[-1][1]) == (True, True, {"limit": MOST_ROWS})
    assert [row["age"] for row in ask(wish(views.SESSIONS, "age", page=2, limit=4)).rows] == [0]
    assert [row["age"] for row in ask(wish(views.SESSIONS, BY_NAME, limit=4)).rows] == [0, 1, 2, 3]
    assert [row["age"] for row in ask(wish(views.SESSIONS, "age", "ann?", limit=9)).rows] == [7, 5, 3, 1]
    assert [row["age"] for row in ask(wish(views.SESSIONS, "age", "*[x]", limit=9)).rows] == [8, 6, 4, 2, 0]
    assert ask(wish(views.SESSIONS, "age", "annx", limit=9)).rows == []


@pytest.mark.parametrize(
    "answer",
    [
        7,
        [],
        {},
        {"result": 5, "rows": []},
        {"result": {}, "rows": 5},
        {"result": {}, "rows": [5]},
        {"rows": [{}]},
        {"result": {}, "rows": [], "time": float("nan")},
    ],
    ids=str,
)
def test_what_is_no_answer_of_management(answer: Any) -> None:
    with pytest.raises(CannotAskError, match="something else than the management"):
        asker(Client(lambda name, fields: answer)).ask(wish())


def test_after_a_failover_to_another_broker_nothing_is_sent(many: Managed) -> None:
    client = Client(answer_of(many))
    ask = asker(client).ask
    ask(wish())
    client.connected, client.dialect = {"server": "ActiveMQ-Artemis/2.31.0"}, "artemis"
    client.asked.clear()
    with pytest.raises(CannotAskError, match="has no management over STOMP"):
        ask(wish())
    assert client.asked == []
    client.connected = {"server": "stompcodec/0.1.0 as artemis"}
    assert ask(wish()).rows


def test_missing_rights_are_named_together(many: Managed) -> None:
    def some(name: str, fields: dict[str, Any]) -> Any:
        refused = {"error": {"field": "destination", "message": "not allowed: no rule allows it"}}
        return refused if name != "broker" else answer_of(many)(name, fields)

    with pytest.raises(CannotAskError) as raised:
        asker(Client(some)).ask(wish())
    assert str(raised.value) == (
        "/management/store, /management/destinations: not allowed: no rule allows it (the broker needs a rule for this "
        'user with action = "manage" and destination = "/management/*", or one for each of these)'
    )


# ---- keys ----


def test_keys_come_in_pieces() -> None:
    text = "q\x1b[A\x1b[5~\x1bOBé/\x7f\r\t\x1b[1;5C\x1b[Z"
    wanted = ["q", "up", "page-up", "down", "é", "/", "rubout", "enter", "tab", "back-tab"]
    for size in range(1, len(text)):
        found, rest = [], ""
        for at in range(0, len(text), size):
            keys, rest = keys_of(rest + text[at : at + size])
            found += keys
        assert (found, rest) == (wanted, "")
    assert keys_of("\x1b[" + "1" * 1000)[1] == ""  # nothing is kept without bound


def snapshot(wish: Wish, count: int, more: bool) -> Snapshot:
    rows = [{"destination": f"/queue/{number}", "ready": number} for number in range(count)]
    return Snapshot(wish, 1.0, {}, {}, rows, more, False)


def test_keys_move_through_rows_and_pages() -> None:
    choice = Choice(views.DESTINATIONS, "ready", None, 3)
    places = []
    for key in ("down", "down", "down", "k", "up", "up", "page-down", "page-down", "b", "end", "home", "page-up"):
        assert choice.press(key, snapshot(choice.wish(), 3, more=choice.page < 2))
        places.append((choice.page, choice.row))
    assert places == [
        *((0, 1), (0, 2), (1, 0), (0, 2), (0, 1), (0, 0)),
        *((1, 0), (2, 0), (1, 0), (1, 2), (0, 0), (0, 0)),
    ]


def test_keys_sort_and_each_view_keeps_its_order() -> None:
    choice = Choice(views.DESTINATIONS, "ready", None, 3)
    seen = []
    for key in ("right", ">", "left", "<", "<", "<", "O", "s", "A", "d", "tab", "back-tab", "N"):
        choice.press(key, None)
        seen.append((choice.view.key, choice.sort))
    assert [sort for _, sort in seen[:7]] == [
        *("unacknowledged", "received_rate", "unacknowledged", "ready", "name", "name", "delivered_rate")
    ]
    assert seen[7:] == [
        *(("s", "unacknowledged"), ("s", "age"), ("d", "delivered_rate"), ("s", "age"), ("d", "delivered_rate")),
        ("d", "name"),
    ]


def test_a_filter_is_typed() -> None:
    choice = Choice(views.DESTINATIONS, "ready", None, 3)
    choice.page = 4
    for key in ("/", "q", "x", "rubout", "s", "enter"):
        assert choice.press(key, None)  # q is a letter here
    assert (choice.match, choice.page, choice.typed) == ("qs", 0, None)
    for key in ("/", "!", "escape"):
        choice.press(key, None)
    assert (choice.match, choice.typed) == ("qs", None)
    for key in ("/", "\x15", "enter"):
        choice.press(key, None)
    assert choice.match is None
    choice.press("/", None)
    for _ in range(1000):
        choice.press("a", None)
    assert len(choice.typed or "") == 200
    assert pattern_of("a*") == "a*"


def test_the_help_names_each_key() -> None:
    text = " ".join(keys for keys, _ in HELP)
    assert all(view.key in text.split() for view in VIEWS.values())
    choice = Choice(views.DESTINATIONS, "ready", None, 3)
    assert choice.press("?", None)
    assert choice.helping
    shown = "\n".join(
        line.plain for line in screen_of(snapshot(choice.wish(), 1, False), choice, History(), "a", None, 120, 40)
    )
    assert "PgUp" in shown
    assert all(f"{column.key} {column.title}" in shown for column in choice.view.columns if column.key)
    assert choice.press("x", None)
    assert not choice.helping


# ---- what is drawn ----

HOSTILE: list[Any] = [
    NASTY, None, True, -1, 10**400, float("nan"), float("inf"), 1e308, [], {"a": NASTY}, "x" * 100_000, "漢" * 300, ""
]  # fmt: skip


@pytest.mark.parametrize("view", VIEWS.values(), ids=lambda view: view.name)
@pytest.mark.parametrize("width", [1, 20, 80, 250])
def test_hostile_answers_neither_break_nor_steer_the_screen(view: View, width: int) -> None:
    names = [column.name for column in REQUESTS[view.name].columns]
    rows = [dict.fromkeys(names, value) for value in HOSTILE]
    whole = [
        {name: value for name in [column.name for column in REQUESTS[part].columns]}
        for part in ("broker", "store")
        for value in HOSTILE
    ]
    choice, history = Choice(view, view.sort, NASTY, 50), History()
    for broker, store in zip(whole[: len(HOSTILE)], whole[len(HOSTILE) :]):
        shown = Snapshot(choice.wish(), 1.0, broker, store, rows, True, True)
        history.add(shown)
        lines = screen_of(shown, choice, history, NASTY.replace("\n", ""), NASTY, width, 30)
        assert len(lines) == 30
        for line in lines:
            assert line.cell_len <= width
            assert line.plain.isprintable(), line.plain


def test_a_table_that_is_wider_shows_more() -> None:
    choice = Choice(views.DESTINATIONS, "ready", None, 3)
    titles = []
    for width in (60, 80, 120, 160):
        lines = screen_of(snapshot(choice.wish(), 1, False), choice, History(), "a:1", None, width, 20)
        titles.append(lines[3].plain.split())
    assert titles[0] == ["destination", "ready▾", "unacked", "in/s", "out/s"]
    assert "oldest" in titles[1]
    assert "memory" in titles[2]
    assert titles[3][-1] == "state"


def test_history_is_bounded() -> None:
    history = History()
    for number in range(5):
        rows = [{"destination": f"/queue/{number}-{row}", "received_rate": 1.0} for row in range(1000)]
        history.add(Snapshot(wish(), 1.0, {"messages_rate": 1.0}, {}, rows, False, False))
    assert (len(history.rates("/queue/0-5")), len(history.rates("/queue/4-5"))) == (0, 1)
