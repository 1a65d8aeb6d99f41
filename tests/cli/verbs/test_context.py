"""stompcodec context, and what contexts do for the verbs that connect."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from patience import patience

pytest.importorskip("click")
pytest.importorskip("websockets")

import click
from cli.at_broker import Runner
from click.testing import CliRunner, Result

from stompcodec.cli import connecting
from stompcodec.cli import connecting as contexts
from stompcodec.cli.app import app
from stompcodec.cli.connecting import Context, Contexts

SECRET = "s3cret-passcode"


@pytest.fixture(autouse=True)
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of the contexts, in a folder of this test."""
    for name in [name for name in os.environ if name.startswith("STOMPCODEC_")]:
        if name != "STOMPCODEC_PURE":
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr(click, "get_app_dir", lambda name: str(tmp_path / "config" / name))
    return tmp_path / "config" / "stompcodec" / "contexts.json"


def run(*arguments: str | Path, input: str | None = None, **environment: str) -> Result:
    return CliRunner().invoke(app, [*map(str, arguments)], input=input, env=environment)


def good(*arguments: str | Path, input: str | None = None, **environment: str) -> str:
    result = run(*arguments, input=input, **environment)
    assert result.exit_code == 0, result.output
    return str(result.output)


# The file


def test_contexts_are_added_selected_listed_shown_and_removed(config: Path) -> None:
    assert "there are no contexts" in good("context", "list")
    good("context", "add", "local", "localhost:61613")
    good("context", "add", "prod", "stomp+ssl://ann@broker/orders", "--ask-passcode", "--use", input=f"{SECRET}\n")
    listed = good("context", "list").splitlines()
    assert [line.split()[:2] for line in listed] == [["local", "stomp://localhost:61613"], ["*", "prod"]]
    shown = json.loads(good("context", "show", "--json"))
    assert shown == {"name": "prod", "url": "stomp+ssl://ann@broker:61614/orders", "passcode": "***"}
    good("context", "use", "local")
    assert "localhost" in good("context", "show")
    good("context", "remove", "local")
    assert run("context", "show").exit_code == 2  # none is selected any more
    assert contexts.load().all["prod"].passcode == SECRET
    good("context", "use", "prod")
    good("context", "use", "--none")
    assert contexts.load().selected is None


def test_a_passcode_is_never_shown(config: Path) -> None:
    good("context", "add", "a", "localhost:1", "--login", "ann", "--ask-passcode", "--use", input=f"{SECRET}\n")
    outputs = [
        good("context", "list"),
        good("context", "list", "--json"),
        good("context", "show"),
        good("context", "show", "--json"),
        run("ping").output,
        run("context", "add", "a", f"stomp://ann:{SECRET}@b").output,
        repr(contexts.load()),
        str(contexts.context_named("a")),
    ]
    assert [text for text in outputs if SECRET in text] == []
    assert run("context", "add", "b", f"stomp://ann:{SECRET}@b").exit_code == 2
    assert "b" not in contexts.load().all


def test_the_file_is_private_and_replaced_at_once(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = os.umask(0)
    try:
        good("context", "add", "a", "localhost:1")
    finally:
        os.umask(before)
    assert stat.S_IMODE(config.stat().st_mode) == 0o600
    assert stat.S_IMODE(config.parent.stat().st_mode) == 0o700
    held = config.read_bytes()

    def fail(*_names: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(contexts.os, "replace", fail)
    result = run("context", "add", "b", "localhost:2")
    assert (result.exit_code, "cannot be written: No space left" in result.output) == (2, True)
    assert config.read_bytes() == held
    assert sorted(path.name for path in config.parent.iterdir()) == ["contexts.json", "contexts.lock"]


def test_a_link_to_the_file_stays_one(config: Path, tmp_path: Path) -> None:
    good("context", "add", "a", "localhost:1")
    kept = tmp_path / "kept.json"
    config.rename(kept)
    config.symlink_to(kept)
    good("context", "add", "b", "localhost:2")
    assert config.is_symlink()
    assert set(contexts.load().all) == {"a", "b"}


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o644])
@pytest.mark.parametrize("verb", [["context", "list"], ["ping", "--context", "a"], ["ping"]], ids=" ".join)
def test_a_file_that_others_can_use_is_refused(config: Path, mode: int, verb: list[str]) -> None:
    good("context", "add", "a", "127.0.0.1:1")
    config.chmod(mode)
    result = run(*verb)
    assert result.exit_code == 2
    assert f"its mode is {mode:04o}" in result.output
    assert run("ping", "-u", "127.0.0.1:1").exit_code == 1  # with a URL the file does not count


BROKEN = {
    "not JSON": b"{",
    "not UTF-8": b'{"format": "\xff"}',
    "deep": b"[" * 100_000,
    "another format": b'{"format": 2, "contexts": {}}',
    "no contexts": b'{"format": 1}',
    "contexts are a list": b'{"format": 1, "contexts": []}',
    "a bad name": b'{"format": 1, "contexts": {"-a": {"url": "stomp://a"}}}',
    "not an object": b'{"format": 1, "contexts": {"a": "stomp://a"}}',
    "no url": b'{"format": 1, "contexts": {"a": {}}}',
    "a bad url": b'{"format": 1, "contexts": {"a": {"url": "gopher://a"}}}',
    "a passcode in the url": b'{"format": 1, "contexts": {"a": {"url": "stomp://a:b@c"}}}',
    "an unknown field": b'{"format": 1, "contexts": {"a": {"url": "stomp://a", "pass": "x"}}}',
    "a field of another type": b'{"format": 1, "contexts": {"a": {"url": "stomp://a", "insecure": "no"}}}',
    "an unknown version": b'{"format": 1, "contexts": {"a": {"url": "stomp://a", "version": "2"}}}',
    "an unknown selection": b'{"format": 1, "contexts": {}, "selected": "a"}',
    "too large": b" " * (2**20 + 1),
}


@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN)
def test_a_broken_file_is_2_before_connecting(config: Path, content: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stompcodec.client.connect", lambda *_arguments, **_options: pytest.fail("connected"))
    config.parent.mkdir(parents=True)
    config.write_bytes(content)
    config.chmod(0o600)
    for verb in (["context", "list"], ["ping"], ["ping", "--context", "a"], ["sub", "/queue/a"]):
        result = run(*verb)
        assert result.exit_code == 2, result.output
        assert str(config) in result.output.replace("\n", "")
        assert "Traceback" not in result.output


def test_a_file_of_the_largest_size_is_read(config: Path) -> None:
    config.parent.mkdir(parents=True)
    config.write_bytes(b'{"format": 1, "contexts": {}}'.ljust(2**20))
    config.chmod(0o600)
    assert contexts.load() == Contexts({})


@pytest.mark.parametrize(
    "arguments",
    [
        ["add", "7", "localhost:1"],
        ["add", "-a", "localhost:1"],
        ["add", "a" * 65, "localhost:1"],
        ["add", "a b", "localhost:1"],
        ["add", "a", "gopher://b"],
        ["add", "there", "localhost:1"],
        ["add", "a", "localhost:1", "--ask-passcode", "--passcode-file", "b"],
        ["use", "nobody"],
        ["use"],
        ["use", "there", "--none"],
        ["show", "nobody"],
        ["show"],
        ["remove", "nobody"],
    ],
    ids=" ".join,
)
def test_wrong_names_and_values_are_2(arguments: list[str]) -> None:
    good("context", "add", "there", "localhost:1")
    result = run("context", *arguments)
    assert result.exit_code == 2, result.output
    assert set(contexts.load().all) == {"there"}


def test_a_context_is_replaced_on_request_alone() -> None:
    good("context", "add", "a" * 64, "localhost:1")
    good("context", "add", "a" * 64, "localhost:2", "--replace")
    assert contexts.load().all["a" * 64].url == "stomp://localhost:2"


@pytest.mark.parametrize("given", ["", "\n"])
def test_no_passcode_is_1(given: str) -> None:
    assert run("context", "add", "a", "localhost:1", "--ask-passcode", input=given).exit_code == 1
    assert contexts.load().all == {}


@pytest.mark.long
def test_processes_that_add_at_the_same_time_lose_no_context(config: Path) -> None:
    command = [sys.executable, "-m", "stompcodec.cli", "context", "add"]
    environment = {**os.environ, "XDG_CONFIG_HOME": str(config.parents[1]), "HOME": str(config.parents[1])}
    names = [f"at{number}" for number in range(6)]
    processes = [subprocess.Popen([*command, name, "localhost:1"], env=environment) for name in names]
    assert [process.wait(patience(60)) for process in processes] == [0] * len(names)
    if sys.platform == "linux":
        assert sorted(contexts.load().all) == names


# The verbs that connect


@pytest.fixture
def named(at: Runner) -> None:
    """Contexts of the brokers, which the verbs get by name."""
    good("context", "add", "open", at.url)
    good("context", "add", "guarded", at.guarded_url, "--login", "guest", "--ask-passcode", input="guest\n")


def test_a_verb_takes_the_broker_and_the_login_of_a_context(named: None, at: Runner, fresh: str) -> None:
    assert run("ping", "-c0", at.guarded_url).exit_code == 1
    for way in (["--context", "guarded"], ["-u", "context:guarded"], ["context:guarded"]):
        assert good("ping", "-c0", *way)
    good("ping", "-c0", STOMPCODEC_CONTEXT="guarded")
    good("context", "use", "guarded")
    good("pub", fresh, "hello")
    assert good("sub", fresh, "-n1") == "hello\n"
    assert run("ping", "-c0", at.url).exit_code == 0  # another broker, without this login


def test_every_verb_takes_a_context(named: None, at: Runner, fresh: str, tmp_path: Path) -> None:
    capture = tmp_path / "a.stompcap"
    where = ["--context", "guarded"]
    good("pub", fresh, "hello", *where)
    good("record", fresh, "-o", capture, "-n1", "-q", *where)
    good("replay", capture, "-q", *where)
    assert good("sub", fresh, "-n1", *where) == "hello\n"
    good("record", "context:guarded", fresh, "-o", tmp_path / "b.stompcap", "-w0", "-q")
    good("replay", capture, "context:guarded", "-q")
    assert "no answer came" in run("req", fresh, "x", "--timeout", "0.1", *where).output
    good("bridge", "context:guarded", "context:open", "--drain", "-q", "-m", fresh)
    assert good("sub", fresh, "-n1", "--context", "open") == "hello\n"


def test_pipelines_take_a_context(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    from stompcodec.cli.verbs.pipeline import Input

    good("context", "add", "a", "broker:61613", "--login", "ann", "--ask-passcode", "--ca", "c.pem", input="x\n")
    good("context", "add", "b", "broker:61613", "--vhost", "/")
    options = dict.fromkeys(("follow", "available_now", "checkpoint", "login", "passcode_file"))
    options |= {"destinations": ("/queue/a",), "spool": "s"}
    before = os.environ.pop("STOMPCODEC_PASSCODE", None)
    try:
        with click.Context(click.Command("pipeline")):
            read = Input("context:a", options)
            assert read.source == "stomp://broker:61613"
            assert read.credentials == {
                "login": "ann",
                "caFile": os.path.abspath("c.pem"),
                "passcodeEnv": "STOMPCODEC_PASSCODE",
            }
            assert os.environ["STOMPCODEC_PASSCODE"] == "x"
            with pytest.raises(click.UsageError, match="has vhost"):
                Input("context:b", options)
    finally:
        os.environ.pop("STOMPCODEC_PASSCODE", None)
        if before is not None:
            os.environ["STOMPCODEC_PASSCODE"] = before


@pytest.mark.parametrize(
    "arguments",
    [
        ["ping", "--context", "nobody"],
        ["ping", "context:nobody"],
        ["ping", "-u", "context:nobody"],
        ["pub", "/queue/a", "x", "--context", "nobody"],
        ["record", "context:nobody", "/queue/a", "-o", "out"],
        ["replay", "out", "context:nobody"],
        ["bridge", "context:nobody", "localhost:1"],
        ["bridge", "localhost:1", "context:nobody"],
        ["ping", "--context", "open", "-u", "127.0.0.1:1"],
        ["ping", "127.0.0.1:1", "--context", "open"],
    ],
    ids=" ".join,
)
def test_an_unknown_name_and_two_brokers_are_2_before_connecting(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    good("context", "add", "open", "127.0.0.1:1")
    result = run(*arguments)
    assert result.exit_code == 2, result.output
    assert "unknown context 'nobody' (there is: open)" in result.output or "both name a broker" in result.output
    assert not (tmp_path / "out").exists()


def chosen(*arguments: str, **environment: str) -> Context | None:
    """The context that a verb gets."""
    found: list[Context | None] = []

    @click.command()
    @connecting.connection_options
    def verb(context: Context | None, **_given: object) -> None:
        found.append(context)

    result = CliRunner().invoke(verb, list(arguments), env=environment)
    assert result.exit_code == 0, result.output
    return found[0]


def test_the_nearest_name_of_a_broker_counts() -> None:
    good("context", "add", "a", "a:1")
    good("context", "add", "b", "b:1")
    assert chosen() is None
    good("context", "use", "a")
    a, b = contexts.load().all.values()
    assert chosen() == a
    assert chosen(STOMPCODEC_CONTEXT="b") == b
    assert chosen(STOMPCODEC_CONTEXT="") == a
    assert chosen("--context", "b") == b
    assert chosen("--context", "b", STOMPCODEC_URL="c:1") == b
    assert chosen("--url", "c:1") is None
    assert chosen("--url", "c:1", STOMPCODEC_CONTEXT="b") is None
    assert chosen(STOMPCODEC_URL="c:1") is None
    assert chosen("--url", "context:b") == b
    with pytest.raises(AssertionError, match="STOMPCODEC_URL and STOMPCODEC_CONTEXT both name a broker"):
        chosen(STOMPCODEC_URL="c:1", STOMPCODEC_CONTEXT="b")


def adopted(context: Context, *arguments: str, **environment: str) -> dict[str, object]:
    """The options that a verb connects with."""
    found: list[dict[str, object]] = []

    @click.command()
    @connecting.connection_options
    def verb(context: object, **given: object) -> None:
        found.append(connecting.adopt(named, given))

    named = context
    result = CliRunner().invoke(verb, list(arguments), env=environment)
    assert result.exit_code == 0, result.output
    return {name: value for name, value in found[0].items() if value not in (None, False)}


def test_options_come_before_the_context_and_the_context_before_the_environment() -> None:
    context = Context("a", "b:1", "ann", SECRET, None, "/", "1.2", "ca.pem", True)
    whole = {"url": "b:1", "login": "ann", "passcode": SECRET, "vhost": "/", "version": "1.2", "ca": "ca.pem"}
    assert adopted(context) == {**whole, "insecure": True}
    assert adopted(context, STOMPCODEC_LOGIN="bob") == {**whole, "insecure": True}
    others = ["--vhost", "v", "--version", "1.1", "--ca", "d.pem"]
    assert adopted(context, *others) == {**whole, "vhost": "v", "version": "1.1", "ca": "d.pem", "insecure": True}
    given = adopted(context, "--login", "bob")
    assert (given["login"], given.get("passcode")) == ("bob", None)  # which is ann's
    assert adopted(context, "--login", "ann")["passcode"] == SECRET
    given = adopted(context, "--passcode-file", "f")
    assert (given["login"], given["passcode_file"], given.get("passcode")) == ("ann", "f", None)
    assert adopted(Context("a", "b:1"), STOMPCODEC_LOGIN="bob")["login"] == "bob"
    assert "login" not in adopted(Context("a", "stomp://eve@b:1"), STOMPCODEC_LOGIN="bob")


def test_the_passcode_of_a_context_comes_before_that_of_the_environment() -> None:
    from stompcodec.uri import parse_uri

    addresses = parse_uri("stomp://ann@b:1")
    assert connecting.credentials(addresses, None, None, SECRET) == {"passcode": SECRET}
