"""The output formats of `lint`: text, JSON, SARIF, and annotations for GitHub."""

from __future__ import annotations

import json
import sys
from collections import Counter
from typing import Any

import click
from rich.text import Text

import stompcodec
from stompcodec.cli.linting.rules import Finding, Severity, title_of
from stompcodec.cli.screen import screen

STYLES: dict[Severity, str] = {"error": "bold red", "warning": "yellow", "note": "cyan"}


class Report:
    """An output of findings. It shows only the first ones of each rule in a file, so that large files stay readable.

    `most` is how many: 0 for all, None for the format's default.
    """

    #: The default for `most`.
    most = 0

    def __init__(self, most: int | None = None) -> None:
        self.most = self.most if most is None else most
        self.counts: Counter[str] = Counter()
        self._severities: Counter[Severity] = Counter()

    def add(self, file: str, finding: Finding) -> None:
        """Count a finding, and show it unless there are too many."""
        self.counts[finding.rule] += 1
        self._severities[finding.severity] += 1
        if not self.most or self.counts[finding.rule] <= self.most:
            self.show(file, finding)

    def show(self, file: str, finding: Finding) -> None:
        """Show a finding."""

    def end(self, file: str, frames: int) -> None:
        """End a file."""
        self.counts.clear()
        self._severities.clear()

    def finish(self) -> None:
        """End the last file."""


class TextReport(Report):
    """Prints a line for each finding, and one with the counts."""

    most = 10

    def __init__(self, most: int | None = None) -> None:
        super().__init__(most)
        self._console = screen()

    def show(self, file: str, finding: Finding) -> None:
        line = Text(f"{file}:{finding.offset}: ").append(finding.severity, STYLES[finding.severity])
        line.append(f" {finding.rule}", "bold").append(f": {finding.text} ({finding.remedy})", "not bold")
        self._console.print(line, soft_wrap=True)

    def end(self, file: str, frames: int) -> None:
        for rule, count in self.counts.items():
            if self.most and count > self.most:
                self._console.print(f"{file}: {rule}: {count - self.most} more, shown with --most 0", soft_wrap=True)
        kinds: tuple[Severity, ...] = ("error", "warning", "note")
        counts = ", ".join(f"{kind}s {self._severities[kind]}" for kind in kinds)
        self._console.print(f"{file}: {counts}, frames {frames}", soft_wrap=True)
        super().end(file, frames)


class JsonReport(Report):
    """Prints a JSON object for each finding."""

    def show(self, file: str, finding: Finding) -> None:
        sys.stdout.buffer.write(json.dumps({"file": file, **finding._asdict()}).encode() + b"\n")


class GithubReport(Report):
    """Prints commands that GitHub Actions turns into annotations."""

    most = 10

    def show(self, file: str, finding: Finding) -> None:
        kind = "notice" if finding.severity == "note" else finding.severity
        text = _escaped(f"octet {finding.offset}: {finding.text} ({finding.remedy})")
        name, rule = (_escaped(word).replace(":", "%3A").replace(",", "%2C") for word in (file, finding.rule))
        click.echo(f"::{kind} file={name},title={rule}::{text}")


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


class SarifReport(Report):
    """Prints a SARIF 2.1.0 log at the end."""

    most = 1000

    def __init__(self, most: int | None = None) -> None:
        super().__init__(most)
        self._rules: dict[str, str] = {}
        self._results: list[dict[str, Any]] = []

    def show(self, file: str, finding: Finding) -> None:
        self._rules.setdefault(finding.rule, title_of(finding.rule) or finding.text.split(":")[0])
        region = {"byteOffset": finding.offset, "byteLength": 1}
        place = {"artifactLocation": {"uri": file.replace("\\", "/")}, "region": region}
        result = {"ruleId": finding.rule, "level": finding.severity}
        text = f"{finding.text} ({finding.remedy})"
        self._results.append({**result, "message": {"text": text}, "locations": [{"physicalLocation": place}]})

    def finish(self) -> None:
        rules = [{"id": rule, "shortDescription": {"text": text}} for rule, text in self._rules.items()]
        driver = {"name": "stompcodec", "version": stompcodec.__version__, "rules": rules}
        log = {
            "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
            "version": "2.1.0",
            "runs": [{"tool": {"driver": driver}, "results": self._results}],
        }
        click.echo(json.dumps(log, indent=2))


REPORTS: dict[str, type[Report]] = {
    "text": TextReport,
    "json": JsonReport,
    "sarif": SarifReport,
    "github": GithubReport,
}
