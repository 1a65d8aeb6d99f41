"""Every verb of the command: help, examples, exit statuses, suggestions, long names of options."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("click")
pytest.importorskip("websockets")

import click
from click.testing import CliRunner, Result

from stompcodec.cli import connecting
from stompcodec.cli import groups as statuses
from stompcodec.cli import groups as verbs
from stompcodec.cli.app import app

ROOT = Path(__file__).parents[2]


def _walk(command: click.Command, context: click.Context, path: tuple[str, ...]) -> Iterator[tuple[str, click.Command]]:
    yield " ".join(path), command
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from _walk(inner, click.Context(inner, info_name=name, parent=context), (*path, name))


COMMANDS = dict(_walk(app, click.Context(app, info_name="stompcodec"), ()))
GROUPS = [path for path, command in COMMANDS.items() if isinstance(command, click.Group)]
#: Those that do something, `broker` among them.
VERBS = [path for path, command in COMMANDS.items() if path and path not in ("pipeline", "context", "dlq")]
#: Those that connect to a broker.
CLIENTS = {
    *("pub", "sub", "req", "reply", "ping", "record", "replay"),
    *("browse", "move", "purge", "dlq list", "dlq show", "dlq retry"),
    *("pipeline archive", "pipeline explode", "pipeline metrics", "pipeline replay"),
    "top",
}


def run(path: str, *arguments: str | Path, **options: object) -> Result:
    return CliRunner().invoke(app, [*path.split(), *map(str, arguments)], **options)


def help_of(path: str) -> str:
    result = run(path, "--help", env={"COLUMNS": "80"})
    assert result.exit_code == 0, result.output
    return result.output


# Help


@pytest.mark.parametrize("path", COMMANDS, ids=lambda path: path or "stompcodec")
def test_each_help_has_an_example(path: str) -> None:
    lines = help_of(path).splitlines()[1:]  # the first one is the usage
    wanted = rf"stompcodec {path}".strip() + r"\b"
    assert [line for line in lines if re.search(wanted, line) and line.startswith("    ")], lines


@pytest.mark.parametrize("path", VERBS)
def test_each_help_ends_with_the_exit_statuses(path: str) -> None:
    text = help_of(path)
    for status, meaning in statuses.STATUSES[path].items():
        assert f"    {status:<4} {meaning}\n" in text


@pytest.mark.parametrize("path", COMMANDS, ids=lambda path: path or "stompcodec")
def test_each_short_option_has_a_long_name(path: str) -> None:
    for option in COMMANDS[path].params:
        if isinstance(option, click.Option):
            names = [*option.opts, *option.secondary_opts]
            assert any(name.startswith("--") for name in names), names


@pytest.mark.parametrize("path", sorted(CLIENTS))
def test_each_client_verb_tells_how_to_give_a_passcode(path: str) -> None:
    text = " ".join(help_of(path).split())
    for words in ("--login NAME", "--passcode-file FILE", "STOMPCODEC_PASSCODE", "a prompt without echo"):
        assert words in text


def test_the_list_of_client_verbs_is_complete() -> None:
    names = {path: {option.name for option in command.params} for path, command in COMMANDS.items()}
    assert {path for path, options in names.items() if options & {"url", "passcode_file", "broker_url"}} == CLIENTS


def test_the_table_of_statuses_is_complete_and_documented() -> None:
    assert set(statuses.STATUSES) == set(VERBS)
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    assert statuses.markdown() in page
    assert [verb for verb in VERBS if f"`{verb}`" not in page] == []
    assert all(f"_STOMPCODEC_COMPLETE={shell}_source" in page for shell in ("bash", "zsh", "fish"))


def test_completion_works() -> None:
    environment = {"_STOMPCODEC_COMPLETE": "bash_complete", "COMP_WORDS": "stompcodec conv", "COMP_CWORD": "1"}
    result = CliRunner().invoke(app, prog_name="stompcodec", env=environment)
    assert "convert" in result.output


# Unknown verbs


@pytest.mark.parametrize("group", GROUPS, ids=lambda path: path or "stompcodec")
def test_unknown_verbs_get_a_suggestion(group: str) -> None:
    command = COMMANDS[group]
    assert isinstance(command, click.Group)
    for name in command.list_commands(click.Context(command)):
        for typed in (name + name[-1], name[:-1], name.upper(), name[1:] + name[0], f"{name}s"):
            result = run(group, typed)
            assert result.exit_code == 2
            assert "Did you mean" in result.stderr, typed
            assert repr(name) in result.stderr.partition("Did you mean")[2], typed
    result = run(group, "qqqqqq")
    assert (result.exit_code, "The verbs are " in result.stderr) == (2, True)


def test_words_of_other_tools_are_understood() -> None:
    for word, verb in verbs._SYNONYMS.items():
        groups = [group for group in GROUPS if verb in COMMANDS[group].list_commands(click.Context(COMMANDS[group]))]
        assert groups, f"{verb} is no verb"
        for group in groups:
            if word not in COMMANDS[group].list_commands(click.Context(COMMANDS[group])):
                assert repr(verb) in run(group, word).stderr


# Exit statuses


@pytest.mark.parametrize("path", VERBS)
def test_wrong_usage_is_2(path: str) -> None:
    result = run(path, "--no-such-option")
    assert result.exit_code == 2
    assert 2 in statuses.STATUSES[path]


@pytest.mark.parametrize("path", VERBS)
def test_ctrl_c_is_130(path: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def interrupted(*_arguments: object, **_options: object) -> None:
        raise KeyboardInterrupt

    command = COMMANDS[path]
    monkeypatch.setattr(command, "callback", interrupted)
    monkeypatch.chdir(tmp_path)
    Path("in").mkdir()
    needed = [
        word
        for option in command.params
        if option.required
        for word in ([option.opts[-1], "out"] if isinstance(option, click.Option) else ["in"])
    ]
    result = run(path, *needed)
    assert (result.exit_code, "Traceback" in result.output) == (130, False)
    assert 130 in statuses.STATUSES[path]


GOOD = b"SEND\ndestination:/q\ncontent-type:text/plain\ncontent-length:1\n\nx\0"
REFUSED = ("--url", "127.0.0.1:1")
#: What ends with 0 and with 1, of verbs that need neither a broker nor Spark.
RUNS: list[tuple[str, tuple[str, ...], int]] = [
    ("decode", ("good",), 0),
    ("decode", ("bad",), 1),
    ("decode", ("none",), 1),
    ("encode", ("SEND", "-H", "destination:/q"), 0),
    ("encode", ("NOTHING",), 1),
    ("encode", ("--json", "none"), 1),
    ("lint", ("good",), 0),
    ("lint", ("bad",), 1),
    ("lint", ("none",), 1),
    ("inspect", ("good",), 0),
    ("inspect", ("bad",), 1),
    ("inspect", ("none", "-o", "page"), 1),
    ("inspect", ("good", "--frame", "2"), 1),
    ("convert", ("good", "out.jsonl"), 0),
    ("convert", ("none", "out.jsonl"), 1),
    ("convert", ("good", "good"), 1),
    ("pub", ("/queue/a", "x", *REFUSED), 1),
    ("sub", ("/queue/a", *REFUSED), 1),
    ("req", ("/queue/a", "x", *REFUSED), 1),
    ("reply", ("/queue/a", "x", *REFUSED), 1),
    ("ping", REFUSED, 1),
    ("browse", ("/queue/a", *REFUSED), 1),
    ("move", ("/queue/a", "/queue/b", "--yes", *REFUSED), 1),
    ("move", ("/queue/a", "/queue/b", *REFUSED), 2),
    ("purge", ("/queue/a", "--yes", *REFUSED), 1),
    ("dlq list", REFUSED, 1),
    ("dlq show", ("/queue/a", *REFUSED), 1),
    ("dlq retry", ("/queue/a", "--yes", *REFUSED), 1),
    ("top", REFUSED, 1),
    ("top", ("--once", "--sort", "nothing"), 2),
    ("record", ("/queue/a", "-o", "out.stompcap", *REFUSED), 1),
    ("replay", ("good", *REFUSED), 1),
    ("replay", ("none", *REFUSED), 1),
    ("broker", ("--config", "none"), 1),
    ("broker check", ("none",), 2),
    ("broker salvage", ("none", "new"), 2),
]


@pytest.mark.parametrize(("path", "arguments", "status"), RUNS, ids=lambda value: str(value))
def test_exit_statuses_are_those_of_the_table(
    path: str, arguments: tuple[str, ...], status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if path.startswith("pipeline"):
        pytest.importorskip("pyspark")
    monkeypatch.chdir(tmp_path)
    Path("good").write_bytes(GOOD)
    Path("bad").write_bytes(b"root:x:0:0\n")
    result = run(path, *arguments)
    assert result.exit_code == status, result.output
    assert status in statuses.STATUSES[path]
    assert result.exception is None or isinstance(result.exception, SystemExit)
    if status == 1 and arguments[-2:] == REFUSED and arguments[0] != "none":
        assert len(result.stderr.splitlines()) == 1
        assert "is the broker running there" in result.stderr


def test_no_verb_ends_with_a_status_of_its_own() -> None:
    """Every status written in the code is one of those that the table has."""
    for file in (ROOT / "stompcodec" / "cli").rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        for arguments in re.findall(r"(?:sys\.exit|SystemExit|ctx\.exit|context\.exit)\(([^()]*)\)", text):
            assert {int(number) for number in re.findall(r"\b\d+\b", arguments)} <= {0, 1, 2, 130}, file


# Passcodes without a broker


def test_the_first_line_of_a_passcode_file(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    for content, passcode in ((b"a b\n", "a b"), (b"x\r\nmore\n", "x"), (b"\xc3\xa9", "é")):
        file.write_bytes(content)
        assert connecting.passcode_of([], "ann", str(file)) == passcode


@pytest.mark.parametrize("content", [None, b"", b"\nx\n", b"\xff\n"])
@pytest.mark.parametrize("path", sorted(CLIENTS - {"pipeline explode"}))
def test_a_passcode_file_that_is_none(path: str, content: bytes | None, tmp_path: Path) -> None:
    if path.startswith("pipeline"):
        pytest.importorskip("pyspark")
    file = tmp_path / "secret"
    if content is not None:
        file.write_bytes(content)
    result = run(path, *_aim(path, "127.0.0.1:1", tmp_path), "--login", "ann", "--passcode-file", file)
    assert result.exit_code == 2
    assert "'--passcode-file'" in result.stderr
    assert "Traceback" not in result.output


def _aim(path: str, url: str, folder: Path) -> list[str]:
    """Arguments with which a client verb does little, at a broker."""
    (folder / "a.stomp").write_bytes(GOOD.replace(b"/q", b"/queue/aimed"))
    at = ["--url", url]
    spool = ["-d", "/queue/a", "--spool", str(folder / "spool"), "-o", str(folder / "out")]
    return {
        "pub": ["/queue/aimed", "x", *at],
        "sub": ["/queue/aimed", "--wait", "0", *at],
        "req": ["/queue/aimed", "x", "--timeout", "5", *at],
        "reply": ["/queue/asked", "x", "--wait", "0", "-q", *at],
        "ping": [url, "--count", "0"],
        "top": ["--once", "--interval", "0.1", *at],
        "record": [url, "/queue/aimed", "-o", str(folder / "aimed.stompcap"), "--wait", "0"],
        "replay": [str(folder / "a.stomp"), url],
        "browse": ["/queue/aimed", *at],
        "move": ["/queue/aimed", "/queue/moved", "--yes", "-q", *at],
        "purge": ["/queue/aimed", "--yes", "-q", *at],
        "dlq list": ["/queue/aimed", *at],
        "dlq show": ["/queue/aimed", *at],
        "dlq retry": ["/queue/DLQ.aimed", "--yes", "-q", *at],
        "pipeline archive": [url, *spool],
        "pipeline metrics": [url, *spool],
        "pipeline replay": [str(folder / "a.stomp"), url],
    }[path]


# At a broker

SIMPLE = sorted(path for path in CLIENTS if not path.startswith("pipeline") and path != "req")


@pytest.mark.parametrize("path", SIMPLE)
def test_host_and_port_are_a_url(path: str, at: object, tmp_path: Path) -> None:
    port = at.broker.port
    result = run(path, *_aim(path, f"127.0.0.1:{port}", tmp_path))
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize("path", sorted(CLIENTS - {"pipeline explode"}))
def test_host_and_port_are_understood_where_nobody_listens(path: str, tmp_path: Path) -> None:
    if path.startswith("pipeline"):
        from stompcodec.cli.verbs.pipeline import is_broker

        assert is_broker("localhost:61613")
        assert not is_broker("feed.stompcap")
        return
    result = run(path, *_aim(path, "127.0.0.1:1", tmp_path))
    assert result.exit_code == 1
    (line,) = result.stderr.splitlines()
    assert "cannot connect to stomp://127.0.0.1:1: Connection refused" in line
    assert result.stdout == ""


WAYS = ("file", "environment", "prompt", "url")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("path", [path for path in SIMPLE if path != "top"])  # guest has no right to manage
def test_a_passcode_reaches_the_broker(
    path: str, way: str, at: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    result = run(path, *_aim(path, url, tmp_path), *login, env=environment, input="guest\n")
    assert result.exit_code == 0, result.output
    assert result.stderr.count("Passcode of guest: ") == (way == "prompt")
    assert "guest" not in result.output.replace("Passcode of guest", "")


@pytest.mark.parametrize("path", [*SIMPLE, "req"])
def test_a_wrong_passcode_is_one_line(path: str, at: object, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("not-the-one\n")
    url = f"127.0.0.1:{at.guarded.port}"
    result = run(path, *_aim(path, url, tmp_path), "--login", "guest", "--passcode-file", tmp_path / "secret")
    assert result.exit_code == 1
    (line,) = result.stderr.splitlines()
    assert "check --login and the passcode: --passcode-file" in line
    assert "not-the-one" not in line


#: The options that take a number with a fraction, such as a time in seconds.
NUMBERS = [
    (path, option)
    for path, command in COMMANDS.items()
    for option in command.params
    if isinstance(option.type, (click.FloatRange, click.types.FloatParamType))
]


@pytest.mark.parametrize("value", ["nan", "inf", "1e300", "-1", "-inf"])
@pytest.mark.parametrize(("path", "option"), NUMBERS, ids=lambda each: getattr(each, "name", each))
def test_a_number_that_no_wait_can_take_is_refused_by_name(path: str, option: click.Option, value: str) -> None:
    result = run(path, f"{option.opts[-1]}={value}")
    assert result.exit_code == 2
    assert f"'{option.opts[-1]}'" in result.output
    assert "is not" in result.output
