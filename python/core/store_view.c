#include "store.h"

#include <stddef.h>
#include <string.h>

/* NULL with an exception set. */
static Muster__StoreStats *ask(bool objects)
{
    struct ms_store_client *c = core_store_need();
    struct ms_error err = {0};
    Muster__StoreStats *m;

    if (!c)
        return NULL;
    Py_BEGIN_ALLOW_THREADS;
    m = ms_store_client_stats(c, objects, &err);
    Py_END_ALLOW_THREADS;
    if (!m)
        core_store_raise(&err);
    return m;
}

/* Takes the value, which may be NULL with an exception set. */
static int set(PyObject *dict, const char *name, PyObject *value)
{
    int rc = value ? PyDict_SetItemString(dict, name, value) : -1;

    Py_XDECREF(value);
    return rc;
}

/* The numbers of a message, by name. */
struct number {
    const char *name;
    size_t at;
};

static int set_numbers(PyObject *dict, const void *message, const struct number *of)
{
    for (; of->name; of++) {
        uint64_t value;

        memcpy(&value, (const char *)message + of->at, sizeof value);
        if (set(dict, of->name, PyLong_FromUnsignedLongLong(value)) < 0)
            return -1;
    }
    return 0;
}

#define STATS(field) offsetof(Muster__StoreStats, field)

PyObject *core_store_stats(PyObject *self, PyObject *unused)
{
    static const struct number numbers[] = {{"id", STATS(node)},
                                            {"limit", STATS(limit)},
                                            {"used", STATS(used)},
                                            {"committed", STATS(committed)},
                                            {"objects", STATS(object_count)},
                                            {"holders", STATS(holder_count)},
                                            {"allocated", STATS(allocated)},
                                            {"received", STATS(received)},
                                            {"sent", STATS(sent)},
                                            {"spilled", STATS(spilled)},
                                            {"spill_limit", STATS(spill_limit)},
                                            {NULL, 0}};
    Muster__StoreStats *m = ask(false);
    PyObject *dict = m ? PyDict_New() : NULL;

    (void)self;
    (void)unused;
    if (dict && (set(dict, "node", core_text(m->node_name)) < 0 ||
                 set(dict, "spill", core_text(m->spill_dir)) < 0 ||
                 set_numbers(dict, m, numbers) < 0))
        Py_CLEAR(dict);
    if (m)
        muster__store_stats__free_unpacked(m, NULL);
    return dict;
}

static PyObject *holder_tuple(const Muster__HolderStatus *h)
{
    return Py_BuildValue("NiLd",
                         core_text(h->name),
                         (int)h->pid,
                         (long long)h->count,
                         (double)h->since_ns / 1e9);
}

static PyObject *holders_list(const Muster__StoredStatus *o)
{
    PyObject *holders = PyList_New((Py_ssize_t)o->n_holders);

    for (size_t i = 0; holders && i < o->n_holders; i++) {
        PyObject *holder = holder_tuple(o->holders[i]);

        if (!holder || PyList_SetItem(holders, (Py_ssize_t)i, holder) < 0)
            Py_CLEAR(holders);
    }
    return holders;
}

static PyObject *object_dict(const Muster__StoredStatus *o)
{
    static const struct number numbers[] = {
        {"node", offsetof(Muster__StoredStatus, node)},
        {"id", offsetof(Muster__StoredStatus, id)},
        {"nbytes", offsetof(Muster__StoredStatus, len)},
        {NULL, 0}};
    PyObject *dict = PyDict_New();

    if (dict && (set_numbers(dict, o, numbers) < 0 ||
                 set(dict, "age", PyFloat_FromDouble((double)o->age_ns / 1e9)) < 0 ||
                 set(dict, "site", core_text(o->site)) < 0 ||
                 set(dict, "copy", PyBool_FromLong(o->is_replica)) < 0 ||
                 set(dict, "here", PyBool_FromLong(o->has_bytes)) < 0 ||
                 set(dict, "spilled", PyBool_FromLong(o->is_spilled)) < 0 ||
                 set(dict, "holders", holders_list(o)) < 0))
        Py_CLEAR(dict);
    return dict;
}

/* The largest objects of this node's store. */
PyObject *core_store_objects(PyObject *self, PyObject *unused)
{
    Muster__StoreStats *m = ask(true);
    PyObject *list = m ? PyList_New(0) : NULL;

    (void)self;
    (void)unused;
    for (size_t i = 0; list && i < m->n_objects; i++) {
        PyObject *object = object_dict(m->objects[i]);

        if (!object || PyList_Append(list, object) < 0)
            Py_CLEAR(list);
        Py_XDECREF(object);
    }
    if (m)
        muster__store_stats__free_unpacked(m, NULL);
    return list;
}
