/* payload.c - payloads of calls: from Python objects to bytes and back
 *
 * A pickle without buffers is a payload as it is (MS_CODEC_PICKLE); one with buffers, or
 * with parts in a store, is laid out by stored.c.
 */
#include "store/payload.h"
#include "store.h"

#include "base/cleanup.h"
#include "wire/frame.h"

#include <endian.h>
#include <string.h>

enum { PLAIN_MAX = 64, PLAIN_DEPTH = 4 };

static PyObject *pickle_dumps, *pickle_loads, *protocol;

/* ---- encoding -------------------------------------------------------------------- */

static int is_scalar(PyObject *o)
{
    return o == Py_None || PyBool_Check(o) || PyLong_CheckExact(o) ||
           PyFloat_CheckExact(o) || PyUnicode_CheckExact(o) || PyBytes_CheckExact(o);
}

static int is_plain(PyObject *o, int depth, int *room);

static int is_plain_dict(PyObject *o, int depth, int *room)
{
    PyObject *key, *value;
    Py_ssize_t at = 0;

    while (PyDict_Next(o, &at, &key, &value))
        if (!is_plain(key, depth, room) || !is_plain(value, depth, room))
            return 0;
    return 1;
}

/* Small and made of built-in types only: the pickle module alone does it right.
 * Anything else may be defined in __main__ and needs more care. */
static int is_plain(PyObject *o, int depth, int *room)
{
    if (--*room < 0)
        return 0;
    if (is_scalar(o))
        return 1;
    if (depth == 0)
        return 0;
    if (PyTuple_CheckExact(o)) {
        for (Py_ssize_t i = 0; i < PyTuple_Size(o); i++)
            if (!is_plain(PyTuple_GetItem(o, i), depth - 1, room))
                return 0;
        return 1;
    }
    if (PyList_CheckExact(o)) {
        for (Py_ssize_t i = 0; i < PyList_Size(o); i++)
            if (!is_plain(PyList_GetItem(o, i), depth - 1, room))
                return 0;
        return 1;
    }
    return PyDict_CheckExact(o) && is_plain_dict(o, depth - 1, room);
}

static int hold_buffers(struct core_payload *p, PyObject *list)
{
    Py_ssize_t n = PySequence_Size(list);

    if (n < 0)
        return -1;
    if (n == 0)
        return 0;
    p->buffers = calloc((size_t)n, sizeof *p->buffers);
    if (!p->buffers)
        return core_no_memory();
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *item = PySequence_GetItem(list, i);
        int rc = item ? PyObject_GetBuffer(item, &p->buffers[i], PyBUF_SIMPLE) : -1;

        Py_XDECREF(item);
        if (rc < 0)
            return -1;
        p->buffer_count++;
    }
    return 0;
}

static int pickle_value(PyObject *value, PyObject *dumps, struct core_payload *p)
{
    int room = PLAIN_MAX;
    PyObject *pair, *list;
    int rc;

    if (is_plain(value, PLAIN_DEPTH, &room)) {
        p->pickle = PyObject_CallFunctionObjArgs(pickle_dumps, value, protocol, NULL);
        return p->pickle ? 0 : -1;
    }
    pair = PyObject_CallFunctionObjArgs(dumps, value, NULL);
    if (!pair)
        return -1;
    if (!PyArg_ParseTuple(pair, "SO|O", &p->pickle, &list, &p->refs)) {
        p->pickle = p->refs = NULL;
        Py_DECREF(pair);
        return -1;
    }
    Py_INCREF(p->pickle);
    Py_XINCREF(p->refs);
    rc = hold_buffers(p, list);
    Py_DECREF(pair);
    return rc;
}

/* A pickle with what is big in the node's store, if there is one. */
static int encode_pickled(PyObject *value,
                          PyObject *dumps,
                          enum core_stored_how how,
                          struct core_payload *p)
{
    return pickle_value(value, dumps, p) < 0 ? -1 : core_stored_lay_out(p, how);
}

static int encode_bytes(PyObject *value, const char *what, struct core_payload *p)
{
    PyObject *list;
    int rc;

    p->codec = MS_CODEC_BYTES;
    if (value == Py_None)
        return 0; /* of a method that gives nothing */
    if (!PyObject_CheckBuffer(value)) {
        PyObject *type = PyType_GetName(Py_TYPE(value));

        if (type)
            core_raise_kind(
                "bad_argument", "%s is a %U: this codec has bytes alone", what, type);
        Py_XDECREF(type);
        return -1;
    }
    list = PyTuple_Pack(1, value);
    rc = list ? hold_buffers(p, list) : -1;
    Py_XDECREF(list);
    if (rc < 0)
        return -1;
    p->iov[p->count++] = (struct iovec){p->buffers[0].buf, (size_t)p->buffers[0].len};
    return 0;
}

/* The end of every encoding: what failed leaves nothing. */
static int encoded(int rc, struct core_payload *p)
{
    if (rc < 0)
        core_payload_release(p);
    return rc;
}

int core_encode(PyObject *value, uint8_t codec, struct core_payload *p)
{
    *p = (struct core_payload){.codec = MS_CODEC_PICKLE};
    if (codec == MS_CODEC_PLAIN)
        return encoded(core_plain_encode(value, p), p);
    if (codec == MS_CODEC_BYTES)
        return encoded(encode_bytes(value, "value", p), p);
    if (codec == MS_CODEC_STORED)
        return encoded(encode_pickled(value, core_dumps, CORE_STORED_RESULT, p), p);
    return encoded(encode_pickled(value, core_dumps_alone, CORE_STORED_NONE, p), p);
}

int core_encode_argument(PyObject *value, uint8_t codec, struct core_payload *p)
{
    if (codec != MS_CODEC_PICKLE)
        return core_encode(value, codec, p);
    *p = (struct core_payload){.codec = MS_CODEC_PICKLE};
    return encoded(encode_pickled(value, core_dumps, CORE_STORED_CALL, p), p);
}

int core_encode_put(PyObject *value, struct core_payload *p)
{
    *p = (struct core_payload){.codec = MS_CODEC_PICKLE};
    return encoded(encode_pickled(value, core_dumps, CORE_STORED_PUT, p), p);
}

static int encode_one_bytes(PyObject *args, PyObject *kwargs, struct core_payload *p)
{
    if (PyTuple_Size(args) == 1 && (kwargs == Py_None || PyDict_Size(kwargs) == 0))
        return encode_bytes(PyTuple_GetItem(args, 0), "args[0]", p);
    core_raise_kind("bad_argument",
                    "codec=\"bytes\" takes one argument, without a name");
    return -1;
}

static int encode_pair(PyObject *args, PyObject *kwargs, struct core_payload *p)
{
    PyObject *pair = PyTuple_Pack(2, args, kwargs);
    int rc = pair ? encode_pickled(pair, core_dumps_call, CORE_STORED_CALL, p) : -1;

    Py_XDECREF(pair);
    return rc;
}

int core_encode_call(PyObject *args,
                     PyObject *kwargs,
                     uint8_t codec,
                     struct core_payload *p)
{
    *p = (struct core_payload){.codec = MS_CODEC_PICKLE};
    if (codec == MS_CODEC_PLAIN)
        return encoded(core_plain_encode_call(args, kwargs, p), p);
    if (codec == MS_CODEC_BYTES)
        return encoded(encode_one_bytes(args, kwargs, p), p);
    return encoded(encode_pair(args, kwargs, p), p);
}

PyObject *core_payload_bytes(const struct core_payload *p)
{
    PyObject *bytes;
    size_t len = 0;
    char *at;

    for (int i = 0; i < p->count; i++)
        len += p->iov[i].iov_len;
    bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)len);
    at = bytes ? PyBytes_AsString(bytes) : NULL;
    for (int i = 0; bytes && i < p->count; i++) {
        memcpy(at, p->iov[i].iov_base, p->iov[i].iov_len);
        at += p->iov[i].iov_len;
    }
    return bytes;
}

void core_payload_release(struct core_payload *p)
{
    for (Py_ssize_t i = 0; i < p->buffer_count; i++)
        PyBuffer_Release(&p->buffers[i]);
    free(p->buffers);
    core_plain_release(p);
    free(p->gathered);
    free(p->head);
    Py_XDECREF(p->pickle);
    Py_XDECREF(p->refs);
    core_hold_unref(p->hold);
    *p = (struct core_payload){0};
}

/* ---- decoding -------------------------------------------------------------------- */

PyObject *core_load_bare(uint8_t *memory, const uint8_t *pickle, size_t len)
{
    PyObject *view =
        PyMemoryView_FromMemory((char *)(uintptr_t)pickle, (Py_ssize_t)len, PyBUF_READ);
    PyObject *value =
        view ? PyObject_CallFunctionObjArgs(pickle_loads, view, NULL) : NULL;

    Py_XDECREF(view);
    free(memory);
    return value;
}

PyObject *core_decode(uint8_t codec, uint8_t *memory, const uint8_t *body, size_t len)
{
    PyObject *value;

    if (codec == MS_CODEC_PICKLE)
        return core_load_bare(memory, body, len);
    if (codec == MS_CODEC_STORED)
        return core_stored_decode(memory, body, len);
    if (codec == MS_CODEC_PLAIN)
        return core_plain_decode(memory, body, len);
    value = PyBytes_FromStringAndSize((const char *)body, (Py_ssize_t)len);
    free(memory);
    return value;
}

PyObject *
core_decode_call(uint8_t codec, uint8_t *memory, const uint8_t *body, size_t len)
{
    PyObject *value;

    if (codec == MS_CODEC_PLAIN)
        return core_plain_decode_call(memory, body, len);
    value = core_decode(codec, memory, body, len);
    if (codec != MS_CODEC_BYTES || !value)
        return value;
    return Py_BuildValue("(N)O", value, Py_None);
}

int core_payload_setup(PyObject *module)
{
    PyObject *pickle = PyImport_ImportModule("_pickle");

    if (!pickle)
        return -1;
    pickle_dumps = PyObject_GetAttrString(pickle, "dumps");
    pickle_loads = PyObject_GetAttrString(pickle, "loads");
    Py_DECREF(pickle);
    protocol = PyLong_FromLong(5);
    return pickle_dumps && pickle_loads && protocol ? 0 : -1;
}
