/* call_many.c - one call to many workers: the same arguments, or one of several parts */
#include "peer_object.h"

#include "base/limits.h"

struct fan {
    struct peer *peer;
    int op;
    long part; /* of the arguments; -1: it is not called */
    struct ms_call *call;
};

/* Find the method's op at every peer. NULL with an exception set. */
static struct fan *fan_create(PyObject *peers, PyObject *engine, PyObject *method)
{
    Py_ssize_t n = PyList_Size(peers);
    struct fan *fans = n < 0 ? NULL : calloc((size_t)n + 1, sizeof *fans);

    if (!fans) {
        if (n >= 0)
            PyErr_NoMemory();
        return NULL;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *peer = PyList_GetItem(peers, i);

        if (!PyObject_TypeCheck(peer, core_peer.type)) {
            PyErr_SetString(PyExc_TypeError, "a list of peers is needed");
            free(fans);
            return NULL;
        }
        fans[i].peer = (struct peer *)peer;
        fans[i].op = peer_method_op(fans[i].peer, engine, method);
        if (fans[i].op < 0) {
            free(fans);
            return NULL;
        }
    }
    return fans;
}

/* Calls whose results are not collected any more. */
static void fan_drop(struct fan *fans, Py_ssize_t n)
{
    for (Py_ssize_t i = 0; i < n; i++)
        if (fans[i].call) {
            ms_call_cancel(fans[i].call);
            ms_call_unref(fans[i].call);
        }
    free(fans);
}

/* The calls as objects, None where there is none; frees what `fans` holds. */
static PyObject *fan_collect(struct fan *fans, Py_ssize_t n)
{
    PyObject *list = PyList_New(n);

    for (Py_ssize_t i = 0; list && i < n; i++) {
        struct ms_call *call = fans[i].call;
        PyObject *object = Py_None;

        fans[i].call = NULL;
        if (fans[i].part < 0)
            Py_INCREF(object);
        else
            object =
                call ? core_call_new(call, (PyObject *)fans[i].peer) : PyErr_NoMemory();
        if (!object || PyList_SetItem(list, i, object) < 0)
            Py_CLEAR(list);
    }
    fan_drop(fans, n);
    return list;
}

/* Send one part to all who get it. */
static void
fan_send(struct fan *fans, Py_ssize_t n, long part, const struct peer_start *common)
{
    struct peer_start s = *common;

    Py_BEGIN_ALLOW_THREADS;
    for (Py_ssize_t i = 0; i < n; i++)
        if (fans[i].part == part) {
            s.op = fans[i].op;
            fans[i].call = peer_send(fans[i].peer, &s);
        }
    Py_END_ALLOW_THREADS;
}

/* ---- parts ----------------------------------------------------------------------- */

/* None: all get the first. */
static int parse_parts(struct fan *fans, PyObject *which, Py_ssize_t n, long parts)
{
    if (which == Py_None)
        return 0;
    if (!PyList_Check(which) || PyList_Size(which) != n)
        return core_fail(PyExc_TypeError, "a part of each peer is needed");
    for (Py_ssize_t i = 0; i < n; i++) {
        fans[i].part = PyLong_AsLong(PyList_GetItem(which, i));
        if (fans[i].part == -1 && PyErr_Occurred())
            return -1;
        if (fans[i].part < -1 || fans[i].part >= parts)
            return core_fail(PyExc_IndexError, "there is no part %ld", fans[i].part);
    }
    return 0;
}

static bool is_wanted(const struct fan *fans, Py_ssize_t n, long part)
{
    for (Py_ssize_t i = 0; i < n; i++)
        if (fans[i].part == part)
            return true;
    return false;
}

/* Encode each part that has a receiver, send it, and let go of it. */
static int send_parts(
    struct fan *fans, Py_ssize_t n, PyObject *parts, int codec, struct peer_start *s)
{
    for (long part = 0; part < PyList_Size(parts); part++) {
        PyObject *args, *kwargs;

        if (!is_wanted(fans, n, part))
            continue;
        if (!PyArg_ParseTuple(PyList_GetItem(parts, part), "OO", &args, &kwargs) ||
            peer_encode(args, kwargs, codec, &s->payload) < 0)
            return -1;
        fan_send(fans, n, part, s);
        core_payload_release(&s->payload);
    }
    return 0;
}

/* (peers, engine, method, parts, which, timeout, waits, codec): `parts` are (args, kwargs
 * or None), each of which is encoded once; peer i gets parts[which[i]], and none if that
 * is -1. */
static PyObject *call_many(PyObject *self, PyObject *const *a, Py_ssize_t nargs)
{
    struct peer_start s = {.is_of_many = true};
    struct fan *fans;
    Py_ssize_t n;
    int codec;

    if (nargs != 8 || !PyList_Check(a[0]) || !PyList_Check(a[3]))
        return PyErr_Format(PyExc_TypeError,
                            "call_many takes peers, engine, method, parts, which (of "
                            "each peer), timeout, waits, codec");
    n = PyList_Size(a[0]);
    codec = peer_parse_codec(a[7]);
    s.asked_ns = a[5] == Py_None ? 0 : ms_now_ns();
    if (codec < 0 || core_deadline(a[5], MS_CALL_TIMEOUT_NS, &s.deadline_ns) < 0)
        return NULL;
    s.waits = PyObject_IsTrue(a[6]) == 1;
    fans = fan_create(a[0], a[1], a[2]);
    if (!fans)
        return NULL;
    if (parse_parts(fans, a[4], n, (long)PyList_Size(a[3])) < 0 ||
        send_parts(fans, n, a[3], codec, &s) < 0) {
        fan_drop(fans, n);
        return NULL;
    }
    return fan_collect(fans, n);
}

PyMethodDef core_call_many_functions[] = {
    {"call_many", (PyCFunction)(void (*)(void))call_many, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL}};
