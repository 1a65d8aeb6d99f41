"""stompcodec top: what is asked, what keys do, what is drawn; and at brokers, in a terminal, how it ends."""

from __future__ import annotations

import json
import os
import re
import selectors
import signal
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from patience import patience

pytest.importorskip("click")
pytest.importorskip("rich")
pytest.importorskip("websockets")
pty = pytest.importorskip("pty")
termios = pytest.importorskip("termios")

from broker.management.managing import Managed
from cli.at_broker import Runner
from cli.running import COMMAND
from client.peer import Peer

import stompcodec.client as stomp
from stompcodec.broker.management.schema import REQUESTS, SORTS
from stompcodec.cli import figures
from stompcodec.cli.figures import (
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
from stompcodec.cli.verbs.top import History, keys_of, screen_of
from stompcodec.testing import StompBroker

#: Control characters as in a name that somebody chose to steer terminals.
NASTY = "/queue/be\x9b2Jgin\x85\x1b]0;owned\x07\x7f\u202eevil\u2066\u200b\u2028\ufeffend"
CONTROLS = "\x1b\x07\x7f\x85\x9b\u202e\u2066\u200b\u2028\ufeff"
each_view = pytest.mark.parametrize("view", VIEWS.values(), ids=lambda view: view.name)


# ---- what is asked, without sockets ----


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
    view: View = figures.DESTINATIONS, sort: str = "ready", match: str | None = None, page: int = 0, limit: int = 20
) -> Wish:
    return Wish(view, sort, match, page, limit)


@pytest.fixture(scope="module")
def many() -> Managed:
    """A broker with some 1,000 queues, of which four have 49 messages, four 48, and so on."""
    bench = Managed(max_destinations=2_000, session_destinations=2_000)
    peer = bench.peer()
    counts = [number % 50 if number < 200 else 1 for number in range(1_000)]
    frames = (peer.octets_of("SEND", destination=f"/queue/{at:05}") * count for at, count in enumerate(counts) if count)
    peer.raw(b"".join(frames))
    return bench


def at_bench(bench: Managed) -> Client:
    return Client(lambda name, fields: bench.management.ask(name, **fields))


@each_view
def test_views_name_fields_that_the_broker_has(view: View) -> None:
    known = {column.name: column.kind for column in REQUESTS[view.name].columns}
    assert {column.field for column in view.columns} - {"", "rates"} <= set(known)
    assert {*view.names, *view.sorts, view.sort} <= set(known)
    assert {column.field for column in view.columns if column.key} <= set(view.sorts)
    assert all(known[field].startswith(("whole", "number")) for field in view.sorts)
    assert view.sorts == SORTS or not view.by_broker
    keys = ["N", *(column.key for column in view.columns if column.key), *(each.key for each in VIEWS.values())]
    assert len(keys) == len(set(keys))


def test_many_destinations_are_asked_for_by_the_page(many: Managed) -> None:
    client = at_bench(many)
    ask = asker(client).ask
    seen: list[str] = []
    for page in range(3):
        client.asked.clear()
        shown = ask(wish(page=page))
        assert [name for name, _ in client.asked] == ["broker", "store", "destinations"]
        assert client.asked[-1][1].items() >= {"limit": 20, "sort": "ready"}.items()
        assert (len(shown.rows), shown.more, shown.partial) == (20, True, False)
        seen += [row["destination"] for row in shown.rows]
    rows = many.management.ask("destinations", sort="ready", limit=60)["rows"]
    assert seen == [row["destination"] for row in rows]
    assert [row["ready"] for row in rows[:5]] == [49, 49, 49, 49, 48]
    pages = [[row["destination"] for row in ask(wish(sort=BY_NAME, page=page, limit=3)).rows] for page in (0, 1, 0)]
    assert pages == [[f"/queue/{number:05}" for number in at] for at in ((1, 2, 3), (4, 5, 6), (1, 2, 3))]
    assert "sort" not in client.asked[-1][1]
    shown = ask(wish(sort=BY_NAME, page=1, limit=3, match="00999"))  # the page of another list is not known
    assert ([row["destination"] for row in shown.rows], shown.more) == (["/queue/00999"], False)
    assert client.asked[-1][1] == {"limit": 3, "match": "*00999*"}


def test_sessions_are_sorted_and_filtered_here() -> None:
    rows = [
        {"peer": f"10.0.0.{number}:1", "user": "ann?" if number % 2 else "[x]", "age": number} for number in range(9)
    ]
    answers = {"broker": {"result": {}}, "store": {"result": {}}, "sessions": {"rows": rows, "next": "more"}}
    client = Client(lambda name, fields: answers[name])
    ask = asker(client).ask

    def ages(*further: Any, **more: Any) -> list[int]:
        return [row["age"] for row in ask(wish(figures.SESSIONS, *further, **more)).rows]

    shown = ask(wish(figures.SESSIONS, "age", limit=4))
    assert [row["age"] for row in shown.rows] == [8, 7, 6, 5]
    assert (shown.more, shown.partial, client.asked[-1][1]) == (True, True, {"limit": MOST_ROWS})
    assert ages("age", page=2, limit=4) == [0]
    assert ages(BY_NAME, limit=4) == [0, 1, 2, 3]
    assert ages("age", "ann?", limit=9) == [7, 5, 3, 1]
    assert ages("age", "*[x]", limit=9) == [8, 6, 4, 2, 0]
    assert ages("age", "annx", limit=9) == []


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
    client = at_bench(many)
    ask = asker(client).ask
    ask(wish())
    client.connected, client.dialect = {"server": "ActiveMQ-Artemis/2.31.0"}, "artemis"
    client.asked.clear()
    with pytest.raises(CannotAskError, match="has no management over STOMP"):
        ask(wish())
    assert client.asked == []
    client.connected = {"server": "stompcodec/0.1.0 as artemis"}
    assert ask(wish()).rows


# ---- keys ----


def choice_of(view: View = figures.DESTINATIONS, match: str | None = None, limit: int = 3) -> Choice:
    return Choice(view, view.sort, match, limit)


def snapshot(wish: Wish, count: int, more: bool) -> Snapshot:
    rows = [{"destination": f"/queue/{number}", "ready": number} for number in range(count)]
    return Snapshot(wish, 1.0, {}, {}, rows, more, False)


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


def test_keys_move_through_rows_and_pages() -> None:
    choice = choice_of()
    places = []
    for key in ("down", "down", "down", "k", "up", "up", "page-down", "page-down", "b", "end", "home", "page-up"):
        assert choice.press(key, snapshot(choice.wish(), 3, more=choice.page < 2))
        places.append((choice.page, choice.row))
    assert places == [
        *((0, 1), (0, 2), (1, 0), (0, 2), (0, 1), (0, 0)),
        *((1, 0), (2, 0), (1, 0), (1, 2), (0, 0), (0, 0)),
    ]


def test_keys_sort_and_each_view_keeps_its_order() -> None:
    choice = choice_of()
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
    choice = choice_of()
    choice.page = 4
    for keys, match in (("/ q x rubout s enter", "qs"), ("/ ! escape", "qs"), ("/ \x15 enter", None)):
        for key in keys.split(" "):
            assert choice.press(key, None)  # q is a letter here
        assert (choice.match, choice.page, choice.typed) == (match, 0, None)
    choice.press("/", None)
    for _ in range(1000):
        choice.press("a", None)
    assert len(choice.typed or "") == 200
    assert pattern_of("a*") == "a*"


# ---- what is drawn ----


def drawn(choice: Choice, shown: Snapshot, width: int, height: int, history: History | None = None) -> list[str]:
    lines = screen_of(shown, choice, history or History(), "a:1", None, width, height)
    assert len(lines) == height
    assert all(line.cell_len <= width for line in lines)
    return [line.plain for line in lines]


def test_the_help_names_each_key() -> None:
    text = " ".join(keys for keys, _ in HELP)
    assert all(view.key in text.split() for view in VIEWS.values())
    choice = choice_of()
    assert choice.press("?", None)
    assert choice.helping
    shown = "\n".join(drawn(choice, snapshot(choice.wish(), 1, False), 120, 40))
    assert "PgUp" in shown
    assert all(f"{column.key} {column.title}" in shown for column in choice.view.columns if column.key)
    assert choice.press("x", None)
    assert not choice.helping


HOSTILE: list[Any] = [
    NASTY, None, True, -1, 10**400, float("nan"), float("inf"), 1e308, [], {"a": NASTY}, "x" * 100_000, "漢" * 300, ""
]  # fmt: skip


@each_view
@pytest.mark.parametrize("width", [1, 20, 80, 250])
def test_hostile_answers_neither_break_nor_steer_the_screen(view: View, width: int) -> None:
    names = [column.name for column in REQUESTS[view.name].columns]
    rows = [dict.fromkeys(names, value) for value in HOSTILE]
    choice, history = choice_of(view, NASTY, 50), History()
    for value in HOSTILE:
        broker, store = ({column.name: value for column in REQUESTS[part].columns} for part in ("broker", "store"))
        shown = Snapshot(choice.wish(), 1.0, broker, store, rows, True, True)
        history.add(shown)
        lines = screen_of(shown, choice, history, NASTY.replace("\n", ""), NASTY, width, 30)
        assert len(lines) == 30
        for line in lines:
            assert line.cell_len <= width
            assert line.plain.isprintable(), line.plain


def test_a_table_that_is_wider_shows_more() -> None:
    choice = choice_of()
    shown = snapshot(choice.wish(), 1, False)
    titles = [drawn(choice, shown, width, 20)[3].split() for width in (60, 80, 120, 160)]
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


# ---- at brokers: once and as a stream ----

#: Columns of a row that do not change between two questions.
STILL = ("destination", "ready", "unacknowledged", "consumers", "received", "delivered", "dead_letters", "bytes")


@pytest.fixture(scope="module")
def broker() -> Iterator[StompBroker]:
    """A broker in which nothing happens: queues with 1 to 30 messages, a consumer with 30 of them, and a nasty name."""
    with StompBroker() as broker, stomp.connect(broker.url) as client:
        for number in range(1, 31):
            for _ in range(number):
                client.send(f"/queue/top.{number:02}", b"x")
        client.send(NASTY, b"x", receipt=True)
        client.subscribe("/queue/top.30", ack="client-individual", id="taker", prefetch=1000)
        (row,) = asked(client, "destinations", match="/queue/top.30")
        assert row["unacknowledged"] == 30
        yield broker


def asked(client: stomp.Client, name: str, **fields: Any) -> Any:
    answer = json.loads(client.request(f"/management/{name}", json.dumps(fields)).body)
    return answer["rows"] if "rows" in answer else answer["result"]


def test_json_and_the_table_are_what_management_says(at: Runner, broker: StompBroker) -> None:
    found = json.loads(at.good("top", "--once", "--json", "-u", broker.url, "--match", "/queue/*", "-n", "7"))
    shown = at.good("top", "--once", "-u", broker.url).decode()
    with stomp.connect(broker.url) as client:
        rows = asked(client, "destinations", sort="ready", match="/queue/*", limit=7)
        for part in ("broker", "store"):
            assert list(found[part]) == [column.name for column in REQUESTS[part].columns]
            assert all(column.fits(found[part][column.name]) for column in REQUESTS[part].columns)
    assert list(found) == ["time", "view", "sort", "match", "broker", "store", "rows", "more"]
    assert [[row[name] for name in STILL] for row in found["rows"]] == [[row[name] for name in STILL] for row in rows]
    assert [row["ready"] for row in found["rows"]] == [29, 28, 27, 26, 25, 24, 23]
    assert all(list(row) == list(rows[0]) for row in found["rows"])
    assert (found["view"], found["sort"], found["match"], found["more"]) == ("destinations", "ready", "/queue/*", True)
    assert all(row["received_rate"] is not None for row in found["rows"])  # it has asked twice
    for row in rows:
        (line,) = [line for line in shown.splitlines() if line.startswith(row["destination"])]
        assert line.split()[1:3] == [str(row["ready"]), str(row["unacknowledged"])]
    assert re.search(r"queues \d+", shown)
    assert not set(shown) & set(CONTROLS)


@pytest.mark.parametrize("view", ["sessions", "subscriptions"])
def test_the_other_views(view: str, at: Runner, broker: StompBroker) -> None:
    found = json.loads(at.good("top", "--once", "--json", "--view", view, "-u", broker.url))
    assert list(found["rows"][0]) == [column.name for column in REQUESTS[view].columns]
    assert found["rows"][0]["unacknowledged"] == 30
    shown = at.good("top", "--once", "--view", view, "-u", broker.url).decode()
    (line,) = [line for line in shown.splitlines() if " 30 " in line]
    assert line.startswith("127.0.0.1:" if view == "sessions" else "/queue/top.30")


@contextmanager
def running(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [*COMMAND, "top", "-i", "0.1", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.long
def test_a_stream_goes_on_after_a_restart() -> None:
    with StompBroker() as broker, running("--json", "-u", broker.url) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        first, second = (json.loads(process.stdout.readline()) for _ in range(2))
        assert first["time"] <= second["time"]
        broker.stop()
        assert b"connecting again" in process.stderr.readline()
        broker.start()
        before = [json.loads(process.stdout.readline()) for _ in range(3)][-1]  # two may have been written before
        assert before["time"] >= second["time"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(patience(30)) == 0
        assert process.stdout.read().endswith(b"}\n") or not process.stdout.read()


@pytest.mark.long
def test_a_pipe_gets_one_table_after_the_other(broker: StompBroker) -> None:
    with running("-u", broker.url, "--match", "top.07") as process:
        assert process.stdout is not None
        found = [process.stdout.readline().decode() for _ in range(12)]
        assert [line.split()[:2] for line in found if line.startswith("/queue")] == [["/queue/top.07", "7"]] * 2
        process.stdout.close()  # a reader that goes away
        assert process.wait(patience(30)) == 1


def test_over_tls_and_websocket(at: Runner, tmp_path: Path) -> None:
    url = f"ws://127.0.0.1:{at.broker.ws_port}/stomp"
    assert json.loads(at.good("top", "--once", "--json", "-u", url))["broker"]["pid"] == at.broker.pid
    trustme = pytest.importorskip("trustme", reason="certificates for TLS are made by trustme")
    authority, file, trusted = trustme.CA(), tmp_path / "server.pem", tmp_path / "ca.pem"
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(file)
    authority.cert_pem.write_to_path(trusted)
    with StompBroker(tls_port=0, tls_cert=str(file), tls_key=str(file)) as broker:
        url = f"stomp+ssl://127.0.0.1:{broker.config.tls_port}"
        rows = json.loads(at.good("top", "--once", "--json", "-u", url, "--view", "sessions", "--ca", trusted))["rows"]
        assert [(row["listener"], row["secure"]) for row in rows] == [("tls", True)]
        assert at("top", "--once", "-u", url).exit_code == 1


# ---- brokers that do not answer ----


def line_of(at: Runner, *arguments: str | Path, **environment: str) -> str:
    result = at("top", *arguments, **environment)
    assert (result.exit_code, result.stdout) == (1, "")
    (line,) = result.stderr.splitlines()
    assert "\x1b" not in line
    return str(line)


def test_without_the_right(at: Runner) -> None:
    line = line_of(at, "-u", at.guarded_url, "--login", "guest", STOMPCODEC_PASSCODE="guest")
    assert "/management/broker, /management/store, /management/destinations: not allowed" in line
    assert 'action = "manage"' in line


@pytest.mark.parametrize(
    ("server", "told"),
    [
        ("RabbitMQ/3.10.8", "15672"),
        ("ActiveMQ/5.17.2", "8161 at /admin"),
        ("ActiveMQ-Artemis/2.31.0", "8161 at /console"),
    ],
)
def test_brokers_without_management_are_told_by_name_and_asked_nothing(server: str, told: str, at: Runner) -> None:
    with Peer(server=server) as peer:
        line = line_of(at, "-u", peer.url)
        assert not peer.got("SEND")
    assert f"{server} has no management over STOMP" in line
    assert told in line


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        (lambda side, frame: None, "no answer from /management/broker in 0.3 s"),
        (lambda side, frame: side.error(frame, "no such destination"), "no such destination"),
    ],
    ids=["silent", "refuses"],
)
def test_an_unknown_broker(rule: Any, said: str, at: Runner) -> None:
    with Peer(server="be\x1b[2Jgin", rules={"SEND": rule}) as peer:
        line = line_of(at, "-u", peer.url, "--timeout", "0.3")
    assert "seems to have no management over STOMP: " in line
    assert said in line


def test_a_prefix_of_its_own(at: Runner) -> None:
    with StompBroker(management_prefix="/ops/") as broker:
        found = json.loads(at.good("top", "--once", "--json", "-u", broker.url, "--prefix", "/ops/"))
        assert found["broker"]["sessions"] == 1
        assert "--prefix" in line_of(at, "--once", "-u", broker.url, "--timeout", "0.5")


# ---- in a terminal ----


class Terminal:
    """A terminal that runs top: what it shows at present, and its keys."""

    def __init__(self, *arguments: str, rows: int = 20, columns: int = 130, **environment: str) -> None:
        self.near, self.far = pty.openpty()
        self.resize(rows, columns)
        self.before = termios.tcgetattr(self.far)
        self.seen = b""
        variables = {name: value for name, value in os.environ.items() if not name.startswith("STOMPCODEC_")}
        for name in ("COLUMNS", "LINES"):
            variables.pop(name, None)
        self.process = subprocess.Popen(
            [*COMMAND, "top", *arguments],
            stdin=self.far,
            stdout=self.far,
            stderr=self.far,
            env={**variables, "TERM": "xterm-256color", "NO_COLOR": "1", "PYTHONIOENCODING": "utf-8", **environment},
            start_new_session=True,
        )

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.near)
        os.close(self.far)

    def resize(self, rows: int, columns: int) -> None:
        import fcntl

        fcntl.ioctl(self.near, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def press(self, keys: str, *signs: str) -> str:
        os.write(self.near, keys.encode())
        return self.until(*signs)

    @property
    def shown(self) -> list[str]:
        """The lines since the last one that was the first of the screen."""
        return self.seen.decode(errors="replace").rpartition("\x1b[H")[2].splitlines()

    def until(self, *signs: str) -> str:
        """Read until all signs are on the screen, and return it."""
        give_up = time.monotonic() + patience(30)
        while not all(sign in (screen := "\n".join(self.shown)) for sign in signs):
            assert self.read(give_up), f"{signs} not on the screen:\n{screen}"
        return "\n".join(self.shown)

    def read(self, give_up: float) -> bool:
        with selectors.DefaultSelector() as selector:
            selector.register(self.near, selectors.EVENT_READ)
            if not selector.select(max(0.0, give_up - time.monotonic())):
                return False
        self.seen += os.read(self.near, 65536)
        return True

    def end(self, status: int) -> None:
        """Wait for the end, and check that the terminal is as it was."""
        give_up = time.monotonic() + patience(30)
        while self.process.poll() is None:
            self.read(min(give_up, time.monotonic() + 0.05))
            assert time.monotonic() < give_up, "it does not end"
        assert self.process.returncode == status
        while self.read(0.0):
            pass
        assert termios.tcgetattr(self.far) == self.before
        assert self.seen.count(b"\x1b[?1049h") == self.seen.count(b"\x1b[?1049l")
        assert self.seen.count(b"\x1b[?25l") <= self.seen.count(b"\x1b[?25h")


def names(screen: str) -> list[str]:
    return [line.split()[0] for line in screen.splitlines() if line.startswith("/queue/")]


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=str)
def test_signals_restore_the_terminal(number: int, broker: StompBroker) -> None:
    with Terminal("-u", broker.url) as top:
        top.until("destinations by ready", "q quit")
        assert termios.tcgetattr(top.far) != top.before
        top.process.send_signal(number)
        top.end(0)


@pytest.mark.long
def test_ctrl_z_leaves_the_screen_and_comes_back(broker: StompBroker) -> None:
    with Terminal("-u", broker.url) as top:
        top.until("destinations by ready", "q quit")
        top.press("\x1a")
        stopped = os.waitid(os.P_PID, top.process.pid, os.WSTOPPED)
        assert stopped is not None
        assert stopped.si_status == signal.SIGSTOP
        assert termios.tcgetattr(top.far) == top.before
        top.process.send_signal(signal.SIGCONT)
        top.press("s", "sessions by unacknowledged", "q quit")
        top.press("q")
        top.end(0)


@pytest.mark.long
def test_it_fits_the_terminal(broker: StompBroker) -> None:
    with Terminal("-u", broker.url, "--match", "/queue/top.*", rows=12, columns=60) as top:
        shown = top.until("destinations by ready", "q quit")
        assert len(names(shown)) == 7
        assert all(len(line) <= 60 for line in top.shown)
        top.resize(30, 150)
        top.process.send_signal(signal.SIGWINCH)  # the terminal would, if it was that of the session
        assert len(names(top.until("state", "q quit", "/queue/top.10"))) == 25
        top.press("q")
        top.end(0)


@pytest.mark.long
def test_it_shows_that_it_reconnects() -> None:
    with StompBroker() as broker, Terminal("-u", broker.url, "-i", "0.2", NO_COLOR="") as top:
        top.until("by ready")
        broker.stop()
        top.until("reconnecting: ")
        broker.start()
        top.until("by ready", "/temp-queue/")
        assert b"\x1b[32m" in top.seen
        top.press("q")
        top.end(0)


@pytest.mark.long
def test_a_terminal_that_cannot_move_its_cursor(broker: StompBroker) -> None:
    with Terminal("-u", broker.url, "--match", "top.07", "-i", "0.1", TERM="dumb") as top:
        give_up = time.monotonic() + patience(30)
        while top.seen.count(b"/queue/top.07") < 2:
            assert top.read(give_up)
        assert b"\x1b" not in top.seen
        top.process.send_signal(signal.SIGTERM)
        top.end(0)
