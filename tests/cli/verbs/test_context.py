"""stompcodec context, and what contexts do for the verbs that connect."""

import json
import os
import stat
import subprocess
import sys

import click
import pytest
from cli.running import COMMAND, run
from click.testing import CliRunner
from patience import patience

from stompcodec.cli import connecting
from stompcodec.cli.connecting import Context, load
from stompcodec.uri import parse_uri

SECRET = "s3cret-passcode"


@pytest.fixture(autouse=True)
def config(tmp_path, monkeypatch):
    """The file of the contexts, in a folder of this test."""
    for name in [name for name in os.environ if name.startswith("STOMPCODEC_")]:
        if name != "STOMPCODEC_PURE":
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr(click, "get_app_dir", lambda name: str(tmp_path / "config" / name))
    return tmp_path / "config" / "stompcodec" / "contexts.json"


def good(*arguments, input=None, **environment):
    result = run(*arguments, input=input, **environment)
    assert result.exit_code == 0, result.output
    return str(result.output)


def add(name, *more, input=None):
    good("context", "add", name, *more, input=input)


def write(config, content):
    config.parent.mkdir(parents=True)
    config.write_bytes(content)
    config.chmod(0o600)


# The file


def test_contexts_are_added_selected_listed_shown_and_removed():
    assert "there are no contexts" in good("context", "list")
    add("local", "localhost:61613")
    add("prod", "stomp+ssl://ann@broker/orders", "--ask-passcode", input=f"{SECRET}\n")
    good("context", "use", "prod")
    listed = good("context", "list").splitlines()
    assert [line.split()[:2] for line in listed] == [["local", "stomp://localhost:61613"], ["*", "prod"]]
    fields = {"name": "prod", "url": "stomp+ssl://ann@broker:61614/orders", "passcode": "***"}
    assert json.loads(good("context", "list", "--json").splitlines()[1]) == {**fields, "selected": True}
    assert SECRET not in good("context", "show")
    good("context", "use", "local")
    assert "localhost" in good("context", "show")
    good("context", "remove", "local")
    assert run("context", "show").exit_code == 2  # none is selected any more
    assert load().all["prod"].passcode == SECRET


def test_a_passcode_is_never_shown():
    add("a", "localhost:1", "--login", "ann", "--ask-passcode", input=f"{SECRET}\n")
    good("context", "use", "a")
    outputs = [
        good("context", "list"),
        good("context", "list", "--json"),
        good("context", "show"),
        run("ping").output,
        run("context", "add", "b", f"stomp://ann:{SECRET}@b").output,
        repr(load()),
        str(load().all["a"]),
    ]
    assert [text for text in outputs if SECRET in text] == []
    assert set(load().all) == {"a"}


def test_the_file_is_private_and_replaced_at_once(config, monkeypatch):
    before = os.umask(0)
    try:
        add("a", "localhost:1")
    finally:
        os.umask(before)
    assert stat.S_IMODE(config.stat().st_mode) == 0o600
    assert stat.S_IMODE(config.parent.stat().st_mode) == 0o700
    held = config.read_bytes()

    def fail(*_names):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(connecting.os, "replace", fail)
    result = run("context", "add", "b", "localhost:2")
    assert (result.exit_code, "cannot be written: No space left" in result.output) == (2, True)
    assert config.read_bytes() == held
    assert sorted(path.name for path in config.parent.iterdir()) == ["contexts.json", "contexts.lock"]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o601])
def test_a_file_that_others_can_use_is_refused(config, mode):
    add("a", "127.0.0.1:1")
    config.chmod(mode)
    for verb in (["context", "list"], ["ping", "--context", "a"], ["ping"]):
        result = run(*verb)
        assert result.exit_code == 2
        assert f"its mode is {mode:04o}" in result.output
    assert run("ping", "-u", "127.0.0.1:1").exit_code == 1  # with a URL the file does not count


def of_one(fields):
    return b'{"format": 1, "contexts": {"a": %s}}' % fields.encode()


BROKEN = {
    "not JSON": b"{",
    "not UTF-8": b'{"format": "\xff"}',
    "deep": b"[" * 100_000,
    "another format": b'{"format": 2, "contexts": {}}',
    "no contexts": b'{"format": 1}',
    "contexts are a list": b'{"format": 1, "contexts": []}',
    "a bad name": b'{"format": 1, "contexts": {"-a": {"url": "stomp://a"}}}',
    "not an object": of_one('"stomp://a"'),
    "no url": of_one("{}"),
    "a bad url": of_one('{"url": "gopher://a"}'),
    "a passcode in the url": of_one('{"url": "stomp://a:b@c"}'),
    "an unknown field": of_one('{"url": "stomp://a", "pass": "x"}'),
    "a field of another type": of_one('{"url": "stomp://a", "insecure": "no"}'),
    "an unknown version": of_one('{"url": "stomp://a", "version": "2"}'),
    "an unknown selection": b'{"format": 1, "contexts": {}, "selected": "a"}',
    "too large": b" " * (2**20 + 1),
}


@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN)
def test_a_broken_file_is_2_before_connecting(config, content, monkeypatch):
    monkeypatch.setattr("stompcodec.client.connect", lambda *_arguments, **_options: pytest.fail("connected"))
    write(config, content)
    for verb in (["context", "list"], ["ping"], ["ping", "--context", "a"]):
        result = run(*verb)
        assert result.exit_code == 2, result.output
        assert str(config) in result.output.replace("\n", "")
        assert "Traceback" not in result.output


@pytest.mark.parametrize(
    "arguments",
    [
        ["add", "7", "localhost:1"],
        ["add", "-a", "localhost:1"],
        ["add", "a" * 65, "localhost:1"],
        ["add", "a b", "localhost:1"],
        ["add", "a", "gopher://b"],
        ["add", "t" * 64, "localhost:2"],
        ["add", "a", "localhost:1", "--ask-passcode", "--passcode-file", "b"],
        ["use", "nobody"],
        ["use"],
        ["show", "nobody"],
        ["show"],
        ["remove", "nobody"],
    ],
    ids=lambda each: " ".join(each)[:30],
)
def test_wrong_names_and_values_are_2(arguments):
    add("t" * 64, "localhost:1")
    result = run("context", *arguments)
    assert result.exit_code == 2, result.output
    assert {name: each.url for name, each in load().all.items()} == {"t" * 64: "stomp://localhost:1"}


@pytest.mark.parametrize("given", ["", "\n"])
def test_no_passcode_is_1(given):
    assert run("context", "add", "a", "localhost:1", "--ask-passcode", input=given).exit_code == 1
    assert load().all == {}


@pytest.mark.long
def test_processes_that_add_at_the_same_time_lose_no_context(config):
    environment = {**os.environ, "XDG_CONFIG_HOME": str(config.parents[1]), "HOME": str(config.parents[1])}
    names = [f"at{number}" for number in range(4)]
    command = [*COMMAND, "context", "add"]
    processes = [subprocess.Popen([*command, name, "localhost:1"], env=environment) for name in names]
    assert [process.wait(patience(60)) for process in processes] == [0] * len(names)
    if sys.platform == "linux":
        assert sorted(load().all) == names


# The verbs that connect


def test_every_verb_takes_a_context(at, fresh, tmp_path):
    add("open", at.url)
    add("guarded", at.guarded_url, "--login", "guest", "--ask-passcode", input="guest\n")
    assert run("ping", "-c0", at.guarded_url).exit_code == 1
    where, capture = ["--context", "guarded"], tmp_path / "a.stompcap"
    for way in (where, ["-u", "context:guarded"], ["context:guarded"]):
        good("ping", "-c0", *way)
    good("ping", "-c0", STOMPCODEC_CONTEXT="guarded")
    good("pub", fresh, "hello", *where)
    good("record", fresh, "-o", capture, "-n1", "-q", *where)
    good("replay", capture, "-q", *where)
    assert good("sub", fresh, "-n1", *where) == "hello\n"
    good("record", "context:guarded", fresh, "-o", tmp_path / "b.stompcap", "-w0", "-q")
    good("replay", capture, "context:guarded", "-q")
    assert "no answer came" in run("req", fresh, "x", "--timeout", "0.1", *where).output
    good("bridge", "context:guarded", "context:open", "--drain", "-q", "-m", fresh)
    assert good("sub", fresh, "-n1", "--context", "open") == "hello\n"
    good("context", "use", "guarded")
    good("ping", "-c0")
    good("ping", "-c0", at.url)  # another broker, without this login


@pytest.mark.parametrize("context", [Context("a", "b:1", vhost="v"), Context("a", "b:1", "ann", SECRET)])
def test_pipelines_take_a_context(context, monkeypatch):
    pytest.importorskip("pyspark")
    from stompcodec.cli.verbs.pipeline import at_context

    @click.command()
    def verb():
        click.echo(json.dumps(at_context(context, {"login": None, "passcode_file": None, "spool": "s"})))

    result = CliRunner().invoke(verb)
    if context.vhost:
        assert (result.exit_code, "has vhost, which pipeline does not support" in result.output) == (2, True)
    else:
        found = json.loads(result.stdout)
        assert (found["login"], found["passcode"], found["spool"]) == ("ann", SECRET, "s")


@pytest.mark.parametrize(
    "arguments",
    [
        "ping --context nobody",
        "ping context:nobody",
        "ping -u context:nobody",
        "record context:nobody /queue/a -o out",
        "replay out context:nobody",
        "bridge context:nobody localhost:1",
        "bridge localhost:1 context:nobody",
        "ping --context open -u 127.0.0.1:1",
        "ping 127.0.0.1:1 --context open",
    ],
)
def test_an_unknown_name_and_two_brokers_are_2_before_connecting(arguments, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    add("open", "127.0.0.1:1")
    result = run(*arguments.split())
    assert result.exit_code == 2, result.output
    said = "unknown context 'nobody' (there is: open)" if "nobody" in arguments else "both name a broker"
    assert said in result.output
    assert not (tmp_path / "out").exists()


def given_to(*arguments, **environment):
    """The context that a verb gets, and the options that it connects with."""
    found = []

    @click.command()
    @connecting.connection_options
    def verb(context, **given):
        found.append((context, connecting.adopt(context, given)))

    result = CliRunner().invoke(verb, list(arguments), env=environment)
    assert result.exit_code == 0, result.output
    context, options = found[0]
    return context, {name: value for name, value in options.items() if value not in (None, False)}


def test_the_nearest_name_of_a_broker_counts():
    def chosen(*arguments, **environment):
        context, _ = given_to(*arguments, **environment)
        return None if context is None else context.name

    add("a", "a:1")
    add("b", "b:1")
    assert chosen() is None
    good("context", "use", "a")
    assert chosen() == "a"
    assert chosen(STOMPCODEC_CONTEXT="b") == "b"
    assert chosen(STOMPCODEC_CONTEXT="") == "a"
    assert chosen("--context", "b") == "b"
    assert chosen("--context", "b", STOMPCODEC_URL="c:1") == "b"
    assert chosen("--url", "c:1") is None
    assert chosen("--url", "c:1", STOMPCODEC_CONTEXT="b") is None
    assert chosen(STOMPCODEC_URL="c:1") is None
    assert chosen("--url", "context:b") == "b"
    with pytest.raises(AssertionError, match="STOMPCODEC_URL and STOMPCODEC_CONTEXT both name a broker"):
        chosen(STOMPCODEC_URL="c:1", STOMPCODEC_CONTEXT="b")


def test_options_come_before_the_context_and_the_context_before_the_environment(config):
    def adopted(*arguments, **environment):
        return given_to(*arguments, **environment)[1]

    fields = {"url": "stomp://b:1", "login": "ann", "passcode": SECRET, "vhost": "/", "version": "1.2", "ca": "ca.pem"}
    whole = {**fields, "insecure": True}
    write(config, json.dumps({"format": 1, "selected": "a", "contexts": {"a": whole}}).encode())
    assert adopted() == whole
    assert adopted(STOMPCODEC_LOGIN="bob") == whole
    others = ["--vhost", "v", "--version", "1.1", "--ca", "d.pem"]
    assert adopted(*others) == {**whole, "vhost": "v", "version": "1.1", "ca": "d.pem"}
    given = adopted("--login", "bob")
    assert (given["login"], given.get("passcode")) == ("bob", None)  # which is ann's
    assert adopted("--login", "ann")["passcode"] == SECRET
    given = adopted("--passcode-file", "f")
    assert (given["login"], given["passcode_file"], given.get("passcode")) == ("ann", "f", None)
    for url, login in (("stomp://b:1", "bob"), ("stomp://eve@b:1", None)):
        config.write_text(json.dumps({"format": 1, "selected": "a", "contexts": {"a": {"url": url}}}))
        assert adopted(STOMPCODEC_LOGIN="bob").get("login") == login
    # That of a context comes before that of the environment.
    assert connecting.credentials(parse_uri("stomp://ann@b:1"), None, None, SECRET) == {"passcode": SECRET}
