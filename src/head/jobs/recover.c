/* recover.c - jobs of the head before: read from the journal, then compared with what runs */
#include "base/cleanup.h"
#include "base/proto.h"
#include "head/fleet/fleet.h"
#include "head/head_impl.h"
#include "head/jobs/feed.h"
#include "head/jobs/hosted.h"
#include "head/jobs/machines.h"
#include "head/jobs/ranks.h"
#include "head/jobs/roles_entry.h"
#include "head/jobs/simulated.h"
#include "head/state/journal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define LOOK_NS (50 * MS_NS_PER_MS)

/* ---- what was kept ----------------------------------------------------------------- */

struct replay {
    struct ms_hosted *job;
    struct ms_error *err;
    int64_t last_ns;
    int rc;
};

static void on_core(void *arg, const char *key, const uint8_t *data, size_t len)
{
    struct replay *r = arg;
    Muster__KeptJobCore *m;

    if (strcmp(key, r->job->name) != 0 || r->rc < 0)
        return;
    m = muster__kept_job_core__unpack(NULL, len, data);
    if (!m) {
        r->rc = ms_error_set(r->err, -EBADMSG, "its snapshot cannot be read");
        return;
    }
    r->job->core = ms_job_core_decode(m->core.data, m->core.len, r->err);
    if (!r->job->core)
        r->rc = r->err->code ? r->err->code : -EBADMSG;
    r->job->event_number = r->job->snapshot_number = m->number;
    r->last_ns = m->time_ns;
    muster__kept_job_core__free_unpacked(m, NULL);
}

/* What follows from it was carried out, or comes again. */
static void step(struct replay *r, const Muster__KeptJobEvent *m, uint64_t number)
{
    const struct ms_job_action *actions;
    struct ms_job_event_read read;
    size_t count;

    r->rc = ms_job_event_decode(&read, m->event.data, m->event.len, r->err);
    if (r->rc < 0)
        return;
    r->rc = ms_job_core_step(
        r->job->core, &read.event, m->time_ns, &actions, &count, r->err);
    ms_job_event_read_finish(&read);
    r->job->event_number = number;
    r->last_ns = m->time_ns;
}

static void on_event(void *arg, const char *key, const uint8_t *data, size_t len)
{
    struct replay *r = arg;
    uint64_t number = strtoull(strrchr(key, '/') + 1, NULL, 10);
    Muster__KeptJobEvent *m;

    if (r->rc < 0 || number <= r->job->event_number)
        return;
    m = muster__kept_job_event__unpack(NULL, len, data);
    if (m)
        step(r, m, number);
    else
        r->rc = ms_error_set(r->err, -EBADMSG, "an event cannot be read");
    muster__kept_job_event__free_unpacked(m, NULL);
}

static void on_line(void *arg, const char *key, const uint8_t *data, size_t len)
{
    struct replay *r = arg;

    (void)data;
    (void)len;
    r->job->line_number = strtoull(strrchr(key, '/') + 1, NULL, 10);
}

static void take_ranks(struct ms_job_ranks *to, const Muster__KeptJobRole *m)
{
    size_t n = m->n_uids < m->n_incarnations ? m->n_uids : m->n_incarnations;

    to->uids = calloc(n + 1, sizeof *to->uids);
    to->incarnations = calloc(n + 1, sizeof *to->incarnations);
    if (!to->uids || !to->incarnations)
        return;
    memcpy(to->uids, m->uids, n * sizeof *to->uids);
    memcpy(to->incarnations, m->incarnations, n * sizeof *to->incarnations);
    to->count = n;
}

static void on_role(void *arg, const char *key, const uint8_t *data, size_t len)
{
    struct replay *r = arg;
    const char *name = strrchr(key, '/') + 1;
    uint32_t role = strcmp(name, MS_JOB_DRIVER_NAME) == 0
                        ? MS_JOB_DRIVER
                        : ms_job_core_find_role(r->job->core, name);
    Muster__KeptJobRole *m =
        role == MS_JOB_NO_ROLE ? NULL : muster__kept_job_role__unpack(NULL, len, data);

    if (m)
        take_ranks(ms_hosted_ranks(r->job, role), m);
    muster__kept_job_role__free_unpacked(m, NULL);
}

/* Unless something went wrong before. */
static void read_space(
    struct replay *r,
    uint32_t space,
    const char *prefix,
    void (*on_record)(void *arg, const char *key, const uint8_t *data, size_t len))
{
    struct ms_journal *d = r->job->jobs->head->persist.journal;
    int rc = r->rc < 0 ? 0 : ms_journal_read(d, space, prefix, on_record, r, r->err);

    if (rc < 0)
        r->rc = rc;
}

static int replay(struct ms_hosted *job, struct ms_error *err)
{
    struct replay r = {.job = job, .err = err};
    char prefix[MS_NAME_MAX + 2];

    snprintf(prefix, sizeof prefix, "%s/", job->name);
    read_space(&r, MS_PERSIST_JOB_CORE, job->name, on_core);
    if (r.rc == 0 && !job->core && !(job->core = ms_job_core_create()))
        r.rc = ms_error_set(err, -ENOMEM, "out of memory");
    read_space(&r, MS_PERSIST_JOB_EVENT, prefix, on_event);
    read_space(&r, MS_PERSIST_JOB_LINE, prefix, on_line);
    read_space(&r, MS_PERSIST_JOB_ROLE, prefix, on_role);
    job->ahead_ns = r.last_ns + 1 - ms_now_ns();
    return r.rc;
}

/* ---- all jobs ---------------------------------------------------------------------- */

struct reading {
    struct ms_jobs *jobs;
    struct ms_error *err;
    int rc;
};

/* One whose file is refused now is held, to be ended with that reason. */
static struct ms_hosted *create(struct ms_jobs *j,
                                const char *name,
                                Muster__SubmitJob *submit,
                                struct ms_error *err)
{
    Muster__SubmitJob *again = (Muster__SubmitJob *)ms_proto_copy(&submit->base);
    struct ms_error why = {0};
    struct ms_hosted *job = ms_hosted_create(j, submit, &why);

    if (!job && again && why.code != -ENOMEM)
        job = ms_hosted_create_refused(j, MS_TAKE(again), name, &why, err);
    else if (!job)
        *err = why;
    muster__submit_job__free_unpacked(again, NULL);
    return job;
}

static int take_pieces(struct ms_hosted *job, const Muster__KeptJob *m)
{
    size_t n = m->n_pieces < m->n_piece_nodes ? m->n_pieces : m->n_piece_nodes;

    job->known = calloc(n + 1, sizeof *job->known);
    if (!job->known)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++)
        job->known[i] = (struct ms_fleet_piece){m->pieces[i], m->piece_nodes[i]};
    job->known_count = n;
    return 0;
}

static void on_job(void *arg, const char *key, const uint8_t *data, size_t len)
{
    struct reading *r = arg;
    Muster__KeptJob *m = r->rc < 0 ? NULL : muster__kept_job__unpack(NULL, len, data);
    struct ms_error why = {0};
    struct ms_hosted *job = NULL;

    if (r->rc < 0)
        return;
    if (m && m->submit)
        job = create(r->jobs, key, MS_TAKE(m->submit), &why);
    if (job) {
        job->id = m->id;
        job->submitted_ns = (int64_t)m->submitted_ns;
        job->ended_ns = (int64_t)m->ended_ns;
        job->is_on_ours = m->on_own_nodes;
        r->rc = take_pieces(job, m);
        if (r->rc == 0)
            r->rc = replay(job, &why);
    } else {
        r->rc = why.code ? why.code : -EBADMSG;
    }
    muster__kept_job__free_unpacked(m, NULL);
    if (!job || r->rc < 0) {
        ms_error_set(r->err,
                     r->rc,
                     "the journal: job '%.64s' cannot be read: %s",
                     key,
                     why.text);
        if (job)
            ms_hosted_destroy(job);
        return;
    }
    if (ms_job_core_view(job->core).stage == MS_JOB_STAGE_NEW) {
        ms_hosted_forget(job); /* it was never entered */
        ms_hosted_destroy(job);
        return;
    }
    job->is_recovering = true;
    ms_list_add_tail(&r->jobs->all, &job->link);
    r->jobs->count++;
    ms_roles_entry_put(job, NULL);
    ms_machines_recover(job);
}

int ms_jobs_read(struct ms_jobs *j, struct ms_error *err)
{
    struct reading r = {.jobs = j, .err = err};
    int rc =
        ms_journal_read(j->head->persist.journal, MS_PERSIST_JOB, "", on_job, &r, err);

    return rc < 0 ? rc : r.rc;
}

/* ---- compared with what runs ------------------------------------------------------- */

struct reports {
    struct ms_job_report *all;
    size_t count, room;
};

static bool add(struct reports *r, const struct ms_job_report *one)
{
    if (r->count == r->room) {
        size_t room = r->room ? 2 * r->room : 64;
        struct ms_job_report *more = realloc(r->all, room * sizeof *more);

        if (!more)
            return false;
        r->all = more;
        r->room = room;
    }
    r->all[r->count++] = *one;
    return true;
}

/* A process that nobody has noted is of the last action. One that has ended by itself is told
 * as running, and its end after that, with what it said. */
static bool add_slot(struct reports *r,
                     const struct ms_hosted *job,
                     uint32_t role,
                     const struct ms_slot *s)
{
    struct ms_job_report one = {.role = role,
                                .rank = role == MS_JOB_DRIVER ? 0 : s->rank,
                                .seen = MS_JOB_SEEN_RUNNING,
                                .node = s->node};

    one.incarnation = ms_hosted_incarnation(job, role, s->now.uid);
    if (!one.incarnation)
        one.incarnation = role == MS_JOB_DRIVER
                              ? ms_job_core_view(job->core).attempt
                              : ms_job_core_role(job->core, role).incarnation;
    if (ms_slot_is_live(s) || (s->now.exit && !s->now.exit->requested))
        return add(r, &one);
    if (!s->now.exit)
        return true;
    one.seen = MS_JOB_SEEN_ENDED;
    one.cause = (uint8_t)ms_job_cause_of(s->now.exit);
    one.code = s->now.exit->code;
    one.signaled = s->now.exit->signaled != 0;
    return add(r, &one);
}

static bool add_role(struct reports *r, struct ms_hosted *job, uint32_t role)
{
    char name[MS_NAME_MAX + 1];
    struct ms_head *h = job->jobs->head;
    const struct ms_cluster *c;

    ms_hosted_cluster(job, role, name);
    ms_persist_settle(h, name);
    c = ms_registry_find(&h->registry, name);
    if (c && c->driver != job->id)
        return true; /* another owner's */
    if (c && !c->spec && role != MS_JOB_DRIVER)
        return true; /* half made by the head before: it is made anew */
    if (c)
        ms_hosted_note_ranks(job,
                             role,
                             c,
                             role == MS_JOB_DRIVER
                                 ? ms_job_core_view(job->core).attempt
                                 : ms_job_core_role(job->core, role).incarnation);
    for (size_t i = 0; c && i < c->count; i++)
        if (!add_slot(r, job, role, &c->slots[i]))
            return false;
    return true;
}

/* Before anything else follows from what there is. */
static void end_refused(struct ms_hosted *job)
{
    struct ms_error why = {0};

    if (!job->refused.code || ms_job_stage_is_over(ms_job_core_view(job->core).stage))
        return;
    ms_error_set(&why,
                 -EINVAL,
                 "its file is refused by this version of Muster: %s",
                 job->refused.text);
    ms_hosted_feed(job, &(struct ms_job_event){.what = MS_JOB_STOP, .text = why.text});
}

/* Whatever is not reported is not there: all who could know it were asked, or did not come
 * in MS_JOB_BACK_NS. */
static void recover(struct ms_hosted *job)
{
    struct reports r = {0};
    bool is_good = add_role(&r, job, MS_JOB_DRIVER);

    end_refused(job);
    for (uint32_t i = 0; is_good && i < ms_job_core_role_count(job->core); i++)
        is_good = add_role(&r, job, i);
    job->is_recovering = false;
    ms_hosted_feed(job,
                   &(struct ms_job_event){.what = MS_JOB_RECOVERED,
                                          .reports = r.all,
                                          .report_count = r.count,
                                          .flags = is_good ? MS_JOB_COMPLETE : 0});
    free(r.all);
    ms_hosted_tell_ends(job, MS_JOB_DRIVER);
    for (uint32_t i = 0; i < ms_job_core_role_count(job->core); i++)
        ms_hosted_tell_ends(job, i);
}

void ms_jobs_recover(void *arg)
{
    struct ms_jobs *j = arg;
    bool is_late = ms_now_ns() - j->head->started_ns > MS_JOB_BACK_NS;
    bool is_left = false;

    if (ms_persist_left_ns(j->head) > 0) {
        ms_timer_set(&j->recover, LOOK_NS);
        return;
    }
    ms_list_each (job, &j->all, struct ms_hosted, link)
        if (job->is_recovering) {
            if (ms_hosted_is_simulated(job)) {
                end_refused(job);
                ms_simulated_recover(job);
            } else if (ms_machines_are_back(job) || is_late)
                recover(job);
            else
                is_left = true;
        }
    if (is_left)
        ms_timer_set(&j->recover, LOOK_NS);
    ms_jobs_changed(j);
}
