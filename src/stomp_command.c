#include "stomp_command.h"

const char *const stomp_command_names[STOMP_COMMANDS] = {
    "SEND",  "MESSAGE", "ERROR", "ACK",     "NACK",  "RECEIPT",   "SUBSCRIBE",  "UNSUBSCRIBE",
    "BEGIN", "COMMIT",  "ABORT", "CONNECT", "STOMP", "CONNECTED", "DISCONNECT",
};

int stomp_command_of(const uint8_t *text, size_t len)
{
    return command_of(text, len);
}
