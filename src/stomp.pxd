"""The C headers for Cython: declarations only. The contracts stand in the headers."""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

cdef extern from "stomp.h" nogil:
    enum: STOMP_MORE, STOMP_BEAT, STOMP_HEAD, STOMP_BAD
    enum: STOMP_OK, STOMP_UNKNOWN_COMMAND, STOMP_BAD_CONTENT_LENGTH, STOMP_MISSING_NULL, STOMP_BODY_NOT_ALLOWED
    enum: STOMP_TRUNCATED, STOMP_LIMIT_BODY, STOMP_NO_MEMORY
    enum: STOMP_COMMANDS
    enum: STOMP_HAS_LENGTH, STOMP_IDLE, STOMP_ODD
    enum: STOMP_CRLF, STOMP_ANY_BODY, STOMP_LEGACY, STOMP_TRIMS_HEADERS, STOMP_ANY_COMMAND, STOMP_KEEPS_BAD_ESCAPES
    enum: STOMP_KEEPS_BAD_UTF8, STOMP_SKIPS_BAD_LINES, STOMP_SKIPS_NUL, STOMP_PADS_SPACE, STOMP_PADS_TAB
    enum: STOMP_MENDS_LENGTH, STOMP_SKIPS_IDLE_LENGTH, STOMP_KEEPS_LOGIN_ESCAPES
    enum stomp_wrong: STOMP_WRONG, STOMP_COUNTS_NUL, STOMP_MAY_COUNT_CHARACTERS

    struct stomp_name:
        const uint8_t *octets
        size_t len

    struct stomp_rules:
        uint32_t flags, commands
        int escapes, report_beats
        size_t max_command_line, max_header_line, max_headers
        uint64_t max_body
        const stomp_name *extra
        size_t extra_count

    struct stomp_scan:
        int phase
        size_t skip, head, at
        int error, command, marks
        uint64_t length, idle

    void stomp_scan_init(stomp_scan *scan)
    void stomp_scan_free(stomp_scan *scan)
    int stomp_scan_head(stomp_scan *scan, const stomp_rules *rules, const uint8_t *data, size_t len)
    int stomp_takes_body(const stomp_rules *rules, int command)
    int stomp_may_follow(const stomp_rules *rules, uint8_t first)
    stomp_wrong stomp_wrong_length(const uint8_t *body, uint64_t length)
    uint64_t STOMP_MOST_BYTES(uint64_t characters, uint64_t most)

cdef extern from "text.h" nogil:
    int stomp_counts_characters(const uint8_t *text, size_t len, uint64_t count)

cdef extern from "stomp.h":
    const char *STOMP_HOOK
    enum: STOMP_LEFT, STOMP_TAKEN, STOMP_TAKEN_LAST

    struct stomp_hook:
        size_t scan_size
        int (*take)(void *owner, const stomp_scan *scan, const uint8_t *data, size_t size) noexcept
        void *owner

cdef extern from "stomp.h" nogil:
    const char *const stomp_command_names[]

cdef extern from "frame.h":
    enum: STOMP_FREE_BLOCKS
    ctypedef struct StompFrame:
        void *body
        uint8_t marks
    int stomp_frame_init(object helpers) except -1
    PyObject *stomp_frame_from_scan(const stomp_scan *scan, const stomp_rules *rules,
                                    const uint8_t *data, void *body) except NULL
    void *StompFrame_Type_ptr "(&StompFrame_Type)"

    void *StompHeaders_Type_ptr "(&StompHeaders_Type)"

    int stomp_bytes_end(PyObject **bytes, size_t room, size_t len) except -1

cdef extern from "writer.h":
    struct stomp_out:
        size_t len

    struct stomp_batch:
        stomp_out head

    void stomp_out_init(stomp_out *out)
    void stomp_out_free(stomp_out *out)
    object stomp_out_take(stomp_out *out, void *tail)
    void stomp_batch_init(stomp_batch *batch, size_t expected)
    void stomp_batch_free(stomp_batch *batch)
    int stomp_batch_add(stomp_batch *batch, void *body) except -1
    object stomp_batch_take(stomp_batch *batch)

    enum: LENGTH_AUTO, LENGTH_ALWAYS, LENGTH_NEVER

    struct stomp_writer:
        stomp_rules rules
        int length_mode, lenient

    int stomp_write_head(stomp_out *out, StompFrame *frame, const stomp_writer *writer, uint32_t *culprit) except? -1
    size_t stomp_expected_size(const StompFrame *frame)
    int stomp_write_frame(PyObject **bytes, StompFrame *frame, const stomp_writer *writer, uint32_t *culprit) except? -1
    int stomp_write_tail(stomp_out *out, StompFrame *frame, const stomp_writer *writer, const stomp_name *without,
                         size_t without_count) except -1

cdef extern from "columns.h" nogil:
    struct ArrowSchema:
        void (*release)(ArrowSchema *)

    struct ArrowArray:
        void (*release)(ArrowArray *)

    struct stomp_columns:
        int64_t rows
        size_t consumed
        int bad

    struct stomp_condition:
        stomp_name name
        int of_command, is_prefix
        const stomp_name *values
        size_t count

    struct stomp_wanted:
        int columns, repeats
        const stomp_name *names
        size_t names_count
        const stomp_condition *where
        size_t where_count

    int stomp_columns_parse(stomp_columns *columns, const stomp_rules *rules, const stomp_wanted *wanted,
                            const uint8_t *data, size_t len)
    void stomp_columns_free(stomp_columns *columns)
    int stomp_columns_array(stomp_columns *columns, ArrowArray *out)
    int stomp_columns_schema(const stomp_columns *columns, ArrowSchema *out)
    const char *stomp_error_name(int error)

cdef extern from "stomp.h" nogil:
    enum:
        STOMP_WEBSOCKET_HEAD

    struct stomp_websocket_rules:
        int masked, utf8
        uint64_t longest
        size_t most

    struct stomp_websocket_run:
        size_t end, payload, frames

    void stomp_websocket_measure(stomp_websocket_run *run, const stomp_websocket_rules *rules,
                                 const uint8_t *data, size_t len)
    void stomp_websocket_copy(uint8_t *out, stomp_websocket_run *run, const stomp_websocket_rules *rules,
                              const uint8_t *data)
    uint8_t *stomp_websocket_write(uint8_t *out, const uint8_t *payload, size_t len, const uint8_t *mask)

    struct stomp_ends:
        int64_t *ends
        size_t count

    struct stomp_ends_wanted:
        size_t every, most
        uint64_t max_body

    int stomp_frame_ends(stomp_ends *ends, const stomp_ends_wanted *wanted, const uint8_t *data, size_t len)
    void stomp_ends_free(stomp_ends *ends)
