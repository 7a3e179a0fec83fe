/* store_view.c - what there is in this node's store */
#include "message.h"
#include "store.h"

/* (with the largest objects): a StoreStats as a dict. */
PyObject *core_store_stats(PyObject *self, PyObject *with_objects)
{
    struct ms_store_client *c = core_store_need();
    bool objects = PyObject_IsTrue(with_objects) == 1;
    struct ms_error err = {0};
    Muster__StoreStats *m;
    PyObject *dict;

    (void)self;
    if (!c)
        return NULL;
    Py_BEGIN_ALLOW_THREADS;
    m = ms_store_client_stats(c, objects, &err);
    Py_END_ALLOW_THREADS;
    if (!m)
        return core_store_raise(&err);
    dict = core_message_dict(&m->base);
    muster__store_stats__free_unpacked(m, NULL);
    return dict;
}
