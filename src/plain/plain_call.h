/* Calls of Python by names that are made once. */
#ifndef PLAIN_CALL_H
#define PLAIN_CALL_H

#include <Python.h>

#define PLAIN_NAMES(NAME) \
    NAME(ACK) NAME(SEND) NAME(append) NAME(append_more) NAME(batch) NAME(block) NAME(busy) NAME(catches_up) NAME(dispatch) NAME(enqueue) NAME(full) NAME(is_low) NAME(journal) NAME(matches) NAME(now) NAME(offer) NAME(popleft) NAME(put) NAME(put_plain) \
    NAME(quota) NAME(release_blocked) NAME(schedule_flush) NAME(send) NAME(seq) NAME(settle) NAME(used_up) NAME(wait_for_turn)

struct plain_names {
#define NAME(name) PyObject *name;
    PLAIN_NAMES(NAME)
#undef NAME
    PyObject *eol;      /* the bytes after each frame */
    PyObject *is_short; /* "short", which is a word of C */
};

extern struct plain_names plain_name;

/* Make the names. Returns 0, or -1 with an exception. */
int plain_names_make(void);

/* Read the condition of an object, whose reference it takes. Returns 1, 0, or -1 with an exception; -1 for NULL. */
int plain_truth(PyObject *object);

/* Call a method with an argument, or without if that is NULL. Returns 0, or -1 with an exception. */
int plain_call(PyObject *object, PyObject *method, PyObject *argument);

#endif
