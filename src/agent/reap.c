/* reap.c - processes that have ended, and what is left of workers */
#include "agent/worker.h"
#include "io/proc.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

/* ---- who has ended --------------------------------------------------------------- */

/* Workers of a zygote that is gone are our children now. One that is not our child
 * was reaped by the zygote, which ended before it could report that. */
static void check_orphaned(struct ms_agent *a, pid_t zygote)
{
    bool again = true;

    while (again) {
        struct ms_worker *w;
        size_t at = 0;

        again = false;
        while ((w = ms_map_next(&a->by_pid, &at))) {
            siginfo_t info;

            if (w->zygote_pid != zygote)
                continue;
            w->zygote_pid = 0;
            if (waitid(P_PID, (id_t)w->pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0)
                continue;
            ms_worker_ended(
                w, 0, "how it ended is not known: its zygote ended with it");
            again = true; /* the map has changed */
            break;
        }
    }
}

void ms_reap_one(struct ms_agent *a, pid_t pid, int status)
{
    struct ms_worker *w = ms_map_find(&a->by_pid, (uint64_t)pid);

    if (a->is_over)
        return;
    if (w) {
        ms_worker_ended(w, status, NULL);
        return;
    }
    ms_zygotes_reaped(&a->zygotes, pid, status);
    check_orphaned(a, pid);
    ms_sweep_soon(a); /* it may have been one's orphan and have children of its own */
}

void ms_reap(struct ms_agent *a)
{
    if (a->config)
        ms_zygotes_poll(&a->zygotes); /* what they said before they died */
    for (;;) {
        siginfo_t info = {0};
        int status;

        if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) < 0 || !info.si_pid)
            return;
        /* while the dead leader still keeps the group's number; an orphan of a living
         * worker may leave a group that is in use */
        if (ms_map_find(&a->by_pid, (uint64_t)info.si_pid))
            ms_proc_group_kill(info.si_pid, SIGKILL);
        if (waitpid(info.si_pid, &status, 0) != info.si_pid)
            return;
        if (a->config)
            ms_reap_one(a, info.si_pid, status);
    }
}

/* ---- what is left of them -------------------------------------------------------- */

/* The worker that a process came from, by its environment; 0: unknown. -EAGAIN: it cannot
 * say that now. */
static int uid_of(pid_t pid, uint64_t *uid)
{
    char text[17], *end;
    int rc = ms_proc_env(pid, "MUSTER_WORKER_UID", text, sizeof text);

    *uid = 0;
    if (rc < 0)
        return rc == -EAGAIN ? rc : 0;
    *uid = strtoull(text, &end, 16);
    if (*end || end == text)
        *uid = 0;
    return 0;
}

enum orphan {
    NO_ORPHAN, /* or it is killed */
    IS_ENDING, /* it can no longer say whose it is */
    IS_NEW     /* it cannot say so yet */
};

/* A child of ours that is neither worker nor zygote lost its parent. If its worker
 * still lives it may stay. */
static enum orphan kill_if_orphan(struct ms_agent *a, pid_t pid)
{
    struct ms_worker *w;
    uint64_t uid;

    if (ms_map_find(&a->by_pid, (uint64_t)pid) || ms_zygotes_has(&a->zygotes, pid))
        return NO_ORPHAN;
    if (uid_of(pid, &uid) < 0)
        return IS_NEW;
    if (!uid)
        return ms_proc_is_ending(pid) ? IS_ENDING : NO_ORPHAN;
    w = ms_map_find(&a->by_uid, uid);
    if (w && !w->has_ended)
        return NO_ORPHAN;
    if (w)
        w->has_orphans = true;
    ms_proc_kill(pid);
    return NO_ORPHAN;
}

/* Nothing of it is left: its start and its stops are told. */
static void bury(struct ms_worker *w)
{
    struct ms_start *start = w->start;

    if (start)
        ms_start_gone(start, w);
    ms_worker_destroy(w);
}

static void bury_dead(struct ms_agent *a)
{
    bool is_any_gone = false;

    ms_list_each (w, &a->dead, struct ms_worker, link) {
        if (w->has_orphans || (w->start && ms_start_wants(w->start)))
            continue;
        if (ms_cgroup_remove(&w->cgroup) < 0) {
            ms_cgroup_kill(&w->cgroup);
            continue;
        }
        bury(w);
        is_any_gone = true;
    }
    if (is_any_gone)
        ms_stops_check(a);
}

/* Each process that ends from here on makes for another sweep; one that is within an exec
 * gives no sign when it is through. */
static void sweep(struct ms_agent *a)
{
    MS_CLEANUP(ms_cleanup_free) pid_t *pids = NULL;
    bool is_any_unknown = false;
    int count;

    if (a->is_over)
        return;
    ms_list_each (w, &a->dead, struct ms_worker, link)
        w->has_orphans = false;
    count = ms_proc_children(&pids);
    for (int i = 0; i < count; i++) {
        enum orphan found = kill_if_orphan(a, pids[i]);

        is_any_unknown |= found != NO_ORPHAN;
        if (found == IS_NEW)
            ms_timer_set(&a->sweep_again, MS_SWEEP_AGAIN_NS);
    }
    if (!is_any_unknown)
        bury_dead(a);
}

static void on_sweep(void *arg)
{
    struct ms_agent *a = arg;

    a->sweep_posted = false;
    sweep(a);
}

void ms_sweep_soon(struct ms_agent *a)
{
    if (a->sweep_posted || a->is_over)
        return;
    a->sweep_posted = ms_loop_post(a->loop, on_sweep, a) == 0;
}

static void on_again(void *arg)
{
    sweep(arg);
}

int ms_sweep_init(struct ms_agent *a)
{
    return ms_timer_init(&a->sweep_again, a->loop, on_again, a);
}
