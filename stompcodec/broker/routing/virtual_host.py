"""VirtualHost: the subscriptions, destinations and dead letters of one virtual host."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from stompcodec.broker.config import Config
from stompcodec.broker.connections import Peer
from stompcodec.broker.errors import Refused
from stompcodec.broker.message import Message
from stompcodec.broker.queues.browser import Browser
from stompcodec.broker.queues.consumer import Consumer, Source, SubscribeRequest, check_writable
from stompcodec.broker.queues.queue import Queue
from stompcodec.broker.routing.durable import Durable
from stompcodec.broker.routing.registry import Destinations
from stompcodec.broker.settings import Address, Kind


class VirtualHost:
    """The subscriptions and client-ids of a virtual host, beside its destinations."""

    def __init__(self, vhost: str, config: Config, destinations: Destinations) -> None:
        self.vhost = vhost
        self.destinations = destinations
        self.naming = destinations.naming
        self.queues = destinations.queues
        self.topics = destinations.topics.by_name
        self.owners = destinations.owners
        self.dead_letters = destinations.dead_letters
        #: Sessions by their user and the client-id of their CONNECT. Each user has client-ids of their own.
        self._clients: dict[tuple[str | None, str], Peer] = {}
        self._config = config

    def join(self, session: Peer, client_id: str | None) -> None:
        """Enter the client-id of a session that has connected. Raise Refused if another session has it."""
        if not client_id:
            return
        key = session.owner, client_id
        other, policy = self._clients.get(key), self._config.same_client
        if other is not None and policy == "refuse":
            raise Refused("client-id is in use", "Another session has it: wait for its end, or take another one.")
        if other is not None and policy == "replace":
            other.fail("client-id was taken over", "Another session has connected with the same client-id.")
        self._clients[key] = session
        session.client_id = client_id

    # ---- subscriptions ----

    def subscribe(self, session: Peer, number: int, request: SubscribeRequest) -> Consumer:
        """Return a new consumer without messages: `start` it once the session knows it. Raise Refused if the session
        may not subscribe, or the destination cannot be made, or does not suit the request.
        """
        check_writable(request, session.version)
        address = self.destinations.addresses.find(request.destination, request.routing, True)
        address = self.destinations.canonical(address, session)
        self._check_allowed(session, address)
        name = self.destinations.address(address.name, session)
        if self.owners.get(name) not in (None, session):
            raise Refused("a temporary destination of another session", "Only its owner can subscribe to it.")
        if address.found:
            consumer = self._consumer_of_found(session, number, request, address)
        elif address.kind is Kind.QUEUE:
            consumer = self._consumer_of_queue(session, number, request, name)
        elif address.kind is Kind.TEMP_QUEUE:
            queue = self.destinations.queue(name, self.destinations.shares.maker(session))
            consumer = Consumer(session, queue, number, request)
        else:
            consumer = self._consumer_of_topic(
                session, number, request, address._replace(rest=name[len(address.prefix) :])
            )
        if address.kind in (Kind.TEMP_QUEUE, Kind.TEMP_TOPIC):
            self.owners.claim(name, session)
        consumer.destination = request.destination
        source = consumer.queue
        assert isinstance(source, Queue)
        if consumer.address is None and not address.found:
            self.destinations.agree(source, request.arguments, session)
        if request.browser:
            if consumer.address is not None:
                raise Refused("a topic cannot be browsed", "A topic keeps no messages: browse a queue.")
            consumer.queue = Browser(source)
        return consumer

    def _check_allowed(self, session: Peer, address: Address) -> None:
        why = self.destinations.why_unseen(session, address)
        if why is not None:
            raise Refused("not allowed to subscribe there", why)

    def _consumer_of_queue(self, session: Peer, number: int, request: SubscribeRequest, name: str) -> Consumer:
        """Make the consumer of a queue, and the queue if need be, which may be exclusive or end with its consumers."""
        queue, new = self.queues.get(name), name not in self.queues
        if queue is None:
            queue = self.destinations.allowed_queue(name, self.destinations.shares.maker(session))
        if request.exclusive and self._config.exclusive == "session":
            if not new and name not in self.owners:
                raise Refused("the queue is not exclusive", "It was created without exclusive:true.")
            self.owners.claim(name, session)
            request = request._replace(exclusive=False)
        if new and request.auto_delete:
            self.destinations.ending.add(name)
        if name in self.destinations.stored_queues:
            request = request._replace(readdressed=True)
        return Consumer(session, queue, number, request)

    def _consumer_of_topic(self, session: Peer, number: int, request: SubscribeRequest, address: Address) -> Consumer:
        if address.kind is Kind.TOPIC:
            durable = self._durable(session, request, address)
            if durable is not None:
                consumer = Consumer(session, durable.queue, number, request._replace(selector=None))
                consumer.durable = durable
                return consumer
        if self.destinations.addresses.pattern(address) is None:
            self.destinations.check_topic(address.name)
            self.destinations.topics.make(address, self.destinations.shares.maker(session))
        queue = self.destinations.topic_queue(address)
        consumer = Consumer(session, queue, number, request)
        consumer.address = address
        queue.overflow = partial(_overflow, self._config.slow_consumer, consumer)
        return consumer

    def _durable(self, session: Peer, request: SubscribeRequest, address: Address) -> Durable | None:
        """Return the durable subscription that a SUBSCRIBE to a topic means; None if it means none."""
        durables, name = self.destinations.durables, request.queue_name
        # With users the queue belongs to one of them, and is not the queue of the same name for all.
        if not name or request.durable is not None or session.owner is not None or durables.is_taken(name):
            return durables.requested(session, request, address, self.destinations.may)
        queue = self.destinations.mergeable(name, request.durable_flag)
        durable = durables.requested(session, request, address, self.destinations.may)
        if durable is not None:
            self.destinations.merge(queue, durable)
        return durable

    def _consumer_of_found(self, session: Peer, number: int, request: SubscribeRequest, address: Address) -> Consumer:
        durables = self.destinations.durables
        queue, durable = self.destinations.existing(address, session), durables.find(address.rest, session.owner)
        consumer = Consumer(session, queue, number, request)
        if durable is not None:
            self._check_allowed(session, durable.address)
            durable.check_free()
            durables.adopt(durable, session)
            consumer.durable = durable
        return consumer

    def start(self, consumer: Consumer) -> None:
        """Deliver to a new consumer."""
        address = consumer.address
        if address is not None:
            self.destinations.topics.add(consumer, address, consumer.session.maker)
            if consumer.closed:  # another subscription was too slow, which has ended the session
                self.destinations.topics.drop(consumer, address)
                return
        consumer.queue.add(consumer)
        if address is not None and self.destinations.retained.queues:
            for message in self.destinations.retained_for(address, consumer.selector):
                consumer.queue.put(message)

    def stop(
        self,
        consumers: Iterable[Consumer],
        orphans: Iterable[tuple[Source, Message]],
        is_spared: bool = False,
        culprit: Message | None = None,
    ) -> None:
        """End subscriptions of one session. Their unacknowledged messages, and those of subscriptions that ended before
        (`orphans`), are requeued, all of a queue together, in order. If they are spared, because of an UNSUBSCRIBE, a
        DISCONNECT or a refused frame, that is an attempt of the message at fault only, if there is one.
        """
        back: dict[Source, list[Message]] = {}
        for consumer in consumers:
            if consumer.address is None and consumer in consumer.queue.members:
                back.setdefault(consumer.queue, []).extend(consumer.queue.drop(consumer))
            elif consumer.address is None:  # it never began: another part of its composite was refused
                consumer.close()
            else:
                self.destinations.topics.drop(consumer, consumer.address)
                _end(consumer)
        for queue, message in orphans:
            back.setdefault(queue, []).append(message)
        for queue, messages in back.items():
            if is_spared:
                self.dead_letters.give_back(queue, messages, culprit)
            else:
                queue.requeue(messages)
        for consumer in consumers:
            self.end_with_last(consumer)

    def end_with_last(self, consumer: Consumer) -> None:
        """Delete the queue of a consumer if it ends with its last consumer, and this was the last."""
        if consumer.queue.members or consumer.queue.closed:
            return
        durable = consumer.durable
        if isinstance(durable, Durable) and durable.auto_delete:
            self.destinations.durables.delete(durable)
        elif durable is None and consumer.address is None and consumer.queue.name in self.destinations.ending:
            self.destinations.delete(consumer.queue.name)

    def durables_of(self, session: Peer, request: SubscribeRequest, consumers: list[Consumer]) -> list[Durable]:
        """Return the durable subscriptions that an UNSUBSCRIBE, which ends these consumers, ends. Raise Refused if
        another session consumes one of them, or the session may not subscribe to its destination.
        """
        if request.durable is None and not request.durable_flag:
            return []
        durables = [consumer.durable for consumer in consumers if isinstance(consumer.durable, Durable)]
        if not durables:
            name = self.destinations.durables.name(session, request) or ""
            durable = self.destinations.durables.find(name, session.owner)
            durables = [] if durable is None else [durable]
        for durable in durables:
            self._check_allowed(session, durable.address)
        mine = set(consumers)
        if any(len(durable.queue.members) > len(mine & durable.queue.members.keys()) for durable in durables):
            raise Refused("the durable subscription is in use", "Another consumer has it: end that one first.")
        return durables

    def end(self, durable: Durable) -> None:
        """End a durable subscription, unless it has ended with its last consumer."""
        if self.destinations.durables.has(durable):
            self.destinations.durables.delete(durable)

    def forget(self, session: Peer) -> None:
        """Delete the temporary destinations and exclusive queues of a session that ends."""
        if session.client_id is not None and self._clients.get((session.owner, session.client_id)) is session:
            del self._clients[session.owner, session.client_id]
        self.destinations.shares.end(session)
        for name in self.owners.leave(session):
            if self.naming.is_temporary(name):
                self.destinations.topics.remove(name)
            self.destinations.delete(name)


def _end(consumer: Consumer) -> None:
    """End a subscription to topics with its queue, and cut the references between them.

    In a cycle they would stay in memory until Python's next full garbage collection.
    """
    queue = consumer.queue
    assert isinstance(queue, Queue)
    if consumer in queue.members:
        queue.drop(consumer)
    else:
        consumer.close()
    queue.close()
    queue.overflow = None
    queue.ring.clear()


def _overflow(policy: str, consumer: Consumer) -> bool:
    """Apply the policy for a topic's subscription whose backlog is full. Return whether the sender has to wait."""
    if policy == "drop":
        consumer.queue.drop_oldest()
    elif policy != "block":
        consumer.session.too_slow(consumer.destination)
    return policy == "block"
