/* The head of a frame: what a scan found in it, and where an unfinished one goes on. Scanned by stomp_scan.h. */
#ifndef STOMP_HEAD_H
#define STOMP_HEAD_H

#include <stddef.h>
#include <stdint.h>

#include "stomp_rules.h"

enum stomp_outcome { STOMP_MORE, STOMP_BEAT, STOMP_HEAD, STOMP_BAD };

/* The errors. _LIMITS in _codec_c.pyx uses the numbers of the limits. */
enum stomp_error {
    STOMP_OK,
    STOMP_UNKNOWN_COMMAND,
    STOMP_BAD_HEADER_LINE,
    STOMP_BAD_ESCAPE,
    STOMP_INVALID_UTF8,
    STOMP_UNEXPECTED_NUL,
    STOMP_BAD_CONTENT_LENGTH,
    STOMP_MISSING_NULL,
    STOMP_BODY_NOT_ALLOWED,
    STOMP_TRUNCATED,
    STOMP_LIMIT_COMMAND_LINE,
    STOMP_LIMIT_HEADER_LINE,
    STOMP_LIMIT_HEADERS,
    STOMP_LIMIT_BODY,
    STOMP_UNENCODABLE,
    STOMP_NO_MEMORY
};

/* Properties of a head. */
enum stomp_mark {
    STOMP_CHANGED = 1 << 0,    /* something was trimmed, skipped or folded: the head cannot be kept unchanged */
    STOMP_NON_ASCII = 1 << 1,  /* some header has a byte above 127 */
    STOMP_ESCAPED = 1 << 2,    /* some header has a backslash that may start an escape */
    STOMP_ODD = 1 << 3,        /* a writer would write it differently: raw CR, raw colon in a value, backslash as data, … */
    STOMP_HAS_LENGTH = 1 << 4, /* there is a content-length */
    STOMP_CR_ENDS = 1 << 5,    /* some line ends in CR LF */
};

/* One header, as offsets from the frame's first byte. */
struct stomp_line {
    uint32_t colon, end; /* the first colon; the end of the value */
};

/* The offsets of name and value, for rules that trim or skip. Otherwise they follow the previous line and the colon. */
struct stomp_start {
    uint32_t name, value;
};

#define STOMP_INLINE_LINES 32
#define STOMP_SPARE_LINES 22 /* most lines of a block of 64 bytes: those above the room are written, and dropped */

struct stomp_scan {
    int (*scan_head)(struct stomp_scan *, const struct stomp_rules *, const uint8_t *, size_t); /* the variant for this machine */
    int phase; /* 0 gap, 1 command line, 2 header lines */
    /* the position between two calls */
    size_t pos;     /* bytes of the frame that were read */
    size_t line;    /* offset of the current line */
    size_t colon;   /* its first colon, or SIZE_MAX */
    size_t blank;   /* offset up to which a line above the limit was found to be blank */
    size_t skipped; /* malformed lines that lenient rules skipped; they count as headers */
    int rare;       /* the current line needs the full rules */
    /* the result */
    uint32_t count;
    int marks; /* enum stomp_mark */
    uint64_t length;
    int command; /* enum stomp_command */
    int level;   /* its escapes: those of the rules, or 0 */
    size_t command_len;
    size_t first; /* offset of the first header line */
    size_t skip, head, at;
    int error;
    uint32_t room;
    struct stomp_line *lines;   /* of length count; `few`, or allocated */
    struct stomp_start *starts; /* of length count, or NULL for rules that neither trim nor skip */
    struct stomp_line few[STOMP_INLINE_LINES + STOMP_SPARE_LINES];
};

struct stomp_header {
    size_t name, colon, value, end;
};

/* Read header i of the head at data. `from` is 0 for the first header, then the result of the last call. */
static inline size_t stomp_header_of(const struct stomp_scan *scan, const uint8_t *data, uint32_t i, size_t from, struct stomp_header *header)
{
    header->colon = scan->lines[i].colon;
    header->end = scan->lines[i].end;
    header->name = from ? from : scan->first;
    header->value = header->colon + 1;
    if (scan->starts) {
        header->name = scan->starts[i].name;
        header->value = scan->starts[i].value;
    }
    return header->end + 1 + (data[header->end] == '\r');
}

#endif
