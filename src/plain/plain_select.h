/* A plain message to the only consumer of a queue, which has a selector: `give_plain` of queues/dispatcher.py, as far as it is simple. */
#ifndef PLAIN_SELECT_H
#define PLAIN_SELECT_H

#include <Python.h>

#include "plain_ready.h"

/* Deliver it if the selector matches, else make it READY; `message` belongs to a queue whose dispatcher this is. Nothing of its `data`
   may be used afterwards unless the answer is PLAIN_NOT_DELIVERED. The same answers as plain_deliver(). */
int plain_select(PyObject *queue, PyObject *dispatcher, const struct plain_message *message);

#endif
