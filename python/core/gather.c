/* gather.c - the rows of a batch as bytes, and parts that weigh the same */
#include "rows.h"

#include "base/cleanup.h"
#include "batch/gather.h"
#include "batch/partition.h"

#include <errno.h>
#include <string.h>

/* ---- buffers ---------------------------------------------------------------------- */

int rows_buffer(PyObject *object, int flags, size_t bytes, Py_buffer *out)
{
    if (PyObject_GetBuffer(object, out, flags | PyBUF_C_CONTIGUOUS) < 0)
        return -1;
    if ((size_t)out->len >= bytes)
        return 0;
    return core_fail(PyExc_ValueError,
                     "a buffer of %zu bytes is needed, this one has %zd",
                     bytes,
                     out->len);
}

/* ---- payload ---------------------------------------------------------------------- */

/* Every row is one of its block's, so that nothing outside of a buffer is read. 0, or -1 with
 * an exception set. */
static int check_rows(const struct ms_rows *r, const uint64_t *counts, size_t blocks)
{
    for (size_t i = 0; i < r->run_count; i++) {
        const struct ms_row_run *run = &r->runs[i];
        __int128 last = (__int128)run->first + (__int128)run->step * (run->count - 1);

        if (run->block >= blocks || run->first >= counts[run->block] || last < 0 ||
            last >= (__int128)counts[run->block])
            return core_fail(PyExc_IndexError, "a row is not in its block");
    }
    return 0;
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

static int fixed_parts(const struct core_buffers *b,
                       size_t row_bytes,
                       struct ms_fixed_part *parts,
                       uint64_t *counts)
{
    for (Py_ssize_t i = 0; i < b->count; i++) {
        const Py_buffer *p = &b->at[i];

        if (p->ndim < 1 || p->strides[0] < 0 || !rows_are_whole(p))
            return core_fail(PyExc_ValueError,
                             "whole rows in growing order are needed");
        if (p->shape[0] > 0 && (size_t)p->len / (size_t)p->shape[0] != row_bytes)
            return core_fail(PyExc_ValueError, "the rows of the blocks differ in size");
        counts[i] = (uint64_t)p->shape[0];
        parts[i] = (struct ms_fixed_part){
            .base = p->buf, .count = counts[i], .stride = (uint64_t)p->strides[0]};
    }
    return 0;
}

/* gather(blocks, row_bytes, out): the rows one after another. A block's rows are
 * contiguous themselves, and at equal distances. */
PyObject *rows_gather(PyObject *object, PyObject *args)
{
    struct ms_rows *r = &((struct rows *)object)->r;
    MS_CLEANUP(ms_cleanup_free) struct ms_fixed_part *parts = NULL;
    MS_CLEANUP(ms_cleanup_free) uint64_t *counts = NULL;
    MS_CLEANUP(core_buffers_finish) struct core_buffers b = {0};
    MS_CLEANUP(PyBuffer_Release) Py_buffer out = {0};
    PyObject *list, *out_object;
    Py_ssize_t row_bytes;

    if (!PyArg_ParseTuple(args, "O!nO", &PyList_Type, &list, &row_bytes, &out_object) ||
        rows_buffer(out_object, PyBUF_WRITABLE, r->count * (size_t)row_bytes, &out) <
            0 ||
        core_buffers_init(&b, list, PyBUF_STRIDES) < 0)
        return NULL;
    parts = calloc((size_t)b.count + 1, sizeof *parts);
    counts = calloc((size_t)b.count + 1, sizeof *counts);
    if (!parts || !counts)
        return PyErr_NoMemory();
    if (fixed_parts(&b, (size_t)row_bytes, parts, counts) < 0 ||
        check_rows(r, counts, (size_t)b.count) < 0)
        return NULL;
    Py_BEGIN_ALLOW_THREADS;
    ms_gather_fixed(r, parts, (size_t)row_bytes, out.buf);
    Py_END_ALLOW_THREADS;
    Py_RETURN_NONE;
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

static int ragged_parts(const struct core_buffers *values,
                        const struct core_buffers *offsets,
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
            !offsets_fit(&parts[i], (size_t)values->at[i].len / element_bytes))
            return core_fail(PyExc_ValueError, "offsets must grow within the values");
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
    MS_CLEANUP(PyBuffer_Release) Py_buffer out = {0};

    if (!sums)
        return PyErr_NoMemory();
    ms_gather_offsets(r, parts, sums);
    if (!wants_offsets)
        bytes = (size_t)sums[r->count] * element_bytes;
    if (rows_buffer(out_object, PyBUF_WRITABLE, bytes, &out) < 0)
        return NULL;
    if (wants_offsets) {
        memcpy(out.buf, sums, bytes);
        Py_RETURN_NONE;
    }
    Py_BEGIN_ALLOW_THREADS;
    ms_gather_ragged(r, parts, element_bytes, out.buf);
    Py_END_ALLOW_THREADS;
    Py_RETURN_NONE;
}

/* gather_ragged(values, offsets, element_bytes, out, wants_offsets): first the offsets
 * of the rows, then, when one knows how many elements there are, the values. */
PyObject *rows_gather_ragged(PyObject *object, PyObject *args)
{
    struct ms_rows *r = &((struct rows *)object)->r;
    MS_CLEANUP(core_buffers_finish) struct core_buffers values = {0}, offsets = {0};
    MS_CLEANUP(ms_cleanup_free) struct ms_ragged_part *parts = NULL;
    MS_CLEANUP(ms_cleanup_free) uint64_t *counts = NULL;
    PyObject *value_list, *offset_list, *out;
    Py_ssize_t element_bytes;
    int wants_offsets;
    size_t count;

    if (!PyArg_ParseTuple(args,
                          "OOnOp",
                          &value_list,
                          &offset_list,
                          &element_bytes,
                          &out,
                          &wants_offsets) ||
        core_buffers_init(&values, value_list, PyBUF_C_CONTIGUOUS) < 0 ||
        core_buffers_init(&offsets, offset_list, PyBUF_C_CONTIGUOUS) < 0)
        return NULL;
    count = (size_t)offsets.count;
    parts = calloc(count + 1, sizeof *parts);
    counts = calloc(count + 1, sizeof *counts);
    if (!parts || !counts)
        return PyErr_NoMemory();
    if (values.count != offsets.count)
        return PyErr_Format(PyExc_ValueError, "as many offsets as values are needed");
    if (ragged_parts(&values, &offsets, (size_t)element_bytes, parts, counts) < 0 ||
        check_rows(r, counts, count) < 0)
        return NULL;
    return ragged_into(r, parts, (size_t)element_bytes, out, wants_offsets);
}

/* ---- parts that weigh the same ---------------------------------------------------- */

PyObject *rows_partition(PyObject *self, PyObject *args)
{
    MS_CLEANUP(PyBuffer_Release) Py_buffer weights = {0}, out = {0};
    PyObject *weights_object, *out_object;
    struct ms_error err = {0};
    int differencing, equal, rc;
    unsigned int parts;
    size_t count;

    if (!PyArg_ParseTuple(args,
                          "OIppO",
                          &weights_object,
                          &parts,
                          &differencing,
                          &equal,
                          &out_object) ||
        rows_buffer(weights_object, PyBUF_SIMPLE, 0, &weights) < 0)
        return NULL;
    count = (size_t)weights.len / sizeof(int64_t);
    if (rows_buffer(out_object, PyBUF_WRITABLE, count * sizeof(uint32_t), &out) < 0)
        return NULL;
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
    if (rc == 0)
        Py_RETURN_NONE;
    return PyErr_Format(
        rc == -ENOMEM ? PyExc_MemoryError : PyExc_ValueError, "%s", err.text);
}
