"""A bridge between two brokers: it moves or mirrors destinations, and stores each message once at the target.

import asyncio
from stompcodec.bridge import Bridge, End, Mapping, Request

source, target = End("stomp://old.example"), End("stomp://new.example")
bridge = Bridge(source, target, Request(Mapping.parse(["/queue/*"]), drain=True))
print(asyncio.run(bridge.run()).carried)
"""

from stompcodec.bridge.bridge import Bridge
from stompcodec.bridge.carrier import Tally
from stompcodec.bridge.mapping import DEAD_LETTER, Mapping, Rule, Way
from stompcodec.bridge.sources import BridgeError, End, Request, UnsuitableError

__all__ = [
    "DEAD_LETTER",
    "Bridge",
    "BridgeError",
    "End",
    "Mapping",
    "Request",
    "Rule",
    "Tally",
    "UnsuitableError",
    "Way",
]
