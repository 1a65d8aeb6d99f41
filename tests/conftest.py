"""What all tests share: the two backends, the hypothesis profiles, and the count of requirements that no test names."""

import contextlib
import csv
import gc
import importlib
import inspect
import logging
import os
import re
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import peering
import profiles
import pytest
from installed import is_source_tree
from patience import patience
from sharing import SPARK, file_of, make_scheduler, worth_first

import stompcodec
from stompcodec.broker import hot
from stompcodec.testing import StompBroker
from stompcodec.transport import tls

HERE = Path(__file__).parent
MODULES = {"py": "stompcodec._codec_py", "c": "stompcodec._codec_c"}
IDENTIFIER = re.compile(r"\b(?:S10|S11|S12|LEG|WISH|ART)-[A-Z0-9]+-\d+\b")
profiles.load()
#: Seconds that tests wait at a `StompBroker`. Only a test that fails waits this long.
for _wait in ("expect", "wait_subscribed", "wait_connected", "wait_disconnected", "wait_queued"):
    inspect.unwrap(getattr(StompBroker, _wait)).__kwdefaults__["timeout"] = 60.0
#: Seconds on a quiet machine after which a test hangs, and fails; and one that is marked as slow. What a test waits for
#: takes less, so that it can say what did not come.
_HANGS, _HANGS_SLOW = 180.0, 900.0


@pytest.hookimpl(optionalhook=True, tryfirst=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> Any:
    """Give tests more time on a slow machine. pytest-timeout asks this first, then its own."""
    set_timer = importlib.import_module("pytest_timeout").pytest_timeout_set_timer
    return set_timer(item, settings._replace(timeout=patience(settings.timeout)))


def pytest_configure(config: pytest.Config) -> None:
    if is_source_tree(Path(stompcodec.__file__)):
        raise pytest.UsageError(
            "these tests would run on the source tree, where the C backend may be missing or old: use `make test`, "
            "`make quick ROOM=…` or .venv/bin/pytest, not `python -m pytest`"
        )
    config.pluginmanager.register(peering)
    # A shell has background programs ignore SIGINT, and nohup SIGHUP. Programs that tests start would inherit that.
    defaults = {signal.SIGINT: signal.default_int_handler, getattr(signal, "SIGHUP", None): signal.SIG_DFL}
    for number, handler in defaults.items():
        if number is not None and signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--no-c", action="store_true", help="leave out all tests of the C backend")
    parser.addoption("--only-c", action="store_true", help="leave out tests of the Python backend alone")
    parser.addoption("--peers", action="store_true", help="run tests with the mark peer, too")


def _needs(name: str, item: pytest.Item) -> bool:
    parameters = getattr(getattr(item, "callspec", None), "params", {})
    return parameters.get("codec") == name or item.get_closest_marker(f"{name}_only") is not None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    known = {row["id"] for row in requirements()}
    hangs = config.pluginmanager.hasplugin("timeout")
    skip = pytest.mark.skip(reason="the broker's modules are compiled: this runs with STOMPCODEC_PLAIN=0")
    for item in items:
        if hot.COMPILED and item.get_closest_marker("uncompiled"):
            item.add_marker(skip)
        if "spark" in getattr(item, "fixturenames", ()):
            if file_of(item.nodeid) not in SPARK:
                raise pytest.UsageError(f"{item.nodeid} takes a Spark session: add its file to SPARK of sharing.py")
            item.add_marker(pytest.mark.long)
        if hangs and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(_HANGS_SLOW if item.get_closest_marker("slow") else _HANGS))
        if not {"codec", "both"}.isdisjoint(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.names_backend)
        for mark in item.iter_markers("req"):
            unknown = set(mark.args) - known
            if unknown:
                raise pytest.UsageError(f"{item.nodeid}: no such requirement: {', '.join(sorted(unknown))}")
    without_c = config.getoption("--no-c") or os.environ.get("STOMPCODEC_PURE") == "1"
    unwanted = "c" if without_c else "py" if config.getoption("--only-c") else None
    if unwanted is not None:
        config.hook.pytest_deselected(items=[item for item in items if _needs(unwanted, item)])
        items[:] = [item for item in items if not _needs(unwanted, item)]
    if hasattr(config, "workerinput"):  # a process of pytest-xdist
        items.sort(key=lambda item: worth_first(item.nodeid))


#: Modules and fixtures that search for garbage, by the names under which tests have them.
_SEARCHES = {"gc", "tracing", "assert_empty", "run"}


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Search for no garbage while tests are collected: there is none, and each of the processes would take a second."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """Leave what was collected out of every search for garbage: each would take 0.3 s."""
    profiles.begin()
    gc.collect()
    gc.freeze()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Do so again before a test that searches: a broker that ran in this process has undone it when it ended."""
    if _SEARCHES & {*vars(getattr(item, "module", object)), *getattr(item, "fixturenames", ())}:
        pytest_collection_finish()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Share the tests as sharing.py says, unless another way is asked for."""
    return make_scheduler(config, log) if config.getvalue("dist") == "load" else None


@pytest.fixture(autouse=True)
def _log_levels() -> Iterator[None]:
    """Restore the levels of the broker's log, which an order of a manager changes, also one from its page."""
    logs = [logging.getLogger(f"stompcodec.broker{end}") for end in ("", ".management")]
    before = [log.level for log in logs]
    yield
    for log, level in zip(logs, before, strict=True):
        log.setLevel(level)


def backend(name: str) -> Any:
    try:
        return importlib.import_module(MODULES[name])
    except ModuleNotFoundError:
        if name != "c":
            raise
        pytest.skip("the C backend is not built")


@pytest.fixture(scope="session", params=["py", "c"])
def codec(request: pytest.FixtureRequest) -> Any:
    """The module of a backend: every test that takes this runs on both."""
    return backend(request.param)


@pytest.fixture(scope="session")
def both() -> tuple[Any, Any]:
    """The C and the Python backend, for tests that compare them. Such tests are marked c_only."""
    return backend("c"), backend("py")


@pytest.fixture(scope="session")
def own_addresses() -> list[str]:
    """The address of this machine that is not loopback, if it has one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock, contextlib.suppress(OSError):
        sock.connect(("192.0.2.1", 9))  # sends nothing
        address = str(sock.getsockname()[0])
        return [] if address.startswith("127.") else [address]
    return []


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory, own_addresses: list[str]) -> SimpleNamespace:
    """PEM files: `ca`; `server` of this machine, also as `cert` and `key`; `client`; `stranger` of another authority.
    `contexts` of TLS: of that server, and of a client that trusts it."""
    trustme = pytest.importorskip("trustme", reason="certificates for TLS are made by trustme")
    folder, authority = tmp_path_factory.mktemp("tls"), trustme.CA()
    server = authority.issue_cert("localhost", "127.0.0.1", *own_addresses)
    issued = {"server": server, "client": authority.issue_cert("ann@example.org")}
    issued["stranger"] = trustme.CA().issue_cert("127.0.0.1")
    blobs = {name: each.private_key_and_cert_chain_pem for name, each in issued.items()}
    blobs |= {"ca": authority.cert_pem, "cert": server.cert_chain_pems[0], "key": server.private_key_pem}
    files = {name: str(folder / f"{name}.pem") for name in blobs}
    for name, blob in blobs.items():
        blob.write_to_path(files[name])
    contexts = SimpleNamespace(server=tls.server_context(files["server"]), client=tls.client_context(files["ca"]))
    return SimpleNamespace(**files, contexts=contexts)


@pytest.fixture
def queue(request: pytest.FixtureRequest) -> str:
    """A queue that no other test uses."""
    return f"/queue/{request.node.name.replace('[', '.').replace(']', '')}"


def requirements() -> list[dict[str, str]]:
    """Those of STOMP, which `lint` names, and those of brokers."""
    tables = (HERE.parent / "stompcodec" / "cli" / "rules.tsv", HERE / "requirements.tsv")
    lines = (table.read_text(encoding="utf-8").splitlines() for table in tables)
    return [row for table in lines for row in csv.DictReader(table, delimiter="\t")]


def _named() -> set[str]:
    """The ids that stand in a test or a vector."""
    files = [path for suffix in ("*.py", "*.json") for path in HERE.rglob(suffix)]
    return {name for path in files for name in IDENTIFIER.findall(path.read_text(encoding="utf-8"))}


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    named, rows = _named(), requirements()
    for what, ids in (
        ("the codec", [row["id"] for row in rows if "codec-" in row["binds"]]),
        ("STOMP 1.0 to 1.2", [row["id"] for row in rows if row["id"].startswith("S1")]),
    ):
        open_ids = [name for name in ids if name not in named]
        more = f"; open: {', '.join(open_ids[:8])}{' …' if len(open_ids) > 8 else ''}" if open_ids else ""
        count = len(ids) - len(open_ids)
        terminalreporter.write_line(f"requirements of {what}: {count} of {len(ids)} are named by a test{more}")
