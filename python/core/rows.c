/* rows.c - which rows of which blocks a batch has (src/batch) */
#include "rows.h"

#include "base/cleanup.h"

#include <errno.h>
#include <string.h>

/* A new, empty one. */
static struct rows *rows_new(void)
{
    struct rows *self = PyObject_New(struct rows, core_rows.type);

    if (self)
        ms_rows_init(&self->r);
    return self;
}

static void rows_dealloc(PyObject *self)
{
    ms_rows_finish(&((struct rows *)self)->r);
    core_object_free(self);
}

/* The result of an operation; `rows` is taken over. */
static PyObject *done(struct rows *rows, int rc, const struct ms_error *err)
{
    if (rc == 0)
        return (PyObject *)rows;
    Py_XDECREF((PyObject *)rows);
    if (rc == -EINVAL)
        return NULL; /* the exception is set */
    if (rc == -ERANGE)
        PyErr_SetString(PyExc_IndexError, err->text);
    else if (rc == -E2BIG)
        PyErr_SetString(PyExc_OverflowError, "too many rows");
    else
        PyErr_NoMemory();
    return NULL;
}

/* ---- making ----------------------------------------------------------------------- */

static PyObject *rows_create(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    unsigned long long count;
    struct rows *self;

    if (kwargs && PyDict_Size(kwargs) > 0)
        return PyErr_Format(PyExc_TypeError, "Rows(count)");
    if (!PyArg_ParseTuple(args, "K", &count) || !(self = rows_new()))
        return NULL;
    return done(self,
                ms_rows_add(&self->r, (struct ms_row_run){.count = count, .step = 1}),
                NULL);
}

/* concat([(rows, [its block b is this one here, ...]), ...]) */
static int concat_one(struct ms_rows *out, PyObject *rows, PyObject *blocks)
{
    struct ms_rows *from = &((struct rows *)rows)->r;
    Py_ssize_t count = PyList_Size(blocks);
    MS_CLEANUP(ms_cleanup_free)
    struct ms_move *to = calloc((size_t)count + 1, sizeof *to);

    if (!to)
        return -ENOMEM;
    for (Py_ssize_t i = 0; i < count; i++)
        to[i].block = (uint32_t)PyLong_AsUnsignedLong(PyList_GetItem(blocks, i));
    for (size_t i = 0; i < from->run_count; i++)
        if (from->runs[i].block >= (size_t)count)
            return -ERANGE;
    return PyErr_Occurred() ? -EINVAL : ms_rows_append(out, from, to);
}

static PyObject *rows_concat(PyObject *unused, PyObject *args)
{
    struct ms_error err = {.text = "a block is not in the list"};
    struct rows *out;
    PyObject *parts;
    int rc = 0;

    if (!PyArg_ParseTuple(args, "O!", &PyList_Type, &parts) || !(out = rows_new()))
        return NULL;
    for (Py_ssize_t i = 0; i < PyList_Size(parts) && rc == 0; i++) {
        PyObject *rows, *blocks;

        if (!PyArg_ParseTuple(PyList_GetItem(parts, i),
                              "O!O!",
                              core_rows.type,
                              &rows,
                              &PyList_Type,
                              &blocks))
            rc = -EINVAL;
        else
            rc = concat_one(&out->r, rows, blocks);
    }
    return done(out, rc, &err);
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
    MS_CLEANUP(PyBuffer_Release) Py_buffer b = {0};
    struct ms_error err = {0};
    struct rows *out;

    if (rows_buffer(indexes, PyBUF_SIMPLE, 0, &b) < 0 || !(out = rows_new()))
        return NULL;
    return done(out,
                ms_rows_take(&((struct rows *)object)->r,
                             b.buf,
                             (size_t)b.len / sizeof(int64_t),
                             &out->r,
                             &err),
                &err);
}

static PyObject *rows_repeat(PyObject *object, PyObject *args)
{
    unsigned long long times;
    PyObject *number;
    int interleave;
    struct rows *out;

    if (!PyArg_ParseTuple(args, "Op", &number, &interleave))
        return NULL;
    times = PyLong_AsUnsignedLongLong(number); /* "K" would cut off what is too big */
    if (PyErr_Occurred() || !(out = rows_new()))
        return NULL;
    return done(out,
                ms_rows_repeat(&((struct rows *)object)->r, times, interleave, &out->r),
                NULL);
}

/* ---- as bytes --------------------------------------------------------------------- */

static PyObject *rows_reduce(PyObject *object, PyObject *unused)
{
    struct ms_rows *r = &((struct rows *)object)->r;
    PyObject *load = PyObject_GetAttrString((PyObject *)core_rows.type, "load");

    if (!load)
        return NULL;
    return Py_BuildValue("N(y#)",
                         load,
                         r->runs ? (const char *)r->runs : "",
                         (Py_ssize_t)(r->run_count * sizeof *r->runs));
}

static PyObject *rows_load(PyObject *unused, PyObject *args)
{
    struct ms_row_run run;
    const char *bytes;
    Py_ssize_t len;
    struct rows *out;
    int rc = 0;

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

    if (!ms_rows_is_view(r))
        Py_RETURN_NONE;
    return Py_BuildValue("IKL",
                         r->runs[0].block,
                         (unsigned long long)r->runs[0].first,
                         (long long)r->runs[0].step);
}

/* same(rows): they are the same rows, in the same order. False may also mean that it was
 * not found out. */
static PyObject *rows_same(PyObject *object, PyObject *other)
{
    struct ms_rows *a = &((struct rows *)object)->r, *b;

    if (!PyObject_TypeCheck(other, core_rows.type))
        return PyErr_Format(PyExc_TypeError, "same(rows)");
    b = &((struct rows *)other)->r;
    if (a->count != b->count || a->run_count != b->run_count)
        Py_RETURN_FALSE;
    for (size_t i = 0; i < a->run_count; i++)
        if (a->runs[i].block != b->runs[i].block ||
            a->runs[i].first != b->runs[i].first ||
            a->runs[i].count != b->runs[i].count || a->runs[i].step != b->runs[i].step)
            Py_RETURN_FALSE;
    Py_RETURN_TRUE;
}

/* spans(blocks): (block, first, end, count) of each block that has rows here. */
static PyObject *rows_spans(PyObject *object, PyObject *args)
{
    struct ms_rows *r = &((struct rows *)object)->r;
    MS_CLEANUP(ms_cleanup_free) struct ms_span *spans = NULL;
    PyObject *list;
    Py_ssize_t count;

    if (!PyArg_ParseTuple(args, "n", &count))
        return NULL;
    spans = calloc((size_t)count + 1, sizeof *spans);
    if (!spans)
        return PyErr_NoMemory();
    if (ms_rows_spans(r, spans, (size_t)count) < 0)
        return PyErr_Format(PyExc_IndexError, "a row is of a block that is not there");
    list = PyList_New(0);
    for (Py_ssize_t i = 0; list && i < count; i++) {
        if (spans[i].count &&
            !core_append(list,
                         Py_BuildValue("nKKK",
                                       i,
                                       (unsigned long long)spans[i].first,
                                       (unsigned long long)spans[i].end,
                                       (unsigned long long)spans[i].count)))
            Py_CLEAR(list);
    }
    return list;
}

/* moved([(block, first) of each block]): row `first` of it is row 0 of `block` then. */
static PyObject *rows_moved(PyObject *object, PyObject *args)
{
    struct ms_rows *r = &((struct rows *)object)->r;
    MS_CLEANUP(ms_cleanup_free) struct ms_move *to = NULL;
    struct ms_error err = {.text = "a row is of a block that is not there"};
    struct rows *out;
    PyObject *list;
    Py_ssize_t count;

    if (!PyArg_ParseTuple(args, "O!", &PyList_Type, &list))
        return NULL;
    count = PyList_Size(list);
    to = calloc((size_t)count + 1, sizeof *to);
    if (!to)
        return PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < count; i++) {
        unsigned long long first;

        if (!PyArg_ParseTuple(PyList_GetItem(list, i), "IK", &to[i].block, &first))
            return NULL;
        to[i].first = first;
    }
    out = rows_new();
    if (!out)
        return NULL;
    for (size_t i = 0; i < r->run_count; i++)
        if (r->runs[i].block >= (size_t)count)
            return done(out, -ERANGE, &err);
    return done(out, ms_rows_append(&out->r, r, to), &err);
}

/* packed(): (rows, blocks): the same rows, and which blocks they are of: block i of them is
 * blocks[i] here. */
static PyObject *rows_packed(PyObject *object, PyObject *unused)
{
    struct ms_rows *r = &((struct rows *)object)->r;
    MS_CLEANUP(ms_cleanup_free)
    uint32_t *blocks = calloc(r->run_count + 1, sizeof *blocks);
    struct rows *out = blocks ? rows_new() : NULL;
    size_t count = 0;

    if (!blocks)
        return PyErr_NoMemory();
    if (!out || !done(out, ms_rows_append_packed(&out->r, r, blocks, &count), NULL))
        return NULL;
    return Py_BuildValue("NN", out, core_number_list(blocks, count));
}

/* Block and row of every row, for columns of objects: two int64 buffers. */
static PyObject *rows_where(PyObject *object, PyObject *args)
{
    struct ms_rows *r = &((struct rows *)object)->r;
    MS_CLEANUP(PyBuffer_Release) Py_buffer blocks = {0}, rows = {0};
    PyObject *block_object, *row_object;
    uint64_t i = 0;

    if (!PyArg_ParseTuple(args, "OO", &block_object, &row_object) ||
        rows_buffer(block_object, PyBUF_WRITABLE, r->count * 8, &blocks) < 0 ||
        rows_buffer(row_object, PyBUF_WRITABLE, r->count * 8, &rows) < 0)
        return NULL;
    for (size_t at = 0; at < r->run_count; at++)
        for (uint64_t j = 0; j < r->runs[at].count; j++, i++) {
            ((int64_t *)blocks.buf)[i] = r->runs[at].block;
            ((int64_t *)rows.buf)[i] =
                (int64_t)r->runs[at].first + r->runs[at].step * (int64_t)j;
        }
    Py_RETURN_NONE;
}

/* ---- the type --------------------------------------------------------------------- */

static PyMethodDef rows_methods[] = {
    {"concat", rows_concat, METH_VARARGS | METH_STATIC, NULL},
    {"load", rows_load, METH_VARARGS | METH_STATIC, NULL},
    {"slice", rows_slice, METH_VARARGS, NULL},
    {"take", rows_take, METH_O, NULL},
    {"repeat", rows_repeat, METH_VARARGS, NULL},
    {"same", rows_same, METH_O, NULL},
    {"spans", rows_spans, METH_VARARGS, NULL},
    {"moved", rows_moved, METH_VARARGS, NULL},
    {"packed", rows_packed, METH_NOARGS, NULL},
    {"where", rows_where, METH_VARARGS, NULL},
    {"gather", rows_gather, METH_VARARGS, NULL},
    {"gather_ragged", rows_gather_ragged, METH_VARARGS, NULL},
    {"__reduce__", rows_reduce, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL}};

static PyGetSetDef rows_getset[] = {{"view", rows_view, NULL, NULL, NULL},
                                    {NULL, NULL, NULL, NULL, NULL}};

static PyType_Slot rows_slots[] = {{Py_tp_new, (void *)(uintptr_t)rows_create},
                                   {Py_tp_dealloc, (void *)(uintptr_t)rows_dealloc},
                                   {Py_sq_length, (void *)(uintptr_t)rows_length},
                                   {Py_tp_methods, rows_methods},
                                   {Py_tp_getset, rows_getset},
                                   {0, NULL}};

struct core_type core_rows = {
    .name = "muster._core.Rows", .size = sizeof(struct rows), .slots = rows_slots};

PyMethodDef core_rows_functions[] = {{"partition", rows_partition, METH_VARARGS, NULL},
                                     {NULL, NULL, 0, NULL}};
