/* failure.c - failures of workers as exceptions, which muster.errors makes */
#include "core.h"
#include "message.h"

#include "muster/error.h"

PyObject *core_failure_exception(const Muster__Failure *f, const char *where)
{
    PyObject *exit = f->exit ? core_message_dict(&f->exit->base) : Py_NewRef(Py_None);

    if (!exit)
        return NULL;
    return PyObject_CallFunction(
        core_make_error,
        "sNNNy#NN",
        muster_error_kind_name((enum muster_error_kind)f->kind),
        core_text(f->message),
        core_text(f->type),
        core_text(f->traceback),
        f->exception.len ? (const char *)f->exception.data : "",
        (Py_ssize_t)f->exception.len,
        exit,
        core_text(*f->where ? f->where : where));
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

    if (!f)
        return PyErr_Format(core_error, "the worker's failure cannot be read");
    e = core_failure_exception(f, where);
    muster__failure__free_unpacked(f, NULL);
    return e;
}

static PyObject *raise_new(PyObject *e)
{
    core_raise_object(e);
    Py_XDECREF(e);
    return NULL;
}

PyObject *core_raise_failure(const uint8_t *body, size_t len, const char *where)
{
    return raise_new(core_failure_object(body, len, where));
}

PyObject *core_raise_kind(const char *kind, const char *message, const char *where)
{
    return raise_new(PyObject_CallFunction(core_make_error,
                                           "ssssy#Os",
                                           kind,
                                           message,
                                           "",
                                           "",
                                           "",
                                           (Py_ssize_t)0,
                                           Py_None,
                                           where));
}
