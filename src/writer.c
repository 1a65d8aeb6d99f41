/* The writer of frames, and its output. */
#include "writer.h"

#include <string.h>

#include "text.h"

/* ======== output ======== */

void stomp_out_init(struct stomp_out *out)
{
    out->data = out->few;
    out->len = 0;
    out->room = sizeof out->few;
    out->bytes = NULL;
}

void stomp_out_free(struct stomp_out *out)
{
    Py_CLEAR(out->bytes);
    stomp_out_init(out);
}

int stomp_out_grow(struct stomp_out *out, uint64_t more)
{
    if (more > (size_t)PY_SSIZE_T_MAX / 4 || out->len > (size_t)PY_SSIZE_T_MAX / 4) {
        PyErr_NoMemory();
        return -1;
    }
    size_t room = 2 * (out->len + (size_t)more);
    if (out->bytes) {
        if (_PyBytes_Resize(&out->bytes, (Py_ssize_t)room) < 0) {
            stomp_out_init(out);
            return -1;
        }
    } else {
        out->bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)room);
        if (!out->bytes)
            return -1;
        memcpy(PyBytes_AS_STRING(out->bytes), out->few, out->len);
    }
    out->data = (uint8_t *)PyBytes_AS_STRING(out->bytes);
    out->room = room;
    return 0;
}

PyObject *stomp_out_take(struct stomp_out *out, PyObject *tail)
{
    size_t more = tail ? (size_t)PyBytes_GET_SIZE(tail) + 1 : 0;
    PyObject *bytes;
    if (out->bytes && stomp_out_reserve(out, more) < 0)
        return NULL;
    bytes = out->bytes ? out->bytes : PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(out->len + more));
    if (!bytes)
        return NULL;
    uint8_t *to = (uint8_t *)PyBytes_AS_STRING(bytes);
    if (!out->bytes)
        memcpy(to, out->few, out->len);
    if (tail) {
        memcpy(to + out->len, PyBytes_AS_STRING(tail), more - 1);
        to[out->len + more - 1] = 0;
    }
    if (out->bytes && stomp_bytes_end(&bytes, out->room, out->len + more) < 0)
        bytes = NULL; /* MemoryError is set */
    stomp_out_init(out);
    return bytes;
}

/* ---- many frames ---- */

void stomp_batch_init(struct stomp_batch *batch, size_t expected)
{
    stomp_out_init(&batch->head);
    batch->bytes = NULL;
    batch->len = 0;
    batch->room = expected;
}

void stomp_batch_free(struct stomp_batch *batch)
{
    stomp_out_free(&batch->head);
    Py_CLEAR(batch->bytes);
}

static int make_room(struct stomp_batch *batch, uint64_t need)
{
    uint64_t room = batch->room;
    if (need > room)
        room = room ? need + need / 2 : need; /* one frame alone needs no more */
    if (room > (size_t)PY_SSIZE_T_MAX / 2) {
        PyErr_NoMemory();
        return -1;
    }
    batch->room = (size_t)room;
    if (batch->bytes)
        return _PyBytes_Resize(&batch->bytes, (Py_ssize_t)batch->room);
    batch->bytes = stomp_bytes_new(batch->room);
    return batch->bytes ? 0 : -1;
}

int stomp_batch_add(struct stomp_batch *batch, PyObject *body)
{
    const size_t head = batch->head.len, size = (size_t)PyBytes_GET_SIZE(body);
    const uint64_t need = (uint64_t)batch->len + head + size + 1;
    if (STOMP_UNLIKELY(!batch->bytes || need > batch->room) && make_room(batch, need) < 0)
        return -1;
    uint8_t *to = (uint8_t *)PyBytes_AS_STRING(batch->bytes) + batch->len;
    memcpy(to, batch->head.data, head);
    memcpy(to + head, PyBytes_AS_STRING(body), size);
    to[head + size] = 0;
    batch->head.len = 0;
    batch->len = (size_t)need;
    return 0;
}

PyObject *stomp_batch_take(struct stomp_batch *batch)
{
    PyObject *bytes = batch->bytes;
    if (!bytes)
        return PyBytes_FromStringAndSize(NULL, 0);
    batch->bytes = NULL;
    return stomp_bytes_end(&bytes, batch->room, batch->len) < 0 ? NULL : bytes;
}

/* ======== frames ======== */

struct octets {
    const uint8_t *at;
    size_t len;
    PyObject *owner; /* or NULL */
    uint8_t *copy;   /* from PyMem_Malloc, or NULL */
};

static void release(struct octets *o)
{
    Py_CLEAR(o->owner);
    PyMem_Free(o->copy);
    o->copy = NULL;
}

/* Get the UTF-8 of a str. Returns 0, STOMP_UNENCODABLE or -1. */
static STOMP_INLINE int octets_of_text(struct octets *o, PyObject *text, int lenient)
{
    Py_ssize_t len;
    o->owner = NULL;
    o->copy = NULL;
    if (PyUnicode_IS_COMPACT_ASCII(text)) {
        o->at = PyUnicode_1BYTE_DATA(text);
        o->len = (size_t)PyUnicode_GET_LENGTH(text);
        return 0;
    }
    o->at = (const uint8_t *)PyUnicode_AsUTF8AndSize(text, &len);
    if (!o->at && lenient && PyErr_ExceptionMatches(PyExc_UnicodeEncodeError)) {
        PyErr_Clear();
        o->owner = PyUnicode_AsEncodedString(text, "utf-8", "surrogateescape");
        if (o->owner) {
            o->at = (const uint8_t *)PyBytes_AS_STRING(o->owner);
            len = PyBytes_GET_SIZE(o->owner);
        }
    }
    if (!o->at) {
        if (!PyErr_ExceptionMatches(PyExc_UnicodeEncodeError))
            return -1;
        PyErr_Clear();
        return STOMP_UNENCODABLE;
    }
    o->len = (size_t)len;
    return 0;
}

/* Get a name or value from the wire, unescaped. Returns 0, STOMP_UNENCODABLE or -1. */
static STOMP_INLINE int octets_of_wire(struct octets *o, const StompFrame *frame, const uint8_t *at, size_t len,
                                       int lenient)
{
    o->owner = NULL;
    o->copy = NULL;
    o->at = at;
    o->len = len;
    if (frame->level && memchr(at, '\\', len)) {
        o->copy = PyMem_Malloc(len);
        if (!o->copy) {
            PyErr_NoMemory();
            return -1;
        }
        o->at = o->copy;
        o->len = stomp_unescape(o->copy, at, len, frame->level);
    }
    if ((frame->marks & STOMP_NON_ASCII) && (frame->marks & STOMP_ODD) && !lenient
        && stomp_bad_utf8(o->at, o->len) < o->len)
        return STOMP_UNENCODABLE;
    return 0;
}

static void fold_case(uint8_t *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (text[i] >= 'A' && text[i] <= 'Z')
            text[i] += 32;
}

/* Is this content-length the length of the body? */
static int tells_length(const struct octets *value, const struct stomp_rules *rules, size_t size)
{
    const uint8_t *at = value->at, *end = at + value->len;
    uint64_t n = 0;
#define PADS(c) (((c) == ' ' && rules->flags & STOMP_PADS_SPACE) || ((c) == '\t' && rules->flags & STOMP_PADS_TAB))
    while (at < end && PADS(*at))
        at++;
    while (end > at && PADS(end[-1]))
        end--;
#undef PADS
    if (at == end)
        return 0;
    for (; at < end; at++) {
        if (*at < '0' || *at > '9')
            return 0;
        n = n > (UINT64_MAX - 9) / 10 ? UINT64_MAX : n * 10 + (*at - (unsigned)'0');
    }
    return n == size;
}

static void write_number(struct stomp_out *out, uint64_t n)
{
    uint8_t digits[20];
    int i = 20;
    do
        digits[--i] = (uint8_t)('0' + n % 10);
    while (n /= 10);
    memcpy(out->data + out->len, digits + i, (size_t)(20 - i));
    out->len += (size_t)(20 - i);
}

struct lines {
    int mode;
    int has_length, wrong_length;
};

static inline int is_length(const uint8_t *name, size_t len)
{
    return len == 14 && !memcmp(name, "content-length", 14);
}

/* Write a header line. Returns 0, an error kind or -1. */
static STOMP_INLINE int write_line(struct stomp_out *out, StompFrame *frame, const struct stomp_writer *w,
                                   struct lines *lines, const struct octets *name, const struct octets *value)
{
    int legacy = lines->mode == STOMP_WRITE_LEGACY;
    size_t before = out->len, wrote;
    if (!name->len)
        return STOMP_UNENCODABLE;
    /* a reader would strip the space */
    if (legacy && value->len && (value->at[0] == ' ' || value->at[value->len - 1] == ' '))
        return STOMP_UNENCODABLE;
    if (stomp_out_reserve(out, 2 * ((uint64_t)name->len + value->len) + 34) < 0)
        return -1;
    wrote = stomp_write_text(out->data + out->len, name->at, name->len, lines->mode, 1);
    if (wrote == STOMP_REFUSED)
        return STOMP_UNENCODABLE;
    if (legacy)
        fold_case(out->data + out->len, wrote);
    int counts = wrote == 14 && !memcmp(out->data + out->len, "content-length", 14);
    out->len += wrote;
    out->data[out->len++] = ':';
    wrote = stomp_write_text(out->data + out->len, value->at, value->len, lines->mode, 0);
    if (wrote == STOMP_REFUSED)
        return STOMP_UNENCODABLE;
    out->len += wrote;
    out->data[out->len++] = '\n';
    if (counts && !lines->has_length) {
        lines->has_length = 1;
        lines->wrong_length = !tells_length(value, &w->rules, (size_t)PyBytes_GET_SIZE(frame->body));
    }
    if (counts && w->length_mode == LENGTH_NEVER)
        out->len = before;
    return 0;
}

static int write_lines(struct stomp_out *out, StompFrame *frame, const struct stomp_writer *w, struct lines *lines,
                       uint32_t *culprit)
{
    size_t from = frame->first;
    for (uint32_t i = 0; i < frame->count; i++) {
        struct octets name = {0}, value = {0};
        struct frame_entry e;
        int error;
        if (frame->kind == FRAME_TEXT) {
            error = octets_of_text(&name, stomp_frame_texts(frame)[2 * i], w->lenient);
            if (!error)
                error = octets_of_text(&value, stomp_frame_texts(frame)[2 * i + 1], w->lenient);
        } else {
            from = stomp_frame_entry(frame, i, from, &e);
            error = octets_of_wire(&name, frame, e.name, e.name_len, w->lenient);
            if (!error)
                error = octets_of_wire(&value, frame, e.value, e.value_len, w->lenient);
        }
        if (!error)
            error = write_line(out, frame, w, lines, &name, &value);
        if (name.owner || name.copy)
            release(&name);
        if (value.owner || value.copy)
            release(&value);
        if (error) {
            *culprit = i;
            return error;
        }
    }
    return lines->wrong_length ? STOMP_BAD_CONTENT_LENGTH : 0;
}

/* The text of a str that is compact and ASCII. */
static inline struct octets ascii_octets(PyObject *text)
{
    struct octets octets = {(const uint8_t *)((PyASCIIObject *)text + 1), (size_t)PyUnicode_GET_LENGTH(text), NULL,
                            NULL};
    return octets;
}

/* Write the lines of a frame from Python whose texts are ASCII, with room for all of them. Returns 0 or an error
   kind. */
static int write_ascii_lines(struct stomp_out *out, StompFrame *frame, const struct stomp_rules *rules,
                             struct lines *lines, uint32_t *culprit)
{
    PyObject *const *const first = stomp_frame_texts(frame), *const *const last = first + 2 * (size_t)frame->count;
    const int mode = lines->mode;
    PyObject *length = NULL; /* the first content-length */
    uint8_t *to = out->data + out->len;
    for (PyObject *const *text = first; text != last; text += 2) {
        const struct octets name = ascii_octets(text[0]), value = ascii_octets(text[1]);
        size_t wrote = stomp_write_text(to, name.at, name.len, mode, 1), more;
        if (STOMP_UNLIKELY(name.len == 14 && !length && is_length(name.at, 14)))
            length = text[1];
        if (STOMP_UNLIKELY(wrote - 1 >= STOMP_REFUSED - 1
                           || (more = stomp_write_text(to + wrote + 1, value.at, value.len, mode, 0))
                               == STOMP_REFUSED)) {
            *culprit = (uint32_t)((text - first) / 2);
            return STOMP_UNENCODABLE;
        }
        to += wrote;
        *to = ':';
        to += more + 1;
        *to++ = '\n';
    }
    out->len = (size_t)(to - out->data);
    if (length) {
        const struct octets value = ascii_octets(length);
        lines->has_length = 1;
        if (!tells_length(&value, rules, (size_t)PyBytes_GET_SIZE(frame->body)))
            return STOMP_BAD_CONTENT_LENGTH;
    }
    return 0;
}

/* Check and write the command. Returns 0, an error kind or -1. */
static int write_command(struct stomp_out *out, StompFrame *frame, const struct stomp_writer *w, int *command)
{
    struct octets text;
    int error = octets_of_text(&text, frame->command, w->lenient);
    if (error)
        return error == STOMP_UNENCODABLE ? STOMP_UNKNOWN_COMMAND : error;
    if (stomp_out_reserve(out, text.len + 1) < 0) {
        release(&text);
        return -1;
    }
    uint8_t *at = out->data + out->len;
    memcpy(at, text.at, text.len);
    *command = frame->command_id;
    if (w->rules.flags & STOMP_LEGACY) {
        for (size_t i = 0; i < text.len; i++)
            if (at[i] >= 'a' && at[i] <= 'z')
                at[i] -= 32;
        *command = stomp_command_of(at, text.len);
    }
    int known = *command < STOMP_COMMANDS && (w->rules.commands >> *command & 1);
    /* a reader would strip the space */
    int stripped = w->rules.flags & STOMP_LEGACY && text.len && at[text.len - 1] == ' ';
    for (size_t i = 0; !known && !stripped && i < w->rules.extra_count; i++)
        known = w->rules.extra[i].len == text.len && !memcmp(w->rules.extra[i].octets, at, text.len);
    at[text.len] = '\n';
    out->len += text.len + 1;
    if (text.owner)
        release(&text);
    return known ? 0 : STOMP_UNKNOWN_COMMAND;
}

/* Can the header lines be copied as they were received? */
static int copies(const StompFrame *frame, const struct lines *lines, const struct stomp_writer *w)
{
    return frame->kind != FRAME_TEXT && !(frame->marks & (STOMP_ODD | STOMP_CR_ENDS))
        && lines->mode != STOMP_WRITE_LEGACY
        && (!frame->level || lines->mode == STOMP_WRITE_1_2 || (lines->mode == STOMP_WRITE_1_1 && frame->level == 1))
        && !((frame->marks & STOMP_HAS_LENGTH) && w->length_mode == LENGTH_NEVER);
}

static int mode_of(const struct stomp_rules *rules, int command)
{
    if (rules->flags & STOMP_LEGACY)
        return STOMP_WRITE_LEGACY;
    if (command < STOMP_COMMANDS && (STOMP_UNESCAPED >> command & 1))
        return STOMP_WRITE_CONNECT;
    return rules->escapes == 2 ? STOMP_WRITE_1_2 : rules->escapes ? STOMP_WRITE_1_1 : STOMP_WRITE_1_0;
}

int stomp_write_head(struct stomp_out *out, StompFrame *frame, const struct stomp_writer *w, uint32_t *culprit)
{
    struct lines lines = {0, 0, 0};
    int command, legacy = (w->rules.flags & STOMP_LEGACY) != 0;
    *culprit = UINT32_MAX;
    int error = write_command(out, frame, w, &command);
    if (error)
        return error;
    size_t size = (size_t)PyBytes_GET_SIZE(frame->body);
    if (size && !stomp_takes_body(&w->rules, command))
        return STOMP_BODY_NOT_ALLOWED;
    lines.mode = mode_of(&w->rules, command);
    if (copies(frame, &lines, w)) {
        if (stomp_out_reserve(out, (uint64_t)frame->head + 40) < 0)
            return -1;
        memcpy(out->data + out->len, stomp_frame_lines(frame) + frame->first, frame->head - frame->first);
        out->len += frame->head - frame->first;
        lines.has_length = (frame->marks & STOMP_HAS_LENGTH);
    } else {
        if (frame->kind == FRAME_TEXT && !(frame->marks & STOMP_NON_ASCII) && !legacy
            && w->length_mode != LENGTH_NEVER) {
            if (stomp_out_reserve(out, 2 * ((uint64_t)frame->head + frame->count) + 16) < 0)
                return -1;
            error = write_ascii_lines(out, frame, &w->rules, &lines, culprit);
        } else {
            error = write_lines(out, frame, w, &lines, culprit);
        }
        if (error)
            return error;
        if (stomp_out_reserve(out, 40) < 0)
            return -1;
    }
    if (w->length_mode == LENGTH_NEVER) {
        if (memchr(PyBytes_AS_STRING(frame->body), 0, size))
            return STOMP_UNENCODABLE;
    } else if (!lines.has_length && (size || w->length_mode == LENGTH_ALWAYS || (legacy && command == STOMP_SEND))) {
        memcpy(out->data + out->len, "content-length:", 15);
        out->len += 15;
        write_number(out, size);
        out->data[out->len++] = '\n';
    }
    out->data[out->len++] = '\n';
    return 0;
}

size_t stomp_expected_size(const StompFrame *frame)
{
    const size_t body = (size_t)PyBytes_GET_SIZE(frame->body), command = (size_t)PyUnicode_GET_LENGTH(frame->command);
    const size_t lines =
        frame->kind == FRAME_TEXT ? (size_t)frame->head + 2 * (size_t)frame->count : frame->head - frame->first;
    size_t size = command + lines + lines / 32 + body + 3; /* with some escapes, two LFs and a NUL */
    if (body && !(frame->marks & STOMP_HAS_LENGTH)) {
        size += sizeof "content-length:0"; /* with its LF */
        for (size_t n = body; n >= 10; n /= 10)
            size++;
    }
    return size;
}

int stomp_write_frame(PyObject **bytes, StompFrame *frame, const struct stomp_writer *w, uint32_t *culprit)
{
    struct stomp_out out;
    stomp_out_init(&out);
    int error = stomp_write_head(&out, frame, w, culprit);
    *bytes = error ? NULL : stomp_out_take(&out, frame->body);
    stomp_out_free(&out);
    return *bytes || error ? error : -1;
}

static int is_named(const struct stomp_name *names, size_t count, const uint8_t *at, size_t len)
{
    for (size_t i = 0; i < count; i++)
        if (names[i].len == len && !memcmp(names[i].octets, at, len))
            return 1;
    return 0;
}

/* Write one header line, or nothing if the version cannot represent it. Returns 0 or -1. */
static int write_tail_line(struct stomp_out *out, StompFrame *frame, const struct stomp_writer *w, struct lines *lines,
                           const struct octets *name, const struct octets *value)
{
    size_t before = out->len;
    if (is_length(name->at, name->len)) {
        lines->has_length = 1;
        return 0;
    }
    int error = write_line(out, frame, w, lines, name, value);
    if (error)
        out->len = before;
    return error < 0 ? -1 : 0;
}

static int write_tail_lines(struct stomp_out *out, StompFrame *frame, const struct stomp_writer *w, struct lines *lines,
                            const struct stomp_name *without, size_t without_count)
{
    size_t from = frame->first;
    for (uint32_t i = 0; i < frame->count; i++) {
        struct octets name = {0}, value = {0};
        struct frame_entry e;
        int error;
        if (frame->kind == FRAME_TEXT) {
            error = octets_of_text(&name, stomp_frame_texts(frame)[2 * i], w->lenient);
            if (!error && !is_length(name.at, name.len)) /* that one is written anew, whatever its value is */
                error = octets_of_text(&value, stomp_frame_texts(frame)[2 * i + 1], w->lenient);
        } else {
            from = stomp_frame_entry(frame, i, from, &e);
            error = octets_of_wire(&name, frame, e.name, e.name_len, w->lenient);
            if (!error && !is_length(name.at, name.len))
                error = octets_of_wire(&value, frame, e.value, e.value_len, w->lenient);
        }
        if (!error && (is_length(name.at, name.len) || !is_named(without, without_count, name.at, name.len)))
            error = write_tail_line(out, frame, w, lines, &name, &value);
        if (name.owner || name.copy)
            release(&name);
        if (value.owner || value.copy)
            release(&value);
        if (error < 0)
            return -1;
    }
    return 0;
}

/* Copy the lines of a frame from the wire. The caller has reserved at least frame->head bytes. */
static void copy_tail_lines(struct stomp_out *out, const StompFrame *frame, struct lines *lines,
                            const struct stomp_name *without, size_t without_count)
{
    size_t from = frame->first;
    for (uint32_t i = 0; i < frame->count; i++) {
        struct frame_entry e;
        from = stomp_frame_entry(frame, i, from, &e);
        if (is_length(e.name, e.name_len))
            lines->has_length = 1;
        else if (!is_named(without, without_count, e.name, e.name_len)) {
            size_t len = e.name_len + e.value_len + 2; /* the colon and the LF */
            memcpy(out->data + out->len, e.name, len);
            out->len += len;
        }
    }
}

int stomp_write_tail(struct stomp_out *out, StompFrame *frame, const struct stomp_writer *w,
                     const struct stomp_name *without, size_t without_count)
{
    int mode = w->rules.escapes == 2 ? STOMP_WRITE_1_2 : w->rules.escapes ? STOMP_WRITE_1_1 : STOMP_WRITE_1_0;
    struct lines lines = {mode, 0, 0};
    size_t size = (size_t)PyBytes_GET_SIZE(frame->body);
    if (copies(frame, &lines, w)) {
        if (stomp_out_reserve(out, (uint64_t)frame->head + 40) < 0)
            return -1;
        copy_tail_lines(out, frame, &lines, without, without_count);
    } else if (write_tail_lines(out, frame, w, &lines, without, without_count) < 0 || stomp_out_reserve(out, 40) < 0)
        return -1;
    if (size || lines.has_length) {
        memcpy(out->data + out->len, "content-length:", 15);
        out->len += 15;
        write_number(out, size);
        out->data[out->len++] = '\n';
    }
    out->data[out->len++] = '\n';
    return 0;
}
