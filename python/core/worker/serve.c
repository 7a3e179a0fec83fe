/* serve.c - the worker's engine thread, seen from Python. `serve` is the loop of a worker whose
 * classes are synchronous: it takes a request, runs it and replies, without a line of
 * Python in between. A worker with an async class takes requests as objects and answers
 * them from its own event loop (request.c). */
#include "core/worker/host_object.h"
#include "store.h"

#include "base/clock.h"

#include <errno.h>

static PyTypeObject *generator_type;

/* ---- failures -------------------------------------------------------------------- */

/* Answer with (kind, type, message, traceback, pickled), as `describe` gives it. */
static int fail_with(struct ms_request *r, PyObject *description)
{
    const char *type, *message, *traceback, *pickled;
    Py_ssize_t len;
    Muster__Failure f;
    int kind;

    if (!PyArg_ParseTuple(
            description, "isssy#", &kind, &type, &message, &traceback, &pickled, &len))
        return -1;
    muster__failure__init(&f);
    f.kind = (Muster__Failure__Kind)kind;
    f.type = (char *)(uintptr_t)type;
    f.message = (char *)(uintptr_t)message;
    f.traceback = (char *)(uintptr_t)traceback;
    if (r->codec == MS_CODEC_PICKLE ||
        r->codec == MS_CODEC_STORED) { /* a caller of another codec wants no pickle */
        f.exception.data = (uint8_t *)(uintptr_t)pickled;
        f.exception.len = (size_t)len;
    }
    ms_request_fail(r, &f);
    return 0;
}

int host_fail(struct host *h,
              struct ms_request *r,
              PyObject *e,
              Muster__Failure__Kind kind)
{
    MS_CLEANUP(core_unref)
    PyObject *description = PyObject_CallFunction(h->describe, "Oi", e, (int)kind);

    if (!description && !PyErr_ExceptionMatches(PyExc_Exception))
        return -1; /* SIGTERM came meanwhile */
    if (!description || fail_with(r, description) < 0) {
        PyErr_Clear();
        ms_request_fail_text(r, kind, "an exception that cannot be described");
    }
    return 0;
}

/* Answer with the exception that is set. It ends the worker (-1, still set) if it is no
 * Exception: SystemExit, KeyboardInterrupt. */
static int fail(struct host *h, struct ms_request *r, Muster__Failure__Kind kind)
{
    MS_CLEANUP(core_unref) PyObject *e = NULL;

    if (!PyErr_ExceptionMatches(PyExc_Exception))
        return -1; /* the process ends, and its callers learn how */
    e = core_exception_take();
    return host_fail(h, r, e, kind);
}

/* A child that the method forked has come back from it: it ends, with the exception that
 * is set, or quietly. */
static int leave_child(PyObject *result)
{
    Py_XDECREF(result);
    if (!PyErr_Occurred())
        PyErr_SetNone(PyExc_SystemExit);
    return -1;
}

/* ---- replies --------------------------------------------------------------------- */

/* To the caller; or the grants are taken back. */
static void
grant(const struct core_payload *p, const uint64_t *caller, bool is_taken_back)
{
    for (size_t i = 0; p->hold && i < p->hold->count; i++) {
        struct ms_held *h = p->hold->objects[i].held;
        struct ms_stored_name name;

        ms_held_name(h, &name);
        ms_store_client_grant(h->client, &name, caller[1], caller[0], is_taken_back);
    }
}

int host_encode(const struct ms_request *r, PyObject *value, struct core_payload *p)
{
    bool has_store = r->codec == MS_CODEC_STORED && r->owner_words[0];

    return core_encode(
        value, r->codec, has_store ? CORE_STORED_RESULT : CORE_STORED_NONE, p);
}

/* Granted before it is sent: a worker that ends in between loses nothing. */
void host_reply(struct ms_request *r, struct core_payload *p)
{
    uint64_t caller[2] = {r->owner_words[0], r->owner_words[1]};

    grant(p, caller, false);
    if (ms_request_reply(r, p->codec, p->iov, p->count) < 0)
        grant(p, caller, true);
    core_payload_release(p);
}

int host_item(struct ms_request *r, struct core_payload *p)
{
    int rc = ms_request_item(r, p->codec, p->iov, p->count);

    if (rc == 0) /* not before: what was not sent would stay until its lease ends */
        grant(p, r->owner_words, false);
    return rc;
}

static int reply_value(struct host *h, struct ms_request *r, PyObject *value)
{
    struct core_payload p;

    if (host_encode(r, value, &p) < 0)
        return fail(h, r, MUSTER__FAILURE__KIND__BAD_RESULT);
    host_reply(r, &p);
    return 0;
}

/* Wait until a stream's window is open: 0, -ECANCELED, or -1 with an exception set. */
static int wait_window(struct ms_request *r)
{
    int rc;

    do {
        Py_BEGIN_ALLOW_THREADS;
        rc = ms_request_item_wait(r, core_slice(r->deadline_ns));
        Py_END_ALLOW_THREADS;
        if (rc == -ETIMEDOUT && PyErr_CheckSignals() < 0)
            return -1;
    } while (rc == -ETIMEDOUT && ms_now_ns() < r->deadline_ns);
    return rc < 0 ? -ECANCELED : 0;
}

/* Send one item: 0; -ECANCELED: the caller has gone; -1: exception. */
static int send_item(struct ms_request *r, PyObject *item)
{
    struct core_payload p;
    int rc;

    if (host_encode(r, item, &p) < 0)
        return -1;
    while ((rc = host_item(r, &p)) == -EAGAIN) {
        rc = wait_window(r);
        if (rc < 0)
            break;
    }
    core_payload_release(&p);
    return rc == 0 || rc == -1 ? rc : -ECANCELED;
}

static int reply_stream(struct host *h, struct ms_request *r, PyObject *generator)
{
    PyObject *item, *closed;
    int rc = 0;

    ms_request_begin_stream(r);
    while (rc == 0 && (item = PyIter_Next(generator))) {
        if (host_is_forgotten(h))
            return leave_child(item);
        rc = send_item(r, item);
        Py_DECREF(item);
    }
    if (host_is_forgotten(h))
        return leave_child(NULL);
    if (rc == -1 || PyErr_Occurred())
        return fail(h, r, MUSTER__FAILURE__KIND__RAISED);
    if (rc == -ECANCELED) {
        closed = PyObject_CallMethod(generator, "close", NULL);
        if (!closed)
            return fail(h, r, MUSTER__FAILURE__KIND__RAISED);
        Py_DECREF(closed);
    }
    return reply_value(h, r, Py_None);
}

/* ---- running one request --------------------------------------------------------- */

/* Find the engine: it is remembered, but not the method, which it may replace. */
static int find_engine(struct host *h, const struct ms_method *m)
{
    PyObject *engine = PyObject_CallFunction(h->resolve, "ss", m->engine, m->name);
    PyObject *pair;

    if (!engine)
        return -1;
    pair = Py_BuildValue("NN", engine, PyUnicode_InternFromString(m->name));
    if (!pair)
        return -1;
    while (PyList_Size(h->found) <= (Py_ssize_t)m->index)
        if (PyList_Append(h->found, Py_None) < 0) {
            Py_DECREF(pair);
            return -1;
        }
    return PyList_SetItem(h->found, (Py_ssize_t)m->index, pair);
}

PyObject *host_bound_method(struct host *h, const struct ms_method *m)
{
    Py_ssize_t i = (Py_ssize_t)m->index;
    PyObject *pair, *bound;

    if ((i >= PyList_Size(h->found) || PyList_GetItem(h->found, i) == Py_None) &&
        find_engine(h, m) < 0)
        return NULL;
    pair = Py_NewRef(PyList_GetItem(h->found, i));
    bound = PyObject_GetAttr(PyTuple_GetItem(pair, 0), PyTuple_GetItem(pair, 1));
    Py_DECREF(pair);
    return bound;
}

/* To whom the answer's objects are given. */
static void note_caller(struct ms_request *r, const uint8_t *body, size_t len)
{
    struct ms_stored s;

    if (ms_stored_parse(&s, body, len, NULL) < 0)
        return;
    r->owner_words[0] = s.holder;
    r->owner_words[1] = s.node;
}

PyObject *host_take_argument(struct ms_request *r)
{
    const uint8_t *body = r->body;
    uint8_t *memory;
    size_t len = r->len;

    if (r->codec == MS_CODEC_STORED)
        note_caller(r, body, len);
    ms_request_take_body(r, &memory);
    return r->method ? core_decode_call(r->codec, memory, body, len)
                     : core_decode(r->codec, memory, body, len);
}

static PyObject *apply(PyObject *function, PyObject *argument)
{
    PyObject *args, *kwargs;

    if (!PyTuple_Check(argument) || PyTuple_Size(argument) != 2)
        return PyErr_Format(PyExc_TypeError, "the arguments are not (args, kwargs)");
    args = PyTuple_GetItem(argument, 0);
    kwargs = PyTuple_GetItem(argument, 1);
    return PyObject_Call(function, args, kwargs == Py_None ? NULL : kwargs);
}

/* Run a method, or a built-in operation by the handler. */
static int run(struct host *h, struct ms_request *r)
{
    PyObject *function =
                 r->method ? host_bound_method(h, r->method) : Py_NewRef(h->handler),
             *argument, *result;
    int rc;

    if (!function)
        return fail(h, r, MUSTER__FAILURE__KIND__NO_METHOD);
    argument = host_take_argument(r);
    if (!argument) {
        Py_DECREF(function);
        return fail(h, r, MUSTER__FAILURE__KIND__BAD_ARGUMENT);
    }
    result = r->method ? apply(function, argument)
                       : PyObject_CallFunction(function, "iO", (int)r->op, argument);
    Py_DECREF(function);
    Py_DECREF(argument); /* before the reply: what it holds is free then */
    if (host_is_forgotten(h))
        return leave_child(result);
    if (!result)
        return fail(h, r, MUSTER__FAILURE__KIND__RAISED);
    rc = r->method && PyObject_TypeCheck(result, generator_type)
             ? reply_stream(h, r, result)
             : reply_value(h, r, result);
    Py_DECREF(result);
    return rc;
}

PyObject *host_serve(PyObject *self, PyObject *unused)
{
    struct host *h = (struct host *)self;
    struct ms_server *server = ms_host_server(h->host);

    chain_set_engine_thread();
    for (;;) {
        struct ms_request *r = NULL;
        int rc;

        if (host_is_ending())
            return NULL; /* user code has swallowed the exception */
        Py_BEGIN_ALLOW_THREADS;
        rc = ms_server_engine_next(server, MS_NEVER, &r);
        Py_END_ALLOW_THREADS;
        if (rc == -EINTR && PyErr_CheckSignals() < 0)
            return NULL;
        if (rc == -ESHUTDOWN)
            Py_RETURN_NONE;
        if (rc < 0)
            continue;
        chain_enter(r);
        rc = run(h, r);
        chain_leave();
        if (rc < 0)
            return NULL;
    }
}

int core_serve_setup(PyObject *module)
{
    generator_type = (PyTypeObject *)core_import("types", "GeneratorType");
    return generator_type ? 0 : -1;
}
