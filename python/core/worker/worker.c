/* worker.c - the host of a worker, as a Python object */
#include "core/worker/host_object.h"
#include "message.h"
#include "store.h"

#include "worker/stack.h"

#include <sys/eventfd.h>
#include <sys/mman.h>

struct host *the_host;

static PyObject *host_stop(PyObject *self, PyObject *unused)
{
    ms_server_engine_stop(ms_host_server(((struct host *)self)->host));
    Py_RETURN_NONE;
}

static void wake_async(struct host *h)
{
    uint64_t one = 1;

    if (write(h->async_fd, &one, sizeof one) < 0)
        return; /* a full counter is readable already */
}

/* Both come after the engine's thread has taken a request: the host is there. */
static void on_cancel(void *arg, struct ms_request *r)
{
    wake_async(the_host);
}

static void on_queued(void *arg)
{
    wake_async(the_host);
}

static int host_start(struct host *h, struct ms_host_options *o)
{
    struct ms_error err = {0};

    h->stack_fd = o->python_stack_fd = memfd_create("muster-stack", MFD_CLOEXEC);
    h->async_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    h->found = PyList_New(0);
    if (h->stack_fd < 0 || h->async_fd < 0 || ms_stack_init() < 0) {
        PyErr_SetFromErrno(PyExc_OSError);
        return -1;
    }
    o->on_cancel = on_cancel;
    o->on_queued = on_queued;
    o->on_unread = core_on_unread;
    o->on_stored = core_on_stored;
    o->on_stored_drop = core_hold_unref;
    h->host = ms_host_start(o, &err);
    if (!h->host) {
        PyErr_SetString(PyExc_RuntimeError, err.text);
        return -1;
    }
    the_host = h;
    chain_start(ms_host_boot(h->host)->uid);
    return h->found ? 0 : -1;
}

static PyObject *host_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    struct ms_host_options o = {0};
    PyObject *handler, *resolve, *describe;
    struct host *h;

    if (!PyArg_ParseTuple(args,
                          "iiiOOO",
                          &o.control_fd,
                          &o.listen_fd,
                          &o.listen_tcp_fd,
                          &handler,
                          &resolve,
                          &describe))
        return NULL;
    if (the_host)
        return PyErr_Format(PyExc_RuntimeError, "there is a host in this process");
    h = (struct host *)PyType_GenericAlloc(type, 0);
    if (!h)
        return NULL;
    h->handler = Py_NewRef(handler);
    h->resolve = Py_NewRef(resolve);
    h->describe = Py_NewRef(describe);
    if (host_start(h, &o) < 0)
        return NULL;                 /* the process ends: nothing is taken back */
    return Py_NewRef((PyObject *)h); /* lives as long as the process */
}

static PyObject *host_peer(PyObject *self, PyObject *args)
{
    return core_peer_new(ms_host_client(((struct host *)self)->host), args, self);
}

static PyObject *host_set_engines(PyObject *self, PyObject *list)
{
    struct host *h = (struct host *)self;
    char **names = core_strings(list);
    int rc = -1;

    if (names)
        rc = ms_host_set_engines(
            h->host, (const char *const *)names, (size_t)PyList_Size(list));
    core_strings_free(names);
    if (rc < 0)
        return PyErr_Occurred() ? NULL : PyErr_NoMemory();
    /* what was found may be another engine's now */
    return PyList_SetSlice(h->found, 0, PY_SSIZE_T_MAX, NULL) < 0 ? NULL
                                                                  : Py_NewRef(Py_None);
}

static PyObject *host_become_async(PyObject *self, PyObject *unused)
{
    struct host *h = (struct host *)self;

    h->is_async = true;
    chain_set_async();
    ms_server_engine_is_async(ms_host_server(h->host));
    wake_async(h); /* what waits already */
    return PyLong_FromLong(h->async_fd);
}

static PyObject *host_end(PyObject *self, PyObject *unused)
{
    ms_host_end(((struct host *)self)->host);
    Py_RETURN_NONE;
}

static PyObject *host_forget(PyObject *self, PyObject *unused)
{
    ms_host_forget(((struct host *)self)->host);
    core_store_forget();
    the_host = NULL;
    chain_forget();
    Py_RETURN_NONE;
}

static PyObject *host_hold_port(PyObject *self, PyObject *unused)
{
    struct ms_error err = {0};
    uint32_t port;

    if (ms_host_alloc_ports(((struct host *)self)->host, 1, &port, &err) < 0)
        return core_raise(&err);
    return PyLong_FromUnsignedLong(port);
}

static const Muster__WorkerBoot *boot_of(PyObject *self)
{
    return ms_host_boot(((struct host *)self)->host);
}

/* A field of WorkerBoot; the closure is its name. */
static PyObject *get_boot(PyObject *self, void *name)
{
    return core_message_field(&boot_of(self)->base, name);
}

static PyObject *get_address(PyObject *self, void *unused)
{
    return PyUnicode_FromString(ms_host_address(((struct host *)self)->host));
}

/* Where the head of its session is, and whether to speak TLS there. */
static PyObject *get_head(PyObject *self, void *unused)
{
    static const char *const modes[] = {"auto", "on", "off"};
    const Muster__WorkerBoot *boot = boot_of(self);
    const char *tls = boot->tls < MS_COUNT(modes) ? modes[boot->tls] : modes[0];

    if (boot->head[0])
        return Py_BuildValue("ss", boot->head, tls);
    return Py_BuildValue(
        "Ns", PyUnicode_FromFormat("%s/head.sock", boot->session_dir), tls);
}

static PyObject *get_stack(PyObject *self, void *unused)
{
    return Py_BuildValue(
        "ii", ms_stack_python_signal(), ((struct host *)self)->stack_fd);
}

static PyObject *get_wake_fd(PyObject *self, void *unused)
{
    return PyLong_FromLong(
        ms_server_engine_wake_fd(ms_host_server(((struct host *)self)->host)));
}

static PyMethodDef host_methods[] = {
    {"serve", host_serve, METH_NOARGS, NULL},
    {"stop", host_stop, METH_NOARGS, NULL},
    {"poll", host_poll, METH_NOARGS, NULL},
    {"peer", host_peer, METH_VARARGS, NULL},
    {"set_engines", host_set_engines, METH_O, NULL},
    {"become_async", host_become_async, METH_NOARGS, NULL},
    {"end", host_end, METH_NOARGS, NULL},
    {"terminate", host_terminate, METH_O, NULL},
    {"give_time", host_give_time, METH_O, NULL},
    {"hold", host_hold, METH_O, NULL},
    {"leave", host_leave, METH_NOARGS, NULL},
    {"hold_port", host_hold_port, METH_NOARGS, NULL},
    {"shard_add", host_shard_add, METH_VARARGS, NULL},
    {"shard_find", host_shard_find, METH_O, NULL},
    {"shard_remove", host_shard_remove, METH_O, NULL},
    {"debug_open", host_debug_open, METH_O, NULL},
    {"debug_write", host_debug_write, METH_O, NULL},
    {"debug_read", host_debug_read, METH_O, NULL},
    {"debug_close", host_debug_close, METH_NOARGS, NULL},
    {"forget", host_forget, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL}};

static PyObject *get_changes(PyObject *self, void *unused)
{
    struct host *h = (struct host *)self;

    return PyLong_FromUnsignedLongLong(host_is_forgotten(h) ? 0
                                                            : ms_host_changes(h->host));
}

static char boot_fields[][10] = {
    "uid", "cluster", "rank", "node_name", "sys_path", "preload"};

static PyGetSetDef host_getset[] = {{"uid", get_boot, NULL, NULL, boot_fields[0]},
                                    {"cluster", get_boot, NULL, NULL, boot_fields[1]},
                                    {"rank", get_boot, NULL, NULL, boot_fields[2]},
                                    {"node", get_boot, NULL, NULL, boot_fields[3]},
                                    {"sys_path", get_boot, NULL, NULL, boot_fields[4]},
                                    {"preload", get_boot, NULL, NULL, boot_fields[5]},
                                    {"address", get_address, NULL, NULL, NULL},
                                    {"head", get_head, NULL, NULL, NULL},
                                    {"changes", get_changes, NULL, NULL, NULL},
                                    {"stack", get_stack, NULL, NULL, NULL},
                                    {"is_ending", host_get_is_ending, NULL, NULL, NULL},
                                    {"wake_fd", get_wake_fd, NULL, NULL, NULL},
                                    {NULL, NULL, NULL, NULL, NULL}};

static PyType_Slot host_slots[] = {{Py_tp_new, host_new},
                                   {Py_tp_methods, host_methods},
                                   {Py_tp_getset, host_getset},
                                   {0, NULL}};

struct core_type core_host = {
    .name = "muster._core.Host", .size = sizeof(struct host), .slots = host_slots};

static PyObject *in_worker(PyObject *self, PyObject *unused)
{
    return Py_NewRef(the_host ? (PyObject *)the_host : Py_None);
}

static PyObject *progress(PyObject *self, PyObject *unused)
{
    ms_host_report_progress();
    Py_RETURN_NONE;
}

PyMethodDef core_worker_functions[] = {{"in_worker", in_worker, METH_NOARGS, NULL},
                                       {"progress", progress, METH_NOARGS, NULL},
                                       {NULL, NULL, 0, NULL}};
