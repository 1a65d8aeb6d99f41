"""The site that `make site` has built: every name is there, nothing is loaded from elsewhere, it fits on a phone."""

import contextlib
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from chromium import Chromium, Page, needs_chromium
from sitepages import built, messages, staging

SITE = staging.ROOT / "build" / "site" / "html"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (SITE / "index.html").is_file(), reason="the site is not built: make site"),
]


def test_nothing_is_wrong_with_it() -> None:
    assert list(built.problems(SITE)) == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('<img src="https://other.example/x.png">', "from another host"),
        ('<link rel="stylesheet" href="//fonts.example/x.css">', "from another host"),
        ('<script src="gone.js"></script>', "which is not there"),
        ('<meta http-equiv="refresh" content="0;url=../gone/#a">', "which is not there"),
    ],
)
def test_problems_are_found(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "index.html").write_text(text)
    [found] = built.problems(tmp_path)
    assert problem in found


def found_by(asked: list[str]) -> list[list[str]]:
    if shutil.which("node") is None:
        pytest.skip("node is not installed, which runs the site's search")
    command = ["node", str(Path(__file__).with_name("search.js")), str(SITE)]
    done = subprocess.run(command, input=json.dumps(asked).encode(), capture_output=True, check=True)
    return list(json.loads(done.stdout))


def test_a_question_finds_its_page_among_the_first_three_and_none_of_the_project() -> None:
    pages = {"password": "client", "prefetch": "client", "prometheus": "tracing", "rabbitmq quorum queue": "rabbitmq"}
    pages |= {"xdist": "testing", **dict.fromkeys(("backup", "systemd", "upgrade"), "operating")}
    *answers, found = found_by([*pages, "planted faults and mutants"])
    first = {text: [each.split("/")[0] for each in answer[:3]] for text, answer in zip(pages, answers, strict=True)}
    assert {text: first[text] for text, page in pages.items() if page not in first[text]} == {}
    assert [each for each in found if each.startswith("development/")] == []


def test_a_message_that_is_pasted_finds_its_row() -> None:
    right: dict[str, set[str]] = {}
    for each in messages.messages():
        section = next((title for title, _ in messages.families() if title.startswith(each.section)), each.section)
        address = "troubleshooting/#" + re.sub(r"\W+", "-", section.lower()).strip("-")
        right.setdefault(each.text, set()).add(address)
    asked = [text for text in right if len(re.findall(r"\w+", text)) > 2]
    answers = found_by([text.replace("…", "'/queue/a'") for text in asked])
    assert len(asked) > 900
    assert [text for text, found in zip(asked, answers, strict=True) if {*found[:1]} - right[text] or not found] == []


@contextlib.contextmanager
def opened(browser: Chromium, address: str, width: int = 1280) -> Iterator[Page]:
    page = browser.open("about:blank")
    page.resize(width, 800, phone=width < 600)
    page.order("Page.navigate", url=address)
    page.wait("document.readyState == 'complete' && document.querySelector('h1') !== null")
    yield page
    page.close()


_LOADED = "performance.getEntriesByType('resource').map((each) => new URL(each.name).host)"


@needs_chromium
@pytest.mark.parametrize("path", ["", "architecture/", "reference/client/", "troubleshooting/"])
def test_all_comes_from_its_own_host(browser: Chromium, address: str, path: str) -> None:
    with opened(browser, address + path) as page:
        if path == "architecture/":
            page.wait("document.querySelectorAll('div.mermaid').length > 3", 30)
        assert set(page.get(_LOADED)) == {address.split("/")[2]}
        assert page.errors == []


@needs_chromium
@pytest.mark.parametrize("path", ["", "client/", "broker/", "reference/command-line/", "reference/client/"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_on_a_phone(browser: Chromium, address: str, path: str, scheme: str) -> None:
    with opened(browser, address + path, width=390) as page:
        page.prefer(scheme)
        name = "slate" if scheme == "dark" else "default"
        page.wait(f"document.body.getAttribute('data-md-color-scheme') == '{name}'")
        assert page.get("document.documentElement.scrollWidth") <= 390
        dark = page.get("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).slice(0, 3).map(Number)")
        assert (sum(dark) < 384) is (scheme == "dark"), dark
