#include "plain_fields.h"

#include <stddef.h>
#include <structmember.h>

struct plain_fields plain_at;

static int find_class(PyObject *classes, const char *name, PyTypeObject **found)
{
    PyObject *type = PyDict_GetItemString(classes, name);
    if (!type || !PyType_Check(type)) {
        PyErr_Format(PyExc_TypeError, "class %s is missing", name);
        return -1;
    }
    Py_INCREF(type); /* for ever, as the offsets are */
    *found = (PyTypeObject *)type;
    return 0;
}

static int find_field(PyTypeObject *type, const char *name, Py_ssize_t *offset)
{
    PyObject *member = PyObject_GetAttrString((PyObject *)type, name);
    if (!member)
        return -1;
    int good = Py_IS_TYPE(member, &PyMemberDescr_Type) && ((PyMemberDescrObject *)member)->d_member->type == T_OBJECT_EX
               && PyType_IsSubtype(type, ((PyDescrObject *)member)->d_type);
    if (good)
        *offset = ((PyMemberDescrObject *)member)->d_member->offset;
    else
        PyErr_Format(PyExc_TypeError, "%s.%s is not a slot", type->tp_name, name);
    Py_DECREF(member);
    return good ? 0 : -1;
}

/* Is it a named tuple of that many fields, and of nothing else? */
static int check_tuple(PyTypeObject *type, Py_ssize_t count)
{
    PyObject *fields = PyObject_GetAttrString((PyObject *)type, "_fields");
    int good = fields && PyTuple_CheckExact(fields) && PyTuple_GET_SIZE(fields) == count && PyType_IsSubtype(type, &PyTuple_Type)
               && type->tp_basicsize == PyTuple_Type.tp_basicsize && type->tp_itemsize == PyTuple_Type.tp_itemsize;
    Py_XDECREF(fields);
    if (!good)
        PyErr_Format(PyExc_TypeError, "%s is not a named tuple of %zd fields", type->tp_name, count);
    return good ? 0 : -1;
}

int plain_fields_find(PyObject *classes)
{
    struct plain_fields found = {0}; /* plain_at has all of them, or none */
    if (!PyDict_Check(classes)) {
        PyErr_SetString(PyExc_TypeError, "the classes must be a dict");
        return -1;
    }
#define CLASS(name) \
    if (find_class(classes, #name, &found.name) < 0) \
        return -1;
    PLAIN_CLASSES(CLASS)
#undef CLASS
#define FIELD(class, name) \
    if (find_field(found.class, #name, &found.class##_##name) < 0) \
        return -1;
    PLAIN_FIELDS(FIELD)
#undef FIELD
    if (check_tuple(found.Target, PLAIN_TARGET_FIELDS) < 0 || check_tuple(found.Sending, PLAIN_SENDING_FIELDS) < 0)
        return -1;
    if (found.Message->tp_basicsize != (Py_ssize_t)(sizeof(PyObject) + PLAIN_MESSAGE_FIELDS * sizeof(PyObject *))) {
        PyErr_SetString(PyExc_TypeError, "Message has other fields than the plain road makes");
        return -1;
    }
    plain_at = found;
    return 0;
}
