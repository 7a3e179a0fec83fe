/* tensors.c - tensors that a worker keeps for others to fetch by HTTP */
#include "core/worker/host_object.h"
#include "store.h"

#include "base/clock.h"
#include "worker/http/http.h"

/* NULL: this process was forked by the worker, and has none. */
static struct ms_worker_http *http_of(PyObject *self)
{
    struct host *h = (struct host *)self;

    return host_is_forgotten(h) ? NULL : ms_host_http(h->host);
}

/* Its bytes: [offset, offset + len) of an object of the store, or a copy of a buffer. */
static int
shard_set_bytes(struct ms_http_tensor *with, PyObject *from, size_t offset, size_t len)
{
    Py_buffer b;

    with->len = len;
    if (PyObject_TypeCheck(from, core_held.type)) {
        struct ms_held *h = core_held_get(from);

        if (!h->read || offset > h->len || len > h->len - offset)
            return core_fail(PyExc_ValueError, "these bytes are not here");
        with->held = ms_held_ref(h);
        with->bytes = h->read + offset;
        return 0;
    }
    if (PyObject_GetBuffer(from, &b, PyBUF_C_CONTIGUOUS) < 0)
        return -1;
    with->len = (size_t)b.len;
    with->bytes = with->memory = ms_bytes_copy(b.buf, with->len);
    PyBuffer_Release(&b);
    return with->memory ? 0 : core_no_memory();
}

/* (id, dtype, shape as JSON, an object of the store, offset, bytes; or a buffer, 0, 0) */
PyObject *host_shard_add(PyObject *self, PyObject *args)
{
    struct ms_http_tensor with = {.type = (char[]){"tensor"}};
    unsigned long long offset, len;
    struct ms_worker_http *http = http_of(self);
    struct ms_error err = {0};
    PyObject *from;

    if (!http) {
        PyErr_SetString(core_error,
                        "a process that a worker has forked keeps no tensors");
        return NULL;
    }
    if (!PyArg_ParseTuple(
            args, "sssOKK", &with.id, &with.dtype, &with.shape, &from, &offset, &len) ||
        shard_set_bytes(&with, from, offset, len) < 0)
        return NULL;
    if (ms_worker_http_keep(http, &with, &err) < 0)
        return core_store_raise(&err);
    Py_RETURN_NONE;
}

/* Memory, and where in it the bytes begin. */
static PyObject *shard_memory(const struct ms_http_tensor *shard)
{
    PyObject *memory;

    if (!shard->held)
        return Py_BuildValue("y#i", shard->bytes, (Py_ssize_t)shard->len, 0);
    memory = core_held_new(ms_held_ref(shard->held), CORE_HELD_READS);
    return memory
               ? Py_BuildValue("NK",
                               memory,
                               (unsigned long long)(shard->bytes - shard->held->read))
               : NULL;
}

/* (id): (type, dtype, shape as JSON, (memory, offset), bytes), or None */
PyObject *host_shard_find(PyObject *self, PyObject *id)
{
    struct ms_worker_http *http = http_of(self);
    struct ms_http_tensors *s = http ? ms_worker_http_shards(http) : NULL;
    const char *text = PyUnicode_AsUTF8AndSize(id, NULL);
    struct ms_http_tensor *shard =
        text && s ? ms_http_tensors_find(s, text, ms_now_ns()) : NULL;
    PyObject *found;

    if (!shard)
        return text ? Py_NewRef(Py_None) : NULL;
    found = Py_BuildValue("sssNK",
                          shard->type,
                          shard->dtype,
                          shard->shape,
                          shard_memory(shard),
                          (unsigned long long)shard->len);
    ms_http_tensor_unref(s, shard);
    return found;
}

/* (id): whether it was there */
PyObject *host_shard_remove(PyObject *self, PyObject *id)
{
    struct ms_worker_http *http = http_of(self);
    const char *text = PyUnicode_AsUTF8AndSize(id, NULL);

    if (!text)
        return NULL;
    return PyBool_FromLong(http &&
                           ms_http_tensors_remove(ms_worker_http_shards(http), text));
}
