/* generate.c - the rules of src/generate that Python uses by themselves */
#include "core.h"

#include "generate/staleness.h"

#include <stddef.h>
#include <structmember.h>

struct staleness_object {
    PyObject head;
    struct ms_staleness s;
};

static struct ms_staleness *staleness_get(PyObject *self)
{
    return &((struct staleness_object *)self)->s;
}

static PyObject *staleness_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char concurrent[] = "max_concurrent", batch[] = "batch",
                staleness[] = "max_staleness";
    static char *names[] = {concurrent, batch, staleness, NULL};
    long long c, b, m;
    PyObject *self;

    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "LLL", names, &c, &b, &m))
        return NULL;
    self = ((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (self)
        *staleness_get(self) =
            (struct ms_staleness){.concurrent_max = c, .batch = b, .staleness_max = m};
    return self;
}

static PyObject *staleness_capacity(PyObject *self, PyObject *version)
{
    long long v = PyLong_AsLongLong(version);

    if (v == -1 && PyErr_Occurred())
        return NULL;
    return PyLong_FromLongLong(ms_staleness_capacity(staleness_get(self), v));
}

static PyObject *staleness_recover(PyObject *self, PyObject *version)
{
    long long v = PyLong_AsLongLong(version);

    if (v == -1 && PyErr_Occurred())
        return NULL;
    ms_staleness_recover(staleness_get(self), v);
    Py_RETURN_NONE;
}

static PyObject *staleness_pending_max(PyObject *self, void *closure)
{
    return PyLong_FromLongLong(ms_staleness_pending_max(staleness_get(self)));
}

#define COUNTS(verb)                                                                   \
    static PyObject *staleness_##verb(PyObject *self, PyObject *unused)                \
    {                                                                                  \
        ms_staleness_##verb(staleness_get(self));                                      \
        Py_RETURN_NONE;                                                                \
    }
COUNTS(enqueue)
COUNTS(submit)
COUNTS(accept)
COUNTS(reject)

static PyMethodDef staleness_methods[] = {
    {"capacity", staleness_capacity, METH_O, NULL},
    {"recover", staleness_recover, METH_O, NULL},
    {"enqueue", staleness_enqueue, METH_NOARGS, NULL},
    {"submit", staleness_submit, METH_NOARGS, NULL},
    {"accept", staleness_accept, METH_NOARGS, NULL},
    {"reject", staleness_reject, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL}};

static PyGetSetDef staleness_getset[] = {
    {"pending_max", staleness_pending_max, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL}};

#define MEMBER(name, field, flags)                                                     \
    {                                                                                  \
        name, T_LONGLONG, offsetof(struct staleness_object, s.field), flags, NULL      \
    }
static PyMemberDef staleness_members[] = {
    MEMBER("max_concurrent", concurrent_max, 0), /* limits may change on the way */
    MEMBER("batch", batch, 0),
    MEMBER("max_staleness", staleness_max, 0),
    MEMBER("enqueued", enqueued, READONLY),
    MEMBER("running", running, READONLY),
    MEMBER("accepted", accepted, READONLY),
    MEMBER("rejected", rejected, READONLY),
    {NULL, 0, 0, 0, NULL}};

static PyType_Slot staleness_slots[] = {{Py_tp_new, staleness_new},
                                        {Py_tp_dealloc, core_object_free},
                                        {Py_tp_methods, staleness_methods},
                                        {Py_tp_getset, staleness_getset},
                                        {Py_tp_members, staleness_members},
                                        {0, NULL}};

struct core_type core_staleness = {.name = "muster._core.Staleness",
                                   .size = sizeof(struct staleness_object),
                                   .slots = staleness_slots};
