/* head.c - the Head object: a driver's session as Python has it */
#include "head_object.h"

#include "io/http/token.h"

#include <pthread.h>
#include <string.h>

static PyObject *head_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    struct head *h = (struct head *)PyType_GenericAlloc(type, 0);
    pthread_condattr_t attr;

    if (!h)
        return NULL;
    pthread_mutex_init(&h->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&h->changed, &attr);
    pthread_condattr_destroy(&attr);
    ms_list_init(&h->logs.events);
    ms_list_init(&h->nodes.events);
    return (PyObject *)h;
}

/* ---- stop ------------------------------------------------------------------------ */

static void set_stopped(struct head *h)
{
    pthread_mutex_lock(&h->lock);
    h->stopped = true;
    pthread_cond_broadcast(&h->changed);
    pthread_mutex_unlock(&h->lock);
}

static void stop(struct head *h, int64_t grace_ns)
{
    if (!h->driver)
        return;
    ms_driver_session_stop(h->driver, grace_ns);
    h->head = NULL;
    h->client = NULL;
    set_stopped(h);
}

/* (grace, whether the driver has failed) */
static PyObject *head_stop(PyObject *self, PyObject *args)
{
    struct head *h = (struct head *)self;
    double grace;
    int failed = 0;

    if (!PyArg_ParseTuple(args, "d|p", &grace, &failed))
        return NULL;
    if (h->closing)
        Py_RETURN_NONE;
    h->closing = true;
    if (failed)
        ms_driver_session_fail(h->driver);
    Py_BEGIN_ALLOW_THREADS;
    stop(h, core_ns(grace));
    Py_END_ALLOW_THREADS;
    Py_RETURN_NONE;
}

/* Python has ended: here the exit code of the process is known. */
static void stop_with_status(int status, void *arg)
{
    struct ms_driver_session *driver = arg;

    if (status != 0)
        ms_driver_session_fail(driver);
    ms_driver_session_stop(driver, 0);
}

/* From Python's atexit, so that what libraries have registered runs after this. */
static PyObject *head_stop_at_exit(PyObject *self, PyObject *unused)
{
    struct head *h = (struct head *)self;

    if (h->closing || on_exit(stop_with_status, h->driver) != 0)
        Py_RETURN_NONE;
    h->closing = true;
    Py_INCREF(self); /* for as long as the process lives */
    set_stopped(h);
    Py_RETURN_NONE;
}

/* In a forked child. The session has seen to its own part. */
static PyObject *head_forget(PyObject *self, PyObject *unused)
{
    struct head *h = (struct head *)self;

    h->head = NULL;
    h->client = NULL;
    pthread_mutex_init(&h->lock, NULL);
    h->stopped = h->closing = true;
    Py_RETURN_NONE;
}

static void head_dealloc(PyObject *self)
{
    struct head *h = (struct head *)self;

    Py_BEGIN_ALLOW_THREADS;
    stop(h, 0);
    Py_END_ALLOW_THREADS;
    head_events_free(h);
    ms_driver_session_destroy(h->driver);
    Py_XDECREF(h->session);
    Py_XDECREF(h->session_dir);
    core_object_free(self);
}

/* ---- what it is ------------------------------------------------------------------ */

static PyObject *head_peer(PyObject *self, PyObject *args)
{
    struct head *h = (struct head *)self;

    return head_is_running(h) ? core_peer_new(h->client, args, self) : NULL;
}

/* (former uid, uid, address): calls from here to the former worker go to this one. */
static PyObject *head_redirect(PyObject *self, PyObject *args)
{
    struct head *h = (struct head *)self;
    Muster__WorkerStatus worker = MUSTER__WORKER_STATUS__INIT;
    unsigned long long former, uid;
    const char *address;

    if (!PyArg_ParseTuple(args, "KKs", &former, &uid, &address) || !head_is_running(h))
        return NULL;
    worker.uid = uid;
    worker.address = (char *)(uintptr_t)address;
    ms_client_successor(h->client, former, &worker);
    Py_RETURN_NONE;
}

/* For the Authorization header of HTTP clients. */
static PyObject *get_http_token(PyObject *self, void *unused)
{
    struct head *h = (struct head *)self;
    const struct ms_session *session;
    struct ms_http_token token;

    if (!head_is_running(h))
        return NULL;
    session = ms_head_session(h->head);
    if (ms_http_token_make(&token, session->secret, sizeof session->secret) < 0)
        return PyErr_NoMemory();
    return PyUnicode_FromString(token.text);
}

static PyObject *get_http_address(PyObject *self, void *unused)
{
    struct head *h = (struct head *)self;

    return head_is_running(h) ? PyUnicode_FromString(ms_head_http_address(h->head))
                              : NULL;
}

static PyObject *get_alive(PyObject *self, void *unused)
{
    struct head *h = (struct head *)self;

    return PyBool_FromLong(h->driver && !h->closing &&
                           ms_driver_session_is_alive(h->driver));
}

static PyObject *get_joined(PyObject *self, void *unused)
{
    struct head *h = (struct head *)self;

    return PyBool_FromLong(h->driver && ms_driver_session_is_joined(h->driver));
}

static PyObject *get_changes(PyObject *self, void *unused)
{
    struct head *h = (struct head *)self;

    return PyLong_FromUnsignedLongLong(h->head ? ms_head_changes(h->head) : 0);
}

static PyMethodDef head_methods[] = {
    {"ask", head_ask, METH_VARARGS, NULL},
    {"request", head_request, METH_VARARGS, NULL},
    {"status", head_status, METH_O, NULL},
    {"redirect", head_redirect, METH_VARARGS, NULL},
    {"peer", head_peer, METH_VARARGS, NULL},
    {"next_logs", head_next_logs, METH_O, NULL},
    {"next_nodes", head_next_nodes, METH_O, NULL},
    {"stop", head_stop, METH_VARARGS, NULL},
    {"stop_at_exit", head_stop_at_exit, METH_NOARGS, NULL},
    {"forget", head_forget, METH_NOARGS, NULL},
    {"record", head_record, METH_O, NULL},
    {"record_end", head_record_end, METH_NOARGS, NULL},
    {"add_span", head_add_span, METH_VARARGS, NULL},
    {"add_mark", head_add_mark, METH_VARARGS, NULL},
    {"add_count", head_add_count, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL}};

static PyMemberDef head_members[] = {
    {"session", T_OBJECT, offsetof(struct head, session), READONLY, NULL},
    {"session_dir", T_OBJECT, offsetof(struct head, session_dir), READONLY, NULL},
    {NULL, 0, 0, 0, NULL}};

static PyGetSetDef head_getset[] = {
    {"http_address", get_http_address, NULL, NULL, NULL},
    {"http_token", get_http_token, NULL, NULL, NULL},
    {"alive", get_alive, NULL, NULL, NULL},
    {"joined", get_joined, NULL, NULL, NULL},
    {"changes", get_changes, NULL, NULL, NULL},
    {"is_recording", head_is_recording, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL}};

static PyType_Slot head_slots[] = {{Py_tp_new, head_new},
                                   {Py_tp_init, head_init},
                                   {Py_tp_dealloc, head_dealloc},
                                   {Py_tp_methods, head_methods},
                                   {Py_tp_getset, head_getset},
                                   {Py_tp_members, head_members},
                                   {0, NULL}};

struct core_type core_head = {
    .name = "muster._core.Head", .size = sizeof(struct head), .slots = head_slots};
