"""The playground of the built site in headless Chromium: Python runs there, and no frame becomes more than text."""

import http.server
import json
from collections.abc import Iterator

import pytest
from chromium import Chromium, Page, needs_chromium, serving
from docsite.test_playground import FRAMES
from sitepages import staging

SITE = staging.ROOT / "build" / "site" / "html"

pytestmark = [
    pytest.mark.slow,
    needs_chromium,
    pytest.mark.skipif(
        not (SITE / "playground" / "pyodide").is_dir(), reason="the site is not built with Python: make site, with npm"
    ),
]

READY = "document.getElementById('status').textContent == 'Ready'"
LINE = "document.getElementById('line').textContent"
START = 60  # seconds that Python may take to start


def opened(browser: Chromium, address: str) -> Page:
    page = browser.open("about:blank")
    page.order("Page.navigate", url=address)
    page.wait(READY, START)
    return page


@pytest.fixture(scope="module")
def playground_address(address: str) -> str:
    return f"{address}playground/"


@pytest.fixture(scope="module")
def shared_page(browser: Chromium, playground_address: str) -> Iterator[Page]:
    page = opened(browser, playground_address)
    yield page
    page.close()


@pytest.fixture
def page(shared_page: Page) -> Iterator[Page]:
    shared_page.errors.clear()
    yield shared_page
    assert shared_page.errors == []


def put(page: Page, text: str) -> None:
    """Replace the text as a user does, and wait until it has been read."""
    page.get("document.getElementById('text').select()")
    page.get("document.getElementById('status').textContent = 'Typed'")
    if text:
        page.type(text, "#text")
    page.wait(READY, 30)


def drop(page: Page, name: str, content: str) -> None:
    """Drop a file. `content` is an expression: what `new File` takes."""
    page.get("document.getElementById('status').textContent = 'Dropped'")
    page.get(
        f"""(() => {{
          const moved = new DataTransfer();
          moved.items.add(new File({content}, {json.dumps(name)}));
          const drop = new DragEvent("drop", {{ dataTransfer: moved, bubbles: true, cancelable: true }});
          document.body.dispatchEvent(drop);
        }})()"""
    )


HOSTILE = "<img src=x onerror=window.hacked=1><script>window.hacked=2</script>"


def test_markup_stays_text(page: Page) -> None:
    put(
        page,
        f"SEND\ndestination:{HOSTILE}\n{HOSTILE}:javascript\\calert(1)\ncontent-type:text/html\n\n{HOSTILE}^@\n"
        f"{HOSTILE}\n{HOSTILE}\n\n{HOSTILE}^@",
    )
    for key in ("Home", "End"):
        page.get("document.getElementById('list').focus()")
        page.press(key)
        assert HOSTILE.split()[0] in page.text("#found")
    page.get("document.getElementById('slider').dispatchEvent(new Event('input'))")
    page.get(f"document.getElementById('value').value = {json.dumps(HOSTILE)}")
    page.get("document.getElementById('value').dispatchEvent(new Event('input'))")
    page.wait(f"document.getElementById('escapes').innerText.includes({json.dumps(HOSTILE)})")
    drop(page, f"{HOSTILE}.png", "[new Uint8Array([137, 80, 78, 71, 255])]")
    page.wait(f"{LINE}.includes({json.dumps(HOSTILE)}) && {LINE}.includes('is binary')")
    assert page.get("document.querySelectorAll('img, main script').length") == 0
    assert page.get("window.hacked") is None


def fragment_of(page: Page) -> str:
    return str(page.get("location.hash"))


def test_a_link_is_made_on_a_click_only(browser: Chromium, page: Page, playground_address: str) -> None:
    put(page, FRAMES[2])
    assert fragment_of(page) == ""
    page.click("Make a link")
    link = page.wait("location.hash && document.getElementById('address').value")
    assert link == playground_address + fragment_of(page)
    other = opened(browser, link)
    assert other.get("document.getElementById('text').value") == FRAMES[2]
    assert other.get("document.querySelectorAll('#list .row').length") == 2
    assert other.errors == []
    other.close()
    put(page, FRAMES[0])
    assert fragment_of(page) == ""  # the text is another


class _Counting(http.server.BaseHTTPRequestHandler):
    asked: int = 0

    def do_GET(self) -> None:
        type(self).asked += 1
        self.send_response(200)
        self.send_header("Access-Control-Allow-Origin", "*")
        self.end_headers()

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def other_host() -> Iterator[str]:
    _Counting.asked = 0
    with serving(_Counting) as address:
        yield address


FETCH = "fetch({}).then(() => 'loaded', (error) => error.name)"


def test_neither_the_page_nor_python_can_reach_another_host(page: Page, other_host: str) -> None:
    away = FETCH.format(json.dumps(other_host))
    assert page.get(away) == "TypeError"
    assert page.get_in_worker(away) == "TypeError"
    assert page.get_in_worker(f"import({json.dumps(other_host)}).catch((error) => error.name)") == "TypeError"
    assert page.get_in_worker(FETCH.format("self.location.origin + '/'")) == "loaded"
    assert (
        page.get_in_worker("(() => { try { return eval('1') } catch (error) { return error.name } })()") == "EvalError"
    )
    assert _Counting.asked == 0
    assert "Content Security Policy" in " ".join(page.errors)
    page.errors.clear()
