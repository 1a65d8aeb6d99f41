"""Build the docs site into build/site/html, and check it.

    python scripts/build_site.py

The pages are copied and written into build/site/pages, and built by Zensical in its strict mode, which follows every
link and anchor. What the pages load must be there, and not from another host; npm brings what others have made.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from sitepages import built, pages, playground, staging

ROOT = Path(__file__).resolve().parents[1]
WORK = ROOT / "build" / "site"
SITE = WORK / "html"
_DRAWER = "assets/javascripts/mermaid.min.js"
#: Hosts that the theme's scripts would load from, for features that this site does not use or brings itself.
_ELSEWHERE = re.compile(
    r"https://(?:unpkg\.com|cdn\.jsdelivr\.net|cdnjs\.cloudflare\.com|api\.github\.com)/[^\"'`)\s]*"
)


def own_hosts_only(site: Path, drawer: bytes) -> None:
    """Let the theme's scripts load diagrams from the site, and nothing from anywhere else."""
    for path in (site / "assets").rglob("*.js"):
        text = path.read_text("utf-8")
        text = re.sub(r'"https://unpkg\.com/mermaid@[^"]*"', f'new URL("{_DRAWER}",__md_scope).href', text)
        path.write_text(_ELSEWHERE.sub("about:blank#", text), "utf-8")
    (site / _DRAWER).write_bytes(drawer)


def own_search(site: Path, engine: bytes) -> None:
    """Put our search in the place of the theme's."""
    [worker] = (site / "assets" / "javascripts" / "workers").glob("search.*.js")
    own = (staging.DOCS / "site" / "search.js").read_text("utf-8")
    text = re.sub(r"/\*.*?\*/", "", engine.decode(), flags=re.DOTALL)  # comments with addresses
    worker.write_text(f"/* MiniSearch, MIT licence; then our search.js */\n{text}\n{own}", "utf-8")


def build() -> int:
    """Build the site. Returns the exit status of Zensical."""
    staging.stage(WORK / "pages", pages())
    shutil.copyfile(staging.DOCS / "site" / "zensical.toml", WORK / "zensical.toml")
    shutil.rmtree(WORK / "overrides", ignore_errors=True)
    shutil.copytree(staging.DOCS / "site" / "overrides", WORK / "overrides")
    shutil.rmtree(SITE, ignore_errors=True)
    command = [sys.executable, "-m", "zensical", "build", "--clean", "--strict"]
    plain = {**os.environ, "NO_COLOR": "1"}
    done = subprocess.run(command, cwd=WORK, env=plain, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    text = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout.decode(errors="replace"))
    print(text.partition("Traceback")[0].strip())
    return done.returncode


def main() -> int:
    WORK.mkdir(parents=True, exist_ok=True)
    if build():
        sys.exit("the site was not built: see above")
    own_hosts_only(SITE, *playground.fetched(WORK, "mermaid@12", "dist/mermaid.min.js"))
    built.lead_on(SITE)
    own_search(SITE, *playground.fetched(WORK, "minisearch@7", "dist/umd/index.js"))
    print(f"playground: {playground.install(WORK, SITE) / 2**20:.1f} MB, of which Pyodide {playground.VERSION}")
    wrong = list(built.problems(SITE))
    for line in wrong:
        print(line)
    print(f"{SITE.relative_to(ROOT)}: {len(list(SITE.rglob('index.html')))} pages, {len(wrong)} problems")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
