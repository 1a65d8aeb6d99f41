"""The bridge: it takes messages from the source, has the carrier send them to the target, and then acknowledges them.

Invariant: a message is acknowledged at the source only when the target has confirmed it, or when it is in the dead
letters of the source. So at least one of the brokers always has each message, however a broker or the bridge ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable

from stompcodec.arguments import check_fields, checks
from stompcodec.bridge.carrier import PATIENCE, Carrier, Entry, Tally, error_frame, is_passing, reason_of
from stompcodec.bridge.headers import PATH, SEQ, Hop, circle, dead_letter, idempotency_key, may_be_one, same_broker
from stompcodec.bridge.mapping import Way, is_topic
from stompcodec.bridge.sources import (
    GIVERS,
    BridgeError,
    End,
    Lane,
    Request,
    UnsuitableError,
    dialect_of,
    is_advisory,
    is_empty,
    is_one_broker,
    lanes_of,
    leave,
    listed,
    unless,
)
from stompcodec.client import AsyncClient, AsyncMessage, RejectedError
from stompcodec.client.backoff import Expected
from stompcodec.client.handlers import key_of
from stompcodec.errors import FrameError, LocalProtocolError, ReceiptTimeoutError, RemoteProtocolError, StompError

#: The most keys of carried messages to remember. They identify messages that the source delivers again.
_KNOWN = 20_000
#: Seconds between two checks whether the bridge has come to its end.
_TURN = 0.1
#: The most subscriptions at a time, when those before can be brought to an end. Our broker allows 1000 by default.
_MOST_LANES = 500
#: Seconds between two requests for the list of destinations.
_LIST = 5.0
#: Seconds for the receipt of a SUBSCRIBE, which may have to wait behind messages.
_CONFIRMED = 300.0
#: Seconds to wait at the end for the receipts of what was sent.
_GRACE = 15.0
#: The words of our broker's ERROR for a session with too many subscriptions.
_TOO_MANY = "too many subscriptions"
#: Seconds for a message from one end to arrive at the other, if both are one broker.
_PROBE = 1.0
#: Seconds without a message after which the source counts as empty; and after which it is asked, if it can tell.
_IDLE, _IDLE_ASKED = 3.0, 0.3


class _Session:
    """One connection to the source."""

    def __init__(self, client: AsyncClient) -> None:
        self.client = client
        self.giver = GIVERS[dialect_of(client)]
        self.ended = False
        self.lanes: dict[str, asyncio.Task[None]] = {}
        self.subscribed: list[Lane] = []


@checks()
class Bridge:
    """A bridge between two brokers: it moves messages, or mirrors them.

    Args:
        source, target: the brokers.
        request: what to take.
        way: how to carry it.
        on_turn: called about ten times per second.
        on_trouble: called with an end and its error, or with None and a text, for the user to see.

    Raises:
        ValueError: both are the same broker, or have the same name.

    >>> from stompcodec.bridge import Mapping
    >>> from stompcodec.client import connect
    >>> from stompcodec.testing import StompBroker
    >>> with StompBroker() as one, StompBroker() as other:
    ...     with connect(one.url) as client:
    ...         client.send("/queue/a", b"hello", receipt=True)
    ...     request = Request(Mapping.parse(["/queue/a=/queue/b"]), drain=True)
    ...     tally = asyncio.run(Bridge(End(one.url), End(other.url), request).run())
    ...     with connect(other.url) as client:
    ...         tally.carried, client.subscribe("/queue/b").get(5).body
    (1, b'hello')
    """

    def __init__(
        self,
        source: End,
        target: End,
        request: Request,
        way: Way | None = None,
        *,
        on_turn: Callable[[], object] = lambda: None,
        on_trouble: Callable[[End | None, Exception | str], object] = lambda end, error: None,
    ) -> None:
        check_fields(request)
        if same_broker(source.addresses, target.addresses):
            raise ValueError(f"FROM and TO are the same broker, {target}: name two different ones")
        if source.name == target.name:
            raise ValueError(
                f"FROM and TO have the same name, {source.name}: loops are recognised by names, so choose two"
            )
        self.source = source
        self.target = target
        self.request = request
        self.way = way = Way() if way is None else way
        check_fields(way)
        self.tally = Tally()
        """The counts so far."""
        self._on_turn = on_turn
        self._on_trouble = on_trouble
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()  # it was stopped twice
        self._loop: asyncio.AbstractEventLoop | None = None
        self._carrier = Carrier(self.tally, way.batch, way.most_refused, self._outcome, self._dropped)
        self._session: _Session
        self._ready = False
        self._open: dict[str, Entry] = {}  # by key
        self._known: OrderedDict[str, None] = OrderedDict()
        self._outcomes: deque[tuple[Entry, str | None]] = deque()
        self._news = asyncio.Event()
        self._settling = False
        self._seen: dict[str, int] = {}  # the place up to which a queue was browsed
        self._taken = 0
        self._active = 0.0  # when a message was taken last
        self._asked = 0.0
        self.expected = Expected(way.expect)
        """What is expected of the source: `silence` is the seconds without a message."""

    def stop(self) -> None:
        """End in good order: messages that were sent get their outcome, and the others stay. Any thread may call it.

        A second call ends the bridge at once: messages without an outcome stay at the source, and the target may have
        them, too.
        """
        loop = self._loop
        if loop is None:
            self._stop.set()
        else:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._note_stop)

    def _note_stop(self) -> None:
        (self._hurry if self._stop.is_set() else self._stop).set()

    @property
    def is_ready(self) -> bool:
        """True while all subscriptions at the source are confirmed."""
        if not self._ready or self._session.ended:
            return False
        return len(self._session.subscribed) == len(self._session.lanes) > 0

    @property
    def waiting(self) -> int:
        """Messages that were taken and have no outcome yet."""
        return len(self._carrier) + len(self._outcomes)

    async def run(self) -> Tally:
        """Carry until `stop` is called, the source is empty (`drain`), or `most` messages are carried.

        Raises:
            UnsuitableError: the source cannot do what the map asks for, or nothing matches. Nothing was carried.
            BridgeError: it cannot go on; the message says why.
            StompError: an end cannot be reached at first, or refuses the login or a subscription.
            SilentFeedError: no message came for `Way.expect`; those before have their outcome.
        """
        self._loop = asyncio.get_running_loop()
        begun = await unless(self._stop, self._begin())
        while begun is not None:
            lanes, target = begun
            most = _MOST_LANES if self.request.drain else len(lanes)
            await self._carry(lanes[:most], target)
            if len(lanes) <= most or self._has_enough:
                break
            begun = await unless(self._stop, self._begin_again(lanes[most:]))
        return self.tally

    async def _begin(self) -> tuple[list[Lane], AsyncClient]:
        """Connect to both ends, and return the subscriptions and the client of the target."""
        self._session = _Session(await self.source.open())
        self._ready = True
        try:
            return await lanes_of(self._session.client, self.request), await self._open_target()
        except BaseException:
            await leave(self._session.client, self._hurry)
            raise

    async def _begin_again(self, lanes: list[Lane]) -> tuple[list[Lane], AsyncClient]:
        """Connect to both ends for the next subscriptions."""
        self._session = _Session(await self.source.reopen(self._on_trouble))
        try:
            return lanes, await self.target.reopen(self._on_trouble)
        except BaseException:
            await leave(self._session.client, self._hurry)
            raise

    @property
    def _has_enough(self) -> bool:
        """True if the bridge has taken as many messages as it may."""
        return self.way.most is not None and self._taken >= self.way.most

    async def _carry(self, lanes: list[Lane], target: AsyncClient) -> None:
        self._active = time.monotonic()
        works = [self._take_all(lanes), self._send_all(target), self._settle_all()]
        tasks = [asyncio.create_task(work) for work in works]
        try:
            await unless(self._hurry, self._watch(tasks))
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await leave(self._session.client, self._hurry)  # behind its receipt no ACK is open

    async def _open_target(self) -> AsyncClient:
        """Return a connection to the target, or raise UnsuitableError if that is the source."""
        client = await self.target.open()
        if not may_be_one(self.source.addresses, self.target.addresses):
            return client
        kind = dialect_of(client)
        if kind == self._session.giver.name:
            if await is_one_broker(self._session.client, client, 0.0 if kind == "stompcodec" else _PROBE):
                await leave(client, self._hurry)
                raise UnsuitableError(
                    f"FROM and TO are the same broker: a message to {self.target} arrived from {self.source}"
                )
            if self._session.client.state == "closed":  # it refused the probe
                self._session = _Session(await self.source.open())
            if client.state == "closed":
                client = await self.target.open()
        return client

    async def _watch(self, tasks: list[asyncio.Task[None]]) -> None:
        """Wait for the end, or for the failure of a task."""
        take, *_ = tasks
        drained = False
        while not self._stop.is_set():
            running = [task for task in tasks if not task.done()]
            done, _ = await asyncio.wait(running, timeout=_TURN, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            self._on_turn()
            self.expected.check(self._active, time.monotonic(), busy=self.waiting > 0)
            if not self.waiting if take.done() else await self._is_over():
                drained = self.request.drain and not self.request.mirror and self.request.selector is None
                break
        self._session.ended = self._session.ended or not take.done()
        for task in self._session.lanes.values():
            task.cancel()
        take.cancel()
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._finish(tasks[1:]), _GRACE)
        if drained and self._session.giver.lists:
            with contextlib.suppress(StompError):
                self.tally.left = (self.tally.left or 0) + await self._left()
        self._on_turn()

    async def _finish(self, tasks: list[asyncio.Task[None]]) -> None:
        """Wait until all sent messages have their outcome, and the source was told."""
        while len(self._carrier.sent) or self._outcomes or self._settling or self._must_send():
            done, _ = await asyncio.wait(tasks, timeout=0.02, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()

    def _must_send(self) -> bool:
        """Return whether unsent messages exist only here: they needed no ACK, so the source has forgotten them."""
        return any(not entry.is_stale for entry in self._carrier.unsent)

    # ---- taking ----

    async def _take_all(self, lanes: list[Lane]) -> None:
        """Take messages over one connection after the other; return when all subscriptions have ended."""
        while True:
            session = self._session
            try:
                await self._read(session, lanes)
                return
            except BridgeError:
                raise
            except (StompError, OSError) as error:
                session.ended = True
                self._check_size(error)
                if _TOO_MANY in str(error):
                    raise BridgeError(
                        f"FROM does not allow {len(lanes)} subscriptions at a time: map fewer destinations in each of "
                        "several bridges, or let it allow more (sessions.max_subscriptions of our broker)"
                    ) from error
                self.source.error = error
                self._on_trouble(self.source, error)
                self._carrier.forget_stale()
                await session.client.close(0.5)
            client = await self.source.reopen(self._on_trouble)
            self._session = _Session(client)
            lanes = [*lanes]

    def _check_size(self, error: BaseException) -> None:
        """Raise BridgeError if a message is too large, since the source would deliver it for ever."""
        cause = error.__cause__ if isinstance(error, RemoteProtocolError) else None
        if isinstance(cause, FrameError) and cause.limit:
            most = f" ({self.source.max_body} bytes)" if cause.limit == "max_body" else ""
            names = list(self._session.lanes)
            where = names[0] if len(names) == 1 else f"one of {len(names)} destinations"
            raise BridgeError(
                f"a message of {where} exceeds {cause.limit}{most}: it stays at FROM, first in its queue. "
                f"{'Raise --max-body, or consume' if most else 'Consume'} it with another client"
            ) from error

    async def _read(self, session: _Session, lanes: list[Lane]) -> None:
        """Subscribe, and wait until the connection is lost or all subscriptions have ended."""
        try:
            for lane in lanes:
                self._start(session, lane)
            while True:
                done, _ = await asyncio.wait(session.lanes.values(), timeout=_LIST, return_when=asyncio.FIRST_EXCEPTION)
                for task in done:
                    task.result()
                if len(done) == len(session.lanes):
                    return
                if session.giver.lists and not self.request.drain and not self._carrier.is_full:
                    for lane in await self._new_lanes(session):
                        lanes.append(lane)
                        self._start(session, lane)
        finally:
            await self._end_lanes(session)

    async def _new_lanes(self, session: _Session) -> list[Lane]:
        if self.request.names is not None or not any(rule.is_pattern for rule in self.request.mapping.rules):
            return []
        try:
            found = await lanes_of(session.client, self.request)
        except (UnsuitableError, ReceiptTimeoutError):  # none of them is there now, or the answer waits behind messages
            return []
        return [lane for lane in found if lane.destination not in session.lanes]

    def _start(self, session: _Session, lane: Lane) -> None:
        session.lanes[lane.destination] = asyncio.create_task(self._read_lane(session, lane))

    async def _end_lanes(self, session: _Session) -> None:
        for task in session.lanes.values():
            task.cancel()
        await asyncio.gather(*session.lanes.values(), return_exceptions=True)

    async def _read_lane(self, session: _Session, lane: Lane) -> None:
        try:
            subscription = session.client.subscribe(
                lane.destination,
                ack=lane.ack,
                prefetch=None if lane.ack == "auto" else self.way.prefetch,
                selector=lane.selector,
                durable=lane.durable,
                headers=lane.subscribe_headers(self._seen.get(lane.destination, 0)),
                timeout=_CONFIRMED,
            )
            await subscription
        except RejectedError as error:
            if _TOO_MANY in str(error):
                raise
            raise BridgeError(f"the source refused a subscription: {reason_of(error)}") from error
        except (FrameError, LocalProtocolError) as error:
            if session.client.state == "closed":
                raise
            raise BridgeError(f"{lane.destination} cannot be subscribed to: {error}") from error
        session.subscribed.append(lane)
        self.source.succeeded()
        async for message in subscription:
            self._active = time.monotonic()
            if lane.browse and message.get("browser") == "end":
                return
            while self._has_enough:
                await asyncio.sleep(_TURN)
            await self._take(session, lane, message)

    async def _take(self, session: _Session, lane: Lane, message: AsyncMessage) -> None:
        """Take a message, unless it was taken before."""
        place = message.get(SEQ) if lane.browse else None
        destination = lane.destination if lane.target is not None else message.destination
        explicit = lane.ack != "auto"
        ident = message.get(self.way.key) if self.way.key else message.identity
        key = None if ident is None else idempotency_key(self.source.name, destination, ident)
        target = lane.target or self.request.mapping.target_of(destination) or destination
        entry = Entry(message, session, target, key, f"bridge-{uuid.uuid4().hex}")
        if (explicit and self._is_known(entry)) or (lane.target is None and is_advisory(destination)):
            return
        self._taken += 1
        loop = circle(message.get(PATH), self.source.name, self.target.name)
        if loop is not None:
            if explicit and not self.request.mirror:
                self._carrier.refuse(entry, loop)
            else:
                self.tally.looped += 1
                self._note(entry, None)
            return
        if key is not None:
            self._open[key] = entry
        await self._carrier.take(entry)
        if place is not None and place.isdecimal():
            self._seen[lane.destination] = int(place)

    def _is_known(self, entry: Entry) -> bool:
        """Return whether a message was carried before, or is on its way: then its new delivery is acknowledged, too."""
        if entry.key is None:
            return False
        before = self._open.get(entry.key)
        if before is not None and before.session is not entry.session:
            before.message, before.session = entry.message, entry.session
            return True
        if before is None and entry.key not in self._known:
            return False
        self.tally.again += 1
        self._note(entry, None)
        return True

    # ---- sending ----

    async def _send_all(self, client: AsyncClient) -> None:
        while True:
            hop = Hop(
                self.source.name,
                self._session.giver.name,
                dialect_of(client),
                client.version or "1.2",
                self.request.mapping.target_of,
                self.way.persistent,
                self.way.text,
            )
            before = self.tally.carried
            try:
                await self._carrier.run(client, hop)
            except BridgeError:
                raise
            except (StompError, OSError) as error:
                self.target.error = error
                self._on_trouble(self.target, error)
            finally:
                await client.close(0.0 if self._hurry.is_set() else 1.0)
            if self.tally.carried > before:
                self.target.succeeded()
            client = await self.target.reopen(self._on_trouble)

    # ---- outcomes ----

    def _outcome(self, entry: Entry, reason: str | None) -> None:
        """Note that a message has its outcome: the target has it, or refused it for this reason."""
        self._note(entry, reason)
        if reason is None and entry.key is not None:
            self._known[entry.key] = None
            while len(self._known) > _KNOWN:
                self._known.popitem(last=False)
        self._close(entry)

    def _dropped(self, entry: Entry) -> None:
        """Note that a message was not sent, and will be delivered again."""
        self._taken -= 1
        self._close(entry)

    def _note(self, entry: Entry, reason: str | None) -> None:
        self._outcomes.append((entry, reason))
        self._news.set()

    def _close(self, entry: Entry) -> None:
        if entry.key is not None and self._open.get(entry.key) is entry:
            del self._open[entry.key]

    async def _settle_all(self) -> None:
        """Tell the source about outcomes, in their order."""
        while True:
            if not self._outcomes:
                self._news.clear()
                await self._news.wait()
            self._settling = True
            entry, reason = self._outcomes.popleft()
            if reason:
                await self._bury(entry, reason)
            else:
                await self._acknowledge([entry, *self._next_carried()])
            self._settling = False

    def _next_carried(self) -> list[Entry]:
        """Return further carried messages, for a transaction of ACKs."""
        entries: list[Entry] = []
        while self._outcomes and not self._outcomes[0][1] and len(entries) + 1 < max(self.way.batch, 100):
            entries.append(self._outcomes.popleft()[0])
        return entries

    async def _acknowledge(self, entries: Iterable[Entry]) -> None:
        """Acknowledge messages. Those of a lost connection are delivered again, and recognised by their keys."""
        session = self._session
        current = [entry for entry in entries if entry.message.subscription.explicit and entry.session is session]
        with contextlib.suppress(StompError):
            if self.way.batch and session.giver.transacted_acks and len(current) > 1:
                async with session.client.transaction(timeout=PATIENCE) as transaction:
                    for entry in current:
                        await transaction.ack(entry.message)
                return
            for entry in current:
                await entry.message.ack()

    async def _bury(self, entry: Entry, reason: str) -> None:
        """Move a message to the dead letters of the source, or raise BridgeError if that is refused, too."""
        message, client = entry.message, self._session.client
        self._on_trouble(None, f"{message.destination} {message.id}: {reason}")
        if not message.subscription.explicit or entry.session is not self._session:
            self.tally.refused += not message.subscription.explicit
            self._taken -= message.subscription.explicit
            return
        to, link = self.way.dead_letter, message.subscription.link
        dialect = link.core.link.dialect
        letter = dead_letter(message.headers, entry.target, reason, self._session.giver.name)
        pairs = [("destination", to), *letter, *([] if is_topic(to) else dialect.queue_type)]
        try:
            if self._session.giver.transacted_acks:
                async with client.transaction(timeout=PATIENCE) as transaction:
                    await link.copy(message, pairs, transaction=transaction)
                    await transaction.ack(message)
            else:
                pairs += key_of(message, dialect, to, client.options.client_id)
                await link.copy(message, pairs, PATIENCE)
                await message.ack()
        except StompError as error:
            said = error_frame(error)
            if said is None or is_passing(said):  # the connection was lost: it comes again
                self._taken -= 1
                return
            raise BridgeError(
                f"{to}, the destination for refused messages, was refused by the source: "
                f"{reason_of(said)} (name another one)"
            ) from error
        self.tally.refused += 1

    # ---- the end ----

    async def _is_over(self) -> bool:
        """Return whether there is nothing left to do."""
        if self._has_enough and not self.waiting:
            return True
        if not self.request.drain or not self.is_ready or self.waiting:
            return False
        idle, limit = time.monotonic() - self._active, self.way.idle or _IDLE
        giver = self._session.giver
        asked = giver.browse and not (giver.lists and self.request.selector)  # its counts know no selector
        if idle < (min(limit, _IDLE_ASKED) if asked else limit) or time.monotonic() - self._asked < _IDLE_ASKED:
            return False
        if not asked:
            return True
        self._asked = time.monotonic()
        try:
            return not await self._has_more() or idle >= 3 * limit  # those that are not delivered count for a while
        except BridgeError:  # the source cannot tell
            return idle >= limit
        except StompError:
            return False

    async def _has_more(self) -> bool:
        """Return whether the source has messages left, or raise StompError if it could not be asked."""
        session = self._session
        if session.giver.lists:
            return bool(await self._left())
        lanes = [lane for lane in session.subscribed if not is_topic(lane.destination)]
        return not all([await is_empty(session.client, lane) for lane in lanes])

    async def _left(self) -> int:
        """Return the number of messages in the queues that are carried, at our broker. Raises as `_has_more`."""
        session, counts = self._session, dict[str, int]()
        for rule in self.request.mapping.rules:
            counts.update(await listed(session.client, rule.source))
        return sum(counts.get(lane.destination, 0) for lane in session.subscribed)
