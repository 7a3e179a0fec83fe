#include "core.h"

#include "base/cleanup.h"

#include <string.h>

static const char *kind_name(Muster__Failure__Kind kind)
{
    static const char *const names[] = {
        [MUSTER__FAILURE__KIND__UNKNOWN] = "unknown",
        [MUSTER__FAILURE__KIND__RAISED] = "raised",
        [MUSTER__FAILURE__KIND__NO_ENGINE] = "no_engine",
        [MUSTER__FAILURE__KIND__NO_METHOD] = "no_method",
        [MUSTER__FAILURE__KIND__DEADLINE] = "deadline",
        [MUSTER__FAILURE__KIND__CANCELLED] = "cancelled",
        [MUSTER__FAILURE__KIND__BAD_ARGUMENT] = "bad_argument",
        [MUSTER__FAILURE__KIND__BAD_RESULT] = "bad_result",
        [MUSTER__FAILURE__KIND__REFUSED] = "refused",
        [MUSTER__FAILURE__KIND__DEADLOCK] = "deadlock",
        [MUSTER__FAILURE__KIND__SHUTTING_DOWN] = "shutting_down",
        [MUSTER__FAILURE__KIND__LOST] = "lost",
        [MUSTER__FAILURE__KIND__WORKER_DIED] = "worker_died",
        [MUSTER__FAILURE__KIND__UNREACHABLE] = "unreachable",
        [MUSTER__FAILURE__KIND__NO_MEMORY] = "no_memory",
        [MUSTER__FAILURE__KIND__PLACEMENT] = "placement",
    };

    if ((unsigned)kind >= sizeof names / sizeof *names)
        return "unknown";
    return names[kind];
}

static PyObject *exit_dict(const Muster__Exit *e)
{
    PyObject *lines;

    if (!e)
        return Py_NewRef(Py_None);
    lines = core_str_list(e->last_lines, e->n_last_lines);
    if (!lines)
        return NULL;
    return Py_BuildValue("{sN si sN sN sN sN si sN sN}",
                         "signaled",
                         PyBool_FromLong(e->signaled),
                         "code",
                         (int)e->code,
                         "out_of_memory",
                         PyBool_FromLong(e->out_of_memory),
                         "requested",
                         PyBool_FromLong(e->requested),
                         "last_lines",
                         lines,
                         "node",
                         core_text(e->node),
                         "pid",
                         (int)e->pid,
                         "detail",
                         core_text(e->detail),
                         "log_path",
                         core_text(e->log_path));
}

static PyObject *failure_exception(const Muster__Failure *f, const char *where)
{
    PyObject *exit = exit_dict(f->exit), *e;

    if (!exit)
        return NULL;
    e = PyObject_CallFunction(core_make_error,
                              "sNNNy#NN",
                              kind_name(f->kind),
                              core_text(f->message),
                              core_text(f->type),
                              core_text(f->traceback),
                              f->exception.len ? (const char *)f->exception.data : "",
                              (Py_ssize_t)f->exception.len,
                              exit,
                              core_text(*f->where ? f->where : where));
    return e;
}

PyObject *core_raise_object(PyObject *e)
{
    if (e)
        PyErr_SetObject((PyObject *)Py_TYPE(e), e);
    return NULL;
}

PyObject *core_failure_object(const uint8_t *body, size_t len, const char *where)
{
    Muster__Failure *f = muster__failure__unpack(NULL, len, body);
    PyObject *e;

    if (!f) {
        PyErr_SetString(core_error, "the worker's failure cannot be read");
        return NULL;
    }
    e = failure_exception(f, where);
    muster__failure__free_unpacked(f, NULL);
    return e;
}

PyObject *core_raise_failure(const uint8_t *body, size_t len, const char *where)
{
    PyObject *e = core_failure_object(body, len, where);

    core_raise_object(e);
    Py_XDECREF(e);
    return NULL;
}

PyObject *core_raise_kind(const char *kind, const char *message, const char *where)
{
    PyObject *e = PyObject_CallFunction(core_make_error,
                                        "ssssy#Os",
                                        kind,
                                        message,
                                        "",
                                        "",
                                        "",
                                        (Py_ssize_t)0,
                                        Py_None,
                                        where);

    core_raise_object(e);
    Py_XDECREF(e);
    return NULL;
}
