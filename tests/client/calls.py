"""Every call of a client that may wait, for tests of who may not make it; `o` has all that they need."""

from types import SimpleNamespace

CALLS = {
    "send": lambda o: o.client.send("/queue/never", b"x"),
    "send with a receipt": lambda o: o.client.send("/queue/never", b"x", receipt=True),
    "send text": lambda o: o.client.send("/queue/never", "x", {"a": "b"}, receipt=True),
    "send in pieces": lambda o: o.client.send("/queue/never", [b"x"]),
    "send for a receipt": lambda o: o.client.send_for_receipt("/queue/never", b"x"),
    "send many": lambda o: o.client.send_many([("/queue/never", b"x")]),
    "send many without receipts": lambda o: o.client.send_many([("/queue/never", b"x")], receipt_every=0),
    "request": lambda o: o.client.request("/queue/never"),
    **{"receive": lambda o: o.client.receive("/queue/never"), "ping": lambda o: o.client.ping()},
    **{"wait for a connection": lambda o: o.client.wait_connected(), "get": lambda o: o.subscription.get()},
    **{"get with a time-out": lambda o: o.subscription.get(1), "take": lambda o: o.subscription.take(2)},
    **{"unsubscribe": lambda o: o.subscription.unsubscribe(), "join": lambda o: o.handled.join()},
    **{"ack": lambda o: o.message.ack(), "ack with a receipt": lambda o: o.message.ack(receipt=True)},
    **{"nack": lambda o: o.message.nack(receipt=True), "reply": lambda o: o.message.reply(b"x", receipt=True)},
    **{"wait for a receipt": lambda o: o.receipt.wait(), "begin": lambda o: o.client.transaction().begin()},
    "send in a transaction": lambda o: o.transaction.send("/queue/never", b"x"),
    **{"commit": lambda o: o.transaction.commit(), "abort": lambda o: o.transaction.abort()},
    "drain": lambda o: o.client.drain(),
}


def objects(client):
    asked = client.subscribe("/queue/a", ack="client-individual")
    client.send("/queue/a", b"x", {"reply-to": "/queue/never"})
    message = asked.get(60)
    subscription, handled = client.subscribe("/queue/b"), client.subscribe("/queue/h", handler=print)
    transaction, receipt = client.transaction().begin(), client.send_for_receipt("/queue/c", b"x")
    receipt.wait()
    receipt._call.done = False  # as if it had not come
    given = {"client": client, "subscription": subscription, "handled": handled, "message": message}
    return SimpleNamespace(**given, receipt=receipt, transaction=transaction)


async def objects_async(client):
    asked = await client.subscribe("/queue/a", ack="client-individual")
    await client.send("/queue/a", b"x", {"reply-to": "/queue/never"})
    message = await asked.get(60)
    subscription, transaction = client.subscribe("/queue/b"), await client.transaction().begin()
    receipt = await client.send_for_receipt("/queue/c", b"x")
    await client.ping()  # both have come
    receipt._call.done = subscription.receipt._call.done = False  # as if they had not come
    given = {"client": client, "subscription": subscription, "handled": subscription, "message": message}
    return SimpleNamespace(**given, receipt=receipt, transaction=transaction)
