/* rollout.c - life, the thread, events into the scheduler, news */
#include "rollout/rollout_impl.h"

#include "base/name.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>

#define HISTORY_PROMPTS 1000000

/* ---- news -------------------------------------------------------------------------- */

void ms_rollout_news(struct ms_rollout *r)
{
    uint64_t one = 1;

    r->news++;
    pthread_cond_broadcast(&r->has_news);
    for (int i = 0; i < MS_ROLLOUT_LISTENERS; i++)
        if (r->listeners[i] >= 0 && write(r->listeners[i], &one, sizeof one) < 0)
            continue; /* a full counter is readable already */
}

uint64_t ms_rollout_wait(struct ms_rollout *r, uint64_t seen, int64_t until_ns)
{
    struct timespec at = ms_timespec(until_ns);
    MS_ROLLOUT_ENTER(r, seen);

    while (r->news == seen && ms_rollout_check(r) == 0)
        if (until_ns == MS_NEVER)
            pthread_cond_wait(&r->has_news, &r->lock);
        else if (pthread_cond_timedwait(&r->has_news, &r->lock, &at) == ETIMEDOUT)
            break;
    return r->news;
}

int ms_rollout_listen(struct ms_rollout *r)
{
    MS_ROLLOUT_ENTER(r, -ECHILD);

    for (int i = 0; i < MS_ROLLOUT_LISTENERS; i++) {
        if (r->listeners[i] >= 0)
            continue;
        r->listeners[i] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        return r->listeners[i] < 0 ? -errno : r->listeners[i];
    }
    return -ENOSPC;
}

void ms_rollout_unlisten(struct ms_rollout *r, int fd)
{
    MS_ROLLOUT_ENTER(r, );

    for (int i = 0; i < MS_ROLLOUT_LISTENERS; i++)
        if (fd >= 0 && r->listeners[i] == fd)
            ms_fd_close(&r->listeners[i]);
}

/* ---- events ------------------------------------------------------------------------ */

bool ms_rollout_is_forked(const struct ms_rollout *r)
{
    return r->pid != getpid();
}

int ms_rollout_check(const struct ms_rollout *r)
{
    return ms_rollout_is_forked(r) ? -ECHILD : r->is_closing ? -ESHUTDOWN : 0;
}

int ms_rollout_status(struct ms_rollout *r)
{
    MS_ROLLOUT_ENTER(r, -ECHILD);

    return ms_rollout_check(r);
}

void ms_rollout_later(struct ms_rollout *r, struct ms_generate_event e)
{
    if (ms_array_reserve(
            &r->events, &r->event_room, r->event_count + 1, sizeof *r->events) < 0)
        return; /* the silence of its subject will be noticed */
    r->events[r->event_count++] = e;
}

static int step_one(struct ms_rollout *r, const struct ms_generate_event *e)
{
    const struct ms_generate_decision *d;
    size_t count;
    int rc;

    if (e->what == MS_FINISHED || e->what == MS_CHUNK || e->what == MS_ABORTED)
        ms_rollout_request_ended(r, e);
    rc = ms_scheduler_step(r->core, e, ms_now_ns(), &d, &count);
    if (rc < 0)
        return rc;
    ms_rollout_mark_event(r, e);
    for (size_t i = 0; i < count; i++)
        ms_rollout_carry_out(r, &d[i]);
    return 0;
}

static void step_waiting(struct ms_rollout *r)
{
    for (size_t i = 0; i < r->event_count; i++) {
        struct ms_generate_event e = r->events[i];

        step_one(r, &e);
    }
    r->event_count = 0;
}

int ms_rollout_step(struct ms_rollout *r, const struct ms_generate_event *e)
{
    int rc = 0;

    assert(!r->is_stepping);
    r->is_stepping = true;
    step_waiting(r);
    if (e)
        rc = step_one(r, e);
    step_waiting(r);
    r->is_stepping = false;
    if (r->is_paused)
        ms_rollout_news(r); /* nothing may run any more */
    ms_rollout_arm(r);
    return rc;
}

void ms_rollout_rid_print(const struct ms_rollout *r,
                          uint64_t id,
                          char rid[MS_ROLLOUT_RID])
{
    snprintf(rid,
             MS_ROLLOUT_RID,
             "%016llx%016llx",
             (unsigned long long)r->nonce,
             (unsigned long long)id);
}

int ms_rollout_rid_parse(const struct ms_rollout *r, const char *rid, uint64_t *id)
{
    char again[MS_ROLLOUT_RID];
    unsigned long long nonce, number;

    if (sscanf(rid, "%16llx%16llx", &nonce, &number) != 2)
        return -ENOENT;
    ms_rollout_rid_print(r, number, again);
    if (strcmp(again, rid) != 0)
        return -ENOENT;
    *id = number;
    return 0;
}

/* ---- the thread -------------------------------------------------------------------- */

static void tick(struct ms_rollout *r)
{
    const struct ms_generate_event e = {.what = MS_TICK};
    int64_t now_ns = ms_now_ns(), seek_ns = ms_rollout_replicas_tick(r, now_ns);
    int64_t forget_ns = ms_gen_sessions_expire(r->sessions, now_ns);

    r->armed_ns = r->tick_ns = MS_NEVER;
    if (r->history && r->learnt != r->saved && now_ns >= r->save_ns) {
        ms_rollout_history_save(r);
        r->save_ns = now_ns + MS_ROLLOUT_SAVE_NS;
    }
    r->tick_ns = seek_ns < forget_ns ? seek_ns : forget_ns;
    if (r->history && r->learnt != r->saved && r->save_ns < r->tick_ns)
        r->tick_ns = r->save_ns;
    ms_rollout_step(r, &e);
}

static void on_time(void *arg)
{
    struct ms_rollout *r = arg;
    MS_LOCK(&r->lock);

    r->armed_ns = MS_NEVER;
    if (!r->is_closing)
        tick(r);
}

static void set_timer(void *arg)
{
    struct ms_rollout *r = arg;
    int64_t delay_ns;
    MS_LOCK(&r->lock);

    delay_ns = r->armed_ns - ms_now_ns();
    if (r->armed_ns != MS_NEVER)
        ms_timer_set(&r->timer, delay_ns > 0 ? delay_ns : 0);
}

void ms_rollout_arm(struct ms_rollout *r)
{
    int64_t wake_ns = ms_scheduler_wake_ns(r->core);

    if (r->tick_ns < wake_ns)
        wake_ns = r->tick_ns;
    if (wake_ns >= r->armed_ns)
        return;
    r->armed_ns = wake_ns;
    ms_loop_post(r->loop, set_timer, r);
}

static void on_inbox(void *arg, unsigned events)
{
    struct ms_rollout *r = arg;
    uint64_t tags[64];
    size_t n;
    MS_LOCK(&r->lock);

    (void)events;
    n = ms_inbox_take(r->inbox, tags, MS_COUNT(tags));
    for (size_t i = 0; i < n && !r->is_closing; i++) {
        struct open_call *c = ms_map_find(&r->calls, tags[i]);

        if (c)
            ms_rollout_call_hear(r, c);
        if (r->event_count > 0)
            ms_rollout_step(r, NULL);
    }
}

static void *run(void *arg)
{
    struct ms_rollout *r = arg;

    ms_loop_run(r->loop);
    return NULL;
}

/* ---- life -------------------------------------------------------------------------- */

static void free_all(struct ms_rollout *r)
{
    ms_rollout_groups_finish(r);
    ms_rollout_role_finish(r);
    for (size_t i = 0; i < r->replica_count; i++)
        if (r->replicas[i]) {
            ms_peer_unref(r->replicas[i]->peer);
            free(r->replicas[i]);
        }
    for (int i = 0; i < MS_ROLLOUT_LISTENERS; i++)
        ms_fd_close(&r->listeners[i]);
    ms_timer_finish(&r->timer);
    ms_watch_finish(&r->inbox_watch);
    ms_inbox_unref(r->inbox);
    if (r->loop)
        ms_loop_destroy(r->loop);
    ms_map_finish(&r->groups);
    ms_map_finish(&r->requests);
    ms_map_finish(&r->calls);
    ms_map_finish(&r->versions);
    ms_map_finish(&r->keys);
    ms_scheduler_destroy(r->core);
    ms_lengths_destroy(r->lengths);
    ms_gen_sessions_destroy(r->sessions);
    ms_partials_destroy(r->partials);
    pthread_cond_destroy(&r->has_news);
    pthread_mutex_destroy(&r->lock);
    free(r->replicas);
    free(r->events);
    free(r->marks);
    free(r->engine);
    free(r->history);
    free(r);
}

static void init(struct ms_rollout *r, const struct ms_rollout_options *o)
{
    pthread_condattr_t clock;

    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&r->has_news, &clock);
    pthread_condattr_destroy(&clock);
    pthread_mutex_init(&r->lock, NULL);
    memset(r->listeners, -1, sizeof r->listeners);
    ms_map_init(&r->groups);
    ms_map_init(&r->requests);
    ms_map_init(&r->calls);
    ms_map_init(&r->versions);
    ms_map_init(&r->keys);
    ms_list_init(&r->judged);
    ms_list_init(&r->leased);
    ms_list_init(&r->dropped);
    r->pid = getpid();
    r->news = 1;
    r->version = r->first_version = o->version;
    r->slots = o->slots;
    r->kv_tokens = o->kv_tokens;
    r->replicas_max = MS_ROLLOUT_NO_LIMIT;
    r->mesh = (struct ms_mesh){
        .tp = o->tp ? o->tp : 1, .cp = o->cp ? o->cp : 1, .pp = o->pp ? o->pp : 1};
    r->has_filter = o->core.filter;
    r->nonce = ms_random_id();
    r->armed_ns = r->tick_ns = MS_NEVER;
    r->engine = strdup(o->engine ? o->engine : "default");
    if (o->history)
        r->history = *o->history ? strdup(o->history) : NULL;
    else if (o->role)
        r->history = ms_rollout_history_of(o->role);
    r->marks = calloc(MS_ROLLOUT_MARKS, sizeof *r->marks);
    r->lengths =
        ms_lengths_create(o->history_prompts ? o->history_prompts : HISTORY_PROMPTS);
    r->sessions = ms_gen_sessions_create(o->session_ttl_ns);
    r->partials = ms_partials_create(MS_ROLLOUT_PARTIALS, ms_rollout_partial_release);
    r->staleness_max = o->core.staleness_max;
    r->loop = ms_loop_create();
    r->inbox = ms_inbox_create();
}

static int start(struct ms_rollout *r, struct ms_error *err)
{
    int rc = ms_watch_init(
        &r->inbox_watch, r->loop, ms_inbox_fd(r->inbox), MS_READ, on_inbox, r);

    if (rc == 0)
        rc = ms_timer_init(&r->timer, r->loop, on_time, r);
    if (rc == 0)
        rc = -pthread_create(&r->thread, NULL, run, r);
    return rc == 0 ? 0 : ms_error_sys(err, rc, "a thread for generation");
}

static int make_core(struct ms_rollout *r,
                     const struct ms_rollout_options *o,
                     struct ms_error *err)
{
    struct ms_scheduler_options core = o->core;

    core.policy = ms_policy_find(o->policy ? o->policy : "auto");
    if (!core.policy)
        return ms_error_set(err, -EINVAL, "there is no policy \"%s\"", o->policy);
    r->core = ms_scheduler_create(&core, r->lengths, err);
    return r->core ? 0 : -EINVAL;
}

struct ms_rollout *ms_rollout_create(const struct ms_rollout_options *o,
                                     struct ms_error *err)
{
    const struct ms_generate_event at = {.what = MS_ADVANCE, .version = o->version};
    struct ms_rollout *r = calloc(1, sizeof *r);

    if (!r) {
        ms_error_set(err, -ENOMEM, "no memory for a rollout");
        return NULL;
    }
    init(r, o);
    if (o->slots == 0) {
        ms_error_set(err, -EINVAL, "a replica needs slots");
        goto fail;
    }
    if (!r->engine || !r->lengths || !r->sessions || !r->partials || !r->loop ||
        !r->inbox || !r->marks || (o->history && *o->history && !r->history)) {
        ms_error_set(err, -ENOMEM, "no memory for a rollout");
        goto fail;
    }
    if (r->history && ms_rollout_history_load(r, err) < 0)
        goto fail;
    if (make_core(r, o, err) < 0)
        goto fail;
    if (start(r, err) < 0)
        goto fail;
    pthread_mutex_lock(&r->lock);
    ms_rollout_step(r, &at);
    pthread_mutex_unlock(&r->lock);
    return r;
fail:
    free_all(r);
    return NULL;
}

static bool begin_close(struct ms_rollout *r)
{
    MS_LOCK(&r->lock);

    if (r->is_closing)
        return false;
    r->is_closing = true;
    for (size_t i = 0; i < r->replica_count; i++)
        if (r->replicas[i])
            ms_rollout_call_drop_all(r, r->replicas[i]);
    ms_rollout_news(r);
    return true;
}

void ms_rollout_close(struct ms_rollout *r)
{
    if (r->pid != getpid() || !begin_close(r))
        return; /* in a forked child the thread is not there, and locks may be held */
    ms_loop_stop(r->loop);
    pthread_join(r->thread, NULL);
    ms_rollout_history_finish(r);
}

void ms_rollout_destroy(struct ms_rollout *r)
{
    if (!r || r->pid != getpid())
        return;
    ms_rollout_close(r);
    free_all(r);
}
