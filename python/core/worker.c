/* The worker's engine thread, seen from Python. `serve` is the loop of a worker whose
 * classes are synchronous: it takes a request, runs it and replies, without a line of
 * Python in between. A worker with an async class takes requests as objects and answers
 * them from its own event loop. */
#include "host_object.h"
#include "store.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "worker/stack.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>

struct host *the_host;
static PyTypeObject *generator_type;

/* ---- failures -------------------------------------------------------------------- */

int host_fail_with(struct ms_request *r, PyObject *description)
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

/* Answer with the exception that is set. It ends the worker (-1, still set) if it is no
 * Exception: SystemExit, KeyboardInterrupt. */
static int fail(struct host *h, struct ms_request *r, Muster__Failure__Kind kind)
{
    PyObject *e, *description;
    int rc = 0;

    if (!PyErr_ExceptionMatches(PyExc_Exception))
        return -1; /* the process ends, and its callers learn how */
    e = core_exception_take();
    description = PyObject_CallFunction(h->describe, "Oi", e, (int)kind);
    if (!description && !PyErr_ExceptionMatches(PyExc_Exception)) {
        rc = -1; /* SIGTERM came meanwhile */
    } else if (!description || host_fail_with(r, description) < 0) {
        PyErr_Clear();
        ms_request_fail_text(r, kind, "an exception that cannot be described");
    }
    Py_XDECREF(description);
    Py_XDECREF(e);
    return rc;
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

void host_reply(struct ms_request *r, struct core_payload *p)
{
    for (size_t i = 0; p->hold && i < p->hold->count; i++)
        ms_store_grant(p->hold->held[i], r->owner_words[1], r->owner_words[0]);
    ms_request_reply(r, p->codec, p->iov, p->count);
    core_payload_release(p);
}

static int reply_value(struct host *h, struct ms_request *r, PyObject *value)
{
    struct core_payload p;

    if (core_encode(value, host_codec(r), &p) < 0)
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

/* Send one item: 0; -ECANCELED: nobody listens; -1: exception. */
static int send_item(struct ms_request *r, PyObject *item)
{
    struct core_payload p;
    int rc;

    if (core_encode(item, host_item_codec(r), &p) < 0)
        return -1;
    while ((rc = ms_request_item(r, p.codec, p.iov, p.count)) == -EAGAIN) {
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

    if (!PyTuple_Check(argument) || PyTuple_Size(argument) != 2) {
        PyErr_SetString(PyExc_TypeError, "the arguments are not (args, kwargs)");
        return NULL;
    }
    args = PyTuple_GetItem(argument, 0);
    kwargs = PyTuple_GetItem(argument, 1);
    return PyObject_Call(function, args, kwargs == Py_None ? NULL : kwargs);
}

static int run_method(struct host *h, struct ms_request *r)
{
    PyObject *function = host_bound_method(h, r->method), *argument, *result;
    int rc;

    if (!function)
        return fail(h, r, MUSTER__FAILURE__KIND__NO_METHOD);
    argument = host_take_argument(r);
    if (!argument) {
        Py_DECREF(function);
        return fail(h, r, MUSTER__FAILURE__KIND__BAD_ARGUMENT);
    }
    result = apply(function, argument);
    Py_DECREF(function);
    Py_DECREF(argument);
    if (host_is_forgotten(h))
        return leave_child(result);
    if (!result)
        return fail(h, r, MUSTER__FAILURE__KIND__RAISED);
    if (PyObject_TypeCheck(result, generator_type))
        rc = reply_stream(h, r, result);
    else
        rc = reply_value(h, r, result);
    Py_DECREF(result);
    return rc;
}

static int run_operation(struct host *h, struct ms_request *r)
{
    PyObject *argument = host_take_argument(r), *result;
    int rc;

    if (!argument)
        return fail(h, r, MUSTER__FAILURE__KIND__BAD_ARGUMENT);
    result = PyObject_CallFunction(h->handler, "iO", (int)r->op, argument);
    Py_DECREF(argument);
    if (host_is_forgotten(h))
        return leave_child(result);
    if (!result)
        return fail(h, r, MUSTER__FAILURE__KIND__RAISED);
    rc = reply_value(h, r, result);
    Py_DECREF(result);
    return rc;
}

static PyObject *host_serve(PyObject *self, PyObject *unused)
{
    struct host *h = (struct host *)self;
    struct ms_server *server = ms_host_server(h->host);

    (void)unused;
    chain_set_engine_thread();
    for (;;) {
        struct ms_request *r = NULL;
        int rc;

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
        rc = r->method ? run_method(h, r) : run_operation(h, r);
        chain_leave();
        if (rc < 0)
            return NULL;
    }
}

static PyObject *host_stop(PyObject *self, PyObject *unused)
{
    (void)unused;
    ms_server_engine_stop(ms_host_server(((struct host *)self)->host));
    Py_RETURN_NONE;
}

/* ---- the host -------------------------------------------------------------------- */

static void wake_async(struct host *h)
{
    uint64_t one = 1;

    if (write(h->async_fd, &one, sizeof one) < 0)
        return; /* a full counter is readable already */
}

static void on_cancel(void *arg, struct ms_request *r)
{
    (void)r;
    wake_async(arg);
}

static void on_queued(void *arg)
{
    wake_async(arg);
}

static int host_start(struct host *h, struct ms_host_options *o)
{
    struct ms_error err = {0};

    h->stack_fd = o->python_stack_fd = memfd_create("muster-stack", MFD_CLOEXEC);
    h->async_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    h->found = PyList_New(0);
    if (h->stack_fd < 0 || h->async_fd < 0 || ms_stack_init() < 0) {
        PyErr_SetFromErrno(PyExc_OSError);
        return -1;
    }
    o->on_cancel = on_cancel;
    o->on_queued = on_queued;
    o->on_stored = core_on_stored;
    o->on_stored_drop = core_hold_unref;
    o->arg = h;
    h->host = ms_host_start(o, &err);
    if (!h->host) {
        PyErr_SetString(PyExc_RuntimeError, err.text);
        return -1;
    }
    the_host = h;
    chain_start(ms_host_boot(h->host)->uid);
    return h->found ? 0 : -1;
}

static PyObject *host_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static const char *const names[] = {"boot",
                                        "control_fd",
                                        "listen_fd",
                                        "listen_tcp_fd",
                                        "handler",
                                        "resolve",
                                        "describe",
                                        NULL};
    struct ms_host_options o = {0};
    PyObject *handler, *resolve, *describe;
    const char *boot;
    Py_ssize_t len;
    struct host *h;

    if (!PyArg_ParseTupleAndKeywords(args,
                                     kwargs,
                                     "z#iiiOOO",
                                     CORE_NAMES(names),
                                     &boot,
                                     &len,
                                     &o.control_fd,
                                     &o.listen_fd,
                                     &o.listen_tcp_fd,
                                     &handler,
                                     &resolve,
                                     &describe))
        return NULL;
    if (the_host) {
        PyErr_SetString(PyExc_RuntimeError, "there is a host in this process");
        return NULL;
    }
    h = PyObject_New(struct host, type);
    if (!h)
        return NULL;
    h->host = NULL;
    h->found = NULL;
    h->handler = Py_NewRef(handler);
    h->resolve = Py_NewRef(resolve);
    h->describe = Py_NewRef(describe);
    o.boot = (const uint8_t *)boot;
    o.boot_len = (size_t)len;
    if (host_start(h, &o) < 0)
        return NULL;                 /* the process ends: nothing is taken back */
    return Py_NewRef((PyObject *)h); /* lives as long as the process */
}

static PyObject *host_peer(PyObject *self, PyObject *args)
{
    return core_peer_new(ms_host_client(((struct host *)self)->host), args, self);
}

static PyObject *host_set_engines(PyObject *self, PyObject *list)
{
    struct host *h = (struct host *)self;
    char **names = core_strings(list);
    PyObject *found = PyList_New(0), *old = h->found;
    size_t n = 0;
    int rc = -ENOMEM;

    while (names && names[n])
        n++;
    if (names && found)
        rc = ms_host_set_engines(h->host, (const char *const *)names, n);
    core_strings_free(names);
    if (rc < 0) {
        Py_XDECREF(found);
        return PyErr_Occurred() ? NULL : PyErr_NoMemory();
    }
    h->found = found; /* what was found may be another engine's now */
    Py_DECREF(old);
    Py_RETURN_NONE;
}

static PyObject *host_become_async(PyObject *self, PyObject *unused)
{
    struct host *h = (struct host *)self;

    (void)unused;
    chain_set_async();
    ms_server_engine_is_async(ms_host_server(h->host));
    wake_async(h); /* what waits already */
    return PyLong_FromLong(h->async_fd);
}

static PyObject *host_end(PyObject *self, PyObject *unused)
{
    (void)unused;
    ms_host_end(((struct host *)self)->host);
    Py_RETURN_NONE;
}

static PyObject *host_forget(PyObject *self, PyObject *unused)
{
    (void)unused;
    ms_host_forget(((struct host *)self)->host);
    core_store_forget();
    the_host = NULL;
    chain_forget();
    Py_RETURN_NONE;
}

static PyObject *host_hold_port(PyObject *self, PyObject *unused)
{
    struct ms_error err = {0};
    uint32_t port;

    (void)unused;
    if (ms_host_hold_port(((struct host *)self)->host, &port, &err) < 0)
        return core_raise(&err);
    return PyLong_FromUnsignedLong(port);
}

static const Muster__WorkerBoot *boot_of(PyObject *self)
{
    return ms_host_boot(((struct host *)self)->host);
}

static PyObject *get_uid(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromUnsignedLongLong(boot_of(self)->uid);
}

static PyObject *get_cluster(PyObject *self, void *unused)
{
    (void)unused;
    return PyUnicode_FromString(boot_of(self)->cluster);
}

static PyObject *get_rank(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromUnsignedLong(boot_of(self)->rank);
}

static PyObject *get_node(PyObject *self, void *unused)
{
    (void)unused;
    return PyUnicode_FromString(boot_of(self)->node_name);
}

static PyObject *get_address(PyObject *self, void *unused)
{
    (void)unused;
    return PyUnicode_FromString(ms_host_address(((struct host *)self)->host));
}

/* Where the head of its session is, and whether to speak TLS there. */
static PyObject *get_head(PyObject *self, void *unused)
{
    static const char *const modes[] = {"auto", "on", "off"};
    const Muster__WorkerBoot *boot = boot_of(self);
    const char *tls = boot->tls < MS_COUNT(modes) ? modes[boot->tls] : modes[0];

    (void)unused;
    if (boot->head[0])
        return Py_BuildValue("ss", boot->head, tls);
    return Py_BuildValue(
        "Ns", PyUnicode_FromFormat("%s/head.sock", boot->session_dir), tls);
}

static PyObject *get_sys_path(PyObject *self, void *unused)
{
    (void)unused;
    return core_str_list(boot_of(self)->sys_path, boot_of(self)->n_sys_path);
}

static PyObject *get_stack(PyObject *self, void *unused)
{
    (void)unused;
    return Py_BuildValue(
        "ii", ms_stack_python_signal(), ((struct host *)self)->stack_fd);
}

static PyObject *get_wake_fd(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromLong(
        ms_server_engine_wake_fd(ms_host_server(((struct host *)self)->host)));
}

static PyMethodDef host_methods[] = {
    {"serve", host_serve, METH_NOARGS, NULL},
    {"stop", host_stop, METH_NOARGS, NULL},
    {"poll", host_poll, METH_NOARGS, NULL},
    {"peer", host_peer, METH_VARARGS, NULL},
    {"set_engines", host_set_engines, METH_O, NULL},
    {"become_async", host_become_async, METH_NOARGS, NULL},
    {"end", host_end, METH_NOARGS, NULL},
    {"hold_port", host_hold_port, METH_NOARGS, NULL},
    {"forget", host_forget, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL}};

static PyGetSetDef host_getset[] = {{"uid", get_uid, NULL, NULL, NULL},
                                    {"cluster", get_cluster, NULL, NULL, NULL},
                                    {"rank", get_rank, NULL, NULL, NULL},
                                    {"node", get_node, NULL, NULL, NULL},
                                    {"address", get_address, NULL, NULL, NULL},
                                    {"head", get_head, NULL, NULL, NULL},
                                    {"sys_path", get_sys_path, NULL, NULL, NULL},
                                    {"stack", get_stack, NULL, NULL, NULL},
                                    {"wake_fd", get_wake_fd, NULL, NULL, NULL},
                                    {NULL, NULL, NULL, NULL, NULL}};

static PyType_Slot host_slots[] = {{Py_tp_new, host_new},
                                   {Py_tp_methods, host_methods},
                                   {Py_tp_getset, host_getset},
                                   {0, NULL}};
static PyType_Spec host_spec = {.name = "muster._core.Host",
                                .basicsize = sizeof(struct host),
                                .flags = Py_TPFLAGS_DEFAULT,
                                .slots = host_slots};

static PyObject *in_worker(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    return Py_NewRef(the_host ? (PyObject *)the_host : Py_None);
}

static PyMethodDef worker_methods[] = {{"in_worker", in_worker, METH_NOARGS, NULL},
                                       {NULL, NULL, 0, NULL}};

int core_worker_setup(PyObject *module)
{
    PyObject *types = PyImport_ImportModule("types");
    PyTypeObject *host_type = core_type(module, &host_spec, "Host");

    if (types)
        generator_type = (PyTypeObject *)PyObject_GetAttrString(types, "GeneratorType");
    Py_XDECREF(types);
    Py_XDECREF((PyObject *)host_type); /* the module holds it */
    if (!generator_type || !host_type || host_request_setup(module) < 0)
        return -1;
    return PyModule_AddFunctions(module, worker_methods);
}
