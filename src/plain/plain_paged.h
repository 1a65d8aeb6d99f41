/* Persistent messages for a queue that has messages in the store only: `put_persistent` of sessions/plain.py, and `put_new` of
   queues/queue.py, as far as they are simple. */
#ifndef PLAIN_PAGED_H
#define PLAIN_PAGED_H

#include <Python.h>

#include "plain_record.h"

/* Append a Message to the open batch, whose commit the session waits for already, and count it as paged. Returns PLAIN_DELIVERED; or
   PLAIN_DELIVERED_FULL if the sender has to wait; or PLAIN_NOT_DELIVERED, without an exception, and then nothing is changed. */
int plain_page(PyObject *session, PyObject *queue, const struct plain_message *message);

#endif
