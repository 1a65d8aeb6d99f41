/* The counts of a queue: `Tally` of queues/quick.py as a type in C, so that a count takes no new int. */
#ifndef PLAIN_TALLY_H
#define PLAIN_TALLY_H

#include <Python.h>

#include "plain_fields.h"

struct plain_tally {
    PyObject_HEAD
    long long put, direct, sent, ended, redelivered, expired, dropped, dead;
};

extern PyTypeObject *plain_tally_type;

/* Make the type and add it to the module. Returns 0, or -1 with an exception. */
int plain_tally_add(PyObject *module);

/* Count one message in a field of a queue's tally, unless the queue was made with one in Python. */
#define PLAIN_TALLY(queue, field) \
    do { \
        PyObject *tally_of = FIELD_OF(queue, Queue, tally); \
        if (tally_of && Py_TYPE(tally_of) == plain_tally_type) \
            ((struct plain_tally *)tally_of)->field++; \
        else \
            plain_tally_slowly(tally_of, #field); \
    } while (0)

/* Count one message in a tally made in Python. */
void plain_tally_slowly(PyObject *tally, const char *field);

#endif
