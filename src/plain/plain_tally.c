#include "plain_tally.h"

#include <stddef.h>
#include <structmember.h>

PyTypeObject *plain_tally_type;

#define COUNT(name) {#name, T_LONGLONG, offsetof(struct plain_tally, name), 0, NULL}
static PyMemberDef members[] = {
    COUNT(put), COUNT(direct), COUNT(sent), COUNT(ended), COUNT(redelivered), COUNT(expired), COUNT(dropped), COUNT(dead), {NULL, 0, 0, 0, NULL},
};

static PyObject *count_put(PyObject *self, PyObject *unused)
{
    (void)unused;
    ((struct plain_tally *)self)->put++;
    Py_RETURN_NONE;
}

static PyObject *count_direct(PyObject *self, PyObject *unused)
{
    (void)unused;
    ((struct plain_tally *)self)->direct++;
    Py_RETURN_NONE;
}

static PyObject *count_sent(PyObject *self, PyObject *unused)
{
    (void)unused;
    ((struct plain_tally *)self)->sent++;
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"count_put", count_put, METH_NOARGS, "count_put()\n--\n\nCount a message that came."},
    {"count_direct", count_direct, METH_NOARGS, "count_direct()\n--\n\nCount a message that came and was delivered in one step."},
    {"count_sent", count_sent, METH_NOARGS, "count_sent()\n--\n\nCount a delivery in auto mode."},
    {NULL, NULL, 0, NULL},
};

static void tally_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyType_Slot slots[] = {
    {Py_tp_doc, "Tally()\n--\n\nThe counts of one queue, as described at the class of that name in queues/quick.py."},
    {Py_tp_dealloc, (void *)tally_dealloc},
    {Py_tp_members, members},
    {Py_tp_methods, methods},
    {0, NULL},
};

static PyType_Spec spec = {"stompcodec.broker._plain_c.Tally", sizeof(struct plain_tally), 0, Py_TPFLAGS_DEFAULT, slots};

int plain_tally_add(PyObject *module)
{
    PyObject *type = PyType_FromSpec(&spec);
    if (!type)
        return -1;
    int error = PyModule_AddObjectRef(module, "Tally", type);
    plain_set((PyObject **)&plain_tally_type, type);
    return error;
}

void plain_tally_slowly(PyObject *tally, const char *field)
{
    PyObject *type, *raised, *trace;
    PyErr_Fetch(&type, &raised, &trace); /* of what is counted */
    PyObject *count = tally ? PyObject_GetAttrString(tally, field) : NULL, *one = count ? PyLong_FromLong(1) : NULL;
    PyObject *sum = one ? PyNumber_Add(count, one) : NULL;
    if (!sum || PyObject_SetAttrString(tally, field, sum) < 0)
        PyErr_Clear(); /* a count is lost, a message is not */
    Py_XDECREF(count);
    Py_XDECREF(one);
    Py_XDECREF(sum);
    PyErr_Restore(type, raised, trace);
}
