/* request.c - requests as objects, for an engine with an event loop of its own */
#include "core/worker/host_object.h"
#include "store.h"

#include <errno.h>

struct request {
    PyObject_HEAD struct ms_request *request; /* NULL: answered */
    PyObject *host;
};

PyObject *host_poll(PyObject *self, PyObject *unused)
{
    struct host *h = (struct host *)self;
    struct ms_request *r = ms_server_engine_poll(ms_host_server(h->host));
    struct request *q;

    if (!r)
        Py_RETURN_NONE;
    q = PyObject_New(struct request, core_request.type);
    if (!q) {
        ms_request_fail_text(r, MUSTER__FAILURE__KIND__NO_MEMORY, "out of memory");
        return NULL;
    }
    q->request = r;
    q->host = Py_NewRef(self);
    return (PyObject *)q;
}

static void request_dealloc(PyObject *self)
{
    struct request *q = (struct request *)self;

    if (q->request && !host_is_forgotten((struct host *)q->host))
        ms_request_fail_text(
            q->request, MUSTER__FAILURE__KIND__UNKNOWN, "the worker forgot to answer");
    Py_XDECREF(q->host);
    core_object_free(self);
}

static struct ms_request *open_request(PyObject *self)
{
    struct request *q = (struct request *)self;
    bool is_forgotten = host_is_forgotten((struct host *)q->host);

    if (!is_forgotten && q->request)
        return q->request;
    PyErr_SetString(PyExc_RuntimeError,
                    is_forgotten ? "a forked child has nobody to answer"
                                 : "this request has been answered");
    return NULL;
}

static PyObject *request_function(PyObject *self, PyObject *unused)
{
    struct request *q = (struct request *)self;
    struct ms_request *r = open_request(self);

    if (!r)
        return NULL;
    if (!r->method)
        Py_RETURN_NONE;
    return host_bound_method((struct host *)q->host, r->method);
}

static PyObject *request_argument(PyObject *self, PyObject *unused)
{
    struct ms_request *r = open_request(self);

    return r ? host_take_argument(r) : NULL;
}

static PyObject *request_reply(PyObject *self, PyObject *value)
{
    struct request *q = (struct request *)self;
    struct ms_request *r = open_request(self);
    struct core_payload p;

    if (!r || host_encode(r, value, &p) < 0)
        return NULL; /* not answered: the caller says why */
    q->request = NULL;
    host_reply(r, &p);
    Py_RETURN_NONE;
}

static PyObject *request_fail(PyObject *self, PyObject *args)
{
    struct request *q = (struct request *)self;
    struct ms_request *r = open_request(self);
    PyObject *e;
    int kind;

    if (!r || !PyArg_ParseTuple(args, "Oi", &e, &kind) ||
        host_fail((struct host *)q->host, r, e, (Muster__Failure__Kind)kind) < 0)
        return NULL;
    q->request = NULL;
    Py_RETURN_NONE;
}

static PyObject *request_begin_stream(PyObject *self, PyObject *unused)
{
    struct ms_request *r = open_request(self);

    if (!r)
        return NULL;
    ms_request_begin_stream(r);
    Py_RETURN_NONE;
}

/* 1: sent; 0: the window is closed; -1: the caller has gone. */
static PyObject *request_item(PyObject *self, PyObject *value)
{
    struct ms_request *r = open_request(self);
    struct core_payload p;
    int rc;

    if (!r)
        return NULL;
    rc = ms_request_item_wait(r, 0); /* before it is written into a store */
    if (rc < 0)
        return PyLong_FromLong(rc == -ETIMEDOUT ? 0 : -1);
    if (host_encode(r, value, &p) < 0)
        return NULL;
    rc = host_item(r, &p);
    core_payload_release(&p);
    return PyLong_FromLong(rc == 0 ? 1 : rc == -EAGAIN ? 0 : -1);
}

static PyObject *request_cancelled(PyObject *self, void *unused)
{
    struct request *q = (struct request *)self;
    struct ms_request *r =
        host_is_forgotten((struct host *)q->host) ? NULL : q->request;

    return PyBool_FromLong(r && ms_request_is_cancelled(r));
}

/* Are there objects of other nodes in the arguments? They are fetched, which takes time. */
static PyObject *request_is_remote(PyObject *self, void *unused)
{
    struct ms_request *r = open_request(self);
    struct ms_store_client *c = core_store_get();
    struct ms_stored_name name;
    struct ms_stored s;
    bool is_remote = false;
    size_t at = 0;

    if (!r)
        return NULL;
    if (c && r->codec == MS_CODEC_STORED &&
        ms_stored_parse(&s, r->body, r->len, NULL) == 0)
        while (!is_remote && ms_stored_next(&s, &at, &name))
            is_remote = name.node != ms_store_client_node(c);
    return PyBool_FromLong(is_remote);
}

static PyObject *request_op(PyObject *self, void *unused)
{
    struct ms_request *r = open_request(self);

    return r ? PyLong_FromLong(r->op) : NULL;
}

static PyMethodDef request_methods[] = {
    {"function", request_function, METH_NOARGS, NULL},
    {"argument", request_argument, METH_NOARGS, NULL},
    {"reply", request_reply, METH_O, NULL},
    {"fail", request_fail, METH_VARARGS, NULL},
    {"begin_stream", request_begin_stream, METH_NOARGS, NULL},
    {"item", request_item, METH_O, NULL},
    {NULL, NULL, 0, NULL}};

static PyGetSetDef request_getset[] = {
    {"cancelled", request_cancelled, NULL, NULL, NULL},
    {"is_remote", request_is_remote, NULL, NULL, NULL},
    {"op", request_op, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL}};

static PyType_Slot request_slots[] = {{Py_tp_dealloc, request_dealloc},
                                      {Py_tp_methods, request_methods},
                                      {Py_tp_getset, request_getset},
                                      {0, NULL}};

struct core_type core_request = {.name = "muster._core.Request",
                                 .size = sizeof(struct request),
                                 .slots = request_slots};
