/* debug.c - the terminal of a worker's debugger, as methods of Host */
#include "core/worker/host_object.h"

#include "worker/debug.h"

#include <errno.h>
#include <string.h>

static struct ms_debug *debug_of(PyObject *self)
{
    return ms_host_debug(((struct host *)self)->host);
}

/* Also of text that is no UTF-8 (surrogates). Borrowed from *bytes. */
static const char *text_of(PyObject *text, PyObject **bytes)
{
    *bytes = PyUnicode_AsEncodedString(text, "utf-8", "backslashreplace");
    return *bytes ? PyBytes_AsString(*bytes) : NULL;
}

PyObject *host_debug_open(PyObject *self, PyObject *where)
{
    MS_CLEANUP(core_unref) PyObject *bytes = NULL;
    const char *text = text_of(where, &bytes);

    return text ? PyBool_FromLong(ms_debug_open(debug_of(self), text)) : NULL;
}

PyObject *host_debug_write(PyObject *self, PyObject *written)
{
    MS_CLEANUP(core_unref) PyObject *bytes = NULL;
    const char *text = text_of(written, &bytes);

    if (!text)
        return NULL;
    ms_debug_write(debug_of(self), text, (size_t)PyBytes_Size(bytes));
    Py_RETURN_NONE;
}

PyObject *host_debug_read(PyObject *self, PyObject *prompt)
{
    MS_CLEANUP(core_unref) PyObject *bytes = NULL;
    MS_CLEANUP(ms_cleanup_free) char *line = NULL;
    const char *text = text_of(prompt, &bytes);
    int rc = -EINTR;

    if (!text)
        return NULL;
    ms_debug_prompt(debug_of(self), text);
    while (rc == -EINTR) {
        Py_BEGIN_ALLOW_THREADS rc = ms_debug_read(debug_of(self), &line);
        Py_END_ALLOW_THREADS if (rc == -EINTR && PyErr_CheckSignals() < 0) return NULL;
    }
    if (rc < 0) {
        errno = -rc;
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    return PyUnicode_DecodeUTF8(line, (Py_ssize_t)strlen(line), "replace");
}

PyObject *host_debug_close(PyObject *self, PyObject *unused)
{
    ms_debug_close(debug_of(self));
    Py_RETURN_NONE;
}
