"""The page that shows the broker: one file, with a policy that lets nothing else into it."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import lru_cache
from pathlib import Path

_FILE = Path(__file__).with_name("page.html")
#: What is written in the page itself, which its policy names by digests.
_INLINE = re.compile(r"<(script|style)>(.*?)</\1>", re.DOTALL)


@lru_cache(maxsize=1)
def page() -> tuple[bytes, str] | None:
    """Return the page and its Content-Security-Policy; None if it is not installed."""
    try:
        text = _FILE.read_text(encoding="utf-8")
    except OSError:
        return None
    return text.encode(), policy_of(text)


def policy_of(text: str) -> str:
    """Return the policy of a page: its own scripts and styles, and connections to where it came from.

    >>> policy_of("<script>1</script>").split("; ")[1:3]
    ["script-src 'sha256-a4ayc/80/OGda4BO/1o/V0etpOqiLx1JwB5S3beHW0s='", "style-src 'none'"]
    """
    digests: dict[str, list[str]] = {"script": [], "style": []}
    for name, content in _INLINE.findall(text):
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        digests[name].append(f"'sha256-{digest}'")
    nothing = "'none'"
    return "; ".join(
        (
            f"default-src {nothing}",
            f"script-src {' '.join(digests['script']) or nothing}",
            f"style-src {' '.join(digests['style']) or nothing}",
            "img-src data:",
            "connect-src 'self'",
            f"base-uri {nothing}",
            f"form-action {nothing}",
            f"frame-ancestors {nothing}",
        )
    )
