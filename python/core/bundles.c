/* The bundles of placement groups and reservations, from Python to messages. */
#include "head_object.h"

#include <stdlib.h>

struct bundle {
    Muster__BundleSpec message;
    Muster__NamedAmount *resources, **resource_list;
    Muster__LabelCondition *labels, **label_list;
};

static void bundle_free(struct bundle *b)
{
    free(b->resources);
    free(b->resource_list);
    free(b->labels);
    free(b->label_list);
}

static int resources_parse(PyObject *list, struct bundle *b)
{
    size_t n = (size_t)PyList_Size(list);

    b->resources = calloc(n, sizeof *b->resources);
    b->resource_list = calloc(n, sizeof(Muster__NamedAmount *));
    if (!b->resources || !b->resource_list) {
        PyErr_NoMemory();
        return -1;
    }
    for (size_t i = 0; i < n; i++) {
        unsigned long long amount;

        muster__named_amount__init(&b->resources[i]);
        if (!PyArg_ParseTuple(PyList_GetItem(list, (Py_ssize_t)i),
                              "sK",
                              &b->resources[i].name,
                              &amount))
            return -1;
        b->resources[i].amount = amount;
        b->resource_list[i] = &b->resources[i];
    }
    b->message.resources = b->resource_list;
    b->message.n_resources = n;
    return 0;
}

static int labels_parse(PyObject *list, struct bundle *b)
{
    size_t n = (size_t)PyList_Size(list);

    b->labels = calloc(n, sizeof *b->labels);
    b->label_list = calloc(n, sizeof(Muster__LabelCondition *));
    if (!b->labels || !b->label_list) {
        PyErr_NoMemory();
        return -1;
    }
    for (size_t i = 0; i < n; i++) {
        muster__label_condition__init(&b->labels[i]);
        if (!PyArg_ParseTuple(PyList_GetItem(list, (Py_ssize_t)i),
                              "ss",
                              &b->labels[i].name,
                              &b->labels[i].condition))
            return -1;
        b->label_list[i] = &b->labels[i];
    }
    b->message.labels = b->label_list;
    b->message.n_labels = n;
    return 0;
}

/* (count, cpu_milli, memory, devices, share_milli, device_memory, kind, one_domain,
 * resources, labels), whose texts are borrowed. */
static int bundle_parse(PyObject *item, struct bundle *b)
{
    Muster__BundleSpec *m = &b->message;
    unsigned long long cpu_milli, memory, device_memory;
    PyObject *resources, *labels;
    int one_domain;

    muster__bundle_spec__init(m);
    if (!PyArg_ParseTuple(item,
                          "IKKIIKspO!O!",
                          &m->count,
                          &cpu_milli,
                          &memory,
                          &m->devices,
                          &m->share_milli,
                          &device_memory,
                          &m->kind,
                          &one_domain,
                          &PyList_Type,
                          &resources,
                          &PyList_Type,
                          &labels))
        return -1;
    m->cpu_milli = cpu_milli;
    m->memory = memory;
    m->device_memory = device_memory;
    m->one_domain = one_domain;
    if (PyList_Size(resources) && resources_parse(resources, b) < 0)
        return -1;
    return PyList_Size(labels) ? labels_parse(labels, b) : 0;
}

void head_bundles_free(struct head_bundles *b)
{
    for (size_t i = 0; b->own && i < b->count; i++)
        bundle_free(&b->own[i]);
    free(b->own);
    free(b->list);
}

int head_bundles_parse(PyObject *list, struct head_bundles *b, Muster__PlaceGroup *out)
{
    b->count = (size_t)PyList_Size(list);
    b->own = calloc(b->count + 1, sizeof *b->own);
    b->list = calloc(b->count + 1, sizeof(Muster__BundleSpec *));
    if (!b->own || !b->list) {
        PyErr_NoMemory();
        return -1;
    }
    for (size_t i = 0; i < b->count; i++) {
        if (bundle_parse(PyList_GetItem(list, (Py_ssize_t)i), &b->own[i]) < 0)
            return -1;
        b->list[i] = &b->own[i].message;
    }
    out->bundles = b->list;
    out->n_bundles = b->count;
    return 0;
}
