/* The codec without Python: rules, the scanner of heads, columns, ends of frames, plain WebSocket frames. */
#ifndef STOMP_H
#define STOMP_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* ======== memory ======== */

/* The allocator of the files that do not use Python. In the extension it is Python's raw allocator, which needs no
   GIL, so that tracemalloc, debug hooks and tests with failing memory see each allocation. Elsewhere it is that of
   libc. */

#ifdef STOMP_PYTHON
void *PyMem_RawMalloc(size_t size);
void *PyMem_RawCalloc(size_t count, size_t size);
void *PyMem_RawRealloc(void *old, size_t size);
void PyMem_RawFree(void *old);
#endif

/* Allocate `size` bytes, or return NULL. */
static inline void *stomp_alloc(size_t size)
{
#ifdef STOMP_PYTHON
    return PyMem_RawMalloc(size);
#else
    return malloc(size);
#endif
}

/* Allocate `count` times `size` bytes, all zero, or return NULL. */
static inline void *stomp_alloc_zeroed(size_t count, size_t size)
{
#ifdef STOMP_PYTHON
    return PyMem_RawCalloc(count, size);
#else
    return calloc(count, size);
#endif
}

/* Resize a block, which may move it. NULL: no memory, and the block is unchanged. */
static inline void *stomp_resize(void *old, size_t size)
{
#ifdef STOMP_PYTHON
    return PyMem_RawRealloc(old, size);
#else
    return realloc(old, size);
#endif
}

static inline void stomp_release(void *old)
{
#ifdef STOMP_PYTHON
    PyMem_RawFree(old);
#else
    free(old);
#endif
}

/* ======== rules ======== */

/* The rules for reading a frame: those of a version and dialect, and the caller's limits. */

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
    STOMP_PADS_TAB = 1 << 10,
    STOMP_MENDS_LENGTH = 1 << 11,
    STOMP_SKIPS_IDLE_LENGTH = 1 << 12,
    STOMP_KEEPS_LOGIN_ESCAPES = 1 << 13
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

/* ======== commands ======== */

/* The look-up of commands. Inline, since each frame needs it. */

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

/* A number below 32 from the first three bytes, of which the first is the lowest. It differs for all commands but
   CONNECTED. */
static inline size_t stomp_command_hash(uint32_t first)
{
    return (first & 0xffffff) * 0xc324c985u >> 27;
}

/* Return the slot of the command that the text begins with, or NULL, or a slot without a bit. 8 bytes are read. */
static inline const struct stomp_command_slot *stomp_command_slot(const uint8_t *text)
{
    const struct stomp_command_slot *slot =
        &stomp_command_slots[stomp_command_hash(text[0] | text[1] << 8 | text[2] << 16 | (uint32_t)text[3] << 24)];
    uint64_t x, y, mask;
    memcpy(&x, text, 8);
    memcpy(&y, slot->text, 8);
    memcpy(&mask, slot->mask, 8);
    return (x ^ y) & mask ? NULL : slot;
}

/* Return an enum stomp_command. STOMP_COMMANDS: unknown. */
int stomp_command_of(const uint8_t *text, size_t len);

/* ======== the head of a frame ======== */

/* The head of a frame: what a scan found in it, and where an unfinished one goes on. Scanned by scan.c. */

enum stomp_outcome { STOMP_MORE, STOMP_BEAT, STOMP_HEAD, STOMP_BAD };

/* The errors. _LIMITS in codec.pyx uses the numbers of the limits. */
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
    STOMP_CHANGED = 1 << 0,   /* something was trimmed, skipped or folded: the head cannot be kept unchanged */
    STOMP_NON_ASCII = 1 << 1, /* some header has a byte above 127 */
    STOMP_ESCAPED = 1 << 2,   /* some header has a backslash that may start an escape */
    STOMP_ODD = 1 << 3, /* a writer would write it differently: raw CR, raw colon in a value, backslash as data, … */
    STOMP_HAS_LENGTH = 1 << 4, /* there is a content-length */
    STOMP_CR_ENDS = 1 << 5,    /* some line ends in CR LF */
    STOMP_IDLE = 1 << 6,       /* the content-length is that of a frame without a body */
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
    /* the variant for this machine */
    int (*scan_head)(struct stomp_scan *, const struct stomp_rules *, const uint8_t *, size_t);
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
    uint64_t idle; /* with STOMP_IDLE: the content-length, if the NUL does not follow at once; `length` is 0 */
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
static inline size_t stomp_header_of(const struct stomp_scan *scan, const uint8_t *data, uint32_t i, size_t from,
                                     struct stomp_header *header)
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

/* ======== the scanner ======== */

/* A resumable scanner for the head of one STOMP frame: gap, command line, header lines, empty line.

   It knows bytes and rules, but no Python and no meaning of headers. It never allocates by a number from the wire,
   never reads outside [data, data + len), and reads no byte more than a few times: its state keeps the position. All
   offsets are counted from the frame's first byte, so that the buffer may move between two calls.

   Outcomes of stomp_scan_head:
     STOMP_MORE  the head is incomplete: drop `skip` bytes, append new bytes, call again;
     STOMP_BEAT  one EOL between frames (only with rules->report_beats): drop `skip` bytes;
     STOMP_HEAD  drop `skip` bytes; then the head is [0, head), and the body starts at `head`;
     STOMP_BAD   drop `skip` bytes; then `error` is the error and `at` its offset. */

void stomp_scan_init(struct stomp_scan *scan);
void stomp_scan_free(struct stomp_scan *scan);

/* Scan; see the top of this file. After STOMP_HEAD the next call starts a new frame. After STOMP_BAD do not call
   again. */
static inline int stomp_scan_head(struct stomp_scan *scan, const struct stomp_rules *rules, const uint8_t *data,
                                  size_t len)
{
    return scan->scan_head(scan, rules, data, len);
}

/* ======== bodies ======== */

/* The body of a frame whose data is all in one place. */

/* The first byte behind a frame whose content-length was wrong: an EOL or a command. */
static inline int stomp_may_follow(const struct stomp_rules *rules, uint8_t first)
{
    return first == '\n' || first == '\r' || (first >= 'A' && first <= 'Z')
        || ((rules->flags & STOMP_LEGACY) && first >= 'a' && first <= 'z');
}

enum stomp_wrong { STOMP_WRONG, STOMP_COUNTS_NUL, STOMP_MAY_COUNT_CHARACTERS };

/* How is a content-length wrong? `body` has the `length` bytes that it announces. */
static inline enum stomp_wrong stomp_wrong_length(const uint8_t *body, uint64_t length)
{
    const uint8_t *nul = length ? memchr(body, 0, (size_t)length) : body;
    return !nul ? STOMP_MAY_COUNT_CHARACTERS : nul + 1 == body + length ? STOMP_COUNTS_NUL : STOMP_WRONG;
}

#define STOMP_MOST_BYTES(characters, most) ((characters) < (most) / 4 ? 4 * (characters) : (most)) /* of a text */

/* Find the end of a body whose content-length is wrong: as stomp_find_body. */
int stomp_mend_body(const struct stomp_scan *scan, const struct stomp_rules *rules, const uint8_t *body, size_t len,
                    size_t *size);

/* Find the body at `body`, with len bytes available. *size: its bytes, without the NUL. Returns an enum stomp_error;
   -1: incomplete. */
static inline int stomp_find_body(const struct stomp_scan *scan, const struct stomp_rules *rules, const uint8_t *body,
                                  size_t len, size_t *size)
{
    if (scan->marks & STOMP_HAS_LENGTH) {
        if (len <= scan->length)
            return -1;
        *size = (size_t)scan->length;
        return body[*size] ? STOMP_MISSING_NULL : STOMP_OK;
    }
    size_t most = len > rules->max_body ? (size_t)rules->max_body + 1 : len;
    if (len && body[0] && !stomp_takes_body(rules, scan->command)) {
        *size = 0;
        return STOMP_BODY_NOT_ALLOWED;
    }
    const uint8_t *nul = most ? memchr(body, 0, most) : NULL;
    *size = nul ? (size_t)(nul - body) : (size_t)rules->max_body;
    return nul ? STOMP_OK : len > rules->max_body ? STOMP_LIMIT_BODY : -1;
}

/* ======== the hook before frames are made ======== */

/* A hook sees the complete frames of a parser before they are made. It may take one: then no frame object is made,
   and the parser goes on with the next. The parser finds it in the attribute `hook` of an object, a capsule named
   STOMP_HOOK. */

#define STOMP_HOOK "stompcodec.hook"

enum stomp_taking {
    STOMP_LEFT,       /* not taken, and nothing else was done: the parser makes the frame */
    STOMP_TAKEN,      /* taken: go on with the next */
    STOMP_TAKEN_LAST, /* taken: the iteration ends here, and later frames stay unread */
};

struct stomp_hook {
    size_t scan_size; /* sizeof(struct stomp_scan), which both extensions must have in common */
    /* Offer the frame at data, whose body has `size` bytes and begins at scan->head. The bytes are valid until the
       hook calls Python. Returns enum stomp_taking, or -1 with an exception. */
    int (*take)(void *owner, const struct stomp_scan *scan, const uint8_t *data, size_t size);
    void *owner;
};

/* ======== what columns are asked for ======== */

/* The choice of columns, headers and frames, and the buffers of columns. */

struct stomp_buffer {
    uint8_t *data;
    size_t len, room;
};

/* Offsets and bytes of a text or binary column; valid has a bit for each row of a nullable one. */
struct stomp_column {
    struct stomp_buffer offsets, data, valid;
    int64_t nulls;
};

/* The columns before those of single headers, in order, as bits. */
enum stomp_column_bit {
    STOMP_COLUMN_COMMAND = 1 << 0,
    STOMP_COLUMN_HEADERS = 1 << 1,
    STOMP_COLUMN_BODY = 1 << 2,
    STOMP_COLUMN_OFFSET = 1 << 3,
    STOMP_COLUMN_LENGTH = 1 << 4,
    STOMP_COLUMN_ERROR = 1 << 5,
    STOMP_COLUMNS = (1 << 6) - 1 /* all */
};

/* A condition on the command or a header, as columns show it: it equals a value, or begins with one. */
struct stomp_condition {
    struct stomp_name name;
    int of_command, is_prefix;
    const struct stomp_name *values; /* ascending; no prefix begins with another */
    size_t count;
};

struct stomp_wanted {
    int columns;                    /* enum stomp_column_bit */
    int repeats;                    /* 0: only the first entry of a repeated header */
    const struct stomp_name *names; /* headers with a column of their own */
    size_t names_count;
    const struct stomp_condition *where; /* all must hold */
    size_t where_count;
};

/* ======== ends of frames ======== */

/* A light parse that finds the ends of frames and checks nothing else. It uses no Python and runs without the GIL.

   A frame is: EOLs, a head up to the first empty line, a body. The first content-length in the head counts if it is a
   number and a NUL follows the body of that length; otherwise the body ends at the first NUL. So the ends are right
   for all frames that are valid in 1.0, 1.1 or 1.2, and tell where to continue after a malformed one. */

struct stomp_ends {
    int64_t *ends; /* offsets, ascending */
    size_t count, room;
};

/* The ends to return: those at least `every` bytes after the last returned one, and the end of the last whole frame;
   at most `most`. A content-length above max_body is ignored. */
struct stomp_ends_wanted {
    size_t every, most;
    uint64_t max_body;
};

/* Returns 0, or -1 without memory. Call stomp_ends_free afterwards in either case. */
int stomp_frame_ends(struct stomp_ends *ends, const struct stomp_ends_wanted *wanted, const uint8_t *data, size_t len);
void stomp_ends_free(struct stomp_ends *ends);

/* ======== plain WebSocket frames ======== */

/* WebSocket frames of the plain kind, both ways: text or binary, whole, in one fragment. No Python, no allocation, no
   reads out of bounds. All other frames are left to a WebSocket library. */

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

/* Measure the run of plain frames at the start of data. It ends before a frame that is not plain, too large or
   incomplete. */
void stomp_websocket_measure(struct stomp_websocket_run *run, const struct stomp_websocket_rules *rules,
                             const uint8_t *data, size_t len);

/* Copy the payloads of a measured run, without masks, into out, which has room for run->payload bytes. If text is not
   UTF-8, the run is cut before its frame; also before one that somebody else has changed since it was measured, and
   that has no room. */
void stomp_websocket_copy(uint8_t *out, struct stomp_websocket_run *run, const struct stomp_websocket_rules *rules,
                          const uint8_t *data);

/* Write a frame of text if the payload is UTF-8, else a binary one, into out, which has room for len +
   STOMP_WEBSOCKET_HEAD bytes. mask: 4 bytes, or NULL for a frame without one. Return the end of the frame. */
uint8_t *stomp_websocket_write(uint8_t *out, const uint8_t *payload, size_t len, const uint8_t *mask);

#endif
