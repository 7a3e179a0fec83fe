/* dispatch.c - meshes and dispatch modes: the vectors of src/dispatch as Python's lists. */
#include "core.h"

#include "base/cleanup.h"
#include "dispatch/dispatch.h"

#include <limits.h>

/* ---- lists ----------------------------------------------------------------------- */

/* Not called is -1. */
static PyObject *list_of_numbers(const uint32_t *at, uint32_t count)
{
    PyObject *list = PyList_New(0);

    for (uint32_t i = 0; list && i < count; i++)
        if (!core_append(
                list,
                PyLong_FromLongLong(at[i] == MS_NOT_CALLED ? -1 : (long long)at[i])))
            Py_CLEAR(list);
    return list;
}

static PyObject *list_of_bools(const bool *at, uint32_t count)
{
    PyObject *list = PyList_New(0);

    for (uint32_t i = 0; list && i < count; i++)
        if (!core_append(list, PyBool_FromLong(at[i])))
            Py_CLEAR(list);
    return list;
}

/* (chunks, chunk_of_rank, receives_payload, collects, order) */
static PyObject *as_tuple(const struct ms_dispatch *d)
{
    MS_CLEANUP(ms_cleanup_free) uint32_t *order = calloc(d->ranks, sizeof *order);
    uint32_t count;

    if (!order)
        return PyErr_NoMemory();
    count = ms_dispatch_order(d, order);
    return Py_BuildValue("INNNN",
                         (unsigned)d->chunks,
                         list_of_numbers(d->chunk_of_rank, d->ranks),
                         list_of_bools(d->receives_payload, d->ranks),
                         list_of_bools(d->collects, d->ranks),
                         list_of_numbers(order, count));
}

static PyObject *refuse(const struct ms_error *err)
{
    return PyErr_Format(PyExc_ValueError, "%s", err->text);
}

/* ---- modes ----------------------------------------------------------------------- */

/* (mode, [(tp, cp, dp, pp) of each rank]) */
static PyObject *dispatch_vectors(PyObject *self, PyObject *args)
{
    MS_CLEANUP(ms_cleanup_free) struct ms_mesh_rank *at = NULL;
    MS_CLEANUP(ms_dispatch_finish) struct ms_dispatch d = {0};
    enum ms_dispatch_mode mode;
    struct ms_error err = {0};
    const char *name;
    PyObject *list;
    Py_ssize_t n;

    if (!PyArg_ParseTuple(args, "sO!", &name, &PyList_Type, &list))
        return NULL;
    if (ms_dispatch_mode_parse(name, &mode, &err) < 0)
        return refuse(&err);
    n = PyList_Size(list);
    at = calloc((size_t)n + 1, sizeof *at);
    if (!at)
        return PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < n; i++)
        if (!PyArg_ParseTuple(PyList_GetItem(list, i),
                              "IIII",
                              &at[i].tp,
                              &at[i].cp,
                              &at[i].dp,
                              &at[i].pp))
            return NULL;
    if (ms_dispatch_init_ranks(&d, mode, (uint32_t)n, at, &err) < 0)
        return refuse(&err);
    return as_tuple(&d);
}

/* ([(dp_rank, is_collect) of each rank]), as it has registered them. */
static PyObject *dispatch_registered(PyObject *self, PyObject *list)
{
    Py_ssize_t n = PyList_Check(list) ? PyList_Size(list) : 0;
    MS_CLEANUP(ms_cleanup_free)
    uint32_t *dp_rank = calloc((size_t)n + 1, sizeof *dp_rank);
    MS_CLEANUP(ms_cleanup_free)
    bool *collects = calloc((size_t)n + 1, sizeof *collects);
    MS_CLEANUP(ms_dispatch_finish) struct ms_dispatch d = {0};
    struct ms_error err = {0};

    if (!dp_rank || !collects)
        return PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < n; i++) {
        int is_collect;

        if (!PyArg_ParseTuple(PyList_GetItem(list, i), "Ip", &dp_rank[i], &is_collect))
            return NULL;
        collects[i] = is_collect;
    }
    if (ms_dispatch_init_custom(&d, (uint32_t)n, dp_rank, collects, &err) < 0)
        return refuse(&err);
    return as_tuple(&d);
}

/* ---- meshes and rows ------------------------------------------------------------- */

/* (world_size, tp, cp, dp, pp, ep), 0 for what is not given: where each rank is. */
static PyObject *mesh_ranks(PyObject *self, PyObject *args)
{
    struct ms_error err = {0};
    unsigned world;
    struct ms_mesh m;
    PyObject *list;

    if (!PyArg_ParseTuple(args, "IIIIII", &world, &m.tp, &m.cp, &m.dp, &m.pp, &m.ep))
        return NULL;
    if (ms_mesh_fit(&m, world, &err) < 0)
        return refuse(&err);
    list = PyList_New(0);
    for (uint32_t rank = 0; list && rank < world; rank++) {
        struct ms_mesh_rank at = ms_mesh_at(&m, rank);

        if (!core_append(list, Py_BuildValue("IIII", at.tp, at.cp, at.dp, at.pp)))
            Py_CLEAR(list);
    }
    return list;
}

/* (rows, chunks): where each chunk begins, and the end. */
static PyObject *chunk_bounds(PyObject *self, PyObject *args)
{
    unsigned long long rows;
    unsigned chunks;
    PyObject *list;

    if (!PyArg_ParseTuple(args, "KI", &rows, &chunks))
        return NULL;
    if (chunks == 0 || chunks > MS_MESH_RANKS_MAX || rows > PY_SSIZE_T_MAX)
        return PyErr_Format(PyExc_ValueError, "rows cannot be divided so");
    list = PyList_New(0);
    for (uint32_t i = 0; list && i <= chunks; i++) {
        uint64_t first = rows, count;

        if (i < chunks)
            ms_chunk_rows(rows, chunks, i, &first, &count);
        if (!core_append(list, PyLong_FromUnsignedLongLong(first)))
            Py_CLEAR(list);
    }
    return list;
}

PyMethodDef core_dispatch_functions[] = {
    {"dispatch_vectors", dispatch_vectors, METH_VARARGS, NULL},
    {"dispatch_registered", dispatch_registered, METH_O, NULL},
    {"mesh_ranks", mesh_ranks, METH_VARARGS, NULL},
    {"chunk_bounds", chunk_bounds, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL}};
