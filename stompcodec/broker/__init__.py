"""The public names of the broker: `Broker` is the core, without input or output; `serve` and `run` put it on sockets.

The shell is imported only on first use, so the core stays free of asyncio.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from stompcodec.broker.hot import COMPILED  # first: it says where the others come from

# isort: split
from stompcodec.broker.config import Config, load_config
from stompcodec.broker.core import Broker

if TYPE_CHECKING:
    from stompcodec.broker.server import run, serve

__all__ = ["COMPILED", "Broker", "Config", "load_config", "run", "serve"]
#: Names imported on first use, and their modules.
_LAZY = {"run": "server", "serve": "server"}


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(f"stompcodec.broker.{_LAZY[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
