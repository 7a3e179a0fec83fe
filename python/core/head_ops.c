#include "head_object.h"

#include "base/clock.h"

#include <errno.h>
#include <string.h>

int head_is_running(struct head *h)
{
    if (h->head && h->client && !h->closing)
        return 1;
    PyErr_SetString(core_error, "this head has been stopped");
    return 0;
}

int head_op_finish(struct ms_head_op *op, PyObject *timeout)
{
    struct ms_error err = {0};
    int64_t until_ns;
    int rc;

    if (!op) {
        PyErr_NoMemory();
        return -1;
    }
    if (core_deadline(timeout, MS_NEVER, &until_ns) < 0)
        return -1;
    for (;;) {
        Py_BEGIN_ALLOW_THREADS;
        rc = ms_head_op_wait(op, core_slice(until_ns));
        Py_END_ALLOW_THREADS;
        if (rc == 0)
            break;
        if (PyErr_CheckSignals() < 0)
            return -1;
        if (ms_now_ns() >= until_ns) {
            PyErr_SetString(PyExc_TimeoutError, ms_head_op_delay(op));
            return -1;
        }
    }
    if (ms_head_op_result(op, &err) < 0) {
        core_raise(&err);
        return -1;
    }
    return 0;
}

int head_op_finish_coded(struct ms_head_op *op, PyObject *timeout)
{
    struct ms_error err = {0};
    const char *table;
    PyObject *args;

    if (ms_head_op_result(op, NULL) == -EINPROGRESS && head_op_finish(op, timeout) == 0)
        return 0;
    if (ms_head_op_result(op, &err) == 0)
        return 0;
    if (!err.code || err.code == -EINPROGRESS)
        return -1; /* it did not come in time, or a signal did */
    PyErr_Clear();
    table = ms_head_op_table(op);
    args = Py_BuildValue("Nsi", core_text(err.text), table ? table : "", -err.code);
    if (args) {
        PyErr_SetObject(PyExc_LookupError, args);
        Py_DECREF(args);
    }
    return -1;
}

struct rank {
    Muster__ZygoteKey key;
    char **python, **preload, **command, **env;
    char *working_dir, *node;
    uint32_t *devices;
};

static size_t strings_count(char **strings)
{
    size_t n = 0;

    while (strings && strings[n])
        n++;
    return n;
}

static int get_strings(PyObject *d, const char *name, char ***out, size_t *count)
{
    PyObject *list = PyDict_GetItemString(d, name);

    *out = NULL;
    *count = 0;
    if (!list || list == Py_None)
        return 0;
    *out = core_strings(list);
    *count = strings_count(*out);
    return *out ? 0 : -1;
}

static int get_number(PyObject *d, const char *name, unsigned long long *out)
{
    PyObject *value = PyDict_GetItemString(d, name);

    *out = 0;
    if (!value || value == Py_None)
        return 0;
    *out = PyLong_AsUnsignedLongLong(value);
    return PyErr_Occurred() ? -1 : 0;
}

static int get_devices(PyObject *d, struct rank *r, struct ms_head_rank *out)
{
    PyObject *list = PyDict_GetItemString(d, "devices");
    Py_ssize_t n = list ? PySequence_Size(list) : 0;

    if (n <= 0)
        return n < 0 ? -1 : 0;
    r->devices = calloc((size_t)n, sizeof *r->devices);
    if (!r->devices) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *item = PySequence_GetItem(list, i);

        r->devices[i] = item ? (uint32_t)PyLong_AsUnsignedLong(item) : 0;
        Py_XDECREF(item);
    }
    out->devices = r->devices;
    out->device_count = (size_t)n;
    return PyErr_Occurred() ? -1 : 0;
}

/* A copy of a text that may be missing; 0, or -1 with an exception set. */
static int get_text(PyObject *d, const char *name, char **out)
{
    PyObject *value = PyDict_GetItemString(d, name);
    const char *text;

    if (!value || value == Py_None)
        return 0;
    text = PyUnicode_AsUTF8AndSize(value, NULL);
    if (!text)
        return -1;
    *out = strdup(text);
    if (*out)
        return 0;
    PyErr_NoMemory();
    return -1;
}

static int rank_parse(PyObject *d, struct rank *r, struct ms_head_rank *out)
{
    Muster__WorkerSpec *spec = &out->spec;
    unsigned long long start_kind, memory, http_open, cpu_milli, detached, beside,
        helps;

    muster__worker_spec__init(spec);
    muster__zygote_key__init(&r->key);
    spec->zygote = &r->key;
    if (get_number(d, "start", &start_kind) < 0 ||
        get_number(d, "memory", &memory) < 0 ||
        get_number(d, "http_open", &http_open) < 0 ||
        get_number(d, "cpu_milli", &cpu_milli) < 0 ||
        get_number(d, "detached", &detached) < 0 ||
        get_number(d, "beside", &beside) < 0 || get_number(d, "helps", &helps) < 0 ||
        get_text(d, "working_dir", &r->working_dir) < 0 ||
        get_text(d, "node", &r->node) < 0 ||
        get_strings(d, "python", &r->python, &r->key.n_python) < 0 ||
        get_strings(d, "preload", &r->preload, &r->key.n_preload) < 0 ||
        get_strings(d, "command", &r->command, &spec->n_command) < 0 ||
        get_strings(d, "env", &r->env, &spec->n_env) < 0 || get_devices(d, r, out) < 0)
        return -1;
    r->key.python = r->python;
    r->key.preload = r->preload;
    spec->command = r->command;
    spec->env = r->env;
    spec->start = (Muster__StartKind)start_kind;
    spec->memory_limit = memory;
    spec->http_open = http_open != 0;
    spec->cpu_milli = (uint32_t)cpu_milli;
    spec->detached = detached != 0;
    spec->beside = beside;
    spec->helps = helps;
    if (beside && r->key.n_python == 0 && r->key.n_preload == 0)
        spec->zygote = NULL; /* as the worker has it */
    out->node = r->node;
    if (r->working_dir)
        spec->working_dir = r->working_dir;
    return 0;
}

static void rank_free(struct rank *r)
{
    core_strings_free(r->python);
    core_strings_free(r->preload);
    core_strings_free(r->command);
    core_strings_free(r->env);
    free(r->working_dir);
    free(r->node);
    free(r->devices);
}

static PyObject *workers_list(const ProtobufCMessage *m)
{
    const Muster__ClusterStatus *status = (const Muster__ClusterStatus *)m;
    PyObject *list = PyList_New((Py_ssize_t)status->n_workers);

    for (size_t i = 0; list && i < status->n_workers; i++) {
        const Muster__WorkerStatus *w = status->workers[i];
        PyObject *item = Py_BuildValue(
            "Kiss", (unsigned long long)w->uid, (int)w->pid, w->address, w->log_path);

        if (!item || PyList_SetItem(list, (Py_ssize_t)i, item) < 0)
            Py_CLEAR(list);
    }
    return list;
}

PyObject *head_create_cluster(PyObject *self, PyObject *args)
{
    struct head *h = (struct head *)self;
    PyObject *list, *timeout, *result = NULL;
    struct ms_head_rank *ranks;
    struct rank *own;
    const char *name;
    Py_ssize_t n;
    int ok = 1;

    if (!PyArg_ParseTuple(args, "sO!O", &name, &PyList_Type, &list, &timeout) ||
        !head_is_running(h))
        return NULL;
    n = PyList_Size(list);
    ranks = calloc((size_t)n + 1, sizeof *ranks);
    own = calloc((size_t)n + 1, sizeof *own);
    for (Py_ssize_t i = 0; ranks && own && ok && i < n; i++)
        ok = rank_parse(PyList_GetItem(list, i), &own[i], &ranks[i]) == 0;
    if (!ranks || !own) {
        PyErr_NoMemory();
    } else if (ok) {
        struct ms_head_op *op = ms_head_create_cluster(h->head, name, ranks, (size_t)n);

        if (head_op_finish(op, timeout) == 0)
            result = workers_list(ms_head_op_message(op));
        ms_head_op_unref(op);
    }
    for (Py_ssize_t i = 0; own && i < n; i++)
        rank_free(&own[i]);
    free(own);
    free(ranks);
    return result;
}

PyObject *head_destroy_cluster(PyObject *self, PyObject *args)
{
    struct head *h = (struct head *)self;
    struct ms_head_op *op;
    PyObject *timeout;
    const char *name;
    unsigned long long uid;
    double grace;
    int rc, own;

    if (!PyArg_ParseTuple(args, "spKdO", &name, &own, &uid, &grace, &timeout) ||
        !head_is_running(h))
        return NULL;
    op = ms_head_destroy_that_cluster(h->head, name, own, uid, core_ns(grace));
    rc = head_op_finish(op, timeout);
    if (rc < 0 && ms_head_op_result(op, NULL) == -ENOENT) {
        PyErr_Clear(); /* it is gone: what was wanted */
        rc = 0;
    }
    ms_head_op_unref(op);
    if (rc < 0)
        return NULL;
    Py_RETURN_NONE;
}

/* (cluster, rank, how to start it or None, whom alone to replace or 0, grace, timeout): the
 * new one, or None. */
PyObject *head_replace(PyObject *self, PyObject *args)
{
    struct head *h = (struct head *)self;
    struct ms_head_rank rank = {0};
    struct rank own = {0};
    PyObject *spec, *timeout, *result = NULL;
    const Muster__WorkerStatus *w;
    const char *cluster;
    unsigned long long only;
    unsigned number;
    double grace;

    if (!PyArg_ParseTuple(
            args, "sIOKdO", &cluster, &number, &spec, &only, &grace, &timeout) ||
        !head_is_running(h))
        return NULL;
    if (spec == Py_None || rank_parse(spec, &own, &rank) == 0) {
        struct ms_head_op *op = ms_head_replace(h->head,
                                                cluster,
                                                number,
                                                spec == Py_None ? NULL : &rank,
                                                only,
                                                core_ns(grace));

        if (head_op_finish(op, timeout) == 0) {
            w = (const Muster__WorkerStatus *)ms_head_op_message(op);
            result = w ? Py_BuildValue("KissI",
                                       (unsigned long long)w->uid,
                                       (int)w->pid,
                                       w->address,
                                       w->log_path,
                                       (unsigned)w->incarnation)
                       : Py_NewRef(Py_None);
        }
        ms_head_op_unref(op);
    }
    rank_free(&own);
    return result;
}

/* (former uid, uid, address, timeout): calls for the former one may go there, from here and
 * from elsewhere. */
PyObject *head_open_worker(PyObject *self, PyObject *args)
{
    struct head *h = (struct head *)self;
    unsigned long long former, uid;
    struct ms_head_op *op;
    const char *address;
    PyObject *timeout;
    int rc;

    if (!PyArg_ParseTuple(args, "KKsO", &former, &uid, &address, &timeout) ||
        !head_is_running(h))
        return NULL;
    op = ms_head_open_worker(h->head, uid);
    rc = head_op_finish(op, timeout);
    ms_head_op_unref(op);
    if (rc < 0 || !head_is_running(h))
        return NULL;
    ms_client_successor(h->client, former, uid, address);
    Py_RETURN_NONE;
}

PyObject *head_hold_port(PyObject *self, PyObject *args)
{
    struct head *h = (struct head *)self;
    const Muster__PortHeld *held;
    struct ms_head_op *op;
    PyObject *timeout, *result = NULL;
    const char *owner, *node;

    if (!PyArg_ParseTuple(args, "szO", &owner, &node, &timeout) || !head_is_running(h))
        return NULL;
    op = ms_head_hold_port_on(h->head, node, owner);
    if (head_op_finish(op, timeout) == 0) {
        held = (const Muster__PortHeld *)ms_head_op_message(op);
        result = Py_BuildValue("sI", held->host, (unsigned)held->port);
    }
    ms_head_op_unref(op);
    return result;
}

PyObject *head_drop_port(PyObject *self, PyObject *args)
{
    struct head *h = (struct head *)self;
    struct ms_head_op *op;
    PyObject *timeout;
    const char *owner;
    int rc;

    if (!PyArg_ParseTuple(args, "sO", &owner, &timeout) || !head_is_running(h))
        return NULL;
    op = ms_head_drop_port(h->head, owner);
    rc = head_op_finish(op, timeout);
    ms_head_op_unref(op);
    if (rc < 0)
        return NULL;
    Py_RETURN_NONE;
}
