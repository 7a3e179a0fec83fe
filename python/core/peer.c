/* peer.c - a worker that can be called */
#include "message.h"
#include "peer_object.h"
#include "store.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/proto.h"

#include <errno.h>
#include <string.h>

PyObject *core_peer_new(struct ms_client *client, PyObject *args, PyObject *owner)
{
    struct ms_error err = {0};
    const char *address, *label;
    unsigned long long uid;
    struct ms_peer *peer;
    struct peer *p;

    if (!PyArg_ParseTuple(args, "sKs", &address, &uid, &label))
        return NULL;
    peer = ms_peer_create(client, address, uid, label, &err);
    if (!peer)
        return core_raise(&err);
    p = (struct peer *)PyType_GenericAlloc(core_peer.type, 0);
    if (!p) {
        ms_peer_unref(peer);
        return NULL;
    }
    p->peer = peer;
    p->owner = Py_NewRef(owner);
    p->label = PyUnicode_FromString(label);
    return (PyObject *)p;
}

static void peer_dealloc(PyObject *self)
{
    struct peer *p = (struct peer *)self;

    ms_peer_unref(p->peer);
    Py_XDECREF(p->owner);
    Py_XDECREF(p->label);
    Py_XDECREF(p->engine);
    Py_XDECREF(p->method);
    core_object_free(self);
}

struct ms_peer *core_peer_get(PyObject *peer)
{
    return ((struct peer *)peer)->peer;
}

int peer_method_op(struct peer *p, PyObject *engine, PyObject *method)
{
    const char *engine_text, *method_text;
    Py_ssize_t engine_len, method_len;
    int op;

    if (engine == p->engine && method == p->method)
        return p->op;
    engine_text = PyUnicode_AsUTF8AndSize(engine, &engine_len);
    method_text = PyUnicode_AsUTF8AndSize(method, &method_len);
    if (!engine_text || !method_text)
        return -1;
    op = -EILSEQ; /* a NUL in it */
    if ((size_t)engine_len == strlen(engine_text) &&
        (size_t)method_len == strlen(method_text))
        op = ms_peer_method(p->peer, engine_text, method_text);
    if (op < 0)
        return core_fail(PyExc_ValueError,
                         "'%s' cannot be called: %s",
                         method_text,
                         op == -ENAMETOOLONG ? "its name is empty or too long"
                         : op == -EILSEQ ? "a name is UTF-8 without control characters"
                                         : strerror(-op));
    Py_INCREF(engine);
    Py_INCREF(method);
    Py_XDECREF(p->engine);
    Py_XDECREF(p->method);
    p->engine = engine;
    p->method = method;
    p->op = op;
    return op;
}

int peer_parse_codec(PyObject *codec)
{
    long n = PyLong_AsLong(codec);

    if (n == -1 && PyErr_Occurred())
        return -1;
    if (n != MS_CODEC_BYTES && n != MS_CODEC_PICKLE && n != MS_CODEC_PLAIN)
        return core_fail(PyExc_ValueError, "there is no codec %ld for calls", n);
    return (int)n;
}

int peer_encode(PyObject *args, PyObject *kwargs, int codec, struct core_payload *p)
{
    if (!PyTuple_Check(args) || (kwargs != Py_None && !PyDict_Check(kwargs)))
        return core_fail(PyExc_TypeError, "arguments are a tuple and a dict or None");
    return core_encode_call(args, kwargs, (uint8_t)codec, p);
}

/* engine, method, args, kwargs, timeout, and perhaps waits and codec; 0 or -1. */
static int
start_parse(struct peer *p, PyObject *const *a, Py_ssize_t n, struct peer_start *s)
{
    int codec = n == 7 ? peer_parse_codec(a[6]) : MS_CODEC_PICKLE;

    if (codec < 0)
        return -1;
    if (n < 5 || n > 7) {
        PyErr_SetString(
            PyExc_TypeError,
            "call takes engine, method, args, kwargs, timeout[, waits[, codec]]");
        return -1;
    }
    if (n >= 6)
        s->waits = PyObject_IsTrue(a[5]) == 1;
    s->asked_ns = a[4] == Py_None ? 0 : ms_now_ns();
    if (core_deadline(a[4], MS_CALL_TIMEOUT_NS, &s->deadline_ns) < 0)
        return -1;
    s->op = peer_method_op(p, a[0], a[1]);
    if (s->op < 0)
        return -1;
    return peer_encode(a[2], a[3], codec, &s->payload);
}

struct ms_call *peer_send(struct peer *p, const struct peer_start *s)
{
    struct ms_call_spec spec = {.op = (uint16_t)s->op,
                                .codec = s->payload.codec,
                                .stream = true,
                                .waits = s->waits,
                                .is_of_many = s->is_of_many,
                                .deadline_ns = s->deadline_ns,
                                .asked_ns = s->asked_ns,
                                .iov = s->payload.iov,
                                .count = s->payload.count};

    struct ms_call *call;

    if (s->waits)
        spec.chain = core_chain(&spec.chain_count);
    if (s->payload.hold) { /* until the call has ended */
        core_hold_ref(s->payload.hold);
        spec.on_end = core_hold_unref;
        spec.end_arg = s->payload.hold;
    }
    call = ms_peer_call(p->peer, &spec);
    if (!call)
        core_hold_unref(s->payload.hold);
    return call;
}

/* Releases the payload. */
static PyObject *start(PyObject *self, struct peer_start *s)
{
    struct ms_call *call;

    Py_BEGIN_ALLOW_THREADS;
    call = peer_send((struct peer *)self, s);
    Py_END_ALLOW_THREADS;
    core_payload_release(&s->payload);
    return call ? core_call_new(call, self) : PyErr_NoMemory();
}

static PyObject *peer_call(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    struct peer_start s = {0};

    if (start_parse((struct peer *)self, args, nargs, &s) < 0)
        return NULL;
    return start(self, &s);
}

/* ---- waiting at once ------------------------------------------------------------- */

/* The result of a call with news; without a Call object, unless it is a stream. */
static PyObject *finish_sync(struct ms_call *call, PyObject *self)
{
    MS_CLEANUP(core_unref) PyObject *object = NULL;
    struct ms_outcome o = {.ends_stream = true};
    PyObject *result;

    if (ms_call_is_done(call))
        ms_call_outcome(call, &o);
    if (o.ends_stream) {
        object = core_call_new(call, self);
        return object ? PyObject_CallMethod(object, "result", NULL) : NULL;
    }
    result = o.kind == MS_KIND_ERROR
                 ? core_raise_failure(o.body, o.len, ms_peer_label(ms_call_peer(call)))
                 : core_call_value(call, &o);
    ms_call_unref(call);
    return result;
}

static PyObject *peer_call_sync(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    struct peer *p = (struct peer *)self;
    struct peer_start s = {.waits = true};
    struct ms_call *call;
    int rc = -ENOMEM;

    if (core_check_deadlock(p->peer) < 0 || start_parse(p, args, nargs, &s) < 0)
        return NULL;
    Py_BEGIN_ALLOW_THREADS;
    call = peer_send(p, &s);
    if (call)
        rc = ms_call_wait(call, core_slice(MS_NEVER));
    Py_END_ALLOW_THREADS;
    core_payload_release(&s.payload);
    if (!call)
        return PyErr_NoMemory();
    if (rc < 0 && (PyErr_CheckSignals() < 0 || core_call_wait(call, MS_NEVER) < 0)) {
        ms_call_cancel(call); /* Ctrl-C: its result is not wanted any more */
        ms_call_unref(call);
        return NULL;
    }
    return finish_sync(call, self);
}

/* ---- built-in operations --------------------------------------------------------- */

static PyObject *peer_operation(PyObject *self, PyObject *args)
{
    PyObject *argument, *timeout;
    struct peer_start s = {0};
    int codec = MS_CODEC_PICKLE;

    if (!PyArg_ParseTuple(args, "iOO|i", &s.op, &argument, &timeout, &codec) ||
        core_deadline(timeout, MS_CALL_TIMEOUT_NS, &s.deadline_ns) < 0 ||
        core_encode(argument, (uint8_t)codec, CORE_STORED_CALL, &s.payload) < 0)
        return NULL;
    return start(self, &s);
}

/* Operations whose argument and result are control messages. */
static const struct control {
    const char *name;
    uint16_t op;
    const ProtobufCMessageDescriptor *argument, *result; /* no argument: NULL */
} controls[] = {
    {"health", MS_OP_HEALTH, NULL, &muster__health__descriptor},
    {"stack", MS_OP_STACK, NULL, &muster__stack__descriptor},
    {"alloc_ports",
     MS_OP_ALLOC_PORTS,
     &muster__alloc_ports__descriptor,
     &muster__ports__descriptor},
};

/* The result of a done call as a dict; NULL with an exception set. */
static PyObject *control_result(struct ms_call *call, const struct control *c)
{
    struct ms_outcome o;
    ProtobufCMessage *m;
    PyObject *dict;

    ms_call_outcome(call, &o);
    if (o.kind != MS_KIND_REPLY)
        return core_raise_failure(o.body, o.len, ms_peer_label(ms_call_peer(call)));
    m = protobuf_c_message_unpack(c->result, NULL, o.len, o.body);
    dict = m ? core_message_dict(m)
             : PyErr_Format(core_error, "the worker's answer cannot be read");
    protobuf_c_message_free_unpacked(m, NULL);
    return dict;
}

/* Send the argument and wait. */
static PyObject *run_control(struct peer *p,
                             const struct control *c,
                             PyObject *fields,
                             int64_t deadline_ns)
{
    ProtobufCMessage *m = c->argument ? core_message_parse(fields, c->argument) : NULL;
    MS_CLEANUP(ms_buf_finish) struct ms_buf body = {0};
    struct ms_call *call = NULL;
    PyObject *result = NULL;

    if (PyErr_Occurred())
        return NULL;
    if (!m || ms_proto_pack(m, &body) == 0)
        call = ms_peer_call(
            p->peer,
            &(struct ms_call_spec){.op = c->op,
                                   .codec = MS_CODEC_PROTO,
                                   .waits = true,
                                   .deadline_ns = deadline_ns,
                                   .iov = &(struct iovec){body.data, body.len},
                                   .count = 1});
    protobuf_c_message_free_unpacked(m, NULL);
    if (!call)
        return PyErr_NoMemory();
    if (core_call_wait(call, MS_NEVER) < 0)
        ms_call_cancel(call);
    else
        result = control_result(call, c);
    ms_call_unref(call);
    return result;
}

/* (name, fields, timeout): its answer as a dict. */
static PyObject *peer_control(PyObject *self, PyObject *args)
{
    PyObject *fields, *timeout;
    int64_t deadline_ns;
    const char *name;

    if (!PyArg_ParseTuple(args, "sO!O", &name, &PyDict_Type, &fields, &timeout) ||
        core_deadline(timeout, MS_CALL_TIMEOUT_NS, &deadline_ns) < 0)
        return NULL;
    for (size_t i = 0; i < MS_COUNT(controls); i++)
        if (strcmp(controls[i].name, name) == 0)
            return run_control((struct peer *)self, &controls[i], fields, deadline_ns);
    return PyErr_Format(PyExc_ValueError, "there is no operation %s", name);
}

static PyObject *peer_uid(PyObject *self, void *unused)
{
    return PyLong_FromUnsignedLongLong(ms_peer_uid(((struct peer *)self)->peer));
}

static PyMethodDef peer_methods[] = {
    {"call", (PyCFunction)(void (*)(void))peer_call, METH_FASTCALL, NULL},
    {"call_sync", (PyCFunction)(void (*)(void))peer_call_sync, METH_FASTCALL, NULL},
    {"operation", peer_operation, METH_VARARGS, NULL},
    {"control", peer_control, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL}};

static PyGetSetDef peer_getset[] = {{"uid", peer_uid, NULL, NULL, NULL},
                                    {NULL, NULL, NULL, NULL, NULL}};

static PyMemberDef peer_members[] = {
    {"label", T_OBJECT, offsetof(struct peer, label), READONLY, NULL},
    {NULL, 0, 0, 0, NULL}};

static PyType_Slot peer_slots[] = {{Py_tp_dealloc, peer_dealloc},
                                   {Py_tp_methods, peer_methods},
                                   {Py_tp_getset, peer_getset},
                                   {Py_tp_members, peer_members},
                                   {0, NULL}};

struct core_type core_peer = {
    .name = "muster._core.Peer", .size = sizeof(struct peer), .slots = peer_slots};
