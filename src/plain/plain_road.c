/* The extension stompcodec.broker._plain_c: plain SENDs and ACKs while the parser reads them, without a frame object.

   The Python road, `_send` of sessions/commands.py and `ack` of sessions/commit.py, says what happens. This one may only skip work:
   what it cannot do, and every case that is rare, it leaves to that one, frame by frame. docs/decisions/0011-plain-road.md lists what it
   takes. */
#include <Python.h>

#include <structmember.h>

#include "plain_ack.h"
#include "plain_call.h"
#include "plain_fields.h"
#include "plain_paged.h"
#include "plain_queue.h"
#include "plain_ready.h"
#include "plain_send.h"
#include "plain_store.h"
#include "plain_tally.h"
#include "plain_transaction.h"
#include "stomp.h"

#define EACH 8 /* frames between two looks at the clock: EACH of sessions/session.py, which is compared in prepare() */

/* Functions of the Python road, in the order of prepare(). */
static struct {
    PyObject *send, *ack, *send_receipt, *hold_receipts, *put_persistent, *record_put, *failed, *shared;
} python;
#define PYTHON_FUNCTIONS 8
static int is_on = 1;

typedef struct {
    PyObject_HEAD
    struct stomp_taker taker;
    PyObject *capsule;
    PyObject *session, *outbox, *broker, *account, *ident; /* NULL once it is closed */
    PyObject *destination, *consumer, *transaction;        /* the latest of a SEND, number of a consumer, and of a SEND: str with a hash */
    long long most;                                        /* bytes that the transactions of the session may hold */
    int stores, stores_all;                                /* messages with persistent:true are stored; those to queues that do not say, too */
    int sends, acks;                                       /* nobody has put another handler in place of ours */
    int left;                                              /* frames until the next look at the clock, of both roads */
    int inside;                                            /* a frame is being taken: what it refers to must stay */
} Road;

static PyObject *text_of(const struct plain_text *text)
{
    return PyUnicode_DecodeUTF8((const char *)text->at, (Py_ssize_t)text->len, NULL);
}

/* A text as a str, mostly the `latest` one. Borrowed; NULL if it is no UTF-8. */
static PyObject *latest_of(PyObject **latest, const struct plain_text *text)
{
    PyObject *last = *latest;
    Py_ssize_t len;
    if (last) {
        const char *octets = PyUnicode_AsUTF8AndSize(last, &len);
        if (octets && (size_t)len == text->len && !memcmp(octets, text->at, text->len))
            return last;
        PyErr_Clear();
    }
    PyObject *fresh = text_of(text);
    if (!fresh) {
        PyErr_Clear();
        return NULL;
    }
    plain_set(latest, fresh);
    return fresh;
}

static int is_alphanumeric(const char *at, Py_ssize_t len)
{
    for (Py_ssize_t i = 0; i < len; i++)
        if (!Py_ISALNUM(at[i]))
            return 0;
    return len > 0;
}

/* `send_receipt`, whose simplest case is done here. Returns 0, or -1 with an exception. */
static int answer(PyObject *session, PyObject *outbox, PyObject *receipt)
{
    static const char before[] = "RECEIPT\nreceipt-id:", after[] = "\n\n\0\n";
    Py_ssize_t len;
    const char *text = PyUnicode_AsUTF8AndSize(receipt, &len);
    PyObject *pending = FIELD_OF(session, Session, pending_commit), *chunks = FIELD_OF(outbox, Outbox, chunks);
    if (pending != Py_None)
        chunks = pending && IS_A(pending, PendingCommit) ? FIELD_OF(pending, PendingCommit, receipts) : NULL;
    if (text && is_alphanumeric(text, len) && FIELD_OF(outbox, Outbox, flowing) == Py_True && chunks && PyList_CheckExact(chunks)) {
        PyObject *octets = PyBytes_FromStringAndSize(NULL, len + (Py_ssize_t)(sizeof before + sizeof after - 2));
        if (!octets)
            return -1;
        char *to = PyBytes_AS_STRING(octets);
        memcpy(to, before, sizeof before - 1);
        memcpy(to + sizeof before - 1, text, (size_t)len);
        memcpy(to + (Py_ssize_t)(sizeof before - 1) + len, after, sizeof after - 1);
        int error = PyList_Append(chunks, octets);
        Py_DECREF(octets);
        return error;
    }
    PyErr_Clear();
    PyObject *result = PyObject_CallFunctionObjArgs(python.send_receipt, session, receipt, NULL);
    Py_XDECREF(result);
    return result ? 0 : -1;
}

/* Look at the clock after some frames. Returns STOMP_TAKEN_LAST if the session has to wait for its turn. */
static int look_at_clock(Road *road, PyObject *session)
{
    road->left = EACH;
    PyObject *quota = PyObject_GetAttr(road->broker, plain_name.quota), *now = quota ? PyObject_GetAttr(road->broker, plain_name.now) : NULL;
    PyObject *arguments[] = {quota, now};
    int used_up = quota && now ? plain_truth(PyObject_VectorcallMethod(plain_name.used_up, arguments, 2, NULL)) : -1;
    Py_XDECREF(quota);
    Py_XDECREF(now);
    if (used_up <= 0)
        return used_up < 0 ? -1 : STOMP_TAKEN;
    return plain_call(session, plain_name.wait_for_turn, NULL) < 0 ? -1 : STOMP_TAKEN_LAST;
}

/* Give the message the next seq. Returns 0, or -1 with an exception. */
static int number(Road *road, struct plain_message *message)
{
    PyObject *last = PyObject_GetAttr(road->broker, plain_name.seq);
    int good = last && plain_number(last, &message->number);
    Py_XDECREF(last);
    if (last && !good)
        PyErr_SetString(PyExc_TypeError, "the seq is not an int, or too large");
    message->seq = good ? PyLong_FromLongLong(++message->number) : NULL;
    if (!message->seq || PyObject_SetAttr(road->broker, plain_name.seq, message->seq) < 0) {
        Py_CLEAR(message->seq);
        return -1;
    }
    return 0;
}

/* Put a message that cannot go straight to a consumer, or to a topic. Returns whether the sender has to wait, or -1. */
static int put_plain(PyObject *target, const struct plain_message *message)
{
    PyObject *tail = plain_tail(message);
    if (!tail)
        return -1;
    PyObject *arguments[] = {target, message->destination, message->ident, message->seq, tail};
    int full = plain_truth(PyObject_VectorcallMethod(plain_name.put_plain, arguments, 5, NULL));
    Py_DECREF(tail);
    return full;
}

/* Put a persistent message, and let the sender wait. Returns 0, or -1 with an exception. */
static int put_persistent(PyObject *session, PyObject *target, const struct plain_message *message, PyObject *receipt)
{
    PyObject *name = IS_A(target, Queue) ? FIELD_OF(target, Queue, name) : NULL, *tail = plain_tail(message);
    PyObject *record = tail ? plain_record(message, name, tail) : NULL;
    Py_XDECREF(tail);
    if (!record)
        return -1;
    receipt = receipt ? receipt : Py_None;
    struct plain_message made = *message;
    made.record = record;
    int error, paged = IS_A(target, Queue) ? plain_page(session, target, &made) : PLAIN_NOT_DELIVERED;
    if (paged != PLAIN_NOT_DELIVERED) {
        error = paged == PLAIN_DELIVERED_FULL ? plain_call(target, plain_name.block, session) : 0;
    } else if (IS_A(target, Queue) && plain_may_store(target, message)) {
        error = plain_record_put(session, target, &made, receipt, python.record_put) < 0 ? -1 : plain_put_stored(session, target, &made);
    } else {
        PyObject *arguments[] = {session, target, record, receipt};
        PyObject *result = PyObject_Vectorcall(python.put_persistent, arguments, 4, NULL);
        error = result ? 0 : -1;
        Py_XDECREF(result);
    }
    Py_DECREF(record);
    return error;
}

/* Put the message into its target, let the sender wait, and answer unless it has ended. Returns 0, or -1 with an exception. */
static int deliver(const Road *road, PyObject *session, PyObject *target, const struct plain_message *message, PyObject *receipt)
{
    if (message->persistent) {
        if (put_persistent(session, target, message, receipt) < 0)
            return -1;
    } else {
        int outcome = IS_A(target, Queue) ? plain_deliver(target, message) : plain_gather(target, message);
        int full = outcome == PLAIN_NOT_DELIVERED ? put_plain(target, message) : outcome == PLAIN_DELIVERED_FULL;
        if (outcome < 0 || full < 0 || (full && plain_call(target, plain_name.block, session) < 0))
            return -1;
    }
    return receipt && road->session ? answer(session, road->outbox, receipt) : 0;
}

/* Handle an exception as `Session.receive` does after a frame. Returns STOMP_TAKEN_LAST, or -1. */
static int fail(PyObject *session, PyObject *command, PyObject *receipt)
{
    PyObject *type, *error, *trace;
    PyErr_Fetch(&type, &error, &trace);
    PyErr_NormalizeException(&type, &error, &trace);
    if (trace)
        PyException_SetTraceback(error, trace);
    PyObject *result = PyObject_CallFunctionObjArgs(python.failed, session, error, command, receipt ? receipt : Py_None, NULL);
    Py_XDECREF(type), Py_XDECREF(error), Py_XDECREF(trace), Py_XDECREF(result);
    return result ? STOMP_TAKEN_LAST : -1;
}

/* End the frame: `error` is what became of it. Returns enum stomp_taking, or -1. It takes the reference to the receipt. */
static int end(Road *road, PyObject *session, PyObject *command, PyObject *receipt, int error)
{
    int outcome = STOMP_TAKEN;
    if (error < 0)
        outcome = fail(session, command, receipt);
    else if (!road->session) /* it has ended */
        outcome = STOMP_TAKEN_LAST;
    else if (--road->left <= 0 && (outcome = look_at_clock(road, session)) < 0)
        outcome = fail(session, command, receipt);
    Py_XDECREF(receipt);
    return outcome;
}

/* Read the receipt as a new reference, or NULL without. Returns 0 if it is no UTF-8. */
static int read_receipt(const struct plain_text *text, PyObject **receipt)
{
    *receipt = text->at ? text_of(text) : NULL;
    if (!text->at || *receipt)
        return 1;
    PyErr_Clear();
    return 0;
}

/* Do a SEND whose target is known. Nothing of `data` is used after Python was called. */
static int send(Road *road, PyObject *session, PyObject *target, struct plain_message *message)
{
    PyObject *receipt;
    if (!read_receipt(&message->send->receipt, &receipt))
        return STOMP_LEFT;
    int error = number(road, message) < 0 ? -1 : deliver(road, session, target, message, receipt);
    Py_CLEAR(message->seq);
    return end(road, session, plain_name.SEND, receipt, error);
}

/* May SENDs be added to transactions? Python says what happens where the disk is nearly full. */
static int may_defer(const Road *road)
{
    PyObject *journal = PyObject_GetAttr(road->broker, plain_name.journal);
    if (!journal)
        PyErr_Clear();
    int may = journal && !plain_is_short(journal);
    Py_XDECREF(journal);
    return may;
}

/* Add a SEND whose target is known to its transaction. */
static int defer(Road *road, PyObject *session, PyObject *target, struct plain_message *message)
{
    PyObject *receipt, *name = latest_of(&road->transaction, &message->send->transaction);
    PyObject *transactions = FIELD_OF(session, Session, transactions);
    PyObject *transaction = name && transactions && PyDict_CheckExact(transactions) ? PyDict_GetItemWithError(transactions, name) : NULL;
    Py_XINCREF(transaction);
    if (!transaction || !may_defer(road) || !read_receipt(&message->send->receipt, &receipt)) {
        PyErr_Clear();
        Py_XDECREF(transaction);
        return STOMP_LEFT;
    }
    int done = plain_defer(session, transaction, target, message, road->most);
    Py_DECREF(transaction);
    if (!done) {
        Py_XDECREF(receipt);
        return STOMP_LEFT;
    }
    return end(road, session, plain_name.SEND, receipt, receipt ? answer(session, road->outbox, receipt) : 0);
}

/* Do an ACK whose delivery is known. */
static int settle(Road *road, PyObject *session, const struct plain_ack *ack)
{
    PyObject *receipt;
    if (!read_receipt(&ack->receipt, &receipt))
        return STOMP_LEFT;
    int error = plain_ack_settle(ack, session, receipt ? receipt : Py_None, python.hold_receipts);
    if (!error && receipt && road->session)
        error = answer(session, road->outbox, receipt);
    if (!error)
        error = plain_ack_offer(ack);
    return end(road, session, plain_name.ACK, receipt, error);
}

/* Is there enough memory for this road? The Python road looks more closely. */
static int has_memory(const Road *road)
{
    long long used, first;
    return plain_number(FIELD_OF(road->account, Account, used), &used)
        && plain_number(FIELD_OF(road->account, Account, first), &first) && used <= first;
}

static int is_true(const struct plain_text *text)
{
    return text->at && text->len == 4 && !memcmp(text->at, "true", 4);
}

/* `persistent` has a value that only Python understands, or refuses. */
static int is_odd(const struct plain_text *text)
{
    return text->at && !is_true(text) && !(text->len == 5 && !memcmp(text->at, "false", 5));
}

/* May this road take the frame, as far as its head has been read? */
static int may_take(const Road *road, const struct stomp_scan *scan)
{
    int handles = (scan->command == STOMP_SEND && road->sends) || (scan->command == STOMP_ACK && road->acks);
    return is_on && handles && !scan->starts && !(scan->marks & STOMP_CHANGED) && has_memory(road);
}

/* The queue or topic that the session has cached for a destination. Borrowed, or NULL. */
static PyObject *target_of(const Road *road, PyObject *destination)
{
    PyObject *targets = FIELD_OF(road->session, Session, cached_targets);
    PyObject *target = destination && targets && PyDict_CheckExact(targets) ? PyDict_GetItemWithError(targets, destination) : NULL;
    PyErr_Clear();
    return target;
}

static int take_send(Road *road, PyObject *session, const struct stomp_scan *scan, const uint8_t *data, size_t size)
{
    struct plain_send read;
    if (!plain_send_read(&read, scan, data, size) || is_odd(&read.persistent) || (!read.transaction.at && FIELD_OF(session, Session, plain) != Py_True))
        return STOMP_LEFT;
    PyObject *ident = road->ident, *destination = latest_of(&road->destination, &read.destination), *target = target_of(road, destination);
    if (!target)
        return STOMP_LEFT;
    struct plain_message message = {&read, scan, data, destination, ident, NULL, 0, plain_is_stored(target, &read.persistent, road->stores, road->stores_all),
                                    python.shared, NULL};
    Py_INCREF(ident), Py_INCREF(target), Py_INCREF(destination);
    int outcome = (read.transaction.at ? defer : send)(road, session, target, &message);
    Py_DECREF(ident), Py_DECREF(target), Py_DECREF(destination);
    return outcome;
}

static int take_ack(Road *road, PyObject *session, const struct stomp_scan *scan, const uint8_t *data)
{
    struct plain_ack ack;
    if (!plain_ack_find(&ack, session, scan, data, &road->consumer))
        return STOMP_LEFT;
    PyObject *consumer = ack.consumer, *queue = ack.queue;
    Py_INCREF(consumer), Py_INCREF(queue);
    int outcome = settle(road, session, &ack);
    Py_DECREF(consumer), Py_DECREF(queue), Py_DECREF(ack.tag);
    return outcome;
}

static int road_clear(Road *road)
{
    Py_CLEAR(road->session);
    if (road->inside)
        return 0;
    Py_CLEAR(road->outbox);
    Py_CLEAR(road->broker);
    Py_CLEAR(road->account);
    Py_CLEAR(road->ident);
    Py_CLEAR(road->destination);
    Py_CLEAR(road->consumer);
    Py_CLEAR(road->transaction);
    return 0;
}

static int take(void *owner, const struct stomp_scan *scan, const uint8_t *data, size_t size)
{
    Road *road = owner;
    PyObject *session = road->session;
    if (!session || road->inside || !may_take(road, scan)) {
        road->left--;
        return STOMP_LEFT;
    }
    Py_INCREF(session), Py_INCREF(road);
    road->inside = 1;
    int outcome = scan->command == STOMP_ACK ? take_ack(road, session, scan, data) : take_send(road, session, scan, data, size);
    road->inside = 0;
    if (!road->session) /* closed meanwhile */
        (void)road_clear(road);
    if (outcome == STOMP_LEFT)
        road->left--;
    Py_DECREF(session), Py_DECREF(road);
    return outcome;
}

/* ---- the type ---- */

static int road_traverse(Road *road, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(road));
    Py_VISIT(road->session);
    Py_VISIT(road->outbox);
    Py_VISIT(road->broker);
    Py_VISIT(road->account);
    return 0;
}

static void road_dealloc(Road *road)
{
    PyTypeObject *type = Py_TYPE(road);
    PyObject_GC_UnTrack(road);
    (void)road_clear(road);
    if (road->capsule && PyCapsule_SetName(road->capsule, "stompcodec.gone") < 0) /* whoever has it still must not call us */
        PyErr_Clear();
    Py_CLEAR(road->capsule);
    type->tp_free(road);
    Py_DECREF(type);
}

static PyObject *road_new(PyTypeObject *type, PyObject *args, PyObject *named)
{
    static char *names[] = {"session", "broker", NULL};
    PyObject *session, *broker;
    if (!plain_at.Session) {
        PyErr_SetString(PyExc_RuntimeError, "prepare() was not called");
        return NULL;
    }
    if (!PyArg_ParseTupleAndKeywords(args, named, "O!O", names, plain_at.Session, &session, &broker))
        return NULL;
    Road *road = (Road *)type->tp_alloc(type, 0);
    if (!road)
        return NULL;
    road->taker = (struct stomp_taker){sizeof(struct stomp_scan), take, road};
    Py_INCREF(session), road->session = session;
    Py_INCREF(broker), road->broker = broker;
    PyObject *config = NULL, *most = NULL;
    int is_found = (road->capsule = PyCapsule_New(&road->taker, STOMP_TAKER, NULL)) && (road->outbox = PyObject_GetAttrString(session, "outbox"))
                   && (road->account = PyObject_GetAttrString(broker, "account")) && (road->ident = PyObject_GetAttrString(broker, "ident"))
                   && (road->stores = plain_truth(PyObject_GetAttrString(broker, "stores_some"))) >= 0
                   && (road->stores_all = plain_truth(PyObject_GetAttrString(broker, "stores_all"))) >= 0
                   && (config = PyObject_GetAttrString(broker, "config")) && (most = PyObject_GetAttrString(config, "max_transaction_octets"));
    if (is_found && !(IS_A(road->outbox, Outbox) && IS_A(road->account, Account) && PyBytes_CheckExact(road->ident) && plain_number(most, &road->most))) {
        PyErr_SetString(PyExc_TypeError, "outbox, account, ident or limit has another type");
        is_found = 0;
    }
    Py_XDECREF(config), Py_XDECREF(most);
    if (!is_found)
        Py_CLEAR(road);
    return (PyObject *)road;
}

static PyObject *road_begin(Road *road, PyObject *left)
{
    PyObject *handlers = road->session ? FIELD_OF(road->session, Session, handlers) : NULL;
    long count = PyLong_AsLong(left);
    if (count == -1 && PyErr_Occurred())
        return NULL;
    road->left = (int)count;
    handlers = handlers && PyDict_CheckExact(handlers) ? handlers : NULL;
    road->sends = handlers && PyDict_GetItemWithError(handlers, plain_name.SEND) == python.send;
    road->acks = handlers && PyDict_GetItemWithError(handlers, plain_name.ACK) == python.ack;
    PyErr_Clear();
    Py_RETURN_NONE;
}

static PyObject *road_close(Road *road, PyObject *unused)
{
    (void)unused;
    (void)road_clear(road);
    Py_RETURN_NONE;
}

static PyMethodDef road_methods[] = {
    {"begin", (PyCFunction)road_begin, METH_O,
     "begin(left, /)\n--\n\nBegin a share of the loop: after `left` frames of both roads somebody looks at the clock."},
    {"close", (PyCFunction)road_close, METH_NOARGS, "Leave all frames to Python from now on."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef road_members[] = {
    {"left", T_INT, offsetof(Road, left), READONLY, "Frames until the next look at the clock."},
    {"taker", T_OBJECT_EX, offsetof(Road, capsule), READONLY, "What the parser calls, as a capsule."},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot road_slots[] = {
    {Py_tp_doc, "Road(session, broker)\n--\n\nThe plain road of one session. It refers to the session until `close`."},
    {Py_tp_new, (void *)road_new},
    {Py_tp_dealloc, (void *)road_dealloc},
    {Py_tp_traverse, (void *)road_traverse},
    {Py_tp_clear, (void *)road_clear},
    {Py_tp_methods, road_methods},
    {Py_tp_members, road_members},
    {0, NULL},
};

static PyType_Spec road_spec = {
    "stompcodec.broker._plain_c.Road", sizeof(Road), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, road_slots,
};

/* ---- the module ---- */

static PyObject *prepare(PyObject *module, PyObject *args)
{
    PyObject *classes, *slow, *without, *functions[PYTHON_FUNCTIONS], *no_line;
    int each;
    long long cost, operation;
    (void)module;
    if (!PyArg_ParseTuple(args, "OOO(OOOOOOOO)OiLL", &classes, &slow, &without, functions, functions + 1, functions + 2, functions + 3,
                          functions + 4, functions + 5, functions + 6, functions + 7, &no_line, &each, &cost, &operation))
        return NULL;
    if (each != EACH || cost != PLAIN_MESSAGE_COST || operation != PLAIN_OPERATION_COST) {
        PyErr_SetString(PyExc_ValueError, "the plain road was built with other constants");
        return NULL;
    }
    if (plain_names_make() < 0 || plain_fields_find(classes) < 0 || plain_send_names(slow, without) < 0)
        return NULL;
    for (int i = 0; i < PYTHON_FUNCTIONS; i++) {
        Py_INCREF(functions[i]);
        plain_set((PyObject **)&python + i, functions[i]);
    }
    Py_INCREF(no_line), plain_set(&plain_no_line, no_line);
    Py_RETURN_NONE;
}

static PyObject *switch_on(PyObject *module, PyObject *on)
{
    int now = PyObject_IsTrue(on), before = is_on;
    (void)module;
    if (now < 0)
        return NULL;
    is_on = now;
    return PyBool_FromLong(before);
}

static PyObject *deliver_ready(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    if (count != 2 || !plain_at.Queue || !IS_A(args[0], Queue)) {
        PyErr_SetString(PyExc_TypeError, "deliver_ready() takes a queue and a number");
        return NULL;
    }
    Py_ssize_t most = PyLong_AsSsize_t(args[1]);
    if (most == -1 && PyErr_Occurred())
        return NULL;
    Py_INCREF(args[0]);
    Py_ssize_t done = is_on ? plain_deliver_ready(args[0], most) : 0;
    Py_DECREF(args[0]);
    return done < 0 ? NULL : PyLong_FromSsize_t(done);
}

static PyObject *join(PyObject *module, PyObject *const *args, Py_ssize_t count)
{
    (void)module;
    if (count != 2) {
        PyErr_SetString(PyExc_TypeError, "join() takes bytes and a list of messages");
        return NULL;
    }
    if (!is_on)
        Py_RETURN_NONE;
    return plain_join(args[0], args[1]);
}

static PyMethodDef methods[] = {
#ifndef MS_WINDOWS
    {"are_at", plain_are_at, METH_O,
     "are_at(places, /)\n--\n\nReturn whether each file, a tuple of path, device and inode, is at its path. os.stat would take ten times as long."},
#endif
    {"deliver_ready", (PyCFunction)(void (*)(void))deliver_ready, METH_FASTCALL,
     "deliver_ready(queue, most, /)\n--\n\n"
     "Deliver up to `most` READY messages of a queue, until one of them or its consumer is not plain. Return how many."},
    {"join", (PyCFunction)(void (*)(void))join, METH_FASTCALL,
     "join(start, messages, /)\n--\n\n"
     "Return the bytes of plain messages, a list, as MESSAGEs that begin with `start`; None if Python has to do it."},
    {"prepare", prepare, METH_VARARGS,
     "prepare(classes, slow, without, functions, no_line, each, cost, operation, /)\n--\n\n"
     "Learn the classes, names, functions (send, ack, send_receipt, hold_receipts_of, put_persistent, record_put, failed, shared), the line of a queue "
     "without READY messages, and constants of the broker."},
    {"switch", switch_on, METH_O, "switch(on, /)\n--\n\nTake frames, or leave all of them to Python. Return what it was before."},
    {NULL, NULL, 0, NULL},
};

static int fill(PyObject *module)
{
    PyObject *type = PyType_FromSpec(&road_spec);
    if (!type)
        return -1;
    int error = PyModule_AddObjectRef(module, "Road", type);
    Py_DECREF(type);
    return error < 0 ? -1 : plain_tally_add(module);
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, (void *)fill},
#ifdef Py_mod_multiple_interpreters
    {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED},
#endif
#ifdef Py_mod_gil
    {Py_mod_gil, Py_MOD_GIL_NOT_USED}, /* a broker belongs to one thread, with or without; others may read: plain_set_field */
#endif
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "stompcodec.broker._plain_c", "The broker's plain road in C.", 0, methods, slots, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__plain_c(void)
{
    return PyModuleDef_Init(&definition);
}
