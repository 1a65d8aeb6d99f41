/* Heads of SEND and ACK, read for the broker without a frame: what concerns it, and which bytes go into the MESSAGE. What
   this does not know, it leaves to the handlers of frames. */
#ifndef HOT_READ_H
#define HOT_READ_H

#include <Python.h>

#include "stomp.h"

#define HOT_MOST_LINES 64
#define HOT_LONGEST_NAME 31
#define HOT_MOST_REWRITTEN 2048 /* bytes of a head with header lines that are written anew */

/* What becomes of a header, by its name. */
enum hot_kind {
    HOT_COPIED,
    HOT_DROPPED,
    HOT_SLOW,
    HOT_DESTINATION,
    HOT_RECEIPT,
    HOT_PERSISTENT,
    HOT_LENGTH,
    HOT_TRANSACTION
};

struct hot_text {
    const uint8_t *at; /* NULL without this header */
    size_t len;
};

struct hot_send {
    struct hot_text destination, receipt, persistent, transaction;
    size_t size;     /* of the body */
    size_t tail_len; /* of the tail: header lines, empty line, body, NUL */
    const uint8_t *lines; /* where the runs are: the frame, or `rewritten` */
    int runs;
    struct {
        uint32_t from, end;
    } run[HOT_MOST_LINES + 1]; /* header lines that are copied together */
    char length[40];             /* the line content-length, if that is written anew */
    size_t length_len;
    uint8_t rewritten[2 * HOT_MOST_REWRITTEN + 16]; /* each byte may be escaped; the writer may use 16 more */
};

/* Learn the names of headers that keep a SEND off the plain road, and of those that are left out. Tuples of str. */
int hot_send_names(PyObject *slow, PyObject *without);

/* Can the text of a header be used as it was received: without an escape? */
int hot_is_verbatim(const struct hot_text *text, const struct stomp_scan *scan);

/* Read the head of a SEND at data with a body of `size` bytes. Returns 0 if it is not plain. */
int hot_send_read(struct hot_send *send, const struct stomp_scan *scan, const uint8_t *data, size_t size);

/* Write its tail, of tail_len bytes. */
void hot_send_tail(const struct hot_send *send, const struct stomp_scan *scan, const uint8_t *data, char *to);

/* Does a value say that a message is to be stored? Returns 1 or 0, -1 for a value that the handlers judge, -2 without. */
int hot_persistent(const struct hot_text *text);

struct hot_ack {
    struct hot_text consumer, receipt; /* the number of the consumer */
    long long tag;                     /* of the delivery */
};

/* Read the head of an ACK of 1.2. Returns 0 if it is not plain. */
int hot_ack_read(struct hot_ack *ack, const struct stomp_scan *scan, const uint8_t *data);

#endif
