#include "stomp_command.h"

const char *const stomp_command_names[STOMP_COMMANDS] = {
    "SEND",  "MESSAGE", "ERROR", "ACK",     "NACK",  "RECEIPT",   "SUBSCRIBE",  "UNSUBSCRIBE",
    "BEGIN", "COMMIT",  "ABORT", "CONNECT", "STOMP", "CONNECTED", "DISCONNECT",
};

const struct stomp_command_slot stomp_command_slots[32] = {
    [1] = {"COMMIT", "\xff\xff\xff\xff\xff\xff", 1u << STOMP_COMMIT, 6, STOMP_COMMIT},
    [3] = {"BEGIN", "\xff\xff\xff\xff\xff", 1u << STOMP_BEGIN, 5, STOMP_BEGIN},
    [5] = {"RECEIPT", "\xff\xff\xff\xff\xff\xff\xff", 1u << STOMP_RECEIPT, 7, STOMP_RECEIPT},
    [6] = {"ACK", "\xff\xff\xff", 1u << STOMP_ACK, 3, STOMP_ACK},
    [7] = {"ABORT", "\xff\xff\xff\xff\xff", 1u << STOMP_ABORT, 5, STOMP_ABORT},
    [10] = {"UNSUBSCRIBE", "", 0, 11, STOMP_UNSUBSCRIBE},
    [14] = {"SUBSCRIBE", "", 0, 9, STOMP_SUBSCRIBE},
    [16] = {"STOMP", "\xff\xff\xff\xff\xff", 1u << STOMP_STOMP, 5, STOMP_STOMP},
    [17] = {"NACK", "\xff\xff\xff\xff", 1u << STOMP_NACK, 4, STOMP_NACK},
    [18] = {"SEND", "\xff\xff\xff\xff", 1u << STOMP_SEND, 4, STOMP_SEND},
    [21] = {"DISCONNECT", "", 0, 10, STOMP_DISCONNECT},
    [26] = {"CONNECT", "\xff\xff\xff\xff\xff\xff\xff", 1u << STOMP_CONNECT, 7, STOMP_CONNECT},
    [27] = {"CONNECTED", "", 0, 9, STOMP_CONNECTED},
    [29] = {"ERROR", "\xff\xff\xff\xff\xff", 1u << STOMP_ERROR, 5, STOMP_ERROR},
    [30] = {"MESSAGE", "\xff\xff\xff\xff\xff\xff\xff", 1u << STOMP_MESSAGE, 7, STOMP_MESSAGE},
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

int stomp_command_of(const uint8_t *text, size_t len)
{
    if (len < 3)
        return STOMP_COMMANDS;
    const struct stomp_command_slot *slot = &stomp_command_slots[stomp_command_hash(text[0] | text[1] << 8 | text[2] << 16)];
    for (int i = 0; i < 2 && slot < stomp_command_slots + 32; i++, slot++)
        if (slot->len == len && same_octets(text, slot->text, len))
            return slot->command;
    return STOMP_COMMANDS;
}
