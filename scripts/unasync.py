"""Write the client for threads from the client for asyncio.

    unasync.py [--check]    with --check: exit status 1 if one of them is not what would be written

What differs in more than `async` and `await` stands in `waiting.py`, which is written by hand for both. Besides,
a line that ends with `# asyncio only` (a reason may follow) is left out, and so are methods named `__await__`;
`# threads only: CODE` becomes CODE.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

CLIENT = Path(__file__).resolve().parents[1] / "stompcodec" / "client"
MODULES = ("client", "link", "messages")
#: What is replaced, in this order. Words in docstrings, too.
REPLACED = [
    (r"(?m)^.*# asyncio only\b.*\n", ""),
    (r"(?m)^    def __await__\(.*\n(?:        .*\n)*\n", ""),
    (r"# threads only: ", ""),
    (r"-> Coroutine\[Any, Any, None\]:", "-> None:"),
    (r"\basync (?=def|with|for)", ""),
    (r"\bawait ", ""),
    (r"\b__a(?=(enter|exit|iter|next)__)", "__"),
    (r"\basynccontextmanager\b", "contextmanager"),
    (r"\basync_around\b", "around"),
    (r"(\bobject \| )?\bAwaitable\[(\w+)\]", r"\2"),
    (r"\bAbstractAsync(?=[A-Z])", "Abstract"),
    (r"\bStopAsyncIteration\b", "StopIteration"),
    (r"\b([Aa])n (`?)Async(?=[A-Z])", r"\1 \2"),
    (r"\bAsync(?=[A-Z])", ""),
    (r"\bclient\.aio\b", "client.sync"),
    (r"\bconnect_async\b", "connect"),
    (r"Subscribe at once\. Await what this returns to have it confirmed, or iterate over it\.", "Subscribe."),
    (r" With asyncio they may come from an asynchronous iterable\.", ""),
    (r"a function or coroutine function\b", "a function"),
    (r"It belongs to the event loop in which it was opened\.", "Any thread may use it, also handlers."),
    (r"\btask(s?)\b", r"thread\1"),
    (r"\bfor asyncio\b", "for threads"),
    (r"(?m)^.*>>> import asyncio\n", ""),
    (r"\basyncio\.run\((main\(.*\))\)", r"\1"),
    (r"\n\nIts I/O is not done (.|\n)*?\n\"\"\"", '"""'),
]


def written(module: str) -> str:
    """Return the text of a module of `sync`."""
    text = (CLIENT / "aio" / f"{module}.py").read_text("utf-8")
    for pattern, new in REPLACED:
        text = re.sub(pattern, new, text)
    head, rest = text.split("\n\n", 1)
    origin = f"# scripts/unasync.py writes this from aio/{module}.py: change that one, then `make docs`."
    text = f"{head}\n\n{origin}\n\n{rest}"
    target = str(CLIENT / "sync" / f"{module}.py")
    for command in (["check", "--quiet", "--fix", "--select=I,F401"], ["format", "--quiet"]):
        ruff = [sys.executable, "-m", "ruff", *command, "--stdin-filename", target, "-"]
        text = subprocess.run(ruff, input=text, capture_output=True, text=True, check=True).stdout
    return text


if __name__ == "__main__":
    texts = {CLIENT / "sync" / f"{module}.py": written(module) for module in MODULES}
    stale = [target for target, text in texts.items() if not target.exists() or target.read_text("utf-8") != text]
    if stale and "--check" in sys.argv[1:]:
        sys.exit(f"stale: {', '.join(map(str, stale))}: run scripts/unasync.py")
    for target in stale:
        target.write_text(texts[target], "utf-8")
    print("the client for threads is up to date")
