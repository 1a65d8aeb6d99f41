"""The workloads of benchmarks/make_corpus.py, made in memory."""

from __future__ import annotations

import importlib.util
import random
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any


def _load() -> ModuleType:
    path = Path(__file__).parents[2] / "benchmarks" / "make_corpus.py"
    spec = importlib.util.spec_from_file_location("make_corpus", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


make_corpus = _load()
WORKLOADS = {make.__name__: make for make in make_corpus.WORKLOADS}


@lru_cache(maxsize=2)
def workload(name: str, scale: float) -> tuple[dict[str, Any], bytes]:
    """What a decoder must find, and the octets."""
    make = WORKLOADS[name]
    stream = make(random.Random(f"{make_corpus.SEED}/{name}"), scale)
    data = stream.data()
    return make_corpus.describe(make, stream, data), data
