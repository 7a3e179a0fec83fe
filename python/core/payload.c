/* payload.c - payloads of calls: from Python objects to bytes and back
 *
 * A pickle without buffers is a payload as it is (MS_CODEC_PICKLE); one with buffers, or
 * with parts in a store, is laid out by stored.c.
 */
#include "store.h"

#include "base/cleanup.h"
#include "wire/frame.h"

#include <string.h>

enum { PLAIN_MAX = 64, PLAIN_DEPTH = 4 };

static PyObject *pickle_dumps, *pickle_loads, *protocol;

/* What calls have most often, pickled once. */
static struct known {
    PyObject *value, *pickle;
    const char *bytes;
    Py_ssize_t len;
} no_result, no_arguments; /* None, and ((), None) */

static bool is_known(const struct known *k, const uint8_t *pickle, size_t len)
{
    return len == (size_t)k->len && memcmp(pickle, k->bytes, len) == 0;
}

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

Py_buffer *core_payload_hold(struct core_payload *p, PyObject *o)
{
    size_t n = (size_t)p->buffer_count;

    if ((n & (n - 1)) == 0) { /* room for twice as many */
        Py_buffer *more = realloc(p->buffers, (n ? 2 * n : 1) * sizeof *more);

        if (!more) {
            PyErr_NoMemory();
            return NULL;
        }
        p->buffers = more;
    }
    if (PyObject_GetBuffer(o, &p->buffers[n], PyBUF_SIMPLE) < 0)
        return NULL;
    p->buffer_count++;
    return &p->buffers[n];
}

static int pickle_value(PyObject *value, PyObject *dumps, struct core_payload *p)
{
    MS_CLEANUP(core_unref) PyObject *parts = NULL;
    PyObject *list;
    int room = PLAIN_MAX;

    if (value == no_result.value || value == no_arguments.value) {
        p->pickle = Py_NewRef(value == no_result.value ? no_result.pickle
                                                       : no_arguments.pickle);
        return 0;
    }
    if (is_plain(value, PLAIN_DEPTH, &room)) {
        p->pickle = PyObject_CallFunctionObjArgs(pickle_dumps, value, protocol, NULL);
        return p->pickle ? 0 : -1;
    }
    parts = PyObject_CallFunctionObjArgs(dumps, value, NULL);
    if (!parts ||
        !PyArg_ParseTuple(parts, "SO!|O", &p->pickle, &PyList_Type, &list, &p->refs)) {
        p->pickle = p->refs = NULL;
        return -1;
    }
    Py_INCREF(p->pickle);
    Py_XINCREF(p->refs);
    for (Py_ssize_t i = 0; i < PyList_Size(list); i++)
        if (!core_payload_hold(p, PyList_GetItem(list, i)))
            return -1;
    return 0;
}

static int encode_pickled(PyObject *value,
                          PyObject *dumps,
                          enum core_stored_how how,
                          struct core_payload *p)
{
    return pickle_value(value, dumps, p) < 0 ? -1 : core_stored_lay_out(p, how);
}

static int encode_bytes(PyObject *value, const char *what, struct core_payload *p)
{
    MS_CLEANUP(core_unref) PyObject *type = NULL;
    Py_buffer *b;

    p->codec = MS_CODEC_BYTES;
    if (value == Py_None)
        return 0; /* of a method that gives nothing */
    if (!PyObject_CheckBuffer(value)) {
        type = PyType_GetName(Py_TYPE(value));
        core_raise_kind(
            "bad_argument", "%s is a %V: this codec has bytes alone", what, type, "?");
        return -1;
    }
    b = core_payload_hold(p, value);
    if (!b)
        return -1;
    p->iov[p->count++] = (struct iovec){b->buf, (size_t)b->len};
    return 0;
}

/* The end of every encoding: what failed leaves nothing. */
static int encoded(int rc, struct core_payload *p)
{
    if (rc < 0)
        core_payload_release(p);
    return rc;
}

int core_encode(PyObject *value,
                uint8_t codec,
                enum core_stored_how how,
                struct core_payload *p)
{
    PyObject *dumps = how == CORE_STORED_NONE ? core_dumps_alone : core_dumps;

    *p = (struct core_payload){.codec = MS_CODEC_PICKLE};
    if (codec == MS_CODEC_PLAIN)
        return encoded(core_plain_encode(value, p), p);
    if (codec == MS_CODEC_BYTES)
        return encoded(encode_bytes(value, "value", p), p);
    return encoded(encode_pickled(value, dumps, how, p), p);
}

static int encode_one_bytes(PyObject *args, PyObject *kwargs, struct core_payload *p)
{
    if (PyTuple_Size(args) == 1 && (kwargs == Py_None || PyDict_Size(kwargs) == 0))
        return encode_bytes(PyTuple_GetItem(args, 0), "args[0]", p);
    core_raise_kind("bad_argument",
                    "codec=\"bytes\" takes one argument, without a name");
    return -1;
}

int core_encode_call(PyObject *args,
                     PyObject *kwargs,
                     uint8_t codec,
                     struct core_payload *p)
{
    MS_CLEANUP(core_unref) PyObject *pair = NULL;

    *p = (struct core_payload){.codec = MS_CODEC_PICKLE};
    if (codec == MS_CODEC_PLAIN)
        return encoded(core_plain_encode_call(args, kwargs, p), p);
    if (codec == MS_CODEC_BYTES)
        return encoded(encode_one_bytes(args, kwargs, p), p);
    pair = PyTuple_Size(args) == 0 && kwargs == Py_None ? Py_NewRef(no_arguments.value)
                                                        : PyTuple_Pack(2, args, kwargs);
    if (!pair)
        return -1;
    return encoded(encode_pickled(pair, core_dumps_call, CORE_STORED_CALL, p), p);
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
    MS_CLEANUP(ms_cleanup_free) uint8_t *owned = memory; /* until the view is gone */
    MS_CLEANUP(core_unref) PyObject *view = NULL;

    (void)owned;
    if (is_known(&no_result, pickle, len))
        Py_RETURN_NONE;
    if (is_known(&no_arguments, pickle, len))
        return Py_NewRef(no_arguments.value);
    view =
        PyMemoryView_FromMemory((char *)(uintptr_t)pickle, (Py_ssize_t)len, PyBUF_READ);
    return view ? PyObject_CallFunctionObjArgs(pickle_loads, view, NULL) : NULL;
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

PyObject *core_decode_bytes(uint8_t codec, PyObject *bytes)
{
    Py_ssize_t len;
    uint8_t *copy;
    char *at;

    if (PyBytes_AsStringAndSize(bytes, &at, &len) < 0)
        return NULL;
    copy = ms_bytes_copy(at, (size_t)len);
    if (!copy)
        return PyErr_NoMemory();
    /* taken over. NOLINTNEXTLINE(clang-analyzer-unix.Malloc) */
    return core_decode(codec, copy, copy, (size_t)len);
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

static int know(struct known *k, PyObject *value)
{
    char *bytes;

    k->value = value;
    if (!value)
        return -1;
    k->pickle = PyObject_CallFunctionObjArgs(pickle_dumps, value, protocol, NULL);
    if (!k->pickle || PyBytes_AsStringAndSize(k->pickle, &bytes, &k->len) < 0)
        return -1;
    k->bytes = bytes;
    return 0;
}

int core_payload_setup(PyObject *module)
{
    pickle_dumps = core_import("_pickle", "dumps");
    pickle_loads = core_import("_pickle", "loads");
    protocol = PyLong_FromLong(5);
    if (!pickle_dumps || !pickle_loads || !protocol)
        return -1;
    if (know(&no_result, Py_NewRef(Py_None)) < 0)
        return -1;
    return know(&no_arguments, Py_BuildValue("()O", Py_None));
}
