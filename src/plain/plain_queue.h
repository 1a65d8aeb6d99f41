/* A plain message straight to the next consumer of a queue, or to what a topic gathers: `put_plain` of queues/queue.py and
   routing/topic.py, as far as it is simple. */
#ifndef PLAIN_QUEUE_H
#define PLAIN_QUEUE_H

#include <Python.h>

#include "plain_ready.h"

/* Deliver to the first consumer in the ring of a queue that can take it, or make it READY. Returns enum plain_delivery: after
   PLAIN_NOT_DELIVERED nothing was changed, except that consumers that can take nothing left the ring; after PLAIN_DELIVERED_FULL the
   sender has to wait. Returns -1 with an exception, which comes after the delivery. */
int plain_deliver(PyObject *queue, const struct plain_message *message);

/* Put it into a topic that has gathered others: `Topic.put_plain` of routing/topic.py. The same answers. */
int plain_gather(PyObject *topic, const struct plain_message *message);

#endif
