/* piece.c - pieces: bytes in a store that are named by themselves, beside a pickle. A process
 * that gets one holds its object; the bytes are mapped, or come from their node, when they
 * are read. */
#include "store.h"

#include "base/cleanup.h"

#include <stdlib.h>

/* Whether pieces can be written here. */
static PyObject *piece_can(PyObject *self, PyObject *unused)
{
    struct ms_store_client *c = core_store_get();

    return PyBool_FromLong(c && ms_store_client_limit(c) > 0);
}

/* Buffers to be written, and what they are in the store then. */
struct writing {
    size_t count;
    Py_buffer *buffers;
    struct ms_store_bytes *bytes;
};

static void writing_finish(struct writing *w)
{
    for (size_t i = 0; i < w->count; i++) {
        PyBuffer_Release(&w->buffers[i]);
        ms_held_unref(w->bytes[i].held);
    }
    free(w->buffers);
    free(w->bytes);
}

static int writing_init(struct writing *w, PyObject *list, size_t room)
{
    w->buffers = calloc(room + 1, sizeof *w->buffers);
    w->bytes = calloc(room + 1, sizeof *w->bytes);
    if (!w->buffers || !w->bytes)
        return core_no_memory();
    for (; w->count < room; w->count++) {
        PyObject *buffer = PyList_GetItem(list, (Py_ssize_t)w->count);
        Py_buffer *b = &w->buffers[w->count];

        if (!buffer || PyObject_GetBuffer(buffer, b, PyBUF_C_CONTIGUOUS) < 0)
            return -1;
        w->bytes[w->count] =
            (struct ms_store_bytes){.data = b->buf, .len = (uint64_t)b->len};
    }
    return 0;
}

static PyObject *written(struct ms_store_bytes *b)
{
    PyObject *held = core_held_new(MS_TAKE(b->held), CORE_HELD_READS);

    return held ? Py_BuildValue("NK", held, (unsigned long long)b->offset) : NULL;
}

static PyObject *write_all(struct writing *w, struct ms_store_client *c, PyObject *list)
{
    Py_ssize_t count = PyList_Size(list);
    PyObject *out;

    if (count < 0 || writing_init(w, list, (size_t)count) < 0)
        return NULL;
    ms_store_client_find_all(c, w->bytes, w->count);
    if (core_store_write(c, w->bytes, w->count, false) < 0)
        return NULL;
    out = PyList_New(count);
    for (Py_ssize_t i = 0; out && i < count; i++) {
        PyObject *one = written(&w->bytes[i]);

        if (!one || PyList_SetItem(out, i, one) < 0)
            Py_CLEAR(out);
    }
    return out;
}

/* (list of buffers): of each, its object and where in it. What lies in the store already
 * is not copied. */
static PyObject *piece_write(PyObject *self, PyObject *list)
{
    struct ms_store_client *c = core_store_get();
    struct writing w = {0};
    PyObject *out;

    if (!c)
        return core_no_store();
    out = write_all(&w, c, list);
    writing_finish(&w);
    return out;
}

/* (buffer): whether it lies in the store of this node already. */
static PyObject *piece_is_stored(PyObject *self, PyObject *buffer)
{
    struct ms_store_client *c = core_store_get();
    struct ms_held *h = NULL;
    uint64_t offset;
    Py_buffer b;

    if (!c)
        Py_RETURN_FALSE;
    if (PyObject_GetBuffer(buffer, &b, PyBUF_STRIDES) < 0)
        return NULL;
    if (b.len && PyBuffer_IsContiguous(&b, 'C'))
        h = ms_store_client_find_memory(c, b.buf, (size_t)b.len, &offset);
    PyBuffer_Release(&b);
    ms_held_unref(h);
    return PyBool_FromLong(h != NULL);
}

/* (nbytes): so many were written into room that store_empty gave. */
static PyObject *piece_count(PyObject *self, PyObject *nbytes)
{
    unsigned long long n = PyLong_AsUnsignedLongLong(nbytes);

    if (PyErr_Occurred())
        return NULL;
    core_copied += n;
    Py_RETURN_NONE;
}

/* (held): what `piece_hold` takes, in another process. */
static PyObject *piece_name(PyObject *self, PyObject *held)
{
    struct ms_held *h = core_held_get(held);
    struct ms_stored_name n;

    if (!h)
        return NULL;
    ms_held_name(h, &n);
    return Py_BuildValue("KKKKs#",
                         (unsigned long long)n.node,
                         (unsigned long long)n.id,
                         (unsigned long long)n.len,
                         (unsigned long long)n.at,
                         n.address,
                         (Py_ssize_t)n.address_len);
}

/* (name): hold it, without its bytes. */
static PyObject *piece_hold(PyObject *self, PyObject *name)
{
    struct ms_store_client *c = core_store_get();
    unsigned long long node, id, len, at;
    struct ms_error err = {0};
    struct ms_held *h = NULL;
    struct ms_stored_name n;
    const char *address;
    Py_ssize_t address_len;
    int rc;

    if (!c)
        return core_no_store();
    if (!PyArg_ParseTuple(
            name, "KKKKs#", &node, &id, &len, &at, &address, &address_len))
        return NULL;
    n = (struct ms_stored_name){.node = node,
                                .id = id,
                                .len = len,
                                .at = at,
                                .address = address,
                                .address_len = (uint32_t)address_len};
    Py_BEGIN_ALLOW_THREADS;
    rc = ms_store_client_attach(c, &n, 1, true, &h, &err);
    Py_END_ALLOW_THREADS;
    return rc < 0 ? core_store_raise(&err) : core_held_new(h, CORE_HELD_RESTS);
}

/* What is to be read, and what of it is found. */
struct reading {
    size_t count;
    struct ms_stored_name *names;
    uint64_t *offsets; /* where in what is attached */
    bool *are_slices;
    struct ms_held **held;
};

static void reading_finish(struct reading *r)
{
    free(r->names);
    free(r->offsets);
    free(r->are_slices);
    free(r->held);
}

static int reading_init(struct reading *r, size_t count)
{
    *r = (struct reading){.count = count,
                          .names = calloc(count + 1, sizeof *r->names),
                          .offsets = calloc(count + 1, sizeof *r->offsets),
                          .are_slices = calloc(count + 1, sizeof *r->are_slices),
                          .held = calloc(count + 1, sizeof(*r->held))};
    if (r->names && r->offsets && r->are_slices && r->held)
        return 0;
    reading_finish(r);
    return core_no_memory();
}

/* (held, offset, nbytes) */
static int reading_set(struct reading *r, size_t i, PyObject *wanted)
{
    unsigned long long offset, len;
    struct ms_held *h;
    PyObject *held;

    if (!wanted || !PyArg_ParseTuple(wanted, "OKK", &held, &offset, &len))
        return -1;
    h = core_held_get(held);
    if (!h)
        return -1;
    r->are_slices[i] = ms_held_name_range(h, offset, len, &r->names[i]);
    r->offsets[i] = r->are_slices[i] ? 0 : offset;
    return 0;
}

/* (memory, where in it, is a slice) */
static PyObject *reading_found(struct reading *r, size_t i)
{
    PyObject *held = core_held_new(r->held[i], CORE_HELD_READS);

    return held ? Py_BuildValue("NKO",
                                held,
                                (unsigned long long)r->offsets[i],
                                r->are_slices[i] ? Py_True : Py_False)
                : NULL;
}

static PyObject *reading_all(struct reading *r)
{
    PyObject *out = PyList_New((Py_ssize_t)r->count);

    for (size_t i = 0; i < r->count; i++) {
        PyObject *one = out ? reading_found(r, i) : NULL;

        if (!out)
            ms_held_unref(r->held[i]);
        else if (!one || PyList_SetItem(out, (Py_ssize_t)i, one) < 0)
            Py_CLEAR(out);
    }
    return out;
}

static PyObject *read_all(struct ms_store_client *c, PyObject *list, struct reading *r)
{
    struct ms_error err = {0};
    int rc;

    for (size_t i = 0; i < r->count; i++)
        if (reading_set(r, i, PyList_GetItem(list, (Py_ssize_t)i)) < 0)
            return NULL;
    Py_BEGIN_ALLOW_THREADS;
    rc = ms_store_client_attach(c, r->names, r->count, false, r->held, &err);
    Py_END_ALLOW_THREADS;
    return rc < 0 ? core_store_raise(&err) : reading_all(r);
}

/* (list of (held, offset, nbytes)): their bytes, which come from their nodes if they are
 * not here; all with one question. Of an object of another node that is not here, and of
 * which little is wanted, that alone comes, as an object of its own. */
static PyObject *piece_read(PyObject *self, PyObject *list)
{
    struct ms_store_client *c = core_store_get();
    Py_ssize_t count;
    struct reading r;
    PyObject *out;

    if (!c)
        return core_no_store();
    count = PyList_Size(list);
    if (count < 0 || reading_init(&r, (size_t)count) < 0)
        return NULL;
    out = read_all(c, list, &r);
    reading_finish(&r);
    return out;
}

PyMethodDef core_piece_functions[] = {
    {"piece_can", piece_can, METH_NOARGS, NULL},
    {"piece_write", piece_write, METH_O, NULL},
    {"piece_is_stored", piece_is_stored, METH_O, NULL},
    {"piece_count", piece_count, METH_O, NULL},
    {"piece_name", piece_name, METH_O, NULL},
    {"piece_hold", piece_hold, METH_O, NULL},
    {"piece_read", piece_read, METH_O, NULL},
    {NULL, NULL, 0, NULL}};
