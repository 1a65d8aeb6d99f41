"""What has to be looked at from outside: each test runs a program in a process of its own."""

import importlib.util
import os
import pickle
import sys
import warnings
from pathlib import Path

import pytest
from installed import environment, program

import stompcodec
import stompcodec.codec

SCRIPTS = Path(__file__).parent.parent / "isolated"


def run(*args, pure=None, **named):
    chosen = environment()
    chosen.pop("STOMPCODEC_PURE", None)
    chosen |= {} if pure is None else {"STOMPCODEC_PURE": pure}
    # -c puts the folder it runs in before PYTHONPATH: one without a stompcodec that was built for another interpreter.
    return program(*args, **{"cwd": SCRIPTS, "env": chosen, **named})


@pytest.fixture
def built():
    pytest.importorskip("stompcodec._codec_c")


def needs_c(test):
    return pytest.mark.c_only(pytest.mark.usefixtures("built")(test))


@pytest.fixture(params=["python", pytest.param("c", marks=pytest.mark.c_only)])
def name(request):
    if request.param == "c":
        request.getfixturevalue("built")
    return request.param


NAME = "import stompcodec; print(stompcodec.BACKEND)"
HIDDEN = f"import sys; sys.modules['stompcodec._codec_c'] = None; {NAME}"


@pytest.mark.parametrize(
    ("code", "pure", "told"),
    [
        (NAME, "1", "python\n"),
        *(pytest.param(NAME, pure, "c\n", marks=pytest.mark.c_only) for pure in ("0", "", None)),
        *((HIDDEN, pure, "python\n") for pure in ("1", None)),  # nobody who did not ask for C notices a failed build
    ],
)
def test_the_variable_decides(code, pure, told):
    if told == "c\n":
        pytest.importorskip("stompcodec._codec_c")
    assert run("-c", code, pure=pure) == told


@pytest.mark.parametrize(("code", "pure"), [(HIDDEN, "0"), (NAME, "2"), (NAME, "yes"), (NAME, " ")])
def test_the_variable_is_refused(code, pure):
    run("-c", f"try:\n exec({code!r})\nexcept ImportError: pass\nelse: raise SystemExit(1)", pure=pure)


@pytest.mark.parametrize(("fault", "warned"), [(ImportError("no"), 1), (ModuleNotFoundError("no"), 0)])
def test_a_backend_that_was_built_and_cannot_be_loaded_is_told(fault, warned, monkeypatch):
    """One that was not built is nothing new."""

    def backend(name):
        raise fault

    monkeypatch.setattr("stompcodec.codec.backend", backend)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        assert stompcodec.codec._pick("") == "python"
    assert [each.category for each in told] == [RuntimeWarning] * warned
    with pytest.raises(type(fault)):
        stompcodec.codec._pick("0")


SUBINTERPRETER = """
import warnings
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters

CODE = '''
import warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import stompcodec
    import stompcodec.codec
frames = list(stompcodec.Parser("1.2").feed(stompcodec.serialize(stompcodec.Frame("SEND", {}, b"hi"))))
told = [w for w in caught if "cannot be loaded" in str(w.message) and w.category is RuntimeWarning]
print(stompcodec.BACKEND, len(told), frames[0].body.decode(), flush=True)
'''
def there():
    interpreter = interpreters.create()
    result = interpreters.run_string(interpreter, CODE)
    assert result is None, result
"""


@needs_c
def test_another_interpreter_of_the_process_says_so():
    """The C backend is loaded once per process. Who gets the Python one instead is told, once."""
    if not any(map(importlib.util.find_spec, ("_interpreters", "_xxsubinterpreters"))):
        pytest.skip("this Python has no module that makes other interpreters")
    told = run("-c", f"{SUBINTERPRETER}exec(CODE); there(); there()").splitlines()
    assert told == ["c 0 hi", "python 1 hi", "python 1 hi"]
    # Whichever comes first; but one with a GIL of its own, as Python 3.12 and newer make them, never gets it.
    told = run("-c", f"{SUBINTERPRETER}there(); exec(CODE)").splitlines()
    assert sorted(told) == ["c 0 hi", "python 1 hi"]


def test_import_is_light(name):
    assert run(SCRIPTS / "imports.py", pure={"python": "1", "c": "0"}[name]).split() == [name]


@needs_c
@pytest.mark.no_asan
def test_the_codec_needs_none_of_what_is_slow_to_import():
    """Each of these costs more than all of the codec, and -S leaves out what site would have imported before."""
    slow = {"typing", "enum", "re", "functools", "contextlib", "importlib", "dataclasses", "warnings"}
    loaded = run("-S", "-c", "import stompcodec, sys; print(*sys.modules)", pure="0").split()
    assert "stompcodec._codec_c" in loaded
    assert slow & set(loaded) == set()
    assert "stompcodec.connection" not in loaded


@pytest.mark.parametrize("pure", ["1", pytest.param("0", marks=pytest.mark.c_only)])
def test_pickles_travel_between_backends(codec, pure):
    if pure == "0":
        pytest.importorskip("stompcodec._codec_c")

    def fields(frames):
        return [(frame.command, frame.headers.pairs(), frame.body, hash(frame)) for frame in frames]

    pairs = [("destination", "/queue/a"), ("é", "東:\n"), ("destination", "\udcff")]
    frames = [codec.Frame("SEND", pairs, b"\0\xff" * 10), *codec.Parser("1.2").feed(b"ACK\nid:a\\cb\n\n\0")]
    code = (
        "import pickle, sys; frames = pickle.load(sys.stdin.buffer);"
        "import stompcodec; assert all(type(frame) is stompcodec.Frame for frame in frames);"
        "sys.stdout.write(ascii([(f.command, f.headers.pairs(), f.body) for f in frames]));"
        "sys.stdout.write('|' + pickle.dumps(frames).hex())"
    )
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        shown, again = run("-c", code, pure=pure, input=pickle.dumps(frames, protocol)).split("|")
        assert shown == ascii([each[:3] for each in fields(frames)])
        back = pickle.loads(bytes.fromhex(again))
        assert fields(back) == fields(frames)
        assert back == frames


@pytest.mark.long
@pytest.mark.no_asan
@pytest.mark.skipif(sys.platform == "win32", reason="needs the module resource")
def test_a_million_headers(name):
    """With limits that allow it, memory follows the octets that came, also what C takes from malloc."""
    assert float(run(SCRIPTS / "memory.py", name)) < 12


@pytest.mark.slow
@pytest.mark.no_asan
def test_nothing_leaks(name):
    assert run(SCRIPTS / "leaks.py", name, {"python": 1000, "c": 10_000}[name]) == "nothing leaks\n"


def test_misuse_by_threads_does_not_crash(name):
    assert run(SCRIPTS / "threads.py", name) == "no crash\n"


def test_the_interpreter_ends_quietly(name):
    code = (
        f"from stompcodec.codec import backend; codec = backend({name!r})\n"
        "parser = codec.Parser('1.2'); frames = list(parser.feed(b'SEND\\na:1\\n\\nx\\0'))\n"
        "view = parser.get_buffer()\n"
        "columns = codec.parse_columns(b'ACK\\n\\n\\0'); capsules = columns.__arrow_c_array__()\n"
        "headers = frames[0].headers; names = iter(headers); cycle = [parser, frames]; cycle.append(cycle)\n"
        "import sys; sys.modules['keep'] = cycle; print('end')"
    )
    assert run("-X", "dev", "-W", "error", "-c", code) == "end\n"


@needs_c
@pytest.mark.no_asan
@pytest.mark.skipif(sys.platform != "linux", reason="needs a limit of memory that is kept to")
def test_no_memory_for_a_body():
    said = run(SCRIPTS / "no_memory.py", pure="0")
    if said == "no limit of memory\n":
        pytest.skip("the system does not limit memory: is it emulated?")
    assert said == 2 * "no memory, dead, dead, 0 kept\n"


#: Python's debug hooks overwrite what is freed, so that reading it gives wrong answers. The sanitizers want malloc.
DEBUG = {} if os.environ.get("PYTHONMALLOC") == "malloc" else {"PYTHONMALLOC": "debug"}


@needs_c
@pytest.mark.parametrize("what", ["parser", "reading", "making", "writing", "ends", "columns"])
def test_every_allocation_fails_once(monkeypatch, what):
    """Whatever fails, in any state of a parser, and wherever frames, headers and columns are read, made, written and
    exported: there is a MemoryError and they can be used again, or a parser is dead, or all goes on correctly."""
    if what == "columns":
        pytest.importorskip("pyarrow")
    if importlib.util.find_spec("_testcapi") is None:
        pytest.skip("this interpreter has no _testcapi, which makes memory fail")
    if hasattr(sys, "gettotalrefcount"):
        pytest.skip("a debug interpreter ends itself: its eval loop and its str assert what fails without memory")
    for name, value in DEBUG.items():
        monkeypatch.setenv(name, value)
    told = run(SCRIPTS / "failing_memory.py", *(["parser"] if what == "parser" else ["values", what]), pure="0")
    if what == "parser":
        assert len(told.splitlines()) >= 20
        assert any("dead 0 times" not in line for line in told.splitlines())
