"""Pickling of sources, readers and writers for executors, where this package may be missing."""

from __future__ import annotations

import gc
import pickle
from typing import Any

_settled = False


def _arrive(module: str, name: str, state: bytes) -> Any:
    import importlib
    import pickle
    import sys

    try:
        found = getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        if error.name != "stompcodec":
            raise
        raise ModuleNotFoundError(
            f"stompcodec is not installed for {sys.executable}, which runs this executor: install stompcodec[spark] "
            "there, or ship an environment that has it (spark.archives, PYSPARK_PYTHON): see docs/spark-cluster.md"
        ) from None
    result = found.__new__(found)
    result.__dict__.update(pickle.loads(state))
    return result


# PySpark pickles functions of unimportable modules by value, so this one runs even where this package is missing.
_arrive.__module__ = "stompcodec_to_executors"


def settle() -> None:
    """Freeze imported modules: a worker collects garbage after each task, which takes as long as reading 32 MiB."""
    global _settled
    if not _settled:
        _settled = True
        gc.freeze()


class Shipped:
    """Mixin for objects that PySpark pickles; unpickled without this package they raise an error that helps."""

    def __reduce__(self) -> tuple[Any, ...]:
        # The state holds our objects, so it stays pickled until this package is known to be importable.
        return _arrive, (type(self).__module__, type(self).__qualname__, pickle.dumps(self.__dict__))
