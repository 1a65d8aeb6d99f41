/* The look-up of commands. Inline, since each frame needs it. */
#ifndef STOMP_COMMAND_H
#define STOMP_COMMAND_H

#include <string.h>

#include "stomp_rules.h"

/* The commands as text, in the order of enum stomp_command. */
extern const char *const stomp_command_names[STOMP_COMMANDS];

/* (first letter / 2 + 17 * length) % 32 differs for all commands. */
static const struct {
    char text[16];
    size_t len;
    int command;
} command_slots[32] = {
    {"RECEIPT", 7, STOMP_RECEIPT},     {"", 0, 0}, {"SUBSCRIBE", 9, STOMP_SUBSCRIBE}, {"", 0, 0}, {"", 0, 0},
    {"UNSUBSCRIBE", 11, STOMP_UNSUBSCRIBE}, {"", 0, 0}, {"COMMIT", 6, STOMP_COMMIT}, {"", 0, 0}, {"", 0, 0}, {"", 0, 0},
    {"NACK", 4, STOMP_NACK}, {"DISCONNECT", 10, STOMP_DISCONNECT}, {"SEND", 4, STOMP_SEND}, {"", 0, 0}, {"", 0, 0},
    {"", 0, 0}, {"", 0, 0}, {"", 0, 0}, {"ACK", 3, STOMP_ACK}, {"", 0, 0}, {"ABORT", 5, STOMP_ABORT},
    {"BEGIN", 5, STOMP_BEGIN}, {"ERROR", 5, STOMP_ERROR}, {"CONNECT", 7, STOMP_CONNECT}, {"", 0, 0},
    {"CONNECTED", 9, STOMP_CONNECTED}, {"", 0, 0}, {"", 0, 0}, {"MESSAGE", 7, STOMP_MESSAGE}, {"STOMP", 5, STOMP_STOMP},
    {"", 0, 0},
};

/* Compare 3 to 16 bytes by two loads, which may overlap: faster than a call. */
static inline int same_octets(const uint8_t *a, const char *b, size_t len)
{
    if (len >= 8) {
        uint64_t x[2], y[2];
        memcpy(x, a, 8);
        memcpy(x + 1, a + len - 8, 8);
        memcpy(y, b, 8);
        memcpy(y + 1, b + len - 8, 8);
        return !((x[0] ^ y[0]) | (x[1] ^ y[1]));
    }
    if (len >= 4) {
        uint32_t x[2], y[2];
        memcpy(x, a, 4);
        memcpy(x + 1, a + len - 4, 4);
        memcpy(y, b, 4);
        memcpy(y + 1, b + len - 4, 4);
        return !((x[0] ^ y[0]) | (x[1] ^ y[1]));
    }
    return a[0] == b[0] && a[1] == b[1] && a[2] == b[2];
}

static inline int command_of(const uint8_t *text, size_t len)
{
    size_t slot = len ? (text[0] / 2u + 17 * len) % 32 : 1;
    if (!len || command_slots[slot].len != len || !same_octets(text, command_slots[slot].text, len))
        return STOMP_COMMANDS;
    return command_slots[slot].command;
}

/* The same, not inline, for rare use. STOMP_COMMANDS: unknown. */
int stomp_command_of(const uint8_t *text, size_t len);

#endif
