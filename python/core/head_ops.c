#include "head_object.h"

#include "base/clock.h"

#include <errno.h>
#include <string.h>

int head_is_running(struct head *h)
{
    if (h->head && h->client && !h->closing)
        return 1;
    PyErr_SetString(core_error, "this head has been stopped");
    return 0;
}

int head_op_finish(struct ms_head_op *op, PyObject *timeout)
{
    struct ms_error err = {0};
    int64_t until_ns;
    int rc;

    if (!op) {
        PyErr_NoMemory();
        return -1;
    }
    if (core_deadline(timeout, MS_NEVER, &until_ns) < 0)
        return -1;
    for (;;) {
        Py_BEGIN_ALLOW_THREADS;
        rc = ms_head_op_wait(op, core_slice(until_ns));
        Py_END_ALLOW_THREADS;
        if (rc == 0)
            break;
        if (PyErr_CheckSignals() < 0)
            return -1;
        if (ms_now_ns() >= until_ns) {
            PyErr_SetString(PyExc_TimeoutError, ms_head_op_delay(op));
            return -1;
        }
    }
    if (ms_head_op_result(op, &err) < 0) {
        core_raise(&err);
        return -1;
    }
    return 0;
}

int head_op_finish_coded(struct ms_head_op *op, PyObject *timeout)
{
    struct ms_error err = {0};
    const char *table;
    PyObject *args;

    if (ms_head_op_result(op, NULL) == -EINPROGRESS && head_op_finish(op, timeout) == 0)
        return 0;
    if (ms_head_op_result(op, &err) == 0)
        return 0;
    if (!err.code || err.code == -EINPROGRESS)
        return -1; /* it did not come in time, or a signal did */
    PyErr_Clear();
    table = ms_head_op_table(op);
    args = Py_BuildValue("Nsi", core_text(err.text), table ? table : "", -err.code);
    if (args) {
        PyErr_SetObject(core_refused, args);
        Py_DECREF(args);
    }
    return -1;
}

PyObject *head_destroy_cluster(PyObject *self, PyObject *args)
{
    struct head *h = (struct head *)self;
    struct ms_head_op *op;
    PyObject *timeout;
    const char *name;
    unsigned long long uid;
    double grace;
    int rc, own;

    if (!PyArg_ParseTuple(args, "spKdO", &name, &own, &uid, &grace, &timeout) ||
        !head_is_running(h))
        return NULL;
    op = ms_head_destroy_that_cluster(h->head, name, own, uid, core_ns(grace));
    rc = head_op_finish(op, timeout);
    if (rc < 0 && ms_head_op_result(op, NULL) == -ENOENT) {
        PyErr_Clear(); /* it is gone: what was wanted */
        rc = 0;
    }
    ms_head_op_unref(op);
    if (rc < 0)
        return NULL;
    Py_RETURN_NONE;
}

/* (former uid, uid, address): whoever calls the former one from here calls this one. */
PyObject *head_redirect(PyObject *self, PyObject *args)
{
    struct head *h = (struct head *)self;
    unsigned long long former, uid;
    const char *address;

    if (!PyArg_ParseTuple(args, "KKs", &former, &uid, &address) || !head_is_running(h))
        return NULL;
    ms_client_successor(h->client, former, uid, address);
    Py_RETURN_NONE;
}

PyObject *head_hold_port(PyObject *self, PyObject *args)
{
    struct head *h = (struct head *)self;
    const Muster__PortHeld *held;
    struct ms_head_op *op;
    PyObject *timeout, *result = NULL;
    const char *owner, *node;

    if (!PyArg_ParseTuple(args, "szO", &owner, &node, &timeout) || !head_is_running(h))
        return NULL;
    op = ms_head_hold_port_on(h->head, node, owner);
    if (head_op_finish(op, timeout) == 0) {
        held = (const Muster__PortHeld *)ms_head_op_message(op);
        result = Py_BuildValue("sI", held->host, (unsigned)held->port);
    }
    ms_head_op_unref(op);
    return result;
}

PyObject *head_drop_port(PyObject *self, PyObject *args)
{
    struct head *h = (struct head *)self;
    struct ms_head_op *op;
    PyObject *timeout;
    const char *owner;
    int rc;

    if (!PyArg_ParseTuple(args, "sO", &owner, &timeout) || !head_is_running(h))
        return NULL;
    op = ms_head_drop_port(h->head, owner);
    rc = head_op_finish(op, timeout);
    ms_head_op_unref(op);
    if (rc < 0)
        return NULL;
    Py_RETURN_NONE;
}
