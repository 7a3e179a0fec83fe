/* step.c - the argument of an operation as bytes, for the spec of a cluster */
#include "store.h"

#include "base/cleanup.h"
#include "wire/frame.h"

#include <string.h>

static void kept_free(PyObject *kept)
{
    core_hold_unref(PyCapsule_GetPointer(kept, NULL));
}

/* Keeps what an argument refers to in the store. Takes the reference. */
static PyObject *kept_new(struct core_hold *hold)
{
    PyObject *kept = hold ? PyCapsule_New(hold, NULL, kept_free) : Py_NewRef(Py_None);

    if (!kept)
        core_hold_unref(hold);
    return kept;
}

/* The objects that a payload names: a list of StoredName as dicts. */
static PyObject *names_of(const struct core_payload *p, PyObject *body)
{
    PyObject *list = PyList_New(0);
    struct ms_stored_name name;
    struct ms_stored s;
    size_t at = 0;

    if (!list || p->codec != MS_CODEC_STORED ||
        ms_stored_parse(&s,
                        (const uint8_t *)PyBytes_AsString(body),
                        (size_t)PyBytes_Size(body),
                        NULL) < 0)
        return list;
    while (list && ms_stored_next(&s, &at, &name)) {
        if (!core_append(list,
                         Py_BuildValue("{sK sK sK ss# sK sK}",
                                       "node",
                                       (unsigned long long)name.node,
                                       "id",
                                       (unsigned long long)name.id,
                                       "len",
                                       (unsigned long long)name.len,
                                       "address",
                                       name.address,
                                       (Py_ssize_t)name.address_len,
                                       "of",
                                       (unsigned long long)name.of,
                                       "offset",
                                       (unsigned long long)name.offset)))
            Py_CLEAR(list);
    }
    return list;
}

/* (argument, codec, is_call): (codec, bytes, the objects that they name, what keeps those).
 * Of a call the argument is a tuple, the positional ones. */
static PyObject *encode_operation(PyObject *self, PyObject *args)
{
    MS_CLEANUP(core_unref) PyObject *body = NULL;
    PyObject *argument, *result = NULL;
    struct core_payload p;
    int codec, is_call;

    if (!PyArg_ParseTuple(args, "Oip", &argument, &codec, &is_call))
        return NULL;
    if ((is_call ? core_encode_call(argument, Py_None, (uint8_t)codec, &p)
                 : core_encode(argument, (uint8_t)codec, CORE_STORED_CALL, &p)) < 0)
        return NULL;
    body = core_payload_bytes(&p);
    if (body)
        result = Py_BuildValue(
            "BONN", p.codec, body, names_of(&p, body), kept_new(MS_TAKE(p.hold)));
    core_payload_release(&p);
    return result;
}

/* (codec, bytes): what a worker answered. */
static PyObject *decode_answer(PyObject *self, PyObject *args)
{
    PyObject *body;
    int codec;

    if (!PyArg_ParseTuple(args, "iO", &codec, &body))
        return NULL;
    return core_decode_bytes((uint8_t)codec, body);
}

PyMethodDef core_step_functions[] = {
    {"encode_operation", encode_operation, METH_VARARGS, NULL},
    {"decode_answer", decode_answer, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL}};
