#include "read.h"

#include <string.h>

#include "text.h"

#define MOST_NAMES 48

/* The names that mean something, by length. */
static struct {
    uint32_t lengths; /* a bit for each length that occurs */
    int first[HOT_LONGEST_NAME + 2];
    struct {
        char text[HOT_LONGEST_NAME + 1];
        int len;
        enum hot_kind kind;
    } name[MOST_NAMES];
    int count;
} known;

static int learn(const char *text, Py_ssize_t len, enum hot_kind kind)
{
    for (int i = 0; i < known.count; i++)
        if (known.name[i].len == len && !memcmp(known.name[i].text, text, (size_t)len))
            return 0; /* the first kind counts */
    if (len < 1 || len > HOT_LONGEST_NAME || known.count == MOST_NAMES) {
        PyErr_SetString(PyExc_ValueError, "the reader of heads has no room for a name");
        return -1;
    }
    int at = known.count++;
    for (; at > 0 && known.name[at - 1].len > len; at--)
        known.name[at] = known.name[at - 1];
    memcpy(known.name[at].text, text, (size_t)len);
    known.name[at].len = (int)len;
    known.name[at].kind = kind;
    return 0;
}

static int learn_all(PyObject *names, enum hot_kind kind)
{
    if (!PyTuple_Check(names)) {
        PyErr_SetString(PyExc_TypeError, "names must be a tuple");
        return -1;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names); i++) {
        Py_ssize_t len;
        const char *text = PyUnicode_AsUTF8AndSize(PyTuple_GET_ITEM(names, i), &len);
        if (!text || learn(text, len, kind) < 0)
            return -1;
    }
    return 0;
}

int hot_send_names(PyObject *slow, PyObject *without)
{
    memset(&known, 0, sizeof known);
    if (learn("destination", 11, HOT_DESTINATION) < 0 || learn("receipt", 7, HOT_RECEIPT) < 0
        || learn("persistent", 10, HOT_PERSISTENT) < 0 || learn("content-length", 14, HOT_LENGTH) < 0
        || learn("transaction", 11, HOT_TRANSACTION) < 0 || learn_all(slow, HOT_SLOW) < 0
        || learn_all(without, HOT_DROPPED) < 0)
        return -1;
    for (int len = 0, at = 0; len <= HOT_LONGEST_NAME + 1; len++) {
        known.first[len] = at;
        for (; at < known.count && known.name[at].len == len; at++)
            known.lengths |= 1u << len;
    }
    return 0;
}

static inline enum hot_kind kind_of(const uint8_t *name, size_t len)
{
    if (len > HOT_LONGEST_NAME || !(known.lengths >> len & 1))
        return HOT_COPIED;
    for (int i = known.first[len]; i < known.first[len + 1]; i++)
        if (known.name[i].text[0] == (char)name[0] && !memcmp(known.name[i].text, name, len))
            return known.name[i].kind;
    return HOT_COPIED;
}

static inline void keep_first(struct hot_text *text, const uint8_t *at, size_t len)
{
    if (!text->at) {
        text->at = at;
        text->len = len;
    }
}

/* Prepare the line content-length. */
static void write_length(struct hot_send *send)
{
    char digits[20];
    size_t i = 20, n = send->size;
    do
        digits[--i] = (char)('0' + n % 10);
    while (n /= 10);
    memcpy(send->length, "content-length:", 15);
    memcpy(send->length + 15, digits + i, 20 - i);
    send->length[35 - i] = '\n';
    send->length_len = 36 - i;
}

int hot_is_verbatim(const struct hot_text *text, const struct stomp_scan *scan)
{
    return !text->at || !(scan->marks & STOMP_ESCAPED) || !memchr(text->at, '\\', text->len);
}

/* Write a name or value anew, as the tail of a MESSAGE in 1.2 has it: `write_tail_line` of writer.c. Returns the end, or
   NULL for a text that is left out there. */
static uint8_t *rewrite_text(uint8_t *to, const uint8_t *text, size_t len, const struct stomp_scan *scan, int is_name)
{
    uint8_t unescaped[HOT_MOST_REWRITTEN];
    if (scan->marks & STOMP_ESCAPED && memchr(text, '\\', len)) {
        len = stomp_unescape(unescaped, text, len, scan->level);
        text = unescaped;
    }
    if (scan->marks & STOMP_NON_ASCII && stomp_bad_utf8(text, len) < len)
        return NULL;
    size_t wrote = stomp_write_text(to, text, len, STOMP_WRITE_1_2, is_name);
    return wrote == STOMP_REFUSED || (is_name && !wrote) ? NULL : to + wrote;
}

/* Append a header line to what is rewritten, which is one run. Returns 0 if it cannot be written. */
static int rewrite_line(struct hot_send *send, const struct stomp_scan *scan, const uint8_t *data,
                        const struct stomp_header *header)
{
    uint8_t *to = send->rewritten + send->run[0].end;
    if (!(to = rewrite_text(to, data + header->name, header->colon - header->name, scan, 1)))
        return 0;
    *to++ = ':';
    if (!(to = rewrite_text(to, data + header->value, header->end - header->value, scan, 0)))
        return 0;
    *to++ = '\n';
    send->run[0].end = (uint32_t)(to - send->rewritten);
    return 1;
}

/* Have a header line copied. */
static void copy_line(struct hot_send *send, const struct stomp_header *header)
{
    if (!send->runs || send->run[send->runs - 1].end != header->name)
        send->run[send->runs++].from = (uint32_t)header->name;
    send->run[send->runs - 1].end = (uint32_t)header->end + 1;
}

/* Begin with no lines. Returns whether they are written anew, or -1 if there is no room for that. */
static int begin(struct hot_send *send, const struct stomp_scan *scan, const uint8_t *data, size_t size)
{
    send->destination.at = send->receipt.at = send->persistent.at = send->transaction.at = NULL;
    send->size = size;
    send->lines = data;
    send->runs = 0;
    if (!(scan->marks & (STOMP_ODD | STOMP_CR_ENDS)))
        return 0;
    send->lines = send->rewritten;
    send->runs = 1;
    send->run[0].from = send->run[0].end = 0;
    return scan->head <= HOT_MOST_REWRITTEN ? 1 : -1;
}

/* Count the bytes of the tail. */
static void measure(struct hot_send *send, int has_length)
{
    send->length_len = 0;
    if (send->size || has_length)
        write_length(send);
    send->tail_len = send->length_len + 1 + send->size + 1;
    for (int i = 0; i < send->runs; i++)
        send->tail_len += send->run[i].end - send->run[i].from;
}

int hot_send_read(struct hot_send *send, const struct stomp_scan *scan, const uint8_t *data, size_t size)
{
    size_t from = 0;
    int has_length = 0, rewrites;
    if (scan->count > HOT_MOST_LINES || scan->head > UINT32_MAX || (rewrites = begin(send, scan, data, size)) < 0)
        return 0;
    for (uint32_t i = 0; i < scan->count; i++) {
        struct stomp_header header;
        from = stomp_header_of(scan, data, i, from, &header);
        const uint8_t *value = data + header.value;
        size_t len = header.end - header.value;
        switch (kind_of(data + header.name, header.colon - header.name)) {
        case HOT_SLOW:
            return 0;
        case HOT_DROPPED:
            continue;
        case HOT_RECEIPT:
            keep_first(&send->receipt, value, len);
            continue;
        case HOT_TRANSACTION:
            keep_first(&send->transaction, value, len);
            continue;
        case HOT_LENGTH:
            has_length = 1;
            continue;
        case HOT_DESTINATION:
            keep_first(&send->destination, value, len);
            break;
        case HOT_PERSISTENT:
            keep_first(&send->persistent, value, len);
            break;
        case HOT_COPIED:
            break;
        }
        if (!rewrites)
            copy_line(send, &header);
        else if (!rewrite_line(send, scan, data, &header))
            return 0;
    }
    measure(send, has_length);
    return send->destination.at && hot_is_verbatim(&send->destination, scan) && hot_is_verbatim(&send->receipt, scan)
        && hot_is_verbatim(&send->transaction, scan);
}

void hot_send_tail(const struct hot_send *send, const struct stomp_scan *scan, const uint8_t *data, char *to)
{
    for (int i = 0; i < send->runs; i++) {
        size_t len = send->run[i].end - send->run[i].from;
        memcpy(to, send->lines + send->run[i].from, len);
        to += len;
    }
    memcpy(to, send->length, send->length_len);
    to += send->length_len;
    *to++ = '\n';
    memcpy(to, data + scan->head, send->size);
    to[send->size] = 0;
}

int hot_persistent(const struct hot_text *text)
{
    if (!text->at)
        return -2;
    if (text->len == 4 && !memcmp(text->at, "true", 4))
        return 1;
    return text->len == 5 && !memcmp(text->at, "false", 5) ? 0 : -1;
}

#define MOST_DIGITS 18 /* of the number of a delivery: so it fits into 64 bits */

static int is_named(const uint8_t *at, size_t len, const char *name, size_t name_len)
{
    return len == name_len && !memcmp(at, name, len);
}
#define IS_NAMED(at, len, name) is_named(at, len, name, sizeof(name) - 1)

/* Read the head: id and receipt. Returns 0 if there is a header that has more to say. */
static int read_head(struct hot_text *id, struct hot_text *receipt, const struct stomp_scan *scan, const uint8_t *data)
{
    size_t from = 0;
    id->at = receipt->at = NULL;
    for (uint32_t i = 0; i < scan->count; i++) {
        struct stomp_header header;
        from = stomp_header_of(scan, data, i, from, &header);
        const uint8_t *name = data + header.name;
        size_t len = header.colon - header.name;
        struct hot_text *text = IS_NAMED(name, len, "id") ? id : IS_NAMED(name, len, "receipt") ? receipt : NULL;
        if (IS_NAMED(name, len, "transaction") || IS_NAMED(name, len, "credit"))
            return 0;
        if (text && !text->at) {
            text->at = data + header.value;
            text->len = header.end - header.value;
        }
    }
    return id->at && hot_is_verbatim(receipt, scan);
}

/* Read "NUMBER-TAG" into `ack`. Returns 0 if it is something else. */
static int read_id(const struct hot_text *id, struct hot_ack *ack)
{
    const uint8_t *dash = memchr(id->at, '-', id->len), *end = id->at + id->len;
    if (!dash || dash + 1 == end || end - dash - 1 > MOST_DIGITS)
        return 0;
    ack->tag = 0;
    for (const uint8_t *at = dash + 1; at < end; at++) {
        if (*at < '0' || *at > '9')
            return 0;
        ack->tag = ack->tag * 10 + (*at - '0');
    }
    ack->consumer.at = id->at;
    ack->consumer.len = (size_t)(dash - id->at);
    return 1;
}

int hot_ack_read(struct hot_ack *ack, const struct stomp_scan *scan, const uint8_t *data)
{
    struct hot_text id;
    return read_head(&id, &ack->receipt, scan, data) && read_id(&id, ack);
}

/* The extension's own module, which is empty: stompcodec/broker/hot.py loads the others from the same file. */
PyMODINIT_FUNC PyInit__hot(void)
{
    static struct PyModuleDef definition = {
        PyModuleDef_HEAD_INIT,
        "stompcodec.broker._hot",
        "Its modules are loaded by stompcodec/broker/hot.py.",
        0,
        NULL,
        NULL,
        NULL,
        NULL,
        NULL,
    };
    return PyModule_Create(&definition);
}
