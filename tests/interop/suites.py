"""Other libraries' own suites: what each needs, how it is run in an environment of its own, and what came out."""

import os
import shutil
import subprocess
import venv
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import NamedTuple

TOP = Path(__file__).resolve().parents[2]
VENVS = TOP / "build" / "compat"
_TEST, _SUITE = 60, 900  # Seconds for one test, and for one suite.
_RAN = (0, 1)  # Exit statuses of a pytest that ran every test that it was told to.
_TAIL = 15  # Lines of a log that an error shows.


class DidNotRun(Exception):
    """A suite that crashed, hung or could not be collected: it has no outcome to compare."""

    def __init__(self, why: str, log: Path) -> None:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[-_TAIL:] if log.exists() else []
        super().__init__(
            "\n".join([f"did not run to its end: {why}; its log is {log}", *(f"  | {line}" for line in lines)])
        )
        self.log = log


class Place(NamedTuple):
    """Where a broker is, and who may log in."""

    host: str
    port: int
    ws_port: int = 0
    login: str = "guest"
    passcode: str = "guest"


class Suite(NamedTuple):
    module: str  # of `stompcodec.compat`
    requirements: tuple[str, ...]  # the library, and what its tests need
    files: dict[str, str]  # in the checkout -> where it is run
    arguments: tuple[str, ...]  # for pytest: what to run
    port: int | None = None  # where the suite looks for a broker; None if it needs none, 0 if any port can be named
    hosts: tuple[str, ...] = ()  # environment variables that tell it more: these and _HOST or _PORT
    prelude: str = ""  # a conftest.py, if the suite is of another version than the library
    checkout: str = ""  # the folder of the checkout, if it is not that of the library
    clone: str = ""  # where the checkout comes from
    dialects: tuple[str, ...] = ("default",)  # of our broker in which it is run
    environment: tuple[tuple[str, str], ...] = ()  # its variables; {host}, {port}, {login}, {passcode} are the broker's
    besides: tuple[tuple[str, str], ...] = ()  # text of a failure -> its outcome: what it asks for besides STOMP
    edits: tuple[tuple[str, str, str], ...] = ()  # file, text in it, its replacement: some name their broker there


#: What the tests of stompman need.
_STOMPMAN = (
    *("websockets", "anyio", "faker", "hypothesis", "polyfactory", "pytest", "pytest-timeout"),
    "uvloop; platform_system != 'Windows'",
)
SUITES = {
    "stomp.py": Suite(
        "stomppy",
        ("stomp.py>=9,<10", "pytest", "pytest-timeout", "pytest-mock", "pytest-ordering"),
        {"tests": "tests", "pytest.ini": "pytest.ini"},
        # The others want certificates, containers, or hosts of the world.
        ("tests", "--ignore-glob=*ssl*", "--ignore=tests/test_ipv6.py"),
        61613,
        ("STD", "RABBITMQ", "STOMPSERVER", "ARTEMIS", "RABBITMQ_WS"),
        # The newest suite that is public is of 8.2; in 9 this module has another name.
        "import stomp\nimport stomp.log\nstomp.logging = stomp.log\n",
    ),
    "stompman": Suite(
        "stompman",
        ("stompman>=3,<4", *_STOMPMAN),
        {"packages/stompman/test_stompman": "test_stompman", "conftest.py": "conftest.py"},
        ("test_stompman",),
        9000,
    ),
    "faststream-stomp": Suite(
        "stompman",
        (
            *("faststream-stomp>=2,<3", "stompman>=3,<4", "faststream[otel,prometheus]", "opentelemetry-sdk"),
            *("asgi-lifespan", *_STOMPMAN),
        ),
        {
            "packages/faststream-stomp/test_faststream_stomp": "test_faststream_stomp",
            "packages/stompman/test_stompman": "test_stompman",  # which has what the tests share
            "conftest.py": "conftest.py",
        },
        ("test_faststream_stomp",),
        0,
        checkout="stompman",
        clone="https://github.com/community-of-python/stompman",
        dialects=("rabbitmq", "activemq"),
        edits=(
            ("conftest.py", "port=9000", "port={port}"),
            ("conftest.py", 'login="admin"', 'login="{login}"'),
            ("conftest.py", 'passcode=":=123"', 'passcode="{passcode}"'),
        ),
    ),
    "django-stomp": Suite(
        "stomppy",
        (
            *("django-stomp>=6,<7", "stomp.py>=8.2,<9", "django>=4.2,<6", "parsel", "requests", "trio"),
            *("pytest", "pytest-timeout", "pytest-mock", "pytest-env", "pytest-django", "pytest-trio"),
        ),
        {"tests": "tests", "pytest.ini": "pytest.ini"},
        ("tests",),
        0,
        clone="https://github.com/juntossomosmais/django-stomp",
        dialects=("rabbitmq", "activemq"),
        environment=(
            *((f"STOMP_SERVER_{word}HOST", "{host}") for word in ("", "STANDBY_")),
            *((f"STOMP_SERVER_{word}PORT", "{port}") for word in ("", "STANDBY_")),
            ("STOMP_SERVER_USER", "{login}"),
            ("STOMP_SERVER_PASSWORD", "{passcode}"),
        ),
        besides=tuple(
            (f"port={port}): Max retries exceeded", "no management page at http://localhost:15672 or :8161")
            for port in (15672, 8161)
        ),
    ),
}


def python_of(name: str, suite: Suite) -> str:
    """The interpreter of the environment of a suite, which is made where it is not there."""
    folder = VENVS / name
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    if not (folder / "ready").exists():
        print(f"installing {name} into {folder.relative_to(TOP)}", flush=True)
        shutil.rmtree(folder, ignore_errors=True)
        venv.create(folder, with_pip=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, *suite.requirements], check=True)
        (folder / "ready").touch()
    return str(python)


def checkout_of(name: str, folder: Path) -> Path | str:
    """The checkout that a suite comes from, or the line that says how to get it."""
    suite = SUITES[name]
    checkout = folder / (suite.checkout or name)
    if checkout.is_dir():
        return checkout
    how = f": git clone {suite.clone} {checkout}" if suite.clone else ""
    return f"the suite of {name} is not in {checkout}{how}"


def run_suite(python, suite, checkout, mode, only, place, folder, log):
    """Run a suite once, in a new folder, and return test -> "passed", "failed", "error", "skipped" or one of `besides`.

    `mode` is `STOMPCODEC_COMPAT` of `stompcodec.compat.suite`; "" leaves the library as it is. `only` names tests as
    pytest does; all if it is empty.
    """
    folder.mkdir(parents=True)
    words = place._asdict() if place else {}
    for source, target in suite.files.items():
        copy = shutil.copytree if (checkout / source).is_dir() else shutil.copy
        copy(checkout / source, folder / target)
    if suite.prelude:
        (folder / "conftest.py").write_text(suite.prelude, encoding="utf-8")
    for name, old, new in suite.edits:
        text = (folder / name).read_text(encoding="utf-8")
        (folder / name).write_text(text.replace(old, new.format(**words)), encoding="utf-8")
    report = folder.parent / f"{folder.name}.xml"
    command = [python, "-m", "pytest", "-p", "stompcodec.compat.suite", "-p", "no:cacheprovider"]
    command += [f"--timeout={_TEST}", f"--junitxml={report}", "-o", "junit_family=xunit1", *(only or suite.arguments)]
    told = {name: value.format(**words) for name, value in suite.environment}
    if place is not None:
        for name in suite.hosts:
            port = place.ws_port if name.endswith("_WS") else place.port
            told |= {f"{name}_HOST": place.host, f"{name}_PORT": str(port)}
    environment = {**os.environ, **told, "PYTHONPATH": str(TOP), "STOMPCODEC_COMPAT": mode}
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        try:
            done = subprocess.run(
                command, cwd=folder, env=environment, stdout=output, stderr=output, timeout=_SUITE, check=False
            )
        except subprocess.TimeoutExpired:
            raise DidNotRun(f"it was ended after {_SUITE:g} s", log) from None
    if done.returncode not in _RAN:
        why = f"signal {-done.returncode}" if done.returncode < 0 else f"pytest's exit status was {done.returncode}"
        raise DidNotRun(why, log)
    try:
        found = read(report, suite.besides)
    except (OSError, ElementTree.ParseError) as error:
        raise DidNotRun(f"its report cannot be read: {error}", log) from error
    if internal := [name for name in found if name.startswith("pytest::") or name == "pytest"]:
        raise DidNotRun(f"pytest itself failed: {', '.join(internal)}", log)
    if not found:
        raise DidNotRun("it has no tests", log)
    return found


def read(report: Path, besides: tuple[tuple[str, str], ...] = ()) -> dict[str, str]:
    """Return the outcomes in a report of pytest, by the names that it takes. What cannot be collected counts as one
    test. `besides` is that of `Suite`."""
    found = {}
    for case in ElementTree.parse(report).iter("testcase"):
        words = [child.tag for child in case if child.tag in ("failure", "error", "skipped")]
        file = case.get("file") or ""
        module = file.removesuffix(".py").replace("/", ".")
        classes = (case.get("classname") or "").removeprefix(module).strip(".").replace(".", "::")
        name = "::".join(filter(None, (file, classes, case.get("name"))))
        found[name] = {"failure": "failed"}.get(words[0], words[0]) if words else "passed"
        if found[name] == "failed":
            text = "".join(f"{child.get('message')}\n{child.text}" for child in case if child.tag == "failure")
            found[name] = next((word for part, word in besides if part in text), "failed")
    return found
