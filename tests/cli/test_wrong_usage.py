"""Wrong usage of each verb: exit status 2 before it connects, in words that name what is wrong, without secrets."""

import pytest
from cli.running import run

from stompcodec.bridge import DEAD_LETTER

AWAY, ELSEWHERE = "stomp://ann:secret@127.0.0.1:1", "stomp://127.0.0.2:2"
ENDS = f"{AWAY} {ELSEWHERE}"
MISSING = "Missing argument"
WRONG = {
    "bridge": [
        (f"{AWAY} {AWAY}", "FROM and TO are the same broker, stomp://ann:***@127.0.0.1:1"),
        (f"{AWAY} localhost:1", "the same broker"),
        (f"{AWAY} failover:({ELSEWHERE},{AWAY})", "the same broker"),
        (f"{ENDS} --from-name a --to-name a", "the same name, a"),
        (f"{ENDS} --to-name a,b", "a name has 1 to 255"),
        (f"{AWAY} gopher://ann:secret@x", "Invalid value for TO: uri: unknown scheme gopher"),
        (f"stomp://ann:secret@ {AWAY}", "Invalid value for FROM: uri: write stomp://"),
        (f"{ENDS} -m @", "@ without the name of a file"),
        *((f"{ENDS} {rule}", "write SOURCE=TARGET") for rule in ("-m =/queue/a", "-m /queue/a=", "--map=")),
        (f"{ENDS} -m /queue/a=/queue/*", "the star of TARGET"),
        (f"{ENDS} -m /queue/a=/queue/b -m /queue/a=/queue/c", "mapped twice"),
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
        (f"{ENDS} --prefetch 0", "0 is not in the range"),
        (AWAY, "Missing argument 'TO'"),
    ],
    "proxy": [
        ("nowhere localhost:61613", "LISTEN is 'nowhere'"),
        ("99999 localhost:61613", "LISTEN is '99999'"),
        ("http://127.0.0.1:1 localhost:61613", "LISTEN is"),
        ("0.0.0.0:0 localhost:61613", "can be reached from other machines: add --public"),
        (":0 nonsense://x", "unknown scheme"),
        ("0 failover:(stomp://a,stomp://b)", "one broker"),
        ("0 stomp://ann:secret@a", "leave it out"),
        ("stomp+ssl://127.0.0.1:0 localhost:61613", "--cert go together"),
        ("0 localhost:61613 --cert x.pem", "--cert go together"),
        ("wss://127.0.0.1:0 localhost:61613 --cert no-such.pem", "no-such.pem"),
        ("0 stomp+ssl://localhost:1 --ca no-such.pem", "no-such.pem"),
        ("0 localhost:61613 --fault melt", "the first word is one of"),
        ("0 localhost:61613 --record /", "it exists"),
        ("0", "TARGET"),
    ],
    "record": [
        ("/queue/a", "--output"),
        ("stomp://h -o x", "no DEST"),
        ("/queue/a -o x --segment many", "--segment"),
        ("/queue/a -o x --single --keep 1G", "--keep cannot be used"),
        *((f"/queue/a -o x --dedupe {wrong}", "--dedupe") for wrong in ("uuid", "header:")),
        ("/queue/a -o x --group nobody_here", "no group of this"),
    ],
    "replay": [(f"none {wrong}", "Error") for wrong in ("--speed=0", "--speed=fast", "--from=noon", "-d a=", "-d=")],
    "pub": [
        ("", MISSING),
        ("/queue/a x -H nocolon", "nocolon"),
        ("/queue/a x -l --count 2", "--count"),
        ("/queue/a x --rate 0", "--rate"),
        ("/queue/a x --version 2.0", "--version"),
    ],
    "sub": [("", MISSING), ("/queue/a -f {q}", "--format"), ("/queue/a -n 0", "--count")],
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
        ("/queue/a.* /queue/b --yes", "Error"),
    ],
    "purge": [("/topic/a --yes", "not a queue"), ("/queue/> --yes", "Error")],
    "browse": [("/topic/a", "not a queue"), ("/queue/a -f {nope}", "--format")],
    "dlq list": [("/topic/a", "not a queue")],
    "dlq retry": [
        ("/queue/a --to /topic/a --yes", "not a queue"),
        ("/queue/a --to /queue/a --yes", "one queue"),
        ("/queue/a --only x --to /queue/b --yes", "exclude each other"),
    ],
    "encode": [(wrong, "Error") for wrong in ("SEND -H nocolon", "SEND ACK", "--json -H a:b", "SEND --version 2")],
    "inspect": [(wrong, "Error: ") for wrong in ("a b", "--frame 1 --json", "-o x --json", "x.jsonl")],
    "convert": [(wrong, "Error: ") for wrong in ("a", "- - -", "a x.pcapng", "--to capture - -")],
    "context": [("use", MISSING)],
    "pipeline": [
        ("archive none.stompcap -o a", "no such file or folder"),
        ("archive stomp://127.0.0.1:1 -o a", "--destination"),
        ("archive stomp://127.0.0.1:1 -o a -d /queue/a", "--spool"),
        ("archive . -o a --follow --available-now", "not both"),
        ("archive . -o a --conf memory", "write NAME=VALUE"),
        ("explode . -o a", "--preset or --schema"),
        ("explode . -o a -p networkrail-td -s n", "--preset or --schema"),
        ("metrics . --follow", "needs -o DIR"),
        ("metrics . --window 10bananas", "10bananas"),
        ("replay . somewhere", "a broker's URL"),
        ("replay . stomp://127.0.0.1:1 --speed 0", "or max"),
        ("report none -o a", "does not exist"),
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
    result = run(*verb.split(), *arguments.split(), STOMPCODEC_URL="127.0.0.1:1")
    said = " ".join(result.stderr.split())
    assert (result.exit_code, why in said) == (2, True), result.output
    assert not [word for word in ("secret", "Traceback") if word in result.output]
    assert list(tmp_path.iterdir()) == []
