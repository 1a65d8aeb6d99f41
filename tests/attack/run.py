"""All attacks at once on a broker process, with well-behaved pairs beside them, and what is left afterwards."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from attack.attackers import ATTACKS, Ports, be_idle
from attack.pair import Side
from crash.process import ROOT, BrokerProcess
from patience import patience

__all__ = ["CONFIG", "PAIRS", "Figures", "attack"]

MIB = 2**20
#: What attackers send stays in memory, where it does most harm, unless it says persistent:true.
CONFIG = "[listen]\nlegacy_port = 0\n[store]\ndurable = 'persistent'\n"
#: A pair whose messages are stored, and one whose messages are not.
PAIRS = ("stored", "plain")
_FOLDER = Path(__file__).parent


class Figures(NamedTuple):
    """What an attack did.

    `pairs` has a record for each of PAIRS: sent, lost, wrong, and p50, p95, p99, max of the receipts in ms. `top` is
    the largest resident memory in bytes. `left` lists what is not as before once the attackers have gone.
    """

    pairs: dict[str, dict[str, float]]
    top: int
    after: int
    left: list[str]


def attack(
    folder: Path, seconds: float, names: Sequence[str] = (), show: Callable[[float, int], object] = lambda *_: None
) -> Figures:
    """Attack a broker of its own for some seconds.

    Args:
        folder: for the broker's data and log.
        seconds: how long.
        names: of the attacks; all without any.
        show: told seconds and resident memory, again and again.
    """
    with BrokerProcess(folder, config=CONFIG) as broker:
        ports = Ports(broker.port, broker.ws_port, int(broker.address["legacy_port"]))
        _settle(broker)
        before = _state(broker)
        began, top = time.monotonic(), 0
        pairs = {name: _start("pair", name, seconds, ports.plain) for name in PAIRS}
        attackers = [_start("attackers", name, seconds, *ports) for name in names or ATTACKS]
        while any(process.poll() is None for process in [*pairs.values(), *attackers]):
            top = max(top, broker.rss())
            show(time.monotonic() - began, broker.rss())
            time.sleep(0.05)
            if time.monotonic() - began > seconds + 2 * patience(120):
                break
        found = {name: _result(process) for name, process in pairs.items()}
        for process in attackers:
            process.kill()
            process.wait()
        left, later = _clean(broker, before)
        return Figures(found, max(top, later), broker.rss(), left)


def _start(module: str, *arguments: object) -> subprocess.Popen[bytes]:
    idle = module == "attackers"
    paths = [ROOT, str(_FOLDER.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    return subprocess.Popen(
        [sys.executable, "-m", f"attack.{module}", *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        stdout=subprocess.PIPE if module == "pair" else subprocess.DEVNULL,
        start_new_session=idle,
        preexec_fn=be_idle if idle else None,  # from the first moment: to start Python takes time, too
    )


def _result(process: subprocess.Popen[bytes]) -> dict[str, float]:
    """Return what a pair printed; a pair that failed has lost everything."""
    try:
        output, _ = process.communicate(timeout=patience(120))
    except subprocess.TimeoutExpired:
        process.kill()
        output, _ = process.communicate()
    failed = {"sent": 0, "lost": -1, "wrong": -1, "p50": -1, "p95": -1, "p99": -1, "max": -1}
    return json.loads(output) if output else failed


# ---- what is left ----


def _state(broker: BrokerProcess) -> Counter[str]:
    """Return how many descriptors of each kind and files of large messages the broker has.

    Not those of the store, which are few but opened late: it opens its database once more when it first has something
    to tidy up, and once the disk seems slow, each of its threads reads how long it has waited for a CPU.
    """
    incoming = broker.folder / "data" / "incoming"
    state: Counter[str] = Counter()
    for each in Path(f"/proc/{broker.pid}/fd").iterdir():
        with suppress(OSError):  # closed meanwhile
            name = each.readlink().name
            if not name.startswith(("messages.sqlite", "schedstat")):
                state["descriptors of " + name.partition(":")[0]] += 1
    state["files"] = sum(entry.name.count("-") == 1 for entry in incoming.iterdir()) if incoming.is_dir() else 0
    return state


def _settle(broker: BrokerProcess) -> None:
    """Use everything once, so that what stays open for good is open before we count."""
    side = Side(broker.port)
    side.send("SEND", ("destination", "/queue/first"), ("persistent", "true"), ("receipt", "1"), body=b"x" * 200_000)
    side.frame()
    _drain(side, "/queue/first")
    side.socket.close()


def _drain(side: Side, queue: str) -> int:
    """Take everything out of a queue. Return how many messages there were."""
    side.send("SUBSCRIBE", ("id", "drain"), ("destination", queue), ("receipt", "drain"))
    side.send("SEND", ("destination", queue), ("last", "true"), ("priority", "0"))
    taken = 0
    while (frame := side.frame()).get("last") is None:
        taken += frame.command == "MESSAGE"
    side.send("UNSUBSCRIBE", ("id", "drain"), ("receipt", "drained"))
    side.frame()
    return taken


def _drain_all(broker: BrokerProcess) -> str | None:
    """Empty the queues of the attackers. Return why not, as long as their names use up the share of this address."""
    try:
        side = Side(broker.port)
        for queue in ("empty", "large", "fragments", "heads", "tx"):
            _drain(side, f"/queue/attack.{queue}")
        side.socket.close()
    except (AssertionError, OSError) as error:
        return repr(error)
    return None


def _more(broker: BrokerProcess, before: Counter[str]) -> list[str]:
    """Return what there is more of than before."""
    now = _state(broker)
    return [f"{name}: {before[name]} before, {now[name]} after" for name in now if now[name] > before[name]]


def _clean(broker: BrokerProcess, before: Counter[str]) -> tuple[list[str], int]:
    """Empty what the attackers have filled, and wait until the broker is as before.

    Returns:
        What is not, once nothing has changed for a while; and the largest resident memory in bytes.
    """
    if not broker.running:
        return ["the broker has ended"], 0
    top, more, changed = broker.rss(), [""], time.monotonic()
    while more and time.monotonic() < changed + patience(60):
        refusal = _drain_all(broker)
        time.sleep(1)  # its own connection goes
        now = _more(broker, before) if refusal is None else [f"a new client is not served: {refusal}"]
        top = max(top, broker.rss())
        if now != more:
            more, changed = now, time.monotonic()
    log = broker.log.read_text(encoding="utf-8", errors="replace")
    words = [word for word in ("Traceback", "internal error") if word in log]
    return more + [f"the log has {log.count(word)} times {word!r}" for word in words], top
