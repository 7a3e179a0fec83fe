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
    struct core_buffers buffers;
    struct ms_store_bytes *bytes;
};

static void writing_finish(struct writing *w)
{
    for (Py_ssize_t i = 0; w->bytes && i < w->buffers.count; i++)
        ms_held_unref(w->bytes[i].held);
    free(w->bytes);
    core_buffers_finish(&w->buffers);
}

/* To be finished, also after a failure. */
static int writing_init(struct writing *w, PyObject *list)
{
    if (core_buffers_init(&w->buffers, list, PyBUF_C_CONTIGUOUS) < 0)
        return -1;
    w->bytes = calloc((size_t)w->buffers.count + 1, sizeof *w->bytes);
    if (!w->bytes)
        return core_no_memory();
    for (Py_ssize_t i = 0; i < w->buffers.count; i++)
        w->bytes[i] = (struct ms_store_bytes){.data = w->buffers.at[i].buf,
                                              .len = (uint64_t)w->buffers.at[i].len};
    return 0;
}

static PyObject *written(struct ms_store_bytes *b)
{
    PyObject *held = core_held_new(MS_TAKE(b->held), CORE_HELD_READS);

    return held ? Py_BuildValue("NK", held, (unsigned long long)b->offset) : NULL;
}

/* (list of buffers): of each, its object and where in it. What lies in the store already
 * is not copied. */
static PyObject *piece_write(PyObject *self, PyObject *list)
{
    struct ms_store_client *c = core_store_get();
    MS_CLEANUP(writing_finish) struct writing w = {0};
    MS_CLEANUP(core_unref) PyObject *out = NULL;
    size_t count;

    if (!c)
        return core_no_store();
    if (writing_init(&w, list) < 0)
        return NULL;
    count = (size_t)w.buffers.count;
    ms_store_client_find_all(c, w.bytes, count);
    if (core_store_write(c, w.bytes, count, false) < 0)
        return NULL;
    out = PyList_New(0);
    for (size_t i = 0; out && i < count; i++)
        if (!core_append(out, written(&w.bytes[i])))
            return NULL;
    return MS_TAKE(out);
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
    unsigned long long node, id, len, at;
    struct ms_held *h = NULL;
    struct ms_stored_name n;
    const char *address;
    Py_ssize_t address_len;

    if (!PyArg_ParseTuple(
            name, "KKKKs#", &node, &id, &len, &at, &address, &address_len))
        return NULL;
    n = (struct ms_stored_name){.node = node,
                                .id = id,
                                .len = len,
                                .at = at,
                                .address = address,
                                .address_len = (uint32_t)address_len};
    if (core_store_attach(&n, 1, true, &h) < 0)
        return NULL;
    return core_held_new(h, CORE_HELD_RESTS);
}

/* What is to be read, and what of it is found. */
struct piece_reading {
    size_t count;
    struct ms_stored_name *names;
    struct {
        uint64_t offset; /* in what is attached */
        bool is_slice;
    } * where;
    struct ms_held **held;
};

static void piece_reading_finish(struct piece_reading *r)
{
    for (size_t i = 0; r->held && i < r->count; i++)
        ms_held_unref(r->held[i]);
    free(r->names);
    free(r->where);
    free(r->held);
}

/* Room for so many. To be finished, also after a failure. */
static int piece_reading_init(struct piece_reading *r, size_t count)
{
    r->count = count;
    r->names = calloc(count + 1, sizeof *r->names);
    r->where = calloc(count + 1, sizeof *r->where);
    r->held = calloc(count + 1, sizeof(*r->held));
    return r->names && r->where && r->held ? 0 : core_no_memory();
}

/* (held, offset, nbytes) */
static int piece_reading_set(struct piece_reading *r, size_t i, PyObject *wanted)
{
    unsigned long long offset, len;
    struct ms_held *h;
    PyObject *held;

    if (!wanted || !PyArg_ParseTuple(wanted, "OKK", &held, &offset, &len))
        return -1;
    h = core_held_get(held);
    if (!h)
        return -1;
    r->where[i].is_slice = ms_held_name_range(h, offset, len, &r->names[i]);
    r->where[i].offset = r->where[i].is_slice ? 0 : offset;
    return 0;
}

/* (memory, where in it, is a slice) */
static PyObject *piece_reading_found(struct piece_reading *r, size_t i)
{
    PyObject *held = core_held_new(MS_TAKE(r->held[i]), CORE_HELD_READS);

    return held ? Py_BuildValue("NKO",
                                held,
                                (unsigned long long)r->where[i].offset,
                                r->where[i].is_slice ? Py_True : Py_False)
                : NULL;
}

/* (list of (held, offset, nbytes)): their bytes, which come from their nodes if they are
 * not here; all with one question. Of an object of another node that is not here, and of
 * which little is wanted, that alone comes, as an object of its own. */
static PyObject *piece_read(PyObject *self, PyObject *list)
{
    MS_CLEANUP(piece_reading_finish) struct piece_reading r = {0};
    MS_CLEANUP(core_unref) PyObject *out = NULL;
    Py_ssize_t count = PyList_Size(list);

    if (count < 0 || piece_reading_init(&r, (size_t)count) < 0)
        return NULL;
    for (size_t i = 0; i < r.count; i++)
        if (piece_reading_set(&r, i, PyList_GetItem(list, (Py_ssize_t)i)) < 0)
            return NULL;
    if (core_store_attach(r.names, r.count, false, r.held) < 0)
        return NULL;
    out = PyList_New(0);
    for (size_t i = 0; out && i < r.count; i++)
        if (!core_append(out, piece_reading_found(&r, i)))
            return NULL;
    return MS_TAKE(out);
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
