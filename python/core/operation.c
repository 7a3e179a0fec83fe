/* operation.c - what a head is asked, and what has not been answered yet
 *
 * Any request of proto/muster.proto, by the name of its field in DriverToHead and a dict of its
 * fields. `Head.request(verb, fields, timeout)` waits for the answer, a dict, or None for one
 * that has no fields; what the head refuses is raised as core_raise does. `Head.ask(verb,
 * fields)` only begins it: `Operation.result(timeout)` waits, and a refusal is Refused(text,
 * table, errno), for callers that know what it means. What workers said is raised as their
 * calls would raise it.
 */
#include "head_object.h"
#include "message.h"

#include "base/clock.h"
#include "head/rest/view.h"

#include <errno.h>
#include <string.h>

PyObject *core_refused;

struct operation {
    PyObject_HEAD struct ms_head_op *op;
    PyObject *head;
};

int head_is_running(struct head *h)
{
    if (h->head && h->client && !h->closing)
        return 1;
    PyErr_SetString(core_error, "this head has been stopped");
    return 0;
}

/* NULL with an exception set. */
static struct ms_head_op *begin(struct head *h, const char *verb, PyObject *fields)
{
    const ProtobufCFieldDescriptor *f = protobuf_c_message_descriptor_get_field_by_name(
        &muster__driver_to_head__descriptor, verb);
    ProtobufCMessage *body;
    struct ms_head_op *op;

    if (!head_is_running(h))
        return NULL;
    if (!f || f->type != PROTOBUF_C_TYPE_MESSAGE) {
        PyErr_Format(PyExc_TypeError, "a head cannot be asked for %s", verb);
        return NULL;
    }
    body = core_message_parse(fields, f->descriptor);
    if (!body)
        return NULL;
    op = ms_head_request(h->head, (Muster__DriverToHead__BodyCase)f->id, body);
    protobuf_c_message_free_unpacked(body, NULL);
    if (!op)
        PyErr_NoMemory();
    return op;
}

PyObject *head_ask(PyObject *self, PyObject *args)
{
    struct operation *made;
    struct ms_head_op *op;
    PyObject *fields;
    const char *verb;

    if (!PyArg_ParseTuple(args, "sO!", &verb, &PyDict_Type, &fields))
        return NULL;
    op = begin((struct head *)self, verb, fields);
    made = op ? PyObject_New(struct operation, core_operation.type) : NULL;
    if (!made) {
        ms_head_op_unref(op);
        return NULL;
    }
    made->op = op;
    made->head = Py_NewRef(self);
    return (PyObject *)made;
}

static void operation_dealloc(PyObject *self)
{
    struct operation *o = (struct operation *)self;

    ms_head_op_unref(o->op);
    Py_XDECREF(o->head);
    core_object_free(self);
}

/* ---- what workers said ----------------------------------------------------------- */

/* "actor/3@node": 3. */
static long rank_of(const char *where)
{
    const char *slash = strchr(where, '/');

    return slash ? strtol(slash + 1, NULL, 10) : -1;
}

/* The one of the lowest rank, which tells of the others too. */
static PyObject *raise_workers(const Muster__Failure *all)
{
    MS_CLEANUP(core_unref)
    PyObject *failures = PyDict_New(),
             *together = core_import("muster.errors", "together");

    if (!failures || !together)
        return NULL;
    for (size_t i = 0; i < all->n_workers; i++) {
        MS_CLEANUP(core_unref)
        PyObject *rank = PyLong_FromLong(rank_of(all->workers[i]->where)),
                 *one = core_failure_exception(all->workers[i], "");

        if (!rank || !one || PyDict_SetItem(failures, rank, one) < 0)
            return NULL;
    }
    return core_raise_new(PyObject_CallFunctionObjArgs(together, failures, NULL));
}

/* ---- waiting --------------------------------------------------------------------- */

/* Until it has completed, with signals looked at: 0, or -1 with an exception set. */
static int wait_for(struct ms_head_op *op, PyObject *timeout)
{
    int64_t until_ns;
    int rc;

    if (ms_head_op_result(op, NULL) != -EINPROGRESS)
        return 0;
    if (core_deadline(timeout, MS_NEVER, &until_ns) < 0)
        return -1;
    for (;;) {
        Py_BEGIN_ALLOW_THREADS;
        rc = ms_head_op_wait(op, core_slice(until_ns));
        Py_END_ALLOW_THREADS;
        if (rc == 0)
            return 0;
        if (PyErr_CheckSignals() < 0)
            return -1;
        if (ms_now_ns() >= until_ns) {
            PyErr_SetString(PyExc_TimeoutError, ms_head_op_delay(op));
            return -1;
        }
    }
}

static PyObject *raise_refused(struct ms_head_op *op, const struct ms_error *err)
{
    const char *table = ms_head_op_table(op);
    MS_CLEANUP(core_unref)
    PyObject *args =
        Py_BuildValue("Nsi", core_text(err->text), table ? table : "", -err->code);

    if (args)
        PyErr_SetObject(core_refused, args);
    return NULL;
}

/* What a completed one answered; `is_coded`: a refusal is Refused. */
static PyObject *answer_of(struct ms_head_op *op, bool is_coded)
{
    const Muster__Failure *failure;
    const ProtobufCMessage *m;
    struct ms_error err = {0};

    if (ms_head_op_result(op, &err) < 0) {
        failure = ms_head_op_failure(op);
        if (failure && failure->n_workers)
            return raise_workers(failure);
        return is_coded ? raise_refused(op, &err) : core_raise(&err);
    }
    m = ms_head_op_message(op);
    return m ? core_message_dict(m) : Py_NewRef(Py_None);
}

PyObject *head_request(PyObject *self, PyObject *args)
{
    PyObject *fields, *timeout, *answer = NULL;
    struct ms_head_op *op;
    const char *verb;

    if (!PyArg_ParseTuple(args, "sO!O", &verb, &PyDict_Type, &fields, &timeout))
        return NULL;
    op = begin((struct head *)self, verb, fields);
    if (op && wait_for(op, timeout) == 0)
        answer = answer_of(op, false);
    ms_head_op_unref(op);
    return answer;
}

/* A Status as JSON, as the command line has it. */
static PyObject *print_status(const ProtobufCMessage *status)
{
    json_t *view = ms_view_status((const Muster__Status *)status);
    char *text = view ? json_dumps(view, JSON_COMPACT) : NULL;
    PyObject *out = text ? PyUnicode_FromString(text) : PyErr_NoMemory();

    free(text);
    json_decref(view);
    return out;
}

PyObject *head_status(PyObject *self, PyObject *timeout)
{
    MS_CLEANUP(core_unref)
    PyObject *fields = Py_BuildValue("{sO}", "activity", Py_True);
    struct ms_head_op *op =
        fields ? begin((struct head *)self, "status", fields) : NULL;
    struct ms_error err = {0};
    PyObject *out = NULL;

    if (op && wait_for(op, timeout) == 0)
        out = ms_head_op_result(op, &err) < 0 ? core_raise(&err)
                                              : print_status(ms_head_op_message(op));
    ms_head_op_unref(op);
    return out;
}

static PyObject *operation_result(PyObject *self, PyObject *timeout)
{
    struct ms_head_op *op = ((struct operation *)self)->op;

    return wait_for(op, timeout) < 0 ? NULL : answer_of(op, true);
}

static PyObject *operation_done(PyObject *self, void *unused)
{
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

struct core_type core_operation = {.name = "muster._core.Operation",
                                   .size = sizeof(struct operation),
                                   .slots = operation_slots};

int core_operation_setup(PyObject *module)
{
    core_refused = PyErr_NewException("muster._core.Refused", PyExc_LookupError, NULL);
    return core_refused ? PyModule_AddObjectRef(module, "Refused", core_refused) : -1;
}
