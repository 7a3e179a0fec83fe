/* head_start.c - a driver's session from its options, and what is asked before there is one */
#include "core/worker/host_object.h"
#include "head_object.h"
#include "store.h"

#include "io/addr.h"
#include "io/session/session.h"
#include "session/env.h"
#include "session/find.h"
#include "session/job_file.h"

#include <errno.h>

/* A worker that joins its own head proves itself with what its session has. */
static int be_worker(struct ms_driver_session_options *o)
{
    const Muster__WorkerBoot *boot = ms_host_boot(the_host->host);

    if (boot->secret.len != MS_SESSION_SECRET_SIZE)
        return core_fail(core_error, "the secret has a wrong size");
    o->secret = boot->secret.data;
    o->head.worker = boot->uid;
    return 0;
}

static int start(struct head *h, struct ms_driver_session_options *o)
{
    struct ms_error err = {0};
    const struct ms_session *session;

    if (o->address && !o->secret_file && the_host && be_worker(o) < 0)
        return -1;
    o->head.on_log = head_on_log;
    o->head.on_node = head_on_node;
    o->head.arg = h;
    o->on_stored = core_on_stored;
    o->on_stored_drop = core_hold_unref;
    Py_BEGIN_ALLOW_THREADS;
    h->driver = ms_driver_session_start(o, &err);
    Py_END_ALLOW_THREADS;
    if (!h->driver) {
        core_raise(&err);
        return -1;
    }
    h->head = ms_driver_session_head(h->driver);
    h->client = ms_driver_session_client(h->driver);
    session = ms_head_session(h->head);
    h->session = PyUnicode_FromString(session->name);
    h->session_dir = PyUnicode_DecodeFSDefault(session->dir);
    return h->session && h->session_dir ? 0 : -1;
}

/* The nodes of this machine, by the file at `path`. */
static int describe(struct ms_job *job, const char *path, struct ms_head_options *o)
{
    struct ms_error err = {0};

    if (ms_job_file_read(job, path, &err) < 0) {
        if (err.code == -EINVAL || err.code == -ENOENT)
            PyErr_SetString(err.code == -EINVAL ? PyExc_ValueError
                                                : PyExc_FileNotFoundError,
                            err.text);
        else
            core_raise(&err);
        return -1;
    }
    if (job->node_count == 0) {
        ms_job_finish(job);
        return core_fail(PyExc_ValueError, "%s: it describes no nodes", path);
    }
    o->shapes = (const Muster__NodeShape *const *)job->nodes;
    o->shape_count = job->node_count;
    return 0;
}

/* ---- what it is started with ------------------------------------------------------ */

struct asked {
    struct ms_driver_session_options options;
    struct ms_head_lender lender;
    Muster__StoreConfig store;
    const char *listen[2];
    const char *nodes; /* a file that describes them */
    struct ms_job job; /* what is in it */
    PyObject *python, *sys_path, *preload, *env;
    struct {
        char **python, **sys_path, **preload, **env;
    } own;
};

static int parse(struct asked *a, PyObject *args, PyObject *kwargs)
{
    static const char *const names[] = {
        "agent_path",  "node_name",     "num_gpus", "num_cpus",    "num_nodes",
        "nodes",       "log_to_driver", "python",   "sys_path",    "env",
        "working_dir", "script",        "timeout",  "preload",     "address",
        "secret_file", "tls",           "http",     "listen",      "store_limit",
        "lender",      "lent_by",       "spill",    "spill_limit", NULL};
    struct ms_head_options *o = &a->options.head;
    unsigned long long spill_limit = 0;
    const char *spill = "";
    long long store_limit = -1;
    double timeout;
    int log_to_driver;

    a->options.tls = "auto";
    if (!PyArg_ParseTupleAndKeywords(args,
                                     kwargs,
                                     "sziiIzpOOOssdO|zzszzLzzzK",
                                     CORE_NAMES(names),
                                     &o->agent_path,
                                     &o->node_name,
                                     &o->num_gpus,
                                     &o->num_cpus,
                                     &o->num_nodes,
                                     &a->nodes,
                                     &log_to_driver,
                                     &a->python,
                                     &a->sys_path,
                                     &a->env,
                                     &o->working_dir,
                                     &o->script,
                                     &timeout,
                                     &a->preload,
                                     &a->options.address,
                                     &a->options.secret_file,
                                     &a->options.tls,
                                     &o->http,
                                     &a->listen[0],
                                     &store_limit,
                                     &a->lender.name,
                                     &a->lender.address,
                                     &spill,
                                     &spill_limit))
        return -1;
    o->log_to_driver = log_to_driver;
    o->timeout_ns = core_ns(timeout);
    a->store.is_told = store_limit >= 0;
    a->store.limit = store_limit >= 0 ? (uint64_t)store_limit : 0;
    a->store.no_spill = !spill;
    a->store.spill_dir = (char *)(uintptr_t)(spill ? spill : "");
    a->store.spill_limit = spill_limit;
    return 0;
}

/* Copies of its lists, for a time without the interpreter's lock. */
static int copy_lists(struct asked *a)
{
    a->own.python = core_strings(a->python);
    a->own.sys_path = a->own.python ? core_strings(a->sys_path) : NULL;
    a->own.preload = a->own.sys_path ? core_strings(a->preload) : NULL;
    a->own.env = a->own.preload ? core_strings(a->env) : NULL;
    a->options.head.python = (const char *const *)a->own.python;
    a->options.head.sys_path = (const char *const *)a->own.sys_path;
    a->options.head.preload = (const char *const *)a->own.preload;
    a->options.head.env = (const char *const *)a->own.env;
    return a->own.env ? 0 : -1;
}

static void asked_finish(struct asked *a)
{
    core_strings_free(a->own.python);
    core_strings_free(a->own.sys_path);
    core_strings_free(a->own.preload);
    core_strings_free(a->own.env);
    ms_job_finish(&a->job);
}

int head_init(PyObject *self, PyObject *args, PyObject *kwargs)
{
    struct asked a = {.store = MUSTER__STORE_CONFIG__INIT};
    struct ms_head_options *o = &a.options.head;
    int rc = -1;

    if (parse(&a, args, kwargs) < 0)
        return -1;
    o->lender = a.lender.name ? &a.lender : NULL;
    o->listen = a.listen[0] ? a.listen : NULL;
    o->store = &a.store;
    if (a.nodes && describe(&a.job, a.nodes, o) < 0)
        return -1;
    if (copy_lists(&a) == 0)
        rc = start((struct head *)self, &a.options);
    asked_finish(&a);
    return rc;
}

/* ---- before there is one --------------------------------------------------------- */

static PyObject *find_head(PyObject *self, PyObject *args)
{
    const char *address, *secret_file;
    struct ms_found_head found = {0};
    struct ms_error err = {0};
    PyObject *result;

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
    size_t count = 0;
    PyObject *list;

    if (!from)
        return NULL;
    env = ms_session_env((const char *const *)from);
    core_strings_free(from);
    if (!env)
        return PyErr_NoMemory();
    while (env[count])
        count++;
    list = core_fs_list(env, count);
    ms_session_env_free(env);
    return list;
}

static PyObject *session_root(PyObject *self, PyObject *unused)
{
    char root[MS_SESSION_DIR_MAX];
    struct ms_error err = {0};

    return ms_session_root(root, &err) < 0 ? core_raise(&err)
                                           : PyUnicode_DecodeFSDefault(root);
}

static PyObject *host_id(PyObject *self, PyObject *unused)
{
    return PyUnicode_FromString(ms_host_id());
}

PyMethodDef core_head_functions[] = {{"find_head", find_head, METH_VARARGS, NULL},
                                     {"session_env", session_env, METH_O, NULL},
                                     {"host_id", host_id, METH_NOARGS, NULL},
                                     {"session_root", session_root, METH_NOARGS, NULL},
                                     {NULL, NULL, 0, NULL}};
