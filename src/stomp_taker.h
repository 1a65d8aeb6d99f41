/* A taker sees the complete frames of a parser before they are made. It may take one: then no frame object is made, and the
   parser goes on with the next. The parser finds it in the attribute `taker` of an object, a capsule named STOMP_TAKER. */
#ifndef STOMP_TAKER_H
#define STOMP_TAKER_H

#include "stomp_scan.h"

#define STOMP_TAKER "stompcodec.taker"

enum stomp_taking {
    STOMP_LEFT,       /* not taken, and nothing else was done: the parser makes the frame */
    STOMP_TAKEN,      /* taken: go on with the next */
    STOMP_TAKEN_LAST, /* taken: the iteration ends here, and later frames stay unread */
};

struct stomp_taker {
    size_t scan_size; /* sizeof(struct stomp_scan), which both extensions must have in common */
    /* Offer the frame at data, whose body has `size` bytes and begins at scan->head. The bytes are valid until the taker calls
       Python. Returns enum stomp_taking, or -1 with an exception. */
    int (*take)(void *owner, const struct stomp_scan *scan, const uint8_t *data, size_t size);
    void *owner;
};

#endif
