"""The receiver: a recorder in a thread, which fills the spool while Spark reads it; and the identity of a spool.

Everything acknowledged is in the spool, and whoever fills a spool holds its lock. `release` says what Spark is done
with: that may be deleted, and with ackMode=batch that is when it is acknowledged.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import re
import threading
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stompcodec.capture import CHAIN, Capture, CaptureBusyError, CaptureWriter
from stompcodec.capture.places import open_place
from stompcodec.client import Backoff, Client, connect
from stompcodec.client.dialects import is_login_refused, lacks_slash
from stompcodec.client.hub import apart
from stompcodec.client.recorder import Dedupe, Recorder, holder_of
from stompcodec.disk import PRIVATE, Access, access_of, replace
from stompcodec.errors import ConnectionLostError, ReceiptTimeoutError, RejectedError, StompError, StoreError
from stompcodec.spark.link import LiveOptions
from stompcodec.spark.reading.splits import open_index
from stompcodec.spec import Limits

log = logging.getLogger("stompcodec.spark")
#: Seconds that a recorder may need to release the spool after its Spark is gone.
_LOCK_WAIT = 10.0
#: Seconds during which a refused CONNECT is retried: a recorder that has just ended may still be logged in. A refused
#: passcode is not tried again.
_REFUSED = 3.0
_REFUSED_CLIENT_ID = 30.0
#: Seconds between attempts to connect, between checks of the spool, and for the recorder to end.
_PAUSE = 0.3
_LOOK = 1.0
_END = 10.0
#: Seconds that the broker has to take the acknowledgements before a query ends.
_FLUSH = 5.0
#: Seconds after which a connection counts as stable, even without new messages. One that breaks at the same message
#: again and again is useless.
_STABLE = 5.0
_FULL = (errno.ENOSPC, errno.EDQUOT)
#: Bytes and seconds after which a segment is sealed; only sealed ones can be deleted.
_SEGMENT = 128 * 2**20
_AGE = 3600.0


class Receiver:
    """Recorder of a broker's messages into a spool, from construction until `close`.

    It ends after `most` messages (None for no end), acknowledges on `release` with `by_release` if ackMode says so, and
    gives the spool a new identity with `anew`. Chains that it lacks begin at `begin` or behind. Raises CaptureBusyError
    if another process fills this spool, OptionError if the passcode cannot be read, StoreError if the spool cannot be
    written.
    """

    def __init__(
        self,
        options: LiveOptions,
        *,
        most: int | None = None,
        by_release: bool = True,
        anew: bool = False,
        begin: Mapping[str, int] | None = None,
    ) -> None:
        options.link.arguments()  # fails early if the passcode or certificates are missing
        self._options = options
        self._most = most
        self._by_release = by_release and options.ack_mode == "batch"
        numbers = range(options.subscriptions)
        self._segment = min(_SEGMENT, options.max_spool_bytes // (8 * len(numbers)))
        self._capture = _open_spool(options, self._segment, begin)
        self.identity = self._identified(anew)
        """Identity of the spool."""
        self._chains = {*self._capture.chains, CHAIN, *(f"{CHAIN}.{number}" for number in numbers[1:])}
        self._lock = threading.Lock()
        self._released: dict[str, int] = {}
        self._recorder: Recorder | None = None
        self._clients: list[Client] = []
        self._failure: BaseException | None = None
        self._refused: Exception | None = None
        self._lost_at: float | None = time.monotonic()
        self._up_at: float | None = None
        self._messages = 0
        self._paused = self._held = False
        self._drained = 0
        self._drain_until: float | None = None
        self._before: int | None = None  # bytes of the spool, without those of the recorder; None: not measured yet
        self._asked = False  # for room, in a full spool of which all is read
        self._looked = 0.0
        self._trouble = self._failed = ""
        self._failed_at = self._freed = 0
        self._stop = threading.Event()
        self._ready = threading.Event()
        self.begin = self.ends()
        """Ends of the chains before anything is received."""
        newest = {chain: end - 1 for chain, end in self.begin.items()}
        self._received_before = max(_times_of(options.spool_dir, newest), default=None)
        self._thread = threading.Thread(target=self._main, name="stompcodec-receiver", daemon=True)
        self._thread.start()

    def _identified(self, anew: bool) -> str:
        try:
            options = self._options
            return identify(options.spool_dir, anew=anew, access=access_of(group=options.spool_group))
        except StoreError:
            self._capture.close()
            raise

    # ---- called by Spark's thread ----
    def ends(self) -> dict[str, int]:
        """Return the end of each chain of the spool; everything before it is on disk."""
        ends = {chain: self._capture.end(chain) for chain in sorted(self._chains)}
        return {chain: end for chain, end in ends.items() if end}

    def release(self, offsets: Mapping[str, int]) -> None:
        """Note that Spark is done with everything below these offsets and will not ask for it again."""
        with self._lock:
            self._released = dict(offsets)
            recorder = self._recorder
        if recorder is not None:
            recorder.release(offsets)

    def flush(self) -> None:
        """Wait until the broker has the acknowledgements, or is unreachable."""
        for client in self._clients:
            with contextlib.suppress(StompError):
                client.ping(timeout=_FLUSH)

    def check(self) -> None:
        """Raise a StompError if the receiver failed, or had no connection for longer than `reconnectTimeout`."""
        if self._failure is not None:
            raise self._failure
        lost = self._lost_at
        if lost is not None and time.monotonic() - lost > self._options.reconnect_timeout:
            errors = [client.error for client in self._clients if client.error is not None]
            raise self._away(errors[0] if errors else self._refused)

    def _away(self, error: Exception | None) -> StompError:
        options = self._options
        where = ", ".join(map(str, options.link.addresses))
        return ConnectionLostError(
            f"no connection to {where} for {options.reconnect_timeout:g} s (option reconnectTimeout): {error}"
        )

    def wait(self, seconds: float) -> None:
        """Wait at most `seconds` until the subscriptions are active or have failed."""
        self._ready.wait(seconds)

    def drain(self) -> bool:
        """Wait until no more messages come, or enough have come, and pause; return True if a release may bring more."""
        options = self._options
        last = time.monotonic()
        if self._drain_until is None:
            self._drain_until = last + options.drain_timeout
        self._paused = False
        seen, before, over = -1, self._drained, False
        while self._thread.is_alive() and not over:
            self.check()
            count, now = self.count, time.monotonic()
            over = now >= self._drain_until or (options.max_frames is not None and count >= options.max_frames)
            if count != seen or not self._ready.is_set() or self._writing:
                seen, last = count, now
            elif now - last >= options.idle_timeout or self._used_up():
                break
            self._stop.wait(0.01)
        self._paused = True
        self.check()
        self._drained = self.count
        return self._by_release and not over and self._drained > before

    def resume(self) -> None:
        """Record again after `drain`."""
        self._paused = False

    @property
    def waits(self) -> bool:
        """True if acknowledgements, or room in the spool, wait for `release`."""
        recorder = self._recorder
        return self.stalled is not None or (self._by_release and recorder is not None and recorder.held > 0)

    @property
    def stalled(self) -> str | None:
        """Reason why nothing is written and acknowledged; None while all is well."""
        if self._failed:
            return self._failed
        return f"{self._options.spool_dir} is full (option maxSpoolBytes)" if self._held else None

    def metrics(self, begin: Mapping[str, int]) -> dict[str, Any]:
        """Return the metrics of the source for a query's progress; `begin` is the end of the last planned batch."""
        options, recorder = self._options, self._recorder
        if self._before is None:
            self._measure()
        last = recorder.last if recorder is not None and recorder.last is not None else self._received_before
        where = ", ".join(map(str, options.link.addresses))
        waiting = {chain: end - begin.get(chain, 0) for chain, end in self.ends().items() if end > begin.get(chain, 0)}
        oldest = _times_of(options.spool_dir, {chain: begin.get(chain, 0) for chain in waiting})
        return {
            "description": f"stomp: {', '.join(options.destination)} at {where}, spool {options.spool_dir}",
            "backlogBytes": sum(waiting.values()),
            "lagSeconds": 0.0 if not waiting else _since(min(oldest) if len(oldest) == len(waiting) else None),
            "spoolBytes": self._size,
            "unacknowledged": 0 if recorder is None else recorder.unacknowledged,
            "silenceSeconds": _since(last),
            "connected": self._lost_at is None,
            "stalled": self.stalled,
        }

    @property
    def _writing(self) -> bool:
        """True while messages that have come are being written."""
        recorder = self._recorder
        return recorder is not None and self.stalled is None and recorder.unacknowledged > recorder.held

    def _used_up(self) -> bool:
        """Return whether the broker has sent everything it can send without an ACK."""
        options, recorder = self._options, self._recorder
        most = options.prefetch * options.subscriptions * len(options.destination)
        return self._by_release and recorder is not None and recorder.held >= most

    @property
    def count(self) -> int:
        """Number of messages received."""
        recorder = self._recorder
        return 0 if recorder is None else recorder.messages + recorder.duplicates

    def close(self) -> dict[str, int]:
        """Stop recording and release the spool. Returns the end of each chain, as `ends` does."""
        self._stop.set()
        with self._lock:
            recorder = self._recorder
        if recorder is not None:
            recorder.stop()
        self._thread.join(_END)
        ends = self.ends()
        if self._thread.is_alive():
            log.error("%s: the recorder does not end: the spool stays locked", self._options.spool_dir)
            return ends
        try:
            self._capture.close()
        except StoreError as error:
            log.warning("%s", error)  # everything acknowledged is on disk
        return ends

    # ---- the thread ----
    def _main(self) -> None:
        try:
            with contextlib.ExitStack() as stack:
                self._record(stack)
        except StompError as error:
            if not self._stop.is_set():
                self._failure = error
        except Exception as error:  # a bug of ours must end the query
            self._failure = error
        finally:
            self._ready.set()

    def _record(self, stack: contextlib.ExitStack) -> None:
        options = self._options
        share = options.subscriptions
        for number in range(share * len(options.destination)):
            client = self._connected(number)
            if client is None:
                return
            self._clients.append(stack.enter_context(client))
        recorder = Recorder(
            self._clients,
            self._capture,
            dedupe=Dedupe.of(options.dedupe),
            acknowledge="released" if self._by_release else "synced",
            most=self._most,
            on_turn=self._on_turn,
            on_trouble=self._on_trouble,
            hold=self._hold,
            expect=options.expect_every,
        )
        with self._lock:
            self._recorder = recorder
            recorder.release(self._released)
        for number, destination in enumerate(options.destination):
            if lacks_slash(destination, self._clients[0].dialect):
                log.warning("%s has no leading slash, so it is not /%s", destination, destination)
            recorder.subscribe(
                destination,
                clients=self._clients[number * share : (number + 1) * share],
                prefetch=options.prefetch,
                selector=options.selector,
                durable=options.subscription_name,
                headers=options.subscribe_headers,
            )
        self._lost_at = None
        self._ready.set()
        if self._stop.is_set():
            recorder.stop()
        recorder.run()
        if not self._stop.is_set() and recorder.messages != self._most:
            raise ConnectionLostError("the subscriptions have ended")

    def _connected(self, number: int) -> Client | None:
        """Connect, with retries as long as they make sense; None if the receiver is to end."""
        options = self._options
        started = time.monotonic()
        while not self._stop.is_set():
            try:
                return self._connect(number)
            except RejectedError as error:  # also for a name that is still in use
                if is_login_refused(error):
                    raise
                failure: StompError = error
                patience = _REFUSED if options.client_id is None else _REFUSED_CLIENT_ID
            except (ConnectionLostError, ReceiptTimeoutError) as error:
                if self._refused is None:
                    most = options.reconnect_timeout
                    log.warning("%s; the source tries again for %g s (option reconnectTimeout)", error, most)
                self._refused, failure, patience = error, self._away(error), options.reconnect_timeout
            if time.monotonic() - started >= min(patience, options.reconnect_timeout):
                raise failure
            self._stop.wait(_PAUSE)
        return None

    def _connect(self, number: int) -> Client:
        options, link = self._options, self._options.link
        client_id = options.client_id and (f"{options.client_id}-{number}" if number else options.client_id)
        arguments = link.arguments()
        if arguments["passcode"] is not None:
            arguments["passcode"] = lambda: link.passcode() or ""  # it may change
        with apart():
            return connect(
                list(link.addresses),
                client_id=client_id,
                limits=Limits(max_body=options.file.max_body),
                lenient=True,  # an odd frame must not be redelivered for ever
                reconnect=Backoff(),
                close_timeout=2.0,
                **arguments,
            )

    # ---- called by the recorder ----
    def _on_turn(self) -> None:
        """Update the state of the connection; called a few times per second."""
        now = time.monotonic()
        messages = 0 if self._recorder is None else self._recorder.messages
        if self._failed and messages > self._failed_at:
            self._failed, self._freed = "", 0  # writing works again
        if any(client.state != "connected" for client in self._clients):
            self._up_at = None
            if self._lost_at is None:
                self._lost_at, self._messages = now, messages
        elif self._up_at is None:
            self._up_at = now
        elif messages > self._messages or now - self._up_at >= min(_STABLE, self._options.reconnect_timeout / 2):
            self._lost_at = None
        if not self._looked or now - self._looked >= _LOOK:
            self._tidy()

    def _tidy(self) -> None:
        """Delete what Spark is done with: after `retain`, or earlier if the spool is too large."""
        self._looked = time.monotonic()
        try:
            self._delete(round(time.time() * 1e6))
        except StoreError as error:
            self._on_trouble(error)

    def _delete(self, now: int) -> None:
        options = self._options
        self._capture.roll(now)
        with self._lock:
            released = self._released
        below = self._margin(released)
        self._capture.retain(now, seconds=options.retain, below=below)
        self._measure()
        if self._size >= options.max_spool_bytes:
            self._capture.retain(now, octets=options.max_spool_bytes * 3 // 4 // len(self._chains), below=below)
            self._measure()

    def _measure(self) -> None:
        self._before = _size_of(self._options.spool_dir) - (0 if self._recorder is None else self._recorder.octets)

    @property
    def _size(self) -> int:
        return (self._before or 0) + (0 if self._recorder is None else self._recorder.octets)

    def _hold(self) -> bool:
        """Return whether the spool is full of unread frames."""
        if self._paused:
            return True
        held = self._size >= self._options.max_spool_bytes
        self._asked = self._asked and held
        if held and self._options.spool_archive is None:  # else only what has moved makes room
            with self._lock:
                held = any(end > self._released.get(chain, 0) for chain, end in self.ends().items())
            if not held and not self._asked:
                self._asked, self._looked = True, 0.0
            if not held and not self._looked:
                return True  # until `_on_turn` has made room, while no thread writes
        if held and not self._held:
            log.warning("%s is full (option maxSpoolBytes): the broker keeps what it has", self._options.spool_dir)
        self._held = held
        return held

    def _on_trouble(self, error: Exception) -> None:
        """Log a problem that will be retried, once."""
        if isinstance(error, StoreError):
            self._failed = str(error)
            self._failed_at = 0 if self._recorder is None else self._recorder.messages
            if _is_full(error):
                self._free()
        if str(error) != self._trouble:
            self._trouble = str(error)
            log.warning("%s; nothing is acknowledged until it can be", error)

    def _free(self) -> None:
        """Make room on a full disk: delete what Spark is done with; the second time also what may be redelivered."""
        now = round(time.time() * 1e6)
        with self._lock:
            released = self._released
        below = self._margin(released) if self._freed == 0 else released
        self._freed += 1
        try:
            count = self._capture.retain(now, octets=0, below=below)
            if below is released:
                self._capture.roll(now, below=released)  # so that the next call can delete the open segment
        except StoreError as error:
            log.warning("%s", error)
            return
        if count:
            log.warning("%s: the disk is full: deleted %d segments that are done", self._options.spool_dir, count)

    def _margin(self, released: Mapping[str, int]) -> dict[str, int]:
        """Return what may be deleted. The last bytes of each chain stay: their messages may be redelivered."""
        return {chain: min(offset, self._capture.end(chain) - self._segment) for chain, offset in released.items()}


def _open_spool(options: LiveOptions, segment: int, begin: Mapping[str, int] | None) -> CaptureWriter:
    """Open the spool, after waiting for a previous holder to release it."""
    until = time.monotonic() + _LOCK_WAIT
    while True:
        try:
            return CaptureWriter(
                options.spool_dir,
                single=False,
                segment_octets=segment,
                segment_seconds=max(60.0, min(_AGE, options.retain / 4)),
                access=access_of(group=options.spool_group),
                holder=_holder(options),
                archive=options.spool_archive,
                begin=begin,
            )
        except CaptureBusyError as error:
            if time.monotonic() >= until:
                raise CaptureBusyError(
                    f"{options.spool_dir}: another query or recorder fills this spool (give this one a spoolDir of "
                    "its own, or read the same spool by the format stompfile)",
                    error.holder,
                ) from None
            time.sleep(0.1)


def _holder(options: LiveOptions) -> str:
    """Return a description of this query for others that want the spool. A source does not know its query's id."""
    name = "a query" if options.query_name is None else f"the query {options.query_name!r:.100}"
    what, where = ",".join(options.destination), ", ".join(map(str, options.link.addresses))
    return holder_of(f"{name} that reads {what:.300} from {where:.300}", time.time())


def _is_full(error: Exception) -> bool:
    cause = error.__cause__
    return isinstance(cause, OSError) and cause.errno in _FULL


def _times_of(folder: str, places: Mapping[str, int]) -> list[float]:
    """Return when the frames at offsets of chains of a spool were received, in seconds since 1970, if it is known."""
    times = []
    with contextlib.suppress(OSError, StoreError):  # who reads the frames tells of these
        segments = Capture(folder).segments(after=places)
        held = {each.chain: each for each in segments if each.base <= places.get(each.chain, -1)}  # the last of each
        for chain, segment in held.items():
            index = open_index(segment.path, segment.base, single=False)
            if index is not None:
                with contextlib.closing(index):
                    row = index.find(places[chain] - segment.base)
                    times += [int(rows.times[0]) for rows in index.rows(row, 1) if len(rows.times)]
    return [time / 1e6 for time in times if time > 0]


def _since(moment: float | None) -> float | None:
    return None if moment is None else round(max(0.0, time.time() - moment), 3)


def _size_of(folder: str) -> int:
    """Return the total size of the files in a folder, in bytes."""
    total = 0
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                total += entry.stat().st_size
    return total


# ---- identity: an id in the spool's folder and in every offset, so that a checkpoint never reads another spool ----
#: An offset as Spark keeps it: chain name -> position, and under `_KEY` the identity of the spool.
Offset = dict[str, "int | str"]
#: Key of the identity in an offset. Names of chains do not begin with "#".
_KEY = "#spool"
_FILE = "spool-id"


def identity_of(folder: str) -> str | None:
    """Return the identity of a spool; None if it has none or does not exist. Raises StoreError if it cannot be read."""
    path = Path(folder, _FILE)
    try:
        with open_place(path) as stream:
            text = str(stream.read(), "ascii", "replace").strip()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror} (grant access to the spool)") from error
    if not re.fullmatch(r"[0-9a-f]{32}", text):
        raise StoreError(f"{path} is damaged: it must hold 32 hex digits (put it back, or take a new spoolDir)")
    return text


def identify(folder: str, *, anew: bool = False, access: Access = PRIVATE) -> str:
    """Return the identity of a locked spool. One without, or any with `anew`, gets a new one."""
    found, path = None if anew else identity_of(folder), Path(folder, _FILE)
    if found is not None and path.exists():
        return found
    made = found or uuid.uuid4().hex
    try:
        replace(path, f"{made}\n", access)
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror} (free space, or grant access)") from error
    return made


def stamped(positions: Mapping[str, int], identity: str) -> Offset:
    """Return an offset: the identity of a spool, and positions in its chains."""
    offset: Offset = {_KEY: identity}
    offset.update(sorted(positions.items()))
    return offset


def positions_of(offset: Mapping[str, int | str]) -> tuple[str | None, dict[str, int]]:
    """Return the identity in an offset, None if an earlier version wrote it, and the position in each chain."""
    identity = offset.get(_KEY)
    positions = {chain: int(position) for chain, position in offset.items() if not chain.startswith("#")}
    return (None if identity is None else str(identity)), positions
