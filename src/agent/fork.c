/* fork.c - workers beside workers: with the environment, devices and folder of another */
#include "agent/worker.h"
#include "base/env.h"
#include "base/proto.h"

#include <errno.h>
#include <signal.h>

/* ---- what it is not told, it has from the worker beside it ----------------------- */

/* Replaces *spec by one that is complete. -EINVAL: its environment has what is none. */
static int complete_spec(Muster__WorkerSpec **spec, const struct ms_worker *parent)
{
    MS_CLEANUP(ms_env_finish) struct ms_env env = {0};
    const Muster__WorkerSpec *from = parent->spec;
    Muster__WorkerSpec with = **spec, *copy;

    if (ms_env_set_all(&env, from->env, from->n_env) < 0 ||
        ms_env_set_all(&env, with.env, with.n_env) < 0)
        return -EINVAL;
    with.env = env.entries;
    with.n_env = env.count;
    if (!*with.cluster)
        with.cluster = from->cluster;
    if (!*with.working_dir)
        with.working_dir = from->working_dir;
    if (!with.zygote)
        with.zygote = from->zygote;
    with.devices = from->devices;
    with.n_devices = from->n_devices;
    with.driver = from->driver;
    with.detached = from->detached;
    with.http_open = with.http_open || from->http_open;
    copy = (Muster__WorkerSpec *)ms_proto_copy(&with.base);
    if (!copy)
        return -ENOMEM;
    muster__worker_spec__free_unpacked(*spec, NULL);
    *spec = copy;
    return 0;
}

/* ---- asked ----------------------------------------------------------------------- */

static const char *refusal(const struct ms_worker *parent, const Muster__ForkWorker *f)
{
    if (!parent || parent->pid <= 0 || parent->has_ended)
        return "the worker that it is to run beside does not run here";
    if (!f->spec)
        return "it is not said what to run";
    if (parent->beside)
        return "a forked worker has no others beside it";
    if (parent->agent->is_stopping)
        return "the agent is shutting down";
    return NULL;
}

/* Takes the spec out of `f`. NULL: it has begun; else why not. */
static const char *
begin(struct ms_worker *parent, uint64_t request, uint64_t asker, Muster__ForkWorker *f)
{
    const char *why = refusal(parent, f);
    int rc = why ? 0 : complete_spec(&f->spec, parent);

    if (rc < 0)
        why = rc == -EINVAL ? "its environment has what is not NAME=value"
                            : "out of memory";
    if (!why)
        ms_start_begin(parent->agent, request, &f->spec, 1, parent, asker);
    return why;
}

void ms_fork_begin(struct ms_agent *a, Muster__HeadToAgent *m)
{
    const char *why =
        begin(ms_map_find(&a->by_uid, m->fork->beside), m->request, 0, m->fork);

    if (why)
        ms_agent_refuse(a, m->request, MUSTER__FAILURE__KIND__REFUSED, why);
}

void ms_fork_answer(struct ms_worker *asker, uint64_t uid, pid_t pid, const char *why)
{
    Muster__Forked forked = MUSTER__FORKED__INIT;

    forked.uid = uid;
    forked.pid = pid;
    if (why)
        forked.problem = (char *)(uintptr_t)why;
    ms_worker_send(asker, MUSTER__AGENT_TO_WORKER__BODY_FORKED, &forked);
}

/* Whatever it says: beside itself alone. */
void ms_fork_asked(struct ms_worker *parent, Muster__ForkWorker *f)
{
    uint64_t uid = f->spec ? f->spec->uid : 0;
    const char *why = begin(parent, uid, parent->uid, f);

    if (why)
        ms_fork_answer(parent, uid, 0, why);
}

void ms_fork_kill(struct ms_worker *parent, const Muster__StopWorkers *kill)
{
    struct ms_agent *a = parent->agent;
    Muster__StopWorkers own = MUSTER__STOP_WORKERS__INIT;

    own.uids = calloc(kill->n_uids + 1, sizeof *own.uids);
    if (!own.uids)
        return;
    for (size_t i = 0; i < kill->n_uids; i++) {
        const struct ms_worker *w = ms_map_find(&a->by_uid, kill->uids[i]);

        if (w && w->beside == parent->uid)
            own.uids[own.n_uids++] = w->uid;
    }
    own.grace_ns = kill->grace_ns;
    ms_stop_begin(a, 0, &own);
    free(own.uids);
}

/* ---- ends ------------------------------------------------------------------------ */

bool ms_fork_is_orphan(const struct ms_worker *w)
{
    const struct ms_worker *parent = ms_map_find(&w->agent->by_uid, w->beside);

    return w->beside && (!parent || parent->has_ended);
}

void ms_fork_parent_ended(struct ms_worker *parent)
{
    struct ms_worker *w;
    size_t at = 0;

    while ((w = ms_map_next(&parent->agent->by_uid, &at))) {
        if (w->beside != parent->uid)
            continue;
        w->is_requested = true;
        ms_worker_signal(w, SIGKILL);
    }
}
