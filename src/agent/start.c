/* start.c - workers are started together: all of them, or none is left */
#include "agent/worker.h"
#include "base/name.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>

struct ms_start {
    struct ms_list link; /* in the agent's `starts` */
    struct ms_agent *agent;
    uint64_t request;
    uint64_t asker;           /* a worker that is answered; 0: the head */
    struct ms_worker *parent; /* while it begins: beside which; NULL: none */
    bool is_beginning;        /* inside ms_start_begin: not to be finished yet */
    char *why;                /* the first failure; NULL: none so far */
    struct ms_timer timeout;  /* after a failure: how long what is left is waited for */
    bool is_timed_out;
    size_t count;
    struct ms_worker *workers[]; /* NULL: not created */
};

/* ---- before anything is made ----------------------------------------------------- */

static int check_env(char *const *env, size_t count, struct ms_error *err)
{
    for (size_t i = 0; i < count; i++) {
        const char *equals = strchr(env[i], '=');

        if (!equals || equals == env[i])
            return ms_error_set(err, -EINVAL, "'%s' is not NAME=value", env[i]);
    }
    return 0;
}

static int check_folder(const char *dir, struct ms_error *err)
{
    struct stat st;
    int rc = !*dir                 ? 0
             : stat(dir, &st) < 0  ? -errno
             : S_ISDIR(st.st_mode) ? 0
                                   : -ENOTDIR;

    return rc < 0 ? ms_error_sys(err, rc, "cannot enter the working folder '%s'", dir)
                  : 0;
}

static int check_spec(const struct ms_agent *a,
                      const Muster__WorkerSpec *spec,
                      struct ms_error *err)
{
    int rc = ms_name_check(spec->cluster, "cluster", err);

    if (rc < 0)
        return rc;
    if (!spec->uid)
        return ms_error_set(err, -EINVAL, "a worker's uid must not be 0");
    if (ms_map_find(&a->by_uid, spec->uid))
        return ms_error_set(err, -EEXIST, "its uid is taken");
    if (spec->start == MUSTER__START_KIND__START_COMMAND && !spec->n_command)
        return ms_error_set(err, -EINVAL, "its command is empty");
    rc = check_env(spec->env, spec->n_env, err);
    return rc < 0 ? rc : check_folder(spec->working_dir, err);
}

static struct ms_context *context_of(const struct ms_start *s,
                                     const Muster__WorkerSpec *spec,
                                     struct ms_error *err)
{
    struct ms_context *context =
        s->parent ? s->parent->context
                  : ms_contexts_find(&s->agent->contexts, spec->driver);

    if (!context)
        ms_error_set(err,
                     -ENOENT,
                     "its driver %016" PRIx64 " is not known here, or gone",
                     spec->driver);
    return context;
}

/* ---- the end of it --------------------------------------------------------------- */

static void start_destroy(struct ms_start *s)
{
    ms_list_remove(&s->link);
    ms_timer_finish(&s->timeout);
    free(s->why);
    free(s);
}

/* They no longer belong to it. Those that have nothing to end go. */
static void release_workers(struct ms_start *s)
{
    for (size_t i = 0; i < s->count; i++) {
        struct ms_worker *w = s->workers[i];

        if (!w)
            continue;
        w->start = NULL;
        if (s->why && w->pid <= 0)
            ms_worker_destroy(w);
    }
}

static void answer_started(struct ms_start *s)
{
    MS_CLEANUP(ms_cleanup_free)
    Muster__WorkerStarted *each = calloc(s->count, sizeof *each);
    MS_CLEANUP(ms_cleanup_free)
    Muster__WorkerStarted **at = calloc(s->count, sizeof *at);
    Muster__WorkersStarted started = MUSTER__WORKERS_STARTED__INIT;

    if (!each || !at) {
        ms_agent_refuse(
            s->agent, s->request, MUSTER__FAILURE__KIND__NO_MEMORY, "out of memory");
        return;
    }
    for (size_t i = 0; i < s->count; i++) {
        at[i] = &each[i];
        ms_worker_describe(s->workers[i], at[i]);
    }
    started.n_workers = s->count;
    started.workers = at;
    ms_agent_send(s->agent, s->request, MUSTER__AGENT_TO_HEAD__BODY_STARTED, &started);
}

/* Some result is not known, or after a failure something is left. */
static bool is_under_way(const struct ms_start *s)
{
    for (size_t i = 0; i < s->count && !s->is_timed_out; i++) {
        const struct ms_worker *w = s->workers[i];

        if (w && (w->is_pending || (s->why && w->pid > 0)))
            return true;
    }
    return false;
}

static void answer(struct ms_start *s)
{
    const struct ms_worker *first = s->workers[0];

    if (s->asker)
        ms_fork_answer(ms_map_find(&s->agent->by_uid, s->asker),
                       s->request,
                       first && !s->why ? first->pid : 0,
                       s->why);
    else if (s->why)
        ms_agent_refuse(s->agent, s->request, MUSTER__FAILURE__KIND__REFUSED, s->why);
    else
        answer_started(s);
}

static void finish_if_complete(struct ms_start *s)
{
    struct ms_agent *a = s->agent;
    bool is_success = !s->why;

    if (s->is_beginning || is_under_way(s))
        return;
    answer(s);
    release_workers(s);
    for (size_t i = 0; i < s->count && is_success; i++)
        ms_worker_tell_end(s->workers[i]); /* of those that are already over */
    start_destroy(s);
    if (is_success)
        ms_sweep_soon(a);
}

/* ---- failure: all or none -------------------------------------------------------- */

static void give_up(struct ms_start *s)
{
    for (size_t i = 0; i < s->count; i++) {
        struct ms_worker *w = s->workers[i];

        if (!w)
            continue;
        w->is_requested = true;
        if (w->is_pending && ms_zygote_item_cancel(&w->item))
            w->is_pending = false;
        ms_worker_signal(w, SIGKILL);
    }
}

static void
fail(struct ms_start *s, const char *cluster, uint32_t rank, const char *why)
{
    if (s->why)
        return;
    if (asprintf(&s->why, "cannot start %s/%u: %s", cluster, rank, why) < 0)
        s->why = strdup("out of memory");
    ms_timer_set(&s->timeout, MS_END_NS);
    give_up(s);
}

void ms_start_result(struct ms_start *s, struct ms_worker *w, const char *why)
{
    if (!s)
        return; /* it was given up before the result came */
    if (why)
        fail(s, w->spec->cluster, w->spec->rank, why);
    else if (s->why || ms_fork_is_orphan(w))
        ms_worker_signal(w, SIGKILL); /* it came too late */
    finish_if_complete(s);
}

bool ms_start_wants(const struct ms_start *s)
{
    return !s->why;
}

void ms_start_gone(struct ms_start *s, struct ms_worker *w)
{
    for (size_t i = 0; i < s->count; i++)
        if (s->workers[i] == w)
            s->workers[i] = NULL;
    finish_if_complete(s);
}

/* What does not even end by SIGKILL is not waited for. */
static void on_timeout(void *arg)
{
    struct ms_start *s = arg;

    s->is_timed_out = true;
    finish_if_complete(s);
}

void ms_starts_cancel(struct ms_agent *a, const char *why)
{
    ms_list_each (s, &a->starts, struct ms_start, link) {
        if (!s->why) {
            s->why = strdup(why);
            ms_timer_set(&s->timeout, MS_END_NS);
        }
        give_up(s);
        finish_if_complete(s);
    }
}

void ms_starts_finish(struct ms_agent *a)
{
    ms_list_each (s, &a->starts, struct ms_start, link) {
        for (size_t i = 0; i < s->count; i++)
            if (s->workers[i])
                s->workers[i]->start = NULL;
        start_destroy(s);
    }
}

/* ---- the beginning --------------------------------------------------------------- */

/* Takes the spec: it is the worker's. */
static void begin_one(struct ms_start *s, size_t i, Muster__WorkerSpec **at)
{
    MS_CLEANUP(ms_cleanup_free) char *cluster = strdup((*at)->cluster);
    uint32_t rank = (*at)->rank;
    struct ms_error err = {0};
    struct ms_context *context =
        check_spec(s->agent, *at, &err) < 0 ? NULL : context_of(s, *at, &err);

    if (context)
        s->workers[i] = ms_worker_create(s->agent, s, context, MS_TAKE(*at), &err);
    if (s->workers[i] && s->parent) {
        s->workers[i]->beside = s->parent->uid;
        s->workers[i]->is_private = s->asker != 0;
    }
    if (!s->workers[i] || ms_worker_begin(s->workers[i], &err) < 0)
        fail(s, cluster ? cluster : "", rank, err.text);
}

static const char *refusal(const struct ms_agent *a, size_t count)
{
    if (a->is_stopping)
        return "the agent is shutting down";
    if (!count)
        return "no workers were named";
    if (a->by_uid.count + count > MS_WORKERS_MAX)
        return "too many workers for one agent";
    return NULL;
}

static struct ms_start *start_create(struct ms_agent *a, uint64_t request, size_t count)
{
    struct ms_start *s = calloc(1, sizeof *s + count * sizeof s->workers[0]);

    if (!s || ms_timer_init(&s->timeout, a->loop, on_timeout, s) < 0) {
        free(s);
        return NULL;
    }
    s->agent = a;
    s->request = request;
    s->count = count;
    ms_list_add_tail(&a->starts, &s->link);
    return s;
}

void ms_start_begin(struct ms_agent *a,
                    uint64_t request,
                    Muster__WorkerSpec **specs,
                    size_t count,
                    struct ms_worker *parent,
                    uint64_t asker)
{
    const char *why = refusal(a, count);
    struct ms_start *s = why ? NULL : start_create(a, request, count);

    if (!s && asker) {
        ms_fork_answer(
            ms_map_find(&a->by_uid, asker), request, 0, why ? why : "out of memory");
        return;
    }
    if (!s) {
        ms_agent_refuse(a,
                        request,
                        a->is_stopping ? MUSTER__FAILURE__KIND__SHUTTING_DOWN
                                       : MUSTER__FAILURE__KIND__REFUSED,
                        why ? why : "out of memory");
        return;
    }
    s->asker = asker;
    s->parent = parent;
    s->is_beginning = true;
    ms_zygotes_begin_round(&a->zygotes);
    for (size_t i = 0; i < count && !s->why; i++)
        begin_one(s, i, &specs[i]);
    s->is_beginning = false;
    s->parent = NULL;
    finish_if_complete(s);
}
