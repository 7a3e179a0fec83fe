/* failure.c - failures of workers as exceptions, which muster.errors makes */
#include "core.h"
#include "message.h"

#include "muster/error.h"
#include "wire/client/exit_text.h"

/* Its fields, and in words "how" it ended; None: not known. */
static PyObject *exit_dict(const Muster__Exit *e)
{
    PyObject *dict = e ? core_message_dict(&e->base) : Py_NewRef(Py_None);
    MS_CLEANUP(core_unref) PyObject *how = NULL;
    char text[MS_EXIT_TEXT_MAX];

    if (!e || !dict)
        return dict;
    how = core_text(ms_exit_describe(e, text));
    if (!how || PyDict_SetItemString(dict, "how", how) < 0)
        Py_CLEAR(dict);
    return dict;
}

PyObject *core_failure_exception(const Muster__Failure *f, const char *where)
{
    PyObject *exit = exit_dict(f->exit);

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

PyObject *core_exception_copy(PyObject *e)
{
    MS_CLEANUP(core_unref) PyObject *copy = core_import("muster.errors", "copy_of");

    return copy ? PyObject_CallFunctionObjArgs(copy, e, NULL) : NULL;
}

static PyObject *failure_object(const uint8_t *body, size_t len, const char *where)
{
    Muster__Failure *f = muster__failure__unpack(NULL, len, body);
    PyObject *e;

    if (!f)
        return PyErr_Format(core_error, "the worker's failure cannot be read");
    e = core_failure_exception(f, where);
    muster__failure__free_unpacked(f, NULL);
    return e;
}

PyObject *core_raise_new(PyObject *e)
{
    if (e)
        PyErr_SetObject((PyObject *)Py_TYPE(e), e);
    Py_XDECREF(e);
    return NULL;
}

PyObject *core_raise_failure(const uint8_t *body, size_t len, const char *where)
{
    return core_raise_new(failure_object(body, len, where));
}

PyObject *core_raise_kind(const char *kind, const char *format, ...)
{
    PyObject *message;
    va_list args;

    va_start(args, format);
    message = PyUnicode_FromFormatV(format, args);
    va_end(args);
    if (!message)
        return NULL;
    return core_raise_new(PyObject_CallFunction(
        core_make_error, "sNssyOs", kind, message, "", "", "", Py_None, ""));
}
