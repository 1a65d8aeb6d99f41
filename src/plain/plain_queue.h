/* A plain message straight to the next consumer of a queue: `Queue.put_plain` of queues/queue.py, as far as it is simple. */
#ifndef PLAIN_QUEUE_H
#define PLAIN_QUEUE_H

#include <Python.h>

#include "plain_send.h"

#define PLAIN_MESSAGE_COST 420 /* MESSAGE of memory.py, which passes it to prepare() */

/* A SEND on its way, with its place in the order. */
struct plain_message {
    const struct plain_send *send;
    const struct stomp_scan *scan;
    const uint8_t *data;
    PyObject *destination; /* str */
    PyObject *ident;       /* the message-id as bytes, with % for the seq */
    PyObject *seq;         /* int */
    long long number;      /* the same */
    int persistent;        /* it has to be stored */
};

enum plain_delivery { PLAIN_NOT_DELIVERED, PLAIN_DELIVERED, PLAIN_DELIVERED_FULL };

/* Deliver to the first consumer in the ring of a queue. Returns enum plain_delivery: after PLAIN_NOT_DELIVERED nothing was changed,
   after PLAIN_DELIVERED_FULL the sender has to wait. Returns -1 with an exception, which comes after the delivery. */
int plain_deliver(PyObject *queue, const struct plain_message *message);

/* Write its tail as bytes. Returns a new reference, or NULL with an exception. */
PyObject *plain_tail(const struct plain_message *message);

#endif
