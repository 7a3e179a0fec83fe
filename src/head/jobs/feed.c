/* feed.c - one job: an event into the journal and the core, actions out */
#include "head/jobs/feed.h"
#include "base/cleanup.h"
#include "base/proto.h"
#include "head/fleet/fleet.h"
#include "head/head_impl.h"
#include "head/jobs/act.h"
#include "head/jobs/ends.h"
#include "head/jobs/hosted.h"
#include "head/jobs/roles_entry.h"
#include "head/jobs/signs.h"
#include "head/state/journal.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static struct ms_journal *journal_of(const struct ms_hosted *job)
{
    return job->jobs->head->persist.journal;
}

static int64_t job_now_ns(const struct ms_hosted *job)
{
    return ms_now_ns() + job->ahead_ns;
}

void ms_hosted_number_key(const struct ms_hosted *job, uint64_t number, char out[96])
{
    snprintf(out, 96, "%s/%020" PRIu64, job->name, number);
}

/* ---- the journal ------------------------------------------------------------------- */

static int write_message(const struct ms_hosted *job,
                         uint32_t space,
                         const char *key,
                         const ProtobufCMessage *m,
                         struct ms_error *err)
{
    MS_CLEANUP(ms_buf_finish) struct ms_buf packed = {0};

    if (ms_proto_pack(m, &packed) < 0)
        return ms_error_set(err, -ENOMEM, "out of memory");
    return ms_journal_write(journal_of(job), space, key, packed.data, packed.len, err);
}

/* In `m`, whose arrays are to be freed. */
static void fill_pieces(const struct ms_hosted *job, Muster__KeptJob *m)
{
    MS_CLEANUP(ms_cleanup_free) struct ms_fleet_piece *all = NULL;
    size_t count = ms_fleet_pieces(job->fleet, job->key, &all);

    m->pieces = calloc(count + 1, sizeof *m->pieces);
    m->piece_nodes = calloc(count + 1, sizeof *m->piece_nodes);
    if (!m->pieces || !m->piece_nodes)
        return;
    m->n_pieces = m->n_piece_nodes = count;
    for (size_t i = 0; i < count; i++) {
        m->pieces[i] = all[i].number;
        m->piece_nodes[i] = all[i].node;
    }
}

int ms_hosted_keep(struct ms_hosted *job, struct ms_error *err)
{
    Muster__KeptJob m = MUSTER__KEPT_JOB__INIT;
    int rc;

    m.submit = job->submit;
    m.id = job->id;
    m.submitted_ns = (uint64_t)job->submitted_ns;
    m.ended_ns = (uint64_t)job->ended_ns;
    m.on_own_nodes = job->is_on_ours;
    fill_pieces(job, &m);
    rc = write_message(job, MS_PERSIST_JOB, job->name, &m.base, err);
    free(m.pieces);
    free(m.piece_nodes);
    return rc;
}

static int drop_all(const struct ms_hosted *job, struct ms_error *err)
{
    static const uint32_t numbered[] = {
        MS_PERSIST_JOB_EVENT, MS_PERSIST_JOB_LINE, MS_PERSIST_JOB_ROLE};
    struct ms_journal *d = journal_of(job);
    char prefix[MS_NAME_MAX + 2];
    int rc = ms_journal_write(d, MS_PERSIST_JOB, job->name, NULL, 0, err);

    snprintf(prefix, sizeof prefix, "%s/", job->name);
    if (rc == 0)
        rc = ms_journal_write(d, MS_PERSIST_JOB_CORE, job->name, NULL, 0, err);
    for (size_t i = 0; rc == 0 && i < MS_COUNT(numbered); i++)
        rc = ms_journal_drop(d, numbered[i], prefix, NULL, err);
    return rc;
}

/* Of one that had its name and could not be forgotten nothing may stay beside it. */
int ms_hosted_keep_new(struct ms_hosted *job, struct ms_error *err)
{
    int rc = ms_journal_begin(journal_of(job), err);

    if (rc < 0)
        return rc;
    rc = drop_all(job, err);
    if (rc == 0)
        rc = ms_hosted_keep(job, err);
    return ms_journal_commit(journal_of(job), rc, err);
}

/* A driver that has ended by itself leaves its cluster, whose name is the job's. */
static void drop_clusters(struct ms_hosted *job)
{
    struct ms_head *h = job->jobs->head;

    ms_list_each (c, &h->registry.clusters, struct ms_cluster, link)
        if (c->driver == job->id)
            ms_head_op_unref(ms_head_destroy_cluster(h, c->name, false, 0, 0));
}

/* All of it, or the next head reads its end and forgets it then. */
void ms_hosted_forget(struct ms_hosted *job)
{
    drop_clusters(job);
    if (ms_journal_begin(journal_of(job), NULL) == 0)
        ms_journal_commit(journal_of(job), drop_all(job, NULL), NULL);
    ms_roles_entry_delete(job);
    job->is_forgotten = true;
}

/* With who has asked for it: both or neither. */
static int keep_event(struct ms_hosted *job,
                      const struct ms_job_waiting *w,
                      int64_t now_ns,
                      struct ms_error *err)
{
    bool is_asked = w->is_asked && job->jobs->asked.op;
    Muster__KeptJobEvent m = MUSTER__KEPT_JOB_EVENT__INIT;
    char key[96];
    int rc = is_asked ? ms_journal_begin(journal_of(job), err) : 0;

    if (rc < 0)
        return rc;
    m.time_ns = now_ns;
    m.event = (ProtobufCBinaryData){w->data.len, w->data.data};
    ms_hosted_number_key(job, job->event_number + 1, key);
    rc = write_message(job, MS_PERSIST_JOB_EVENT, key, &m.base, err);
    if (is_asked && rc == 0)
        rc = ms_asked_write(job, err);
    if (is_asked)
        rc = ms_journal_commit(journal_of(job), rc, err);
    if (rc < 0)
        return rc;
    if (is_asked)
        ms_asked_written(job);
    job->event_number++;
    return 0;
}

/* With what came before it in it, those events are not needed any more. */
static void take_snapshot(struct ms_hosted *job)
{
    MS_CLEANUP(ms_buf_finish) struct ms_buf core = {0};
    Muster__KeptJobCore m = MUSTER__KEPT_JOB_CORE__INIT;
    char prefix[MS_NAME_MAX + 2], before[96];

    if (job->event_number < job->snapshot_number + MS_JOB_SNAPSHOT ||
        ms_job_core_encode(job->core, &core) < 0)
        return;
    m.number = job->event_number;
    m.time_ns = job_now_ns(job);
    m.core = (ProtobufCBinaryData){core.len, core.data};
    if (write_message(job, MS_PERSIST_JOB_CORE, job->name, &m.base, NULL) < 0)
        return;
    job->snapshot_number = job->event_number;
    snprintf(prefix, sizeof prefix, "%s/", job->name);
    ms_hosted_number_key(job, job->event_number + 1, before);
    ms_journal_drop(journal_of(job), MS_PERSIST_JOB_EVENT, prefix, before, NULL);
}

/* ---- lines ------------------------------------------------------------------------- */

static void drop_old_lines(const struct ms_hosted *job)
{
    char prefix[MS_NAME_MAX + 2], before[96];

    if (job->line_number % 1024 || job->line_number <= MS_JOB_LINES_MAX)
        return;
    snprintf(prefix, sizeof prefix, "%s/", job->name);
    ms_hosted_number_key(job, job->line_number - MS_JOB_LINES_MAX, before);
    ms_journal_drop(journal_of(job), MS_PERSIST_JOB_LINE, prefix, before, NULL);
}

void ms_hosted_say(struct ms_hosted *job, const struct ms_job_action *said)
{
    static const char *const levels[] = {"info", "warning", "error"};
    Muster__JobEvent m = MUSTER__JOB_EVENT__INIT;
    bool is_role = said->role != MS_JOB_NO_ROLE && said->role != MS_JOB_DRIVER;
    char key[96];

    m.number = job->line_number + 1;
    m.time_ns = (uint64_t)ms_wall_ns();
    m.level = ms_field_text(levels[said->level < 3 ? said->level : 2]);
    m.role = ms_field_text(said->role == MS_JOB_DRIVER ? MS_JOB_DRIVER_NAME
                           : is_role && said->role < ms_job_core_role_count(job->core)
                               ? ms_hosted_role_name(job, said->role)
                               : "");
    m.rank = is_role && said->rank != MS_JOB_ALL_RANKS ? (int32_t)said->rank : -1;
    m.cause = ms_field_text(
        said->cause ? ms_job_cause_name((enum ms_job_cause)said->cause) : "");
    m.text = ms_field_text(said->text ? said->text : "");
    ms_hosted_number_key(job, m.number, key);
    if (write_message(job, MS_PERSIST_JOB_LINE, key, &m.base, NULL) < 0)
        return;
    job->line_number++;
    drop_old_lines(job);
    ms_jobs_changed(job->jobs);
}

void ms_hosted_note(struct ms_hosted *job,
                    enum ms_job_level level,
                    const char *fmt,
                    ...)
{
    struct ms_job_action said = {
        .level = (uint8_t)level, .role = MS_JOB_NO_ROLE, .rank = MS_JOB_ALL_RANKS};
    char text[MS_ERROR_TEXT_MAX];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    said.text = text;
    ms_hosted_say(job, &said);
}

void ms_jobs_note(struct ms_jobs *j, uint64_t id, const char *fmt, ...)
{
    struct ms_hosted *job = j ? ms_hosted_find_id(j, id) : NULL;
    char text[MS_ERROR_TEXT_MAX];
    va_list ap;

    if (!job)
        return;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    ms_hosted_note(job, MS_JOB_WARNING, "%s", text);
}

/* ---- events ------------------------------------------------------------------------ */

static void set_wake(struct ms_hosted *job)
{
    int64_t at_ns = ms_job_core_wake_ns(job->core), left_ns;

    if (at_ns == MS_NEVER || job->is_recovering) {
        ms_timer_cancel(&job->wake);
        return;
    }
    left_ns = at_ns - job_now_ns(job);
    ms_timer_set(&job->wake, left_ns > 0 ? left_ns : 0);
}

static void
carry_out(struct ms_hosted *job, const struct ms_job_action *a, size_t count)
{
    for (size_t i = 0; i < count; i++)
        ms_job_carry_out(job, &a[i]);
}

/* 0: it is in the core, or was of no use; else the journal cannot be written. */
static int take(struct ms_hosted *job, const struct ms_job_waiting *w)
{
    const struct ms_job_action *actions;
    struct ms_job_event_read read;
    int64_t now_ns = job_now_ns(job);
    size_t count = 0;
    int rc = ms_job_event_decode(&read, w->data.data, w->data.len, NULL);

    assert(rc == 0 || rc == -ENOMEM); /* we have encoded it ourselves */
    if (rc < 0)
        return rc;
    rc = ms_job_core_check(job->core, &read.event, NULL) < 0;
    if (rc == 0) {
        if (w->is_kept)
            rc = keep_event(job, w, now_ns, &job->journal);
        if (rc == 0)
            rc = ms_job_core_step(
                job->core, &read.event, now_ns, &actions, &count, NULL);
        if (rc == 0)
            carry_out(job, actions, count);
    }
    ms_job_event_read_finish(&read);
    return rc < 0 ? rc : 0;
}

static void waiting_destroy(struct ms_job_waiting *w)
{
    ms_buf_finish(&w->data);
    free(w);
}

/* All that waits, in order; what actions cause meanwhile too. */
static void take_all(struct ms_hosted *job)
{
    struct ms_job_waiting *w;
    int rc = 0;

    if (job->is_feeding || job->is_recovering)
        return;
    job->is_feeding = true;
    while (rc == 0 && (w = ms_list_take(&job->waiting, struct ms_job_waiting, link))) {
        rc = take(job, w);
        if (rc == 0)
            waiting_destroy(w);
        else
            ms_list_add_head(&job->waiting, &w->link);
    }
    job->is_feeding = false;
    if (rc < 0) {
        ms_timer_set(&job->retry, MS_JOB_RETRY_NS);
        return;
    }
    job->journal.code = 0;
    take_snapshot(job);
    set_wake(job);
    ms_signs_follow(job);
    ms_jobs_changed(job->jobs);
}

static struct ms_job_waiting *
queue(struct ms_hosted *job, const struct ms_job_event *e, bool is_kept)
{
    struct ms_job_waiting *w = calloc(1, sizeof *w);

    if (!w)
        return NULL;
    w->is_kept = is_kept;
    ms_buf_init(&w->data);
    if (ms_job_event_encode(e, &w->data) < 0) {
        ms_buf_finish(&w->data);
        free(w);
        return NULL;
    }
    ms_list_add_tail(&job->waiting, &w->link);
    return w;
}

void ms_hosted_feed(struct ms_hosted *job, const struct ms_job_event *e)
{
    ms_ends_tell(job);
    if (!job->jobs->is_ending && !job->is_forgotten && queue(job, e, true))
        take_all(job);
}

static struct ms_job_waiting *find_looks(const struct ms_hosted *job)
{
    ms_list_each (w, &job->waiting, struct ms_job_waiting, link)
        if (!w->is_kept)
            return w;
    return NULL;
}

bool ms_hosted_feed_looks(struct ms_hosted *job, const struct ms_job_event *e)
{
    struct ms_job_waiting *before;

    ms_ends_tell(job);
    before = find_looks(job);

    if (job->jobs->is_ending || job->is_forgotten || !queue(job, e, false))
        return false;
    if (before) {
        ms_list_remove(&before->link);
        waiting_destroy(before);
    }
    take_all(job);
    return !find_looks(job);
}

static struct ms_job_waiting *find_asked(const struct ms_hosted *job)
{
    ms_list_each (w, &job->waiting, struct ms_job_waiting, link)
        if (w->is_asked)
            return w;
    return NULL;
}

int ms_hosted_want(struct ms_hosted *job,
                   const struct ms_job_event *e,
                   struct ms_error *err)
{
    struct ms_job_waiting *w;
    int rc;

    if (job->is_recovering)
        return ms_error_set(
            err, -EAGAIN, "job '%s': the head has just started again", job->name);
    ms_ends_tell(job);
    if (job->journal.code)
        return ms_error_set(err, job->journal.code, "%s", job->journal.text);
    rc = ms_job_core_check(job->core, e, err);
    if (rc < 0)
        return rc;
    w = queue(job, e, true);
    if (!w)
        return ms_error_set(err, -ENOMEM, "out of memory");
    w->is_asked = true;
    take_all(job);
    w = job->journal.code ? find_asked(job) : NULL;
    if (!w)
        return 0;             /* it was kept; what followed from it may wait */
    ms_list_remove(&w->link); /* a person can ask again */
    waiting_destroy(w);
    return ms_error_set(err, job->journal.code, "%s", job->journal.text);
}

/* ---- timers ------------------------------------------------------------------------ */

static void on_wake(void *arg)
{
    struct ms_hosted *job = arg;
    struct ms_job_event e = {.what = MS_JOB_TICK};

    ms_hosted_feed(job, &e);
    for (int i = 0; i < 16 && !job->journal.code && ms_job_core_suspect(job->core, &e);
         i++)
        ms_hosted_feed(job, &e);
}

static void on_retry(void *arg)
{
    take_all(arg);
}

int ms_hosted_start(struct ms_hosted *job, struct ms_error *err)
{
    struct ms_loop *loop = job->jobs->head->loop;

    if (ms_timer_init(&job->wake, loop, on_wake, job) < 0 ||
        ms_timer_init(&job->retry, loop, on_retry, job) < 0)
        return ms_error_set(err, -ENOMEM, "out of memory");
    return 0;
}
