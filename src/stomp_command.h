/* The look-up of commands. Inline, since each frame needs it. */
#ifndef STOMP_COMMAND_H
#define STOMP_COMMAND_H

#include <string.h>

#include "stomp_rules.h"

/* The commands as text, in the order of enum stomp_command. */
extern const char *const stomp_command_names[STOMP_COMMANDS];

/* A slot of the table: a command, which of its first 8 bytes count, and its bit, or 0 if it is longer. */
struct stomp_command_slot {
    char text[16], mask[8];
    uint32_t bit;
    uint16_t len, command;
};

/* At the index stomp_command_hash. CONNECTED is behind CONNECT, which begins alike. */
extern const struct stomp_command_slot stomp_command_slots[32];

/* A number below 32 from the first three bytes, of which the first is the lowest. It differs for all commands but CONNECTED. */
static inline size_t stomp_command_hash(uint32_t first)
{
    return (first & 0xffffff) * 0xc324c985u >> 27;
}

/* Return the slot of the command that the text begins with, or NULL, or a slot without a bit. 8 bytes are read. */
static inline const struct stomp_command_slot *stomp_command_slot(const uint8_t *text)
{
    const struct stomp_command_slot *slot = &stomp_command_slots[stomp_command_hash(text[0] | text[1] << 8 | text[2] << 16 | (uint32_t)text[3] << 24)];
    uint64_t x, y, mask;
    memcpy(&x, text, 8);
    memcpy(&y, slot->text, 8);
    memcpy(&mask, slot->mask, 8);
    return (x ^ y) & mask ? NULL : slot;
}

/* Return an enum stomp_command. STOMP_COMMANDS: unknown. */
int stomp_command_of(const uint8_t *text, size_t len);

#endif
