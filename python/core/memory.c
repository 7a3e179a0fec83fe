/* memory.c - memory that Python objects point into: a payload's block, a private map of a
 * stored object, spare memory that is used again */
#include "store.h"

#include "base/limits.h"
#include "store/client/private_map.h"
#include "store/client/spare.h"

struct memory {
    PyObject_HEAD uint8_t *at;
    Py_ssize_t len;
    void *owner;
    void (*release)(void *owner);
};

static int memory_getbuffer(PyObject *self, Py_buffer *view, int flags)
{
    struct memory *m = (struct memory *)self;

    return PyBuffer_FillInfo(view, self, m->at, m->len, 0, flags);
}

/* Every view of it, of whatever library, has a reference: there are none. */
static void memory_dealloc(PyObject *self)
{
    struct memory *m = (struct memory *)self;

    m->release(m->owner);
    core_object_free(self);
}

static PyType_Slot memory_slots[] = {
    {Py_tp_dealloc, memory_dealloc}, {Py_bf_getbuffer, memory_getbuffer}, {0, NULL}};

struct core_type core_memory = {.name = "muster._core.Memory",
                                .size = sizeof(struct memory),
                                .slots = memory_slots};

PyObject *
core_memory_new(void *owner, void (*release)(void *), const uint8_t *at, size_t len)
{
    struct memory *m = PyObject_New(struct memory, core_memory.type);

    if (!m) {
        release(owner);
        return NULL;
    }
    m->at = (uint8_t *)(uintptr_t)at;
    m->len = (Py_ssize_t)len;
    m->owner = owner;
    m->release = release;
    return (PyObject *)m;
}

/* ---- private maps ---------------------------------------------------------------- */

/* The memory from `at` on, for this process to write; NULL: it is not in the store, or
 * cannot be mapped. */
static struct ms_private_map *map_private(const void *at, size_t len)
{
    struct ms_store_client *c = core_store_get();
    struct ms_private_map *map = NULL;
    struct ms_held *h = NULL;
    uint64_t offset = 0;

    Py_BEGIN_ALLOW_THREADS;
    if (c)
        h = ms_store_client_find_memory(c, at, len, &offset);
    if (h)
        map = ms_private_map_create(h, offset, len);
    ms_held_unref(h);
    Py_END_ALLOW_THREADS;
    return map;
}

static void map_release(void *map)
{
    ms_private_map_destroy(map);
}

/* (buffer, nbytes): the memory from the buffer's beginning on, which may be longer than it,
 * as an object that this process may write privately. None: copy it. */
static PyObject *store_map_private(PyObject *self, PyObject *args)
{
    struct ms_private_map *map;
    Py_ssize_t len;
    Py_buffer view;

    if (!PyArg_ParseTuple(args, "y*n", &view, &len))
        return NULL;
    map = len > 0 ? map_private(view.buf, (size_t)len) : NULL;
    PyBuffer_Release(&view);
    if (!map)
        Py_RETURN_NONE;
    return core_memory_new(map, map_release, map->bytes, map->len);
}

/* ---- spare memory ---------------------------------------------------------------- */

static struct ms_spare pool = {.limit = MS_SPARE_MAX}; /* with the interpreter's lock */
static unsigned long long reused;

static void spare_release(void *block)
{
    ms_spare_give(&pool, *(struct ms_spare_block *)block);
    free(block);
}

/* .at is NULL: out of memory. */
static struct ms_spare_block spare_take(size_t len)
{
    struct ms_spare_block block = ms_spare_take(&pool, len);

    if (block.at) {
        reused++;
        return block;
    }
    Py_BEGIN_ALLOW_THREADS;
    block = ms_spare_make(len);
    Py_END_ALLOW_THREADS;
    return block;
}

/* (nbytes): memory to be written; None: less than MS_SPARE_MIN. */
static PyObject *spare_new(PyObject *self, PyObject *nbytes)
{
    Py_ssize_t len = PyLong_AsSsize_t(nbytes);
    struct ms_spare_block *block;

    if (len == -1 && PyErr_Occurred())
        return NULL;
    if (len < (Py_ssize_t)MS_SPARE_MIN)
        Py_RETURN_NONE;
    block = malloc(sizeof *block);
    if (block)
        *block = spare_take((size_t)len);
    if (!block || !block->at) {
        free(block);
        return PyErr_NoMemory();
    }
    return core_memory_new(block, spare_release, block->at, (size_t)len);
}

/* (bytes that are kept, how often one was used again) */
static PyObject *spare_stats(PyObject *self, PyObject *unused)
{
    return Py_BuildValue("KK", (unsigned long long)pool.bytes, reused);
}

PyMethodDef core_memory_functions[] = {
    {"store_map_private", store_map_private, METH_VARARGS, NULL},
    {"spare_new", spare_new, METH_O, NULL},
    {"spare_stats", spare_stats, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL}};
