/* Messages as the broker keeps them, and text with numbers in it. */
#ifndef PLAIN_RECORD_H
#define PLAIN_RECORD_H

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
    PyObject *shared;      /* that function of message.py */
    PyObject *record;      /* the Message if it was made already: `data` may be gone. Else NULL */
};

/* Write its tail as bytes. Returns a new reference, or NULL with an exception. */
PyObject *plain_tail(const struct plain_message *message);

/* Make a `Message` with that tail for a queue or topic of that name (or NULL). Returns a new reference, or NULL with an exception. */
PyObject *plain_record(const struct plain_message *message, PyObject *name, PyObject *tail);

/* Make one that is in no queue yet: its message-id is empty, and its seq 0, which `message` has. */
PyObject *plain_record_unnumbered(const struct plain_message *message, PyObject *name, PyObject *tail);

/* Write a format of bytes, as Python's % would, with %b for `octets` unless that is NULL, and %d for each number. Returns the length,
   or -1 if it has no room, or is another format than those of `Consumer._heads`. */
Py_ssize_t plain_format(char *to, size_t room, PyObject *format, PyObject *octets, const long long *numbers, int count);

/* Join messages, a list, to the bytes of MESSAGEs that begin with `start`: `Bundle.give` of routing/topic.py. Returns bytes; None if
   something is of another type; or NULL with an exception. */
PyObject *plain_join(PyObject *start, PyObject *messages);

#endif
