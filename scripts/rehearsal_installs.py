"""The installations of a rehearsal: from a package index on this machine, into an empty environment for each extra."""

from __future__ import annotations

import contextlib
import functools
import html
import http.server
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import rehearsal_builds
import requirements
from rehearsal_builds import call

#: Extras for people who work on the project itself.
OURS = ("bench", "cross", "dev", "notebooks", "release", "site", "slow")
#: What has to work once an extra is installed; the command is run by the interpreter of its environment.
TRIES = {
    "": "import stompcodec.client, stompcodec.broker, stompcodec.testing",
    "ws": "import websockets, stompcodec.client",
    "broker": "import lark, defusedxml, stompcodec.broker.selectors",
    "uvloop": "import uvloop",
    "cli": "import stompcodec.cli as cli, sys; sys.argv = ['stompcodec', '--help']; cli.main()",
    "metrics": "import prometheus_client, stompcodec.client",
    "otel": "import opentelemetry.trace, stompcodec.client",
    "spark": "from stompcodec.spark import jobs, session",
    "connect": "import pyspark.sql.connect.session; from stompcodec.spark import jobs",
    "all": "from stompcodec.spark import jobs; import stompcodec.cli, websockets, prometheus_client",
}
_PROBE = "import stompcodec, json; print(json.dumps([stompcodec.__version__, stompcodec.BACKEND, stompcodec.__file__]))"


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Keep the progress readable."""


@contextlib.contextmanager
def served(files: Path, index: Path) -> Iterator[str]:
    """Serve the files as a package index (PEP 503) on loopback, and yield its URL."""
    folder = index / "simple" / "stompcodec"
    folder.mkdir(parents=True)
    links = []
    for path in sorted(files.iterdir()):
        shutil.copy(path, folder)
        name = html.escape(path.name)
        links.append(f'<a href="{name}#sha256={rehearsal_builds.digest(path)}">{name}</a>')
    (folder / "index.html").write_text("<!doctype html>\n" + "<br>\n".join(links), encoding="utf-8")
    handler = functools.partial(_Quiet, directory=str(index))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/simple/"
        finally:
            server.shutdown()
            thread.join()


class Installs:
    """Environments with the release in them.

    Args:
        source: the sdist, unpacked: its tests and pages.
        work: the folder for everything.
        index: URL of the package index that has the release.
        version: the release.
        files: the folder with what was built.
    """

    def __init__(self, source: Path, work: Path, index: str, version: str, files: Path) -> None:
        self._source = source
        self._work = work
        self._index = index
        self._version = version
        self._files = files
        #: Name of each SBOM -> SHA-256 and size.
        self.sboms: dict[str, dict[str, str | int]] = {}

    def extras(self) -> list[str]:
        """Return all extras for users: the bare package first, `all` last."""
        names = [name for name in requirements.project()["optional-dependencies"] if name not in OURS]
        return ["", *sorted(names, key=lambda name: name == "all")]

    def _venv(self, extra: str) -> Path:
        return self._work / f"venv-{extra or 'bare'}"

    def _python(self, extra: str) -> Path:
        return self._venv(extra) / ("Scripts/python.exe" if os.name == "nt" else "bin/python")

    def _pip(self, extra: str, *arguments: str, environment: Mapping[str, str] | None = None) -> None:
        """Run the pip of this interpreter for the environment, which has none: the SBOM lists what a user needs."""
        pip = [sys.executable, "-m", "pip", "--python", str(self._python(extra)), "--disable-pip-version-check"]
        call(*pip, *arguments, environment=environment)

    def install(self, extra: str) -> str:
        """Install the package from our index alone, then what the extra needs from the one that pip is set to.

        Raises:
            ValueError: what was installed is not what was built.
        """
        call(sys.executable, "-m", "venv", "--without-pip", self._venv(extra))
        nowhere = {"PIP_CONFIG_FILE": os.devnull, "PIP_FIND_LINKS": "", "PIP_EXTRA_INDEX_URL": "", "PIP_INDEX_URL": ""}
        only = ["--only-binary", "stompcodec", "--no-cache-dir", "--no-deps", "--index-url", self._index]
        self._pip(extra, "install", "--quiet", *only, f"stompcodec=={self._version}", environment=nowhere)
        if extra:
            self._pip(extra, "install", "--quiet", f"stompcodec[{extra}]=={self._version}")
        self._pip(extra, "check")
        version, backend, file = json.loads(call(self._python(extra), "-c", _PROBE, cwd=self._venv(extra)))
        if not Path(file).is_relative_to(self._venv(extra)) or (version, backend) != (self._version, "c"):
            raise ValueError(f"installed is {version} with the backend {backend} in {file}")
        call(self._python(extra), "-c", TRIES[extra], cwd=self._venv(extra))
        folders = self._venv(extra).rglob("*.dist-info")
        return f"{len(list(folders))} packages; its modules can be imported"

    def proofs(self, extra: str) -> list[tuple[str, Callable[[], str]]]:
        """Return what is proven in the environment of that extra."""
        if extra == "":
            return [("vectors", self.vectors), ("pure wheel", self.pure), ("SBOM", lambda: self.sbom(""))]
        if extra != "all":
            return []
        return [
            ("SBOM [all]", lambda: self.sbom("all")),
            ("conformance of the codec", self.conformance),
            ("conformance of the broker", self.conformance_of_broker),
            ("doctests", self.doctests),
        ]

    def remove(self, extra: str) -> None:
        """Remove the environment: that of Spark has a gigabyte."""
        shutil.rmtree(self._venv(extra), ignore_errors=True)

    def vectors(self) -> str:
        """Run the vectors of the sdist on both backends."""
        script = self._source / "tests" / "packaging" / "run_backends.py"
        return _counted(call(self._python(""), script, cwd=self._venv("")))

    def pure(self) -> str:
        """Run the vectors on the wheel without extensions, installed by itself."""
        (wheel,) = self._files.glob("*-py3-none-any.whl")
        call(sys.executable, "-m", "venv", "--without-pip", self._venv("pure"))
        self._pip("pure", "install", "--quiet", "--no-index", "--no-deps", str(wheel))
        script = self._source / "tests" / "packaging" / "run_backends.py"
        counted = _counted(call(self._python("pure"), script, "--backend", "python", cwd=self._venv("pure")))
        self.remove("pure")
        return counted

    def sbom(self, extra: str) -> str:
        """Write what is installed as CycloneDX, without times and serial numbers, so that two runs are equal."""
        name = f"stompcodec-{self._version}{f'-{extra}' if extra else ''}.cdx.json"
        path = self._work / "sbom" / name
        path.parent.mkdir(exist_ok=True)
        command = [sys.executable, "-m", "cyclonedx_py", "environment", "--output-reproducible", "--short-PURLs"]
        call(*command, "--of", "JSON", "--validate", "-o", path, self._python(extra))
        bill = json.loads(path.read_text(encoding="utf-8"))
        self.sboms[name] = {"sha256": rehearsal_builds.digest(path), "bytes": path.stat().st_size}
        return f"{name}: {len(bill['components'])} components"

    def conformance(self) -> str:
        """Run `stompcodec conformance` on the codec."""
        return _counted(self._stompcodec("conformance"))

    def conformance_of_broker(self) -> str:
        """Run `stompcodec conformance` on a broker of the same environment."""
        ready = self._work / "ready.json"
        options = ["--memory", "--port", "0", "--ready-file", str(ready)]
        command = [str(self._python("all")), "-m", "stompcodec.cli", "broker", *options]
        with subprocess.Popen(command, cwd=self._venv("all"), stdout=subprocess.PIPE, text=True) as broker:
            try:
                assert broker.stdout is not None
                if "listens on" not in broker.stdout.readline():
                    raise ValueError("the broker does not start")
                port = json.loads(ready.read_text(encoding="utf-8"))["port"]
                return _counted(self._stompcodec("conformance", f"127.0.0.1:{port}", "--timeout", "30"))
            finally:
                broker.terminate()

    def _stompcodec(self, *arguments: str) -> str:
        return call(self._python("all"), "-m", "stompcodec.cli", *arguments, cwd=self._venv("all"))

    def doctests(self) -> str:
        """Run the examples of the package, README.md and docs, away from the source."""
        folder = self._work / "doctests"
        shutil.copytree(self._source / "docs", folder / "docs")
        shutil.copytree(self._source / "tests", folder / "tests")
        for name in ("README.md", "pyproject.toml"):
            shutil.copy(self._source / name, folder)
        self._pip("all", "install", "--quiet", *requirements.of(["dev"]))
        pytest = [self._python("all"), "-P" if sys.version_info >= (3, 11) else "-s", "-m", "pytest", "-q"]
        chosen = [
            "--doctest-modules",
            "--doctest-ignore-import-errors",
            "--doctest-glob=*.md",
            "--pyargs",
            "stompcodec",
        ]
        return _counted(call(*pytest, *chosen, "README.md", "docs", cwd=folder))


def _counted(output: str) -> str:
    """Return the last line that counts passed cases.

    >>> _counted("a\\n12 passed, 0 failed\\nb\\n")
    '12 passed, 0 failed'
    """
    lines = [line for line in output.splitlines() if re.search(r"\d passed", line)]
    if not lines:
        raise ValueError("no case was counted")
    return lines[-1].strip("= ")
