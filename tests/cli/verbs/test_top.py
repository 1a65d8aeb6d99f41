"""stompcodec top: what is asked, what keys do, what is drawn; and at brokers, in a terminal, how it ends."""

import json
import os
import re
import signal
import time
from types import SimpleNamespace

import pytest
from broker.management.managing import Managed
from cli.running import Terminal
from client.peer import Peer
from patience import patience

import stompcodec.client as stomp
from stompcodec.broker.management.schema import REQUESTS
from stompcodec.cli import figures
from stompcodec.cli.verbs.top import History, keys_of, screen_of
from stompcodec.cli.verbs.top import Terminal as Keys
from stompcodec.testing import StompBroker

pytest.importorskip("pty")
#: Control characters as in a name that somebody chose to steer terminals.
NASTY = "/queue/be\x9b2Jgin\x85\x1b]0;owned\x07\x7f\u202eevil\u2066\u200b\u2028\ufeffend"
CONTROLS = "\x1b\x07\x7f\x85\x9b\u202e\u2066\u200b\u2028\ufeff"
each_view = pytest.mark.parametrize("view", figures.VIEWS.values(), ids=lambda view: view.name)


class Client:
    """A client of a broker in this process, which notes what it is asked."""

    def __init__(self, answer):
        self.answer, self.asked = answer, []
        self.connected, self.dialect = {"server": "stompcodec/0"}, "stompcodec"
        self.ask = figures.Asker(self, 1.0).ask

    def request(self, destination, body, timeout):
        name, fields = destination.removeprefix("/management/"), json.loads(body)
        self.asked.append((name, fields))
        return SimpleNamespace(body=json.dumps(self.answer(name, fields)).encode())


def wish(view=figures.DESTINATIONS, sort="ready", match=None, page=0, limit=20):
    return figures.Wish(view, sort, match, page, limit)


@pytest.fixture(scope="module")
def many():
    """A broker with some 1,000 queues, of which four have 49 messages, four 48, and so on."""
    bench = Managed(max_destinations=2_000, session_destinations=2_000)
    peer = bench.peer()
    counts = [number % 50 if number < 200 else 1 for number in range(1_000)]
    frames = (peer.octets_of("SEND", destination=f"/queue/{at:05}") * count for at, count in enumerate(counts) if count)
    peer.raw(b"".join(frames))
    return bench.management


def client_of(management):
    return Client(lambda name, fields: management.ask(name, **fields))


def test_many_destinations_are_asked_for_by_the_page(many):
    client, seen = client_of(many), []
    for page in range(3):
        client.asked.clear()
        shown = client.ask(wish(page=page))
        assert [name for name, _ in client.asked] == ["broker", "store", "destinations"]
        assert client.asked[-1][1].items() >= {"limit": 20, "sort": "ready"}.items()
        assert (len(shown.rows), shown.more, shown.partial) == (20, True, False)
        seen += [row["destination"] for row in shown.rows]
    rows = many.ask("destinations", sort="ready", limit=60)["rows"]
    assert seen == [row["destination"] for row in rows]
    assert [row["ready"] for row in rows[:5]] == [49, 49, 49, 49, 48]
    by_name = [client.ask(wish(sort=figures.BY_NAME, page=page, limit=3)) for page in (0, 1, 0)]
    wanted = [[f"/queue/{number:05}" for number in at] for at in ((1, 2, 3), (4, 5, 6), (1, 2, 3))]
    assert [[row["destination"] for row in shown.rows] for shown in by_name] == wanted
    assert "sort" not in client.asked[-1][1]
    shown = client.ask(wish(sort=figures.BY_NAME, page=1, limit=3, match="00999"))  # the page of another list
    assert ([row["destination"] for row in shown.rows], shown.more) == (["/queue/00999"], False)
    assert client.asked[-1][1] == {"limit": 3, "match": "*00999*"}


def test_sessions_are_sorted_and_filtered_here():
    users = ("[x]", "ann?")
    rows = [{"peer": f"10.0.0.{number}:1", "user": users[number % 2], "age": number} for number in range(9)]
    answers = {"broker": {"result": {}}, "store": {"result": {}}, "sessions": {"rows": rows, "next": "more"}}
    client = Client(lambda name, fields: answers[name])
    shown = client.ask(wish(figures.SESSIONS, "age", limit=4))
    assert (shown.more, shown.partial, client.asked[-1][1]) == (True, True, {"limit": figures.MOST_ROWS})
    for sort, match, page, limit, ages in (
        *(("age", None, 0, 4, [8, 7, 6, 5]), ("age", None, 2, 4, [0]), (figures.BY_NAME, None, 0, 4, [0, 1, 2, 3])),
        *(("age", "ann?", 0, 9, [7, 5, 3, 1]), ("age", "*[x]", 0, 9, [8, 6, 4, 2, 0]), ("age", "annx", 0, 9, [])),
    ):
        assert [row["age"] for row in client.ask(wish(figures.SESSIONS, sort, match, page, limit)).rows] == ages


@pytest.mark.parametrize(
    "answer",
    [
        *(7, [], {}, {"result": 5, "rows": []}, {"result": {}, "rows": 5}, {"result": {}, "rows": [5]}),
        *({"rows": [{}]}, {"result": {}, "rows": [], "time": float("nan")}),
    ],
    ids=str,
)
def test_what_is_no_answer_of_management(answer):
    with pytest.raises(figures.CannotAskError, match="something else than the management"):
        Client(lambda name, fields: answer).ask(wish())


def test_after_a_failover_to_another_broker_nothing_is_sent(many):
    client = client_of(many)
    client.ask(wish())
    client.connected, client.dialect = {"server": "ActiveMQ-Artemis/2.31.0"}, "artemis"
    client.asked.clear()
    with pytest.raises(figures.CannotAskError, match="has no management over STOMP"):
        client.ask(wish())
    assert client.asked == []
    client.connected = {"server": "stompcodec/0.1.0 as artemis"}
    assert client.ask(wish()).rows


def choice_of(view=figures.DESTINATIONS, match=None, limit=3):
    return figures.Choice(view, view.sort, match, limit)


def snapshot(wish, count, more):
    rows = [{"destination": f"/queue/{number}", "ready": number} for number in range(count)]
    return figures.Snapshot(wish, 1.0, {}, {}, rows, more, False)


def test_keys_come_in_pieces():
    text = "q\x1b[A\x1b[5~\x1bOBé/\x7f\r\t\x1b[1;5C\x1b[Z"
    for size in range(1, len(text)):
        found, rest = [], ""
        for at in range(0, len(text), size):
            keys, rest = keys_of(rest + text[at : at + size])
            found += keys
        assert " ".join([*found, rest]) == "q up page-up down é / rubout enter tab back-tab "
    assert keys_of("\x1b[" + "1" * 1000)[1] == ""  # nothing is kept without bound


def test_a_wake_ends_one_wait():
    with Keys() as keys:
        keys.wake()
        assert keys.wait() == []
        began = time.monotonic()
        keys.wait(0.05)
        assert time.monotonic() - began > 0.04


def test_keys_move_sort_and_filter():
    choice = choice_of()
    for key, page, row in (
        *(("down", 0, 1), ("down", 0, 2), ("down", 1, 0), ("k", 0, 2), ("up", 0, 1), ("up", 0, 0)),
        *(("page-down", 1, 0), ("page-down", 2, 0), ("b", 1, 0), ("end", 1, 2), ("home", 0, 0), ("page-up", 0, 0)),
    ):
        assert choice.press(key, snapshot(choice.wish(), 3, more=choice.page < 2))
        assert (choice.page, choice.row) == (page, row)
    choice = choice_of()
    for key, view, sort in (
        *(("right", "d", "unacknowledged"), (">", "d", "received_rate"), ("left", "d", "unacknowledged")),
        *(("<", "d", "ready"), ("<", "d", "name"), ("<", "d", "name"), ("O", "d", "delivered_rate")),
        *(("s", "s", "unacknowledged"), ("A", "s", "age"), ("d", "d", "delivered_rate")),
        *(("tab", "s", "age"), ("back-tab", "d", "delivered_rate"), ("N", "d", "name")),
    ):
        choice.press(key, None)
        assert (choice.view.key, choice.sort) == (view, sort)
    choice = choice_of()
    choice.page = 4
    for keys, match in (("/ q x rubout s enter", "qs"), ("/ ! escape", "qs"), ("/ \x15 enter", None)):
        assert all(choice.press(key, None) for key in keys.split(" "))  # q is a letter here
        assert (choice.match, choice.page, choice.typed) == (match, 0, None)
    for key in "/" + "a" * 1000:
        choice.press(key, None)
    assert len(choice.typed) == 200
    typed = {"/queue/a*": "/queue/a*", "shop.7.*": "*shop.7.*", "*.7": "**.7", "shop": "*shop*", "/a": "*/a*"}
    assert {text: figures.pattern_of(text) for text in typed} == typed


def drawn(choice, shown, width, height):
    lines = screen_of(shown, choice, History(), "a:1", None, width, height)
    assert len(lines) == height
    assert all(line.cell_len <= width for line in lines)
    return [line.plain for line in lines]


def test_the_help_names_each_key():
    text = " ".join(keys for keys, _ in figures.HELP)
    assert all(view.key in text.split() for view in figures.VIEWS.values())
    choice = choice_of()
    assert choice.press("?", None)
    assert choice.helping
    shown = "\n".join(drawn(choice, snapshot(choice.wish(), 1, False), 120, 40))
    assert "PgUp" in shown
    assert all(f"{column.key} {column.title}" in shown for column in choice.view.columns if column.key)
    assert choice.press("x", None)
    assert not choice.helping


HOSTILE = [NASTY, None, True, -1, 10**400, float("nan"), float("inf"), 1e308, [], {"a": NASTY}, "x" * 100_000, ""]
HOSTILE += ["漢" * 300]


@each_view
@pytest.mark.parametrize("width", [1, 20, 80, 250])
def test_hostile_answers_neither_break_nor_steer_the_screen(view, width):
    names = [column.name for column in REQUESTS[view.name].columns]
    rows = [dict.fromkeys(names, value) for value in HOSTILE]
    choice, history = choice_of(view, NASTY, 50), History()
    for value in HOSTILE:
        broker, store = ({column.name: value for column in REQUESTS[part].columns} for part in ("broker", "store"))
        shown = figures.Snapshot(choice.wish(), 1.0, broker, store, rows, True, True)
        history.add(shown)
        lines = screen_of(shown, choice, history, NASTY.replace("\n", ""), NASTY, width, 30)
        assert len(lines) == 30
        assert all(line.cell_len <= width and line.plain.isprintable() for line in lines), lines


def test_a_table_that_is_wider_shows_more():
    choice = choice_of()
    shown = snapshot(choice.wish(), 1, False)
    titles = [drawn(choice, shown, width, 20)[3].split() for width in (60, 80, 120, 160)]
    assert titles[0] == ["destination", "ready▾", "unacked", "in/s", "out/s"]
    assert ("oldest" in titles[1], "memory" in titles[2], titles[3][-1]) == (True, True, "state")


def test_history_is_bounded():
    history = History()
    for number in range(5):
        rows = [{"destination": f"/queue/{number}-{row}", "received_rate": 1.0} for row in range(1000)]
        history.add(figures.Snapshot(wish(), 1.0, {"messages_rate": 1.0}, {}, rows, False, False))
    assert (len(history.rates("/queue/0-5")), len(history.rates("/queue/4-5"))) == (0, 1)


#: Columns of a row that do not change between two questions.
STILL = ("destination", "ready", "unacknowledged", "consumers", "received", "delivered", "dead_letters", "bytes")


@pytest.fixture(scope="module")
def broker():
    """A broker in which nothing happens: queues with 1 to 30 messages, a consumer with 30 of them, and a nasty name."""
    with StompBroker() as broker, stomp.connect(broker.url) as client:
        client.send_many((f"/queue/top.{number:02}", b"x") for number in range(1, 31) for _ in range(number))
        client.send(NASTY, b"x", receipt=True)
        client.subscribe("/queue/top.30", ack="client-individual", id="taker", prefetch=1000)
        (row,) = asked(client, "destinations", match="/queue/top.30")
        assert row["unacknowledged"] == 30
        yield broker


def asked(client, name, **fields):
    answer = json.loads(client.request(f"/management/{name}", json.dumps(fields)).body)
    return answer["rows"] if "rows" in answer else answer["result"]


def once(at, url, *arguments):
    return json.loads(at.good("top", "--once", "--json", "-u", url, *arguments))


def test_json_and_the_table_are_what_management_says(at, broker):
    found = once(at, broker.url, "--match", "/queue/*")
    shown = at.good("top", "--once", "-u", broker.url).decode()
    with stomp.connect(broker.url) as client:
        rows = asked(client, "destinations", sort="ready", match="/queue/*", limit=7)
    for part in ("broker", "store"):
        assert list(found[part]) == [column.name for column in REQUESTS[part].columns]
    assert list(found) == ["time", "view", "sort", "match", "broker", "store", "rows", "more"]
    assert [[row[name] for name in STILL] for row in found["rows"][:7]] == [
        [row[name] for name in STILL] for row in rows
    ]
    assert [row["ready"] for row in found["rows"][:7]] == [29, 28, 27, 26, 25, 24, 23]
    assert all(list(row) == list(rows[0]) for row in found["rows"])
    assert (found["view"], found["sort"], found["match"], found["more"]) == ("destinations", "ready", "/queue/*", False)
    assert all(row["received_rate"] is not None for row in found["rows"])  # it has asked twice
    for row in rows:
        (line,) = [line for line in shown.splitlines() if line.startswith(row["destination"])]
        assert line.split()[1:3] == [str(row["ready"]), str(row["unacknowledged"])]
    assert re.search(r"queues \d+", shown)
    assert not set(shown) & set(CONTROLS)


@pytest.mark.parametrize(("view", "first"), [("sessions", "127.0.0.1:"), ("subscriptions", "/queue/top.30")])
def test_the_other_views(view, first, at, broker):
    found = once(at, broker.url, "--view", view)
    assert list(found["rows"][0]) == [column.name for column in REQUESTS[view].columns]
    assert found["rows"][0]["unacknowledged"] == 30
    shown = at.good("top", "--once", "--view", view, "-u", broker.url).decode()
    (line,) = [line for line in shown.splitlines() if " 30 " in line]
    assert line.startswith(first)


def test_over_tls_and_websocket(at, certificates):
    assert once(at, f"ws://127.0.0.1:{at.broker.ws_port}/stomp")["broker"]["pid"] == at.broker.pid
    with StompBroker(tls_port=0, tls_cert=certificates.server) as broker:
        url = f"stomp+ssl://127.0.0.1:{broker.config.tls_port}"
        rows = once(at, url.removeprefix("stomp+ssl://"), "--view", "sessions", "--ca", certificates.ca)["rows"]
        assert [(row["listener"], row["secure"]) for row in rows] == [("tls", True)]
        assert at("top", "--once", "-u", url).exit_code == 1


UNKNOWN = "seems to have no management over STOMP: "


def line_of(result):
    assert (result.exit_code, result.stdout) == (1, "")
    (line,) = result.stderr.splitlines()
    assert "\x1b" not in line
    return line


def test_without_the_right(at):
    line = line_of(at.guest("top"))
    assert "/management/broker, /management/store, /management/destinations: not allowed" in line
    assert 'action = "manage"' in line


@pytest.mark.parametrize(
    ("server", "rule", "told"),
    [
        ("RabbitMQ/3.10.8", None, ["RabbitMQ/3.10.8 has no management over STOMP", "15672"]),
        ("ActiveMQ/5.17.2", None, ["ActiveMQ/5.17.2 has no management over STOMP", "8161 at /admin"]),
        ("ActiveMQ-Artemis/2.31.0", None, ["2.31.0 has no management over STOMP", "8161 at /console"]),
        ("be\x1b[2Jgin", lambda side, frame: None, [UNKNOWN, "/management/broker", "no answer in 1 s"]),
        ("be\x1b[2Jgin", lambda side, frame: side.error(frame, "no such"), [UNKNOWN, "no such"]),
    ],
)
def test_brokers_without_management_are_told_by_name_and_asked_nothing_if_they_are_known(server, rule, told, at):
    with Peer(server=server, rules={"SEND": rule} if rule else {}) as peer:
        line = line_of(at("top", "-u", peer.url, "--timeout", "1" if rule else "20"))
        assert bool(peer.got("SEND")) is (rule is not None)
    assert [words for words in told if words not in line] == []


def top(url, *arguments, rows=20, columns=130, **variables):
    return Terminal("top", "-u", url, *arguments, rows=rows, columns=columns, **{"NO_COLOR": "1", **variables})


def names(screen):
    return [line.split()[0] for line in screen.splitlines() if line.startswith("/queue/")]


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=str)
def test_signals_restore_the_terminal(number, broker):
    with top(broker.url) as terminal:
        terminal.until("destinations by ready", "q quit")
        assert terminal.mode() != terminal.before
        terminal.process.send_signal(number)
        terminal.end(0)


@pytest.mark.long
def test_it_fits_the_terminal_and_ctrl_z_leaves_the_screen_and_comes_back(broker):
    with top(broker.url, "--match", "/queue/top.*", rows=12, columns=60) as terminal:
        assert len(names(terminal.until("destinations by ready", "q quit"))) == 7
        assert all(len(line) <= 60 for line in terminal.shown)
        terminal.resize(30, 150)
        terminal.process.send_signal(signal.SIGWINCH)  # the terminal would, if it was that of the session
        assert len(names(terminal.until("state", "q quit", "/queue/top.10"))) == 25
        terminal.press("\x1a")
        assert os.waitid(os.P_PID, terminal.process.pid, os.WSTOPPED).si_status == signal.SIGSTOP
        assert terminal.mode() == terminal.before
        terminal.process.send_signal(signal.SIGCONT)
        terminal.press("s", "sessions by unacknowledged", "q quit")
        terminal.press("q")
        terminal.end(0)


@pytest.mark.long
def test_it_shows_that_it_reconnects():
    with StompBroker() as broker, top(broker.url, "-i", "0.2", NO_COLOR="") as terminal:
        terminal.until("by ready")
        broker.stop()
        terminal.until("reconnecting: ")
        broker.start()
        terminal.until("by ready", "/temp-queue/")
        assert b"\x1b[32m" in terminal.seen
        terminal.press("q")
        terminal.end(0)


@pytest.mark.long
def test_a_terminal_that_cannot_move_its_cursor(broker):
    with top(broker.url, "--match", "top.07", "-i", "0.1", TERM="dumb") as terminal:
        give_up = time.monotonic() + patience(30)
        while terminal.seen.count(b"/queue/top.07") < 2:
            assert terminal.read(give_up)
        assert b"\x1b" not in terminal.seen
        terminal.process.send_signal(signal.SIGTERM)
        terminal.end(0)
