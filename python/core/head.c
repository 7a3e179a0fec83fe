#include "head_object.h"
#include "host_object.h"
#include "store.h"

#include "base/clock.h"
#include "base/limits.h"
#include "io/http_token.h"
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

struct start_strings {
    char **python, **sys_path, **preload, **env;
};

static void strings_free(struct start_strings *s)
{
    core_strings_free(s->python);
    core_strings_free(s->sys_path);
    core_strings_free(s->preload);
    core_strings_free(s->env);
}

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

static void stop(struct head *h, int64_t grace_ns);

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

static int head_init(PyObject *self, PyObject *args, PyObject *kwargs)
{
    static const char *const names[] = {
        "agent_path",  "node_name",     "num_gpus", "num_cpus",    "num_nodes",
        "nodes",       "log_to_driver", "python",   "sys_path",    "env",
        "working_dir", "script",        "timeout",  "address",     "secret_file",
        "tls",         "http",          "listen",   "store_limit", "lender",
        "lent_by",     "preload",       "spill",    "spill_limit", NULL};
    struct head *h = (struct head *)self;
    struct ms_head_options o = {0};
    struct start_strings s = {0};
    struct where where = {0};
    const char *listen[2] = {0}, *nodes = NULL;
    struct ms_head_lender lender = {0};
    struct ms_job job = {0};
    PyObject *python, *sys_path, *env, *preload;
    Muster__StoreConfig store = MUSTER__STORE_CONFIG__INIT;
    unsigned long long spill_limit;
    const char *spill;
    long long store_limit;
    double timeout;
    int log_to_driver, rc = -1;

    if (!PyArg_ParseTupleAndKeywords(args,
                                     kwargs,
                                     "$sziiIzpOOOssdzzszzLzzOzK",
                                     CORE_NAMES(names),
                                     &o.agent_path,
                                     &o.node_name,
                                     &o.num_gpus,
                                     &o.num_cpus,
                                     &o.num_nodes,
                                     &nodes,
                                     &log_to_driver,
                                     &python,
                                     &sys_path,
                                     &env,
                                     &o.working_dir,
                                     &o.script,
                                     &timeout,
                                     &where.address,
                                     &where.secret_file,
                                     &where.tls,
                                     &o.http,
                                     &listen[0],
                                     &store_limit,
                                     &lender.name,
                                     &lender.address,
                                     &preload,
                                     &spill,
                                     &spill_limit))
        return -1;
    o.lender = lender.name ? &lender : NULL;
    store.is_told = store_limit >= 0;
    store.limit = store.is_told ? (uint64_t)store_limit : 0;
    store.no_spill = !spill;
    store.spill_dir = (char *)(uintptr_t)(spill ? spill : "");
    store.spill_limit = spill_limit;
    o.store = &store;
    if (nodes && describe(&job, nodes, &o) < 0)
        return -1;
    o.listen = listen[0] ? listen : NULL;
    o.log_to_driver = log_to_driver;
    o.timeout_ns = core_ns(timeout);
    s.python = core_strings(python);
    s.sys_path = s.python ? core_strings(sys_path) : NULL;
    s.preload = s.sys_path ? core_strings(preload) : NULL;
    s.env = s.preload ? core_strings(env) : NULL;
    if (s.env) {
        o.python = (const char *const *)s.python;
        o.sys_path = (const char *const *)s.sys_path;
        o.preload = (const char *const *)s.preload;
        o.env = (const char *const *)s.env;
        rc = start(h, &o, &where);
    }
    strings_free(&s);
    ms_job_finish(&job);
    return rc;
}

static PyObject *head_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    struct head *h = PyObject_New(struct head, type);
    pthread_condattr_t attr;

    (void)args;
    (void)kwargs;
    if (!h)
        return NULL;
    memset((char *)h + offsetof(struct head, head),
           0,
           sizeof *h - offsetof(struct head, head));
    pthread_mutex_init(&h->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&h->logged, &attr);
    pthread_condattr_destroy(&attr);
    ms_list_init(&h->logs);
    ms_list_init(&h->node_events);
    ms_map_init(&h->exits);
    return (PyObject *)h;
}

/* ---- stop ------------------------------------------------------------------------ */

struct close_wait {
    struct head *head;
    pthread_mutex_t lock;
    pthread_cond_t done;
    bool closed;
};

/* The client lives on the head's loop and must be closed there. */
static void close_client(void *arg)
{
    struct close_wait *w = arg;

    ms_client_destroy(w->head->client, "muster was shut down");
    w->head->client = NULL;
    pthread_mutex_lock(&w->lock);
    w->closed = true;
    pthread_cond_signal(&w->done);
    pthread_mutex_unlock(&w->lock);
}

static void client_stop(struct head *h)
{
    struct close_wait w = {.head = h};

    pthread_mutex_init(&w.lock, NULL);
    pthread_cond_init(&w.done, NULL);
    if (ms_loop_post(ms_head_loop(h->head), close_client, &w) == 0) {
        pthread_mutex_lock(&w.lock);
        while (!w.closed)
            pthread_cond_wait(&w.done, &w.lock);
        pthread_mutex_unlock(&w.lock);
    }
    pthread_cond_destroy(&w.done);
    pthread_mutex_destroy(&w.lock);
}

static void stop(struct head *h, int64_t grace_ns)
{
    if (!h->head)
        return;
    if (h->client)
        client_stop(h);
    ms_head_stop(h->head, grace_ns);
    h->head = NULL;
    pthread_mutex_lock(&h->lock);
    h->stopped = true;
    pthread_cond_broadcast(&h->logged);
    pthread_mutex_unlock(&h->lock);
}

static PyObject *head_stop(PyObject *self, PyObject *args)
{
    struct head *h = (struct head *)self;
    double grace;

    if (!PyArg_ParseTuple(args, "d", &grace))
        return NULL;
    if (h->closing)
        Py_RETURN_NONE;
    h->closing = true;
    Py_BEGIN_ALLOW_THREADS;
    stop(h, core_ns(grace));
    Py_END_ALLOW_THREADS;
    Py_RETURN_NONE;
}

static PyObject *head_forget(PyObject *self, PyObject *unused)
{
    struct head *h = (struct head *)self;

    (void)unused;
    if (h->client)
        ms_client_forget(h->client);
    if (h->head)
        ms_head_forget(h->head);
    h->head = NULL;
    h->client = NULL;
    pthread_mutex_init(&h->lock, NULL);
    h->stopped = h->closing = true;
    Py_RETURN_NONE;
}

static void head_dealloc(PyObject *self)
{
    struct head *h = (struct head *)self;
    PyTypeObject *type = Py_TYPE(self);
    struct packed_exit *e;
    size_t at = 0;

    Py_BEGIN_ALLOW_THREADS;
    stop(h, 0);
    Py_END_ALLOW_THREADS;
    head_logs_free(h);
    head_node_events_free(h);
    while ((e = ms_map_next(&h->exits, &at)))
        free(e);
    ms_map_finish(&h->exits);
    ms_spin_close(h->spin);
    Py_XDECREF(h->session);
    Py_XDECREF(h->session_dir);
    PyObject_Free(self);
    Py_DECREF((PyObject *)type);
}

/* ---- what it is ------------------------------------------------------------------ */

static PyObject *head_peer(PyObject *self, PyObject *args)
{
    struct head *h = (struct head *)self;

    return head_is_running(h) ? core_peer_new(h->client, args, self) : NULL;
}

static PyObject *get_session(PyObject *self, void *unused)
{
    (void)unused;
    return Py_NewRef(((struct head *)self)->session);
}

/* For the Authorization header of HTTP clients. */
static PyObject *get_http_token(PyObject *self, void *unused)
{
    struct head *h = (struct head *)self;
    const struct ms_session *session;
    struct ms_http_token token;

    (void)unused;
    if (!head_is_running(h))
        return NULL;
    session = ms_head_session(h->head);
    if (ms_http_token_make(&token, session->secret, sizeof session->secret) < 0)
        return PyErr_NoMemory();
    return PyUnicode_FromString(token.text);
}

static PyObject *get_http_address(PyObject *self, void *unused)
{
    struct head *h = (struct head *)self;

    (void)unused;
    return head_is_running(h) ? PyUnicode_FromString(ms_head_http_address(h->head))
                              : NULL;
}

static PyObject *get_session_dir(PyObject *self, void *unused)
{
    (void)unused;
    return Py_NewRef(((struct head *)self)->session_dir);
}

static PyObject *get_alive(PyObject *self, void *unused)
{
    struct head *h = (struct head *)self;
    bool alive;

    (void)unused;
    pthread_mutex_lock(&h->lock);
    alive = h->head && !h->lost && !h->stopped && !h->closing;
    pthread_mutex_unlock(&h->lock);
    return PyBool_FromLong(alive);
}

static PyObject *get_joined(PyObject *self, void *unused)
{
    (void)unused;
    return PyBool_FromLong(((struct head *)self)->joined);
}

static PyMethodDef head_methods[] = {
    {"create_cluster", head_create_cluster, METH_VARARGS, NULL},
    {"reserve", head_reserve, METH_VARARGS, NULL},
    {"release", head_release, METH_VARARGS, NULL},
    {"reservation", head_reservation, METH_VARARGS, NULL},
    {"destroy_cluster", head_destroy_cluster, METH_VARARGS, NULL},
    {"replace", head_replace, METH_VARARGS, NULL},
    {"describe_cluster", head_describe_cluster, METH_VARARGS, NULL},
    {"find_cluster", head_find_cluster, METH_VARARGS, NULL},
    {"open_worker", head_open_worker, METH_VARARGS, NULL},
    {"hold_port", head_hold_port, METH_VARARGS, NULL},
    {"drop_port", head_drop_port, METH_VARARGS, NULL},
    {"place_group", head_place_group, METH_VARARGS, NULL},
    {"wait_group", head_wait_group, METH_VARARGS, NULL},
    {"find_group", head_find_group, METH_VARARGS, NULL},
    {"remove_group", head_remove_group, METH_VARARGS, NULL},
    {"place_cluster", head_place_cluster, METH_VARARGS, NULL},
    {"drop_claim", head_drop_claim, METH_VARARGS, NULL},
    {"resources", head_resources, METH_VARARGS, NULL},
    {"nodes", head_nodes, METH_O, NULL},
    {"store_place", head_store_place, METH_O, NULL},
    {"clusters", head_clusters, METH_O, NULL},
    {"peer", head_peer, METH_VARARGS, NULL},
    {"next_logs", head_next_logs, METH_O, NULL},
    {"next_nodes", head_next_nodes, METH_O, NULL},
    {"kv_put", head_kv_put, METH_VARARGS, NULL},
    {"kv_get", head_kv_get, METH_VARARGS, NULL},
    {"kv_delete", head_kv_delete, METH_VARARGS, NULL},
    {"kv_keys", head_kv_keys, METH_VARARGS, NULL},
    {"kv_watch", head_kv_watch, METH_VARARGS, NULL},
    {"barrier", head_barrier, METH_VARARGS, NULL},
    {"stop", head_stop, METH_VARARGS, NULL},
    {"forget", head_forget, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL}};

static PyGetSetDef head_getset[] = {
    {"session", get_session, NULL, NULL, NULL},
    {"session_dir", get_session_dir, NULL, NULL, NULL},
    {"http_address", get_http_address, NULL, NULL, NULL},
    {"http_token", get_http_token, NULL, NULL, NULL},
    {"alive", get_alive, NULL, NULL, NULL},
    {"joined", get_joined, NULL, NULL, NULL},
    {"node", head_node, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL}};

static PyType_Slot head_slots[] = {{Py_tp_new, head_new},
                                   {Py_tp_init, head_init},
                                   {Py_tp_dealloc, head_dealloc},
                                   {Py_tp_methods, head_methods},
                                   {Py_tp_getset, head_getset},
                                   {0, NULL}};
static PyType_Spec head_spec = {.name = "muster._core.Head",
                                .basicsize = sizeof(struct head),
                                .flags = Py_TPFLAGS_DEFAULT,
                                .slots = head_slots};

int core_head_setup(PyObject *module)
{
    PyTypeObject *type = core_type(module, &head_spec, "Head");

    Py_XDECREF((PyObject *)type); /* the module holds it */
    return type ? 0 : -1;
}
