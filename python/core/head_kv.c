#include "head_object.h"

#include "base/clock.h"

#include <string.h>

/* Ask and wait; the operation, or NULL with an exception set. */
static struct ms_head_op *
ask(PyObject *self, const Muster__DriverToHead *m, PyObject *timeout)
{
    struct head *h = (struct head *)self;
    struct ms_head_op *op;

    if (!head_is_running(h))
        return NULL;
    op = ms_head_request(h->head, m);
    if (head_op_finish(op, timeout) == 0)
        return op;
    ms_head_op_unref(op);
    return NULL;
}

static uint64_t wait_of(double seconds)
{
    int64_t ns = core_ns(seconds);

    return ns > 0 ? (uint64_t)ns : 0;
}

static PyObject *answer_done(struct ms_head_op *op)
{
    PyObject *result = NULL;

    if (op)
        result =
            PyBool_FromLong(((const Muster__KvDone *)ms_head_op_message(op))->done);
    ms_head_op_unref(op);
    return result;
}

PyObject *head_kv_put(PyObject *self, PyObject *args)
{
    Muster__KvPut put = MUSTER__KV_PUT__INIT;
    Muster__DriverToHead m = MUSTER__DRIVER_TO_HEAD__INIT;
    const char *key, *value;
    PyObject *timeout;
    Py_ssize_t len;
    unsigned codec;
    int owner, absent;

    if (!PyArg_ParseTuple(
            args, "sy#IipO", &key, &value, &len, &codec, &owner, &absent, &timeout))
        return NULL;
    put.key = (char *)(uintptr_t)key;
    put.value.data = (uint8_t *)(uintptr_t)value;
    put.value.len = (size_t)len;
    put.codec = codec;
    put.owner = (Muster__KvOwner)owner;
    put.only_if_absent = absent;
    m.body_case = MUSTER__DRIVER_TO_HEAD__BODY_KV_PUT;
    m.kv_put = &put;
    return answer_done(ask(self, &m, timeout));
}

PyObject *head_kv_delete(PyObject *self, PyObject *args)
{
    Muster__KvDelete gone = MUSTER__KV_DELETE__INIT;
    Muster__DriverToHead m = MUSTER__DRIVER_TO_HEAD__INIT;
    const char *key;
    PyObject *timeout;

    if (!PyArg_ParseTuple(args, "sO", &key, &timeout))
        return NULL;
    gone.key = (char *)(uintptr_t)key;
    m.body_case = MUSTER__DRIVER_TO_HEAD__BODY_KV_DELETE;
    m.kv_delete = &gone;
    return answer_done(ask(self, &m, timeout));
}

static PyObject *entry_tuple(const Muster__KvEntry *e)
{
    return Py_BuildValue("sNIKN",
                         e->key,
                         PyBytes_FromStringAndSize((const char *)e->value.data,
                                                   (Py_ssize_t)e->value.len),
                         (unsigned)e->codec,
                         (unsigned long long)e->revision,
                         PyBool_FromLong(e->deleted));
}

PyObject *head_kv_get(PyObject *self, PyObject *args)
{
    Muster__KvGet get = MUSTER__KV_GET__INIT;
    Muster__DriverToHead m = MUSTER__DRIVER_TO_HEAD__INIT;
    const Muster__KvEntry *e;
    PyObject *timeout, *result = NULL;
    struct ms_head_op *op;
    const char *key;
    double wait;

    if (!PyArg_ParseTuple(args, "sdO", &key, &wait, &timeout))
        return NULL;
    get.key = (char *)(uintptr_t)key;
    get.wait_ns = wait_of(wait);
    m.body_case = MUSTER__DRIVER_TO_HEAD__BODY_KV_GET;
    m.kv_get = &get;
    op = ask(self, &m, timeout);
    if (!op)
        return NULL;
    e = (const Muster__KvEntry *)ms_head_op_message(op);
    result = e->key[0] ? entry_tuple(e) : Py_NewRef(Py_None);
    ms_head_op_unref(op);
    return result;
}

/* (store, revision, is_all, entries) */
static PyObject *answer_events(struct ms_head_op *op)
{
    const Muster__KvEvents *events;
    PyObject *list, *result = NULL;

    if (!op)
        return NULL;
    events = (const Muster__KvEvents *)ms_head_op_message(op);
    list = PyList_New((Py_ssize_t)events->n_entries);
    for (size_t i = 0; list && i < events->n_entries; i++) {
        PyObject *item = entry_tuple(events->entries[i]);

        if (!item || PyList_SetItem(list, (Py_ssize_t)i, item) < 0)
            Py_CLEAR(list);
    }
    if (list)
        result = Py_BuildValue("KKNN",
                               (unsigned long long)events->store,
                               (unsigned long long)events->revision,
                               PyBool_FromLong(events->is_all),
                               list);
    ms_head_op_unref(op);
    return result;
}

PyObject *head_kv_keys(PyObject *self, PyObject *args)
{
    Muster__KvKeys keys = MUSTER__KV_KEYS__INIT;
    Muster__DriverToHead m = MUSTER__DRIVER_TO_HEAD__INIT;
    const char *prefix;
    PyObject *timeout;

    if (!PyArg_ParseTuple(args, "sO", &prefix, &timeout))
        return NULL;
    keys.prefix = (char *)(uintptr_t)prefix;
    m.body_case = MUSTER__DRIVER_TO_HEAD__BODY_KV_KEYS;
    m.kv_keys = &keys;
    return answer_events(ask(self, &m, timeout));
}

PyObject *head_kv_watch(PyObject *self, PyObject *args)
{
    Muster__KvWatch watch = MUSTER__KV_WATCH__INIT;
    Muster__DriverToHead m = MUSTER__DRIVER_TO_HEAD__INIT;
    unsigned long long store, revision;
    const char *prefix;
    PyObject *timeout;
    double wait;

    if (!PyArg_ParseTuple(args, "sKKdO", &prefix, &store, &revision, &wait, &timeout))
        return NULL;
    watch.prefix = (char *)(uintptr_t)prefix;
    watch.store = store;
    watch.revision = revision;
    watch.wait_ns = wait_of(wait);
    m.body_case = MUSTER__DRIVER_TO_HEAD__BODY_KV_WATCH;
    m.kv_watch = &watch;
    return answer_events(ask(self, &m, timeout));
}

PyObject *head_barrier(PyObject *self, PyObject *args)
{
    Muster__Barrier barrier = MUSTER__BARRIER__INIT;
    Muster__DriverToHead m = MUSTER__DRIVER_TO_HEAD__INIT;
    struct ms_head_op *op;
    const char *name;
    PyObject *timeout;
    double wait;

    if (!PyArg_ParseTuple(args, "sdO", &name, &wait, &timeout))
        return NULL;
    barrier.name = (char *)(uintptr_t)name;
    barrier.wait_ns = wait_of(wait);
    m.body_case = MUSTER__DRIVER_TO_HEAD__BODY_BARRIER;
    m.barrier = &barrier;
    op = ask(self, &m, timeout);
    if (!op)
        return NULL;
    ms_head_op_unref(op);
    Py_RETURN_NONE;
}
