#include "frame_out.h"

#include <string.h>

#include "frame_bytes.h"
#include "stomp_mask.h" /* STOMP_UNLIKELY */

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
