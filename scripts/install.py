"""Run pip with these arguments and show what it does, for `make demo`: its first run takes a minute.

On a terminal one line follows the steps, and its seconds run; elsewhere each step is a line. If pip fails, all it said
is shown. It needs only the standard library: nothing is installed yet.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterable

#: Lines of pip that begin a step, and how the step is told.
STEPS = (
    (re.compile(r"Processing (\S+)"), "reading {}"),
    (re.compile(r"Collecting ([\w.-]+)"), "finding {}"),
    (re.compile(r"\s*Downloading (\S+?)(?: \((.*)\))?$"), "downloading {} {}"),
    (re.compile(r"\s*Using cached (\S+?)(?: \(.*\))?$"), "taking {} from the cache"),
    (re.compile(r"\s*Preparing metadata"), "preparing"),
    (re.compile(r"\s*Building wheels? for (?:collected packages: )?([\w.-]+)"), "building {}"),
    (re.compile(r"Installing collected packages: (.*)"), "installing {}"),
    (re.compile(r"Successfully installed (.*)"), "installed {}"),
)
_WIDEST = 70
_TICK = 0.5


def step(line: str) -> str:
    """Return what a line of pip tells; "" if it begins no step.

    >>> step("Collecting pyspark<5,>=4.0 (from stompcodec==0.1.0)")
    'finding pyspark'
    >>> step("  Downloading pyspark-4.0.0.tar.gz (434.1 MB)")
    'downloading pyspark-4.0.0.tar.gz 434.1 MB'
    """
    for pattern, text in STEPS:
        match = pattern.match(line.rstrip())
        if match:
            names = [(name or "").split("/")[-1] for name in match.groups()]
            shown = text.format(*names).strip()
            return shown if len(shown) <= _WIDEST else shown[: _WIDEST - 1] + "…"
    return ""


class Line:
    """The line that says what is done now, and for how long the whole has taken.

    Args:
        terminal: redraw one line every second; else write each step once.
    """

    def __init__(self, terminal: bool) -> None:
        self._terminal = terminal
        self._start = time.monotonic()
        self._text = "starting pip"
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._tick, daemon=True)
        if terminal:
            self._thread.start()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._start

    def show(self, text: str) -> None:
        """Begin a step."""
        if text and text != self._text:
            self._text = text
            if not self._terminal:
                print(f"{self.seconds:4.0f} s  {text}", flush=True)

    def _tick(self) -> None:
        while not self._over.wait(_TICK):
            print(f"\r\x1b[K{self.seconds:4.0f} s  {self._text}", end="", flush=True)

    def close(self) -> None:
        """Remove it."""
        self._over.set()
        if self._terminal:
            self._thread.join()
            print("\r\x1b[K", end="", flush=True)


def follow(lines: Iterable[str], line: Line) -> list[str]:
    """Show the steps as they come, and return all that pip said."""
    said = []
    for text in lines:
        said.append(text)
        line.show(step(text))
    return said


def main(arguments: list[str]) -> int:
    """Run pip; returns its exit status."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments, "--progress-bar", "off"]
    line = Line(sys.stdout.isatty())
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env={**os.environ, "PYTHONUNBUFFERED": "1"},  # or the steps would come in heaps
    )
    assert process.stdout is not None
    try:
        with process.stdout:
            said = follow(process.stdout, line)
        status = process.wait()
    finally:
        line.close()
    if status:
        sys.stderr.write("".join(said))
    else:
        print(f"installed in {line.seconds:.0f} s")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
