/* zygote.c - what a zygote is asked and answers (agent/zygotes) */
#include "core.h"

#include "agent/zygotes/process.h"
#include "io/proc.h"

#include <errno.h>

static struct ms_zygote_request request;

static PyObject *raise_errno(int rc)
{
    errno = -rc;
    return PyErr_SetFromErrno(PyExc_OSError);
}

static PyObject *none_or_errno(int rc)
{
    return rc < 0 ? raise_errno(rc) : Py_NewRef(Py_None);
}

/* As they are: a child that decodes and encodes them copies more pages. */
static PyObject *bytes_list(char **texts, size_t count)
{
    PyObject *list = PyList_New(0);

    for (size_t i = 0; list && i < count; i++)
        if (!core_append(list, PyBytes_FromString(texts[i])))
            Py_CLEAR(list);
    return list;
}

static PyObject *spawn_tuple(const Muster__Spawn *s)
{
    return Py_BuildValue("sKN(iii)",
                         "spawn",
                         (unsigned long long)s->uid,
                         bytes_list(s->env, s->n_env),
                         request.fds[MS_SPAWN_CONTROL],
                         request.fds[MS_SPAWN_LISTEN],
                         request.fds[MS_SPAWN_LISTEN_TCP]);
}

static PyObject *request_tuple(const Muster__ZygoteRequest *m)
{
    switch (m->body_case) {
    case MUSTER__ZYGOTE_REQUEST__BODY_SPAWN:
        return spawn_tuple(m->spawn);
    case MUSTER__ZYGOTE_REQUEST__BODY_SETUP:
        return Py_BuildValue("sNN",
                             "setup",
                             core_fs_list(m->setup->sys_path, m->setup->n_sys_path),
                             core_fs_list(m->setup->preload, m->setup->n_preload));
    case MUSTER__ZYGOTE_REQUEST__BODY_DERIVE:
        return Py_BuildValue("sKN",
                             "derive",
                             (unsigned long long)m->derive->uid,
                             core_fs_list(m->derive->preload, m->derive->n_preload));
    default:
        return raise_errno(-EPROTO);
    }
}

static PyObject *wait_for_request(PyObject *args,
                                  int (*wait)(int fd, struct ms_zygote_request *r))
{
    int fd, rc;

    if (!PyArg_ParseTuple(args, "i", &fd))
        return NULL;
    rc = wait(fd, &request); /* one thread: no other waits for the lock */
    if (rc < 0)
        return raise_errno(rc);
    if (rc == MS_ZYGOTE_FORK_SPARE)
        return Py_BuildValue("si", "spare", 0);
    if (rc == 0)
        Py_RETURN_NONE;
    return request_tuple(request.message);
}

static PyObject *zygote_next(PyObject *self, PyObject *args)
{
    return wait_for_request(args, ms_zygote_next);
}

static PyObject *zygote_spare(PyObject *self, PyObject *args)
{
    return wait_for_request(args, ms_zygote_spare);
}

static PyObject *zygote_loaded(PyObject *self, PyObject *args)
{
    MS_CLEANUP(core_unref) PyObject *path = NULL;
    unsigned long long size;
    long long mtime_ns;
    int fd;

    if (!PyArg_ParseTuple(
            args, "iO&KL", &fd, PyUnicode_FSConverter, &path, &size, &mtime_ns))
        return NULL;
    return none_or_errno(ms_zygote_loaded(fd, PyBytes_AsString(path), size, mtime_ns));
}

static PyObject *zygote_changed(PyObject *self, PyObject *args)
{
    MS_CLEANUP(core_unref) PyObject *entry = NULL;
    int fd;

    if (!PyArg_ParseTuple(args, "iO&", &fd, PyUnicode_FSConverter, &entry))
        return NULL;
    return none_or_errno(ms_zygote_changed(fd, PyBytes_AsString(entry)));
}

static PyObject *zygote_ready(PyObject *self, PyObject *args)
{
    const char *problem;
    int fd, forkable;

    if (!PyArg_ParseTuple(args, "isp", &fd, &problem, &forkable))
        return NULL;
    return none_or_errno(ms_zygote_ready(fd, problem, forkable));
}

static PyObject *zygote_started(PyObject *self, PyObject *args)
{
    unsigned long long uid;
    int fd, pid, error;

    if (!PyArg_ParseTuple(args, "iKii", &fd, &uid, &pid, &error))
        return NULL;
    return none_or_errno(ms_zygote_started(fd, uid, pid, error));
}

static PyObject *zygote_child(PyObject *self, PyObject *args)
{
    int fd, rc;

    if (!PyArg_ParseTuple(args, "i", &fd))
        return NULL;
    rc = ms_zygote_child(fd, &request);
    return rc < 0 ? raise_errno(rc) : PyLong_FromLong(rc);
}

static PyObject *zygote_threads(PyObject *self, PyObject *unused)
{
    return PyLong_FromLong(ms_proc_threads());
}

PyMethodDef core_zygote_functions[] = {
    {"zygote_next", zygote_next, METH_VARARGS, NULL},
    {"zygote_spare", zygote_spare, METH_VARARGS, NULL},
    {"zygote_loaded", zygote_loaded, METH_VARARGS, NULL},
    {"zygote_changed", zygote_changed, METH_VARARGS, NULL},
    {"zygote_ready", zygote_ready, METH_VARARGS, NULL},
    {"zygote_started", zygote_started, METH_VARARGS, NULL},
    {"zygote_child", zygote_child, METH_VARARGS, NULL},
    {"zygote_threads", zygote_threads, METH_NOARGS, NULL},
    {"zygote_fill", core_zygote_fill, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL}};
