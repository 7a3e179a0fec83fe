/* session.c - a driver's head and client: started, told what happens, stopped */
#include "session/session.h"

#include "base/clock.h"
#include "base/list.h"
#include "base/map.h"
#include "io/session/secret.h"
#include "io/session/timeline.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <string.h>

struct ms_driver_session {
    struct ms_head *head;
    struct ms_client *client; /* made and ended on the head's loop */
    struct ms_spin *spin;
    enum ms_tls_mode tls;
    bool joined;
    struct ms_timeline timeline;
    struct {
        void (*on_log)(void *arg, const Muster__LogLines *lines);
        void (*on_node)(void *arg, const Muster__NodeStatus *node);
        void *(*on_stored)(void *arg, const uint8_t *body, size_t len);
        void (*on_stored_drop)(void *token);
        void *arg;
    } driver;

    /* of the head's loop */
    struct ms_map asking; /* uid -> question that the head has */

    struct ms_list link;      /* of all sessions of this process */
    _Atomic bool lost, ended; /* ended: stop has begun, or a forked child */
};

/* ---- forks ----------------------------------------------------------------------- */

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

/* The other threads are gone, also those that held a lock. */
static void after_fork_in_child(void)
{
    ms_list_each (s, &sessions, struct ms_driver_session, link) {
        ms_client_forget(s->client);
        ms_head_forget(s->head);
        ms_timeline_forget(&s->timeline);
        s->ended = true;
        ms_list_remove(&s->link);
    }
    pthread_mutex_unlock(&sessions_lock);
}

static void watch_forks(void)
{
    pthread_atfork(before_fork, after_fork, after_fork_in_child);
}

static void enlist(struct ms_driver_session *s)
{
    pthread_once(&once, watch_forks);
    pthread_mutex_lock(&sessions_lock);
    ms_list_add_tail(&sessions, &s->link);
    pthread_mutex_unlock(&sessions_lock);
}

static void delist(struct ms_driver_session *s)
{
    pthread_mutex_lock(&sessions_lock);
    ms_list_remove(&s->link);
    pthread_mutex_unlock(&sessions_lock);
}

/* ---- what the head tells --------------------------------------------------------- */

static void on_log(void *arg, const Muster__LogLines *lines)
{
    struct ms_driver_session *s = arg;

    s->driver.on_log(s->driver.arg, lines);
}

static void on_node(void *arg, const Muster__NodeStatus *node)
{
    struct ms_driver_session *s = arg;

    s->driver.on_node(s->driver.arg, node);
}

static void on_exit_(void *arg, uint64_t uid, const Muster__Exit *exit)
{
    struct ms_driver_session *s = arg;

    if (s->client)
        ms_client_worker_exited(s->client, uid, exit);
}

static void on_successor(void *arg, uint64_t uid, const Muster__WorkerStatus *worker)
{
    struct ms_driver_session *s = arg;

    if (s->client)
        ms_client_successor(s->client, uid, worker);
}

static void on_agent_lost(void *arg, const char *why)
{
    struct ms_driver_session *s = arg;

    (void)why;
    s->lost = true;
}

/* ---- what the head is asked ------------------------------------------------------ */

struct question {
    struct ms_driver_session *session;
    uint64_t uid;
};

static void question_end(struct question *q)
{
    ms_map_remove(&q->session->asking, q->uid);
    free(q);
}

static void on_answered(struct ms_head_op *op, void *arg)
{
    struct question *q = arg;
    const Muster__WorkerExited *exited = NULL;

    if (ms_head_op_result(op, NULL) == 0)
        exited = (const Muster__WorkerExited *)ms_head_op_message(op);
    if (exited && exited->exit)
        on_exit_(q->session, q->uid, exited->exit);
    question_end(q);
}

/* Nothing comes of it if there is no memory: the calls then fail as unreachable. */
static void ask_death(void *arg, uint64_t uid)
{
    struct ms_driver_session *s = arg;
    Muster__AskDeath death = MUSTER__ASK_DEATH__INIT;
    struct ms_head_op *op;
    struct question *q;

    if (ms_map_find(&s->asking, uid))
        return;
    q = calloc(1, sizeof *q);
    if (!q || ms_map_add(&s->asking, uid, q) < 0) {
        free(q);
        return;
    }
    *q = (struct question){s, uid};
    death.uid = uid;
    op = ms_head_request_then(
        s->head, MUSTER__DRIVER_TO_HEAD__BODY_ASK_DEATH, &death, on_answered, q);
    if (!op)
        question_end(q);
    ms_head_op_unref(op);
}

static void ask_successor(void *arg, uint64_t uid)
{
    struct ms_driver_session *s = arg;

    ms_head_ask_successor(s->head, uid);
}

/* ---- the client ------------------------------------------------------------------ */

static void *on_stored(void *arg, const uint8_t *body, size_t len)
{
    struct ms_driver_session *s = arg;

    return s->driver.on_stored(s->driver.arg, body, len);
}

static void on_called(void *arg, const struct ms_called *called)
{
    struct ms_driver_session *s = arg;

    if (!ms_timeline_is_on(&s->timeline))
        return;
    /* what cannot be written is not there: no reason to fail a call */
    ms_timeline_add(&s->timeline,
                    &(struct ms_timeline_event){
                        .track = called->label,
                        .name = called->method,
                        .begin_ns = called->begun_ns,
                        .end_ns = ms_now_ns(),
                        .flow = called->flow,
                        .args = called->failed ? "{\"failed\": true}" : NULL});
}

static void client_open(struct ms_driver_session *s)
{
    const struct ms_session *session = ms_head_session(s->head);
    struct ms_client_options o = {.loop = ms_head_loop(s->head),
                                  .secret = session->secret,
                                  .spin = s->spin,
                                  .tls = s->tls,
                                  .ask_exit = ask_death,
                                  .ask_successor = ask_successor,
                                  .on_stored = s->driver.on_stored ? on_stored : NULL,
                                  .on_stored_drop = s->driver.on_stored_drop,
                                  .on_called = on_called,
                                  .arg = s};

    s->client = ms_client_create(&o);
}

static void client_close(struct ms_driver_session *s)
{
    ms_client_destroy(MS_TAKE(s->client), "muster was shut down");
}

struct turn {
    struct ms_driver_session *session;
    void (*fn)(struct ms_driver_session *s);
    sem_t done;
};

static void take_turn(void *arg)
{
    struct turn *t = arg;

    t->fn(t->session);
    sem_post(&t->done);
}

/* Run it on the head's loop, which runs until ms_head_stop, and wait for that. */
static int run_on_loop(struct ms_driver_session *s,
                       void (*fn)(struct ms_driver_session *s))
{
    struct turn t = {.session = s, .fn = fn};
    int rc;

    sem_init(&t.done, 0, 0);
    rc = ms_loop_post(ms_head_loop(s->head), take_turn, &t);
    while (rc == 0 && sem_wait(&t.done) < 0)
        ; /* a signal */
    sem_destroy(&t.done);
    return rc;
}

/* ---- start ----------------------------------------------------------------------- */

/* The head's options, with what is ours in them. */
static struct ms_head_options head_options(struct ms_driver_session *s,
                                           const struct ms_head_options *driver)
{
    struct ms_head_options o = *driver;

    o.on_log = o.on_log ? on_log : NULL;
    o.on_node = o.on_node ? on_node : NULL;
    o.on_exit = on_exit_;
    o.on_agent_lost = on_agent_lost;
    o.on_successor = on_successor;
    o.arg = s;
    o.tls = s->tls;
    return o;
}

static struct ms_head *join(const struct ms_head_options *o,
                            const char *address,
                            enum ms_tls_mode tls,
                            struct ms_error *err)
{
    struct ms_head_address a = {address, o->secret, tls};

    if (o->secret)
        return ms_head_join(o, &a, err);
    ms_error_set(err, -EINVAL, "a head is joined with its secret");
    return NULL;
}

static struct ms_head *start_head(struct ms_driver_session *s,
                                  const struct ms_driver_session_options *d,
                                  struct ms_error *err)
{
    struct ms_head_options o;
    uint8_t secret[MS_SECRET_FILE_SIZE];
    struct ms_head *head;

    if (ms_tls_mode_parse(d->tls ? d->tls : "auto", &s->tls, err) < 0 ||
        (d->secret_file && ms_secret_read(d->secret_file, secret, err) < 0))
        return NULL;
    o = head_options(s, &d->head);
    o.secret = d->secret_file ? secret : d->secret;
    head = s->joined ? join(&o, d->address, s->tls, err) : ms_head_start(&o, err);
    explicit_bzero(secret, sizeof secret);
    return head;
}

/* As MUSTER_TIMELINE says: 1, or the name of a file. */
static int record_if_asked(struct ms_driver_session *s, struct ms_error *err)
{
    const char *where = getenv(MS_TIMELINE_ENV);

    if (!where || !where[0])
        return 0;
    return ms_driver_session_record(s, strcmp(where, "1") == 0 ? NULL : where, err);
}

static int start(struct ms_driver_session *s,
                 const struct ms_driver_session_options *o,
                 struct ms_error *err)
{
    char spin_path[MS_SESSION_DIR_MAX + 8];

    s->head = start_head(s, o, err);
    if (!s->head)
        return -1;
    snprintf(spin_path, sizeof spin_path, "%s/spin", ms_head_session(s->head)->dir);
    s->spin = ms_spin_open(spin_path);
    if (record_if_asked(s, err) == 0) {
        if (run_on_loop(s, client_open) == 0 && s->client)
            return 0;
        ms_error_set(err, -ENOMEM, "cannot make the driver's client");
    }
    ms_head_stop(s->head, 0);
    return -1;
}

struct ms_driver_session *
ms_driver_session_start(const struct ms_driver_session_options *o, struct ms_error *err)
{
    struct ms_driver_session *s = calloc(1, sizeof *s);

    if (!s) {
        ms_error_set(err, -ENOMEM, "out of memory");
        return NULL;
    }
    ms_list_init(&s->link);
    ms_map_init(&s->asking);
    ms_timeline_init(&s->timeline);
    s->joined = o->address;
    s->driver.on_log = o->head.on_log;
    s->driver.on_node = o->head.on_node;
    s->driver.on_stored = o->on_stored;
    s->driver.on_stored_drop = o->on_stored_drop;
    s->driver.arg = o->head.arg;
    if (start(s, o, err) < 0) {
        ms_driver_session_destroy(s);
        return NULL;
    }
    enlist(s);
    return s;
}

/* ---- the timeline ---------------------------------------------------------------- */

int ms_driver_session_record(struct ms_driver_session *s,
                             const char *path,
                             struct ms_error *err)
{
    char own[MS_SESSION_DIR_MAX + sizeof "/logs/" MS_TIMELINE_NAME];

    if (s->ended)
        return ms_error_set(err, -ESHUTDOWN, "the session has ended");
    if (!path && s->joined)
        return ms_error_set(err,
                            -EINVAL,
                            "a driver that has joined a head has no folder for its "
                            "timeline: name a file");
    if (!path)
        snprintf(own,
                 sizeof own,
                 "%s/logs/" MS_TIMELINE_NAME,
                 ms_head_session(s->head)->dir);
    return ms_timeline_start(&s->timeline, path ? path : own, err);
}

struct ms_timeline *ms_driver_session_timeline(struct ms_driver_session *s)
{
    return &s->timeline;
}

/* ---- stop ------------------------------------------------------------------------ */

void ms_driver_session_stop(struct ms_driver_session *s, int64_t grace_ns)
{
    if (atomic_exchange(&s->ended, true))
        return;
    delist(s);
    run_on_loop(s, client_close);
    ms_head_stop(s->head, grace_ns);
    s->head = NULL;
}

void ms_driver_session_fail(struct ms_driver_session *s)
{
    if (s->head)
        ms_head_fail(s->head);
}

void ms_driver_session_destroy(struct ms_driver_session *s)
{
    if (!s)
        return;
    ms_map_finish(&s->asking);
    ms_spin_close(s->spin);
    ms_timeline_finish(&s->timeline);
    free(s);
}

/* ---- what it is ------------------------------------------------------------------ */

struct ms_head *ms_driver_session_head(const struct ms_driver_session *s)
{
    return s->head;
}

struct ms_client *ms_driver_session_client(const struct ms_driver_session *s)
{
    return s->client;
}

bool ms_driver_session_is_joined(const struct ms_driver_session *s)
{
    return s->joined;
}

bool ms_driver_session_is_open(struct ms_driver_session *s)
{
    return !s->ended;
}

bool ms_driver_session_is_alive(struct ms_driver_session *s)
{
    return !s->ended && !s->lost;
}
