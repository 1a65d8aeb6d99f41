"""Every verb of the command: help, exit statuses, suggestions, logins; wrong usage is told before it connects."""

import re
from itertools import chain
from pathlib import Path

import click
import pytest
from cli.running import ended
from cli.running import run as run_verb

from stompcodec.bridge import DEAD_LETTER
from stompcodec.cli import connecting
from stompcodec.cli.app import STATUSES, app, markdown
from stompcodec.testing import StompBroker

ROOT = Path(__file__).parents[2]


def _walk(command, context, path=()):
    yield " ".join(path), command
    for name in command.list_commands(context) if isinstance(command, click.Group) else ():
        inner = command.get_command(context, name)
        yield from _walk(inner, click.Context(inner, info_name=name, parent=context), (*path, name))


COMMANDS = dict(_walk(app, click.Context(app, info_name="stompcodec")))
GROUPS = [path for path, command in COMMANDS.items() if isinstance(command, click.Group)]
#: Those that do something, `broker` among them.
VERBS = [path for path in COMMANDS if path not in ("", "pipeline", "context", "dlq")]
#: Those that connect to a broker: simple ones, and those that need Spark.
SIMPLE = ["pub", "sub", "req", "reply", "ping", "record", "replay", "browse", "move", "purge"]
SIMPLE += ["dlq list", "dlq show", "dlq retry", "top", "broker backup"]
CLIENTS = {*SIMPLE, "pipeline archive", "pipeline explode", "pipeline metrics", "pipeline replay"}


def run(path, *arguments, **options):
    return run_verb(*path.split(), *arguments, **options)


@pytest.mark.parametrize("path", COMMANDS, ids=lambda path: path or "stompcodec")
def test_each_help_has_an_example_long_names_the_exit_statuses_and_ways_to_give_a_passcode(path):
    result = run(path, "--help", COLUMNS="80")
    assert result.exit_code == 0, result.output
    example = re.compile(rf"    .*stompcodec {path}".rstrip() + r"\b")
    assert list(filter(example.match, result.output.splitlines()[1:])), result.output  # the first one is the usage
    for option in COMMANDS[path].params:
        names = [*option.opts, *option.secondary_opts] if isinstance(option, click.Option) else ["--"]
        assert any(name.startswith("--") for name in names), names
    for status, meaning in STATUSES[path].items() if path in VERBS else ():
        assert f"    {status:<4} {meaning}\n" in result.output
    for words in ("--login NAME", "--passcode-file FILE", "STOMPCODEC_PASSCODE", "a prompt without echo"):
        assert path not in CLIENTS or words in " ".join(result.output.split())


def test_tables_of_verbs_are_complete_and_documented():
    names = {path: {option.name for option in command.params} for path, command in COMMANDS.items()}
    assert {path for path, options in names.items() if options & {"url", "passcode_file", "broker_url"}} == CLIENTS
    assert set(STATUSES) == set(VERBS)
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    assert markdown() in page
    assert [verb for verb in VERBS if f"`{verb}`" not in page] == []
    assert all(f"_STOMPCODEC_COMPLETE={shell}_source" in page for shell in ("bash", "zsh", "fish"))


def test_the_help_describes_eight_verbs_and_names_the_others():
    shown, more = run("", "--help", COLUMNS="80").output.partition("\nCommands:\n")[2].split("\nMore:\n")
    first = re.findall(r"^  (\w+)", shown, re.MULTILINE)
    assert first == ["broker", "pub", "sub", "record", "convert", "top", "browse", "dlq"]
    named = re.findall(r"(\w+)(?=,|$)", more, re.MULTILINE)
    assert sorted(first + named) == sorted(app.list_commands(click.Context(app)))


@pytest.mark.parametrize("group", GROUPS, ids=lambda path: path or "stompcodec")
def test_unknown_verbs_get_a_suggestion(group):
    for name in COMMANDS[group].list_commands(click.Context(COMMANDS[group])):
        for typed in (name + name[-1], name[:-1], name.upper(), name[1:] + name[0], f"{name}s"):
            result = run(group, typed)
            assert (result.exit_code, repr(name) in result.stderr.partition("Did you mean")[2]) == (2, True), typed
    ended(run(group, "qqqqqq"), 2, "The verbs are ")


@pytest.mark.parametrize("path", VERBS)
def test_wrong_usage_is_2_and_ctrl_c_is_130(path, monkeypatch, tmp_path):
    def interrupted(*_arguments, **_options):
        raise KeyboardInterrupt

    assert run(path, "--no-such-option").exit_code == 2
    monkeypatch.setattr(COMMANDS[path], "callback", interrupted)
    monkeypatch.chdir(tmp_path)
    Path("in").mkdir()
    needed = [option for option in COMMANDS[path].params if option.required]
    words = [[each.opts[-1], "out"] if isinstance(each, click.Option) else ["in"] for each in needed]
    result = run(path, *chain.from_iterable(words))
    assert (result.exit_code, "Traceback" in result.output) == (130, False)
    assert {2, 130} <= set(STATUSES[path])


GOOD = b"SEND\ndestination:/q\ncontent-type:text/plain\ncontent-length:1\n\nx\0"
REFUSED = ("--url", "127.0.0.1:1")
#: What ends with 0, with 1 and with 2, of verbs that need neither a broker nor Spark.
RUNS = [
    *[(verb, (file,), status) for verb in ("decode", "lint", "inspect") for file, status in
      (("good", 0), ("bad", 1), ("none", 1))],
    *(("encode", ("SEND", "-H", "destination:/q"), 0), ("encode", ("NOTHING",), 1)),
    *(("encode", ("--json", "none"), 1), ("inspect", ("none", "-o", "page"), 1)),
    *(("inspect", ("good", "--frame", "2"), 1), ("convert", ("good", "out.jsonl"), 0)),
    *(("convert", ("none", "out.jsonl"), 1), ("convert", ("good", "good"), 1)),
    *[(verb, ("/queue/a", *REFUSED), 1) for verb in ("sub", "browse", "dlq show")],
    *[(verb, ("/queue/a", "x", *REFUSED), 1) for verb in ("pub", "req", "reply")],
    *[(verb, REFUSED, 1) for verb in ("ping", "top", "dlq list")],
    *[(verb, ("/queue/a", "--yes", *REFUSED), 1) for verb in ("purge", "dlq retry")],
    *(("move", ("/queue/a", "/queue/b", "--yes", *REFUSED), 1), ("move", ("/queue/a", "/queue/b", *REFUSED), 2)),
    *(("top", ("--once", "--sort", "nothing"), 2), ("record", ("/queue/a", "-o", "out.stompcap", *REFUSED), 1)),
    *(("replay", ("good", *REFUSED), 1), ("replay", ("none", *REFUSED), 1), ("broker", ("--config", "none"), 1)),
    *(("broker check", ("none",), 2), ("broker salvage", ("none", "new"), 2), ("broker backup", ("new", *REFUSED), 1)),
]  # fmt: skip


@pytest.mark.parametrize(("path", "arguments", "status"), RUNS, ids=lambda value: str(value))
def test_exit_statuses_are_those_of_the_table(path, arguments, status, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("good").write_bytes(GOOD)
    Path("bad").write_bytes(b"root:x:0:0\n")
    result = run(path, *arguments)
    assert result.exit_code == status, result.output
    assert status in STATUSES[path]
    assert result.exception is None or isinstance(result.exception, SystemExit)
    if status == 1 and arguments[-2:] == REFUSED and arguments[0] != "none":
        (line,) = result.stderr.splitlines()
        assert "cannot connect to stomp://127.0.0.1:1: Connection refused (is the broker running there" in line


FRACTIONS = (click.FloatRange, click.types.FloatParamType)
NUMBERS = [(path, each) for path, verb in COMMANDS.items() for each in verb.params if isinstance(each.type, FRACTIONS)]


@pytest.mark.parametrize("value", ["nan", "inf", "1e300", "-1", "-inf"])
@pytest.mark.parametrize(("path", "option"), NUMBERS, ids=lambda each: getattr(each, "name", each))
def test_a_number_that_no_wait_can_take_is_refused_by_name(path, option, value):
    result = run(path, f"{option.opts[-1]}={value}")
    assert result.exit_code == 2
    assert f"'{option.opts[-1]}'" in result.output
    assert "is not" in result.output


SEND = ("destination", "receipt", "transaction", "subscription", "message-id")
OWNED = {"req /queue/a x": (*SEND, "reply-to", "correlation-id")}
OWNED |= dict.fromkeys(("pub /queue/a x", "reply /queue/a x"), SEND)
OWNED |= dict.fromkeys(("sub /queue/a", "record /queue/a -o nowhere"), (*SEND, "id", "ack"))


@pytest.mark.parametrize(("verb", "name"), [(verb, name) for verb, names in OWNED.items() for name in names])
def test_a_header_that_the_client_writes_itself_is_wrong_usage(verb, name):
    result = run(verb, "-H", "n:1", "-H", f"{name}:mine")
    assert result.exit_code == 2
    assert f"'{name}' is a header that the client writes itself" in result.output.strip().splitlines()[-1]


def test_a_usual_prefetch_gives_way_to_a_header():
    with StompBroker() as broker:
        verb = ["/queue/a", "-n", "1", "-u", broker.url, "-H", "prefetch-count:1"]
        assert run("pub", "/queue/a", "x", "-q", "-u", broker.url).exit_code == 0
        result = run("sub", *verb)
        assert (result.exit_code, result.stdout) == (0, "x\n")


@pytest.mark.parametrize(("content", "passcode"), [(b"a b\n", "a b"), (b"x\r\nmore\n", "x"), (b"\xc3\xa9", "é")])
def test_the_first_line_of_a_passcode_file(content, passcode, tmp_path):
    (tmp_path / "secret").write_bytes(content)
    assert connecting.passcode_of([], "ann", str(tmp_path / "secret")) == passcode


@pytest.mark.parametrize(
    ("path", "content"), [*((path, b"") for path in SIMPLE), *(("ping", each) for each in (None, b"\nx\n", b"\xff\n"))]
)
def test_a_passcode_file_that_is_none(path, content, tmp_path):
    file = tmp_path / "secret"
    if content is not None:
        file.write_bytes(content)
    result = run(path, *_aim(path, "127.0.0.1:1", tmp_path), "--login", "ann", "--passcode-file", file)
    said = ("'--passcode-file'" in result.stderr, "Traceback" in result.output)
    assert (result.exit_code, *said) == (2, True, False)


def _aim(path, url, folder):
    """Arguments with which a client verb does little, at a broker."""
    (folder / "a.stomp").write_bytes(GOOD.replace(b"/q", b"/queue/aimed"))
    at = ["--url", url]
    return {
        **{"pub": ["/queue/aimed", "x", *at], "sub": ["/queue/aimed", "--wait", "0", *at]},
        **{"req": ["/queue/aimed", "x", "--timeout", "5", *at], "reply": ["/queue/asked", "x", "--wait", "0", *at]},
        **{"ping": [url, "--count", "0"], "top": ["--once", "--interval", "0.1", *at]},
        "record": [url, "/queue/aimed", "-o", str(folder / "aimed.stompcap"), "--wait", "0"],
        **{"replay": [str(folder / "a.stomp"), url], "move": ["/queue/aimed", "/queue/moved", "--yes", *at]},
        **{"purge": ["/queue/aimed", "--yes", *at], "dlq retry": ["/queue/DLQ.aimed", "--yes", *at]},
    }.get(path, ["/queue/aimed", *at])


#: guest has no right to manage, and nobody answers requests.
GUESTS = [path for path in SIMPLE if path not in ("top", "req", "broker backup")]


@pytest.mark.parametrize(
    ("path", "way"), [*((path, "file") for path in GUESTS), *(("pub", way) for way in ("environment", "prompt", "url"))]
)
def test_a_passcode_reaches_the_broker_at_a_host_and_port(path, way, at, tmp_path, monkeypatch):
    monkeypatch.setattr(connecting, "_has_terminal", lambda: way == "prompt")
    url = f"127.0.0.1:{at.guarded.port}"
    login, environment = ["--login", "guest"], {}
    if way == "file":
        (tmp_path / "secret").write_text("guest\n")
        login += ["--passcode-file", str(tmp_path / "secret")]
        environment["STOMPCODEC_PASSCODE"] = "of somebody else"
    elif way == "environment":
        environment["STOMPCODEC_PASSCODE"] = "guest"
    elif way == "url":
        login, url = [], f"guest:guest@{url}"
    result = run(path, *_aim(path, url, tmp_path), *login, input="guest\n", **environment)
    assert result.exit_code == 0, result.output
    assert result.stderr.count("Passcode of guest: ") == (way == "prompt")
    assert "guest" not in result.output.replace("Passcode of guest", "")


@pytest.mark.parametrize("path", SIMPLE)
def test_a_wrong_passcode_is_one_line(path, at, tmp_path):
    (tmp_path / "secret").write_text("not-the-one\n")
    url = f"127.0.0.1:{at.guarded.port}"
    result = run(path, *_aim(path, url, tmp_path), "--login", "guest", "--passcode-file", tmp_path / "secret")
    assert result.exit_code == 1
    (line,) = result.stderr.splitlines()
    assert "check --login and the passcode: --passcode-file" in line
    assert "not-the-one" not in line


AWAY, ELSEWHERE = "stomp://ann:secret@127.0.0.1:1", "stomp://127.0.0.2:2"
ENDS = f"{AWAY} {ELSEWHERE}"
MISSING, YES = "Missing argument", "give --yes"
WRONG = {
    "bridge": [
        (f"{AWAY} {AWAY}", "FROM and TO are the same broker, stomp://ann:***@127.0.0.1:1"),
        (f"{AWAY} failover:({ELSEWHERE},{AWAY})", "the same broker"),
        (f"{ENDS} --from-name a --to-name a", "the same name, a"),
        (f"{ENDS} --to-name a,b", "a name has 1 to 255"),
        (f"stomp://ann:secret@ {AWAY}", "Invalid value for FROM: uri: write stomp://"),
        (f"{ENDS} -m @", "@ without the name of a file"),
        *((f"{ENDS} {rule}", "write SOURCE=TARGET") for rule in ("-m =/queue/a", "-m /queue/a=", "--map=")),
        (f"{ENDS} -m {DEAD_LETTER}", "where refused messages go"),
        *((f"{ENDS} {option} /temp-queue/a", "belongs to one session") for option in ("--dead-letter", "-m")),
        (f"{ENDS} --dead-letter=", "'--dead-letter': a destination is missing"),
        (f"{ENDS} -m @/no/such/file", "/no/such/file: cannot be read"),
        (f"{ENDS} --destinations /no/such/file", "/no/such/file: cannot be read"),
        *((f"{ENDS} --key {wrong}", "write header:NAME") for wrong in ("message-id", "header:")),
        (f"{ENDS} -m /queue/a --durable x", "--durable is for topics"),
        (f"{ENDS} -m /topic/a -m /queue/b --durable x", "map only those, as in --map /topic/prices, and not /queue/b"),
        (f"{ENDS} -m /topic/a --durable=", "--durable without a name"),
        (f"{ENDS} --idle 1", "--idle is for --drain"),
        (f"{ENDS} --mirror --batch 5", "--mirror acknowledges nothing"),
    ],
    "proxy": [
        ("nowhere localhost:61613", "LISTEN is 'nowhere'"),
        ("0.0.0.0:0 localhost:61613", "can be reached from other machines: add --public"),
        *(("0 failover:(stomp://a,stomp://b)", "one broker"), ("0 stomp://ann:secret@a", "leave it out")),
        ("stomp+ssl://127.0.0.1:0 localhost:61613", "--cert go together"),
        ("0 localhost:61613 --cert x.pem", "--cert go together"),
        ("wss://127.0.0.1:0 localhost:61613 --cert no-such.pem", "no-such.pem"),
        *((f"0 {to} --ca no-such.pem", "no-such.pem") for to in ("stomp+ssl://localhost:1", "localhost:1")),
        ("0 stomp://localhost:1 --insecure", "is without TLS, for which --insecure is given"),
        ("0 localhost:61613 --fault melt", "the first word is one of"),
        ("0 localhost:61613 --record /", "it exists"),
    ],
    "record": [
        *(("stomp://h -o x", "no DEST"), ("/queue/a -o x --segment many", "--segment")),
        *((f"/queue/a -o x --archive s3://b/x --keep {keep}", "--keep cannot") for keep in ("1G", "until-committed:c")),
        *((f"/queue/a -o x --keep {wrong}", "'--keep'") for wrong in ("1G --keep 2G", "until-committed:", "until:c")),
        *((f"/queue/a -o x --dedupe {wrong}", "--dedupe") for wrong in ("uuid", "header:")),
        ("/queue/a -o x --group nobody_here", "no group of this"),
    ],
    "replay": [(f"none {wrong}", "Error") for wrong in ("--speed=0", "--speed=fast", "--from=noon", "-d a=", "-d=")],
    "pub": [("", MISSING), ("/queue/a x -H nocolon", "nocolon"), ("/queue/a x -l --count 2", "--count")],
    "sub": [
        *(("", MISSING), ("/queue/a -f {q}", "--format"), ("/queue/a -n 0", "--count")),
        *((f"/queue/a --expect-every {wrong}", "'--expect-every': ") for wrong in ("0", "-5", "0s", "soon")),
    ],
    "reply": [
        (f"/queue/a {wrong}", "Error") for wrong in ("", "x --exec date", "x -f {body}", "-f {a}", "-f {body} --exec x")
    ],
    "move": [
        ("/queue/a /queue/a --yes", "one queue"),
        *((f"{queues} --yes", "not a queue") for queues in ("/topic/a /queue/a", "/queue/a /topic/a")),
        *(
            (f"/queue/a {queue} --yes", "Error")
            for queue in ("/temp-queue/a", "/management/purge", "/queue/b --limit 0")
        ),
        *(("/queue/a.* /queue/b --yes", "Error"), ("/queue/a /queue/b", YES)),
    ],
    "purge": [("/topic/a --yes", "not a queue"), ("/queue/> --yes", "Error"), ("/queue/a", YES)],
    "browse": [("/topic/a", "not a queue"), ("/queue/a -f {nope}", "--format")],
    "dlq list": [("/topic/a", "not a queue")],
    "dlq retry": [
        *(("/queue/a --to /topic/a --yes", "not a queue"), ("/queue/a --to /queue/a --yes", "one queue")),
        *(("/queue/a --only x --to /queue/b --yes", "exclude each other"), ("/queue/a", YES)),
    ],
    "encode": [(wrong, "Error") for wrong in ("SEND -H nocolon", "SEND ACK", "--json -H a:b", "SEND --version 2")],
    "inspect": [(wrong, "Error: ") for wrong in ("a b", "--frame 1 --json", "-o x --json", "x.jsonl")],
    "convert": [(wrong, "Error: ") for wrong in ("a", "- - -", "a x.pcapng", "--to capture - -")],
    "context": [("use", MISSING)],
    "pipeline": [
        ("archive none.stompcap -o a", "no such file or folder"),
        ("archive stomp://127.0.0.1:1 -o a", "--destination"),
        ("archive stomp://127.0.0.1:1 -o a -d /queue/a", "--spool"),
        ("archive . -o a --expect-every 5m", "--expect-every is for a broker"),
        ("explode . -o a", "--preset or --schema"),
        ("explode . -o a -p networkrail-td -s n", "--preset or --schema"),
        *(("metrics . --stream follow", "needs -o DIR"), ("metrics . --window 10bananas", "10bananas")),
        *(("replay . somewhere", "a broker's URL"), ("replay . stomp://127.0.0.1:1 --speed 0", "or max")),
    ],
}


@pytest.mark.parametrize(
    ("verb", "arguments", "why"), [(verb, *row) for verb, rows in WRONG.items() for row in rows], ids=str
)
def test_wrong_usage(verb, arguments, why, tmp_path, monkeypatch):
    if verb == "pipeline":
        pytest.importorskip("pyspark")
        pytest.importorskip("pyarrow")
    monkeypatch.chdir(tmp_path)
    result = run(verb, *arguments.split(), STOMPCODEC_URL="127.0.0.1:1")
    said = " ".join(result.stderr.split())
    assert (result.exit_code, why in said) == (2, True), result.output
    assert not [word for word in ("secret", "Traceback") if word in result.output]
    assert list(tmp_path.iterdir()) == []
