/* The rules for reading a frame: those of a version and dialect, and the caller's limits. */
#ifndef STOMP_RULES_H
#define STOMP_RULES_H

#include <stddef.h>
#include <stdint.h>

/* The commands of all versions. */
enum stomp_command {
    STOMP_SEND, STOMP_MESSAGE, STOMP_ERROR, STOMP_ACK, STOMP_NACK, STOMP_RECEIPT, STOMP_SUBSCRIBE,
    STOMP_UNSUBSCRIBE, STOMP_BEGIN, STOMP_COMMIT, STOMP_ABORT, STOMP_CONNECT, STOMP_STOMP,
    STOMP_CONNECTED, STOMP_DISCONNECT,
    STOMP_COMMANDS /* their number; also means "unknown" */
};
#define STOMP_WITH_BODY ((1u << STOMP_SEND) | (1u << STOMP_MESSAGE) | (1u << STOMP_ERROR))
#define STOMP_UNESCAPED ((1u << STOMP_CONNECT) | (1u << STOMP_CONNECTED))

/* The boolean fields of spec.Dialect. */
enum stomp_flag {
    STOMP_CRLF = 1 << 0,
    STOMP_ANY_BODY = 1 << 1,
    STOMP_LEGACY = 1 << 2, /* folds_case and trims_lines */
    STOMP_TRIMS_HEADERS = 1 << 3,
    STOMP_ANY_COMMAND = 1 << 4,
    STOMP_KEEPS_BAD_ESCAPES = 1 << 5,
    STOMP_KEEPS_BAD_UTF8 = 1 << 6,
    STOMP_SKIPS_BAD_LINES = 1 << 7,
    STOMP_SKIPS_NUL = 1 << 8,
    STOMP_PADS_SPACE = 1 << 9, /* spaces around the digits of content-length are skipped */
    STOMP_PADS_TAB = 1 << 10
};
/* Rules by which a name or value may not begin right after the previous line or the colon. */
#define STOMP_IRREGULAR (STOMP_LEGACY | STOMP_TRIMS_HEADERS | STOMP_SKIPS_BAD_LINES)

struct stomp_name {
    const uint8_t *octets;
    size_t len;
};

struct stomp_rules {
    uint32_t flags;    /* enum stomp_flag */
    uint32_t commands; /* a bit for each command of the version */
    int escapes;       /* 0 none, 1 those of 1.1, 2 those of 1.2 */
    int report_beats;
    size_t max_command_line, max_header_line, max_headers; /* bytes, bytes, lines */
    uint64_t max_body;                                     /* bytes */
    const struct stomp_name *extra;                        /* further commands */
    size_t extra_count;
};

/* May frames with this command have a body? */
static inline int stomp_takes_body(const struct stomp_rules *rules, int command)
{
    return (rules->flags & STOMP_ANY_BODY) || (command < STOMP_COMMANDS && (STOMP_WITH_BODY >> command & 1));
}

#endif
