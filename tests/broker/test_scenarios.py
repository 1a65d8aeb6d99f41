"""The session scenarios against our broker, over TCP and WebSocket. `make scenarios`: those of FOLDER."""

import argparse
import json
import os
import re
import socket
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from patience import patience

pytest.importorskip("click")
pytest.importorskip("websockets")
import run_scenarios
from crash.process import BrokerProcess

TESTS = Path(__file__).parents[1]
CONFIGS = TESTS.parent / "examples" / "brokers"
FOLDER = Path(os.environ.get("STOMPCODEC_SCENARIOS") or TESTS / "scenarios")
#: At once. Most of a scenario's time is waiting for what must not come.
JOBS = 24
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not CONFIGS.is_dir(), reason="without the examples: this is not the whole tree"),
]


def _scenarios() -> Iterator[Any]:
    for path in sorted(FOLDER.glob("*.json")):
        for scenario in json.loads(path.read_text(encoding="utf-8"))["scenarios"]:
            config = (scenario.get("features") or ["default"])[0]
            if (CONFIGS / f"{config}.toml").is_file():
                yield pytest.param(config, scenario, id=scenario["id"])


CHOSEN = list(_scenarios())


def _options(port: int, ws: str | None, name: str) -> argparse.Namespace:
    return argparse.Namespace(
        host="127.0.0.1",
        port=port,
        ws=ws,
        timeout=patience(15),
        login="guest",
        passcode="guest",
        vhost="/",
        queue_prefix=f"/queue/{name}-",
        topic_prefix=f"/topic/{name}-",
    )


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, BrokerProcess]]:
    """A broker for each configuration; all of them start at once."""
    names = {param.values[0] for param in CHOSEN}
    made = {n: BrokerProcess(tmp_path_factory.mktemp(n), config=CONFIGS / f"{n}.toml") for n in sorted(names)}
    try:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(BrokerProcess.start, made.values()))
        yield made
    finally:
        for broker in made.values():
            broker.kill()


@pytest.fixture(scope="module", params=["TCP", "WebSocket"])
def results(request: pytest.FixtureRequest, brokers: dict[str, BrokerProcess]) -> Iterator[dict[str, Future[str]]]:
    """Scenario -> what went wrong, None for nothing. All of them are started at once; each test waits for its own."""
    pool, found = ThreadPoolExecutor(JOBS), {}
    try:
        for config, scenario in (param.values for param in CHOSEN):
            broker = brokers[config]
            place = (broker.port, None) if request.param == "TCP" else (broker.ws_port, "/any/path")
            found[scenario["id"]] = pool.submit(run_scenarios.run, scenario, _options(*place, request.param))
        yield found
    finally:
        pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize(("config", "scenario"), CHOSEN)
def test_scenario(config: str, scenario: dict[str, Any], results: dict[str, Future[str]]) -> None:
    assert results[scenario["id"]].result() is None


@pytest.mark.parametrize(
    ("steps", "wrong"),
    [
        ([{"expect_heartbeats": "a", "offer": "offer", "wants": 500}], None),  # CONNECTED has no heart-beat header
        ([{"expect_heartbeats": "a", "offer": "words", "wants": 500}], "step 1 .* ValueError.*invalid literal.*'no'"),
        ([{"dance": "a"}], "step 1 .*dance.* StopIteration"),
    ],
)
def test_a_scenario_that_raises_is_a_failed_one(steps, wrong, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as server:
        options = _options(server.getsockname()[1], None, "raises")
        made = run_scenarios.Run.__init__

        def begin(self: run_scenarios.Run, *arguments: Any) -> None:
            made(self, *arguments)
            self.names.update(offer=None, words="no")
            self.connections["a"] = run_scenarios.Connection(options, options.timeout)

        monkeypatch.setattr(run_scenarios.Run, "__init__", begin)
        found = run_scenarios.run({"steps": steps}, options)
    assert found == wrong or (wrong and re.match(wrong, found))


@pytest.mark.skipif(FOLDER != TESTS / "scenarios", reason="another folder was asked for")
def test_all_are_here() -> None:
    configs = {param.values[0] for param in CHOSEN}
    assert {"default", "nack", "transactional-ack", "auth", "limits", "heart-beat-timeout", "virtual-hosts"} <= configs
    assert len(CHOSEN) > 120
