/* SENDs of a transaction, which wait for its COMMIT: `defer_plain` of sessions/commit.py. */
#ifndef PLAIN_TRANSACTION_H
#define PLAIN_TRANSACTION_H

#include <Python.h>

#include "plain_record.h"

#define PLAIN_OPERATION_COST 420 /* OPERATION of memory.py, which is compared in prepare() */

/* Add a SEND to a transaction of the session, whose transactions may hold `most` bytes. `target` is a queue or topic. Returns 1; 0 with
   nothing changed if Python has to do it; or -1 with an exception. */
int plain_defer(PyObject *session, PyObject *transaction, PyObject *target, struct plain_message *message, long long most);

#endif
