/* An ACK of one delivery: `ack` of sessions/commit.py, as far as it is simple. */
#ifndef PLAIN_ACK_H
#define PLAIN_ACK_H

#include <Python.h>

#include "plain_send.h"

/* An ACK whose delivery was found. The references are borrowed until plain_ack_settle. */
struct plain_ack {
    struct plain_text receipt;
    PyObject *consumer, *queue, *tag, *message;
};

/* Find the delivery that an ACK at data names. `name` keeps the number of the last consumer as a str. Returns 0 if it is not
   plain; else `tag` is a new reference. */
int plain_ack_find(struct plain_ack *ack, PyObject *session, const struct stomp_scan *scan, const uint8_t *data, PyObject **name);

/* Settle it. `receipt` is a str or None; `hold_receipts` is called if the message is stored. Returns 0, or -1 with an exception. */
int plain_ack_settle(const struct plain_ack *ack, PyObject *session, PyObject *receipt, PyObject *hold_receipts);

/* Let the queue deliver to the consumer, after the answer. Returns 0, or -1 with an exception. */
int plain_ack_offer(const struct plain_ack *ack);

#endif
