/* stop.c - workers end in order, or at once; and so does the agent */
#include "agent/join_impl.h"
#include "agent/worker.h"
#include "base/clock.h"
#include "io/proc.h"
#include "io/session/session.h"
#include "io/spawn.h"
#include "io/supervised_group.h"

#include <signal.h>
#include <string.h>
#include <sys/file.h>

struct ms_stop {
    struct ms_list link; /* in the agent's `stops` */
    struct ms_agent *agent;
    uint64_t request;
    const char *agent_why; /* the agent ends with it; NULL: it does not */
    bool is_killed;
    struct ms_timer timer;
    size_t count;
    uint64_t uids[];
};

static void stop_destroy(struct ms_stop *s)
{
    ms_list_remove(&s->link);
    ms_timer_finish(&s->timer);
    free(s);
}

static void complete(struct ms_stop *s)
{
    struct ms_agent *a = s->agent;
    uint64_t request = s->request;
    const char *agent_why = s->agent_why;

    stop_destroy(s);
    if (agent_why)
        ms_agent_end(a, request, agent_why);
    else
        ms_agent_done(a, request);
}

static void signal_all(struct ms_stop *s, int sig)
{
    for (size_t i = 0; i < s->count; i++) {
        struct ms_worker *w = ms_map_find(&s->agent->by_uid, s->uids[i]);

        if (!w)
            continue;
        w->is_requested = true;
        ms_worker_signal(w, sig);
    }
}

static void kill_all(struct ms_stop *s)
{
    s->is_killed = true;
    signal_all(s, SIGKILL);
    ms_timer_set(&s->timer, MS_END_NS);
}

/* The grace is over; and later: what does not even end by SIGKILL is not waited for. */
static void on_time(void *arg)
{
    struct ms_stop *s = arg;

    if (s->is_killed)
        complete(s);
    else
        kill_all(s);
}

static bool is_complete(const struct ms_stop *s)
{
    for (size_t i = 0; i < s->count; i++)
        if (ms_map_find(&s->agent->by_uid, s->uids[i]))
            return false;
    return true;
}

static void begin(struct ms_stop *s, int64_t grace_ns)
{
    if (grace_ns > 0) {
        signal_all(s, SIGTERM);
        ms_timer_set(&s->timer, grace_ns);
    } else {
        kill_all(s);
    }
    if (is_complete(s))
        complete(s);
}

static struct ms_stop *stop_create(struct ms_agent *a, uint64_t request, size_t room)
{
    struct ms_stop *s = calloc(1, sizeof *s + room * sizeof s->uids[0]);

    if (!s)
        return NULL;
    ms_list_init(&s->link);
    s->agent = a;
    s->request = request;
    if (ms_timer_init(&s->timer, a->loop, on_time, s) < 0) {
        free(s);
        return NULL;
    }
    ms_list_add_tail(&a->stops, &s->link);
    return s;
}

void ms_stop_begin(struct ms_agent *a,
                   uint64_t request,
                   const Muster__StopWorkers *stop)
{
    struct ms_stop *s = stop_create(a, request, stop->n_uids);

    if (!s) {
        ms_agent_refuse(a, request, MUSTER__FAILURE__KIND__NO_MEMORY, "out of memory");
        return;
    }
    s->count = stop->n_uids;
    memcpy(s->uids, stop->uids, s->count * sizeof s->uids[0]);
    begin(s, stop->grace_ns > INT64_MAX ? INT64_MAX : (int64_t)stop->grace_ns);
}

void ms_stop_agent(struct ms_agent *a, uint64_t request, const char *why)
{
    struct ms_stop *s;
    struct ms_worker *w;
    size_t at = 0;

    a->is_stopping = true;
    ms_starts_cancel(a, "the agent is shutting down");
    s = stop_create(a, request, a->by_uid.count);
    if (!s) {
        ms_agent_end(a, request, why);
        return;
    }
    while ((w = ms_map_next(&a->by_uid, &at)))
        s->uids[s->count++] = w->uid;
    s->agent_why = why;
    begin(s, MS_STOP_GRACE_NS);
}

void ms_stops_check(struct ms_agent *a)
{
    ms_list_each (s, &a->stops, struct ms_stop, link) {
        bool is_agent = s->agent_why != NULL;

        if (!is_complete(s))
            continue;
        complete(s);
        if (is_agent)
            return;
    }
}

void ms_stops_finish(struct ms_agent *a)
{
    ms_list_each (s, &a->stops, struct ms_stop, link)
        stop_destroy(s);
}

/* ---- the end of all -------------------------------------------------------------- */

/* Each one that goes may leave us its children. */
static void end_below(struct ms_agent *a)
{
    struct ms_worker *w;
    size_t at = 0;

    while ((w = ms_map_next(&a->by_pid, &at)))
        ms_worker_signal(w, SIGKILL);
    ms_proc_end_children(ms_now_ns() + MS_END_NS);
}

static void remove_workers(struct ms_agent *a)
{
    for (;;) {
        size_t at = 0;
        struct ms_worker *w = ms_map_next(&a->by_uid, &at);

        if (!w)
            return;
        if (w->log)
            ms_log_drain(w->log);
        ms_worker_destroy(w);
    }
}

/* Other agents may still use the folder; the last one removes it. */
static bool is_last_in_folder(const struct ms_agent *a)
{
    return a->config &&
           (a->folder_fd < 0 ? a->config->nodes_here <= 1
                             : flock(a->folder_fd, LOCK_EX | LOCK_NB) == 0);
}

void ms_agent_end(struct ms_agent *a, uint64_t request, const char *why)
{
    if (a->is_over)
        return;
    ms_agent_log_event(json_pack("{s:s}", "event", "ends"), "ends: %s", why);
    a->is_over = a->is_stopping = true;
    end_below(a);
    ms_starts_finish(a);
    remove_workers(a);
    if (a->join) {
        ms_redial_stop(&a->join->redial);
        ms_node_dir_close(&a->join->dir);
    } else if (is_last_in_folder(a)) {
        ms_session_remove(a->config->session_dir);
    }
    ms_agent_done(a, request);
    if (a->link)
        ms_link_drain(a->link, ms_now_ns() + MS_NS_PER_S);
    if (a->supervisor_fd >= 0)
        ms_process_signal(a->supervisor_fd,
                          SIGCONT); /* it ends with us, also if stopped */
    ms_loop_stop(a->loop);
}

static void on_supervisor_gone(void *arg, unsigned events)
{
    struct ms_agent *a = arg;

    (void)events;
    a->exit_code = 1;
    ms_agent_log("ends: its supervisor was killed");
    ms_supervised_groups_sweep(); /* all at once, and us: we may be the next */
    ms_agent_end(a, 0, "its supervisor was killed");
}

static void on_process_dead(void *arg, unsigned events)
{
    struct ms_agent *a = arg;

    (void)events;
    a->exit_code = a->join ? 1 : 0;
    ms_agent_end(a, 0, "the process that it ends with has ended");
}

/* End with a process; 0: with none. */
static int watch_process(struct ms_agent *a,
                         pid_t pid,
                         int *fd,
                         struct ms_watch *watch,
                         void (*on_end)(void *arg, unsigned events))
{
    if (pid <= 0)
        return 0;
    *fd = ms_process_open(pid);
    return *fd < 0 ? *fd : ms_watch_init(watch, a->loop, *fd, MS_READ, on_end, a);
}

int ms_agent_watch_process(struct ms_agent *a, pid_t pid)
{
    return watch_process(a, pid, &a->driver_fd, &a->driver, on_process_dead);
}

int ms_agent_watch_supervisor(struct ms_agent *a, pid_t pid)
{
    return watch_process(a, pid, &a->supervisor_fd, &a->supervisor, on_supervisor_gone);
}
