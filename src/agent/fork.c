#include "agent/env.h"
#include "agent/worker.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

/* ---- what it is not told, it has from the worker beside it ----------------------- */

static int add_env(Muster__WorkerSpec *spec, const Muster__WorkerSpec *from)
{
    struct ms_env env = {0};

    if (ms_env_set_all(&env, from->env, from->n_env) < 0 ||
        ms_env_set_all(&env, spec->env, spec->n_env) < 0) {
        ms_env_finish(&env);
        return -EINVAL;
    }
    for (size_t i = 0; i < spec->n_env; i++)
        free(spec->env[i]);
    free(spec->env);
    spec->env = env.entries;
    spec->n_env = env.count;
    return 0;
}

/* An empty text is protobuf-c's own: it is not freed. */
static int add_text(char **field, const char *from)
{
    char *copy;

    if (**field || !*from)
        return 0;
    copy = strdup(from);
    if (!copy)
        return -ENOMEM;
    *field = copy;
    return 0;
}

static int add_zygote(Muster__WorkerSpec *spec, const Muster__WorkerSpec *from)
{
    MS_CLEANUP(ms_cleanup_free) uint8_t *packed = NULL;
    size_t len;

    if (spec->zygote || !from->zygote)
        return 0;
    len = muster__zygote_key__get_packed_size(from->zygote);
    packed = malloc(len ? len : 1);
    if (packed) {
        muster__zygote_key__pack(from->zygote, packed);
        spec->zygote = muster__zygote_key__unpack(NULL, len, packed);
    }
    return spec->zygote ? 0 : -ENOMEM;
}

static int add_devices(Muster__WorkerSpec *spec, const Muster__WorkerSpec *from)
{
    uint32_t *copy = malloc((from->n_devices + 1) * sizeof *copy);

    if (!copy)
        return -ENOMEM;
    if (from->n_devices)
        memcpy(copy, from->devices, from->n_devices * sizeof *copy);
    free(spec->devices);
    spec->devices = copy;
    spec->n_devices = from->n_devices;
    return 0;
}

static int complete_spec(Muster__WorkerSpec *spec, const struct ms_worker *parent)
{
    const Muster__WorkerSpec *from = parent->spec;
    int rc = add_env(spec, from);

    if (rc == 0)
        rc = add_text(&spec->cluster, from->cluster);
    if (rc == 0)
        rc = add_text(&spec->working_dir, from->working_dir);
    if (rc == 0)
        rc = add_zygote(spec, from);
    if (rc == 0)
        rc = add_devices(spec, from);
    spec->driver = from->driver;
    spec->detached = from->detached;
    spec->http_open = spec->http_open || from->http_open;
    return rc;
}

/* ---- asked ----------------------------------------------------------------------- */

/* StartWorkers with this one; takes the spec, also on failure. */
static Muster__HeadToAgent *make_start(uint64_t request, Muster__WorkerSpec *spec)
{
    Muster__HeadToAgent *m = malloc(sizeof *m);
    Muster__StartWorkers *start = malloc(sizeof *start);
    Muster__WorkerSpec **at = malloc(sizeof(Muster__WorkerSpec *));

    if (!m || !start || !at) {
        muster__worker_spec__free_unpacked(spec, NULL);
        free(m);
        free(start);
        free(at);
        return NULL;
    }
    muster__head_to_agent__init(m);
    muster__start_workers__init(start);
    at[0] = spec;
    start->n_workers = 1;
    start->workers = at;
    m->request = request;
    m->body_case = MUSTER__HEAD_TO_AGENT__BODY_START;
    m->start = start;
    return m;
}

/* Takes the spec. NULL: it has begun; else why not. */
static const char *begin(struct ms_worker *parent,
                         uint64_t request,
                         uint64_t asker,
                         Muster__WorkerSpec *spec)
{
    Muster__HeadToAgent *m;
    int rc = complete_spec(spec, parent);

    if (rc < 0) {
        muster__worker_spec__free_unpacked(spec, NULL);
        return rc == -EINVAL ? "its environment has what is not NAME=value"
                             : "out of memory";
    }
    m = make_start(request, spec);
    if (!m)
        return "out of memory";
    ms_start_begin_beside(parent->agent, m, parent, asker);
    return NULL;
}

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

void ms_fork_begin(struct ms_agent *a, Muster__HeadToAgent *message)
{
    Muster__ForkWorker *f = message->fork;
    struct ms_worker *parent = ms_map_find(&a->by_uid, f->beside);
    const char *why = refusal(parent, f);

    if (!why)
        why = begin(parent, message->request, 0, MS_TAKE(f->spec));
    if (why)
        ms_agent_refuse(a, message->request, MUSTER__FAILURE__KIND__REFUSED, why);
    muster__head_to_agent__free_unpacked(message, NULL);
}

static void answer_problem(struct ms_worker *parent, uint64_t uid, const char *why)
{
    Muster__AgentToWorker m = MUSTER__AGENT_TO_WORKER__INIT;
    Muster__Forked forked = MUSTER__FORKED__INIT;

    forked.uid = uid;
    forked.problem = (char *)(uintptr_t)why;
    m.body_case = MUSTER__AGENT_TO_WORKER__BODY_FORKED;
    m.forked = &forked;
    if (parent->control)
        ms_link_send(parent->control, &m.base);
}

/* Whatever it says: beside itself alone. */
void ms_fork_asked(struct ms_worker *parent, Muster__ForkWorker *f)
{
    const char *why = refusal(parent, f);
    uint64_t uid = f->spec ? f->spec->uid : 0;

    if (!why)
        why = begin(parent, uid, parent->uid, MS_TAKE(f->spec));
    if (why)
        answer_problem(parent, uid, why);
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

void ms_fork_child_ended(struct ms_worker *child, const Muster__WorkerExited *x)
{
    struct ms_worker *parent = ms_map_find(&child->agent->by_uid, child->beside);
    Muster__AgentToWorker m = MUSTER__AGENT_TO_WORKER__INIT;

    if (!parent || !parent->control)
        return;
    m.body_case = MUSTER__AGENT_TO_WORKER__BODY_CHILD;
    m.child = (Muster__WorkerExited *)(uintptr_t)x;
    ms_link_send(parent->control, &m.base);
}
