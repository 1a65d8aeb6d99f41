/* WebSocket frames of the plain kind, both ways: text or binary, whole, in one fragment. No Python, no allocation, no reads
   out of bounds. All other frames are left to a WebSocket library. */
#ifndef STOMP_WEBSOCKET_H
#define STOMP_WEBSOCKET_H

#include <stddef.h>
#include <stdint.h>

enum { STOMP_WEBSOCKET_HEAD = 14 }; /* bytes of the longest head, with its mask */

struct stomp_websocket_rules {
    int masked;       /* whether frames have masks, as a client sends them */
    int utf8;         /* whether payloads of text must be UTF-8 */
    uint64_t longest; /* bytes of the largest payload */
    size_t most;      /* frames */
};

/* Plain frames, one behind the other. */
struct stomp_websocket_run {
    size_t end, payload, frames; /* where the run ends, the bytes of its payloads, and how many frames it has */
};

/* Measure the run of plain frames at the start of data. It ends before a frame that is not plain, too large or incomplete. */
void stomp_websocket_measure(struct stomp_websocket_run *run, const struct stomp_websocket_rules *rules, const uint8_t *data,
                             size_t len);

/* Copy the payloads of a measured run, without masks, into out, which has room for run->payload bytes. If text is not UTF-8,
   the run is cut before its frame; also before one that somebody else has changed since it was measured, and that has no room. */
void stomp_websocket_copy(uint8_t *out, struct stomp_websocket_run *run, const struct stomp_websocket_rules *rules,
                          const uint8_t *data);

/* Write a frame of text if the payload is UTF-8, else a binary one, into out, which has room for len + STOMP_WEBSOCKET_HEAD
   bytes. mask: 4 bytes, or NULL for a frame without one. Return the end of the frame. */
uint8_t *stomp_websocket_write(uint8_t *out, const uint8_t *payload, size_t len, const uint8_t *mask);

#endif
