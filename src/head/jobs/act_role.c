/* act_role.c - actions of roles and of the driver: clusters are made, changed and ended */
#include "base/cleanup.h"
#include "base/proto.h"
#include "head/head_impl.h"
#include "head/jobs/act.h"
#include "head/jobs/hosted.h"
#include "head/jobs/machines.h"
#include "head/jobs/ranks.h"
#include "head/jobs/spec.h"
#include "head/ops/op.h"
#include "head/place/place.h"
#include "head/state/journal.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

/* SIGTERM until SIGKILL. */
#define GRACE_NS (5 * MS_NS_PER_S)
/* A driver writes its last checkpoint. */
#define DRIVER_GRACE_NS (10 * MS_NS_PER_S)

static struct ms_cluster *find_any(const struct ms_job_doing *d)
{
    char name[MS_NAME_MAX + 1];

    return ms_registry_find(&d->job->jobs->head->registry,
                            ms_hosted_cluster(d->job, d->role, name));
}

/* NULL also for a cluster of that name with another owner: to make ours is refused then, with
 * the owner's name, and theirs is not touched. */
static struct ms_cluster *cluster_of(const struct ms_job_doing *d)
{
    struct ms_cluster *c = find_any(d);

    return c && !ms_hosted_is_foreign(d->job, c) ? c : NULL;
}

static bool is_foreign(const struct ms_job_doing *d)
{
    return find_any(d) && !cluster_of(d);
}

/* ---- how processes end ------------------------------------------------------------- */

enum ms_job_cause ms_job_cause_of(const Muster__Exit *exit)
{
    /* of a node that is gone nobody could say how its workers ended */
    bool is_lost = exit->unreachable || (!exit->signaled && exit->code < 0);
    MS_CLEANUP(ms_buf_finish) struct ms_buf text = {0};

    ms_job_exit_text(exit, &text);
    return ms_job_classify(&(struct ms_job_exit){.code = exit->code,
                                                 .signaled = exit->signaled,
                                                 .out_of_memory = exit->out_of_memory,
                                                 .unreachable = is_lost,
                                                 .text = ms_buf_str(&text)});
}

void ms_job_exit_text(const Muster__Exit *exit, struct ms_buf *out)
{
    ms_buf_init(out);
    if (exit->detail[0])
        ms_buf_printf(out, "%s", exit->detail);
    for (size_t i = 0; i < exit->n_last_lines; i++)
        ms_buf_printf(out, "%s%s", out->len ? "\n" : "", exit->last_lines[i]);
}

/* ---- who has which incarnation ----------------------------------------------------- */

struct ms_job_ranks *ms_hosted_ranks(struct ms_hosted *job, uint32_t role)
{
    return role == MS_JOB_DRIVER ? &job->driver : &job->ranks[role];
}

uint32_t ms_hosted_incarnation(const struct ms_hosted *job, uint32_t role, uint64_t uid)
{
    const struct ms_job_ranks *r =
        role == MS_JOB_DRIVER ? &job->driver : &job->ranks[role];

    for (size_t i = 0; i < r->count; i++)
        if (r->uids[i] == uid)
            return r->incarnations[i];
    return 0;
}

/* With the names of processes the next head knows which are whose; of one that is not there
 * yet it knows that it is of the last action. */
static void
keep_ranks(struct ms_hosted *job, uint32_t role, const struct ms_job_ranks *r)
{
    Muster__KeptJobRole m = MUSTER__KEPT_JOB_ROLE__INIT;
    MS_CLEANUP(ms_buf_finish) struct ms_buf packed = {0};
    char cluster[MS_NAME_MAX + 1], key[2 * MS_NAME_MAX + 4];

    snprintf(key,
             sizeof key,
             "%s/%s",
             job->name,
             ms_hosted_cluster(job, role, cluster) + strlen(job->name) + 1);
    m.uids = r->uids;
    m.n_uids = r->count;
    m.incarnations = r->incarnations;
    m.n_incarnations = r->count;
    if (ms_proto_pack(&m.base, &packed) == 0)
        ms_journal_write(job->jobs->head->persist.journal,
                         MS_PERSIST_JOB_ROLE,
                         key,
                         packed.data,
                         packed.len,
                         NULL);
}

void ms_hosted_note_ranks(struct ms_hosted *job,
                          uint32_t role,
                          const struct ms_cluster *c,
                          uint32_t incarnation)
{
    struct ms_job_ranks *old = ms_hosted_ranks(job, role);
    struct ms_job_ranks now = {.uids = calloc(c->count + 1, sizeof *now.uids),
                               .incarnations =
                                   calloc(c->count + 1, sizeof *now.incarnations)};

    if (!now.uids || !now.incarnations) {
        free(now.uids);
        free(now.incarnations);
        return;
    }
    now.count = c->count;
    for (size_t i = 0; i < c->count; i++) {
        uint64_t uid = c->slots[i].now.uid;
        uint32_t known = ms_hosted_incarnation(job, role, uid);

        now.uids[i] = uid;
        now.incarnations[i] = known ? known : incarnation;
    }
    free(old->uids);
    free(old->incarnations);
    *old = now;
    keep_ranks(job, role, old);
}

/* Those that have ended since the action began to be answered: nobody has told the core. */
void ms_hosted_tell_ends(struct ms_hosted *job, uint32_t role)
{
    char name[MS_NAME_MAX + 1];
    const struct ms_cluster *c = ms_registry_find(&job->jobs->head->registry,
                                                  ms_hosted_cluster(job, role, name));

    for (size_t i = 0; c && i < c->count; i++)
        if (c->slots[i].now.state == MUSTER__WORKER_STATE__WORKER_EXITED &&
            c->slots[i].now.exit)
            ms_jobs_worker_exited(job->jobs, &c->slots[i], c->slots[i].now.exit);
}

/* All is as the action wanted it. */
static void done(struct ms_job_doing *d)
{
    struct ms_hosted *job = d->job;
    const struct ms_cluster *c = cluster_of(d);
    uint32_t role = d->role;

    if (c)
        ms_hosted_note_ranks(job, role, c, d->incarnation);
    ms_doing_done(d);
    ms_hosted_tell_ends(job, role);
}

/* ---- failures ---------------------------------------------------------------------- */

/* "cluster/3@node" */
static bool read_where(const char *where, uint32_t *rank, const char **node)
{
    const char *slash = strrchr(where, '/');
    char *end = NULL;

    if (!slash)
        return false;
    *rank = (uint32_t)strtoul(slash + 1, &end, 10);
    *node = *end == '@' ? end + 1 : NULL;
    return end != slash + 1;
}

static enum ms_job_cause cause_of_failure(const Muster__Failure *f)
{
    enum ms_job_cause c;

    if (f->exit) {
        c = ms_job_cause_of(f->exit);
        return c == MS_JOB_SUCCEEDED ? MS_JOB_START_FAILED : c;
    }
    if (ms_job_find_hardware(f->message) || ms_job_find_hardware(f->traceback))
        return MS_JOB_HARDWARE;
    return f->kind == MUSTER__FAILURE__KIND__RAISED ||
                   f->kind == MUSTER__FAILURE__KIND__NO_ENGINE ||
                   f->kind == MUSTER__FAILURE__KIND__BAD_ARGUMENT
               ? MS_JOB_APPLICATION
               : MS_JOB_START_FAILED;
}

static void fill_report(const struct ms_job_doing *d,
                        const Muster__Failure *f,
                        struct ms_job_report *r)
{
    *r = (struct ms_job_report){.role = d->role,
                                .incarnation = d->incarnation,
                                .seen = MS_JOB_SEEN_ENDED,
                                .cause = (uint8_t)cause_of_failure(f),
                                .code = f->exit ? f->exit->code : 1,
                                .signaled = f->exit && f->exit->signaled};
    read_where(f->where, &r->rank, &r->node);
}

/* The traceback of the first worker that has one says the most. */
static const char *text_of(const Muster__Failure *f, const struct ms_error *why)
{
    for (size_t i = 0; f && i < f->n_workers; i++)
        if (f->workers[i]->traceback[0])
            return f->workers[i]->traceback;
    return why->text;
}

static void failed(struct ms_job_doing *d, int rc, const struct ms_error *why)
{
    const Muster__Failure *f = d->op ? ms_head_op_failure(d->op) : NULL;
    size_t count = f ? f->n_workers : 0;
    MS_CLEANUP(ms_cleanup_free)
    struct ms_job_report *reports = calloc(count + 1, sizeof *reports);

    if (!count || !reports) {
        ms_doing_failed_with(d, rc, why);
        return;
    }
    for (size_t i = 0; i < count; i++)
        fill_report(d, f->workers[i], &reports[i]);
    ms_doing_failed(d, MS_JOB_FAILED, reports, count, text_of(f, why));
}

/* How many of those that it would have started could be had. */
static uint32_t count_fitting(const struct ms_job_doing *d)
{
    struct ms_error why = {0};
    const struct ms_cluster *c = cluster_of(d);
    uint32_t first = d->what == MS_JOB_DO_RESIZE && c ? (uint32_t)c->count : 0, count;
    Muster__ClusterSpec *spec;

    if (d->role == MS_JOB_DRIVER || d->count <= first ||
        (c && d->what != MS_JOB_DO_RESIZE))
        return 0;
    spec = ms_spec_of_role(d->job, d->role, d->count, d->memory, &why);
    if (!spec)
        return 0;
    count = ms_place_fits(d->job->jobs->head,
                          &(struct ms_place_claim){.request = spec->place,
                                                   .cluster = spec->name,
                                                   .driver = d->job->id,
                                                   .first = first,
                                                   .count = d->count - first});
    muster__cluster_spec__free_unpacked(spec, NULL);
    return count;
}

static void on_made(struct ms_job_doing *d, int rc, const struct ms_error *why)
{
    if (rc == 0) {
        done(d);
        return;
    }
    if (rc == -ENOSPC)
        d->fits = count_fitting(d);
    failed(d, rc, why);
}

/* ---- ending ------------------------------------------------------------------------ */

static void
ask_destroy(struct ms_job_doing *d,
            int64_t grace_ns,
            void (*next)(struct ms_job_doing *d, int rc, const struct ms_error *why))
{
    Muster__DestroyCluster destroy = MUSTER__DESTROY_CLUSTER__INIT;
    char name[MS_NAME_MAX + 1];

    ms_hosted_cluster(d->job, d->role, name);
    destroy.name = name;
    destroy.grace_ns = (uint64_t)grace_ns;
    ms_doing_ask(d, MUSTER__DRIVER_TO_HEAD__BODY_DESTROY, &destroy, next);
}

/* What is not there has ended. */
static void on_destroyed(struct ms_job_doing *d, int rc, const struct ms_error *why)
{
    if (rc == 0 || rc == -ENOENT)
        ms_doing_done(d);
    else
        ms_doing_failed_with(d, rc, why);
}

static void destroy(struct ms_job_doing *d, int64_t grace_ns)
{
    if (is_foreign(d))
        ms_doing_done(d);
    else
        ask_destroy(d, grace_ns, on_destroyed);
}

void ms_act_destroy(struct ms_job_doing *d)
{
    destroy(d, GRACE_NS);
}

void ms_act_stop_driver(struct ms_job_doing *d)
{
    d->role = MS_JOB_DRIVER;
    destroy(d, DRIVER_GRACE_NS);
}

/* ---- making ------------------------------------------------------------------------ */

static void ask_create(struct ms_job_doing *d, Muster__ClusterSpec *spec)
{
    Muster__CreateCluster create = MUSTER__CREATE_CLUSTER__INIT;

    create.spec = spec;
    ms_doing_ask(d, MUSTER__DRIVER_TO_HEAD__BODY_CREATE, &create, on_made);
    muster__cluster_spec__free_unpacked(spec, NULL);
}

/* There is none of that name now. */
static void create(struct ms_job_doing *d)
{
    struct ms_error why = {0};
    Muster__ClusterSpec *spec =
        d->role == MS_JOB_DRIVER
            ? ms_spec_of_driver(d->job, d->incarnation, &why)
            : ms_spec_of_role(d->job, d->role, d->count, d->memory, &why);

    if (spec)
        ask_create(d, spec);
    else
        ms_doing_failed_with(d, why.code, &why);
}

static void on_cleared(struct ms_job_doing *d, int rc, const struct ms_error *why)
{
    if (rc == 0 || rc == -ENOENT)
        create(d);
    else
        ms_doing_failed_with(d, rc, why);
}

/* One that a head was making when it was killed: its ranks cannot be replaced. */
static bool is_half_made(const struct ms_cluster *c)
{
    return c && !c->spec;
}

/* The head before was killed while its constructor ran: how that ends nobody would hear. The
 * record of the cluster has a process when all of its change was done. */
static bool is_half_changed(const struct ms_slot *s)
{
    const struct ms_cluster *c = s->cluster;

    return c->spec && c->spec->n_steps > 0 && s->expected_uid &&
           s->now.uid != s->expected_uid;
}

/* It lives and is of this incarnation, or was and has ended by itself, which is told then. */
static bool is_begun(const struct ms_job_doing *d, const struct ms_slot *s)
{
    uint32_t known = ms_hosted_incarnation(d->job, d->role, s->now.uid);

    if (is_half_changed(s))
        return false;
    if (ms_slot_is_live(s))
        return !known || known == d->incarnation;
    return s->now.uid && s->now.exit && !s->now.exit->requested &&
           known == d->incarnation;
}

/* Whole, and of this incarnation: an answer was lost with the head before. */
static bool is_made(const struct ms_job_doing *d, const struct ms_cluster *c)
{
    if (!c || (is_half_made(c) && d->role != MS_JOB_DRIVER) || !c->is_made ||
        c->is_busy || c->state == MS_CLUSTER_STOPPING ||
        (d->role != MS_JOB_DRIVER && c->count != d->count))
        return false;
    for (size_t i = 0; i < c->count; i++)
        if (!is_begun(d, &c->slots[i]))
            return false;
    return true;
}

void ms_act_create(struct ms_job_doing *d)
{
    const struct ms_cluster *c = cluster_of(d);

    if (is_made(d, c))
        done(d);
    else if (c)
        ask_destroy(d, GRACE_NS, on_cleared);
    else
        create(d);
}

void ms_act_start_driver(struct ms_job_doing *d)
{
    d->role = MS_JOB_DRIVER;
    d->count = 1;
    ms_act_create(d);
}

/* ---- changing ---------------------------------------------------------------------- */

static uint64_t memory_of(const struct ms_job_doing *d)
{
    return ms_spec_memory(d->job, d->role, d->memory);
}

static void ask_restart(struct ms_job_doing *d)
{
    MS_CLEANUP(ms_cleanup_free) const char **nodes = ms_machines_trusted(d->job);
    Muster__RestartWorkers restart = MUSTER__RESTART_WORKERS__INIT;
    char name[MS_NAME_MAX + 1];

    ms_hosted_cluster(d->job, d->role, name);
    restart.cluster = name;
    restart.ranks = d->ranks;
    restart.n_ranks = d->rank_count;
    restart.elsewhere = d->elsewhere;
    restart.n_elsewhere = d->elsewhere_count;
    restart.nodes = ms_field_strings(nodes);
    restart.n_nodes = ms_field_count(nodes);
    restart.memory = memory_of(d);
    restart.grace_ns = (uint64_t)GRACE_NS;
    ms_doing_ask(d, MUSTER__DRIVER_TO_HEAD__BODY_RESTART, &restart, on_made);
}

/* One that is whole again because an answer was lost: these ranks have new processes. */
static bool is_replaced(const struct ms_job_doing *d, const struct ms_cluster *c)
{
    for (size_t i = 0; i < d->rank_count; i++) {
        uint32_t rank = d->ranks[i];

        if (rank >= c->count || c->is_busy || !is_begun(d, &c->slots[rank]))
            return false;
    }
    return d->rank_count > 0;
}

void ms_act_replace(struct ms_job_doing *d)
{
    const struct ms_cluster *c = cluster_of(d);

    if (!c || is_half_made(c)) { /* all of it is gone, or has to go */
        d->count = ms_job_core_role(d->job->core, d->role).size;
        if (c)
            ask_destroy(d, GRACE_NS, on_cleared);
        else
            create(d);
    } else if (is_replaced(d, c)) {
        done(d);
    } else {
        ask_restart(d);
    }
}

/* All of its processes are of this incarnation. */
static bool is_known(const struct ms_job_doing *d, const struct ms_cluster *c)
{
    for (size_t i = 0; i < c->count; i++)
        if (ms_hosted_incarnation(d->job, d->role, c->slots[i].now.uid) !=
            d->incarnation)
            return false;
    return true;
}

/* At the same size and with the same request in their places; else anew. */
void ms_act_restart(struct ms_job_doing *d)
{
    const struct ms_cluster *c = cluster_of(d);

    if (is_made(d, c) && is_known(d, c))
        done(d);
    else if (c && c->spec && c->is_made && c->count == d->count &&
             c->spec->worker->memory_limit == memory_of(d))
        ask_restart(d);
    else if (c)
        ask_destroy(d, GRACE_NS, on_cleared);
    else
        create(d);
}

static void on_resized(struct ms_job_doing *d, int rc, const struct ms_error *why)
{
    if (rc == -ENOTSUP) /* its ranks have places in a mesh */
        ask_destroy(d, GRACE_NS, on_cleared);
    else
        on_made(d, rc, why);
}

void ms_act_resize(struct ms_job_doing *d)
{
    MS_CLEANUP(ms_cleanup_free) const char **nodes = ms_machines_trusted(d->job);
    Muster__ResizeCluster resize = MUSTER__RESIZE_CLUSTER__INIT;
    const struct ms_cluster *c = cluster_of(d);
    char name[MS_NAME_MAX + 1];

    if (!c) {
        create(d);
        return;
    }
    if (is_half_made(c)) {
        ask_destroy(d, GRACE_NS, on_cleared);
        return;
    }
    if (c->count == d->count && !c->is_busy) {
        done(d);
        return;
    }
    ms_hosted_cluster(d->job, d->role, name);
    resize.cluster = name;
    resize.world_size = d->count;
    resize.memory = memory_of(d);
    resize.nodes = ms_field_strings(nodes); /* also those that have come since */
    resize.n_nodes = ms_field_count(nodes);
    resize.grace_ns = (uint64_t)GRACE_NS;
    ms_doing_ask(d, MUSTER__DRIVER_TO_HEAD__BODY_RESIZE, &resize, on_resized);
}

/* ---- what was given up ------------------------------------------------------------- */

/* Of these ranks those whose process still lives, and is none that came later. */
static void keep_living(struct ms_job_doing *d, const struct ms_cluster *c)
{
    size_t count = 0;

    for (size_t i = 0; i < d->rank_count; i++) {
        uint32_t rank = d->ranks[i];

        if (rank < c->count && ms_slot_is_live(&c->slots[rank]) &&
            ms_hosted_incarnation(d->job, d->role, c->slots[rank].now.uid) <=
                d->ends[i])
            d->ranks[count++] = rank;
    }
    d->rank_count = count;
}

void ms_act_end_strays(struct ms_job_doing *d)
{
    Muster__RestartWorkers end = MUSTER__RESTART_WORKERS__INIT;
    const struct ms_cluster *c = cluster_of(d);
    char name[MS_NAME_MAX + 1];

    if (c)
        keep_living(d, c);
    if (!c || d->rank_count == 0) {
        ms_doing_done(d);
        return;
    }
    if (is_half_made(c)) {
        ask_destroy(d, GRACE_NS, on_destroyed);
        return;
    }
    ms_hosted_cluster(d->job, d->role, name);
    end.cluster = name;
    end.ranks = d->ranks;
    end.n_ranks = d->rank_count;
    end.grace_ns = (uint64_t)GRACE_NS;
    end.end_only = true;
    ms_doing_ask(d, MUSTER__DRIVER_TO_HEAD__BODY_RESTART, &end, on_destroyed);
}
