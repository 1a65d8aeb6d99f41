"""stompcodec browse, move, purge, dlq: the messages of a queue shown, moved, removed; and dead letters sent back."""

from __future__ import annotations

import json
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import click

from stompcodec.cli.app import INTERRUPTED, Verbs
from stompcodec.cli.connecting import (
    broker_options,
    connected,
    lenient_option,
    opening,
    passing_over,
    reporting_errors,
    text_option,
    warn_of_missing_slash,
)
from stompcodec.cli.inputs import complain, option_group, time_option
from stompcodec.cli.looking import (
    Interrupted,
    Kind,
    Looking,
    Origin,
    facts,
    is_claimed,
    is_queue,
    kept,
    kind_of,
    letter_table,
    listed,
    look,
    management_of,
    message_table,
    origin_of,
    view_options,
)
from stompcodec.cli.screen import StatusLine, cut, pace_of, pad, printable, screen
from stompcodec.cli.streams import stop_on_signals
from stompcodec.errors import ConnectionLostError, FrameError, ReceiptTimeoutError, RejectedError, StompError
from stompcodec.shown import plural

if TYPE_CHECKING:
    from stompcodec.client import Client, Message, Receipt, Subscription
    from stompcodec.client.messages import OnUnreadable

#: The most messages of a batch by default, and that wait here.
BATCH = 100
#: The most bytes of a batch, unless its one message is larger; and that our broker delivers ahead.
_BATCH_BYTES = 8 * 2**20
_AHEAD_BYTES = 16 * 2**20
#: The most messages that stay and yet do not count in the window, and their bytes.
_MOST_HELD, _MOST_HELD_BYTES = 10_000, 256 * 2**20
#: Bytes in a `credit` header, which has to name some.
_UNBOUNDED = 2**40
#: Seconds to wait for a message before the broker is asked whether there is one.
_LOOK = 0.1


@dataclass
class Taking:
    """The way to take the messages of a queue."""

    looking: Looking
    """The queue; `stopped` is asked before each batch, and True ends the taking."""
    most: int | None
    exact: bool
    """Have our broker deliver no more than `most`, so that no other message counts as redelivered."""
    idle: float
    """Seconds without a message after which the queue counts as empty."""
    batch: int = BATCH
    stay: tuple[int, int] = (0, 0)
    """The number of messages known to stay in the queue, and their bytes, so that they do not fill the window."""
    text: bool | None = None
    """True moves all as text, False as bytes; None leaves text as it is."""
    held: int = 0
    """Messages that are neither acknowledged nor to be: they return to the queue at the end."""
    returns: bool = False
    """The messages are dead letters that go back."""
    withheld: bool = False
    """The broker shows messages, and did not deliver them: others have them, or an exclusive consumer is there."""

    def __post_init__(self) -> None:
        self._stay, self._stay_bytes = map(min, self.stay, (_MOST_HELD, _MOST_HELD_BYTES))

    @property
    def is_full(self) -> bool:
        """True if messages that stay fill the window, so that no others come."""
        return self.held >= BATCH + self._stay

    def subscribe(self, ack: str = "client-individual", on_unreadable: OnUnreadable = "ignore") -> Subscription:
        from stompcodec.client.dialects import BROKERS

        client, kind, queue, selector, *_ = self.looking
        headers = {}
        if kind.is_ours and self.exact and self.most is not None:
            headers = {"credit": f"{self.most},{_UNBOUNDED},false"}
        elif kind.is_ours:
            headers = {"consumer-window-size": str(_AHEAD_BYTES + self._stay_bytes)}
        if kind.is_ours:
            headers["attempts"] = "named"  # if a SEND is refused, that is no attempt of any message
        window = (BATCH if self.most is None else min(BATCH, self.most)) + self._stay
        passed = self.looking.passed
        if passed is not None:
            window += passed.count  # each that stays holds a place
        options: Any = {"prefetch": BROKERS[client.dialect].beside(window, headers.items())}
        options |= {"selector": selector, "headers": headers}
        options["on_unreadable"] = "raise" if passed is None else on_unreadable
        return client.subscribe(queue, ack=ack, **options)

    def batches(self, subscription: Subscription) -> Iterator[list[Message]]:
        """Yield batches until the queue is empty, `most` were taken, or all that were delivered are held."""
        left, last, stopped = self.most, time.monotonic(), self.looking.stopped
        while not stopped() and left != 0 and not self.is_full:
            taken = subscription.take(self.batch if left is None else min(self.batch, left), _LOOK)
            if taken:
                for batch in _split(taken):
                    if stopped():
                        return
                    yield batch
                left = None if left is None else left - len(taken)
                last = time.monotonic()
            elif self._is_over(last):
                return

    def _is_over(self, last: float) -> bool:
        """Return whether the queue counts as empty. `last` is the time of the last message."""
        try:
            if self.looking.kind.shows and self.looking.is_empty():
                return True
        except Interrupted:
            return True
        over = time.monotonic() - last > self.idle
        self.withheld = over and self.looking.kind.shows
        return over


def _split(messages: list[Message]) -> Iterator[list[Message]]:
    batch: list[Message] = []
    size = 0
    for message in messages:
        if batch and size + len(message.body) > _BATCH_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(message)
        size += len(message.body)
    if batch:
        yield batch


class Aim(NamedTuple):
    """Where a message goes."""

    queue: str | None
    """None if it stays."""
    why: str | None = None
    """Why it stays; None also if it is not meant."""


#: Returns where a message goes.
Target = Callable[["Message"], Aim]


class RefusedQueue(Exception):
    """Raised when the broker refuses the messages for one of several queues. The connection has ended."""


class Tally:
    """Counts of messages that were carried or removed, and of those that were left."""

    def __init__(self) -> None:
        self.messages = 0
        self.octets = 0
        #: Messages that were left, by the reason.
        self.stays: Counter[str] = Counter()
        #: The most messages of a batch: fewer, if the broker refuses transactions of that size.
        self.batch = BATCH
        #: Why queues refuse messages.
        self.refused: dict[str, str] = {}

    @property
    def left(self) -> int:
        return sum(self.stays.values())

    def add(self, batch: list[Message]) -> None:
        self.messages += len(batch)
        self.octets += sum(len(message.body) for message in batch)


def carry(taking: Taking, target_of: Target, tally: Tally, moved: Callable[[], None], one_target: bool = True) -> None:
    """Move messages until `taking` ends; those without a target stay. `moved` is called after each batch.

    Raise RefusedQueue if the broker refuses messages for a queue (`tally.refused`; others may follow over a new
    connection), or such large transactions; StompError if a batch was not moved, or its outcome is unknown.
    """
    kind, subscription = taking.looking.kind, taking.subscribe()
    tally.stays.clear()
    for batch in taking.batches(subscription):
        going: dict[str, list[Message]] = {}
        for message in batch:
            queue, why = target_of(message)
            if queue is not None and taking.text is None and kind.row.is_emptied(message.frame):
                queue, why = None, _EMPTIED
            if queue is not None and queue not in tally.refused:
                going.setdefault(queue, []).append(message)
                continue
            if queue is not None:
                why = f"{printable(queue)} takes none: {tally.refused[queue]}"
            taking.held += 1
            tally.stays.update([] if why is None else [why])
        for queue, messages in going.items():
            try:
                done = _move(taking, queue, messages)
            except (ConnectionLostError, RejectedError) as error:
                why = _refusal(error, kind)
                if why is not None and "transaction" in why.lower() and tally.batch > 1:
                    tally.batch = max(1, tally.batch // 10)
                elif why is None or one_target or "transaction" in why.lower():
                    raise
                else:
                    tally.refused[queue] = why
                raise RefusedQueue from error
            tally.add(done)
            taking.held += len(messages) - len(done)
            if len(done) < len(messages):
                tally.stays[f"a SEND to {printable(queue)} cannot carry them"] += len(messages) - len(done)
        moved()


def _refusal(error: BaseException, kind: Kind) -> str | None:
    """Return why the broker refused messages for their queue, which ends the connection; None if it did not."""
    found: BaseException | None = error
    while kind.atomic and found is not None and not isinstance(found, RejectedError):
        found = found.__cause__
    words = str(found).removeprefix("the server sent an ERROR: ")
    return printable(words) if isinstance(found, RejectedError) else None


def _move(taking: Taking, queue: str, messages: list[Message]) -> list[Message]:
    """Send and acknowledge messages: together, or each once its copy is confirmed. Return those that could be sent."""
    done: list[Message] = []
    client, kind = taking.looking.client, taking.looking.kind
    asked = [client.options.artemis_types, *(each.options.get("artemis_types") != "false" for each in client.addresses)]
    typed = kind.row.types and all(asked)

    def sent(send: Callable[..., object]) -> None:
        for message in messages:
            try:
                headers = kept(message.headers.pairs(), kind.name, returns=taking.returns, typed=typed)
                send(queue, kind.row.body_of(message.frame, taking.text), headers)
            except FrameError:  # such a header cannot be written in this version of STOMP
                continue
            done.append(message)

    if kind.atomic:
        with client.transaction() as transaction:
            sent(transaction.send)
            for message in done:
                transaction.ack(message)
        return done
    receipts: list[Receipt] = []
    sent(lambda *send: receipts.append(client.send_for_receipt(*send)))
    for receipt, message in zip(receipts, done):
        receipt.wait()
        message.ack()
    client.ping()  # the broker has the ACKs
    return done


def remove(taking: Taking, tally: Tally, moved: Callable[[], None]) -> None:
    lenient = taking.looking.passed is not None
    # An ACK of mode `client` covers those before it, but not a last one that cannot be read.
    subscription = taking.subscribe("client-individual", "ack") if lenient else taking.subscribe("client")
    for batch in taking.batches(subscription):
        for message in batch[:-1] if lenient else ():
            message.ack()
        batch[-1].ack(receipt=True)
        tally.add(batch)
        moved()


#: Queues that are listed, and that are counted each.
MOST_LISTED, _MOST_COUNTED = 20, 1000
#: Why letters stay.
_UNKNOWN = "their headers do not name a queue that they came from (name one with --to)"
_CLAIMED = "any sender could have written where they came from (name their queue with --only, or one with --to)"
_MARK = " (as a header says, which any sender could have written)"
_EMPTIED = "they have no body, as JMS Map, Object and Stream messages arrive (--text moves them as empty texts)"
#: Where letters beyond the counted queues came from.
_OTHERS = Origin(None)


class Returning:
    """Where dead letters go back to: with `only`, those that came from queues of that pattern, which are trusted."""

    def __init__(self, letters: str, only: str | None) -> None:
        self._letters = letters
        self._only = None if only is None else re.compile(".*".join(map(re.escape, only.split("*"))), re.DOTALL)
        #: Queues that only headers name, and that the user has seen and agreed to.
        self.agreed: set[str] = set()
        #: Letters seen by `survey` by their origin, and their bytes.
        self._seen: Counter[Origin] = Counter()
        self._octets: Counter[Origin] = Counter()

    def aim(self, message: Message, kind: Kind) -> Aim:
        return self._aim(origin_of(message, self._letters, kind))

    def _aim(self, origin: Origin) -> Aim:
        if origin.queue is None:
            return Aim(None, _UNKNOWN)
        if self._only is not None:
            return Aim(origin.queue) if self._only.fullmatch(origin.queue) else Aim(None)
        return Aim(origin.queue) if origin.is_proven or origin.queue in self.agreed else Aim(None, _CLAIMED)

    def survey(self, messages: Iterable[Message], kind: Kind) -> None:
        for message in messages:
            origin = origin_of(message, self._letters, kind)
            if origin not in self._seen and len(self._seen) >= _MOST_COUNTED:
                origin = _OTHERS
            self._seen[origin] += 1
            self._octets[origin] += len(message.body)

    def staying(self, refused: Iterable[str] = ()) -> tuple[int, int]:
        stay = [origin for origin in self._seen if (queue := self._aim(origin).queue) is None or queue in refused]
        return sum(self._seen[origin] for origin in stay), sum(self._octets[origin] for origin in stay)

    def outcome(self) -> tuple[int, Counter[str]]:
        going, stays = 0, Counter[str]()
        for origin, number in self._seen.items():
            queue, why = self._aim(origin)
            going += number if queue is not None else 0
            if why is not None:
                stays[why] += number
        return going, stays

    @property
    def has_claims(self) -> bool:
        return any(not origin.is_proven for origin, _ in self._known())

    def listed(self) -> Iterator[str]:
        known = self._known()
        for origin, number in known[:MOST_LISTED]:
            yield f"  {number:,} to {printable(str(origin.queue))}{'' if origin.is_proven else _MARK}"
        if len(known) > MOST_LISTED:
            yield f"  {sum(number for _, number in known[MOST_LISTED:]):,} to other queues"

    def agree(self) -> None:
        self.agreed.update(str(origin.queue) for origin, _ in self._known()[:MOST_LISTED])

    def _known(self) -> list[tuple[Origin, int]]:
        seen = self._seen.most_common()
        return [pair for pair in seen if pair[0].queue is not None and self._aim(pair[0]) != Aim(None)]


_REDRAW = 0.1
#: Words that stand for several names at some broker.
_WILDCARDS = ("*", "**", "#", ">")
#: Does the work of a verb; the last argument is called after each batch.
Work = Callable[[Taking, Tally, Callable[[], None]], None]

#: The options of `Tool`, and those of the broker.
tool_options = option_group(
    click.option("--dry-run", is_flag=True, help="Change nothing; say how many messages it would be."),
    click.option("-y", "--yes", is_flag=True, help="Do not ask. Without a terminal, nothing happens without it."),
    time_option(
        "--idle",
        default=3.0,
        help="The queue counts as empty after this time without a message, if the broker cannot tell.",
    ),
    click.option("--json", "as_json", is_flag=True, help="Print the counts as a JSON object."),
    lenient_option,
    broker_options,
)

selector_option = click.option(
    "--selector", metavar="TEXT", help="Only messages that match, in the broker's syntax. RabbitMQ has no selectors."
)
limit_option = click.option("-n", "--limit", type=click.IntRange(1), metavar="N", help="At most N messages.")


def _of_tool(given: dict[str, Any]) -> dict[str, Any]:
    return {name: given.pop(name) for name in Tool._fields if name in given}


def check_queue(destination: str, hint: str) -> None:
    if any(word in _WILDCARDS for word in re.split(r"[./]", destination)):
        raise click.BadParameter(f"{printable(destination)!r} is a wildcard: name one queue", param_hint=hint)
    if not is_queue(destination) or not destination.strip():
        raise click.BadParameter(f"{printable(destination)!r} is not a queue", param_hint=hint)


class Tool(NamedTuple):
    """A verb that changes a queue."""

    verb: str
    """As in "move"."""
    done: str
    """As in "moved"."""
    queue: str
    aim: str
    """Where the messages go, for people, as in " to /queue/b"."""
    dry_run: bool
    yes: bool
    idle: float
    as_json: bool
    selector: str | None = None
    limit: int | None = None
    text: bool | None = None
    target: str | None = None
    """The queue that all of them go to."""
    lenient: bool = False
    removes: bool = False
    """Messages that cannot be read are removed, too, with `lenient`; else they stay."""

    def run(self, broker: dict[str, Any], work: Work, returning: Returning | None = None) -> NoReturn:
        if not (self.dry_run or self.yes or _has_terminal()):
            raise click.UsageError(f"there is no terminal to confirm on, so nothing was {self.done}: give --yes")
        stopped = threading.Event()
        with passing_over(self.lenient, self.removes) as passed, reporting_errors(), ExitStack() as stack:
            connect = opening(**broker)
            client = stack.enter_context(connect())
            kind = self._checked(client)
            looking = Looking(client, kind, self.queue, self.selector, stopped.is_set, broker["timeout"], passed)
            with stop_on_signals(stopped.set):
                try:
                    there = looking.total()
                    most = self.limit if there is None else min(there, self.limit or there)
                    if returning is not None and kind.shows:
                        returning.survey(islice(looking.messages(), most), kind)
                    if stopped.is_set():
                        raise Interrupted
                    if self.dry_run:
                        self._preview(most or 0, returning)
                except Interrupted:
                    self._interrupted(Tally())
            if most != 0:
                self._announce(most, returning)
            tally = Tally()

            def taking() -> Taking:
                at = looking
                if tally.refused or tally.batch < BATCH:
                    at = looking._replace(client=stack.enter_context(connect()))
                left = None if most is None else max(0, most - tally.messages)
                stay = (0, 0) if returning is None else returning.staying(tally.refused)
                return Taking(at, left, self.limit is not None, self.idle, tally.batch, stay, self.text)

            with stop_on_signals(stopped.set):
                last = self._do(work, taking, tally, most)
        if stopped.is_set():
            self._interrupted(tally)
        self._show(f"{plural(tally.messages, 'message')} {self.done}{self.aim}", tally.messages, tally)
        sys.exit(1 if self._report_left(last, tally) else 0)

    def _checked(self, client: Client) -> Kind:
        """Return the kind of the broker, after checks of what the tool is to do there."""
        for name in filter(None, (self.queue, self.target)):
            warn_of_missing_slash(client, name)
        kind = kind_of(client)
        kind.check_selects(self.selector)
        if kind.is_ours:
            kind = kind._replace(management=management_of(client, self.queue))
        if self.target is not None:
            kind.check_differ(self.queue, self.target)
            kind.check_keeps(self.target)
        if self.dry_run:
            kind.check_shows(self.queue, "leave out --dry-run")
        return kind

    def _announce(self, most: int | None, returning: Returning | None) -> None:
        if returning is not None and (returning.has_claims or not self.yes):
            for line in returning.listed():
                click.echo(line, err=True)
        if not self.yes:
            self._ask(most)
            if returning is not None:
                returning.agree()

    def _report_left(self, taking: Taking, tally: Tally) -> bool:
        passed = taking.looking.passed
        unread = 0 if passed is None else passed.count
        if unread:
            complain(f"{plural(unread, 'message')} stayed in {self.queue}: they cannot be read")
        for why, number in tally.stays.most_common(MOST_LISTED):
            complain(f"{plural(number, 'message')} stayed in {self.queue}: {why}")
        if taking.is_full:
            complain(f"those that stay in {self.queue} fill the window, so later ones were not tried")
        elif taking.withheld and not tally.left:
            complain(
                f"{self.queue} has messages that did not come in {self.idle:g} s: other consumers hold them, or one of"
                " them is exclusive (try again later, or wait longer with --idle)"
            )
        return bool(tally.left or taking.withheld or taking.is_full or unread)

    def _do(self, work: Work, next_taking: Callable[[], Taking], tally: Tally, most: int | None) -> Taking:
        progress = _Progress(self, tally, most)
        try:
            while True:
                taking = next_taking()
                with suppress(RefusedQueue):  # the others are moved over a new connection, or fewer at a time
                    if taking.most != 0:
                        work(taking, tally, progress.moved)
                        if taking.looking.passed is not None:
                            tally.messages += taking.looking.passed.settled
                    return taking
        except (StompError, ValueError) as error:
            progress.clear()
            unknown = isinstance(error, (ConnectionLostError, ReceiptTimeoutError))
            but = f", but the last batch may be {self.done}, too" if unknown else ""
            done = f"{plural(tally.messages, 'message')} {self.done}"
            complain(f"{done} before this error; the others are in {self.queue}{but}")
            raise
        finally:
            progress.clear()

    def _preview(self, most: int, returning: Returning | None) -> NoReturn:
        tally = Tally()
        if returning is not None:
            most, tally.stays = returning.outcome()
        self._show(f"would {self.verb} {plural(most, 'message')}{self.aim}", most, tally)
        if returning is not None and not self.as_json:
            for line in returning.listed():
                click.echo(line)
            for why, number in tally.stays.most_common():
                click.echo(f"  {number:,} would stay: {why}")
        sys.exit(0)

    def _show(self, text: str, messages: int, tally: Tally) -> None:
        if self.as_json:
            octets = None if self.dry_run else tally.octets  # nothing was read
            counts = {"messages": messages, "bytes": octets, "left": tally.left, "dry_run": self.dry_run}
            click.echo(json.dumps({"verb": self.verb, "queue": self.queue, **counts}))
        else:
            click.echo(printable(text), err=not self.dry_run)

    def _interrupted(self, tally: Tally) -> NoReturn:
        complain(f"interrupted: {plural(tally.messages, 'message')} {self.done}; the others are in {self.queue}")
        sys.exit(INTERRUPTED)

    def _ask(self, most: int | None) -> None:
        what = "all messages" if most is None else plural(most, "message")
        question = f"{self.verb.capitalize()} {what} of {printable(self.queue)}{printable(self.aim)}?"
        if not click.confirm(question, err=True):
            complain(f"nothing was {self.done}")
            sys.exit(1)


def _has_terminal() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


class _Progress:
    """The progress line."""

    def __init__(self, tool: Tool, tally: Tally, most: int | None) -> None:
        self._tool, self._tally, self._most = tool, tally, most
        self._line = StatusLine(True, _REDRAW)
        self.clear = self._line.clear
        self._start = time.monotonic()

    def text(self) -> str:
        tally = self._tally
        of = "" if self._most is None else f" of {self._most:,}"
        pace = pace_of(tally.messages, tally.octets, self._start)
        return f"{tally.messages:,}{of} {self._tool.done}, {pace}"

    def moved(self) -> None:
        self._line.update(self.text)


@click.command("browse")
@click.argument("queue", metavar="QUEUE")
@selector_option
@view_options
@broker_options
def browse(queue: str, selector: str | None, **given: Any) -> None:
    """Show the messages that wait in QUEUE, in order. They stay there.

    Our broker and ActiveMQ can do this. RabbitMQ and Artemis would deliver the messages instead, so nothing is done.

    \b
      stompcodec browse /queue/orders
      stompcodec browse /queue/orders --selector "region = 'eu'" -n 10 --pretty
      stompcodec browse /queue/orders --format '{id} {body}\\n'
    """
    check_queue(queue, "QUEUE")
    look(queue, selector, given, message_table, "use sub, which takes them")


@click.command("move")
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@selector_option
@limit_option
@text_option
@tool_options
def move(source: str, target: str, **given: Any) -> None:
    """Move the messages that are in the queue FROM to the queue TO.

    Each batch is moved in one transaction, so a message is in one of both queues at any time, even if this is killed.
    Headers and bodies are kept; message-ids are new.

    \b
      stompcodec move /queue/a /queue/b --dry-run
      stompcodec move /queue/orders /queue/eu --selector "region = 'eu'" --limit 100 --yes
    """
    check_queue(source, "FROM")
    check_queue(target, "TO")
    if source == target:
        raise click.UsageError(f"FROM and TO are one queue: {printable(source)}")
    tool = Tool("move", "moved", source, f" to {target}", target=target, **_of_tool(given))
    tool.run(given, lambda taking, tally, moved: carry(taking, lambda _message: Aim(target), tally, moved))


@click.command("purge")
@click.argument("queue", metavar="QUEUE")
@tool_options
def purge(queue: str, **given: Any) -> None:
    """Remove the messages that are in QUEUE. Those that other consumers hold, and those that come later, stay. So do
    those that the broker cannot write as STOMP, which end the verb, unless --lenient is given.

    \b
      stompcodec purge /queue/test --dry-run
      stompcodec purge /queue/test --yes
    """
    check_queue(queue, "QUEUE")
    tool = Tool("remove", "removed", queue, "", removes=True, **_of_tool(given))
    tool.run(given, remove)


#: Kinds of dead letters that are counted for each queue; the rest are one.
_MOST_KINDS = 1000


@click.group("dlq", cls=Verbs)
def dlq() -> None:
    """Look at dead letters, and send them back.

    \b
      stompcodec dlq list
      stompcodec dlq show /queue/DLQ.orders
      stompcodec dlq retry /queue/DLQ.orders --dry-run
    """


@dlq.command("list")
@click.argument("queues", metavar="[QUEUE]...", nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object per line.")
@broker_options
def list_letters(queues: tuple[str, ...], as_json: bool, **broker: Any) -> None:
    """Count the dead letters of each QUEUE by where they came from, and why. Those that the broker cannot write as
    STOMP are named, and passed over.

    Without QUEUE: all queues /queue/DLQ.* of our broker, or ActiveMQ.DLQ.

    \b
      stompcodec dlq list
      stompcodec dlq list /queue/ActiveMQ.DLQ --json
    """
    for queue in queues:
        check_queue(queue, "QUEUE")
    rows: list[tuple[str, str, str, bool, int]] = []
    stopped: list[int] = []
    signals = stop_on_signals(lambda: stopped.append(1))
    with passing_over(True) as passed, reporting_errors(), connected(**broker) as client, signals:
        kind = kind_of(client)
        names = queues or _dead_letters_of(client, kind)
        try:
            for queue in names:
                kind.check_shows(printable(queue), "use its own tools")
                counts: Counter[tuple[str, str, bool]] = Counter()
                looking = Looking(client, kind, queue, None, lambda: bool(stopped), broker["timeout"], passed)
                for message in looking.messages():
                    key = *facts(message, kind)[:2], is_claimed(message, kind)
                    counts[key if key in counts or len(counts) < _MOST_KINDS else ("others", "-", False)] += 1
                rows += [(queue, *key, number) for key, number in sorted(counts.items())]
        except Interrupted:
            sys.exit(INTERRUPTED)
    _show_counts(rows, as_json)


def _dead_letters_of(client: Client, kind: Kind) -> tuple[str, ...]:
    """Return the queues of dead letters by the name that the broker gives them."""
    if kind.is_ours:
        rows = listed(client, kind.dead_letters)
        if rows is not None:
            return tuple(str(row["destination"]) for row in rows)
    elif kind.dead_letters:
        return (kind.dead_letters,)
    raise click.UsageError(f"{kind.title} does not say which queues have dead letters: give their names")


def _show_counts(rows: list[tuple[str, str, str, bool, int]], as_json: bool) -> None:
    if as_json:
        for queue, origin, reason, claimed, number in rows:
            row = {"queue": queue, "from": origin.removesuffix(" (claimed)") if claimed else origin, "reason": reason}
            click.echo(json.dumps({**row, "messages": number, **({"claimed": True} if claimed else {})}))
        return
    from rich.text import Text

    console = screen()
    room = max(console.width - 34, 30) // 2
    console.print(Text(f"{'MESSAGES':>8}  {pad('QUEUE', room)}  {pad('FROM', room)}  REASON", "bold"), soft_wrap=True)
    for queue, origin, reason, _, number in rows:
        text = (
            f"{number:>8,}  {pad(printable(queue), room)}  {pad(printable(origin), room)}  {cut(printable(reason), 40)}"
        )
        console.print(Text(text), soft_wrap=True)


@dlq.command("show")
@click.argument("queue", metavar="QUEUE")
@selector_option
@view_options
@broker_options
def show_letters(queue: str, selector: str | None, **given: Any) -> None:
    """Show the dead letters of QUEUE: where each came from, why, and its body. They stay there.

    \b
      stompcodec dlq show /queue/DLQ.orders
      stompcodec dlq show /queue/DLQ.orders -n 1 --pretty
    """
    check_queue(queue, "QUEUE")
    look(queue, selector, given, letter_table, "use sub, which takes them")


@dlq.command("retry")
@click.argument("queue", metavar="QUEUE")
@click.option("--to", "target", metavar="DEST", help="Send them to this queue, not to where each came from.")
@click.option(
    "--only",
    metavar="PATTERN",
    help="Only those that came from such queues, as their headers say; a * stands for any text.",
)
@selector_option
@limit_option
@text_option
@tool_options
def retry_letters(queue: str, target: str | None, only: str | None, **given: Any) -> None:
    """Send the dead letters that are in QUEUE back to the queues that they came from.

    Our broker knows where its dead letters came from. Other brokers only have headers for it, which any sender could
    have written. Such letters are listed, and with --yes they stay, unless --only or --to names their queue. So do
    those whose queue is unknown or refuses them; then the exit status is 1. The letters of a batch for one queue are
    moved in one transaction.

    \b
      stompcodec dlq retry /queue/DLQ.orders --dry-run
      stompcodec dlq retry /queue/DLQ.orders --selector "customer = 7" --yes
      stompcodec dlq retry /queue/ActiveMQ.DLQ --only "/queue/shop.*" --yes
      stompcodec dlq retry /queue/bridge-dead-letters --to /queue/again
    """
    check_queue(queue, "QUEUE")
    if target is not None:
        check_queue(target, "'--to'")
        if queue == target:
            raise click.UsageError(f"QUEUE and --to are one queue: {printable(queue)}")
        if only is not None:
            raise click.UsageError("--only and --to exclude each other: --to sends all letters to one queue")
    aim = " to where they came from" if target is None else f" to {target}"
    tool = Tool("send back", "sent back", queue, aim, target=target, **_of_tool(given))
    returning = Returning(queue, only) if target is None else None

    def work(taking: Taking, tally: Tally, moved: Callable[[], None]) -> None:
        kind, taking.returns = taking.looking.kind, True
        carry(
            taking,
            lambda message: Aim(target) if returning is None else returning.aim(message, kind),
            tally,
            moved,
            one_target=returning is None,
        )

    tool.run(given, work, returning)
