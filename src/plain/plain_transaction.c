#include "plain_transaction.h"

#include "plain_call.h"
#include "plain_fields.h"

/* The numbers that one more operation changes, all of them made before anything is changed. */
struct sums {
    PyObject *held, *used, *transactions; /* of the account, and of the footprint of the session */
    PyObject *weight, *octets;            /* of the transaction */
};

static void drop(struct sums *sums)
{
    Py_CLEAR(sums->held);
    Py_CLEAR(sums->used);
    Py_CLEAR(sums->transactions);
    Py_CLEAR(sums->weight);
    Py_CLEAR(sums->octets);
}

static PyObject *plus(PyObject *number, long long more)
{
    long long value;
    return plain_number(number, &value) ? PyLong_FromLongLong(value + more) : NULL;
}

/* Make the numbers. Returns 0 if something is missing, too large, or above the limit of the session. */
static int add(struct sums *sums, PyObject *transaction, PyObject *footprint, PyObject *account, long long cost, long long most)
{
    long long transactions;
    if (!plain_number(FIELD_OF(footprint, Footprint, transactions), &transactions) || transactions + cost > most)
        return 0;
    sums->transactions = PyLong_FromLongLong(transactions + cost);
    sums->held = plus(FIELD_OF(account, Account, held), cost);
    sums->used = plus(FIELD_OF(account, Account, used), cost);
    sums->weight = plus(FIELD_OF(transaction, Transaction, weight), 1);
    sums->octets = plus(FIELD_OF(transaction, Transaction, octets), cost);
    return sums->transactions && sums->held && sums->used && sums->weight && sums->octets;
}

/* Is the SEND like those before it in the transaction, so that it needs no target of its own? */
static int is_like_others(PyObject *transaction, PyObject *target, const struct plain_message *message)
{
    PyObject *last = FIELD_OF(transaction, Transaction, _target), *destination;
    if (!last || !IS_A(last, Target) || PyTuple_GET_SIZE(last) != PLAIN_TARGET_FIELDS || PyTuple_GET_ITEM(last, 3) != target
        || FIELD_OF(transaction, Transaction, stores) != (message->persistent ? Py_True : Py_False))
        return 0;
    destination = PyTuple_GET_ITEM(last, 0);
    return destination == message->destination || (PyUnicode_Check(destination) && PyUnicode_Compare(destination, message->destination) == 0);
}

/* Make the Message, which gets its seq at COMMIT. */
static PyObject *record_of(PyObject *target, struct plain_message *message)
{
    PyObject *name = IS_A(target, Queue) ? FIELD_OF(target, Queue, name) : IS_A(target, Topic) ? FIELD_OF(target, Topic, name) : NULL;
    PyObject *tail = plain_tail(message), *record;
    message->seq = tail ? PyLong_FromLong(0) : NULL;
    record = message->seq ? plain_record_unnumbered(message, name, tail) : NULL;
    Py_CLEAR(message->seq);
    Py_XDECREF(tail);
    return record;
}

/* Add an operation: `Transaction.send`, which is called unless the target is that of the one before it. Returns 0, or -1 with an
   exception, and then nothing is changed. */
static int append(PyObject *transaction, PyObject *target, PyObject *record, int is_like)
{
    PyObject *arguments[] = {transaction, target, record};
    if (!is_like) {
        PyObject *result = PyObject_VectorcallMethod(plain_name.send, arguments, 3, NULL);
        Py_XDECREF(result);
        return result ? 0 : -1;
    }
    /* Not by tp_alloc: a tuple keeps its hash since CPython 3.14, which that would leave at 0. */
    PyObject *fields = PyTuple_Pack(PLAIN_SENDING_FIELDS, FIELD_OF(transaction, Transaction, _target), record, Py_None);
    PyObject *all = fields ? PyTuple_Pack(1, fields) : NULL;
    PyObject *operation = all ? PyTuple_Type.tp_new(plain_at.Sending, all, NULL) : NULL;
    PyObject *operations = FIELD_OF(transaction, Transaction, operations);
    int error = operation && operations ? PyList_Append(operations, operation) : -1;
    Py_XDECREF(fields);
    Py_XDECREF(all);
    Py_XDECREF(operation);
    return error;
}

static int are_known(PyObject *transaction, PyObject *footprint, PyObject *account)
{
    return IS_A(transaction, Transaction) && footprint && IS_A(footprint, Footprint) && account && IS_A(account, Account)
        && FIELD_OF(transaction, Transaction, operations) && PyList_CheckExact(FIELD_OF(transaction, Transaction, operations));
}

int plain_defer(PyObject *session, PyObject *transaction, PyObject *target, struct plain_message *message, long long most)
{
    PyObject *footprint = FIELD_OF(session, Session, memory);
    PyObject *account = footprint && IS_A(footprint, Footprint) ? FIELD_OF(footprint, Footprint, _account) : NULL;
    const long long cost = PLAIN_OPERATION_COST + (long long)message->send->tail_len;
    struct sums sums = {0};
    if (!are_known(transaction, footprint, account))
        return 0;
    if (!add(&sums, transaction, footprint, account, cost, most)) {
        PyErr_Clear();
        drop(&sums);
        return 0;
    }
    Py_INCREF(footprint), Py_INCREF(account);
    PyObject *record = record_of(target, message);
    int error = record ? append(transaction, target, record, is_like_others(transaction, target, message)) : -1;
    Py_XDECREF(record);
    if (error < 0) { /* out of memory: Python says what happens then */
        PyErr_Clear();
        drop(&sums);
        Py_DECREF(footprint), Py_DECREF(account);
        return 0;
    }
    SET_FIELD(footprint, Footprint, transactions, sums.transactions);
    SET_FIELD(account, Account, held, sums.held);
    SET_FIELD(account, Account, used, sums.used);
    SET_FIELD(transaction, Transaction, weight, sums.weight);
    SET_FIELD(transaction, Transaction, octets, sums.octets);
    Py_DECREF(footprint), Py_DECREF(account);
    return 1;
}
