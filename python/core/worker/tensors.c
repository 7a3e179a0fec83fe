/* tensors.c - tensors that a worker keeps for others to fetch by HTTP */
#include "core/worker/host_object.h"
#include "store.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "worker/http/http.h"

/* NULL: this process was forked by the worker, and has none. */
static struct ms_worker_http *http_of(PyObject *self)
{
    struct host *h = (struct host *)self;

    return host_is_forgotten(h) ? NULL : ms_host_http(h->host);
}

/* The bytes [offset, offset + len) of an object of the store. */
static int keep_object(struct ms_worker_http *http,
                       const struct ms_http_tensor *with,
                       PyObject *from,
                       unsigned long long offset)
{
    const struct ms_held *h = core_held_get(from);
    struct ms_error err = {0};
    int rc;

    if (offset > h->len || with->len > h->len - offset)
        return core_fail(PyExc_ValueError, "the object has fewer bytes");
    Py_BEGIN_ALLOW_THREADS;
    rc = ms_worker_http_keep_object(http, with, h, offset, &err);
    Py_END_ALLOW_THREADS;
    if (rc < 0)
        core_store_raise(&err);
    return rc;
}

/* A copy of a buffer. */
static int
keep_copy(struct ms_worker_http *http, struct ms_http_tensor *with, PyObject *from)
{
    struct ms_error err = {0};
    Py_buffer b;
    int rc;

    if (PyObject_GetBuffer(from, &b, PyBUF_C_CONTIGUOUS) < 0)
        return -1;
    with->len = (uint64_t)b.len;
    with->memory = ms_bytes_copy(b.buf, (size_t)b.len);
    PyBuffer_Release(&b);
    if (!with->memory)
        return core_no_memory();
    rc = ms_worker_http_keep(http, with, &err);
    if (rc < 0)
        core_store_raise(&err);
    return rc;
}

/* (id, dtype, shape as JSON, an object of the store, offset, bytes; or a buffer, 0, 0) */
PyObject *host_shard_add(PyObject *self, PyObject *args)
{
    struct ms_http_tensor with = {.type = (char[]){"tensor"}};
    unsigned long long offset, len;
    struct ms_worker_http *http = http_of(self);
    PyObject *from;

    if (!http) {
        PyErr_SetString(core_error,
                        "a process that a worker has forked keeps no tensors");
        return NULL;
    }
    if (!PyArg_ParseTuple(
            args, "sssOKK", &with.id, &with.dtype, &with.shape, &from, &offset, &len))
        return NULL;
    with.len = len;
    if ((PyObject_TypeCheck(from, core_held.type)
             ? keep_object(http, &with, from, offset)
             : keep_copy(http, &with, from)) < 0)
        return NULL;
    Py_RETURN_NONE;
}

/* [(memory, offset, bytes)]: its pieces, which are read from now on. */
static PyObject *shard_objects(const struct ms_http_pieces *p)
{
    MS_CLEANUP(ms_cleanup_free)
    struct ms_stored_name *names = calloc(p->count, sizeof *names);
    MS_CLEANUP(ms_cleanup_free) struct ms_held **held = calloc(p->count, sizeof(*held));
    PyObject *list = names && held ? PyList_New((Py_ssize_t)p->count) : NULL;

    if (!names || !held)
        core_no_memory();
    for (size_t i = 0; list && i < p->count; i++)
        ms_held_name(p->all[i].held, &names[i]);
    if (list && core_store_attach(names, p->count, false, held) < 0)
        Py_CLEAR(list);
    for (size_t i = 0; held && i < p->count; i++) {
        PyObject *memory =
            list ? core_held_new(MS_TAKE(held[i]), CORE_HELD_READS) : NULL;
        PyObject *piece = memory ? Py_BuildValue("NKK",
                                                 memory,
                                                 (unsigned long long)p->all[i].offset,
                                                 (unsigned long long)p->all[i].len)
                                 : NULL;

        ms_held_unref(held[i]);
        if (piece)
            PyList_SetItem(list, (Py_ssize_t)i, piece);
        else
            Py_CLEAR(list);
    }
    return list;
}

/* (id): (type, dtype, shape as JSON, [(memory, offset, bytes)], bytes), or None */
PyObject *host_shard_find(PyObject *self, PyObject *id)
{
    struct ms_worker_http *http = http_of(self);
    struct ms_http_tensors *s = http ? ms_worker_http_shards(http) : NULL;
    const char *text = PyUnicode_AsUTF8AndSize(id, NULL);
    struct ms_http_tensor *shard =
        text && s ? ms_http_tensors_find(s, text, ms_now_ns()) : NULL;
    PyObject *found, *bytes;

    if (!shard)
        return text ? Py_NewRef(Py_None) : NULL;
    bytes = shard->pieces.count ? shard_objects(&shard->pieces)
                                : Py_BuildValue("[(y#iK)]",
                                                shard->memory,
                                                (Py_ssize_t)shard->len,
                                                0,
                                                (unsigned long long)shard->len);
    found = bytes ? Py_BuildValue("sssNK",
                                  shard->type,
                                  shard->dtype,
                                  shard->shape,
                                  bytes,
                                  (unsigned long long)shard->len)
                  : NULL;
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
