#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "capi/capi.h"
#include "wire/tls.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

struct packed_exit {
    size_t len;
    uint8_t body[];
};

/* All of this process, for a child that it forks. */
static struct ms_list sessions = {&sessions, &sessions};
static pthread_mutex_t sessions_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void before_fork(void)
{
    pthread_mutex_lock(&sessions_lock);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&sessions_lock);
}

static void after_fork_in_child(void)
{
    ms_list_each (s, &sessions, struct muster_session, link) {
        ms_client_forget(s->client);
        ms_head_forget(s->head);
        pthread_mutex_init(&s->lock, NULL);
        s->stopped = true;
    }
    pthread_mutex_unlock(&sessions_lock);
}

static void watch_forks(void)
{
    pthread_atfork(before_fork, after_fork, after_fork_in_child);
}

/* ---- on the head's thread -------------------------------------------------------- */

static void on_log(void *arg, const Muster__LogLines *lines)
{
    struct muster_session *s = arg;

    for (size_t i = 0; i < lines->n_lines; i++) {
        const Muster__LogLine *from = lines->lines[i];
        struct muster_log_line line = {.cluster = from->cluster,
                                       .rank = from->rank,
                                       .is_stderr = from->is_stderr,
                                       .text = (const char *)from->text.data,
                                       .len = from->text.len};

        if (s->on_log)
            s->on_log(s->arg, &line);
        else
            fprintf(stderr,
                    "(%s/%u) %.*s\n",
                    line.cluster,
                    line.rank,
                    (int)line.len,
                    line.len ? line.text : "");
    }
}

static void on_exit_(void *arg, uint64_t uid, const Muster__Exit *exit)
{
    struct muster_session *s = arg;
    size_t len = muster__exit__get_packed_size(exit);
    struct packed_exit *e = malloc(sizeof *e + len);

    if (e) {
        e->len = len;
        muster__exit__pack(exit, e->body);
        pthread_mutex_lock(&s->lock);
        if (ms_map_add(&s->exits, uid, e) < 0)
            free(e);
        pthread_mutex_unlock(&s->lock);
    }
    if (s->client)
        ms_client_verdict(s->client, uid, exit);
}

struct question {
    struct muster_session *session;
    uint64_t uid;
};

/* Somebody could not connect: if its end is known, say so. */
static void tell_verdict(void *arg)
{
    struct question *q = arg;
    Muster__Exit *exit = NULL;
    struct packed_exit *e;

    pthread_mutex_lock(&q->session->lock);
    e = ms_map_find(&q->session->exits, q->uid);
    if (e)
        exit = muster__exit__unpack(NULL, e->len, e->body);
    pthread_mutex_unlock(&q->session->lock);
    if (!exit && q->session->joined) /* on_exit comes when it is known */
        ms_head_op_unref(ms_head_ask_death(q->session->head, q->uid));
    if (exit && q->session->client)
        ms_client_verdict(q->session->client, q->uid, exit);
    if (exit)
        muster__exit__free_unpacked(exit, NULL);
    free(q);
}

static void ask_verdict(void *arg, uint64_t uid)
{
    struct muster_session *s = arg;
    struct question *q = malloc(sizeof *q);

    if (!q)
        return;
    *q = (struct question){s, uid};
    if (ms_loop_post(ms_head_loop(s->head), tell_verdict, q) < 0)
        free(q);
}

/* ---- start ----------------------------------------------------------------------- */

static void session_free(struct muster_session *s)
{
    struct packed_exit *e;
    size_t at = 0;

    while ((e = ms_map_next(&s->exits, &at)))
        free(e);
    ms_map_finish(&s->exits);
    ms_spin_close(s->spin);
    ms_capi_strings_free(s->env);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

static int
start_client(struct muster_session *s, const char *tls, struct muster_error *err)
{
    const struct ms_session *session = ms_head_session(s->head);
    struct ms_client_options co = {.ask_verdict = ask_verdict, .arg = s};
    char spin_path[MS_SESSION_DIR_MAX + 8];

    snprintf(spin_path, sizeof spin_path, "%s/spin", session->dir);
    s->spin = co.spin = ms_spin_open(spin_path);
    co.loop = ms_head_loop(s->head);
    co.secret = session->secret;
    (void)ms_tls_mode_parse(tls ? tls : "auto", &co.tls, NULL); /* it was looked at */
    s->client = ms_client_create(&co);
    if (!s->client)
        return muster_error_set(err, -ENOMEM, NULL, "out of memory");
    return 0;
}

static int start(struct muster_session *s,
                 const struct muster_session_options *o,
                 struct muster_error *err)
{
    const char *address = o->address ? o->address : getenv("MUSTER_ADDRESS");
    MS_CLEANUP(ms_cleanup_free) char *program = NULL;
    MS_CLEANUP(ms_cleanup_free) char *folder = getcwd(NULL, 0);
    const char *told = getenv("MUSTER_PYTHON");
    const char *python[] = {told ? told : "python3", NULL}, *none[] = {NULL};
    struct ms_error why = {0};
    struct ms_head_options ho = {

        .num_gpus = o->num_gpus,
        .num_cpus = o->num_cpus,
        .log_to_driver = !o->quiet,
        .python = o->python ? o->python : python,
        .sys_path = none,
        .env = (const char *const *)s->env,
        .working_dir = folder,
        .timeout_ns = o->timeout_ns ? o->timeout_ns : 60 * MS_NS_PER_S,
        .on_log = on_log,
        .on_exit = on_exit_,
        .arg = s,
    };

    if (!folder)
        return muster_error_set(err, -errno, NULL, "where are we? %s", strerror(errno));
    s->joined = address && *address && strcmp(address, "local") != 0;
    if (!s->joined) {
        ho.agent_path = program = ms_capi_find_program(o->muster_path, err);
        if (!program)
            return -ENOENT;
    }
    s->head =
        s->joined ? ms_capi_join(&ho, o, address, &why) : ms_head_start(&ho, &why);
    if (!s->head)
        return ms_capi_error(&why, err);
    if (start_client(s, o->tls, err) < 0) {
        ms_head_stop(s->head, 0);
        return -ENOMEM;
    }
    return 0;
}

struct muster_session *muster_init(const struct muster_session_options *options,
                                   struct muster_error *err)
{
    struct muster_session_options o = MUSTER_SESSION_OPTIONS;
    struct muster_session *s = calloc(1, sizeof *s);

    if (options) /* an older program knows fewer fields */
        memcpy(&o, options, options->size < sizeof o ? options->size : sizeof o);
    if (!s || !(s->env = ms_capi_session_env())) {
        free(s);
        muster_error_set(err, -ENOMEM, NULL, "out of memory");
        return NULL;
    }
    pthread_once(&once, watch_forks);
    pthread_mutex_init(&s->lock, NULL);
    ms_map_init(&s->exits);
    s->on_log = o.on_log;
    s->arg = o.arg;
    s->refs = 1;
    if (start(s, &o, err) < 0) {
        session_free(s);
        return NULL;
    }
    pthread_mutex_lock(&sessions_lock);
    ms_list_add_tail(&sessions, &s->link);
    pthread_mutex_unlock(&sessions_lock);
    return s;
}

const char *muster_session_name(const struct muster_session *s)
{
    return s ? ms_head_session(s->head)->name : NULL;
}

const char *muster_session_dir(const struct muster_session *s)
{
    return s ? ms_head_session(s->head)->dir : NULL;
}

/* ---- stop ------------------------------------------------------------------------ */

struct closing {
    struct muster_session *session;
    pthread_mutex_t lock;
    pthread_cond_t done;
    bool closed;
};

/* The client lives on the head's loop and must be closed there. */
static void close_client(void *arg)
{
    struct closing *c = arg;

    ms_client_destroy(c->session->client, "muster was shut down");
    c->session->client = NULL;
    pthread_mutex_lock(&c->lock);
    c->closed = true;
    pthread_cond_signal(&c->done);
    pthread_mutex_unlock(&c->lock);
}

static void client_stop(struct muster_session *s)
{
    struct closing c = {.session = s};

    pthread_mutex_init(&c.lock, NULL);
    pthread_cond_init(&c.done, NULL);
    if (ms_loop_post(ms_head_loop(s->head), close_client, &c) == 0) {
        pthread_mutex_lock(&c.lock);
        while (!c.closed)
            pthread_cond_wait(&c.done, &c.lock);
        pthread_mutex_unlock(&c.lock);
    }
    pthread_cond_destroy(&c.done);
    pthread_mutex_destroy(&c.lock);
}

void muster_shutdown(struct muster_session *s, int64_t grace_ns)
{
    if (!s || ms_capi_is_stopped(s))
        return; /* a forked child's: it is its parent's */
    pthread_mutex_lock(&sessions_lock);
    ms_list_remove(&s->link);
    pthread_mutex_unlock(&sessions_lock);
    client_stop(s);
    ms_head_stop(s->head, grace_ns);
    pthread_mutex_lock(&s->lock);
    s->stopped = true;
    pthread_mutex_unlock(&s->lock);
    ms_capi_session_unref(s);
}

struct muster_session *ms_capi_session_ref(struct muster_session *s)
{
    pthread_mutex_lock(&s->lock);
    s->refs++;
    pthread_mutex_unlock(&s->lock);
    return s;
}

void ms_capi_session_unref(struct muster_session *s)
{
    bool last;

    pthread_mutex_lock(&s->lock);
    last = --s->refs == 0;
    pthread_mutex_unlock(&s->lock);
    if (last)
        session_free(s);
}

bool ms_capi_is_stopped(struct muster_session *s)
{
    bool stopped;

    pthread_mutex_lock(&s->lock);
    stopped = s->stopped;
    pthread_mutex_unlock(&s->lock);
    return stopped;
}

const ProtobufCMessage *
ms_capi_wait(struct ms_head_op *op, int64_t timeout_ns, struct muster_error *err)
{
    static const ProtobufCMessage nothing;
    const ProtobufCMessage *m;
    struct ms_error why = {0};

    if (ms_head_op_wait(op, ms_deadline_ns(ms_now_ns(), timeout_ns)) < 0) {
        muster_error_set(err, -ETIMEDOUT, NULL, "%s", ms_head_op_delay(op));
        return NULL;
    }
    if (ms_head_op_result(op, &why) < 0) {
        ms_capi_error(&why, err);
        return NULL;
    }
    m = ms_head_op_message(op);
    return m ? m : &nothing;
}
