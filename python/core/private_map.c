/* private_map.c - parts of stored objects that this process may write, for itself alone. */
#include "store.h"

#include "store/client/private_map.h"

static PyTypeObject *map_type;

struct private_map {
    PyObject_HEAD struct ms_private_map *map;
};

static void map_dealloc(PyObject *self)
{
    ms_private_map_destroy(((struct private_map *)self)->map);
    core_object_free(self);
}

static int map_getbuffer(PyObject *self, Py_buffer *view, int flags)
{
    const struct ms_private_map *map = ((struct private_map *)self)->map;

    return PyBuffer_FillInfo(view, self, map->bytes, (Py_ssize_t)map->len, 0, flags);
}

static PyType_Slot map_slots[] = {
    {Py_tp_dealloc, map_dealloc}, {Py_bf_getbuffer, map_getbuffer}, {0, NULL}};

/* The memory from `at` on, as an object that may be written; NULL without an exception: it
 * is not in the store, or cannot be mapped. */
static struct ms_private_map *create(const void *at, size_t len)
{
    struct ms_store_client *c = core_store_get();
    struct ms_held *h = NULL;
    struct ms_private_map *map = NULL;
    uint64_t offset = 0;

    Py_BEGIN_ALLOW_THREADS;
    if (c)
        h = ms_store_client_find_memory(c, at, len, &offset);
    if (h) {
        map = ms_private_map_create(h, offset, len);
        ms_held_unref(h);
    }
    Py_END_ALLOW_THREADS;
    return map;
}

/* (buffer, nbytes): the memory from the buffer's beginning on, which may be longer than it,
 * as an object that may be written without anybody else seeing it. None: copy it. */
static PyObject *store_map_private(PyObject *self, PyObject *args)
{
    struct ms_private_map *map;
    Py_ssize_t len;
    Py_buffer view;
    struct private_map *o;

    (void)self;
    if (!PyArg_ParseTuple(args, "y*n", &view, &len))
        return NULL;
    map = len > 0 ? create(view.buf, (size_t)len) : NULL;
    PyBuffer_Release(&view);
    if (!map)
        Py_RETURN_NONE;
    o = PyObject_New(struct private_map, map_type);
    if (!o) {
        ms_private_map_destroy(map);
        return NULL;
    }
    o->map = map;
    return (PyObject *)o;
}

static PyMethodDef functions[] = {
    {"store_map_private", store_map_private, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL}};

int core_private_map_setup(PyObject *module)
{
    map_type = core_type(
        module, "muster._core.PrivateMap", sizeof(struct private_map), map_slots);
    return map_type ? PyModule_AddFunctions(module, functions) : -1;
}
