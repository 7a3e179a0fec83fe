#include "core.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "resource/mapping.h"
#include "resource/plan.h"

#include <errno.h>
#include <string.h>

struct nodes {
    struct ms_plan_node *at;
    size_t count;
    const char ***held_by; /* of each node; the texts are Python's */
};

static void nodes_free(struct nodes *n)
{
    for (size_t i = 0; n->held_by && i < n->count; i++)
        free(n->held_by[i]);
    free(n->held_by);
    free(n->at);
}

/* A list of str or None, one of each device. */
static const char **holders(PyObject *list, uint32_t devices)
{
    const char **out = calloc((size_t)devices + 1, sizeof *out);

    if (!out) {
        PyErr_NoMemory();
        return NULL;
    }
    for (uint32_t i = 0; i < devices && (Py_ssize_t)i < PyList_Size(list); i++) {
        PyObject *text = PyList_GetItem(list, (Py_ssize_t)i);

        if (text != Py_None)
            out[i] = PyUnicode_AsUTF8AndSize(text, NULL);
        if (PyErr_Occurred()) {
            free(out);
            return NULL;
        }
    }
    return out;
}

static int node_parse(PyObject *item, struct ms_plan_node *node, const char ***held_by)
{
    unsigned long long cpus, memory, memory_held;
    PyObject *list;
    double cpus_held;

    if (!PyArg_ParseTuple(item,
                          "sKKIdKO!;a node is (name, cpus, memory, gpus, cpus held, "
                          "memory held, holders of its devices)",
                          &node->name,
                          &cpus,
                          &memory,
                          &node->devices,
                          &cpus_held,
                          &memory_held,
                          &PyList_Type,
                          &list))
        return -1;
    node->cpu_milli = cpus * 1000;
    node->cpu_milli_held = (uint64_t)(cpus_held * 1000 + 0.5);
    node->memory = memory;
    node->memory_held = memory_held;
    *held_by = holders(list, node->devices);
    node->held_by = *held_by;
    return *held_by ? 0 : -1;
}

/* 0, or -1 with an exception set; nodes_free in both cases. */
static int nodes_parse(PyObject *list, struct nodes *out)
{
    out->count = (size_t)PyList_Size(list);
    out->at = calloc(out->count + 1, sizeof *out->at);
    out->held_by = calloc(out->count + 1, sizeof *out->held_by);
    if (!out->at || !out->held_by) {
        PyErr_NoMemory();
        return -1;
    }
    for (size_t i = 0; i < out->count; i++)
        if (node_parse(
                PyList_GetItem(list, (Py_ssize_t)i), &out->at[i], &out->held_by[i]) < 0)
            return -1;
    return 0;
}

static int devices_from_list(PyObject *list, uint32_t **out, size_t *count)
{
    Py_ssize_t n = PySequence_Size(list);

    if (n < 0)
        return -1;
    *out = calloc((size_t)n + 1, sizeof **out);
    if (!*out) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *item = PySequence_GetItem(list, i);
        unsigned long id = item ? PyLong_AsUnsignedLong(item) : 0;

        Py_XDECREF(item);
        if (PyErr_Occurred())
            return -1;
        if (id > UINT32_MAX) {
            PyErr_Format(PyExc_ValueError, "device_mapping: %lu is no device", id);
            return -1;
        }
        (*out)[i] = (uint32_t)id;
    }
    *count = (size_t)n;
    return 0;
}

/* None, a string as people write it, or a list of ids. */
static int devices_parse(PyObject *mapping, uint32_t **out, size_t *count)
{
    struct ms_error err = {0};
    const char *text;

    if (mapping == Py_None)
        return 0;
    if (!PyUnicode_Check(mapping))
        return devices_from_list(mapping, out, count);
    text = PyUnicode_AsUTF8AndSize(mapping, NULL);
    if (!text)
        return -1;
    if (ms_mapping_parse(text, out, count, &err) == 0)
        return 0;
    PyErr_SetString(PyExc_ValueError, err.text);
    return -1;
}

static PyObject *plan_list(const struct ms_plan *p)
{
    PyObject *list = PyList_New((Py_ssize_t)p->world_size);

    for (uint32_t r = 0; list && r < p->world_size; r++) {
        PyObject *devices = PyList_New((Py_ssize_t)p->devices_per_worker), *pair;

        for (uint32_t d = 0; devices && d < p->devices_per_worker; d++)
            PyList_SetItem(
                devices,
                (Py_ssize_t)d,
                PyLong_FromUnsignedLong(p->devices[r * p->devices_per_worker + d]));
        pair = devices ? Py_BuildValue("IN", (unsigned)p->nodes[r], devices) : NULL;
        if (!pair || PyList_SetItem(list, (Py_ssize_t)r, pair) < 0)
            Py_CLEAR(list);
    }
    return list;
}

/* The sentence and, below it, the table. */
static PyObject *raise_plan(int rc, const struct ms_error *err, struct ms_buf *table)
{
    const char *text = ms_buf_str(table);
    PyObject *type = rc == -ENOSPC ? PyExc_LookupError : PyExc_ValueError;

    if (rc == -ENOMEM || !text)
        return PyErr_NoMemory();
    if (*text)
        PyErr_Format(type, "%s\n%s", err->text, text);
    else
        PyErr_SetString(type, err->text);
    return NULL;
}

static PyObject *make(const struct ms_plan_node *nodes,
                      size_t node_count,
                      const struct ms_plan_request *request)
{
    struct ms_error err = {0};
    struct ms_plan plan = {0};
    struct ms_buf table;
    PyObject *list;
    int rc;

    ms_buf_init(&table);
    rc = ms_plan_make(nodes, node_count, request, &plan, &table, &err);
    list = rc == 0 ? plan_list(&plan) : raise_plan(rc, &err, &table);
    ms_plan_finish(&plan);
    ms_buf_finish(&table);
    return list;
}

static PyObject *plan(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static const char *const names[] = {"nodes",
                                        "cluster",
                                        "world_size",
                                        "device_mapping",
                                        "gpus_per_worker",
                                        "cpus_per_worker",
                                        "memory",
                                        NULL};
    struct ms_plan_request request = {0};
    struct nodes nodes = {0};
    MS_CLEANUP(ms_cleanup_free) uint32_t *devices = NULL;
    PyObject *list, *mapping, *result = NULL;
    unsigned long long memory;
    double cpus;

    (void)self;
    if (!PyArg_ParseTupleAndKeywords(args,
                                     kwargs,
                                     "O!sIOIdK",
                                     CORE_NAMES(names),
                                     &PyList_Type,
                                     &list,
                                     &request.cluster,
                                     &request.world_size,
                                     &mapping,
                                     &request.devices_per_worker,
                                     &cpus,
                                     &memory) ||
        devices_parse(mapping, &devices, &request.device_count) < 0)
        return NULL;
    if (!(cpus >= 0 && cpus < 1e9)) {
        PyErr_SetString(PyExc_ValueError, "num_cpus must not be negative");
        return NULL;
    }
    request.devices = devices;
    request.cpu_milli = (uint64_t)(cpus * 1000 + 0.5);
    request.memory = memory;
    if (nodes_parse(list, &nodes) == 0)
        result = make(nodes.at, nodes.count, &request);
    nodes_free(&nodes);
    return result;
}

PyMethodDef core_plan_methods[] = {
    {"plan", (PyCFunction)(void (*)(void))plan, METH_VARARGS | METH_KEYWORDS, NULL},
    {NULL, NULL, 0, NULL}};
