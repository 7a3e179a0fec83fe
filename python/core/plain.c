/* plain.c - plain data (codec 2) from Python objects and back; see src/plain/plain.h. Tensors are
 * taken apart and put together by muster/_plain.py. */
#include "core.h"

#include "plain/plain.h"

#include <errno.h>
#include <string.h>

PyObject *core_tensor_of, *core_tensor;

/* ---- encoding -------------------------------------------------------------------- */

/* How one gets from the root to what is being encoded. */
struct step {
    Py_ssize_t index;
    PyObject *key; /* borrowed; NULL: by index */
};

struct encoder {
    struct ms_plain_writer *w;
    struct core_payload *p;
    const char *root; /* "args", "kwargs", "result" */
    struct step path[MS_PLAIN_DEPTH_MAX + 2];
    unsigned depth;
};

static PyObject *path_text(const struct encoder *e)
{
    PyObject *text = PyUnicode_FromString(e->root);

    for (unsigned i = 0; text && i < e->depth; i++) {
        const struct step *s = &e->path[i];
        PyObject *more = s->key ? PyUnicode_FromFormat("%U[%R]", text, s->key)
                                : PyUnicode_FromFormat("%U[%zd]", text, s->index);

        Py_DECREF(text);
        text = more;
    }
    return text;
}

/* Raise SerializationError: "<where it is> <what it is>". */
static int refuse(const struct encoder *e, const char *format, ...)
{
    MS_CLEANUP(core_unref) PyObject *path = path_text(e), *what = NULL;
    va_list args;

    va_start(args, format);
    what = PyUnicode_FromFormatV(format, args);
    va_end(args);
    if (path && what)
        core_raise_kind("bad_argument", "%U %U", path, what);
    return -1;
}

static int refuse_type(const struct encoder *e, PyObject *o)
{
    MS_CLEANUP(core_unref) PyObject *name = PyType_GetQualName(Py_TYPE(o));

    if (!name)
        return -1;
    return refuse(e,
                  "is a %U: plain data has None, bool, int, float, str, bytes, list, "
                  "tuple, dict with str keys, and tensors (codec=\"pickle\" has all)",
                  name);
}

/* The exception that is set, told with its place. */
static int refuse_because(const struct encoder *e)
{
    MS_CLEANUP(core_unref) PyObject *why = NULL;

    if (!PyErr_ExceptionMatches(PyExc_ValueError))
        return -1;
    why = core_exception_take();
    return why ? refuse(e, "is %S", why) : -1;
}

static void let_go(struct core_payload *p)
{
    PyBuffer_Release(&p->buffers[--p->buffer_count]);
}

static int put(struct encoder *e, enum ms_plain_place place, PyObject *o);

static int put_buffer(struct encoder *e, enum ms_plain_place place, PyObject *o)
{
    Py_buffer *b = core_payload_hold(e->p, o); /* the writer may point into it */
    int refs = e->w->ref_count;

    if (!b)
        return refuse_because(e);
    ms_plain_put_data(e->w, place, MUSTER_BYTES, b->buf, (size_t)b->len);
    if (e->w->ref_count == refs)
        let_go(e->p);
    return 0;
}

static int shape_parse(PyObject *tuple, uint64_t *shape, uint32_t *ndim)
{
    Py_ssize_t n = PyTuple_Size(tuple);

    if (n < 0)
        return -1;
    if (n > (Py_ssize_t)MS_PLAIN_DIMS_MAX)
        return core_fail(PyExc_ValueError,
                         "a tensor of %zd dimensions: plain data has at most %d",
                         n,
                         (int)MS_PLAIN_DIMS_MAX);
    for (Py_ssize_t i = 0; i < n; i++)
        shape[i] = PyLong_AsUnsignedLongLong(PyTuple_GetItem(tuple, i));
    *ndim = (uint32_t)n;
    return PyErr_Occurred() ? -1 : 0;
}

static int put_tensor(struct encoder *e, enum ms_plain_place place, PyObject *parts)
{
    uint64_t shape[MS_PLAIN_DIMS_MAX];
    PyObject *sizes, *data;
    int dtype, refs = e->w->ref_count;
    uint32_t ndim = 0;
    size_t size;
    Py_buffer *b;

    if (!PyArg_ParseTuple(parts, "iO!O", &dtype, &PyTuple_Type, &sizes, &data))
        return -1;
    if (shape_parse(sizes, shape, &ndim) < 0 || !(b = core_payload_hold(e->p, data)))
        return refuse_because(e);
    if (ms_plain_tensor_size((enum muster_dtype)dtype, shape, ndim, &size) < 0 ||
        size != (size_t)b->len)
        return refuse(e, "is a tensor that is too big");
    ms_plain_put_tensor(
        e->w, place, (enum muster_dtype)dtype, shape, ndim, b->buf, size);
    if (e->w->ref_count == refs)
        let_go(e->p);
    return 0;
}

/* A tensor, or a number that is not Python's own. */
static int put_other(struct encoder *e, enum ms_plain_place place, PyObject *o)
{
    MS_CLEANUP(core_unref)
    PyObject *parts = PyObject_CallFunctionObjArgs(core_tensor_of, o, NULL);

    if (!parts)
        return refuse_because(e);
    if (parts == Py_None)
        return refuse_type(e, o);
    return PyTuple_Check(parts) ? put_tensor(e, place, parts) : put(e, place, parts);
}

static int put_int(struct encoder *e, enum ms_plain_place place, PyObject *o)
{
    int overflow;
    long long n = PyLong_AsLongLongAndOverflow(o, &overflow);

    if (overflow)
        return refuse(e, "is an int beyond 64 bits, which plain data has");
    if (n == -1 && PyErr_Occurred())
        return -1;
    ms_plain_put_int(e->w, place, n);
    return 0;
}

static int put_text(struct encoder *e, enum ms_plain_place place, PyObject *o)
{
    Py_ssize_t len;
    const char *text = PyUnicode_AsUTF8AndSize(o, &len);

    if (!text) {
        PyErr_Clear();
        return refuse(e, "is a str that UTF-8 does not have");
    }
    ms_plain_put_data(e->w, place, MUSTER_TEXT, text, (size_t)len);
    return 0;
}

/* A step down; `depth` is to be taken back. */
static int enter(struct encoder *e)
{
    if (e->depth > MS_PLAIN_DEPTH_MAX) {
        e->depth = 2; /* enough to find it */
        return refuse(e, "... is nested deeper than %d", (int)MS_PLAIN_DEPTH_MAX);
    }
    e->depth++;
    return 0;
}

static int put_items(struct encoder *e, PyObject *sequence)
{
    int is_list = PyList_Check(sequence), rc = enter(e);

    for (Py_ssize_t i = 0;
         rc == 0 && i < (is_list ? PyList_Size(sequence) : PyTuple_Size(sequence));
         i++) {
        MS_CLEANUP(core_unref)
        PyObject *item = Py_NewRef(is_list ? PyList_GetItem(sequence, i)
                                           : PyTuple_GetItem(sequence, i));

        e->path[e->depth - 1] = (struct step){.index = i};
        rc = put(e, MS_PLAIN_ITEM, item);
    }
    if (rc == 0)
        e->depth--;
    return rc;
}

static int put_entry(struct encoder *e, bool named, PyObject *key, PyObject *value)
{
    struct ms_plain_mark mark;
    const char *text;
    Py_ssize_t len;
    int rc;

    e->path[e->depth - 1] = (struct step){.key = key};
    if (!PyUnicode_Check(key))
        return refuse(e, "has a key that is no str");
    text = PyUnicode_AsUTF8AndSize(key, &len);
    if (!text || memchr(text, 0, (size_t)len)) {
        PyErr_Clear();
        return refuse(e, "has a key that plain data cannot have");
    }
    mark = ms_plain_begin_entry(e->w, named, text, (size_t)len);
    rc = put(e, MS_PLAIN_ENTRY_VALUE, value);
    ms_plain_end(e->w, mark);
    return rc;
}

static int put_entries(struct encoder *e, bool named, PyObject *dict)
{
    PyObject *key, *value;
    Py_ssize_t at = 0;
    int rc = enter(e);

    while (rc == 0 && PyDict_Next(dict, &at, &key, &value)) {
        Py_INCREF(key);
        Py_INCREF(value);
        rc = put_entry(e, named, key, value);
        Py_DECREF(value);
        Py_DECREF(key);
    }
    if (rc == 0)
        e->depth--;
    return rc;
}

static int put_container(struct encoder *e, enum ms_plain_place place, PyObject *o)
{
    struct ms_plain_mark mark;
    int rc;

    if (PyDict_Check(o)) {
        mark = ms_plain_begin(e->w, place, MUSTER_MAP);
        rc = put_entries(e, false, o);
    } else {
        mark = ms_plain_begin(e->w, place, MUSTER_LIST);
        rc = put_items(e, o);
    }
    ms_plain_end(e->w, mark);
    return rc;
}

static int put(struct encoder *e, enum ms_plain_place place, PyObject *o)
{
    if (o == Py_None)
        ms_plain_put_null(e->w, place);
    else if (PyBool_Check(o))
        ms_plain_put_bool(e->w, place, o == Py_True);
    else if (PyLong_Check(o))
        return put_int(e, place, o);
    else if (PyFloat_Check(o))
        ms_plain_put_float(e->w, place, PyFloat_AsDouble(o));
    else if (PyUnicode_Check(o))
        return put_text(e, place, o);
    else if (PyBytes_Check(o) || PyByteArray_Check(o))
        return put_buffer(e, place, o);
    else if (PyList_Check(o) || PyTuple_Check(o) || PyDict_Check(o))
        return put_container(e, place, o);
    else
        return put_other(e, place, o);
    return 0;
}

/* The message, in the payload. */
static int finish(struct encoder *e)
{
    int count = ms_plain_iov(e->w, e->p->iov);

    if (count == -E2BIG) {
        e->depth = 0;
        return refuse(e,
                      "is beyond a limit: at most %zd values (a tensor is one)"
                      " and 8 GiB go in one message",
                      (Py_ssize_t)MS_PLAIN_NODES_MAX);
    }
    if (count < 0)
        return core_no_memory();
    e->p->count = count;
    return 0;
}

static int encoder_init(struct encoder *e, struct core_payload *p, const char *root)
{
    _Static_assert((int)MS_PLAIN_IOV_MAX <= (int)CORE_IOV_MAX, "a message fits");
    e->p = p;
    e->root = root;
    e->depth = 0;
    p->codec = MS_CODEC_PLAIN;
    p->plain = e->w = malloc(sizeof *p->plain);
    if (!e->w)
        return core_no_memory();
    ms_plain_writer_init(e->w);
    return 0;
}

int core_plain_encode(PyObject *value, struct core_payload *p)
{
    struct encoder e;

    if (encoder_init(&e, p, "value") < 0 || put(&e, MS_PLAIN_ROOT, value) < 0)
        return -1;
    return finish(&e);
}

int core_plain_encode_call(PyObject *args, PyObject *kwargs, struct core_payload *p)
{
    struct encoder e;

    if (encoder_init(&e, p, "args") < 0 || put_items(&e, args) < 0)
        return -1;
    e.root = "kwargs";
    if (kwargs != Py_None && put_entries(&e, true, kwargs) < 0)
        return -1;
    e.root = "the call";
    return finish(&e);
}

void core_plain_release(struct core_payload *p)
{
    if (p->plain)
        ms_plain_writer_finish(p->plain);
    free(p->plain);
}

/* ---- decoding -------------------------------------------------------------------- */

struct decoder {
    uint8_t *memory; /* until `owner` has it */
    const uint8_t *body;
    size_t len, nodes;
    PyObject *owner; /* of what tensors point into */
    PyObject *view;
};

static PyObject *malformed(void)
{
    return PyErr_Format(PyExc_ValueError,
                        "this is not plain data, or beyond its limits");
}

static PyObject *get(struct decoder *d, struct ms_plain_cursor c, unsigned depth);

static PyObject *
get_items(struct decoder *d, struct ms_plain_cursor list, unsigned depth)
{
    MS_CLEANUP(core_unref) PyObject *out = PyList_New(0);
    struct ms_plain_cursor c;
    int rc = 0;

    while (out && (rc = ms_plain_next_item(&list, &c)) > 0)
        if (!core_append(out, get(d, c, depth + 1)))
            return NULL;
    return rc < 0 ? malformed() : MS_TAKE(out);
}

static PyObject *
get_entries(struct decoder *d, struct ms_plain_cursor map, unsigned depth, bool named)
{
    MS_CLEANUP(core_unref) PyObject *out = PyDict_New();
    struct ms_plain_cursor c;
    struct ms_plain_key key;
    int rc = 0;

    while (out && (rc = ms_plain_next_entry(&map, named, &key, &c)) > 0) {
        MS_CLEANUP(core_unref)
        PyObject *name = PyUnicode_DecodeUTF8(key.at, (Py_ssize_t)key.len, NULL),
                 *item = name ? get(d, c, depth + 1) : NULL;

        if (!item || PyDict_SetItem(out, name, item) < 0)
            return NULL;
    }
    return rc < 0 ? malformed() : MS_TAKE(out);
}

/* A view of a part of the message, which from now on lives as long as it is seen. */
static PyObject *view_of(struct decoder *d, const uint8_t *at, size_t len)
{
    size_t from = len ? (size_t)(at - d->body) : 0;

    if (!d->owner) {
        d->owner = core_memory_new(d->memory, free, d->body, d->len);
        d->memory = NULL;
        d->view = d->owner ? PyMemoryView_FromObject(d->owner) : NULL;
    }
    if (!d->view)
        return NULL;
    return PySequence_GetSlice(d->view, (Py_ssize_t)from, (Py_ssize_t)(from + len));
}

static PyObject *get_tensor(struct decoder *d, const struct ms_plain_item *item)
{
    MS_CLEANUP(core_unref)
    PyObject *shape = PyTuple_New((Py_ssize_t)item->tensor.ndim), *view = NULL;

    for (uint32_t i = 0; shape && i < item->tensor.ndim; i++) {
        PyObject *n = PyLong_FromUnsignedLongLong(item->tensor.shape[i]);

        if (!n || PyTuple_SetItem(shape, (Py_ssize_t)i, n) < 0)
            return NULL;
    }
    view = shape ? view_of(d, item->tensor.at, item->tensor.len) : NULL;
    if (!view)
        return NULL;
    return PyObject_CallFunction(
        core_tensor, "iOO", (int)item->tensor.dtype, shape, view);
}

static PyObject *get(struct decoder *d, struct ms_plain_cursor c, unsigned depth)
{
    struct ms_plain_item item;

    if (depth > MS_PLAIN_DEPTH_MAX || ++d->nodes > MS_PLAIN_NODES_MAX ||
        ms_plain_read(c, &item) < 0)
        return malformed();
    switch (item.kind) {
    case MUSTER_NULL:
        break;
    case MUSTER_BOOL:
        return PyBool_FromLong(item.truth);
    case MUSTER_INT:
        return PyLong_FromLongLong(item.integer);
    case MUSTER_FLOAT:
        return PyFloat_FromDouble(item.real);
    case MUSTER_TEXT:
        return PyUnicode_DecodeUTF8(
            (const char *)item.data.at, (Py_ssize_t)item.data.len, NULL);
    case MUSTER_BYTES:
        return PyBytes_FromStringAndSize((const char *)item.data.at,
                                         (Py_ssize_t)item.data.len);
    case MUSTER_LIST:
        return get_items(d, item.inside, depth);
    case MUSTER_MAP:
        return get_entries(d, item.inside, depth, false);
    case MUSTER_TENSOR:
        return get_tensor(d, &item);
    }
    Py_RETURN_NONE;
}

static struct decoder decoder_of(uint8_t *memory, const uint8_t *body, size_t len)
{
    body = ms_plain_align(memory, body, len);
    return (struct decoder){.memory = memory, .body = body, .len = len};
}

static void decoder_finish(struct decoder *d)
{
    Py_XDECREF(d->view);
    Py_XDECREF(d->owner);
    free(d->memory);
}

PyObject *core_plain_decode(uint8_t *memory, const uint8_t *body, size_t len)
{
    MS_CLEANUP(decoder_finish) struct decoder d = decoder_of(memory, body, len);

    return get(&d, (struct ms_plain_cursor){d.body, d.body + len}, 0);
}

PyObject *core_plain_decode_call(uint8_t *memory, const uint8_t *body, size_t len)
{
    MS_CLEANUP(decoder_finish) struct decoder d = decoder_of(memory, body, len);
    MS_CLEANUP(core_unref) PyObject *list = NULL, *args = NULL, *kwargs = NULL;
    struct ms_plain_cursor c = {d.body, d.body + len};

    list = get_items(&d, c, 0);
    args = list ? PySequence_Tuple(list) : NULL;
    kwargs = args ? get_entries(&d, c, 0, true) : NULL;
    return kwargs ? PyTuple_Pack(2, args, kwargs) : NULL;
}
