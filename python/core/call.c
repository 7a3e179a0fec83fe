/* call.c - a call under way, and the inbox that tells of many */
#include "store.h"

#include "base/clock.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

struct call {
    PyObject_HEAD struct ms_call *call;
    PyObject *peer;
    PyObject *result; /* decoded once */
    PyObject *error;  /* or why it could not be: never raised itself, see raise_error */
    bool failed;      /* or what the worker sent is the failure */
    int streams;      /* an item was taken, or it ended as a stream */
    bool settling;    /* `settler` decodes it, and may let go of the GIL meanwhile */
    pthread_t settler;
};

/* Those who wait for a settler. */
static pthread_mutex_t settle_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t settled = PTHREAD_COND_INITIALIZER;

struct inbox {
    PyObject_HEAD struct ms_inbox *inbox;
};

PyObject *core_call_new(struct ms_call *call, PyObject *peer)
{
    struct call *c = (struct call *)PyType_GenericAlloc(core_call.type, 0);

    if (!c) {
        ms_call_unref(call);
        return NULL;
    }
    c->call = call;
    c->peer = Py_NewRef(peer);
    return (PyObject *)c;
}

static int call_traverse(PyObject *self, visitproc visit, void *arg)
{
    struct call *c = (struct call *)self;

    Py_VISIT(Py_TYPE(self));
    Py_VISIT(c->peer);
    Py_VISIT(c->result);
    Py_VISIT(c->error);
    return 0;
}

static int call_clear(PyObject *self)
{
    struct call *c = (struct call *)self;

    Py_CLEAR(c->result);
    Py_CLEAR(c->error);
    return 0;
}

static void call_dealloc(PyObject *self)
{
    struct call *c = (struct call *)self;

    PyObject_GC_UnTrack(self);
    ms_call_let_go(c->call);
    ms_call_unref(c->call);
    Py_XDECREF(c->peer);
    call_clear(self);
    core_object_free(self);
}

/* ---- waiting --------------------------------------------------------------------- */

int core_call_wait(struct ms_call *call, int64_t until_ns)
{
    for (;;) {
        int rc;

        Py_BEGIN_ALLOW_THREADS;
        rc = ms_call_wait(call, core_slice(until_ns));
        Py_END_ALLOW_THREADS;
        if (rc == 0)
            return 1;
        if (PyErr_CheckSignals() < 0)
            return -1;
        if (rc == -ETIMEDOUT && ms_now_ns() >= until_ns)
            return 0;
    }
}

static PyObject *call_wait(PyObject *self, PyObject *timeout)
{
    struct call *c = (struct call *)self;
    int64_t until_ns;
    int rc;

    if (core_deadline(timeout, MS_NEVER, &until_ns) < 0)
        return NULL;
    if (!ms_call_is_done(c->call) && core_check_deadlock(ms_call_peer(c->call)) < 0)
        return NULL;
    rc = core_call_wait(c->call, until_ns);
    return rc < 0 ? NULL : PyBool_FromLong(rc);
}

/* (calls, seconds): wait for all of them, one after the other, without looking at
 * signals: for a moment only. True if each has news. */
static PyObject *wait_all(PyObject *self, PyObject *args)
{
    MS_CLEANUP(ms_cleanup_free) struct ms_call **calls = NULL;
    MS_CLEANUP(core_unref) PyObject *kept = NULL; /* whatever becomes of the list */
    PyObject *list, *seconds;
    int64_t until_ns;
    Py_ssize_t n;
    int rc = 0;

    if (!PyArg_ParseTuple(args, "O!O", &PyList_Type, &list, &seconds) ||
        core_deadline(seconds, 0, &until_ns) < 0 || !(kept = PyList_AsTuple(list)))
        return NULL;
    n = PyTuple_Size(kept);
    calls = calloc((size_t)n + 1, sizeof(*calls));
    if (!calls)
        return PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *item = PyTuple_GetItem(kept, i);

        if (!PyObject_TypeCheck(item, core_call.type))
            return PyErr_Format(PyExc_TypeError, "a list of calls is needed");
        calls[i] = ((struct call *)item)->call;
        if (core_check_deadlock(ms_call_peer(calls[i])) < 0)
            return NULL;
    }
    Py_BEGIN_ALLOW_THREADS;
    for (Py_ssize_t i = 0; rc == 0 && i < n; i++)
        rc = ms_call_wait(calls[i], until_ns);
    Py_END_ALLOW_THREADS;
    return PyBool_FromLong(rc == 0);
}

PyMethodDef core_call_functions[] = {{"wait_all", wait_all, METH_VARARGS, NULL},
                                     {NULL, NULL, 0, NULL}};

static PyObject *call_done(PyObject *self, PyObject *unused)
{
    return PyBool_FromLong(ms_call_is_done(((struct call *)self)->call));
}

static PyObject *call_failed(PyObject *self, PyObject *unused)
{
    struct call *c = (struct call *)self;
    struct ms_outcome o;

    if (!ms_call_is_done(c->call))
        Py_RETURN_FALSE;
    ms_call_outcome(c->call, &o);
    return PyBool_FromLong(o.kind == MS_KIND_ERROR);
}

static PyObject *call_cancel(PyObject *self, PyObject *unused)
{
    Py_BEGIN_ALLOW_THREADS;
    ms_call_cancel(((struct call *)self)->call);
    Py_END_ALLOW_THREADS;
    Py_RETURN_NONE;
}

/* ---- results --------------------------------------------------------------------- */

static PyObject *stream_of(PyObject *self)
{
    MS_CLEANUP(core_unref) PyObject *type = core_import("muster.stream", "Stream");

    return type ? PyObject_CallFunctionObjArgs(type, self, NULL) : NULL;
}

/* It cannot be decoded twice: what is set now is raised again, unless it is Ctrl-C. */
static void keep_decode_error(struct call *c)
{
    PyObject *type, *value, *traceback;

    PyErr_Fetch(&type, &value, &traceback);
    PyErr_NormalizeException(&type, &value, &traceback);
    if (PyErr_GivenExceptionMatches(type, PyExc_Exception))
        c->error = core_exception_copy(value);
    PyErr_Clear();
    if (!c->error)
        c->error = PyObject_CallFunction(
            core_error, "s", "the result is lost: reading it was interrupted");
    PyErr_Restore(type, value, traceback);
}

/* An exception that was raised refers, by its traceback, to the frame that holds the call: were
 * it the call's, only the garbage collector would free both. So each time is a new one. */
static PyObject *raise_error(struct call *c)
{
    struct ms_outcome o;

    if (!c->failed)
        return core_raise_new(core_exception_copy(c->error));
    ms_call_outcome(c->call, &o);
    return core_raise_failure(o.body, o.len, ms_peer_label(ms_call_peer(c->call)));
}

PyObject *core_call_value(struct ms_call *call, const struct ms_outcome *o)
{
    void *stored;
    PyObject *value;

    ms_call_take_body(call, &stored); /* core_decode frees it */
    value = core_decode(o->codec, (uint8_t *)(uintptr_t)o->body, o->body, o->len);
    core_hold_unref(stored);
    return value;
}

static int decode_outcome(struct call *c)
{
    struct ms_outcome o;

    ms_call_outcome(c->call, &o);
    if (o.ends_stream)
        c->streams = 1;
    c->failed = o.kind == MS_KIND_ERROR;
    if (c->failed)
        return 0;
    c->result = core_call_value(c->call, &o);
    if (!c->result)
        keep_decode_error(c);
    return c->result ? 0 : -1;
}

static void wait_settled(struct call *c)
{
    Py_BEGIN_ALLOW_THREADS;
    pthread_mutex_lock(&settle_lock);
    while (c->settling)
        pthread_cond_wait(&settled, &settle_lock);
    pthread_mutex_unlock(&settle_lock);
    Py_END_ALLOW_THREADS;
}

/* From here to end_settling no other thread reads or frees the outcome. */
static void begin_settling(struct call *c)
{
    c->settler = pthread_self();
    c->settling = true;
}

static void end_settling(struct call *c)
{
    pthread_mutex_lock(&settle_lock);
    c->settling = false;
    pthread_cond_broadcast(&settled);
    pthread_mutex_unlock(&settle_lock);
}

static bool is_settled(const struct call *c)
{
    return c->result || c->error || c->failed;
}

/* Decode the outcome of a done call, once. 0 or -1. */
static int settle(struct call *c)
{
    int rc;

    while (c->settling && !is_settled(c)) {
        if (pthread_equal(c->settler, pthread_self()))
            return core_fail(core_error, "this result is being read by its own parts");
        wait_settled(c);
    }
    if (is_settled(c))
        return 0;
    begin_settling(c);
    rc = decode_outcome(c);
    end_settling(c);
    return rc;
}

static PyObject *call_result(PyObject *self, PyObject *unused)
{
    struct call *c = (struct call *)self;

    if (!is_settled(c) && !ms_call_is_done(c->call))
        c->streams = 1; /* there was news, and it is not the end */
    if (!c->streams && settle(c) < 0)
        return NULL;
    if (c->streams)
        return stream_of(self);
    return c->result ? Py_NewRef(c->result) : raise_error(c);
}

static PyObject *call_is_stream(PyObject *self, PyObject *unused)
{
    struct call *c = (struct call *)self;
    struct ms_outcome o;

    if (is_settled(c))
        return PyBool_FromLong(c->streams);
    if (!c->streams && ms_call_is_done(c->call)) {
        ms_call_outcome(c->call, &o);
        c->streams = o.ends_stream;
    } else if (!c->streams && ms_call_has_items(c->call)) {
        c->streams = 1;
    }
    return PyBool_FromLong(c->streams);
}

/* 1: *item is new; 0: none is there; -1: ended; -2: exception. */
static int take_item(struct call *c, PyObject **item)
{
    uint8_t codec, *body;
    void *stored;
    size_t len;
    int done = ms_call_is_done(c->call); /* before looking: items come before the end */

    if (ms_call_take_item(c->call, &codec, &body, &len, &stored)) {
        c->streams = 1;
        *item = core_decode(codec, body, body, len);
        core_hold_unref(stored);
        return *item ? 1 : -2;
    }
    if (!done)
        return 0;
    if (settle(c) < 0)
        return -2;
    if (c->result)
        return -1;
    raise_error(c);
    return -2;
}

static PyObject *call_try_item(PyObject *self, PyObject *unused)
{
    PyObject *item = NULL;
    int rc = take_item((struct call *)self, &item);

    if (rc == -2)
        return NULL;
    return Py_BuildValue("iN", rc, item ? item : Py_NewRef(Py_None));
}

static PyObject *call_next_item(PyObject *self, PyObject *timeout)
{
    struct call *c = (struct call *)self;
    int64_t until_ns;

    if (core_deadline(timeout, MS_NEVER, &until_ns) < 0)
        return NULL;
    for (;;) {
        PyObject *item = NULL;
        int rc = take_item(c, &item);

        if (rc == -2)
            return NULL;
        if (rc != 0)
            return Py_BuildValue(
                "NN", PyBool_FromLong(rc == 1), item ? item : Py_NewRef(Py_None));
        if (core_check_deadlock(ms_call_peer(c->call)) < 0)
            return NULL;
        rc = core_call_wait(c->call, until_ns);
        if (rc < 0)
            return NULL;
        if (rc == 0)
            return PyErr_Format(PyExc_TimeoutError, "no item of the stream in time");
    }
}

static PyObject *call_notify(PyObject *self, PyObject *args)
{
    struct call *c = (struct call *)self;
    PyObject *inbox;
    unsigned long long tag;

    if (!PyArg_ParseTuple(args, "O!K", core_inbox.type, &inbox, &tag))
        return NULL;
    if (ms_call_notify(c->call, ((struct inbox *)inbox)->inbox, tag) < 0)
        return PyErr_NoMemory();
    Py_RETURN_NONE;
}

/* A result that is in a store and was not yet read: (meta, held objects); else None. */
static PyObject *call_stored(PyObject *self, PyObject *unused)
{
    struct call *c = (struct call *)self;
    struct ms_outcome o;
    struct ms_stored s;
    PyObject *ref;

    if (c->settling || is_settled(c) || !ms_call_is_done(c->call))
        Py_RETURN_NONE;
    ms_call_outcome(c->call, &o);
    if (o.kind != MS_KIND_REPLY || o.codec != MS_CODEC_STORED || !o.body ||
        ms_stored_parse(&s, o.body, o.len, NULL) < 0 || !s.object_count)
        Py_RETURN_NONE;
    begin_settling(c);
    ref = core_stored_ref(o.body, o.len); /* lets other threads run */
    end_settling(c);
    return ref;
}

static PyMethodDef call_methods[] = {{"done", call_done, METH_NOARGS, NULL},
                                     {"failed", call_failed, METH_NOARGS, NULL},
                                     {"wait", call_wait, METH_O, NULL},
                                     {"result", call_result, METH_NOARGS, NULL},
                                     {"cancel", call_cancel, METH_NOARGS, NULL},
                                     {"is_stream", call_is_stream, METH_NOARGS, NULL},
                                     {"next_item", call_next_item, METH_O, NULL},
                                     {"try_item", call_try_item, METH_NOARGS, NULL},
                                     {"notify", call_notify, METH_VARARGS, NULL},
                                     {"stored", call_stored, METH_NOARGS, NULL},
                                     {NULL, NULL, 0, NULL}};

static PyMemberDef call_members[] = {
    {"peer", T_OBJECT, offsetof(struct call, peer), READONLY, NULL},
    {NULL, 0, 0, 0, NULL}};

static PyType_Slot call_slots[] = {{Py_tp_dealloc, call_dealloc},
                                   {Py_tp_traverse, call_traverse},
                                   {Py_tp_clear, call_clear},
                                   {Py_tp_methods, call_methods},
                                   {Py_tp_members, call_members},
                                   {0, NULL}};

struct core_type core_call = {
    .name = "muster._core.Call", .size = sizeof(struct call), .slots = call_slots};

/* ---- inboxes --------------------------------------------------------------------- */

static PyObject *inbox_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    struct inbox *i;

    i = PyObject_New(struct inbox, type);
    if (!i)
        return NULL;
    i->inbox = ms_inbox_create();
    if (!i->inbox) {
        Py_DECREF(i);
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    return (PyObject *)i;
}

static void inbox_dealloc(PyObject *self)
{
    ms_inbox_unref(((struct inbox *)self)->inbox);
    core_object_free(self);
}

static PyObject *inbox_fileno(PyObject *self, PyObject *unused)
{
    return PyLong_FromLong(ms_inbox_fd(((struct inbox *)self)->inbox));
}

static PyObject *inbox_take(PyObject *self, PyObject *unused)
{
    struct ms_inbox *inbox = ((struct inbox *)self)->inbox;
    uint64_t tags[256];
    PyObject *list;
    size_t n;

    Py_BEGIN_ALLOW_THREADS;
    n = ms_inbox_take(inbox, tags, sizeof tags / sizeof *tags);
    Py_END_ALLOW_THREADS;
    list = PyList_New(0);
    for (size_t i = 0; list && i < n; i++)
        if (!core_append(list, PyLong_FromUnsignedLongLong(tags[i])))
            Py_CLEAR(list);
    return list;
}

static PyObject *inbox_rest(PyObject *self, PyObject *unused)
{
    ms_inbox_rest(((struct inbox *)self)->inbox);
    Py_RETURN_NONE;
}

static PyMethodDef inbox_methods[] = {{"fileno", inbox_fileno, METH_NOARGS, NULL},
                                      {"take", inbox_take, METH_NOARGS, NULL},
                                      {"rest", inbox_rest, METH_NOARGS, NULL},
                                      {NULL, NULL, 0, NULL}};

static PyType_Slot inbox_slots[] = {{Py_tp_new, inbox_new},
                                    {Py_tp_dealloc, inbox_dealloc},
                                    {Py_tp_methods, inbox_methods},
                                    {0, NULL}};

struct core_type core_inbox = {
    .name = "muster._core.Inbox", .size = sizeof(struct inbox), .slots = inbox_slots};
