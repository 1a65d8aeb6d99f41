"""The page of the broker in headless Chromium: what it shows, what its orders do, and what cannot get into it."""

import json
import re
from typing import Any

import pytest

pytest.importorskip("websockets")
from broker.web.asking import USERS
from chromium import Page, needs_chromium
from patience import patience

import stompcodec.client as stomp
from stompcodec.broker.auth import Rule
from stompcodec.broker.config import Config
from stompcodec.broker.management.schema import REQUESTS
from stompcodec.broker.web.site import page_text
from stompcodec.testing import StompBroker

pytestmark = [pytest.mark.long, needs_chromium]
EVIL = "</script><script>document.title='stolen'</script><img src=x onerror=\"document.title='stolen'\">"
ROWS = "document.querySelectorAll('#main tr.row:not([hidden])')"


def ask(client: stomp.Client, name: str, **fields: Any) -> Any:
    answer = client.request(f"/management/{name}", json.dumps(fields), timeout=patience(20))
    found = json.loads(answer.body)
    return found["rows"] if "rows" in found else found["result"]


def ready(client: stomp.Client, name: str) -> int | None:
    rows = ask(client, "destinations", match=name)
    return rows[0]["ready"] if rows else None


def fill(client: stomp.Client, name: str, count: int, **headers: str) -> None:
    for number in range(count):
        client.send(name, json.dumps({"number": number}), {"content-type": "application/json", **headers})
    client.send(name, json.dumps({"number": count}), headers, receipt=True)


def quoted(name: str) -> str:
    return "destination/" + name.replace("/", "%2F")


def cells(page: Page) -> list[list[str]]:
    found = page.get(f"[...{ROWS}].map((row) => [...row.children].map((cell) => cell.textContent))")
    assert isinstance(found, list)
    return found


def says(page: Page, text: str, selector: str = "body") -> None:
    page.wait(f"document.querySelector({json.dumps(selector)})?.innerText.includes({json.dumps(text)})")


def tile(page: Page, title: str) -> str:
    found = page.get(
        f"[...document.querySelectorAll('.tile')].find((each) => each.firstChild.textContent === {json.dumps(title)})"
        "?.lastChild.textContent"
    )
    return str(found)


# ---- what it shows ----
def test_it_follows_a_broker_under_load(broker: StompBroker, client: stomp.Client, opened: Any) -> None:
    page = opened(broker)
    fill(client, "/queue/a", 50)
    says(page, "/queue/a", ".two")
    seen = page.get("app.broker.messages")
    for _ in range(3):
        fill(client, "/queue/a", 200)
        broker.advance(1.0)  # rates are taken over a second
    page.wait(f"app.broker.messages >= {seen + 600}")
    page.wait("app.broker.messages_rate !== null && app.series.messages_rate.points.length > 1")
    result = ask(client, "broker")
    page.wait(f"app.broker.messages >= {result['messages']}")
    page.wait(f"document.querySelector('.tiles').innerText.includes('{result['queues']}')")
    assert page.get("app.series.messages_rate.last === app.broker.messages_rate")
    assert int(tile(page, "Delivered").replace(",", "")) > 0
    drawn = "[...document.querySelectorAll('canvas')].map((each) => each.width * each.height)"
    assert all(area > 0 for area in page.get(drawn))
    label = page.get("document.querySelectorAll('canvas')[1].getAttribute('aria-label')")
    assert re.match(r"Deepest queues: \d+ ready now, at most \d+ in the last 10 minutes", label)
    later = opened(broker)  # it begins with what the broker has kept
    later.wait("app.series.messages_rate.points.length > 3")
    assert later.get("Math.max(...app.series.messages_rate.points.map((point) => point[1]))") >= 200
    later.wait("app.deep.has('/queue/a') && app.deep.get('/queue/a').points[0][0] < 0")  # before the page was opened
    later.get("location.hash = '#/destination/%2Fqueue%2Fa'")
    later.wait("(app.view.series?.ready.points ?? []).some(([time, ready]) => time < 0 && ready > 0)")


def test_ten_thousand_destinations_stay_smooth(opened: Any) -> None:
    with StompBroker(ws_port=0, web_page=True, max_destinations=20_000) as broker:
        with stomp.connect(broker.url) as client:
            for number in range(10_000):
                for _ in range(2 if number % 1000 == 7 else 1):
                    client.send(f"/queue/many.{number:05}", b"x")
            client.send("/queue/many.00000", b"x", receipt=True)
        look_at_many(opened(broker, "destinations"))


def look_at_many(page: Page) -> None:
    page.wait(f"{ROWS}.length > 10")
    says(page, "1–200 of 10,00", ".foot")
    page.press("p")
    page.wait("app.frozen && !app.busy")
    # Only rows in sight are there, and one frame of scrolling changes no more than those.
    page.get(
        "new MutationObserver((found) => { window.work = (window.work || 0) + found.length; })"
        ".observe(document.querySelector('#main tbody'), {childList: true, subtree: true, characterData: true})"
    )
    for top in (400, 1200, 3000, 0):
        page.get("window.work = 0")
        page.get(f"document.querySelector('.scroller').scrollTop = {top}")
        page.wait(f"document.querySelector('.grid tr.row').dataset.at == Math.max(0, Math.floor({top} / 34) - 6)")
        assert page.get("document.querySelectorAll('#main tr').length") < 60
        assert page.get("window.work") < 60 * 12
    page.press("p")
    page.wait(f"{ROWS}[10].children[2].textContent === '2'")
    assert [row[2] for row in cells(page)[:12]] == ["2"] * 11 + ["1"]
    assert page.get("document.querySelector('th[aria-sort=descending]').textContent") == "Ready"
    page.click("Next", ".foot")
    says(page, "201–400 of", ".foot")
    page.type("any.0*7", "input[type=search]")
    page.wait(f"{ROWS}[0].textContent.includes('/queue/many.00007')")
    page.get("document.querySelector('input[type=search]').value = ''")
    page.type("many.0999", "input[type=search]")
    page.wait(f"{ROWS}.length === 10")
    assert {row[0] for row in cells(page)} == {f"/queue/many.0999{digit}" for digit in range(10)}


def test_sessions_are_sorted_and_searched_here(broker: StompBroker, client: stomp.Client, opened: Any) -> None:
    with stomp.connect(broker.url, client_id="bob") as bob, stomp.connect(broker.url, client_id="ann"):
        bob.subscribe("/queue/a")
        page = opened(broker, "sessions")
        page.wait(f"{ROWS}.length === 4")
        page.click("Client-id", "#main th")
        page.wait(f"{ROWS}[0].children[3].textContent === 'ann'")
        page.click("Subs", "#main th")
        page.wait("document.querySelector('th[aria-sort=descending]').textContent === 'Subs'")
        subs = [int(row[9]) for row in cells(page)]
        assert subs == sorted(subs, reverse=True)
        page.type("bob", "input[type=search]")
        page.wait(f"{ROWS}.length === 1")
        page.press("Escape")
        page.press("j")
        page.press("Enter")
        says(page, "Session", "h2")
        page.wait(f"{ROWS}.length === 1 && {ROWS}[0].textContent.includes('/queue/a')")
        page.press("Escape")
        says(page, "Sessions", "h2")


def test_messages_are_shown_in_three_shapes(broker: StompBroker, client: stomp.Client, opened: Any) -> None:
    client.send("/queue/a", '{"id": 12345678901234567890, "on": [true, {}]}', {"x": "a:b"})
    client.send("/queue/a", "<a><b>1</b><c/></a>", {})
    client.send("/queue/a", b"\x00\xff\x01", {})
    client.send("/queue/a", "z" * 50_000, {}, receipt=True)
    page = opened(broker, quoted("/queue/a"))
    page.wait(f"{ROWS}.length === 4")
    bodies = []
    for at in range(4):
        page.get(f"{ROWS}[{at}].click()")
        bodies.append(page.get("document.querySelector('pre').textContent"))
    assert bodies[0] == '{\n  "id": 12345678901234567890,\n  "on": [\n    true,\n    {}\n  ]\n}'
    assert bodies[1] == "<a>\n  <b>1</b>\n  <c/>\n</a>"
    assert (bodies[2].split("  ")[0:2], len(bodies[3])) == (["00000000", "00 ff 01"], 8192)
    page.click("Show up to 64 KiB")
    page.wait("document.querySelector('pre').textContent.length === 50000")
    page.get(f"{ROWS}[0].click()")
    page.click("Hex", ".message")
    assert page.get("document.querySelector('pre').textContent").startswith("00000000  7b 22 69 64")
    assert ready(client, "/queue/a") == 4


def test_names_headers_and_bodies_are_text(broker: StompBroker, client: stomp.Client, opened: Any) -> None:
    name = "/queue/" + EVIL.replace("/", "_")
    for body in (EVIL, json.dumps({EVIL: EVIL}), f"<a>{EVIL}</a>"):
        client.send(name, body, {EVIL: EVIL, "content-type": EVIL, "dead-letter-reason": EVIL}, receipt=True)
    client.subscribe(f"/topic/{EVIL.replace('/', '_')}", selector="a = '<img src=x>'")
    page = opened(broker)
    says(page, "onerror", ".two")
    for view in ("destinations", "subscriptions", "sessions", "broker"):
        page.get(f"location.hash = '#/{view}'")
        page.wait(f"document.querySelector('#main').innerText.includes('{'onerror' if view != 'sessions' else '1.2'}')")
    page.get(f"go('destination', {json.dumps(name)})")
    page.wait(f"{ROWS}.length === 3")
    for at in range(3):
        page.get(f"{ROWS}[{at}].click()")
        assert "document.title='stolen'" in page.text(".message")
        for shape in ("Text", "Hex"):
            page.click(shape, ".message")
    page.click("Purge…")
    says(page, "document.title='stolen'", "dialog")
    assert page.get("document.title").endswith("stompcodec broker")
    assert "stolen" not in page.get("document.title").partition("document.title='stolen'")[0]
    assert page.get("document.querySelectorAll('img, body script ~ script, iframe').length") == 0


def test_its_scripts_write_text_only() -> None:
    text = page_text(Config())
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    markup = r"innerHTML|outerHTML|insertAdjacent|ContextualFragment|DOMParser|setHTML|parseHTML|srcdoc"
    assert not re.search(markup + r"|\b(eval|Function|document\.write)\b *\(", script)
    assert not re.search(r"https?://(?!www\.w3\.org)", text)
    assert "sessionStorage" not in script
    assert re.findall(r"localStorage\.setItem\((.*?),", script) == ['"stompcodec-theme"']


# ---- orders ----
def test_an_order_does_nothing_until_it_is_confirmed(broker: StompBroker, client: stomp.Client, opened: Any) -> None:
    fill(client, "/queue/a", 4)
    page = opened(broker, quoted("/queue/a"))
    page.click("Purge…")
    says(page, "removes the 5 ready messages for ever", "dialog")
    assert page.get("document.querySelector('dialog button[type=submit]').disabled")
    page.press("Enter")
    page.get("document.querySelector('dialog input:last-of-type').closest('form').requestSubmit()")
    page.click("Cancel", "dialog")
    page.wait("!document.querySelector('dialog')")
    page.click("Purge…")
    page.press("Escape")
    page.wait("!document.querySelector('dialog')")
    assert ready(client, "/queue/a") == 5
    page.click("Purge…")
    page.type("/queue/", "dialog [aria-label^=Type]")
    assert page.get("document.querySelector('dialog button[type=submit]').disabled")
    page.type("a")
    page.click("Purge", "dialog")
    says(page, "5 messages removed from /queue/a.", "#toasts")
    page.wait("!document.querySelector('dialog')")
    assert ready(client, "/queue/a") == 0


def test_pause_move_and_delete(broker: StompBroker, client: stomp.Client, opened: Any) -> None:
    fill(client, "/queue/a", 2)
    page = opened(broker, quoted("/queue/a"))
    page.click("Pause…")
    assert not ask(client, "destinations", match="/queue/a")[0]["paused"]
    page.click("Pause", "dialog")
    says(page, "/queue/a is paused.", "#toasts")
    assert ask(client, "destinations", match="/queue/a")[0]["paused"]
    page.click("Resume…")
    page.click("Resume", "dialog")
    says(page, "/queue/a is resumed.", "#toasts")
    page.click("Move…")
    page.type("/queue/a", "dialog [name=to]")
    page.click("Move", "dialog")
    says(page, "it is the queue itself", "dialog [role=alert]")
    page.get("document.querySelector('dialog [name=to]').value = '/queue/b'")
    page.type("2", "dialog [name=limit]")
    page.click("Move", "dialog")
    says(page, "2 messages moved to /queue/b.", "#toasts")
    assert (ready(client, "/queue/a"), ready(client, "/queue/b")) == (1, 2)
    page.wait("document.querySelector('.tile dd').textContent === '1'")
    page.click("Delete…")
    says(page, "its 1 message for ever", "dialog")
    page.type("/queue/a", "dialog [aria-label^=Type]")
    page.click("Delete", "dialog")
    says(page, "/queue/a is deleted, with 1 message.", "#toasts")
    assert ready(client, "/queue/a") is None


def test_dead_letters_are_sent_again(broker: StompBroker, client: stomp.Client, opened: Any) -> None:
    fill(client, "/queue/a", 2)
    subscription = client.subscribe("/queue/a", ack="client-individual")
    for _ in range(3):
        message = subscription.get(timeout=patience(20))
        assert message is not None
        message.nack(requeue=False)
    subscription.unsubscribe()
    page = opened(broker, "dead")
    page.wait("document.querySelector('nav [aria-current]').textContent === 'Dead letters3'")
    page.click("/queue/DLQ.a", "#main")
    page.wait(f"{ROWS}.length === 3")
    assert [row[1:3] for row in cells(page)] == [["rejected", "/queue/a"]] * 3
    page.get(f"{ROWS}[0].click()")
    says(page, "Dead letter: rejected, from /queue/a, after 1 attempt.", ".message")
    page.click("Send again…", ".message")
    assert ready(client, "/queue/DLQ.a") == 3
    page.click("Send 1 message again", "dialog")
    says(page, "1 message sent again.", "#toasts")
    assert (ready(client, "/queue/DLQ.a"), ready(client, "/queue/a")) == (2, 1)
    page.wait(f"{ROWS}.length === 2")
    page.click("Send again…", ".head")
    says(page, "up to 2 ready messages", "dialog")
    page.click("Send again", "dialog")
    says(page, "2 messages sent again.", "#toasts")
    assert ready(client, "/queue/a") == 3


def test_a_session_is_closed_and_the_level_set(broker: StompBroker, client: stomp.Client, opened: Any) -> None:
    with stomp.connect(broker.url, client_id="victim", reconnect=None):
        page = opened(broker, "sessions")
        page.wait(f"{ROWS}.length === 3")
        page.get(f"[...{ROWS}].find((row) => row.textContent.includes('victim')).click()")
        page.click("Close the session…")
        assert len(ask(client, "sessions")) == 3
        page.click("Close the session", "dialog")
        says(page, "is closed.", "#toasts")
        assert len(ask(client, "sessions")) == 2
    page.get("location.hash = '#/broker'")
    page.click("Level of the log…")
    page.get("document.querySelector('dialog select').value = 'error'")
    page.click("Set the level", "dialog")
    says(page, "The level of the log is error", "#toasts")
    assert ask(client, "broker")["log_level"] == "error"


# ---- rights, and the connection ----
def test_a_login_is_asked_for_and_a_missing_right_explained(opened: Any) -> None:
    rules = (
        *(Rule("ada", "manage"), Rule("eve", "manage", "/management/destinations")),
        *(Rule("eve", "manage", "/management/broker"), Rule("bob", "*", allow=False), Rule("*", "*")),
    )
    with (
        StompBroker(ws_port=0, web_page=True, users=USERS, rules=rules) as broker,
        stomp.connect(broker.url, login="ada", passcode="x") as client,
    ):
        fill(client, "/queue/a", 1)
        page = opened(broker, "sessions")
        page.type("ada", "#login [name=login]")
        page.type("wrong", "#login [name=passcode]")
        page.click("Log in", "#login")
        page.wait("document.querySelector('#login [role=alert]') !== null")
        page.type("bob", "#login [name=login]")
        page.type("x", "#login [name=passcode]")
        page.press("Enter")
        says(page, "This user may not manage the broker.", "#login [role=alert]")
        page.type("eve", "#login [name=login]")
        page.type("x", "#login [name=passcode]")
        page.press("Enter")
        says(page, "You may not ask for “sessions”: no rule allows it.", "#main")
        page.get(f"location.hash = '#/{quoted('/queue/a')}'")
        page.click("Purge…")
        page.type("/queue/a", "dialog [aria-label^=Type]")
        page.click("Purge", "dialog")
        says(page, "You may not ask for “purge”", "dialog [role=alert]")
        page.press("Escape")
        assert ready(client, "/queue/a") == 2
        page.click("Log out")
        page.type("ada", "#login [name=login]")
        page.type("x", "#login [name=passcode]")
        page.press("Enter")
        page.get("location.hash = '#/sessions'")
        page.wait(f"{ROWS}.length === 2")
        stored = page.get("JSON.stringify([location.href, localStorage, sessionStorage, document.cookie])")
        assert "ada" not in stored
        assert "passcode" not in page.get("document.documentElement.outerHTML.split('<script>')[0]")


def test_it_reconnects_and_says_so(broker: StompBroker, opened: Any) -> None:
    page = opened(broker)
    says(page, "Live", "#state")
    broker.stop()
    page.wait("document.querySelector('#state').className === 'down'")
    assert "Next attempt in" in page.text("#state")
    broker.start()
    says(page, "Live", "#state")
    page.errors.clear()  # Chromium notes that the connection was refused


def test_a_hidden_page_asks_nothing(broker: StompBroker, opened: Any) -> None:
    page = opened(broker)
    page.wait("app.asked > 1")
    page.get("Object.defineProperty(document, 'hidden', {value: true, configurable: true})")
    page.wait("!app.busy")
    asked = page.get("app.client.number")
    page.get("tick()")
    page.get("app.soon()")
    page.get("new Promise((done) => setTimeout(done, 2 * EVERY))")
    assert page.get("app.client.number") == asked
    page.get("delete document.hidden; document.dispatchEvent(new Event('visibilitychange'))")
    page.wait(f"app.client.number > {asked}")
    assert not page.get("(tick(), byId('hold').click(), app.again)")
    page.wait("!app.busy")
    asked = page.get("app.client.number")
    page.get("new Promise((done) => setTimeout(done, 2 * EVERY))")
    assert page.get("app.client.number") == asked
    says(page, "Frozen", "#state")


@pytest.mark.parametrize("width", [320, 390, 800])
def test_nothing_is_wider_than_the_window(broker: StompBroker, client: stomp.Client, opened: Any, width: int) -> None:
    long = "/queue/" + "a-long-name." * 12
    fill(client, long, 3, **{"x-" + "h" * 80: "v" * 300})
    client.subscribe("/topic/a")
    page = opened(broker)
    page.resize(width, 800, phone=True)
    views = ["overview", "destinations", "sessions", "subscriptions", "durables", "dead", "transactions", "broker"]
    for view in [*views, quoted(long)]:
        page.get(f"location.hash = '#/{view}'")
        page.wait("app.view && !app.busy && document.querySelector('#main').children.length")
        sizes = page.get("[document.documentElement.scrollWidth, document.querySelector('#main').scrollWidth]")
        assert max(sizes) <= width, view
        if view == "broker":
            page.wait("document.querySelectorAll('.tile dd')[1].textContent === 'stompcodec'")
            assert page.get("document.querySelectorAll('.tile dd')[1].clientHeight") < 30, "in one line"
    page.wait(f"{ROWS}.length === 4")
    page.get(f"{ROWS}[0].click()")
    page.click("Purge…")
    assert page.get("document.documentElement.scrollWidth") <= width
    assert page.get("document.querySelector('dialog').getBoundingClientRect().right") <= width


def test_keys_colours_and_names_for_readers(broker: StompBroker, client: stomp.Client, opened: Any) -> None:
    fill(client, "/queue/a", 1)
    page = opened(broker)
    page.prefer("dark")
    says(page, "Live", "#state")
    dark = page.get("getComputedStyle(document.body).backgroundColor")
    page.press("t")
    light = page.get("getComputedStyle(document.body).backgroundColor")
    page.press("t")
    assert page.get("getComputedStyle(document.body).backgroundColor") == dark != light
    page.press("t")
    page.press("?")
    says(page, "the next, the previous row", "dialog")
    page.press("Escape")
    page.wait("!document.querySelector('dialog')")
    page.press("2")
    says(page, "Destinations", "h2")
    page.wait("document.activeElement.getAttribute('aria-label') === 'Destinations'")
    page.press("/")
    assert page.get("document.activeElement.type") == "search"
    page.press("Escape")
    page.wait(f"{ROWS}.length >= 1")  # else there is nothing to go to
    page.press("ArrowDown")
    page.wait("document.activeElement.getAttribute('role') === 'grid'")
    page.press("Enter")
    says(page, "/queue/a", "h2")
    page.wait("document.activeElement.getAttribute('aria-label') === '/queue/a'")
    page.press("Tab")
    assert page.get("document.activeElement.offsetParent !== null")
    unnamed = page.get(
        "[...document.querySelectorAll('button, input, select, canvas, [role=grid], nav, dialog')].filter((each) =>"
        " !(each.textContent.trim() || each.getAttribute('aria-label') || each.labels?.length))"
        ".map((each) => each.outerHTML)"
    )
    assert unnamed == []


#: Which keys of a row change what a column shows. Other columns show their own key, and nothing else.
OF_SEVERAL = {
    **{"state": {"paused", "producers_waiting"}, "listener": {"listener", "secure"}},
    "kind": {"kind", "browser", "exclusive", "priority"},
}
#: The tiles of a queue, and of a session, by the key that each one shows.
TILES = {
    "new DestinationView('destination', 'x')": {
        **{"Ready": "ready", "Unacknowledged": "unacknowledged", "Scheduled": "scheduled", "On disk only": "paged"},
        **{"Oldest": "oldest", "Memory": "bytes", "Consumers": "consumers", "Credit": "credit"},
        **{"Senders that wait": "producers_waiting", "Received": "received", "Delivered": "delivered"},
        **{"Redelivered": "redelivered", "Expired": "expired", "Dropped": "dropped", "Dead letters": "dead_letters"},
    },
    "new SessionView('x')": {
        **{"Address": "peer", "User": "user", "Client-id": "client_id", "STOMP": "version", "Connected for": "age"},
        **{"Unacknowledged": "unacknowledged", "Transactions": "transactions", "Output it has not read": "unwritten"},
        **{"Memory": "memory", "State": "waiting"},
        **{"In, per second": "received_rate", "Out, per second": "delivered_rate"},
    },
}
#: Vary each key of a row, and return by what is shown the keys that change it. `texts` returns what a row shows.
VARIED = """((keys, texts) => {
  const number = (key, more) => 7 + 9000 * more;
  const values = { boolean: (key, more) => !more, string: (key, more) => key + more, number };
  const value = (key, more) => values[typeof keys[key]](key, more);
  const row = (changed) =>
    Object.fromEntries(Object.keys(keys).map((key) => [key, value(key, key === changed ? 1 : 0)]));
  const before = texts(row(null)), found = Object.fromEntries(Object.keys(before).map((each) => [each, []]));
  for (const key of Object.keys(keys)) {
    const after = texts(row(key));
    for (const each of Object.keys(before)) if (before[each] !== after[each]) found[each].push(key);
  }
  return found;
})"""


def example(request: str) -> str:
    """A row of a request, as JSON: a value of the kind of each column."""
    kinds = {"text": "x", "whole": 7, "number": 7, "flag": False}
    columns = REQUESTS[request].columns
    return json.dumps({column.name: kinds[column.kind.removesuffix("?")] for column in columns})


@pytest.mark.parametrize("name", ["destinations", "dead", "sessions", "subscriptions", "durables", "transactions"])
def test_each_column_shows_what_its_title_says(broker: StompBroker, opened: Any, name: str) -> None:
    page = opened(broker)
    page.wait("app.asked > 0")
    request = page.get(f"LISTS.{name}.ask")
    texts = f"(row) => Object.fromEntries(LISTS.{name}.columns.map((each) => [each.key, String(each.text(row))]))"
    found = page.get(f"{VARIED}({example(request)}, {texts})")
    assert len(found) == page.get(f"LISTS.{name}.columns.length") > 3
    keys = {column.name for column in REQUESTS[request].columns}
    expected = {key: {key} if key in keys else set() for key in found}
    if name not in ("destinations", "dead"):
        expected |= {key: OF_SEVERAL[key] & keys for key in found if key in OF_SEVERAL and key != "state"}
    expected |= {"state": OF_SEVERAL["state"]} if "state" in found else {}
    assert {key: set(by) for key, by in found.items()} == expected
    titles = page.get(f"LISTS.{name}.columns.map((each) => each.title)")
    assert len(set(titles)) == len(titles)


@pytest.mark.parametrize("view", TILES)
def test_each_tile_shows_what_its_title_says(broker: StompBroker, opened: Any, view: str) -> None:
    page = opened(broker)
    page.wait("app.asked > 0")
    page.get(f"window.made = {view}; null")
    texts = """(row) => {
      made.tiles.show(row);
      const pair = (each) => [each.firstChild.textContent, each.lastChild.textContent];
      return Object.fromEntries([...made.tiles.node.children].map(pair));
    }"""
    request = "sessions" if "Session" in view else "destinations"
    found = page.get(f"{VARIED}({example(request)}, {texts})")
    found.pop("Listener", None)
    assert found == {title: [key] for title, key in TILES[view].items()}


#: Draw a plot with one peak, and return where its top is: the leftmost column that is as high, of all columns.
PEAK = """((plot, series, time) => {
  plot.show([{ name: "", series }], time);
  const { width, height } = plot.canvas, pixels = plot.canvas.getContext("2d").getImageData(0, 0, width, height).data;
  const tone = ink("--one").match(/\\d+/g).map(Number);
  for (let y = 0; y < height; y += 1) for (let x = 0; x < width; x += 1) {
    const at = 4 * (y * width + x);
    if (pixels[at + 3] > 200 && tone.every((part, place) => Math.abs(pixels[at + place] - part) < 12)) return x / width;
  }
  return null;
})"""


def test_a_plot_moves_to_the_left(broker: StompBroker, opened: Any) -> None:
    page = opened(broker)
    page.wait("app.asked > 1")
    page.press("p")
    page.wait("!app.busy")
    page.get("""window.line = new Series(); window.plot = app.view.plots.sessions;
      for (let at = 1000; at <= 1010; at += 1) line.add(at, at === 1005 ? 100 : 1); null""")
    places = [page.get(f"{PEAK}(plot, line, {time})") for time in (1010, 1210, 1410, 1600)]
    assert places == pytest.approx([1 - 5 / 600, 1 - 205 / 600, 1 - 405 / 600, 1 - 595 / 600], abs=0.02)
    page.get("for (let at = 1640; at <= 1695; at += 1) line.add(at, at === 1690 ? 100 : 1); null")
    assert page.get(f"{PEAK}(plot, line, 1695)") == pytest.approx(1 - 5 / 600, abs=0.02)
