/* Parts of stored objects that this process may write, for itself alone. */
#include "store.h"

#include "store/client/private_map.h"

static PyTypeObject *own_type;

struct own {
    PyObject_HEAD struct ms_private_map *own;
};

static void own_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);

    ms_private_map_destroy(((struct own *)self)->own);
    PyObject_Free(self);
    Py_DECREF((PyObject *)type);
}

static int own_getbuffer(PyObject *self, Py_buffer *view, int flags)
{
    const struct ms_private_map *own = ((struct own *)self)->own;

    return PyBuffer_FillInfo(view,
                             self,
                             ms_private_map_bytes(own),
                             (Py_ssize_t)ms_private_map_len(own),
                             0,
                             flags);
}

static PyType_Slot own_slots[] = {
    {Py_tp_dealloc, own_dealloc}, {Py_bf_getbuffer, own_getbuffer}, {0, NULL}};
static PyType_Spec own_spec = {.name = "muster._core.Own",
                               .basicsize = sizeof(struct own),
                               .flags = Py_TPFLAGS_DEFAULT |
                                        Py_TPFLAGS_DISALLOW_INSTANTIATION,
                               .slots = own_slots};

/* The memory from `at` on, as an object that may be written; NULL without an exception: it
 * is not in the store, or cannot be mapped. */
static struct ms_private_map *map(const void *at, size_t len)
{
    struct ms_store_client *c = core_store_get();
    struct ms_held *h = NULL;
    struct ms_private_map *own = NULL;
    uint64_t offset = 0;

    Py_BEGIN_ALLOW_THREADS;
    if (c)
        h = ms_store_client_find_memory(c, at, len, &offset);
    if (h) {
        own = ms_private_map_create(h, offset, len);
        ms_held_unref(h);
    }
    Py_END_ALLOW_THREADS;
    return own;
}

/* (buffer, nbytes): the memory from the buffer's beginning on, which may be longer than it,
 * as an object that may be written without anybody else seeing it. None: copy it. */
static PyObject *store_own(PyObject *self, PyObject *args)
{
    struct ms_private_map *own;
    Py_ssize_t len;
    Py_buffer view;
    struct own *o;

    (void)self;
    if (!PyArg_ParseTuple(args, "y*n", &view, &len))
        return NULL;
    own = len > 0 ? map(view.buf, (size_t)len) : NULL;
    PyBuffer_Release(&view);
    if (!own)
        Py_RETURN_NONE;
    o = PyObject_New(struct own, own_type);
    if (!o) {
        ms_private_map_destroy(own);
        return NULL;
    }
    o->own = own;
    return (PyObject *)o;
}

static PyMethodDef functions[] = {{"store_own", store_own, METH_VARARGS, NULL},
                                  {NULL, NULL, 0, NULL}};

int core_own_setup(PyObject *module)
{
    own_type = core_type(module, &own_spec, NULL);
    return own_type ? PyModule_AddFunctions(module, functions) : -1;
}
