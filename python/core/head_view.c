#include "head_object.h"

#include "io/addr.h"
#include "io/session/session.h"
#include "session/env.h"
#include "session/find.h"

#include <errno.h>
#include <string.h>

/* The head's status; the operation holds it. NULL with an exception set. */
static const Muster__Status *
ask_status(struct head *h, PyObject *timeout, struct ms_head_op **op)
{
    if (!head_is_running(h))
        return NULL;
    *op = ms_head_status(h->head);
    if (head_op_finish(*op, timeout) == 0)
        return (const Muster__Status *)ms_head_op_message(*op);
    ms_head_op_unref(*op);
    return NULL;
}

/* Append and give away; false with an exception set. */
static bool append(PyObject *list, PyObject *item)
{
    bool ok = item && PyList_Append(list, item) == 0;

    Py_XDECREF(item);
    return ok;
}

static PyObject *device_tuple(const Muster__Device *d)
{
    return Py_BuildValue("ssssKIiss",
                         d->kind,
                         d->vendor,
                         d->id,
                         d->variable,
                         (unsigned long long)d->memory,
                         (unsigned)d->domain,
                         (int)d->numa,
                         d->pci,
                         d->model);
}

static PyObject *device_list(const Muster__NodeShape *s)
{
    PyObject *list = PyList_New(0);

    for (size_t i = 0; list && s && i < s->n_devices; i++)
        if (!append(list, device_tuple(s->devices[i])))
            Py_CLEAR(list);
    return list;
}

static PyObject *resource_list(const Muster__NodeShape *s)
{
    PyObject *list = PyList_New(0);

    for (size_t i = 0; list && s && i < s->n_resources; i++)
        if (!append(list,
                    Py_BuildValue("sK",
                                  s->resources[i]->name,
                                  (unsigned long long)s->resources[i]->amount)))
            Py_CLEAR(list);
    return list;
}

/* The arguments of muster.Node. */
PyObject *head_node_tuple(const Muster__NodeStatus *n)
{
    return Py_BuildValue("sIKINNNNsiNN",
                         n->name,
                         (unsigned)n->cpus,
                         (unsigned long long)n->memory,
                         (unsigned)n->gpus,
                         PyBool_FromLong(n->alive),
                         PyBool_FromLong(n->suspect),
                         core_str_list(n->labels, n->n_labels),
                         core_str_list(n->addresses, n->n_addresses),
                         n->detail,
                         (int)n->agent_pid,
                         device_list(n->shape),
                         resource_list(n->shape));
}

PyObject *head_nodes(PyObject *self, PyObject *timeout)
{
    struct ms_head_op *op = NULL;
    const Muster__Status *s = ask_status((struct head *)self, timeout, &op);
    PyObject *list = s ? PyList_New(0) : NULL;

    for (size_t i = 0; list && i < s->n_nodes; i++)
        if (!append(list, head_node_tuple(s->nodes[i])))
            Py_CLEAR(list);
    if (s)
        ms_head_op_unref(op);
    return list;
}

/* The folder and the name of a node of this machine, whose store is ours; None: there is
 * no such node. */
PyObject *head_store_place(PyObject *self, PyObject *timeout)
{
    struct ms_head_op *op = NULL;
    const Muster__Status *s = ask_status((struct head *)self, timeout, &op);
    PyObject *place = NULL;

    if (!s)
        return NULL;
    for (size_t i = 0; !place && i < s->n_nodes; i++) {
        const Muster__NodeStatus *n = s->nodes[i];

        if (n->alive && n->session_dir[0] && strcmp(n->host_id, ms_host_id()) == 0)
            place = Py_BuildValue("ss", n->session_dir, n->name);
    }
    ms_head_op_unref(op);
    if (!place && !PyErr_Occurred())
        Py_RETURN_NONE;
    return place;
}

/* Name, CPUs, memory and devices of the first one. */
PyObject *head_node(PyObject *self, void *unused)
{
    struct ms_head_op *op = NULL;
    const Muster__Status *s = ask_status((struct head *)self, Py_None, &op);
    PyObject *node = NULL;

    (void)unused;
    if (!s)
        return NULL;
    if (s->n_nodes)
        node = Py_BuildValue("sIKI",
                             s->nodes[0]->name,
                             (unsigned)s->nodes[0]->cpus,
                             (unsigned long long)s->nodes[0]->memory,
                             (unsigned)s->nodes[0]->gpus);
    else
        PyErr_SetString(core_error, "the head has no node");
    ms_head_op_unref(op);
    return node;
}

static PyObject *devices_list(const Muster__WorkerStatus *w)
{
    PyObject *list = PyList_New(0);

    for (size_t i = 0; list && i < w->n_devices; i++)
        if (!append(list, PyLong_FromUnsignedLong(w->devices[i])))
            Py_CLEAR(list);
    return list;
}

static PyObject *worker_tuple(const Muster__WorkerStatus *w)
{
    bool lives = w->state == MUSTER__WORKER_STATE__WORKER_STARTING ||
                 w->state == MUSTER__WORKER_STATE__WORKER_RUNNING;

    return Py_BuildValue("KissIsNNIK",
                         (unsigned long long)w->uid,
                         (int)w->pid,
                         w->address,
                         w->log_path,
                         (unsigned)w->incarnation,
                         w->node,
                         devices_list(w),
                         PyBool_FromLong(lives),
                         (unsigned)w->cpu_milli,
                         (unsigned long long)w->memory);
}

static PyObject *workers_of(const Muster__ClusterStatus *c)
{
    PyObject *workers = PyList_New(0);

    for (size_t i = 0; workers && i < c->n_workers; i++)
        if (!append(workers, worker_tuple(c->workers[i])))
            Py_CLEAR(workers);
    return workers;
}

static PyObject *cluster_tuple(const Muster__ClusterStatus *c)
{
    PyObject *workers = workers_of(c);

    return workers
               ? Py_BuildValue("sNN", c->name, PyBool_FromLong(c->detached), workers)
               : NULL;
}

PyObject *head_clusters(PyObject *self, PyObject *timeout)
{
    struct ms_head_op *op = NULL;
    const Muster__Status *s = ask_status((struct head *)self, timeout, &op);
    PyObject *list = s ? PyList_New(0) : NULL;

    for (size_t i = 0; list && i < s->n_clusters; i++)
        if (!append(list, cluster_tuple(s->clusters[i])))
            Py_CLEAR(list);
    if (s)
        ms_head_op_unref(op);
    return list;
}

/* ---- before there is one --------------------------------------------------------- */

static PyObject *find_head(PyObject *self, PyObject *args)
{
    const char *address, *secret_file;
    struct ms_found_head found = {0};
    struct ms_error err = {0};
    PyObject *result;

    (void)self;
    if (!PyArg_ParseTuple(args, "zz", &address, &secret_file))
        return NULL;
    if (ms_find_head(address, secret_file, &found, &err) < 0)
        return core_raise(&err);
    result = Py_BuildValue("zz", found.address, found.secret_file);
    ms_found_head_finish(&found);
    return result;
}

static PyObject *session_env(PyObject *self, PyObject *driver)
{
    char **from = core_strings(driver), **env;
    PyObject *list;

    (void)self;
    if (!from)
        return NULL;
    env = ms_session_env((const char *const *)from);
    core_strings_free(from);
    if (!env)
        return PyErr_NoMemory();
    list = PyList_New(0);
    for (size_t i = 0; list && env[i]; i++)
        if (!append(list, PyUnicode_DecodeFSDefault(env[i])))
            Py_CLEAR(list);
    ms_session_env_free(env);
    return list;
}

static PyObject *session_root(PyObject *self, PyObject *unused)
{
    char root[MS_SESSION_DIR_MAX];
    struct ms_error err = {0};

    (void)self;
    (void)unused;
    return ms_session_root(root, &err) < 0 ? core_raise(&err)
                                           : PyUnicode_DecodeFSDefault(root);
}

PyMethodDef core_head_functions[] = {{"find_head", find_head, METH_VARARGS, NULL},
                                     {"session_env", session_env, METH_O, NULL},
                                     {"session_root", session_root, METH_NOARGS, NULL},
                                     {NULL, NULL, 0, NULL}};
