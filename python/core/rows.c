#include "core.h"

#include "base/cleanup.h"
#include "batch/gather.h"
#include "batch/partition.h"
#include "batch/rows.h"

#include <errno.h>
#include <string.h>

/* Rows: constant once they are made. */
struct rows {
    PyObject_HEAD struct ms_rows r;
};

static PyTypeObject *rows_type;

/* A new, empty one. */
static struct rows *rows_new(void)
{
    allocfunc alloc = (allocfunc)PyType_GetSlot(rows_type, Py_tp_alloc);
    struct rows *self = (struct rows *)alloc(rows_type, 0);

    if (self)
        ms_rows_init(&self->r);
    return self;
}

static void rows_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);

    ms_rows_finish(&((struct rows *)object)->r);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

/* The result of an operation; `rows` is taken over. */
static PyObject *done(struct rows *rows, int rc, const struct ms_error *err)
{
    if (rc == 0)
        return (PyObject *)rows;
    Py_XDECREF((PyObject *)rows);
    if (rc == -ERANGE)
        PyErr_SetString(PyExc_IndexError, err->text);
    else if (rc == -E2BIG)
        PyErr_SetString(PyExc_OverflowError, "too many rows");
    else
        PyErr_NoMemory();
    return NULL;
}

/* ---- buffers ---------------------------------------------------------------------- */

/* A contiguous buffer with at least this many bytes. */
static int buffer_get(PyObject *object, int flags, size_t bytes, Py_buffer *out)
{
    if (PyObject_GetBuffer(object, out, flags | PyBUF_C_CONTIGUOUS) < 0)
        return -1;
    if ((size_t)out->len >= bytes)
        return 0;
    PyErr_Format(PyExc_ValueError,
                 "a buffer of %zu bytes is needed, this one has %zd",
                 bytes,
                 out->len);
    PyBuffer_Release(out);
    return -1;
}

struct buffers {
    Py_buffer *at;
    Py_ssize_t count;
};

static void buffers_release(struct buffers *b)
{
    for (Py_ssize_t i = 0; i < b->count; i++)
        PyBuffer_Release(&b->at[i]);
    free(b->at);
}

/* One of each element of a list. 0, or -1 with an exception set; release in both cases. */
static int buffers_get(PyObject *list, int flags, struct buffers *out)
{
    Py_ssize_t count = PyList_Size(list);

    *out = (struct buffers){0};
    if (count < 0)
        return -1;
    out->at = calloc((size_t)count + 1, sizeof *out->at);
    if (!out->at) {
        PyErr_NoMemory();
        return -1;
    }
    for (; out->count < count; out->count++)
        if (PyObject_GetBuffer(
                PyList_GetItem(list, out->count), &out->at[out->count], flags) < 0)
            return -1;
    return 0;
}

/* ---- making ----------------------------------------------------------------------- */

static PyObject *rows_create(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    unsigned long long count;
    struct rows *self;

    (void)type;
    if (kwargs && PyDict_Size(kwargs) > 0) {
        PyErr_SetString(PyExc_TypeError, "Rows(count)");
        return NULL;
    }
    if (!PyArg_ParseTuple(args, "K", &count) || !(self = rows_new()))
        return NULL;
    return done(
        self, ms_rows_add(&self->r, (struct ms_run){.count = count, .step = 1}), NULL);
}

/* concat([(rows, [its block b is this one here, ...]), ...]) */
static int concat_one(struct ms_rows *out, PyObject *rows, PyObject *blocks)
{
    struct ms_rows *from = &((struct rows *)rows)->r;
    Py_ssize_t count = PyList_Size(blocks);
    MS_CLEANUP(ms_cleanup_free)
    uint32_t *block_of = calloc((size_t)count + 1, sizeof *block_of);

    if (!block_of)
        return -ENOMEM;
    for (Py_ssize_t i = 0; i < count; i++)
        block_of[i] = (uint32_t)PyLong_AsUnsignedLong(PyList_GetItem(blocks, i));
    for (size_t i = 0; i < from->run_count; i++)
        if (from->runs[i].block >= (size_t)count)
            return -ERANGE;
    return PyErr_Occurred() ? -EINVAL : ms_rows_append(out, from, block_of);
}

static PyObject *rows_concat(PyObject *unused, PyObject *args)
{
    struct ms_error err = {.text = "a block is not in the list"};
    struct rows *out;
    PyObject *parts;
    int rc = 0;

    (void)unused;
    if (!PyArg_ParseTuple(args, "O!", &PyList_Type, &parts) || !(out = rows_new()))
        return NULL;
    for (Py_ssize_t i = 0; i < PyList_Size(parts) && rc == 0; i++) {
        PyObject *rows, *blocks;

        if (!PyArg_ParseTuple(PyList_GetItem(parts, i),
                              "O!O!",
                              rows_type,
                              &rows,
                              &PyList_Type,
                              &blocks))
            rc = -EINVAL;
        else
            rc = concat_one(&out->r, rows, blocks);
    }
    if (!PyErr_Occurred())
        return done(out, rc, &err);
    Py_DECREF((PyObject *)out);
    return NULL;
}

static PyObject *rows_slice(PyObject *object, PyObject *args)
{
    struct ms_error err = {0};
    unsigned long long first, count;
    long long step;
    struct rows *out;

    if (!PyArg_ParseTuple(args, "KKL", &first, &count, &step) || !(out = rows_new()))
        return NULL;
    return done(
        out,
        ms_rows_slice(&((struct rows *)object)->r, first, count, step, &out->r, &err),
        &err);
}

static PyObject *rows_take(PyObject *object, PyObject *indexes)
{
    struct ms_error err = {0};
    struct rows *out;
    Py_buffer b;
    int rc;

    if (buffer_get(indexes, PyBUF_SIMPLE, 0, &b) < 0)
        return NULL;
    out = rows_new();
    if (!out) {
        PyBuffer_Release(&b);
        return NULL;
    }
    rc = ms_rows_take(&((struct rows *)object)->r,
                      b.buf,
                      (size_t)b.len / sizeof(int64_t),
                      &out->r,
                      &err);
    PyBuffer_Release(&b);
    return done(out, rc, &err);
}

static PyObject *rows_repeat(PyObject *object, PyObject *args)
{
    unsigned long long times;
    int interleave;
    struct rows *out;

    if (!PyArg_ParseTuple(args, "Kp", &times, &interleave) || !(out = rows_new()))
        return NULL;
    return done(out,
                ms_rows_repeat(&((struct rows *)object)->r, times, interleave, &out->r),
                NULL);
}

/* ---- as bytes --------------------------------------------------------------------- */

static PyObject *rows_reduce(PyObject *object, PyObject *unused)
{
    struct ms_rows *r = &((struct rows *)object)->r;
    PyObject *load = PyObject_GetAttrString((PyObject *)rows_type, "load");

    (void)unused;
    if (!load)
        return NULL;
    return Py_BuildValue("N(y#)",
                         load,
                         r->runs ? (const char *)r->runs : "",
                         (Py_ssize_t)(r->run_count * sizeof *r->runs));
}

static PyObject *rows_load(PyObject *unused, PyObject *args)
{
    struct ms_run run;
    const char *bytes;
    Py_ssize_t len;
    struct rows *out;
    int rc = 0;

    (void)unused;
    if (!PyArg_ParseTuple(args, "y#", &bytes, &len) || !(out = rows_new()))
        return NULL;
    for (; len >= (Py_ssize_t)sizeof run && rc == 0; len -= (Py_ssize_t)sizeof run) {
        memcpy(&run, bytes, sizeof run);
        bytes += sizeof run;
        rc = ms_rows_add(&out->r, run);
    }
    return done(out, rc, NULL);
}

/* ---- looking ---------------------------------------------------------------------- */

static Py_ssize_t rows_length(PyObject *object)
{
    return (Py_ssize_t)((struct rows *)object)->r.count;
}

/* (block, first, step) if all rows are one run; None. */
static PyObject *rows_view(PyObject *object, void *unused)
{
    struct ms_rows *r = &((struct rows *)object)->r;

    (void)unused;
    if (!ms_rows_is_view(r))
        Py_RETURN_NONE;
    return Py_BuildValue("IKL",
                         r->runs[0].block,
                         (unsigned long long)r->runs[0].first,
                         (long long)r->runs[0].step);
}

/* The blocks that have rows here, growing. */
static PyObject *rows_blocks(PyObject *object, void *unused)
{
    struct ms_rows *r = &((struct rows *)object)->r;
    PyObject *set = PySet_New(NULL);
    PyObject *list;

    (void)unused;
    for (size_t i = 0; set && i < r->run_count; i++) {
        PyObject *block;

        if (i > 0 && r->runs[i].block == r->runs[i - 1].block)
            continue;
        block = PyLong_FromUnsignedLong(r->runs[i].block);
        if (!block || PySet_Add(set, block) < 0)
            Py_CLEAR(set);
        Py_XDECREF(block);
    }
    list = set ? PySequence_List(set) : NULL;
    Py_XDECREF(set);
    if (list && PyList_Sort(list) < 0)
        Py_CLEAR(list);
    return list;
}

/* Block and row of every row, for columns of objects: two int64 buffers. */
static PyObject *rows_where(PyObject *object, PyObject *args)
{
    struct ms_rows *r = &((struct rows *)object)->r;
    PyObject *block_object, *row_object;
    Py_buffer blocks, rows;
    uint64_t i = 0;

    if (!PyArg_ParseTuple(args, "OO", &block_object, &row_object) ||
        buffer_get(block_object, PyBUF_WRITABLE, r->count * 8, &blocks) < 0)
        return NULL;
    if (buffer_get(row_object, PyBUF_WRITABLE, r->count * 8, &rows) < 0) {
        PyBuffer_Release(&blocks);
        return NULL;
    }
    for (size_t at = 0; at < r->run_count; at++)
        for (uint64_t j = 0; j < r->runs[at].count; j++, i++) {
            ((int64_t *)blocks.buf)[i] = r->runs[at].block;
            ((int64_t *)rows.buf)[i] =
                (int64_t)r->runs[at].first + r->runs[at].step * (int64_t)j;
        }
    PyBuffer_Release(&blocks);
    PyBuffer_Release(&rows);
    Py_RETURN_NONE;
}

/* ---- payload ---------------------------------------------------------------------- */

/* Every row is one of its block's, so that nothing outside of a buffer is read. */
static bool rows_fit(const struct ms_rows *r, const uint64_t *counts, size_t blocks)
{
    for (size_t i = 0; i < r->run_count; i++) {
        const struct ms_run *run = &r->runs[i];
        __int128 last = (__int128)run->first + (__int128)run->step * (run->count - 1);

        if (run->block >= blocks || run->first >= counts[run->block] || last < 0 ||
            last >= (__int128)counts[run->block])
            return false;
    }
    return true;
}

static PyObject *no_fit(void)
{
    PyErr_SetString(PyExc_IndexError, "a row is not in its block");
    return NULL;
}

/* Within a row nothing is left out. */
static bool rows_are_whole(const Py_buffer *p)
{
    Py_ssize_t bytes = p->itemsize;

    for (int d = p->ndim - 1; d > 0; d--) {
        if (p->shape[d] > 1 && p->strides[d] != bytes)
            return false;
        bytes *= p->shape[d];
    }
    return true;
}

static int fixed_parts(const struct buffers *b,
                       size_t row_bytes,
                       struct ms_fixed_part *parts,
                       uint64_t *counts)
{
    for (Py_ssize_t i = 0; i < b->count; i++) {
        const Py_buffer *p = &b->at[i];

        if (p->ndim < 1 || p->strides[0] < 0 || !rows_are_whole(p)) {
            PyErr_SetString(PyExc_ValueError, "whole rows in growing order are needed");
            return -1;
        }
        if (p->shape[0] > 0 && (size_t)p->len / (size_t)p->shape[0] != row_bytes) {
            PyErr_SetString(PyExc_ValueError, "the rows of the blocks differ in size");
            return -1;
        }
        counts[i] = (uint64_t)p->shape[0];
        parts[i] = (struct ms_fixed_part){
            .base = p->buf, .count = counts[i], .stride = (uint64_t)p->strides[0]};
    }
    return 0;
}

/* gather(blocks, row_bytes, out): the rows one after another. A block's rows are
 * contiguous themselves, and at equal distances. */
static PyObject *rows_gather(PyObject *object, PyObject *args)
{
    struct ms_rows *r = &((struct rows *)object)->r;
    PyObject *list, *out_object, *result = NULL;
    MS_CLEANUP(ms_cleanup_free) struct ms_fixed_part *parts = NULL;
    MS_CLEANUP(ms_cleanup_free) uint64_t *counts = NULL;
    Py_ssize_t row_bytes;
    struct buffers b;
    Py_buffer out;

    if (!PyArg_ParseTuple(args, "O!nO", &PyList_Type, &list, &row_bytes, &out_object) ||
        buffer_get(out_object, PyBUF_WRITABLE, r->count * (size_t)row_bytes, &out) < 0)
        return NULL;
    if (buffers_get(list, PyBUF_STRIDES, &b) == 0) {
        parts = calloc((size_t)b.count + 1, sizeof *parts);
        counts = calloc((size_t)b.count + 1, sizeof *counts);
        if (!parts || !counts) {
            PyErr_NoMemory();
        } else if (fixed_parts(&b, (size_t)row_bytes, parts, counts) == 0) {
            if (rows_fit(r, counts, (size_t)b.count)) {
                Py_BEGIN_ALLOW_THREADS;
                ms_gather_fixed(r, parts, (size_t)row_bytes, out.buf);
                Py_END_ALLOW_THREADS;
                result = Py_NewRef(Py_None);
            } else {
                no_fit();
            }
        }
    }
    buffers_release(&b);
    PyBuffer_Release(&out);
    return result;
}

/* Offsets grow and stay within the values. */
static bool offsets_fit(const struct ms_ragged_part *p, uint64_t elements)
{
    if (p->offsets[0] < 0)
        return false;
    for (uint64_t i = 0; i < p->count; i++)
        if (p->offsets[i + 1] < p->offsets[i])
            return false;
    return (uint64_t)p->offsets[p->count] <= elements;
}

static int ragged_parts(const struct buffers *values,
                        const struct buffers *offsets,
                        size_t element_bytes,
                        struct ms_ragged_part *parts,
                        uint64_t *counts)
{
    for (Py_ssize_t i = 0; i < offsets->count; i++) {
        size_t entries = (size_t)offsets->at[i].len / sizeof(int64_t);

        counts[i] = entries > 0 ? entries - 1 : 0;
        parts[i] = (struct ms_ragged_part){.values = values->at[i].buf,
                                           .offsets = offsets->at[i].buf,
                                           .count = counts[i]};
        if (entries == 0 || !element_bytes ||
            !offsets_fit(&parts[i], (size_t)values->at[i].len / element_bytes)) {
            PyErr_SetString(PyExc_ValueError, "offsets must grow within the values");
            return -1;
        }
    }
    return 0;
}

/* With the blocks read and checked. */
static PyObject *ragged_into(const struct ms_rows *r,
                             const struct ms_ragged_part *parts,
                             size_t element_bytes,
                             PyObject *out_object,
                             bool wants_offsets)
{
    size_t bytes = (r->count + 1) * sizeof(int64_t);
    MS_CLEANUP(ms_cleanup_free) int64_t *sums = malloc(bytes);
    Py_buffer out;

    if (!sums)
        return PyErr_NoMemory();
    ms_gather_offsets(r, parts, sums);
    if (!wants_offsets)
        bytes = (size_t)sums[r->count] * element_bytes;
    if (buffer_get(out_object, PyBUF_WRITABLE, bytes, &out) < 0)
        return NULL;
    if (wants_offsets) {
        memcpy(out.buf, sums, bytes);
    } else {
        Py_BEGIN_ALLOW_THREADS;
        ms_gather_ragged(r, parts, element_bytes, out.buf);
        Py_END_ALLOW_THREADS;
    }
    PyBuffer_Release(&out);
    Py_RETURN_NONE;
}

/* gather_ragged(values, offsets, element_bytes, out, wants_offsets): first the offsets
 * of the rows, then, when one knows how many elements there are, the values. */
static PyObject *rows_gather_ragged(PyObject *object, PyObject *args)
{
    struct ms_rows *r = &((struct rows *)object)->r;
    PyObject *value_list, *offset_list, *out, *result = NULL;
    struct buffers values = {0}, offsets = {0};
    Py_ssize_t element_bytes;
    int wants_offsets;

    if (!PyArg_ParseTuple(args,
                          "O!O!nOp",
                          &PyList_Type,
                          &value_list,
                          &PyList_Type,
                          &offset_list,
                          &element_bytes,
                          &out,
                          &wants_offsets))
        return NULL;
    if (buffers_get(value_list, PyBUF_C_CONTIGUOUS, &values) == 0 &&
        buffers_get(offset_list, PyBUF_C_CONTIGUOUS, &offsets) == 0) {
        size_t count = (size_t)offsets.count;
        MS_CLEANUP(ms_cleanup_free)
        struct ms_ragged_part *parts = calloc(count + 1, sizeof *parts);
        MS_CLEANUP(ms_cleanup_free)
        uint64_t *counts = calloc(count + 1, sizeof *counts);

        if (!parts || !counts)
            PyErr_NoMemory();
        else if (values.count != offsets.count)
            PyErr_SetString(PyExc_ValueError, "as many offsets as values are needed");
        else if (ragged_parts(
                     &values, &offsets, (size_t)element_bytes, parts, counts) == 0)
            result =
                rows_fit(r, counts, count)
                    ? ragged_into(r, parts, (size_t)element_bytes, out, wants_offsets)
                    : no_fit();
    }
    buffers_release(&values);
    buffers_release(&offsets);
    return result;
}

/* ---- the type --------------------------------------------------------------------- */

static PyMethodDef rows_methods[] = {
    {"concat", rows_concat, METH_VARARGS | METH_STATIC, NULL},
    {"load", rows_load, METH_VARARGS | METH_STATIC, NULL},
    {"slice", rows_slice, METH_VARARGS, NULL},
    {"take", rows_take, METH_O, NULL},
    {"repeat", rows_repeat, METH_VARARGS, NULL},
    {"where", rows_where, METH_VARARGS, NULL},
    {"gather", rows_gather, METH_VARARGS, NULL},
    {"gather_ragged", rows_gather_ragged, METH_VARARGS, NULL},
    {"__reduce__", rows_reduce, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL}};

static PyGetSetDef rows_getset[] = {{"view", rows_view, NULL, NULL, NULL},
                                    {"blocks", rows_blocks, NULL, NULL, NULL},
                                    {NULL, NULL, NULL, NULL, NULL}};

static PyType_Slot rows_slots[] = {{Py_tp_new, (void *)(uintptr_t)rows_create},
                                   {Py_tp_dealloc, (void *)(uintptr_t)rows_dealloc},
                                   {Py_sq_length, (void *)(uintptr_t)rows_length},
                                   {Py_tp_methods, rows_methods},
                                   {Py_tp_getset, rows_getset},
                                   {0, NULL}};

static PyType_Spec rows_spec = {.name = "muster._core.Rows",
                                .basicsize = sizeof(struct rows),
                                .flags = Py_TPFLAGS_DEFAULT,
                                .slots = rows_slots};

/* partition(weights, parts, differencing, equal, out): int64 in, uint32 out. */
static PyObject *partition(PyObject *self, PyObject *args)
{
    PyObject *weights_object, *out_object;
    struct ms_error err = {0};
    int differencing, equal, rc;
    unsigned int parts;
    Py_buffer weights, out;
    size_t count;

    (void)self;
    if (!PyArg_ParseTuple(args,
                          "OIppO",
                          &weights_object,
                          &parts,
                          &differencing,
                          &equal,
                          &out_object) ||
        buffer_get(weights_object, PyBUF_SIMPLE, 0, &weights) < 0)
        return NULL;
    count = (size_t)weights.len / sizeof(int64_t);
    if (buffer_get(out_object, PyBUF_WRITABLE, count * sizeof(uint32_t), &out) < 0) {
        PyBuffer_Release(&weights);
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS;
    rc = ms_partition(weights.buf,
                      count,
                      parts,
                      differencing ? MS_PARTITION_DIFFERENCING
                                   : MS_PARTITION_LONGEST_FIRST,
                      equal,
                      out.buf,
                      &err);
    Py_END_ALLOW_THREADS;
    PyBuffer_Release(&weights);
    PyBuffer_Release(&out);
    if (rc == 0)
        Py_RETURN_NONE;
    PyErr_SetString(rc == -ENOMEM ? PyExc_MemoryError : PyExc_ValueError, err.text);
    return NULL;
}

static PyMethodDef functions[] = {{"partition", partition, METH_VARARGS, NULL},
                                  {NULL, NULL, 0, NULL}};

int core_rows_setup(PyObject *module)
{
    rows_type = core_type(module, &rows_spec, "Rows");
    return rows_type ? PyModule_AddFunctions(module, functions) : -1;
}
