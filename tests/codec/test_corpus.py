"""Digests of the benchmark corpus: 11 workloads, 5 ways to cut them, both backends. STOMPCODEC_CORPUS_SCALE is the size
of the workloads; at 1.0 every octet is fed by itself where that is asked for."""

import os
from collections import Counter

import pytest
from codec.corpus import FRAGMENTS, WORKLOADS, fragments, frame_digest, workload

from stompcodec.frame import HEARTBEAT

SCALE = float(os.environ.get("STOMPCODEC_CORPUS_SCALE", "0.02"))
MOST_SINGLE = 100_000  # octets that are fed one by one at a small scale


def _fragments(data, size):
    if size != 1 or len(data) <= MOST_SINGLE or SCALE >= 1:
        return fragments(data, size)
    head, middle, tail = data[: MOST_SINGLE // 2], data[MOST_SINGLE // 2 : -MOST_SINGLE // 2], data[-MOST_SINGLE // 2 :]
    return [*fragments(head, 1), *fragments(middle, 1460), *fragments(tail, 1)]


@pytest.mark.parametrize("size", FRAGMENTS.values(), ids=FRAGMENTS)
@pytest.mark.parametrize("name", WORKLOADS)
def test_digest(codec, name, size):
    wanted, data = workload(name, SCALE)
    parser = codec.Parser(wanted["version"], heartbeats=True)
    frames, beats = [], 0
    for piece in _fragments(data, size):
        for frame in parser.feed(piece):
            if frame is HEARTBEAT:
                beats += 1
            else:
                frames.append((frame.command, frame.headers.pairs(), frame.body))
    parser.close()
    assert (frame_digest(frames), beats) == (wanted["digest"], wanted["eols"])
    assert Counter(command for command, _, _ in frames) == wanted["commands"]
