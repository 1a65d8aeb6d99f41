"""Spelling: header names with capitals, which the legacy dialect folds to lower case, as the rest of the broker knows
them.

A legacy session gets `restored` frames, so that no look-up, stored message or selector has to ask for two spellings.
"""

from __future__ import annotations

from stompcodec.codec import Frame

__all__ = ["NAMES", "restored"]

#: Every header name with a capital that the broker looks up in a frame of a client.
NAMES = (
    *("JMSXGroupID", "JMSXGroupSeq", "AMQ_SCHEDULED_DELAY", "_AMQ_DUPL_ID"),
    *("activemq.prefetchSize", "activemq.subscriptionName"),
)
_BY_FOLDED = {name.lower(): name for name in NAMES}
_FOLDED = tuple(_BY_FOLDED)


def restored(frame: Frame) -> Frame:
    """Return a legacy frame with the names in `NAMES` in their own spelling.

    A frame whose body is still to come is returned unchanged, for no other frame can stand for it.

    >>> restored(Frame("SEND", {"destination": "/queue/a", "jmsxgroupid": "g"}))
    <Frame SEND destination='/queue/a' JMSXGroupID='g'>
    """
    if not frame.has_any(*_FOLDED) or frame.body is None:
        return frame
    pairs = [(_BY_FOLDED.get(name, name), value) for name, value in frame.headers.pairs()]
    return Frame(frame.command, pairs, frame.body)
