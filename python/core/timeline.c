/* timeline.c - what happened when, into a file: src/io/session/timeline.h */
#include "head_object.h"

#include "io/session/timeline.h"

#include <errno.h>

/* (file or None): record from now on. */
PyObject *head_record(PyObject *self, PyObject *path)
{
    struct head *h = (struct head *)self;
    PyObject *bytes = NULL;
    struct ms_error err = {0};
    int rc;

    if (!head_is_running(h) ||
        (path != Py_None && !PyUnicode_FSConverter(path, &bytes)))
        return NULL;
    rc = ms_driver_session_record(
        h->driver, bytes ? PyBytes_AsString(bytes) : NULL, &err);
    Py_XDECREF(bytes);
    if (rc < 0)
        return core_raise(&err);
    Py_RETURN_NONE;
}

PyObject *head_record_end(PyObject *self, PyObject *unused)
{
    struct head *h = (struct head *)self;

    if (h->driver)
        ms_timeline_stop(ms_driver_session_timeline(h->driver));
    Py_RETURN_NONE;
}

PyObject *head_is_recording(PyObject *self, void *unused)
{
    struct head *h = (struct head *)self;

    return PyBool_FromLong(h->driver &&
                           ms_timeline_is_on(ms_driver_session_timeline(h->driver)));
}

static PyObject *add(struct head *h, const struct ms_timeline_event *e)
{
    int rc = h->driver ? ms_timeline_add(ms_driver_session_timeline(h->driver), e) : 0;

    if (rc == -EINVAL)
        return PyErr_Format(PyExc_ValueError, "args: a JSON object is needed");
    if (rc == -ENOMEM)
        return PyErr_NoMemory();
    if (rc < 0) {
        errno = -rc;
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    Py_RETURN_NONE;
}

/* (track, name, begin, end, flow, nests, args or None) */
PyObject *head_add_span(PyObject *self, PyObject *args)
{
    struct ms_timeline_event e = {.kind = MS_TIMELINE_SPAN};
    unsigned long long flow;
    long long begin, end;
    int nests;

    if (!PyArg_ParseTuple(
            args, "ssLLKpz", &e.track, &e.name, &begin, &end, &flow, &nests, &e.args))
        return NULL;
    e.begin_ns = begin;
    e.end_ns = end;
    e.flow = flow;
    e.nests = nests;
    return add((struct head *)self, &e);
}

/* (track, name, at, args or None) */
PyObject *head_add_mark(PyObject *self, PyObject *args)
{
    struct ms_timeline_event e = {.kind = MS_TIMELINE_MARK};
    long long at;

    if (!PyArg_ParseTuple(args, "ssLz", &e.track, &e.name, &at, &e.args))
        return NULL;
    e.begin_ns = at;
    return add((struct head *)self, &e);
}

/* (track, name, at, value) */
PyObject *head_add_count(PyObject *self, PyObject *args)
{
    struct ms_timeline_event e = {.kind = MS_TIMELINE_COUNT};
    long long at;

    if (!PyArg_ParseTuple(args, "ssLd", &e.track, &e.name, &at, &e.value))
        return NULL;
    e.begin_ns = at;
    return add((struct head *)self, &e);
}
