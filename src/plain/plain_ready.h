/* READY messages, which wait until a consumer can take them: `enqueue`, `dispatch` and `offer` of queues/queue.py, as far as they are
   simple. */
#ifndef PLAIN_READY_H
#define PLAIN_READY_H

#include <Python.h>

#include "plain_record.h"

enum plain_delivery { PLAIN_NOT_DELIVERED, PLAIN_DELIVERED, PLAIN_DELIVERED_FULL };

/* The empty line that all queues share in which no message was ever READY: nothing may be added to it. Set by prepare(). */
extern PyObject *plain_no_line;

/* May plain_enqueue be called? */
int plain_may_enqueue(PyObject *queue, const struct plain_message *message);

/* Make a message READY in a queue with an empty ring. Returns enum plain_delivery, or -1 with an exception. */
int plain_enqueue(PyObject *queue, const struct plain_message *message);

/* Deliver up to `most` READY messages, until one of them or its consumer is not simple. Returns how many, or -1 with an exception. */
Py_ssize_t plain_deliver_ready(PyObject *queue, Py_ssize_t most);

/* Put a consumer that has credit into the ring, and deliver. Returns 0, or -1 with an exception. */
int plain_offer(PyObject *queue, PyObject *consumer);

#endif
