/* Pieces: bytes in a store that are named by themselves, beside a pickle. Whoever gets
 * one holds its object; the bytes are mapped, or come from their node, when they are read. */
#include "store.h"

#include "base/cleanup.h"

#include <string.h>

static PyObject *no_store(void)
{
    return core_raise_kind(
        "object_lost",
        "this process has no store: its node has no agent, or the agent has ended",
        "");
}

/* Whether pieces can be written here. */
static PyObject *piece_can(PyObject *self, PyObject *unused)
{
    struct ms_store_client *c = core_store_get();

    (void)self;
    (void)unused;
    return PyBool_FromLong(c && ms_store_limit(c) > 0);
}

static struct ms_held *write_new(struct ms_store_client *c, const Py_buffer *b)
{
    PyObject *text = NULL;
    const char *site = core_site_text(&text);
    struct ms_error err = {0};
    struct ms_held *h;

    Py_BEGIN_ALLOW_THREADS;
    h = ms_store_make(c, (uint64_t)b->len, site, &err);
    if (h)
        memcpy(h->write, b->buf, (size_t)b->len);
    Py_END_ALLOW_THREADS;
    Py_XDECREF(text);
    if (h)
        core_copied += (uint64_t)b->len;
    else
        core_store_raise(&err);
    return h;
}

/* (buffer): (its object, where in it). What lies in the store already is not copied. */
static PyObject *piece_write(PyObject *self, PyObject *buffer)
{
    struct ms_store_client *c = core_store_get();
    uint64_t offset = 0;
    struct ms_held *h;
    Py_buffer b;
    PyObject *held;

    (void)self;
    if (!c)
        return no_store();
    if (PyObject_GetBuffer(buffer, &b, PyBUF_C_CONTIGUOUS) < 0)
        return NULL;
    h = b.len ? ms_store_find_memory(c, b.buf, (size_t)b.len, &offset) : NULL;
    if (!h)
        h = write_new(c, &b);
    PyBuffer_Release(&b);
    held = h ? core_held_new(h, CORE_HELD_READS) : NULL;
    return held ? Py_BuildValue("NK", held, (unsigned long long)offset) : NULL;
}

/* (buffer): whether it lies in the store of this node already. */
static PyObject *piece_is_stored(PyObject *self, PyObject *buffer)
{
    struct ms_store_client *c = core_store_get();
    struct ms_held *h = NULL;
    uint64_t offset;
    Py_buffer b;

    (void)self;
    if (!c)
        Py_RETURN_FALSE;
    if (PyObject_GetBuffer(buffer, &b, PyBUF_STRIDES) < 0)
        return NULL;
    if (b.len && PyBuffer_IsContiguous(&b, 'C'))
        h = ms_store_find_memory(c, b.buf, (size_t)b.len, &offset);
    PyBuffer_Release(&b);
    ms_held_unref(h);
    return PyBool_FromLong(h != NULL);
}

/* (nbytes): so many were written into room that store_empty gave. */
static PyObject *piece_count(PyObject *self, PyObject *nbytes)
{
    unsigned long long n = PyLong_AsUnsignedLongLong(nbytes);

    (void)self;
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

    (void)self;
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

static PyObject *attach(const struct ms_stored_name *name, bool bare)
{
    struct ms_store_client *c = core_store_get();
    struct ms_error err = {0};
    struct ms_held *h = NULL;
    int rc;

    if (!c)
        return no_store();
    Py_BEGIN_ALLOW_THREADS;
    rc = ms_store_attach(c, name, 1, bare, &h, &err);
    Py_END_ALLOW_THREADS;
    return rc < 0 ? core_store_raise(&err)
                  : core_held_new(h, bare ? CORE_HELD_RESTS : CORE_HELD_READS);
}

/* (name): hold it, without its bytes. */
static PyObject *piece_hold(PyObject *self, PyObject *name)
{
    unsigned long long node, id, len, at;
    struct ms_stored_name n;
    const char *address;
    Py_ssize_t address_len;

    (void)self;
    if (!PyArg_ParseTuple(
            name, "KKKKs#", &node, &id, &len, &at, &address, &address_len))
        return NULL;
    n = (struct ms_stored_name){.node = node,
                                .id = id,
                                .len = len,
                                .at = at,
                                .address = address,
                                .address_len = (uint32_t)address_len};
    return attach(&n, true);
}

/* (held): the same with its bytes, which come from its node if they are not here. */
static PyObject *piece_read(PyObject *self, PyObject *held)
{
    struct ms_held *h = core_held_get(held);
    struct ms_stored_name n;

    (void)self;
    if (!h)
        return NULL;
    ms_held_name(h, &n);
    return attach(&n, false);
}

static PyMethodDef functions[] = {{"piece_can", piece_can, METH_NOARGS, NULL},
                                  {"piece_write", piece_write, METH_O, NULL},
                                  {"piece_is_stored", piece_is_stored, METH_O, NULL},
                                  {"piece_count", piece_count, METH_O, NULL},
                                  {"piece_name", piece_name, METH_O, NULL},
                                  {"piece_hold", piece_hold, METH_O, NULL},
                                  {"piece_read", piece_read, METH_O, NULL},
                                  {NULL, NULL, 0, NULL}};

int core_piece_setup(PyObject *module)
{
    return PyModule_AddFunctions(module, functions);
}
