/* Plain WebSocket frames: measured, unmasked, written. */
#include <string.h>

#include "stomp.h"
#include "text.h"

enum { FIN = 0x80, TEXT = 1, BINARY = 2, MASKED = 0x80, SHORT = 125, TWO = 126, EIGHT = 127 };

static uint64_t big_endian(const uint8_t *digits, size_t count)
{
    uint64_t number = 0;
    for (size_t i = 0; i < count; i++)
        number = number << 8 | digits[i];
    return number;
}

/* Return the length of the head of the plain frame at data, and set the size of its payload; 0 if there is no such
   frame. */
static inline size_t plain_head(const uint8_t *data, size_t len, const struct stomp_websocket_rules *rules,
                                size_t *payload)
{
    const size_t mask = rules->masked ? 4 : 0;
    size_t head = 2 + mask;
    if (len < head || (data[0] != (FIN | TEXT) && data[0] != (FIN | BINARY))
        || (data[1] & MASKED) != (mask ? MASKED : 0))
        return 0;
    uint64_t size = data[1] & 127;
    if (size > SHORT) {
        size_t digits = size == TWO ? 2 : 8;
        head += digits;
        if (len < head)
            return 0;
        size = big_endian(data + 2, digits);
    }
    if (size > rules->longest || size > len - head)
        return 0;
    *payload = (size_t)size;
    return head;
}

/* Copy with a mask, eight bytes at a time: the compiler makes vectors of it. */
static void copy_masked(uint8_t *out, const uint8_t *from, size_t len, const uint8_t *mask)
{
    uint8_t twice[8];
    uint64_t key, word;
    size_t i = 0;
    memcpy(twice, mask, 4);
    memcpy(twice + 4, mask, 4);
    memcpy(&key, twice, 8);
    for (; len - i >= 8; i += 8) {
        memcpy(&word, from + i, 8);
        word ^= key;
        memcpy(out + i, &word, 8);
    }
    for (; i < len; i++)
        out[i] = from[i] ^ mask[i & 3];
}

/* Return whether a payload is UTF-8. ASCII is passed over 64 bytes at a time: payloads are longer than headers. */
static int is_utf8(const uint8_t *text, size_t len)
{
    size_t ascii = 0;
    for (; len - ascii >= 64; ascii += 64) {
        uint64_t words[8], any = 0;
        memcpy(words, text + ascii, 64);
        for (int i = 0; i < 8; i++)
            any |= words[i];
        if (any & 0x8080808080808080u)
            break;
    }
    return stomp_bad_utf8(text + ascii, len - ascii) == len - ascii;
}

void stomp_websocket_measure(struct stomp_websocket_run *run, const struct stomp_websocket_rules *rules,
                             const uint8_t *data, size_t len)
{
    size_t payload;
    *run = (struct stomp_websocket_run){0};
    while (run->frames < rules->most) {
        size_t head = plain_head(data + run->end, len - run->end, rules, &payload);
        if (!head)
            break;
        run->end += head + payload;
        run->payload += payload;
        run->frames++;
    }
}

void stomp_websocket_copy(uint8_t *out, struct stomp_websocket_run *run, const struct stomp_websocket_rules *rules,
                          const uint8_t *data)
{
    struct stomp_websocket_run done = {0};
    size_t payload = 0;
    while (done.end < run->end) {
        const uint8_t *frame = data + done.end;
        size_t head = plain_head(frame, run->end - done.end, rules, &payload);
        uint8_t *to = out + done.payload;
        if (!head || payload > run->payload - done.payload) /* it is not what was measured */
            break;
        if (rules->masked)
            copy_masked(to, frame + head, payload, frame + head - 4);
        else if (payload)
            memcpy(to, frame + head, payload);
        if (rules->utf8 && frame[0] == (FIN | TEXT) && !is_utf8(to, payload))
            break;
        done.end += head + payload;
        done.payload += payload;
        done.frames++;
    }
    *run = done;
}

uint8_t *stomp_websocket_write(uint8_t *out, const uint8_t *payload, size_t len, const uint8_t *mask)
{
    const size_t digits = len <= SHORT ? 0 : len <= UINT16_MAX ? 2 : 8;
    *out++ = FIN | (is_utf8(payload, len) ? TEXT : BINARY);
    *out++ = (uint8_t)((mask ? MASKED : 0) | (!digits ? len : digits == 2 ? (size_t)TWO : (size_t)EIGHT));
    for (size_t i = digits; i > 0; i--)
        *out++ = (uint8_t)((uint64_t)len >> 8 * (i - 1));
    if (mask) {
        memcpy(out, mask, 4);
        copy_masked(out + 4, payload, len, mask);
        return out + 4 + len;
    }
    if (len)
        memcpy(out, payload, len);
    return out + len;
}
