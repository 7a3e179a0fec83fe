/* mapping.c - what C knows of texts that people write: device mappings, classes, sizes,
 * variables */
#include "core.h"

#include "base/cleanup.h"
#include "base/nearest.h"
#include "base/size.h"
#include "cluster/spec.h"
#include "resource/mapping.h"

static PyObject *device_ids(PyObject *self, PyObject *text)
{
    MS_CLEANUP(ms_cleanup_free) uint32_t *ids = NULL;
    const char *utf8 = PyUnicode_AsUTF8AndSize(text, NULL);
    struct ms_error err = {0};
    size_t count = 0;

    if (!utf8)
        return NULL;
    if (ms_mapping_parse(utf8, &ids, &count, &err) < 0)
        return PyErr_Format(PyExc_ValueError, "%s", err.text);
    return core_number_list(ids, count);
}

static PyObject *class_is_native(PyObject *self, PyObject *name)
{
    const char *utf8 = PyUnicode_AsUTF8AndSize(name, NULL);

    return utf8 ? PyBool_FromLong(ms_class_is_native(utf8)) : NULL;
}

/* Bytes, of a text such as "512MiB"; None: it is no size. */
static PyObject *parse_size(PyObject *self, PyObject *text)
{
    const char *utf8 = PyUnicode_AsUTF8AndSize(text, NULL);
    uint64_t size;

    if (!utf8)
        return NULL;
    if (ms_size_parse(utf8, &size) < 0)
        Py_RETURN_NONE;
    return PyLong_FromUnsignedLongLong(size);
}

/* ValueError for a variable, "NAME=value", that a role cannot have. */
static PyObject *check_env(PyObject *self, PyObject *list)
{
    char **env = core_strings(list);
    struct ms_error err = {0};

    if (!env)
        return NULL;
    ms_role_env_check(env, (size_t)PyList_Size(list), &err);
    core_strings_free(env);
    if (err.code)
        return PyErr_Format(PyExc_ValueError, "%s", err.text);
    Py_RETURN_NONE;
}

/* (word, candidates): (the nearest of a sequence of names, mistakes), or None. */
static PyObject *nearest(PyObject *self, PyObject *args)
{
    struct ms_nearest near = {0};
    PyObject *candidates;

    if (!PyArg_ParseTuple(args, "sO", &near.word, &candidates))
        return NULL;
    for (Py_ssize_t i = 0, n = PySequence_Size(candidates); i < n; i++) {
        PyObject *one = PySequence_GetItem(candidates, i);
        const char *utf8 = one ? PyUnicode_AsUTF8AndSize(one, NULL) : NULL;

        Py_XDECREF(one); /* the sequence holds it */
        if (!utf8)
            return NULL;
        ms_nearest_consider(&near, utf8);
    }
    if (PyErr_Occurred())
        return NULL;
    if (!near.best)
        Py_RETURN_NONE;
    return Py_BuildValue("(sn)", near.best, (Py_ssize_t)near.distance);
}

PyMethodDef core_mapping_functions[] = {
    {"device_ids", device_ids, METH_O, NULL},
    {"parse_size", parse_size, METH_O, NULL},
    {"check_env", check_env, METH_O, NULL},
    {"class_is_native", class_is_native, METH_O, NULL},
    {"nearest", nearest, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL}};
