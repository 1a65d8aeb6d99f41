"""The page of the broker in headless Chromium: each column and tile shows the right number, and plots move."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("websockets")

from chromium import needs_chromium

from stompcodec.broker.management.schema import REQUESTS
from stompcodec.testing import StompBroker

pytestmark = [pytest.mark.long, needs_chromium]

#: Which keys of a row change what a column shows. Other columns show their own key, and nothing else.
OF_SEVERAL = {
    "state": {"paused", "producers_waiting"},
    "listener": {"listener", "secure"},
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
    page.get("""window.line = new Series(); window.plot = app.view.plots.rate;
      for (let at = 1000; at <= 1010; at += 1) line.add(at, at === 1005 ? 100 : 1); null""")
    places = [page.get(f"{PEAK}(plot, line, {time})") for time in (1010, 1070, 1130, 1184)]
    assert places == pytest.approx([1 - 5 / 180, 1 - 65 / 180, 1 - 125 / 180, 1 - 179 / 180], abs=0.02)
    page.get("for (let at = 1140; at <= 1195; at += 1) line.add(at, at === 1190 ? 100 : 1); null")
    assert page.get(f"{PEAK}(plot, line, 1195)") == pytest.approx(1 - 5 / 180, abs=0.02)
