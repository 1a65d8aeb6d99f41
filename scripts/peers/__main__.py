"""Other people's STOMP servers on the loopback interface: what can run here, fetch, start and stop them.

    python scripts/peers list
    python scripts/peers fetch [NAME ...]               those that can run here, with the progress
    python scripts/peers start NAME [OPTION=VALUE ...]  in the background; says its URLs
    python scripts/peers stop [NAME ...]                and removes its data

Options of a server are in table.py. Tests take servers by the mark `peer`: docs/development.md.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[1])  # for the package that this file is of

from peers import PEERS, Peer, PeerError, Server, fetch, is_fetched, missing
from peers.fetching import cache

_say = partial(print, file=sys.stderr, flush=True)


def _note(name: str) -> Path:
    return cache() / "running" / f"{name}.json"


def _running(name: str) -> dict[str, str] | None:
    """Return the record of a server that `start` left running. It is ours if it still runs in the recorded folder."""
    with suppress(OSError, ValueError, KeyError):
        noted: dict[str, str] = json.loads(_note(name).read_text(encoding="utf-8"))
        if os.path.samefile(f"/proc/{noted['pid']}/cwd", noted["folder"]):
            return noted
    return None


def show(peers: list[Peer]) -> int:
    width = max(len(peer.name) for peer in peers)
    for peer in peers:
        reason, noted = missing(peer), _running(peer.name)
        can = "yes" if is_fetched(peer) else "yes, once it is fetched"
        state = f"runs: {noted['url']}" if noted else f"no: {reason}" if reason else can
        print(f"{peer.name:{width}}  {peer.version:8}  {state}\n{'':{width}}  {peer.title}")
    return 0


def get(peers: list[Peer]) -> int:
    failed = False
    for peer in peers:
        try:
            _say(f"{peer.name}: {missing(peer) or fetch(peer, _say)}")
        except PeerError as error:
            failed = True
            _say(str(error))
    return int(failed)


def start(peer: Peer, options: dict[str, str]) -> int:
    if noted := _running(peer.name):
        print(noted["url"])
        return 0
    server = Server(peer.name, options, bound=False, say=_say)
    try:
        server.start()
    except PeerError as error:
        server.close()
        _say(str(error))
        return 1
    assert server.process is not None
    noted = {"pid": str(server.process.pid), "folder": str(server.folder), "url": server.url}
    _note(peer.name).parent.mkdir(parents=True, exist_ok=True)
    _note(peer.name).write_text(json.dumps(noted), encoding="utf-8")
    print("\n".join(filter(None, dict.fromkeys((server.url, server.ws_url)))))
    print(f"ports: {server.ports}\nlog: {server.log}\npid: {server.process.pid}")
    return 0


def stop(peers: list[Peer]) -> int:
    for peer in peers:
        if noted := _running(peer.name):
            os.killpg(int(noted["pid"]), signal.SIGKILL)
            while _running(peer.name):
                time.sleep(0.05)
            shutil.rmtree(noted["folder"], ignore_errors=True)
            print(f"{peer.name} is stopped")
        _note(peer.name).unlink(missing_ok=True)
    return 0


def main() -> int:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="scripts/peers", description=__doc__, formatter_class=raw)
    parser.add_argument("verb", choices=("list", "fetch", "start", "stop"))
    parser.add_argument("words", nargs="*", metavar="NAME", help=f"of {', '.join(PEERS)}; by default all")
    arguments = parser.parse_args()
    options = dict(word.split("=", 1) for word in arguments.words if "=" in word)
    names = [word for word in arguments.words if "=" not in word]
    if unknown := [name for name in names if name not in PEERS]:
        parser.error(f"no such server: {', '.join(unknown)}; there are {', '.join(PEERS)}")
    peers = [PEERS[name] for name in names or PEERS]
    if arguments.verb == "start":
        if len(names) != 1:
            parser.error("start takes one NAME")
        try:
            return start(peers[0], options)
        except TypeError as error:
            parser.error(str(error))
    return {"list": show, "fetch": get, "stop": stop}[arguments.verb](peers)


if __name__ == "__main__":
    sys.exit(main())
