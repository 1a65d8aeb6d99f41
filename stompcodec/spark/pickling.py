"""Sources, readers and writers on their way to executors, where this package may not be installed."""

from __future__ import annotations

import gc
import pickle
from typing import Any

__all__ = ["Shipped", "settle"]

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


# PySpark pickles a function of a module that cannot be imported with its code, so this one runs where we are missing.
_arrive.__module__ = "stompcodec_to_executors"


def settle() -> None:
    """Call it in a worker of Spark once everything is imported. The worker looks for garbage behind every task, which
    takes as long as reading 32 MiB; modules are none."""
    global _settled
    if not _settled:
        _settled = True
        gc.freeze()


class Shipped:
    """Says what to do where this package is missing. PySpark sends the source along with its reader or writer."""

    def __reduce__(self) -> tuple[Any, ...]:
        # The state holds objects of ours, so it stays octets until we are known to be there.
        return _arrive, (type(self).__module__, type(self).__qualname__, pickle.dumps(self.__dict__))
