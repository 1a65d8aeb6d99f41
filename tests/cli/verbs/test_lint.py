"""stompcodec lint: each check finds what it is for, at the right place, and nothing else."""

import json
from functools import partial
from pathlib import Path

import pytest
import run_vectors
from cli.running import objects
from cli.running import run as run_verb

from stompcodec.cli import linting
from stompcodec.cli.linting import CHECKS
from stompcodec.errors import ERROR_KINDS
from stompcodec.spec import Limits
from stompcodec.states import REQUIRED_HEADERS

TESTS = Path(__file__).parent.parent.parent
IN_ORDER = {
    **{"1.2": b"CONNECT\naccept-version:1.2\nhost:a\n\n\0", "1.1": b"CONNECT\naccept-version:1.1\nhost:a\n\n\0"},
    "1.0": b"CONNECT\nlogin:a\npasscode:b\naccept-version:1.0\n\n\0",
}


run = partial(run_verb, "lint")


def findings(data, *arguments):
    result = run("--format", "json", *arguments, input=data)
    found = objects(result)
    assert result.exit_code == any(finding["severity"] == "error" for finding in found)
    return found


SEND = b"SEND\ndestination:/queue/a\n"
MESSAGE = b"MESSAGE\ndestination:/queue/a\nmessage-id:1\nsubscription:1\n"
CONNECTED = b"CONNECTED\nversion:1.2\n\n\0"
WITH_ACKS, V12 = b"SUBSCRIBE\nid:1\ndestination:a\nack:client\n\n\0", ["--version", "1.2"]
#: Version, octets, and each finding as "severity rule @offset".
CASES = [
    ("1.2", SEND + b"x:a:b\n\n\0", ["warning S12-FRM-05 @29"]),
    ("1.0", SEND + b"x:a:b\n\n\0", []),
    ("1.2", SEND + b"x:a\rb\n\n\0", ["error S12-FRM-05 @29"]),
    ("1.1", SEND + b"x:a\r\ny:b\r\n\n\0", ["warning S11-FRM-02 @29"]),
    ("1.2", b"SEND\r\ndestination:/queue/a\r\nx:a:b\r\n\r\n\0", ["warning S12-FRM-05 @31"]),
    ("1.2", SEND + b"x: a\n\n\0", ["warning S12-HDR-01 @26"]),
    ("1.0", SEND + b"x: a\n\n\0", ["note S10-FRM-12 @26"]),
    ("1.0", SEND + "x:ü\n\n\0".encode(), ["error S10-FRM-08 @26"]),
    ("1.2", SEND + "x:ü\n\n\0".encode(), []),
    ("1.0", SEND + b"x:\n\n\0", ["warning S10-FRM-06 @26"]),
    ("1.2", SEND + b"x:1\nx:2\n\n\0", ["note S12-HDR-02 @30"]),
    ("1.2", SEND + b"Receipt:1\n\n\0", ["warning S12-FRM-03 @26"]),
    ("1.2", b"CONNECT\naccept-version:1.2\nhost:a\nlogin:a\\cb\n\n\0", ["warning S12-ESC-07 @34"]),
    ("1.2", b"CONNECT\naccept-version:1.2\nhost:a\nheart-beat:1\n\n\0", ["error S12-HB-02 @34"]),
    ("1.2", b"CONNECT\naccept-version:1.2,1.1\nhost:a\n\n\0", ["warning S12-NEG-02 @8"]),
    ("1.2", b"CONNECTED\nversion:1.2\nserver:/1\n\n\0", ["error S12-CTD-05 @22"]),
    ("1.2", b"CONNECTED\nversion:1.2\nserver:a-b/1.0 some words\n\n\0", []),
    ("1.2", b"SUBSCRIBE\nid:1\ndestination:a\nack:maybe\n\n\0", ["error S12-SUB-07 @29"]),
    ("1.1", b"SUBSCRIBE\nid:1\ndestination:a\nack:client-individual\n\n\0", []),
    ("1.0", b"SUBSCRIBE\ndestination:a\nack:client-individual\n\n\0", ["warning S10-SUB-03 @24"]),
    ("1.2", b"CONNECT\naccept-version:1.2\nhost:a\nreceipt:1\n\n\0", ["warning S12-RCP-01 @34"]),
    ("1.0", b"CONNECT\nlogin:a\npasscode:b\n\nhi\0", ["error S10-CON-05 @28"]),
    ("1.0", b"SUBSCRIBE\ndestination:a\n\nhi\0", ["note S10-SUB-05 @25"]),
    ("1.0", b"CONNECT\nlogin:a\n\n\0", ["note S10-CON-02 @0"]),
    ("1.2", b"STOMP\naccept-version:1.2\nhost:a\n\n\0", ["note S12-CON-06 @0"]),
    ("1.2", b"ERROR\n\n\0", ["warning S12-ERR-03 @0"]),
    ("1.2", SEND + b"\nhi\0", ["warning S12-CL-04 @0", "warning S12-CT-01 @0"]),
    ("1.0", SEND + b"\nhi\0", ["warning S10-CL-01 @0"]),
    ("1.2", SEND + b"content-length:1\ncontent-type:text\n\nx\0", ["error S12-CT-02 @43"]),
    ("1.2", SEND + b"content-length:1\ncontent-type:text/plain; charset=utf-8\n\nx\0", []),
    ("1.2", SEND + b"content-length:1\ncontent-type:text/plain\n\n\xff\0", ["error S12-CT-04 @68"]),
    ("1.1", SEND + b"content-length:1\ncontent-type:text/a;charset=ascii\n\n\xff\0", ["warning S11-CT-04 @78"]),
    ("1.2", SEND + b"content-length:1\ncontent-type:a/b\ncontent-encoding:gzip\n\nx\0", ["warning WISH-ENC-01 @60"]),
    ("legacy", b"SEND\ndestination:a\nsome_name:b\n\n\0", ["warning LEG-HDR-03 @19"]),
    ("legacy", b"SEND\nDestination:a\n\n\0", ["warning LEG-HDR-05 @5"]),
    ("legacy", b"SEND\ndestination:a\x7f\n\n\0", ["warning LEG-HDR-07 @5"]),
    ("legacy", b"send\ndestination:a\n\n\0", ["warning LEG-CMD-02 @0"]),
    ("legacy", b"CONNECT\nusername:a\npasscode:b\n\nhi\0", ["warning LEG-CON-03 @31"]),
    # Missing headers.
    ("1.2", b"SEND\n\n\0", ["error S12-SND-01 @0"]),
    ("1.2", b"\nACK\nmessage-id:1\n\n\0", ["error S12-ACK-01 @1"]),
    ("1.1", b"NACK\nid:1\n\n\0", ["error S11-NAK-01 @0", "error S11-NAK-01 @0"]),
    ("1.0", b"UNSUBSCRIBE\n\n\0", ["error S10-UNS-01 @0"]),
    ("legacy", b"CONNECT\n\n\0", ["error LEG-CON-02 @0", "error LEG-CON-02 @0"]),
    ("legacy", b"ACK\n\n\0", ["error S10-ACK-01 @0"]),
    # What the codec finds; reading goes on behind it.
    ("1.1", SEND + b"x:\\r\n\n\0\n" + b"SEND\n\n\0", ["error S11-ESC-04 @28", "error S11-SND-01 @34"]),
    ("1.2", b"send\n\n\0", ["error S12-FRM-03 @0"]),
    ("1.1", b"SEND\r\n\n\0", ["error S11-FRM-02 @0"]),
    ("1.2", b"SEND\nx\0", ["error S12-FRM-01 @6"]),
    ("1.2", b"SEND\ncontent-length:1\n\nabc\0", ["error S12-CL-03 @24"]),
]


@pytest.mark.parametrize(("version", "data", "expected"), CASES, ids=[f"{case[0]}-{n}" for n, case in enumerate(CASES)])
def test_a_finding(version, data, expected):
    found = [f"{item['severity']} {item['rule']} @{item['offset']}" for item in findings(data, "--version", version)]
    assert found == expected


def rules_of(data, *arguments):
    return [finding["rule"] for finding in findings(data, *arguments)]


@pytest.mark.parametrize(
    ("frames", "options", "expected"),
    [
        # Frames of a handshake are judged by what they say.
        (b"CONNECT\nlogin:a\npasscode:b\n\n\0", [], []),
        (b"STOMP\nhost:a\n\n\0", [], ["S12-CON-07", "S12-CON-06"]),
        *((b"CONNECT\naccept-version:1.1\n\n\0", [], ["S11-CON-09"]), (b"CONNECTED\n\n\0", [], ["S10-CON-04"])),
        (b"CONNECTED\nversion:1.1\n\n\0MESSAGE\n\n\0", [], ["S11-MSG-01", "S11-MSG-02", "S11-MSG-03"]),
        (b"CONNECTED\n\n\0", ["--version", "1.2"], ["S12-CTD-01"]),
        # A stream that began earlier is not blamed.
        (b"COMMIT\ntransaction:1\n\n\0UNSUBSCRIBE\nid:1\n\n\0", [], []),
        # The server's side.
        (b"ERROR\nmessage:a\n\n\0" + CONNECTED, [], []),
        (CONNECTED + b"ERROR\nmessage:a\n\n\0RECEIPT\nreceipt-id:1\n\n\0", [], ["S12-ERR-02"]),
        (IN_ORDER["1.1"] + CONNECTED, [], ["S12-FRM-07", "S12-NEG-04"]),
        # What takes several frames to see.
        (IN_ORDER["1.2"] + b"DISCONNECT\n\n\0SEND\ndestination:a\n\n\0", V12, ["S12-DIS-02"]),
        (IN_ORDER["1.2"] + b"SUBSCRIBE\nid:1\ndestination:a\n\n\0" * 2, V12, ["S12-SUB-06"]),
        (IN_ORDER["1.2"] + b"UNSUBSCRIBE\nid:1\n\n\0", V12, ["S12-UNS-01"]),
        (IN_ORDER["1.2"] + b"BEGIN\ntransaction:1\n\n\0" * 2, V12, ["S12-TX-04"]),
        (IN_ORDER["1.2"] + b"COMMIT\ntransaction:1\n\n\0", V12, ["S12-TX-06"]),
        (IN_ORDER["1.2"] + b"SEND\ndestination:a\ntransaction:1\n\n\0", V12, ["S12-TX-02"]),
        (IN_ORDER["1.2"] + WITH_ACKS + MESSAGE + b"\n\0", V12, ["S12-FRM-07", "S12-MSG-05"]),
    ],
)
def test_a_handshake_and_what_follows(frames, options, expected):
    assert rules_of(frames, *options) == expected


def test_many_ids_are_not_kept():
    many = linting._MOST + 5
    frames = b"".join(b"SUBSCRIBE\nid:%d\ndestination:a\n\n\0" % number for number in range(many))
    assert rules_of(IN_ORDER["1.2"] + frames + b"UNSUBSCRIBE\nid:nobody\n\n\0") == []


#: The tables of what is only wrong in a conversation.
_OF_CONVERSATIONS = ("_ANOTHER_SIDE", "_NOT_OFFERED", "_AFTER_DISCONNECT", "_AFTER_ERROR", "_SAME_ID")
_OF_CONVERSATIONS += ("_NOT_SUBSCRIBED", "_NO_ACK", "_SAME_TRANSACTION", "_NO_TRANSACTION", "_NOT_BEGUN")


def test_rules_are_requirements_with_their_titles_and_each_error_has_one():
    tables = [check.ids for check in CHECKS] + [*linting._KINDS.values(), *linting._LIMITS.values()]
    tables += [linting._WRONG_CASE, linting._WRONG_EOL]
    for value in (getattr(linting, name) for name in _OF_CONVERSATIONS):
        tables += [inner for inner in (value, *value.values()) if isinstance(inner, dict)]
    named = {rule for table in tables for rule in table.values() if isinstance(rule, str)}
    for (version, _sender), commands in REQUIRED_HEADERS.items():
        for command, required in commands.items():
            named |= {linting.missing_id(version, command, names) for names in required}
    assert len(named) > 100
    assert named <= linting.titles().keys()
    assert all(text.endswith(".") for text in linting.titles().values())
    assert all(linting.title_of(each) for each in (*named, *ERROR_KINDS))
    written = {"unencodable", "no-common-version", "bad-heart-beat", "bad-content-encoding", "limit-exceeded"}
    assert (set(linting._KINDS), set(linting._LIMITS)) == (set(ERROR_KINDS) - written, set(Limits._fields))


VECTORS = [
    pytest.param(vector, id=vector["id"])
    for path in sorted((TESTS / "vectors").glob("*.json"))
    for vector in json.loads(path.read_text(encoding="utf-8"))["vectors"]
    if vector["kind"] == "decode"
]


@pytest.mark.parametrize("vector", VECTORS)
def test_the_first_error_of_a_vector_is_found(vector):
    version = "auto" if vector["version"] == "none" else vector["version"]
    limits = [f"--limit={name}={size}" for name, size in vector.get("limits", {}).items()]
    expected = [event["kind"] for event in vector["expect"] if event["type"] == "error"]
    result = run("--format", "json", "--version", version, *limits, input=run_vectors.wire(vector))
    texts = [line["text"] for line in objects(result)]
    kinds = [kind for text in texts for kind in ERROR_KINDS if text.startswith(ERROR_KINDS[kind].what)]
    kinds += ["unknown-command" for text in texts if text.startswith("the command ")]
    # A vector may stop in the middle of a frame.
    assert kinds[:1] == expected[:1] or (not expected and kinds == ["truncated"])
    assert result.exit_code == 1 or not kinds


BAD = SEND + b"x:a:b\nx:a:b\n\n\0SEND\n\n\0"


def test_forms(tmp_path):
    file = tmp_path / "a.stomp"
    file.write_bytes(BAD)
    result = run(file)
    assert result.exit_code == 1
    assert result.stdout.splitlines() == [
        f"{file}:29: warning S12-FRM-05: a raw colon in a value: header x (write it as \\c)",
        f"{file}:35: warning S12-FRM-05: a raw colon in a value: header x (write it as \\c)",
        f"{file}:32: note S12-HDR-02: the first entry counts: header x (check which entry is meant)",
        f"{file}:40: error S12-SND-01: SEND has no header destination (add it)",
        f"{file}: errors 1, warnings 2, notes 1, frames 2",
    ]
    few = run("--most", "1", file, file).stdout
    words = ("raw colon", "S12-FRM-05: 1 more, shown with --most 0", "errors 1, warnings 2,", ": 0 more")
    assert [few.count(each) for each in words] == [2, 2, 2, 0]
    result = run("--format", "github", input=BAD)
    assert "::error file=<stdin>,title=S12-SND-01::octet 40: SEND has no header destination (add it)" in result.stdout
    result = run("--format", "sarif", file)
    log = json.loads(result.stdout)
    (sarif,) = log["runs"]
    assert (result.exit_code, log["version"], sarif["results"][-1]["level"]) == (1, "2.1.0", "error")
    assert {rule["id"] for rule in sarif["tool"]["driver"]["rules"]} == {"S12-FRM-05", "S12-HDR-02", "S12-SND-01"}
    place = sarif["results"][-1]["locations"][0]["physicalLocation"]
    assert place == {"artifactLocation": {"uri": str(file)}, "region": {"byteOffset": 40, "byteLength": 1}}


@pytest.mark.parametrize("form", ["text", "json", "sarif", "github"])
def test_secrets_and_control_octets_stay_out_of_findings(form):
    data = b"CONNECT\naccept-version:1.2\nhost:a\npasscode: hunter2\\c\nx\x1b[2J:a\rb\n\n\0"
    output = run("--format", form, input=data + b"CONNECT\npasscode:hunter2\nx\n\n\0").output
    assert not [word for word in ("hunter2", "\x1b") if word in output]
