"""Where dead letters go back to: what the broker says counts, and what a header says only if the user names it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from stompcodec.cli.queues.carrying import Aim
from stompcodec.cli.queues.headers import Origin, origin_of
from stompcodec.cli.queues.kinds import Kind
from stompcodec.cli.screen import printable

if TYPE_CHECKING:
    from stompcodec.client import Message

#: Queues that are listed, and that are counted each.
MOST_LISTED, _MOST_COUNTED = 20, 1000
#: Why letters stay.
_UNKNOWN = "their headers do not name a queue that they came from (name one with --to)"
_CLAIMED = "any sender could have written where they came from (name their queue with --only, or one with --to)"
_MARK = " (as a header says, which any sender could have written)"
#: Where letters beyond the counted queues came from.
_OTHERS = Origin(None)


class Returning:
    """Where the dead letters of a queue go back to.

    Args:
        letters: the queue they are in.
        only: a pattern with stars: other letters are not meant, and these are trusted to come from there.
    """

    def __init__(self, letters: str, only: str | None) -> None:
        self._letters = letters
        self._only = None if only is None else re.compile(".*".join(map(re.escape, only.split("*"))), re.DOTALL)
        #: Queues that only headers name, and that the user has seen and agreed to.
        self.agreed: set[str] = set()
        #: Letters seen by `survey` by their origin, and their bytes.
        self._seen: Counter[Origin] = Counter()
        self._octets: Counter[Origin] = Counter()

    def aim(self, message: Message, kind: Kind) -> Aim:
        """Return where a letter goes."""
        return self._aim(origin_of(message, self._letters, kind))

    def _aim(self, origin: Origin) -> Aim:
        if origin.queue is None:
            return Aim(None, _UNKNOWN)
        if self._only is not None:
            return Aim(origin.queue) if self._only.fullmatch(origin.queue) else Aim(None)
        return Aim(origin.queue) if origin.is_proven or origin.queue in self.agreed else Aim(None, _CLAIMED)

    def survey(self, messages: Iterable[Message], kind: Kind) -> None:
        """Look at letters that are to be sent back."""
        for message in messages:
            origin = origin_of(message, self._letters, kind)
            if origin not in self._seen and len(self._seen) >= _MOST_COUNTED:
                origin = _OTHERS
            self._seen[origin] += 1
            self._octets[origin] += len(message.body)

    def staying(self, refused: Iterable[str] = ()) -> tuple[int, int]:
        """Return how many of the surveyed letters stay, and their bytes, if these queues refuse theirs."""
        stay = [origin for origin in self._seen if (queue := self._aim(origin).queue) is None or queue in refused]
        return sum(self._seen[origin] for origin in stay), sum(self._octets[origin] for origin in stay)

    def outcome(self) -> tuple[int, Counter[str]]:
        """Return how many of the surveyed letters would go, and how many would stay by the reason."""
        going, stays = 0, Counter[str]()
        for origin, number in self._seen.items():
            queue, why = self._aim(origin)
            going += number if queue is not None else 0
            if why is not None:
                stays[why] += number
        return going, stays

    @property
    def has_claims(self) -> bool:
        """True if only a header says where some of the surveyed letters came from."""
        return any(not origin.is_proven for origin, _ in self._known())

    def listed(self) -> Iterator[str]:
        """Yield a line for each queue that surveyed letters came from, the most frequent first."""
        known = self._known()
        for origin, number in known[:MOST_LISTED]:
            yield f"  {number:,} to {printable(str(origin.queue))}{'' if origin.is_proven else _MARK}"
        if len(known) > MOST_LISTED:
            yield f"  {sum(number for _, number in known[MOST_LISTED:]):,} to other queues"

    def agree(self) -> None:
        """Trust the headers that name a listed queue."""
        self.agreed.update(str(origin.queue) for origin, _ in self._known()[:MOST_LISTED])

    def _known(self) -> list[tuple[Origin, int]]:
        """Return the queues that letters came from, if these are meant, and how many did."""
        seen = self._seen.most_common()
        return [pair for pair in seen if pair[0].queue is not None and self._aim(pair[0]) != Aim(None)]
