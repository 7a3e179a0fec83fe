/* operation.c - what a head was asked and has not answered yet
 *
 * `Head.ask(verb, fields)` begins any request of proto/muster.proto, by the name of its field
 * in DriverToHead; `Operation.result(timeout)` waits for the answer, a dict, or None for one
 * that says nothing. Refusals are Refused(text, table, errno): the caller knows what they mean. What workers said is raised as their calls would raise it.
 */
#include "head_object.h"
#include "message.h"

#include "base/cleanup.h"

#include <errno.h>
#include <string.h>

PyObject *core_refused;
static PyTypeObject *operation_type;

struct operation {
    PyObject_HEAD struct ms_head_op *op;
    PyObject *head;
};

PyObject *head_ask(PyObject *self, PyObject *args)
{
    struct head *h = (struct head *)self;
    Muster__DriverToHead *m;
    struct operation *made;
    PyObject *fields, *outer;
    const char *verb;

    if (!PyArg_ParseTuple(args, "sO!", &verb, &PyDict_Type, &fields) ||
        !head_is_running(h))
        return NULL;
    outer = Py_BuildValue("{sO}", verb, fields);
    m = outer ? (Muster__DriverToHead *)core_message_parse(
                    outer, &muster__driver_to_head__descriptor)
              : NULL;
    Py_XDECREF(outer);
    if (!m)
        return NULL;
    made = PyObject_New(struct operation, operation_type);
    if (made) {
        made->op = ms_head_request(h->head, m);
        made->head = Py_NewRef(self);
    }
    muster__driver_to_head__free_unpacked(m, NULL);
    return (PyObject *)made;
}

static void operation_dealloc(PyObject *self)
{
    struct operation *o = (struct operation *)self;
    PyTypeObject *type = Py_TYPE(self);

    ms_head_op_unref(o->op);
    Py_XDECREF(o->head);
    PyObject_Free(self);
    Py_DECREF((PyObject *)type);
}

/* ---- what workers said ----------------------------------------------------------- */

/* "actor/3@node": 3. */
static long rank_of(const char *where)
{
    const char *slash = strchr(where, '/');

    return slash ? strtol(slash + 1, NULL, 10) : -1;
}

static PyObject *exception_of(const Muster__Failure *f)
{
    size_t len = muster__failure__get_packed_size(f);
    MS_CLEANUP(ms_cleanup_free) uint8_t *packed = malloc(len + 1);

    if (!packed)
        return PyErr_NoMemory();
    muster__failure__pack(f, packed);
    return core_failure_object(packed, len, f->where);
}

/* The one of the lowest rank, which tells of the others too. */
static PyObject *raise_workers(const Muster__Failure *all)
{
    PyObject *failures = PyDict_New(), *errors = NULL, *e = NULL;

    for (size_t i = 0; failures && i < all->n_workers; i++) {
        PyObject *rank = PyLong_FromLong(rank_of(all->workers[i]->where));
        PyObject *one = rank ? exception_of(all->workers[i]) : NULL;

        if (!one || PyDict_SetItem(failures, rank, one) < 0)
            Py_CLEAR(failures);
        Py_XDECREF(rank);
        Py_XDECREF(one);
    }
    if (failures)
        errors = PyImport_ImportModule("muster.errors");
    if (errors)
        e = PyObject_CallMethod(errors, "together", "O", failures);
    Py_XDECREF(errors);
    Py_XDECREF(failures);
    core_raise_object(e);
    Py_XDECREF(e);
    return NULL;
}

/* ---- waiting --------------------------------------------------------------------- */

static PyObject *operation_result(PyObject *self, PyObject *timeout)
{
    struct operation *o = (struct operation *)self;
    const Muster__Failure *failure;
    const ProtobufCMessage *m;

    if (head_op_finish_coded(o->op, timeout) < 0) {
        failure = ms_head_op_failure(o->op);
        if (!failure || failure->n_workers == 0)
            return NULL;
        PyErr_Clear();
        return raise_workers(failure);
    }
    m = ms_head_op_message(o->op);
    return m ? core_message_dict(m) : Py_NewRef(Py_None);
}

static PyObject *operation_done(PyObject *self, void *unused)
{
    (void)unused;
    return PyBool_FromLong(ms_head_op_result(((struct operation *)self)->op, NULL) !=
                           -EINPROGRESS);
}

static PyMethodDef operation_methods[] = {{"result", operation_result, METH_O, NULL},
                                          {NULL, NULL, 0, NULL}};

static PyGetSetDef operation_getset[] = {{"done", operation_done, NULL, NULL, NULL},
                                         {NULL, NULL, NULL, NULL, NULL}};

static PyType_Slot operation_slots[] = {{Py_tp_dealloc, operation_dealloc},
                                        {Py_tp_methods, operation_methods},
                                        {Py_tp_getset, operation_getset},
                                        {0, NULL}};
static PyType_Spec operation_spec = {.name = "muster._core.Operation",
                                     .basicsize = sizeof(struct operation),
                                     .flags = Py_TPFLAGS_DEFAULT |
                                              Py_TPFLAGS_DISALLOW_INSTANTIATION,
                                     .slots = operation_slots};

int core_operation_setup(PyObject *module)
{
    core_refused = PyErr_NewException("muster._core.Refused", PyExc_LookupError, NULL);
    if (!core_refused || PyModule_AddObjectRef(module, "Refused", core_refused) < 0)
        return -1;
    operation_type = core_type(module, &operation_spec, "Operation");
    return operation_type ? 0 : -1;
}
