#include "plain_send.h"

#include <string.h>

#define MOST_NAMES 48

/* The names that mean something, by length. */
static struct {
    uint32_t lengths; /* a bit for each length that occurs */
    int first[PLAIN_LONGEST_NAME + 2];
    struct {
        char text[PLAIN_LONGEST_NAME + 1];
        int len;
        enum plain_kind kind;
    } name[MOST_NAMES];
    int count;
} known;

static int learn(const char *text, Py_ssize_t len, enum plain_kind kind)
{
    for (int i = 0; i < known.count; i++)
        if (known.name[i].len == len && !memcmp(known.name[i].text, text, (size_t)len))
            return 0; /* the first kind counts */
    if (len < 1 || len > PLAIN_LONGEST_NAME || known.count == MOST_NAMES) {
        PyErr_SetString(PyExc_ValueError, "the plain road has no room for a name");
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

static int learn_all(PyObject *names, enum plain_kind kind)
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

int plain_send_names(PyObject *slow, PyObject *without)
{
    memset(&known, 0, sizeof known);
    if (learn("destination", 11, PLAIN_DESTINATION) < 0 || learn("receipt", 7, PLAIN_RECEIPT) < 0
        || learn("persistent", 10, PLAIN_PERSISTENT) < 0 || learn("content-length", 14, PLAIN_LENGTH) < 0
        || learn_all(slow, PLAIN_SLOW) < 0 || learn_all(without, PLAIN_DROPPED) < 0)
        return -1;
    for (int len = 0, at = 0; len <= PLAIN_LONGEST_NAME + 1; len++) {
        known.first[len] = at;
        for (; at < known.count && known.name[at].len == len; at++)
            known.lengths |= 1u << len;
    }
    return 0;
}

static inline enum plain_kind kind_of(const uint8_t *name, size_t len)
{
    if (len > PLAIN_LONGEST_NAME || !(known.lengths >> len & 1))
        return PLAIN_COPIED;
    for (int i = known.first[len]; i < known.first[len + 1]; i++)
        if (known.name[i].text[0] == (char)name[0] && !memcmp(known.name[i].text, name, len))
            return known.name[i].kind;
    return PLAIN_COPIED;
}

static inline void keep_first(struct plain_text *text, const uint8_t *at, size_t len)
{
    if (!text->at) {
        text->at = at;
        text->len = len;
    }
}

/* Prepare the line content-length. */
static void write_length(struct plain_send *send)
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

int plain_send_read(struct plain_send *send, const struct stomp_scan *scan, const uint8_t *data, size_t size)
{
    size_t from = 0, copied = 0;
    int has_length = 0;
    if (scan->count > PLAIN_MOST_LINES || scan->head > UINT32_MAX)
        return 0;
    send->destination.at = send->receipt.at = send->persistent.at = NULL;
    send->size = size;
    send->runs = 0;
    for (uint32_t i = 0; i < scan->count; i++) {
        struct stomp_header header;
        from = stomp_header_of(scan, data, i, from, &header);
        const uint8_t *value = data + header.value;
        size_t len = header.end - header.value;
        switch (kind_of(data + header.name, header.colon - header.name)) {
        case PLAIN_SLOW:
            return 0;
        case PLAIN_DROPPED:
            continue;
        case PLAIN_RECEIPT:
            keep_first(&send->receipt, value, len);
            continue;
        case PLAIN_LENGTH:
            has_length = 1;
            continue;
        case PLAIN_DESTINATION:
            keep_first(&send->destination, value, len);
            break;
        case PLAIN_PERSISTENT:
            keep_first(&send->persistent, value, len);
            break;
        case PLAIN_COPIED:
            break;
        }
        copied += header.end + 1 - header.name;
        if (send->runs && send->run[send->runs - 1].end == header.name)
            send->run[send->runs - 1].end = (uint32_t)header.end + 1;
        else {
            send->run[send->runs].from = (uint32_t)header.name;
            send->run[send->runs++].end = (uint32_t)header.end + 1;
        }
    }
    send->length_len = 0;
    if (size || has_length)
        write_length(send);
    send->tail_len = copied + send->length_len + 1 + size + 1;
    return send->destination.at != NULL;
}

void plain_send_tail(const struct plain_send *send, const struct stomp_scan *scan, const uint8_t *data, char *to)
{
    for (int i = 0; i < send->runs; i++) {
        size_t len = send->run[i].end - send->run[i].from;
        memcpy(to, data + send->run[i].from, len);
        to += len;
    }
    memcpy(to, send->length, send->length_len);
    to += send->length_len;
    *to++ = '\n';
    memcpy(to, data + scan->head, send->size);
    to[send->size] = 0;
}
