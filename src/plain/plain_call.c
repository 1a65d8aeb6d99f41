#include "plain_call.h"

struct plain_names plain_name;

int plain_names_make(void)
{
#define NAME(name) \
    if (!plain_name.name && !(plain_name.name = PyUnicode_InternFromString(#name))) \
        return -1;
    PLAIN_NAMES(NAME)
#undef NAME
    if (!plain_name.eol)
        plain_name.eol = PyBytes_FromStringAndSize("\n", 1);
    if (!plain_name.is_short)
        plain_name.is_short = PyUnicode_InternFromString("short");
    return plain_name.eol && plain_name.is_short ? 0 : -1;
}

int plain_truth(PyObject *object)
{
    if (!object)
        return -1;
    int truth = PyObject_IsTrue(object);
    Py_DECREF(object);
    return truth;
}

int plain_call(PyObject *object, PyObject *method, PyObject *argument)
{
    PyObject *arguments[] = {object, argument};
    PyObject *result = PyObject_VectorcallMethod(method, arguments, argument ? 2 : 1, NULL);
    Py_XDECREF(result);
    return result ? 0 : -1;
}
