/* A resumable scanner for the head of one STOMP frame: gap, command line, header lines, empty line.

   It knows bytes and rules, but no Python and no meaning of headers. It never allocates by a number from the wire, never
   reads outside [data, data + len), and reads no byte more than a few times: its state keeps the position. All offsets are
   counted from the frame's first byte, so that the buffer may move between two calls.

   Outcomes of stomp_scan_head:
     STOMP_MORE  the head is incomplete: drop `skip` bytes, append new bytes, call again;
     STOMP_BEAT  one EOL between frames (only with rules->report_beats): drop `skip` bytes;
     STOMP_HEAD  drop `skip` bytes; then the head is [0, head), and the body starts at `head`;
     STOMP_BAD   drop `skip` bytes; then `error` is the error and `at` its offset. */
#ifndef STOMP_SCAN_H
#define STOMP_SCAN_H

#include "stomp_head.h"

void stomp_scan_init(struct stomp_scan *scan);
void stomp_scan_free(struct stomp_scan *scan);

/* Scan; see the top of this file. After STOMP_HEAD the next call starts a new frame. After STOMP_BAD do not call again. */
static inline int stomp_scan_head(struct stomp_scan *scan, const struct stomp_rules *rules, const uint8_t *data, size_t len)
{
    return scan->scan_head(scan, rules, data, len);
}

#endif
