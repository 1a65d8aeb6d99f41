"""Every argument of every public call is checked at the call: the error names the argument."""

import asyncio
import importlib
import inspect
import re
import ssl
from collections import abc
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import pytest

import stompcodec
import stompcodec.client as stomp
from stompcodec import Connection, Frame, Limits, Parser
from stompcodec.bridge import Bridge, End, Mapping, Request, Rule, Way
from stompcodec.broker import Config
from stompcodec.capture import Capture, CaptureWriter
from stompcodec.client.headers import pairs_of
from stompcodec.client.middleware import FIXED, EditableHeaders
from stompcodec.client.recorder import Dedupe, Recorder
from stompcodec.errors import ConfigError
from stompcodec.testing import FaultProxy, FrameFaults, Record, ShiftedClock, StompBroker
from stompcodec.transport import aio, sync, tls, websocket
from stompcodec.uri import parse_uri

PACKAGE = Path(stompcodec.__file__).parent
#: Modules with `__all__` that are behind another one, and the command line.
BEHIND = {"_codec_py", "codec", "cli", "spark.base", "client.aio.waiting", "client.sync.waiting"}
#: Modules with public names and without `__all__`.
MORE = {"client.middleware.otel": ["OpenTelemetry"], "client.middleware.prometheus": ["Prometheus"]}
#: Classes that programs do not make; types and bases; and those whose methods are for the shell of a core.
MADE = {
    *("Address", "AsyncBodyReader", "AsyncMessage", "AsyncReceipt", "AsyncSubscription", "AsyncTransaction", "Health"),
    *("ConnectEvent", "EditableHeaders", "Listener", "Message", "Piece", "ProcessEvent", "Receipt", "ReceiveEvent"),
    *("Row", "Segment", "SendEvent", "SendManyEvent", "SettleEvent", "Subscription", "SyncWire", "Transaction"),
    *("WebSocketConnection", "WebSocketLayer", "Wire", "stompman Connection"),
}
LEFT_OUT = {
    *("AsyncConnectOptions", "AsyncMiddleware", "BodyReader", "Borrower", "ConnectOptions", "Cursor", "Fault"),
    *("Installed", "Job", "Layer", "Middleware", "Owner", "Place", "RecordedFrame", "Role", "Tally"),
}
CORES = {"Broker"}
#: Methods that only other parts of the package, or asyncio, call.
INTERNAL = {
    *("Capture.problem", "End.reopen", "FrameFaults.due", "Message.answer", "Message.confirm_by"),
    *("Message.count_calls", "Subscription.begin", "Subscription.check", "Subscription.covered"),
    *("Subscription.is_last_of", "Subscription.reopen", "Subscription.settle", "Subscription.subscribe_headers"),
    *("Subscription.unsubscribe_headers", "SyncWire.settle", "Transaction.cut", "Transaction.end", "Transaction.hold"),
    "Transaction.settle",
}
#: What is not checked.
FREE = {
    "the value is returned as it is": {".get.default", ".value.default"},
    "any value is right": {".hook", ".label"},
    "called by the client, for each event of a wire": {"SyncWire.handle.", "SyncWire.lend.", "SyncWire.send_now."},
    "called by a transport, for each read and write": {"Layer.receive.", "Layer.send."},
    "stored, for each write: a check would be seen in the count of instructions": {".take_output.", ".written."},
    "called by asyncio": {"Wire.buffer_updated.", "Wire.connection_", ".get_buffer."},
    "called by the client": {".event", ".subscribed."},
}
#: Other words than the name of an argument.
WORDS = {
    **{"data": "bytes-like", "buffer": "bytes-like", "frame": "a Frame", "frames": "not iterable"},
    **{"max_body": "maxBody", "headers": "of header '"},
}
#: A right value for arguments that a call must have.
GOOD = {
    **{"body": b"hello", "command": "SEND", "count": 1, "data": b"", "destination": "/queue/a", "headers": {}},
    **{"frame": Frame("SEND", {"destination": "/queue/a"}), "frames": (), "message": "refused", "messages": ()},
    **{"clients": (), "role": "client", "rules": [Rule("/queue/a", "/queue/b")], "seconds": 1.0, "time": 0, "now": 1},
    **{"timeout": 0.1, "url": "stomp://127.0.0.1:1", "change": str, "name": "a", "source": "/queue/a"},
    **{"target": "/queue/b", "mapping": Mapping.parse(["/queue/a"]), "request": Request(Mapping.parse(["/queue/a"]))},
    **{"at": 1.0, "config": Config(), "function": str, "library": "stompman", "path": "no/such", "upstream": ("a", 1)},
    **{"options": stomp.Options(), "most": 1, "chain": "frames", "size": 1, "offset": 1, "text": "/queue/a"},
    **{"texts": ["/queue/a"], "segment": None, "name_of": "a", "progress": None, "keep": 1, "version": 1},
    **{"address": parse_uri("stomp://127.0.0.1:1")[0], "archive": "a", "certfile": "no/such", "chunks": []},
    **{"context": ssl.create_default_context(), "destinations": 1, "found": 0, "host": "127.0.0.1", "n": 0},
    **{"octets": 1, "out": "b", "pieces": "whole", "port": 0, "quirks": True, "rows": None, "speed": 1.0},
    **{"start": str, "value": "a", "columns": (), "hook": None, "label": None, "random": float, "selector": None},
}


class Odd:
    """What no argument may be."""


async def waits(*_):
    """Nobody awaits it."""


def gives(*_):
    """Nobody iterates over it."""
    yield


#: More wrong values.
ROWS = [("Client.subscribe", "handler", waits), ("Options", "on_frame", partial(waits)), ("Options", "on_state", gives)]
ROWS += [*(("Options", "ssl", wrong) for wrong in (True, "ca.pem"))]
ROWS += [(name, "users", {"ann": "pw"}) for name in ("StompBroker", "Config")]
for _of in ("Client", "AsyncClient"):
    ROWS += [
        *((f"{_of}.subscribe", "headers", wrong) for wrong in ({"x": 5}, [("x", 5)], {"id": "a"}, {"ack": "client"})),
        *((f"{_of}.{name}", "destination", "") for name in ("send", "request", "subscribe", "receive")),
        (f"{_of}.send_for_receipt", "destination", ""),
        *((f"{_of}.subscribe", name, "") for name in ("id", "durable", "dead_letter")),
        *((f"{_of}.subscribe", name, wrong) for name in ("on_error", "key") for wrong in (waits, gives)),
        (f"{_of}.subscribe", "handler", gives),
        *((f"{_of}.request", "headers", {name: "a"}) for name in ("reply-to", "correlation-id")),
        *((f"{_of}.send", "headers", wrong) for wrong in ({"receipt": "mine"}, {"persistent": True})),
        *((f"{_of}.send", name, 1) for name in ("receipt", "resend", "persistent")),  # no number is a flag
        (f"{_of}.on_message", "destination", None),
    ]
#: Calls that show what is wrong about a value of a class that has no checks.
USED = {
    "Limits": lambda **given: Parser(limits=Limits(**given)),
    "Request": lambda **given: Bridge(End("stomp://a"), End("stomp://b"), Request(**given)),
    "Rule": lambda **given: Mapping([Rule(**given)]),
    "Way": lambda **given: Bridge(End("stomp://a"), End("stomp://b"), Request(GOOD["mapping"]), Way(**given)),
}


#: Public calls that no module lists.
MORE_CALLS = {"Dedupe": Dedupe, "Recorder": Recorder, "Recorder.subscribe": Recorder.subscribe}


def arguments(call):
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    parameters = [each for each in inspect.signature(call).parameters.values() if each.kind not in kinds]
    return {each.name: each.default is each.empty for each in parameters if each.name != "self"}


def public():
    for path in sorted(PACKAGE.rglob("*.py")):
        door = ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix("__init__").rstrip(".")
        if door in BEHIND or not (door in MORE or re.search(r"^__all__ = ", path.read_text("utf-8"), re.MULTILINE)):
            continue
        try:
            module = importlib.import_module(f"stompcodec.{door}".rstrip("."))
            yield from [(door, name, getattr(module, name)) for name in MORE.get(door) or module.__all__]
        except ImportError:  # an extra that is not installed
            continue


def calls():
    found = {name: ("", each) for name, each in MORE_CALLS.items()}
    for door, name, each in public():
        if name in LEFT_OUT or not callable(each) or (isinstance(each, type) and issubclass(each, BaseException)):
            continue
        label = name if found.get(name, (door, each))[1] is each else f"{door.rpartition('.')[2]} {name}"
        if label not in MADE:
            found[label] = door, each
        is_class = inspect.isclass(each) and name not in CORES and not door.startswith("compat.")  # their methods
        inherited = {*dir(tuple)} | ({*dir(dict)} if is_class and issubclass(each, abc.Mapping) else set())
        for method in sorted({*dir(each)} - inherited) if is_class else ():
            is_internal = method[0] == "_" or f"{name.removeprefix('Async')}.{method}" in INTERNAL
            if not is_internal and inspect.isroutine(getattr(each, method)):
                found[f"{label}.{method}"] = door, getattr(each, method)
    return found


def cases():
    free = [each for names in FREE.values() for each in names]
    for name, (_, call) in calls().items():
        for argument in arguments(call):
            if not any(each in f"{name}.{argument}." for each in free):
                yield name, argument, Odd()
    yield from ROWS


class Shut:
    """An owner that keeps its wire."""

    wire = None

    def opened(self, wire):
        Shut.wire = wire

    def received(self, data):
        pass

    writable = lost = received


async def wires(stack):
    listener = await aio.listen("127.0.0.1", 0, Shut)
    stack.callback(listener.close)
    wire = sync.connect(parse_uri(f"stomp://127.0.0.1:{listener.port}")[0], Shut())
    stack.callback(wire.abort)
    while not isinstance(Shut.wire, aio.Wire):
        await asyncio.sleep(0.01)
    waker, layer = stack.enter_context(sync.Waker()), tls.TlsLayer(GOOD["context"], server_hostname="a")
    return [listener, wire, Shut.wire, waker, layer, websocket.client_layer("a", 80)]


async def objects(url, folder, stack):
    found = {}
    for prefix in ("Async", ""):
        client = (stomp.connect_async if prefix else stomp.connect)(url)
        client = await stack.enter_async_context(client) if prefix else stack.enter_context(client)
        client.send(f"/queue/of{prefix}", b"hello")
        subscription = client.subscribe(f"/queue/of{prefix}", ack="client-individual")
        message = await subscription.get(5) if prefix else subscription.get(5)
        found[f"{prefix}Client"], found[f"{prefix}Message"] = client, message
        found[f"{prefix}Subscription"], found[f"{prefix}Transaction"] = subscription, client.transaction()
    capture = stack.enter_context(CaptureWriter(folder / "capture"))
    made = [capture, Capture(folder / "capture"), Recorder(client, capture), FaultProxy(("127.0.0.1", 1)), Record(1)]
    made += [FrameFaults(), GOOD["mapping"], Rule("/queue/a", "/queue/b"), ShiftedClock(), StompBroker(), Parser("1.2")]
    made += [GOOD["frame"], End("stomp://a"), found["AsyncMessage"].open(), Config(), Connection("client")]
    made += [stomp.Backoff(), GOOD["frame"].headers, EditableHeaders("SEND", [], FIXED["SEND"]), *await wires(stack)]
    return found | {type(each).__name__: each for each in made}


def right_for(name, door, found):
    owner = name.partition(".")[0]
    right = {**GOOD, "capture": found["CaptureWriter"], "fault": found["FrameFaults"].lose("SEND")}
    right |= {"owner": Shut(), "make_owner": Shut}
    if door.startswith("spark"):
        from pyspark.sql import DataFrame, SparkSession

        right |= {"frame": "frame", "spark": Mock(spec=SparkSession), "client": found["Client"], "options": {}}
        right |= dict.fromkeys(("frames", "rows", "exploded"), Mock(spec=DataFrame))
    if owner == "Bridge":
        right |= {"source": End("stomp://a"), "target": End("stomp://b")}
    if owner.endswith("Transaction"):
        right["message"] = found[owner.replace("Transaction", "Message")]
    return right


async def fault_of(call, good, name, wrong):
    """Return what is wrong about the error for an argument; None if it names it."""
    given, parameters = {**good, name: wrong}, inspect.signature(call).parameters.values()
    alone = [given.pop(each.name) for each in parameters if each.kind is each.POSITIONAL_ONLY and each.name in given]
    try:
        result = call(*alone, **given)
        if inspect.isawaitable(result):
            await asyncio.wait_for(result, 1)
    except (TypeError, ValueError, ConfigError) as error:
        said = str(error).replace(repr(wrong), "")
        return None if name in said.lower() or WORDS.get(name, name) in said else repr(error)
    except Exception as error:
        return repr(error)
    return f"it is taken: {result!r:.60}"


async def faults_of(url, folder):
    async with AsyncExitStack() as stack:
        found, called, faults = await objects(url, folder, stack), calls(), {}
        for name, argument, wrong in cases():
            owner, _, method = name.partition(".")
            door, known = called.get(name, ("", None))
            call = getattr(found[owner], method) if method else USED.get(name, known)
            right, must = right_for(name, door, found), arguments(call if method else known).items()
            good = {each: right[each] for each, is_needed in must if each != argument and (is_needed or each == "body")}
            fault = await fault_of(call, good, argument, wrong)
            if fault is not None:
                faults[f"{name}({argument}={wrong!r:.20})"] = fault
    return faults


def test_every_argument_is_checked(stomp_broker, tmp_path):
    faults = asyncio.run(faults_of(stomp_broker.url, tmp_path))
    assert not faults, "\n".join(f"{call}: {fault}" for call, fault in faults.items())


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("passcode", b"secret", "passcode is bytes: it must be str, a function or None"),
        ("headers", "id", "headers is str: it must be a mapping of str to str; ack() takes no id, "),
        ("headers", {"x": 5}, "headers holds 'x' with a value of int: it must be a mapping of str to str"),
        ("heart_beat", (1,), "heart_beat is (1,): it must be (a whole number, a whole number)"),
        ("heart_beat", (1, True), "heart_beat is (1, True): it must be (a whole number, a whole number)"),
        ("login_attempts", True, "login_attempts is True: it must be a whole number or None"),
        ("close_timeout", True, "close_timeout is True: it must be a number"),
        ("close_timeout", "5", "close_timeout is '5': it must be a number"),
        ("versions", "1.2", "versions is '1.2': it must be a list of str"),
        ("resend", 1, "resend is 1: it must be True or False"),
        ("ssl", True, "ssl is True: it must be SSLContext or None"),
        ("outbox_full", 5, "outbox_full is 5: it must be 'block' or 'raise'"),
        ("middleware", [stomp.Middleware], "it must be a list of Middleware or AsyncMiddleware"),
    ],
)
def test_an_error_says_what_an_argument_must_be(option, value, said):
    with pytest.raises(TypeError, match=re.escape(said)):
        stomp.Options(**{option: value})


CONNECTS = (stomp.connect, stomp.connect_async)
OPTIONS = {
    **{"heartbeats": "heart_beat", "username": "login", "user": "login", "password": "passcode", "pascode": "passcode"},
    **{"timeout": "connect_timeout", "use_ssl": "ssl", "virtual_host": "vhost", "clientid": "client_id", "zzz": None},
    **dict.fromkeys(("host", "port", "hosts", "ws_path"), "url='stomp://host:61613'"),
    **{"reconnect_sleep_initial": "reconnect", "heart_beat_receive_scale": "heart_beat", "set_ssl": "ssl"},
}


@pytest.mark.parametrize(
    ("call", "given", "meant"),
    [
        *((connect, name, meant) for connect in CONNECTS for name, meant in OPTIONS.items()),
        *((call, "prefech", "prefetch") for call in (Config, Config().replace, StompBroker)),
        *((stomp.Backoff, "frist", "first"), (stomp.Client.close, "timeuot", "timeout")),
        *((stomp.Client.subscribe, "prefetch_size", "prefetch"), (stomp.Client.subscribe, "auto_ack", "ack")),
    ],
)
def test_an_unknown_argument_is_named_with_what_it_may_stand_for(call, given, meant):
    alone = ["stomp://127.0.0.1:1"] if call in CONNECTS and "url" not in str(meant) else []
    hint = f": did you mean {meant}?" if meant else ""
    with pytest.raises(TypeError, match=f"{re.escape(f'unknown argument {given!r}{hint}')}$"):
        call(*alone, **{given: 1})


def test_what_stomp_py_takes_in_another_way_is_told():
    for connect in CONNECTS:
        with pytest.raises(TypeError, match="takes only url without a name: write the others as NAME=VALUE"):
            connect("127.0.0.1", 61613)
        for name, said in (("wait", "always waits"), ("auto_decode", r"message\.text\(\)")):
            with pytest.raises(TypeError, match=f"unknown argument '{name}': .*{said}"):
                connect("stomp://127.0.0.1:1", **{name: True})
    with pytest.raises(TypeError, match=r"ack\(\) takes no id, .* content_type="):
        pairs_of("SEND", "application/json")


def test_what_else_is_taken():
    with pytest.raises(ValueError, match="outbox_full is 'never': it must be 'block' or 'raise'"):
        stomp.Options(outbox_full="never")  # the type is right
    assert stomp.Options(heart_beat=[0, 0], close_timeout=1).heart_beat == [0, 0]
    assert stomp.Options(on_frame=Mock(func=waits), login=waits).login is waits  # its `func` is its own affair
    assert inspect.iscoroutinefunction(stomp.AsyncClient.request)
