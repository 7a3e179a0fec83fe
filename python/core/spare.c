/* spare.c - memory of this process that is used again when nothing points into it any more. The pool
 * is used under the interpreter's lock alone. */
#include "store.h"

#include "base/limits.h"
#include "store/client/spare.h"

static PyTypeObject *spare_type;
static struct ms_spare pool;
static unsigned long long reused;

struct spare {
    PyObject_HEAD struct ms_spare_block block;
    Py_ssize_t len;
};

/* Every view of it, of whatever library, has a reference: there are none. */
static void spare_dealloc(PyObject *self)
{
    ms_spare_give(&pool, ((struct spare *)self)->block);
    core_object_free(self);
}

static int spare_getbuffer(PyObject *self, Py_buffer *view, int flags)
{
    const struct spare *s = (struct spare *)self;

    return PyBuffer_FillInfo(view, self, s->block.at, s->len, 0, flags);
}

static PyType_Slot spare_slots[] = {
    {Py_tp_dealloc, spare_dealloc}, {Py_bf_getbuffer, spare_getbuffer}, {0, NULL}};

static struct ms_spare_block take(size_t len)
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
    struct ms_spare_block block;
    struct spare *s;

    (void)self;
    if (len == -1 && PyErr_Occurred())
        return NULL;
    if (len < (Py_ssize_t)MS_SPARE_MIN)
        Py_RETURN_NONE;
    block = take((size_t)len);
    if (!block.at)
        return PyErr_NoMemory();
    s = PyObject_New(struct spare, spare_type);
    if (!s) {
        ms_spare_give(&pool, block);
        return NULL;
    }
    s->block = block;
    s->len = len;
    return (PyObject *)s;
}

/* (bytes that are kept, how often one was used again) */
static PyObject *spare_stats(PyObject *self, PyObject *unused)
{
    (void)self;
    (void)unused;
    return Py_BuildValue("KK", (unsigned long long)pool.bytes, reused);
}

static PyMethodDef functions[] = {{"spare_new", spare_new, METH_O, NULL},
                                  {"spare_stats", spare_stats, METH_NOARGS, NULL},
                                  {NULL, NULL, 0, NULL}};

int core_spare_setup(PyObject *module)
{
    ms_spare_init(&pool, MS_SPARE_MAX);
    spare_type =
        core_type(module, "muster._core.Spare", sizeof(struct spare), spare_slots);
    return spare_type ? PyModule_AddFunctions(module, functions) : -1;
}
