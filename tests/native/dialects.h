/* The dialects of stompcodec/spec.py as rules for the scanner, for programs without Python. test_native.py compares the
   two. An input begins with four octets that choose among them: rules_of_input. */
#ifndef DIALECTS_H
#define DIALECTS_H

#include "stomp.h"

enum { V1_2, V1_1, V1_0, LEGACY, NONE_YET, VERSIONS };

#define BIT(command) (1u << (command))
#define COMMANDS_1_0                                                                                                   \
    (BIT(STOMP_CONNECT) | BIT(STOMP_SEND) | BIT(STOMP_SUBSCRIBE) | BIT(STOMP_UNSUBSCRIBE) | BIT(STOMP_BEGIN)           \
     | BIT(STOMP_COMMIT) | BIT(STOMP_ABORT) | BIT(STOMP_ACK) | BIT(STOMP_DISCONNECT) | BIT(STOMP_CONNECTED)            \
     | BIT(STOMP_MESSAGE) | BIT(STOMP_RECEIPT) | BIT(STOMP_ERROR))
#define COMMANDS_1_1 (COMMANDS_1_0 | BIT(STOMP_NACK) | BIT(STOMP_STOMP))

struct limits {
    size_t max_command_line, max_header_line, max_headers;
    uint64_t max_body;
};
static const struct limits default_limits = {256, 65536, 1000, 100u << 20};

static inline struct stomp_rules rules_of(int version, int lenient, struct limits limits)
{
    struct stomp_rules rules = {0};
    rules.commands = version == V1_0 || version == LEGACY ? COMMANDS_1_0 : COMMANDS_1_1;
    rules.escapes = version == V1_2 || version == NONE_YET ? 2 : version == V1_1 ? 1 : 0;
    rules.flags = version == V1_1 || version == V1_0 ? 0 : STOMP_CRLF;
    if (version == V1_0 || version == LEGACY)
        rules.flags |= STOMP_ANY_BODY | STOMP_PADS_SPACE;
    if (version == LEGACY)
        rules.flags |= STOMP_LEGACY;
    if (lenient) {
        rules.flags |= STOMP_CRLF | STOMP_ANY_BODY | STOMP_ANY_COMMAND | STOMP_KEEPS_BAD_ESCAPES | STOMP_KEEPS_BAD_UTF8;
        rules.flags |= STOMP_SKIPS_BAD_LINES | STOMP_SKIPS_NUL | STOMP_PADS_SPACE | STOMP_PADS_TAB;
        if (version == V1_0)
            rules.flags |= STOMP_TRIMS_HEADERS;
    }
    rules.max_command_line = limits.max_command_line;
    rules.max_header_line = limits.max_header_line;
    rules.max_headers = limits.max_headers;
    rules.max_body = limits.max_body;
    return rules;
}

#define INPUT_HEAD 4

/* The rules that the first octets of an input choose. */
static inline struct stomp_rules rules_of_input(const uint8_t input[INPUT_HEAD])
{
    static const struct limits limits[8] = {
        {7, 24, 3, 12}, {4, 8, 1, 0},  {0, 0, 0, 1},         {16, 64, 2, 100},
        {9, 17, 40, 5}, {64, 16, 8, 3000}, {300, 150, 70, 70000}, {256, 65536, 1000, 100u << 20},
    };
    static const struct stomp_name extra[] = {{(const uint8_t *)"PING", 4}, {(const uint8_t *)"caf\xc3\xa9", 5}};
    struct stomp_rules rules = rules_of(input[0] % 5, input[0] / 5 % 2, limits[input[1] % 8]);
    rules.report_beats = input[0] / 10 % 2;
    rules.extra = extra;
    rules.extra_count = input[0] / 20 % 2 ? 2 : 0;
    return rules;
}

#endif
