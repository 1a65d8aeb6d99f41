"""The configuration: every key, what it may be, and errors that say where and what to do."""

import dataclasses
import os
import re
import tomllib
from pathlib import Path

import pytest

import stompcodec
from stompcodec.broker.auth import Auth, Rule, User, check_hash, hash_passcode
from stompcodec.broker.config import DIALECTS, KEYS, Config, explain, load_config, page_of, parse_config, read_fields
from stompcodec.broker.settings import Pauses, Preset, Setting
from stompcodec.errors import ConfigError
from stompcodec.spec import Limits
from stompcodec.testing import StompBroker

TREE = Path(__file__).parents[3]
BROKER = Path(stompcodec.__file__).parent / "broker"
EXAMPLES = sorted((TREE / "examples" / "brokers").glob("*.toml"))
HASH = hash_passcode("guest", n=16)


def error_of(source, file="b.toml"):
    with pytest.raises(ConfigError) as caught:
        parse_config(source, file)
    return caught.value


def page():
    path = TREE / "docs" / "broker.md"
    return path.read_text(encoding="utf-8") if path.exists() else pytest.skip("no docs here")


def test_every_field_has_a_key_or_a_row_among_the_values_without_one():
    assert len({key.name for key in KEYS}) == len(KEYS)
    targets = [name for key in KEYS for name in (key.target, *key.also)]
    assert len(set(targets)) == len(targets)
    fields = {field.name for field in dataclasses.fields(Config)} - {"limits"}
    keyed = {name for name in targets if "." not in name}
    rest = page().partition("### Values without a key")[2]
    fixed = {name for row in rest.splitlines() for name in re.findall(r"`(\w+)`", row.rpartition(" (")[2])}
    dialects = {name for dialect in DIALECTS.values() for name in dialect}
    assert (keyed & fixed, fields - keyed - fixed - dialects, fixed - fields) == (set(), set(), {"limits"})


def test_every_field_is_read_by_the_broker():
    sources = [path for path in BROKER.rglob("*.py") if path.name != "config.py"]
    source = "\n".join(path.read_text(encoding="utf-8") for path in sources)
    unused = [field.name for field in dataclasses.fields(Config) if not re.search(rf"config\.{field.name}\b", source)]
    assert unused == []


def test_what_is_explained_is_a_file_with_the_defaults():
    assert parse_config(explain()) == Config()
    lines = explain().splitlines()
    start = next(number for number, line in enumerate(lines) if line == "# [users.guest]")
    shown = [line[2:] if re.match(r"# \w+ = ", line) else line for line in lines[:start]]
    expected = Config(
        ws_port=15674,
        tls_port=61614,
        tls_cert="server.pem",
        tls_key="server.key",
        tls_ca="clients.pem",
        ws_origins=("https://app.example", "http://localhost:*"),
        ws_hosts=("broker.example",),
        data="stompcodec-data",
        group="stomp",
        large_folder="large",
        address_settings=(Setting("prices.#", default_address_routing_type="MULTICAST"),),
        presets=(Preset("prices", "MULTICAST", ("desk.prices",)),),
        exchanges={"orders": "topic"},
        virtual_hosts=("/", "orders.example"),
    )
    assert parse_config("\n".join(shown)) == expected


def test_the_documentation_is_up_to_date():
    """`make docs` writes it anew."""
    assert page() == page_of(page())


ARTEMIS = {"dialect": "artemis", "prefetch_octets": False}
#: Keys that set several fields, or may be written in several ways -> the fields that they set.
GOOD = {
    "listen.port = [61613, 0]": {"port": 61613, "ports": (0,)},
    "listen.legacy = true": {"detect_legacy": True},
    "listen.legacy = 0": {"legacy_port": 0},
    "listen.ws_port = 65535": {"ws_port": 65535},
    'limits = { memory = "2GiB", max_body = "2MiB" }': {"memory": 2**31, "limits": Limits(max_body=2**21)},
    'sessions.ttl = "60s"': {"ttl": 60_000},
    "sessions.ttl = { override = 3, factor = 4 }": {"ttl_override": 3000, "ttl_modifier": 4.0},
    'sessions.ttl = { usual = 9, least = 2, most = "3m" }': {"ttl": 9000, "ttl_min": 2000, "ttl_max": 180_000},
    'queues.prefetch = "10KiB"': {"window": 10_240, "prefetch_octets": True},
    'broker.dialect = "artemis"\nqueues.prefetch = 7': {**ARTEMIS, "prefetch": 7, "window": None},
    'addresses.prefixes = { anycast = "q/", multicast = "t/" }': {"anycast_prefix": "q/", "multicast_prefix": "t/"},
    'limits.max_body = 5\nbroker.dialect = "rabbitmq"': {
        "dialect": "rabbitmq",
        "limits": Limits(max_headers=99, max_body=5),
    },
    "sessions.wire = { trailing_lf = false }": {"trailing_lf": False},
    'addresses.wildcards = { delimiter = "/" }': {"delimiter": "/"},
}


@pytest.mark.parametrize("source", GOOD)
def test_a_key_sets_its_fields(source):
    assert parse_config(source) == Config(**GOOD[source])


BAD = {
    "listen.host": ["1", '""', '"a\\nb"'],
    "listen.port": ["-1", "65536", "true", '"61613"', "1.5", "[]", "[-1]", "[65536]", "[true]", "[7, false]"],
    **{"listen.legacy": ["-1", "65536", '"detect"', "[7]"], "store.durable": ['"some"', "true"]},
    "limits.max_body": ["-1", '"2 Mb/s"', "1.5", "true", f"{2**62 + 1}"],
    **{"limits.max_headers": ["0", "100001", '"7"'], "messages.large": ["0", '"big"']},
    "sessions.ttl": ["-1", "true", '"60 000"', '"-1s"', "inf"],
    **{"queues.prefetch": ["0", "-1", '"much"', "1.5", "true", "[7]"], "sessions.wire": ["true", "[]"]},
    **{"addresses.prefixes": ['"queue/"', '["queue/"]'], "addresses.wildcards": ['"kafka"', "true"]},
    "log.frames": ['"some"', "true"],
    "sessions.heart_beat": ["500", "[500]", "[1, -1]", "[1, 2, 3]", '["1", "2"]', "[true, 1]", "[3600001, 0]"],
    **{"sessions.login_timeout": ["0", "-1", "inf", "nan", '"3 w"', "true"], "sessions.max_unacked": ["0", "1.0"]},
    **{"sessions.transactional_acks": ["1", '"yes"'], "queues.transient": ['"drop"', "true"]},
    "queues.window": ["0", "-1", "1.5", "true", '"4000"'],
    "queues.redelivery_delay": [
        *('"1s x0 up to 30s"', '"-1s"', '"366d"', '"5s x2 up to 1s"', '"5s x0.5 up to 9s"', '"5s x2"', '"1e3s"', "5"),
        *('"inf"', '""', "true"),
    ],
    **{"queues.dead_letter": ['""', '"{queue}"', '"/queue/{name"', "3"], "topics.slow_consumer": ['"wait"']},
    "access.virtual_hosts": ["[]", '"/"', "[1]"],
    "websocket.origins": [
        *('["*"]', '["NULL"]', '["localhost"]', '["https://a/"]', '["https://caf\xe9.example"]', '"https://a"'),
        *('["https://*.example"]', "[1]"),
    ],
    "websocket.hosts": ['["broker.example:80"]', '["http://a"]', '["*"]', '"a"', '[""]', '["a b"]'],
    **{"users": ["3", "[]"], "rules": ["3", "{}", "[1]"]},
}


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in BAD.items() for text in texts])
def test_a_bad_value_is_refused_with_its_place(name, text):
    error = error_of(f"# a comment\n{name} = {text}\n")
    assert (error.file, error.line, error.key) == ("b.toml", 2, name)
    assert str(error).startswith(f"b.toml, line 2: {name}: ")
    assert re.search("must be|is written|is not an? (host|origin)|may not use", str(error))
    short = name if name == "queues.window" else name.rpartition(".")[2]
    with pytest.raises(ConfigError, match=re.escape(str(error).partition(f"{name}: ")[2])):
        Config(**read_fields({short: tomllib.loads(f"x = {text}")["x"]}))


@pytest.mark.parametrize(
    ("given", "fields"),
    [
        ({"redelivery_delay": "0s", "max_queue_messages": 5}, {"redelivery_delay": Pauses(), "max_queue_messages": 5}),
        ({"max_body": "2MiB", "web.page": True}, {"limits": Limits(max_body=2**21), "web_page": True}),
        ({"max_body": 5, "dialect": "rabbitmq"}, {"dialect": "rabbitmq", "limits": Limits(max_headers=99, max_body=5)}),
        ({"prefetch": "10KiB"}, {"window": 10_240, "prefetch_octets": True}),
        ({"prefixes": {"anycast": "q/"}, "multicast_prefix": "t/"}, {"anycast_prefix": "q/", "multicast_prefix": "t/"}),
        (
            {"users": {"ann": User("ann")}, "rules": [Rule("ann")]},
            {"users": {"ann": User("ann")}, "rules": [Rule("ann")]},
        ),
        ({"redelivery_delay": Pauses(), "ws_port": None, "nack": "drop"},) * 2,
        ({"window": 1000, "page": 65536, "ttl": 500, "version_header": True},) * 2,  # fields before keys of that name
        (
            {"queues.window": 9, "idempotency.window": "1s", "web.page": True},
            {"window_messages": 9, "key_window": 1.0, "web_page": True},
        ),
        ({"ttl": "3s", "ttl_min": 2}, {"ttl": 3000, "ttl_min": 2}),
        ({"sessions.ttl": 3}, {"ttl": 3000}),
        ({"ports": (0,), "port": 0},) * 2,
        ({"prefetch_octets": True, "prefetch": 10}, {"prefetch": 10, "window": None, "prefetch_octets": True}),
        ({"max_body": 5, "limits": Limits(max_headers=7)}, {"limits": Limits(max_headers=7, max_body=5)}),
    ],
)
def test_fields_are_read_as_keys_or_as_they_are(given, fields):
    assert read_fields(given) == read_fields(dict(reversed(given.items()))) == fields


@pytest.mark.parametrize(
    ("base", "given", "limits"),
    [
        ({"limits": Limits(max_headers=5)}, {}, Limits(max_headers=5, max_body=9)),
        ({"dialect": "rabbitmq"}, {}, Limits(max_headers=99, max_body=9)),
        ({"dialect": "rabbitmq"}, {"dialect": "stompcodec"}, Limits(max_body=9)),
        ({"limits": Limits(max_headers=5)}, {"dialect": "rabbitmq"}, Limits(max_headers=5, max_body=9)),
    ],
)
def test_one_limit_leaves_the_others_of_a_configuration(base, given, limits):
    assert StompBroker(Config(**base), max_body=9, **given).config.limits == limits


def test_each_short_name_is_of_one_key():
    names = [key.name.rpartition(".")[2] for key in KEYS]
    assert {name for name in names if names.count(name) > 1} <= {field.name for field in dataclasses.fields(Config)}


@pytest.mark.parametrize(
    ("source", "line", "key", "says"),
    [
        *(("x = [", 1, "", "not valid TOML"), ("[a]\nx = 1\nx = 2", 3, "", "not valid TOML")),
        ("[listen]\nport 3", 2, "", "not valid TOML"),
        ("[limits]\n\n# x\nmax_bod = 3", 4, "limits.max_bod", "did you mean limits.max_body?"),
        ("port = 3", 1, "port", "did you mean listen.port?"),
        ("[sessions]\nprefetch = 3", 2, "sessions.prefetch", "did you mean queues.prefetch?"),
        ("limits = 3", 1, "limits", "write [limits] on a line of its own"),
        ("[nothing.like.it]\nx = 1", 1, "nothing", "Allowed here: listen, tls, websocket, store"),
        ("[limits.before_login]\nmax_body = 1", 1, "limits.before_login", "Allowed here: memory, max_header_line"),
        ("[sessions]\nttl = { last = 1 }", 2, "sessions.ttl.last", "one of usual, override, least, most, factor"),
        ("[sessions.ttl]\nfactor = 0", 2, "sessions.ttl.factor", "0.01 to 1000"),
        ('[users]\n\nguest = "s3cr3t"', 3, "users.guest", "stompcodec broker --hash-passcode"),
        ('[users.guest]\npasscode = "s3cr3t"', 1, "users.guest", "passcode must be a hash"),
        ("[users.guest]\ngroups = []", 1, "users.guest", 'has "passcode"'),
        (f'[users.guest]\npasscode = "{HASH}"\nadmin = true', 1, "users.guest", 'and "groups" and "vhosts"'),
        (f'[users.guest]\npasscode = "{HASH}"\ngroups = "a"', 1, "users.guest", "must be a list"),
        ('[[rules]]\nwho = "*"\n[[rules]]\nact = "send"', 4, "rules.1.act", "who, action, destination, vhost, allow"),
        ('[[rules]]\nwho = "*"\n[[rules]]\naction = "read"', 4, "rules.1.action", '"send", "subscribe", "manage", "*"'),
        (f'users.ada = "{HASH}"\n[[rules]]\nwho = "bob"', 2, "rules", "unknown user or group 'bob'"),
        (f'users.ada = "{HASH}"\n[[rules]]\nwho = "@staff"', 2, "rules", "unknown user or group '@staff'"),
        ('[[rules]]\nwho = "ada"', 1, "rules", "unknown user or group 'ada': add it to the users"),
        ("[[addresses.settings]]\nauto_create_queues = true", 1, "addresses.settings.0", "match is missing"),
        ('[addresses]\nexchanges = { a = "headers" }', 2, "addresses.exchanges", '"topic", "direct" or "fanout"'),
        ("[listen]\nport = false", 2, "listen.port", "there is no port"),
        ("[listen]\nport = 3\nws_port = 3", 2, "listen.port", "cannot share"),
        ("[listen]\nport = [3, 4, 3]", 2, "listen.port", "cannot share"),
        ("[sessions]\nttl = { least = 3, most = 2 }", 2, "sessions.ttl", "least cannot be above most, 2000 ms"),
        ("[listen]\ntls_port = 0", 2, "listen.tls_port", "TLS needs a certificate: set tls.cert"),
        *((f'[tls]\n{name} = "a"', 2, f"tls.{name}", "set listen.tls_port") for name in ("cert", "ca")),
        ('[tls]\nkey = "a"', 2, "tls.key", "needs its certificate"),
        ('[limits]\nmax_headers = 100_000\nmax_header_line = "1MiB"', 1, "limits", "less than 4 GiB"),
        ("[queues]\nwindow = 2_600_000", 2, "queues.window", "at most 2556528, for which limits.memory, 1073741824"),
        ('[queues]\nwindow = 160_000\n[limits]\nmemory = "64MiB"', 2, "queues.window", "and at most 159783"),
        ("[queues]\nprefetch = 1_000_000", 2, "queues.prefetch", "cannot be above max_unacked"),
    ],
)
def test_errors_say_where_and_what_to_do(source, line, key, says):
    error = error_of(source)
    assert (error.line, error.key) == (line, key)
    assert says in str(error)
    assert "s3cr3t" not in str(error)


def test_users_and_rules():
    config = parse_config(
        f"""
        [users]
        ada = "{HASH}"
        [users.bob]
        passcode = "{HASH}"
        groups = ["staff", "night"]
        vhosts = ["/"]
        [[rules]]
        who = "@night"
        action = "send"
        destination = "/queue/*"
        vhost = "/"
        allow = false
        [[rules]]
        """
    )
    assert config.users == {"ada": User("ada", HASH), "bob": User("bob", HASH, ("staff", "night"), ("/",))}
    assert config.rules == (Rule("@night", "send", "/queue/*", "/", False), Rule())
    assert HASH not in repr(config)


def test_paths_start_from_the_folder_of_the_file(tmp_path, monkeypatch):
    monkeypatch.chdir(os.path.dirname(tmp_path))
    file = tmp_path / "broker.toml"
    text = '[store]\ndata = "data"\n[listen]\ntls_port = 0\n[tls]\ncert = "/etc/a.pem"\nkey = "../b.pem"\n'
    file.write_text(text, encoding="utf-8")
    config = load_config(os.path.relpath(file))
    assert config.data == str(tmp_path / "data")
    assert config.tls_cert == os.path.join(os.path.dirname(os.path.abspath(file)), "/etc/a.pem")
    assert config.tls_key == os.path.join(str(tmp_path), "../b.pem")


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        load_config(tmp_path / "no.toml")
    (tmp_path / "latin.toml").write_bytes(b'[listen]\nhost = "\xe9"')
    with pytest.raises(ConfigError, match="byte 17 is not UTF-8"):
        load_config(tmp_path / "latin.toml")


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_know_guest_and_the_root_host(path):
    config = load_config(path)
    if path.stem == "auth":
        assert check_hash("lovelace", config.users["ada"].passcode)
    auth = Auth(config.users, config.rules)
    guest = auth.login("guest", "guest", "/", 0.0)
    assert guest is not None
    assert config.virtual_hosts is None or "/" in config.virtual_hosts
    assert auth.may(guest, "send", "/queue/spec-1")
    assert auth.may(guest, "subscribe", "/topic/spec-1")


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_dialect_is_the_same_in_python_as_in_a_file(dialect):
    config = Config(dialect=dialect)
    assert config == parse_config(f'[broker]\ndialect = "{dialect}"')
    assert config == Config().replace(dialect=dialect) == Config(dialect="artemis").replace(dialect=dialect)
    assert {name: getattr(config, name) for name in DIALECTS[dialect]} == DIALECTS[dialect]
    other = Config(dialect="rabbitmq", prefetch=7, port=0).replace(dialect="activemq")  # keeps what was chosen
    assert (other.prefetch, other.port, other.exclusive, other.composite) == (7, 0, "consumer", True)
    for make in (lambda: Config(dialect="kafka"), lambda: Config().replace(dialect="kafka")):
        with pytest.raises(ConfigError, match="'kafka' is not a dialect: use stompcodec, rabbitmq"):
            make()


def test_a_configuration_without_its_tls_port_has_no_certificate():
    config = Config(tls_port=0, tls_cert="a.pem", tls_key="a.pem", tls_ca="ca.pem")
    assert config.replace(tls_port=None) == Config()
    with pytest.raises(ConfigError, match="TLS needs a port"):
        config.replace(tls_port=None, tls_cert="b.pem")


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_value_that_is_given_wins_over_the_dialect(dialect):
    plain = Config()
    for name in DIALECTS[dialect]:
        given = {"dialect": dialect, name: getattr(plain, name)}
        assert getattr(Config(**given), name) == getattr(plain, name)
        assert getattr(plain.replace(**given), name) == getattr(plain, name)
