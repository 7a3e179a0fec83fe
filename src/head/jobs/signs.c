/* signs.c - signs of work of a job's ranks, and the stacks of those that show none
 *
 * While a job runs its workers are asked what they do, eight times in the shortest time
 * after which one of its roles is taken to hang, or to be silent (beats.c). A sign of work is a report of progress, a call that
 * was answered, processor time, or that there is nothing to do: no call is open. What is
 * not known is no silence: a node that does not answer is a matter of its own.
 *
 * A driver waits for its workers as a rule: it shows a sign of work with any of them that
 * has done something, on the job's machines.
 */
#include "head/jobs/signs.h"
#include "base/cleanup.h"
#include "head/head_impl.h"
#include "head/jobs/act.h"
#include "head/jobs/feed.h"
#include "head/jobs/hosted.h"
#include "head/jobs/machines.h"
#include "head/jobs/ranks.h"
#include "head/jobs/simulated.h"
#include "head/ops/op.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define LOOKS_PER_HANG 8
#define LOOK_MIN_NS    (100 * MS_NS_PER_MS)
#define LOOK_MAX_NS    (10 * MS_NS_PER_S)
/* Less processor time than this since the last sign is none: a worker that hangs still has
 * heart-beats and answers those who look. */
#define CPU_MIN_NS     ((uint64_t)(20 * MS_NS_PER_MS))
#define CPU_SHARE      100  /* of the time since then */
#define STACK_TEXT_MAX 8192 /* of one process, of each kind */

/* ---- one rank ---------------------------------------------------------------------- */

static void mark(struct ms_job_sign *s, const Muster__Activity *a, int64_t now_ns)
{
    *s = (struct ms_job_sign){.uid = a->uid,
                              .cpu_ns = a->cpu_ns,
                              .calls = a->calls_done,
                              .progress = a->progress,
                              .at_ns = now_ns};
}

/* It is another process, or has done something since then. */
static bool
has_moved(const struct ms_job_sign *s, const Muster__Activity *a, int64_t now_ns)
{
    uint64_t share_ns = (uint64_t)(now_ns - s->at_ns) / CPU_SHARE;
    uint64_t least_ns = share_ns > CPU_MIN_NS ? share_ns : CPU_MIN_NS;

    return s->uid != a->uid || a->progress != s->progress || a->calls_done > s->calls ||
           a->cpu_ns >= s->cpu_ns + least_ns;
}

static bool
has_worked(const struct ms_job_sign *s, const Muster__Activity *a, int64_t now_ns)
{
    return has_moved(s, a, now_ns) ||
           (a->doing == MUSTER__DOING__DOING_IDLE && a->calls_queued == 0);
}

/* ---- all of a job ------------------------------------------------------------------ */

/* The shortest time of its roles and driver; 0: none of them has one. */
static int64_t hang_ns(const struct ms_hosted *job)
{
    int64_t least_ns = ms_job_core_view(job->core).driver_hang_ns;

    for (uint32_t i = 0; i < ms_job_core_role_count(job->core); i++) {
        int64_t one_ns = ms_job_core_role(job->core, i).spec->hang_ns;

        if (one_ns && (!least_ns || one_ns < least_ns))
            least_ns = one_ns;
    }
    return least_ns;
}

static struct ms_job_sign *sign_of(struct ms_hosted *job, uint32_t role, uint32_t rank)
{
    if (!job->signs[role]) {
        uint32_t max = ms_job_core_role(job->core, role).spec->max;

        job->signs[role] = calloc(max, sizeof *job->signs[role]);
    }
    return job->signs[role] ? &job->signs[role][rank] : NULL;
}

struct look {
    struct ms_hosted *job;
    struct ms_job_report *all;
    size_t count, room;
    int64_t now_ns, asked_ns;
};

static void add(struct look *l, const struct ms_job_report *one)
{
    if (ms_array_reserve(&l->all, &l->room, l->count + 1, sizeof *l->all) == 0)
        l->all[l->count++] = *one;
}

static void look_at(struct look *l, uint32_t role, const Muster__WorkerStatus *w)
{
    struct ms_job_report one = {.role = role,
                                .rank = w->rank,
                                .seen = MS_JOB_SEEN_RUNNING,
                                .incarnation =
                                    ms_hosted_incarnation(l->job, role, w->uid)};
    struct ms_job_sign *s;

    if (!one.incarnation || w->state == MUSTER__WORKER_STATE__WORKER_EXITED)
        return;
    s = w->activity ? sign_of(l->job, role, w->rank) : NULL;
    if (s && has_worked(s, w->activity, l->now_ns))
        mark(s, w->activity, l->now_ns);
    else if (s && !(s->is_untold && s->uid == w->activity->uid))
        one.seen = MS_JOB_SEEN_SILENT;
    add(l, &one);
}

/* Signs that the core has not got are told again, with the next ones. */
static void note_told(struct look *l, bool is_told)
{
    for (size_t i = 0; i < l->count; i++) {
        const struct ms_job_report *p = &l->all[i];
        struct ms_job_sign *s =
            p->role == MS_JOB_DRIVER ? NULL : sign_of(l->job, p->role, p->rank);

        if (s)
            s->is_untold = !is_told && p->seen == MS_JOB_SEEN_RUNNING;
        if (p->role == MS_JOB_DRIVER)
            l->job->is_around_untold = !is_told && p->seen == MS_JOB_SEEN_RUNNING;
    }
}

/* A role of it whose silence matters; MS_JOB_NO_ROLE: it is none. */
static uint32_t watched_role(const struct ms_hosted *job, const char *cluster)
{
    uint32_t role = ms_hosted_role(job, cluster);

    if (role == MS_JOB_NO_ROLE || role == MS_JOB_DRIVER ||
        !ms_job_core_role(job->core, role).spec->hang_ns)
        return MS_JOB_NO_ROLE;
    return role;
}

/* ---- the driver -------------------------------------------------------------------- */

/* What was known of each worker on the job's machines. They come in the same order as a
 * rule, so that the next one is looked for behind the last. */
struct around {
    const struct ms_job_sign *old;
    struct ms_job_sign *now;
    size_t old_count, count, at;
    bool is_sign;
};

static const struct ms_job_sign *find_old(struct around *a, uint64_t uid)
{
    for (size_t i = 0; i < a->old_count; i++) {
        size_t at = (a->at + i) % a->old_count;

        if (a->old[at].uid == uid) {
            a->at = at + 1;
            return &a->old[at];
        }
    }
    return NULL;
}

static void
look_around_at(struct around *a, const Muster__WorkerStatus *w, int64_t now_ns)
{
    const struct ms_job_sign *old;

    if (!w->activity) { /* nobody knows */
        a->is_sign = true;
        return;
    }
    old = find_old(a, w->uid);
    if (old && !has_moved(old, w->activity, now_ns)) {
        a->now[a->count++] = *old;
        return;
    }
    mark(&a->now[a->count++], w->activity, now_ns);
    a->is_sign = true;
}

static bool is_one_of(const char *const *names, const char *name)
{
    for (size_t i = 0; names[i]; i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

static size_t count_workers(const Muster__Status *status)
{
    size_t count = 0;

    for (size_t i = 0; i < status->n_clusters; i++)
        count += status->clusters[i]->n_workers;
    return count;
}

static void look_around(struct look *l, const Muster__Status *status)
{
    struct ms_hosted *job = l->job;
    MS_CLEANUP(ms_cleanup_free) const char **nodes = ms_machines_nodes(job);
    struct around a = {.old = job->around,
                       .old_count = job->around_count,
                       .now = calloc(count_workers(status) + 1, sizeof *a.now)};

    for (size_t i = 0; nodes && a.now && i < status->n_clusters; i++)
        for (size_t k = 0; k < status->clusters[i]->n_workers; k++) {
            const Muster__WorkerStatus *w = status->clusters[i]->workers[k];

            if (w->state != MUSTER__WORKER_STATE__WORKER_EXITED &&
                is_one_of(nodes, w->node))
                look_around_at(&a, w, l->now_ns);
        }
    a.is_sign |= !nodes || !a.now || job->is_around_untold;
    add(l,
        &(struct ms_job_report){.role = MS_JOB_DRIVER,
                                .seen = a.is_sign ? MS_JOB_SEEN_RUNNING
                                                  : MS_JOB_SEEN_SILENT,
                                .incarnation = ms_job_core_view(job->core).attempt});
    free(job->around);
    job->around = a.now;
    job->around_count = a.now ? a.count : 0;
}

/* ---- all --------------------------------------------------------------------------- */

static uint32_t late_ms(const struct look *l)
{
    return (uint32_t)((l->now_ns - l->asked_ns + MS_NS_PER_MS - 1) / MS_NS_PER_MS);
}

/* What was asked for at that time: who shows no sign was silent then. */
static void
look_at_all(struct ms_hosted *job, const Muster__Status *status, int64_t asked_ns)
{
    struct look l = {.job = job, .now_ns = ms_now_ns(), .asked_ns = asked_ns};
    bool is_told;

    for (size_t i = 0; i < status->n_clusters; i++) {
        const Muster__ClusterStatus *c = status->clusters[i];
        uint32_t role = watched_role(job, c->name);

        for (size_t k = 0; role != MS_JOB_NO_ROLE && k < c->n_workers; k++)
            if (c->workers[k]->rank < ms_job_core_role(job->core, role).size)
                look_at(&l, role, c->workers[k]);
    }
    if (ms_job_core_view(job->core).driver_hang_ns)
        look_around(&l, status);
    if (l.count) {
        is_told = ms_hosted_feed_looks(job,
                                       &(struct ms_job_event){.what = MS_JOB_PROGRESS,
                                                              .count = late_ms(&l),
                                                              .reports = l.all,
                                                              .report_count = l.count});
        note_told(&l, is_told);
    }
    free(l.all);
}

/* ---- asking ------------------------------------------------------------------------ */

struct question {
    struct ms_jobs *jobs;
    uint64_t id; /* of the job, which may be gone */
    int64_t asked_ns;
};

static int64_t look_ns(const struct ms_hosted *job)
{
    int64_t wait_ns = ms_beats_look_ns(job), hang = hang_ns(job) / LOOKS_PER_HANG;

    if (hang && hang < wait_ns)
        wait_ns = hang;
    if (hang && wait_ns > LOOK_MAX_NS)
        wait_ns = LOOK_MAX_NS;
    return wait_ns > LOOK_MIN_NS ? wait_ns : LOOK_MIN_NS;
}

static void again(struct ms_hosted *job)
{
    if (ms_job_core_view(job->core).stage != MS_JOB_STAGE_RUNNING || job->is_looking ||
        ms_hosted_is_simulated(job))
        return;
    ms_timer_set(&job->look, look_ns(job));
    job->is_looking = true;
}

static void on_looked(struct ms_head_op *op, void *arg)
{
    struct question *q = arg;
    struct ms_hosted *job =
        q->jobs->is_ending ? NULL : ms_hosted_find_id(q->jobs, q->id);
    struct ms_error why = {0};

    if (job) {
        job->is_looking = false;
        if (ms_head_op_result(op, &why) == 0 && op->message && !job->is_recovering) {
            look_at_all(job, (const Muster__Status *)op->message, q->asked_ns);
            ms_beats_look(job, (const Muster__Status *)op->message);
        }
        again(job);
    }
    ms_head_op_unref(op);
    free(q);
}

static void on_look(void *arg)
{
    struct ms_hosted *job = arg;
    Muster__StatusRequest ask = MUSTER__STATUS_REQUEST__INIT;
    struct question *q;

    job->is_looking = false;
    if (job->jobs->is_ending ||
        ms_job_core_view(job->core).stage != MS_JOB_STAGE_RUNNING)
        return;
    q = calloc(1, sizeof *q);
    if (q) {
        *q = (struct question){job->jobs, job->id, ms_now_ns()};
        ask.activity = true;
        job->is_looking = true;
        if (ms_head_request_then(job->jobs->head,
                                 MUSTER__DRIVER_TO_HEAD__BODY_STATUS,
                                 &ask,
                                 on_looked,
                                 q))
            return;
        job->is_looking = false;
        free(q);
    }
    again(job);
}

void ms_signs_follow(struct ms_hosted *job)
{
    if (!job->refused.code)
        again(job);
}

int ms_signs_init(struct ms_hosted *job, struct ms_error *err)
{
    job->signs = calloc(job->role_room + 1, sizeof *job->signs);
    if (!job->signs ||
        ms_timer_init(&job->look, job->jobs->head->loop, on_look, job) < 0)
        return ms_error_set(err, -ENOMEM, "out of memory");
    return 0;
}

void ms_signs_finish(struct ms_hosted *job)
{
    ms_timer_finish(&job->look);
    for (size_t i = 0; job->signs && i < job->role_room; i++)
        free(job->signs[i]);
    free(job->signs);
    free(job->around);
}

/* ---- stacks ------------------------------------------------------------------------ */

/* Why it has shown none itself. */
static const char *no_stack(const Muster__Activity *a)
{
    if (!a)
        return "its node does not answer";
    switch (a->doing) {
    case MUSTER__DOING__DOING_STOPPED:
        return "it is stopped, by a signal or a debugger";
    case MUSTER__DOING__DOING_UNKNOWN:
        return "it is a command";
    default:
        return "it does not answer";
    }
}

static void add_text(struct ms_buf *out, const char *text)
{
    size_t len = strlen(text);

    while (len && text[len - 1] == '\n')
        len--;
    ms_buf_printf(out,
                  "\n%.*s%s",
                  (int)(len < STACK_TEXT_MAX ? len : STACK_TEXT_MAX),
                  text,
                  len < STACK_TEXT_MAX ? "" : "...");
}

static void
say_stack(struct ms_hosted *job, uint32_t role, const Muster__WorkerStatus *w)
{
    MS_CLEANUP(ms_buf_finish) struct ms_buf text = {0};
    const Muster__Activity *a = w->activity;
    struct ms_job_action said = {
        .level = MS_JOB_WARNING, .role = role, .rank = w->rank, .cause = MS_JOB_HANG};

    ms_buf_init(&text);
    ms_buf_printf(&text,
                  "%s/%u, process %d on %s%s%s",
                  ms_hosted_role_name(job, role),
                  w->rank,
                  w->pid,
                  w->node,
                  a && a->method[0] ? ", in " : "",
                  a ? a->method : "");
    if (a && a->stack && a->stack->native[0]) {
        if (a->stack->python[0])
            add_text(&text, a->stack->python);
        add_text(&text, a->stack->native);
    } else {
        ms_buf_printf(&text, ": no stack, %s", no_stack(a));
        if (a && a->stack)
            add_text(&text, a->stack->processes);
    }
    said.text = ms_buf_str(&text);
    ms_hosted_say(job, &said);
}

/* The stacks are lines of their own; taking them was no work. */
static void on_stacks(struct ms_job_doing *d, int rc, const struct ms_error *why)
{
    const Muster__Status *s = (const Muster__Status *)d->op->message;
    size_t count = 0, told = 0;
    char text[96];

    if (rc < 0 || !s) {
        ms_doing_failed_with(d, rc < 0 ? rc : -EIO, why);
        return;
    }
    for (size_t i = 0; i < s->n_clusters; i++)
        for (size_t k = 0; ms_hosted_role(d->job, s->clusters[i]->name) == d->role &&
                           k < s->clusters[i]->n_workers;
             k++) {
            const Muster__WorkerStatus *w = s->clusters[i]->workers[k];
            struct ms_job_sign *sign = d->role != MS_JOB_DRIVER && w->rank < d->count
                                           ? sign_of(d->job, d->role, w->rank)
                                           : NULL;

            if (w->state == MUSTER__WORKER_STATE__WORKER_EXITED)
                continue;
            count++;
            told += w->activity && w->activity->stack;
            if (sign && w->activity && w->activity->uid == sign->uid)
                sign->cpu_ns = w->activity->cpu_ns;
            say_stack(d->job, d->role, w);
        }
    snprintf(text, sizeof text, "of %zu of %zu processes", told, count);
    ms_doing_done_with(d, text);
}

void ms_doing_ask_activity(struct ms_job_doing *d,
                           void (*next)(struct ms_job_doing *d,
                                        int rc,
                                        const struct ms_error *why))
{
    Muster__StatusRequest ask = MUSTER__STATUS_REQUEST__INIT;

    ask.activity = true;
    ms_doing_ask(d, MUSTER__DRIVER_TO_HEAD__BODY_STATUS, &ask, next);
}

void ms_act_dump_stacks(struct ms_job_doing *d)
{
    Muster__StatusRequest ask = MUSTER__STATUS_REQUEST__INIT;
    char name[MS_NAME_MAX + 1];

    ask.activity = true;
    ask.stacks_of = name;
    ms_hosted_cluster(d->job, d->role, name);
    ms_doing_ask(d, MUSTER__DRIVER_TO_HEAD__BODY_STATUS, &ask, on_stacks);
}
