/* Persistent messages: what waits for a commit, and queues that take one when it has been recorded for the store. `put_persistent` of
   sessions/plain.py and `put` of queues/queue.py, as far as they are simple. */
#ifndef PLAIN_STORE_H
#define PLAIN_STORE_H

#include <Python.h>

#include "plain_record.h"

/* Does the session wait for the commit of the open batch already, and is no other one being written? Then `hold_receipts_of` has nothing
   to do. Returns 1, or 0 without an exception. */
int plain_is_held(PyObject *session, PyObject *journal);

/* The open batch, if the session waits for its commit already, and it has an intake for the queue: then `hold_receipts_of` and
   `check_space` have nothing to do. Borrowed, or NULL without an exception. */
PyObject *plain_open_batch(PyObject *session, PyObject *queue);

/* Append a Message to that batch, as `Journal.append` does. Returns 1; or 0, without an exception, and then nothing is changed. */
int plain_append(PyObject *batch, PyObject *queue, const struct plain_message *message);

/* Does the journal refuse messages, as the disk is nearly full? 1 if that is not known. */
int plain_is_short(PyObject *journal);

/* Is a message for this target stored? `is_stored` of sessions/send.py. `persistent` is the header: true, false or not there. */
int plain_is_stored(PyObject *target, const struct plain_text *persistent, int stores, int stores_all);

/* May a queue take the persistent message here, to deliver it to a consumer that acknowledges or to make it READY in memory? It is not
   full with it. Returns 1, or 0 without an exception. */
int plain_may_store(PyObject *queue, const struct plain_message *message);

/* Record it for the store, and have the receipts of the session wait: `record_put` of sessions/plain.py, which is called unless it is simple.
   Returns 0, or -1 with an exception. */
int plain_record_put(PyObject *session, PyObject *queue, const struct plain_message *message, PyObject *receipt, PyObject *record_put);

/* Put a persistent message, which has been recorded for the store. Returns 0, or -1 with an exception. */
int plain_put_stored(PyObject *session, PyObject *queue, const struct plain_message *message);

#ifndef MS_WINDOWS
/* Of the module: is each file at its path, and not another one? `places` is a tuple of tuples: path, device, inode. */
PyObject *plain_are_at(PyObject *module, PyObject *places);
#endif

#endif
