/* replay.c - src/generate/replay.h as an object: ROLL's replay buffer
 *
 * What has to wait is told by the result (False or None); muster.roll waits for it. */
#include "core.h"

#include "generate/replay.h"

#include <errno.h>
#include <stddef.h>

struct replay_object {
    PyObject head;
    struct ms_replay *r;
};

static struct ms_replay *replay_get(PyObject *self)
{
    return ((struct replay_object *)self)->r;
}

static PyObject *replay_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static const char *const names[] = {"ratio", "additional", "additional_max", NULL};
    struct ms_error err = {0};
    int additional;
    long long max;
    double ratio;
    PyObject *self;

    if (!PyArg_ParseTupleAndKeywords(
            args, kwargs, "dpL", CORE_NAMES(names), &ratio, &additional, &max))
        return NULL;
    self = ((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0);
    if (!self)
        return NULL;
    ((struct replay_object *)self)->r = ms_replay_create(
        &(struct ms_replay_options){
            .ratio = ratio, .additional = additional, .additional_max = max},
        &err);
    if (replay_get(self))
        return self;
    Py_DECREF(self);
    return err.code == -ENOMEM ? PyErr_NoMemory()
                               : PyErr_Format(PyExc_ValueError, "%s", err.text);
}

static void replay_dealloc(PyObject *self)
{
    ms_replay_destroy(replay_get(self));
    core_object_free(self);
}

static PyObject *wrong(int rc, const char *what)
{
    return rc == -ENOMEM ? PyErr_NoMemory()
                         : PyErr_Format(PyExc_ValueError, "%s", what);
}

/* A prompt's number; -1 with an exception set. */
static int id_of(PyObject *o, uint64_t *id)
{
    *id = PyLong_AsUnsignedLongLong(o);
    return *id == UINT64_MAX && PyErr_Occurred() ? -1 : 0;
}

/* A new list of the numbers, which are freed. */
static PyObject *list_of(struct ms_replay_list *l)
{
    PyObject *list = PyList_New((Py_ssize_t)l->count);

    for (size_t i = 0; list && i < l->count; i++) {
        PyObject *id = PyLong_FromUnsignedLongLong(l->at[i]);

        if (!id || PyList_SetItem(list, (Py_ssize_t)i, id) < 0)
            Py_CLEAR(list);
    }
    ms_replay_list_finish(l);
    return list;
}

/* ---- the budget -------------------------------------------------------------------- */

static PyObject *replay_advance(PyObject *self, PyObject *args)
{
    long long step, batch;
    int rc;

    if (!PyArg_ParseTuple(args, "LL", &step, &batch))
        return NULL;
    rc = ms_replay_advance(replay_get(self), step, batch);
    if (rc < 0)
        return wrong(rc, "a step comes after the one before, while no batch is wanted");
    Py_RETURN_NONE;
}

static PyObject *replay_poll(PyObject *self, PyObject *unused)
{
    uint64_t id;

    if (ms_replay_poll(replay_get(self), &id) < 0)
        return PyErr_NoMemory();
    return PyLong_FromUnsignedLongLong(id);
}

static PyObject *replay_admit(PyObject *self, PyObject *number)
{
    uint64_t id;
    int rc;

    if (id_of(number, &id) < 0)
        return NULL;
    rc = ms_replay_admit(replay_get(self), id);
    if (rc < 0 && rc != -EAGAIN)
        return wrong(rc, "the prompt does not wait for a place");
    return PyBool_FromLong(rc == 0);
}

/* ---- prompts ----------------------------------------------------------------------- */

static PyObject *replay_begin(PyObject *self, PyObject *number)
{
    uint64_t id;
    int64_t step;
    int rc;

    if (id_of(number, &id) < 0)
        return NULL;
    rc = ms_replay_begin(replay_get(self), id, &step);
    if (rc == -EAGAIN)
        Py_RETURN_NONE;
    if (rc == -ECANCELED)
        return PyErr_Format(PyExc_LookupError, "the prompt was aborted");
    if (rc < 0)
        return wrong(rc, "the prompt has no place, or has begun");
    return PyLong_FromLongLong(step);
}

static PyObject *replay_commit(PyObject *self, PyObject *args)
{
    PyObject *number;
    long long samples;
    uint64_t id;
    int rc;

    if (!PyArg_ParseTuple(args, "OL", &number, &samples) || id_of(number, &id) < 0)
        return NULL;
    rc = ms_replay_commit(replay_get(self), id, samples);
    if (rc < 0 && rc != -ECANCELED)
        return wrong(rc, "the prompt has not begun");
    return PyBool_FromLong(rc == 0);
}

static PyObject *replay_abort(PyObject *self, PyObject *number)
{
    uint64_t id;

    if (id_of(number, &id) < 0)
        return NULL;
    ms_replay_abort(replay_get(self), id);
    Py_RETURN_NONE;
}

/* ---- batches ----------------------------------------------------------------------- */

static PyObject *replay_want(PyObject *self, PyObject *samples)
{
    long long n = PyLong_AsLongLong(samples);
    int rc;

    if (n == -1 && PyErr_Occurred())
        return NULL;
    rc = ms_replay_want(replay_get(self), n);
    if (rc < 0)
        return wrong(rc, "a batch is wanted already, or no step has begun");
    Py_RETURN_NONE;
}

static PyObject *replay_take(PyObject *self, PyObject *unused)
{
    struct ms_replay_list taken = {0};
    int rc = ms_replay_take(replay_get(self), &taken);
    PyObject *list;

    if (rc < 0 && rc != -EAGAIN && taken.count == 0) {
        ms_replay_list_finish(&taken);
        return wrong(rc, "no batch is wanted");
    }
    list = list_of(&taken);
    return list ? Py_BuildValue("NO", list, rc == 0 ? Py_True : Py_False) : NULL;
}

static PyObject *replay_unwant(PyObject *self, PyObject *unused)
{
    ms_replay_unwant(replay_get(self));
    Py_RETURN_NONE;
}

static PyObject *replay_gc(PyObject *self, PyObject *unused)
{
    struct ms_replay_list aborted = {0}, dropped = {0};
    PyObject *first, *second;

    if (ms_replay_gc(replay_get(self), &aborted, &dropped) < 0) {
        ms_replay_list_finish(&aborted);
        ms_replay_list_finish(&dropped);
        return PyErr_NoMemory();
    }
    first = list_of(&aborted);
    second = list_of(&dropped);
    if (first && second)
        return Py_BuildValue("NN", first, second);
    Py_XDECREF(first);
    Py_XDECREF(second);
    return NULL;
}

/* ---- the type ---------------------------------------------------------------------- */

#define COUNT(name)                                                                    \
    static PyObject *replay_##name(PyObject *self, void *closure)                      \
    {                                                                                  \
        return PyLong_FromLongLong(                                                    \
            (long long)ms_replay_counts(replay_get(self)).name);                       \
    }
COUNT(budget)
COUNT(running)
COUNT(additional)
COUNT(completed)
COUNT(used)

static PyGetSetDef replay_getset[] = {
    {"budget", replay_budget, NULL, NULL, NULL},
    {"running", replay_running, NULL, NULL, NULL},
    {"additional", replay_additional, NULL, NULL, NULL},
    {"completed", replay_completed, NULL, NULL, NULL},
    {"used", replay_used, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL}};

static PyMethodDef replay_methods[] = {{"advance", replay_advance, METH_VARARGS, NULL},
                                       {"poll", replay_poll, METH_NOARGS, NULL},
                                       {"admit", replay_admit, METH_O, NULL},
                                       {"begin", replay_begin, METH_O, NULL},
                                       {"commit", replay_commit, METH_VARARGS, NULL},
                                       {"abort", replay_abort, METH_O, NULL},
                                       {"want", replay_want, METH_O, NULL},
                                       {"take", replay_take, METH_NOARGS, NULL},
                                       {"unwant", replay_unwant, METH_NOARGS, NULL},
                                       {"gc", replay_gc, METH_NOARGS, NULL},
                                       {NULL, NULL, 0, NULL}};

static PyType_Slot replay_slots[] = {{Py_tp_new, replay_new},
                                     {Py_tp_dealloc, replay_dealloc},
                                     {Py_tp_methods, replay_methods},
                                     {Py_tp_getset, replay_getset},
                                     {0, NULL}};

struct core_type core_replay = {.name = "muster._core.Replay",
                                .size = sizeof(struct replay_object),
                                .slots = replay_slots};
