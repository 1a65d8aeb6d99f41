"""A body that is larger than the memory that client and broker may use, through both."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from crash.process import BrokerProcess
from patience import patience

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc, and ru_maxrss in KiB"),
]

MIB = 2**20
SIZE = 96 * MIB
#: The most that a process may grow. A body in memory would be more.
MOST = 64 * MIB

_CLIENT = """
import hashlib, json, pathlib, resource, sys
import stompcodec.client as stomp
from stompcodec.spec import Limits

url, size, folder = sys.argv[1], int(sys.argv[2]), pathlib.Path(sys.argv[3])
piece = bytes(range(256)) * 1024
path = folder / "body"
sent = hashlib.sha256()
with path.open("wb") as file:
    for _ in range(size // len(piece)):
        file.write(piece)
        sent.update(piece)

def most():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

with stomp.connect(url, stream_over=65536, limits=Limits(max_body=size), spool_folder=folder) as client:
    subscription = client.subscribe("/queue/big", ack="client-individual", prefetch=1)
    client.send("/queue/small", b"warm", receipt=True)
    before = most()
    for body in (path, (piece for _ in range(size // len(piece)))):
        client.send("/queue/big", body, receipt=True, timeout=600)
        message = subscription.get(600)
        got = hashlib.sha256()
        with message.open() as reader:
            for part in reader:
                got.update(part)
        message.ack(receipt=True)
        assert got.digest() == sent.digest()
        del message, reader
print(json.dumps({"grown": most() - before}))
"""


def test_a_large_body_is_never_in_memory_as_a_whole(tmp_path):
    config = f"[limits]\nmax_body = {SIZE}\n"
    with BrokerProcess(tmp_path / "broker", config=config, memory=True) as broker:
        before = broker.rss()
        done = subprocess.run(
            [sys.executable, "-c", _CLIENT, f"stomp://127.0.0.1:{broker.port}", str(SIZE), str(tmp_path)],
            capture_output=True,
            text=True,
            timeout=patience(300),
        )
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["grown"] < MOST
        assert broker.peak() - before < MOST
