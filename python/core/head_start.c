#include "head_object.h"
#include "host_object.h"
#include "store.h"

#include "base/clock.h"
#include "base/limits.h"
#include "io/secret.h"
#include "job/file.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

struct packed_exit {
    size_t len;
    uint8_t body[];
};

/* ---- on the head's thread -------------------------------------------------------- */

static void exit_remember(struct head *h, uint64_t uid, const Muster__Exit *exit)
{
    size_t len = muster__exit__get_packed_size(exit);
    struct packed_exit *e = malloc(sizeof *e + len);

    if (!e)
        return;
    e->len = len;
    muster__exit__pack(exit, e->body);
    pthread_mutex_lock(&h->lock);
    if (ms_map_add(&h->exits, uid, e) < 0)
        free(e);
    pthread_mutex_unlock(&h->lock);
}

static void on_exit_(void *arg, uint64_t uid, const Muster__Exit *exit)
{
    struct head *h = arg;

    exit_remember(h, uid, exit);
    if (h->client)
        ms_client_verdict(h->client, uid, exit);
}

static void on_successor(void *arg, uint64_t uid, const Muster__WorkerStatus *worker)
{
    struct head *h = arg;

    if (h->client)
        ms_client_successor(
            h->client, uid, worker ? worker->uid : 0, worker ? worker->address : "");
}

static void on_agent_lost(void *arg, const char *why)
{
    struct head *h = arg;

    (void)why;
    pthread_mutex_lock(&h->lock);
    h->lost = true;
    pthread_mutex_unlock(&h->lock);
}

struct question {
    struct head *head;
    uint64_t uid;
};

/* Somebody could not connect: if its end is known, say so. */
static void tell_verdict(void *arg)
{
    struct question *q = arg;
    struct packed_exit *e;
    Muster__Exit *exit = NULL;

    pthread_mutex_lock(&q->head->lock);
    e = ms_map_find(&q->head->exits, q->uid);
    if (e)
        exit = muster__exit__unpack(NULL, e->len, e->body);
    pthread_mutex_unlock(&q->head->lock);
    if (!exit && q->head->joined) /* on_exit comes when it is known */
        ms_head_op_unref(ms_head_ask_death(q->head->head, q->uid));
    if (exit && q->head->client) /* it may have been closed meanwhile */
        ms_client_verdict(q->head->client, q->uid, exit);
    if (exit)
        muster__exit__free_unpacked(exit, NULL);
    free(q);
}

static void ask_verdict(void *arg, uint64_t uid)
{
    struct head *h = arg;
    struct question *q = malloc(sizeof *q);

    if (!q)
        return;
    *q = (struct question){h, uid};
    if (ms_loop_post(ms_head_loop(h->head), tell_verdict, q) < 0)
        free(q);
}

static void ask_successor(void *arg, uint64_t uid)
{
    struct head *h = arg;

    ms_head_ask_successor(h->head, uid);
}

/* ---- start ----------------------------------------------------------------------- */

/* Where the head is, if it is not to be started here. */
struct where {
    const char *address, *secret_file, *tls;
};

/* From its file; a worker that has none proves itself with that of its session. */
static int find_secret(struct ms_head_options *o,
                       const struct where *w,
                       uint8_t secret[MS_SECRET_FILE_SIZE],
                       struct ms_error *err)
{
    const Muster__WorkerBoot *boot;

    if (w->secret_file || !the_host)
        return ms_secret_read(w->secret_file, secret, err);
    boot = ms_host_boot(the_host->host);
    if (boot->secret.len != MS_SECRET_FILE_SIZE)
        return ms_error_set(err, -EPROTO, "the secret has a wrong size");
    memcpy(secret, boot->secret.data, MS_SECRET_FILE_SIZE);
    o->worker = boot->uid;
    return 0;
}

/* On failure the error is set. */
static struct ms_head *
join(struct ms_head_options *o, const struct where *w, struct ms_error *err)
{
    uint8_t secret[MS_SECRET_FILE_SIZE];
    struct ms_head_address a = {.addresses = w->address, .secret = secret};
    struct ms_head *head = NULL;

    if (ms_tls_mode_parse(w->tls, &a.tls, err) == 0 &&
        find_secret(o, w, secret, err) == 0)
        head = ms_head_join(o, &a, err);
    explicit_bzero(secret, sizeof secret);
    return head;
}

/* With the secret that others have, if they are to come. */
static struct ms_head *
embed(struct ms_head_options *o, const struct where *w, struct ms_error *err)
{
    uint8_t secret[MS_SECRET_FILE_SIZE];
    struct ms_head *head = NULL;

    if (ms_tls_mode_parse(w->tls, &o->tls, err) == 0 &&
        (!w->secret_file || ms_secret_read(w->secret_file, secret, err) == 0)) {
        o->secret = w->secret_file ? secret : NULL;
        head = ms_head_start(o, err);
    }
    explicit_bzero(secret, sizeof secret);
    return head;
}

static int start(struct head *h, struct ms_head_options *o, const struct where *w)
{
    struct ms_error err = {0};
    struct ms_client_options co = {.ask_verdict = ask_verdict,
                                   .ask_successor = ask_successor,
                                   .on_stored = core_on_stored,
                                   .on_stored_drop = core_hold_unref,
                                   .arg = h};
    char spin_path[MS_SESSION_DIR_MAX + 8];
    const struct ms_session *session;

    o->on_log = head_on_log;
    o->on_exit = on_exit_;
    o->on_agent_lost = on_agent_lost;
    o->on_node = head_on_node;
    o->on_successor = on_successor;
    o->arg = h;
    Py_BEGIN_ALLOW_THREADS;
    h->joined = w->address;
    h->head = h->joined ? join(o, w, &err) : embed(o, w, &err);
    Py_END_ALLOW_THREADS;
    if (!h->head) {
        core_raise(&err);
        return -1;
    }
    session = ms_head_session(h->head);
    snprintf(spin_path, sizeof spin_path, "%s/spin", session->dir);
    h->spin = co.spin = ms_spin_open(spin_path);
    co.loop = ms_head_loop(h->head);
    (void)ms_tls_mode_parse(w->tls, &co.tls, NULL);
    co.secret = session->secret;
    h->client = ms_client_create(&co);
    h->session = PyUnicode_FromString(session->name);
    h->session_dir = PyUnicode_DecodeFSDefault(session->dir);
    if (!h->client)
        PyErr_NoMemory();
    return h->client && h->session && h->session_dir ? 0 : -1;
}

/* The nodes of this machine, by the file at `path`. */
static int describe(struct ms_job *job, const char *path, struct ms_head_options *o)
{
    struct ms_error err = {0};

    if (ms_job_open(job, path, &err) < 0) {
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
        PyErr_Format(PyExc_ValueError, "%s: it describes no nodes", path);
        return -1;
    }
    o->shapes = (const Muster__NodeShape *const *)job->nodes;
    o->shape_count = job->node_count;
    return 0;
}

/* ---- what it is started with ------------------------------------------------------ */

struct asked {
    struct ms_head_options options;
    struct where where;
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
        "working_dir", "script",        "timeout",  "address",     "secret_file",
        "tls",         "http",          "listen",   "store_limit", "lender",
        "lent_by",     "preload",       "spill",    "spill_limit", NULL};
    struct ms_head_options *o = &a->options;
    unsigned long long spill_limit;
    const char *spill;
    long long store_limit;
    double timeout;
    int log_to_driver;

    if (!PyArg_ParseTupleAndKeywords(args,
                                     kwargs,
                                     "$sziiIzpOOOssdzzszzLzzOzK",
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
                                     &a->where.address,
                                     &a->where.secret_file,
                                     &a->where.tls,
                                     &o->http,
                                     &a->listen[0],
                                     &store_limit,
                                     &a->lender.name,
                                     &a->lender.address,
                                     &a->preload,
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
    a->options.python = (const char *const *)a->own.python;
    a->options.sys_path = (const char *const *)a->own.sys_path;
    a->options.preload = (const char *const *)a->own.preload;
    a->options.env = (const char *const *)a->own.env;
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
    struct ms_head_options *o = &a.options;
    int rc = -1;

    if (parse(&a, args, kwargs) < 0)
        return -1;
    o->lender = a.lender.name ? &a.lender : NULL;
    o->listen = a.listen[0] ? a.listen : NULL;
    o->store = &a.store;
    if (a.nodes && describe(&a.job, a.nodes, o) < 0)
        return -1;
    if (copy_lists(&a) == 0)
        rc = start((struct head *)self, o, &a.where);
    asked_finish(&a);
    return rc;
}
