"""stompcodec context, and what contexts do for the verbs that connect."""

import json
import os
import shlex
import stat
import sys

import click
import pytest
from cli.running import ended, environment, run, started
from click.testing import CliRunner
from patience import patience

from stompcodec.cli import connecting
from stompcodec.cli.connecting import Context, load
from stompcodec.uri import parse_uri

SECRET = "s3cret-passcode"


@pytest.fixture(autouse=True)
def config(tmp_path, monkeypatch):
    for name in {name for name in os.environ if name.startswith("STOMPCODEC_")} - {"STOMPCODEC_PURE"}:
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


def test_contexts_are_added_selected_listed_shown_and_removed():
    assert "there are no contexts" in good("context", "list")
    add("local", "localhost:61613")
    add("prod", "stomp+ssl://ann@broker/orders", "--ask-passcode", input=f"{SECRET}\n")
    good("context", "use", "prod")
    listed = good("context", "list").splitlines()
    assert [line.split()[:2] for line in listed] == [["local", "stomp://localhost:61613"], ["*", "prod"]]
    shown = good("context", "show")
    assert ("***" in shown, SECRET in shown) == (True, False)
    good("context", "use", "local")
    assert "localhost" in good("context", "show")
    good("context", "remove", "local")
    assert run("context", "show").exit_code == 2  # none is selected any more
    assert load().all["prod"].passcode == SECRET


def test_a_passcode_is_never_shown():
    for given in ("", "\n"):
        assert run("context", "add", "a", "localhost:1", "--ask-passcode", input=given).exit_code == 2
        assert load().all == {}
    add("a", "localhost:1", "--login", "ann", "--ask-passcode", input=f"{SECRET}\n")
    good("context", "use", "a")
    verbs = ("context list", "context show", "ping", f"context add b stomp://ann:{SECRET}@b")
    outputs = [*(run(*verb.split()).output for verb in verbs), repr(load()), str(load().all["a"])]
    assert [text for text in outputs if SECRET in text] == []
    assert set(load().all) == {"a"}


def test_the_file_is_private_and_replaced_at_once(config, monkeypatch):
    before = os.umask(0)
    try:
        add("a", "localhost:1")
    finally:
        os.umask(before)
    assert [stat.S_IMODE(path.stat().st_mode) for path in (config, config.parent)] == [0o600, 0o700]
    held = config.read_bytes()

    def fail(*_names):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(connecting.os, "replace", fail)
    ended(run("context", "add", "b", "localhost:2"), 2, "cannot be written: No space left")
    assert config.read_bytes() == held
    assert sorted(path.name for path in config.parent.iterdir()) == ["contexts.json", "contexts.lock"]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o601])
def test_a_file_that_others_can_use_is_refused(config, mode):
    add("a", "127.0.0.1:1")
    config.chmod(mode)
    for verb in ("context list", "ping --context a", "ping"):
        ended(run(*verb.split()), 2, f"its mode is {mode:04o}")
    assert run("ping", "-u", "127.0.0.1:1").exit_code == 1  # with a URL the file does not count


def of(contexts, more=""):
    return b'{"format": 1, "contexts": %s%s}' % (contexts.encode(), more.encode())


BROKEN = {
    **{"not JSON": b"{", "not UTF-8": b'{"format": "\xff"}', "deep": b"[" * 100_000},
    **{"another format": b'{"format": 2, "contexts": {}}', "contexts are a list": of("[]")},
    **{"a bad name": of('{"-a": {"url": "stomp://a"}}'), "no url": of('{"a": {}}')},
    "a bad url": of('{"a": {"url": "gopher://a"}}'),
    "a passcode in the url": of('{"a": {"url": "stomp://a:b@c"}}'),
    "an unknown field": of('{"a": {"url": "stomp://a", "pass": "x"}}'),
    "a field of another type": of('{"a": {"url": "stomp://a", "insecure": "no"}}'),
    "an unknown version": of('{"a": {"url": "stomp://a", "version": "2"}}'),
    **{"an unknown selection": of("{}", ', "selected": "a"'), "too large": b" " * (2**20 + 1)},
}


@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN)
def test_a_broken_file_is_2_before_connecting(config, content, monkeypatch):
    monkeypatch.setattr("stompcodec.client.Client", lambda *_arguments, **_options: pytest.fail("connected"))
    write(config, content)
    for verb in ("context list", "ping", "ping --context a"):
        result = run(*verb.split())
        assert (result.exit_code, str(config) in result.output.replace("\n", "")) == (2, True), result.output
        assert "Traceback" not in result.output


@pytest.mark.parametrize(
    "arguments",
    [
        *("add 7 localhost:1", "add -a localhost:1", f"add {'a' * 65} localhost:1", "add 'a b' localhost:1"),
        *("add a gopher://b", f"add {'t' * 64} localhost:2", "add a localhost:1 --ask-passcode --passcode-file b"),
        *("use nobody", "use", "show nobody", "show", "remove nobody"),
    ],
    ids=lambda each: each[:30],
)
def test_wrong_names_and_values_are_2(arguments):
    add("t" * 64, "localhost:1")
    result = run("context", *shlex.split(arguments))
    assert result.exit_code == 2, result.output
    assert {name: each.url for name, each in load().all.items()} == {"t" * 64: "localhost:1"}


@pytest.mark.long
def test_processes_that_add_at_the_same_time_lose_no_context(config):
    env = environment(XDG_CONFIG_HOME=str(config.parents[1]), HOME=str(config.parents[1]))
    names = [f"at{number}" for number in range(4)]
    processes = [started("context", "add", name, "localhost:1", env=env) for name in names]
    assert [process.wait(patience(60)) for process in processes] == [0] * len(names)
    if sys.platform == "linux":
        assert sorted(load().all) == names


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
    assert "no answer came" in run("req", fresh, "x", "--timeout", "1", *where).output
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
        *("ping --context nobody", "ping context:nobody", "ping -u context:nobody"),
        *("record context:nobody /queue/a -o out", "replay out context:nobody"),
        *("bridge context:nobody localhost:1", "bridge localhost:1 context:nobody"),
        *("ping --context open -u 127.0.0.1:1", "ping 127.0.0.1:1 --context open"),
    ],
)
def test_an_unknown_name_and_two_brokers_are_2_before_connecting(arguments, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    add("open", "127.0.0.1:1")
    result = run(*arguments.split())
    said = "unknown context 'nobody' (there is: open)" if "nobody" in arguments else "both name a broker"
    assert (result.exit_code, said in result.output) == (2, True), result.output
    assert not (tmp_path / "out").exists()


def given_to(*arguments, **environment):
    found = []

    @click.command()
    @connecting.connection_options
    def verb(context, **given):
        found.append((context, connecting.adopt(context, given)))

    result = CliRunner().invoke(verb, arguments, env=environment)
    assert result.exit_code == 0, result.output
    ((context, options),) = found
    return context, {name: value for name, value in options.items() if value not in (None, False)}


def test_the_nearest_name_of_a_broker_counts():
    add("a", "a:1")
    add("b", "b:1")
    assert given_to()[0] is None
    good("context", "use", "a")
    for arguments, variables, name in (
        *(("", {}, "a"), ("", {"STOMPCODEC_CONTEXT": "b"}, "b"), ("", {"STOMPCODEC_CONTEXT": ""}, "a")),
        *(("--context b", {}, "b"), ("--context b", {"STOMPCODEC_URL": "c:1"}, "b"), ("--url c:1", {}, None)),
        *(("--url c:1", {"STOMPCODEC_CONTEXT": "b"}, None), ("", {"STOMPCODEC_URL": "c:1"}, None)),
        ("--url context:b", {}, "b"),
    ):
        context, _ = given_to(*arguments.split(), **variables)
        assert (context and context.name) == name, (arguments, variables)
    with pytest.raises(AssertionError, match="STOMPCODEC_URL and STOMPCODEC_CONTEXT both name a broker"):
        given_to(STOMPCODEC_URL="c:1", STOMPCODEC_CONTEXT="b")


def test_options_about_tls_mean_tls():
    for name, url in (("a", "localhost:1"), ("b", "stomp://localhost:1")):
        add(name, url, "--insecure")
    assert "stomp+ssl://localhost:1" in good("context", "show", "a")
    for arguments, status in (("bridge context:b 127.0.0.1:2", 2), ("pub /queue/a x -u context:b", 1)):
        result = run(*arguments.split())
        said = " ".join(result.stderr.split())
        assert result.exit_code == status
        assert "stomp://localhost:1 is without TLS, for which --insecure is given: write stomp+ssl://" in said


def test_options_come_before_the_context_and_the_context_before_the_environment(config):
    fields = {"url": "stomp://b:1", "login": "ann", "passcode": SECRET, "vhost": "/", "version": "1.2", "ca": "ca.pem"}
    whole = {**fields, "insecure": True, "receipts": True}
    write(config, of(json.dumps({"a": {**fields, "insecure": True}}), ', "selected": "a"'))
    ours = {name: value for name, value in whole.items() if name != "passcode"}
    others = {"vhost": "v", "version": "1.1", "ca": "d.pem"}
    for arguments, variables, wanted in (
        *(("", {}, whole), ("", {"STOMPCODEC_LOGIN": "bob"}, whole)),
        ("--vhost v --version 1.1 --ca d.pem", {}, {**whole, **others}),
        ("--login bob", {}, {**ours, "login": "bob"}),  # the passcode is ann's
        *(("--login ann", {}, whole), ("--passcode-file f", {}, {**ours, "passcode_file": "f"})),
    ):
        assert given_to(*arguments.split(), **variables)[1] == wanted, arguments
    for url, login in (("stomp://b:1", "bob"), ("stomp://eve@b:1", None)):
        config.write_bytes(of(json.dumps({"a": {"url": url}}), ', "selected": "a"'))
        assert given_to(STOMPCODEC_LOGIN="bob")[1].get("login") == login
    # That of a context comes before that of the environment.
    assert connecting.credentials(parse_uri("stomp://ann@b:1"), None, None, SECRET) == {"passcode": SECRET}
