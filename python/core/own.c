/* Parts of stored objects that this process may write, for itself alone. */
#include "store.h"

#include "store/own.h"

static PyTypeObject *own_type;

struct own {
    PyObject_HEAD struct ms_own *own;
};

static void own_dealloc(PyObject *self)
{
    ms_own_destroy(((struct own *)self)->own);
    core_object_free(self);
}

static int own_getbuffer(PyObject *self, Py_buffer *view, int flags)
{
    const struct ms_own *own = ((struct own *)self)->own;

    return PyBuffer_FillInfo(
        view, self, ms_own_bytes(own), (Py_ssize_t)ms_own_len(own), 0, flags);
}

static PyType_Slot own_slots[] = {
    {Py_tp_dealloc, own_dealloc}, {Py_bf_getbuffer, own_getbuffer}, {0, NULL}};

/* The memory from `at` on, as an object that may be written; NULL without an exception: it
 * is not in the store, or cannot be mapped. */
static struct ms_own *map(const void *at, size_t len)
{
    struct ms_store_client *c = core_store_get();
    struct ms_held *h = NULL;
    struct ms_own *own = NULL;
    uint64_t offset = 0;

    Py_BEGIN_ALLOW_THREADS;
    if (c)
        h = ms_store_find_memory(c, at, len, &offset);
    if (h) {
        own = ms_own_create(h, offset, len);
        ms_held_unref(h);
    }
    Py_END_ALLOW_THREADS;
    return own;
}

/* (buffer, nbytes): the memory from the buffer's beginning on, which may be longer than it,
 * as an object that may be written without anybody else seeing it. None: copy it. */
static PyObject *store_own(PyObject *self, PyObject *args)
{
    struct ms_own *own;
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
        ms_own_destroy(own);
        return NULL;
    }
    o->own = own;
    return (PyObject *)o;
}

static PyMethodDef functions[] = {{"store_own", store_own, METH_VARARGS, NULL},
                                  {NULL, NULL, 0, NULL}};

int core_own_setup(PyObject *module)
{
    own_type = core_type(module, "muster._core.Own", sizeof(struct own), own_slots);
    return own_type ? PyModule_AddFunctions(module, functions) : -1;
}
