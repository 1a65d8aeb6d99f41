/* The full rules of single lines and of the gap before a frame, for stomp_scan.c alone. */
#ifndef STOMP_LINES_H
#define STOMP_LINES_H

#include <string.h>

#include "stomp_head.h"

#define STOMP_NONE SIZE_MAX
enum { STOMP_GAP, STOMP_COMMAND_LINE, STOMP_HEADER_LINES }; /* phases */
enum { STOMP_LINE_TAKEN = 0, STOMP_LINE_BLANK = -1 };       /* verdicts beside an enum stomp_error */
enum { STOMP_GO_ON = -1 };                                  /* beside enum stomp_outcome: go on */

/* Skip EOLs. Returns STOMP_GO_ON if a frame begins at s->skip, or else an outcome. */
int stomp_scan_gap(struct stomp_scan *s, const struct stomp_rules *rules, const uint8_t *data, size_t len);

/* Read the current line, whose LF is at `lf`. s->colon and s->rare are set. The order of the checks is specified: the first
   violation counts. */
int stomp_take_line(struct stomp_scan *s, const struct stomp_rules *rules, const uint8_t *data, size_t lf);

/* Return the error for a NUL at `at`, inside the current line. */
int stomp_nul_in_line(struct stomp_scan *s, const struct stomp_rules *rules, const uint8_t *data, size_t at);

/* Does [s->line, end), the incomplete current line, exceed a limit already? */
int stomp_check_unfinished(struct stomp_scan *s, const struct stomp_rules *rules, const uint8_t *data, size_t end);

static inline int stomp_bad(struct stomp_scan *s, int error, size_t at)
{
    s->error = error;
    s->at = at;
    return error;
}

static inline int stomp_is_content_length(const uint8_t *name)
{
    return !memcmp(name, "content-length", 14);
}

#endif
