"""Spelling: restores capitals in header names, which the legacy dialect folds to lower case.

A legacy session handles `restored` frames, so look-ups, stored messages and selectors know one spelling only.
"""

from __future__ import annotations

from stompcodec.codec import Frame

#: Every header name with a capital letter that the broker looks up in client frames.
NAMES = (
    *("JMSXGroupID", "JMSXGroupSeq", "AMQ_SCHEDULED_DELAY", "_AMQ_DUPL_ID"),
    *("activemq.prefetchSize", "activemq.subscriptionName", "activemq.redeliveryDelay"),
)
_BY_FOLDED = {name.lower(): name for name in NAMES}
_FOLDED = tuple(_BY_FOLDED)


def restored(frame: Frame) -> Frame:
    """Return a legacy frame in which the headers in `NAMES` have their original spelling.

    A frame whose body is still to come is returned unchanged, because the parser fills in that very object.

    >>> restored(Frame("SEND", {"destination": "/queue/a", "jmsxgroupid": "g"}))
    <Frame SEND destination='/queue/a' JMSXGroupID='g'>
    """
    if not frame.has_any(*_FOLDED) or frame.body is None:
        return frame
    pairs = [(_BY_FOLDED.get(name, name), value) for name, value in frame.headers.pairs()]
    return Frame(frame.command, pairs, frame.body)
