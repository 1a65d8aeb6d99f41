/* The head of a SEND as the plain road reads it: what concerns the broker, and which bytes go into the MESSAGE. */
#ifndef PLAIN_SEND_H
#define PLAIN_SEND_H

#include <Python.h>

#include "stomp.h"

#define PLAIN_MOST_LINES 64
#define PLAIN_LONGEST_NAME 31
#define PLAIN_MOST_REWRITTEN 2048 /* bytes of a head with header lines that are written anew */

/* What becomes of a header, by its name. */
enum plain_kind { PLAIN_COPIED, PLAIN_DROPPED, PLAIN_SLOW, PLAIN_DESTINATION, PLAIN_RECEIPT, PLAIN_PERSISTENT, PLAIN_LENGTH, PLAIN_TRANSACTION };

struct plain_text {
    const uint8_t *at; /* NULL without this header */
    size_t len;
};

struct plain_send {
    struct plain_text destination, receipt, persistent, transaction;
    size_t size;     /* of the body */
    size_t tail_len; /* of the tail: header lines, empty line, body, NUL */
    const uint8_t *lines; /* where the runs are: the frame, or `rewritten` */
    int runs;
    struct {
        uint32_t from, end;
    } run[PLAIN_MOST_LINES + 1]; /* header lines that are copied together */
    char length[40];             /* the line content-length, if that is written anew */
    size_t length_len;
    uint8_t rewritten[2 * PLAIN_MOST_REWRITTEN + 16]; /* each byte may be escaped; the writer may use 16 more */
};

/* Learn the names of headers that keep a SEND off this road, and of those that are left out. Tuples of str. */
int plain_send_names(PyObject *slow, PyObject *without);

/* Can the text of a header be used as it was received: without an escape? */
int plain_is_verbatim(const struct plain_text *text, const struct stomp_scan *scan);

/* Read the head of a SEND at data with a body of `size` bytes. Returns 0 if it is not plain. */
int plain_send_read(struct plain_send *send, const struct stomp_scan *scan, const uint8_t *data, size_t size);

/* Write its tail, of tail_len bytes. */
void plain_send_tail(const struct plain_send *send, const struct stomp_scan *scan, const uint8_t *data, char *to);

#endif
