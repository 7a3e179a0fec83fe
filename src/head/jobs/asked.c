/* asked.c - a change of a job that was asked over a link is carried out once */
#include "head/jobs/asked.h"
#include "base/cleanup.h"
#include "base/proto.h"
#include "head/drivers/driver.h"
#include "head/head_impl.h"
#include "head/jobs/hosted.h"
#include "head/ops/op.h"
#include "head/state/journal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct asked {
    struct ms_list link; /* ms_asked.all */
    uint64_t driver, number;
    char job[MS_NAME_MAX + 1];
};

/* ---- in memory and in the journal -------------------------------------------------- */

static void key_of(uint64_t driver, uint64_t number, char out[48])
{
    snprintf(out, 48, "%" PRIu64 "/%" PRIu64, driver, number);
}

/* Without memory it stays in the journal until the next head drops it. */
static void add(struct ms_jobs *j, uint64_t driver, uint64_t number, const char *job)
{
    struct asked *a = calloc(1, sizeof *a);

    if (!a)
        return;
    a->driver = driver;
    a->number = number;
    snprintf(a->job, sizeof a->job, "%s", job);
    ms_list_add_tail(&j->asked.all, &a->link);
}

static const struct asked *find(const struct ms_jobs *j, const struct ms_head_op *op)
{
    ms_list_each (a, &j->asked.all, struct asked, link)
        if (a->driver == op->driver->id && a->number == op->pending.number)
            return a;
    return NULL;
}

static void drop(struct ms_jobs *j, struct asked *a)
{
    char key[48];

    key_of(a->driver, a->number, key);
    ms_journal_write(
        j->head->persist.journal, MS_PERSIST_JOB_ASKED, key, NULL, 0, NULL);
    ms_list_remove(&a->link);
    free(a);
}

static bool
is_settled(uint64_t number, uint64_t watermark, const uint64_t *arrived, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (arrived[i] == number)
            return true;
    return number <= watermark;
}

void ms_asked_settle(struct ms_jobs *j,
                     uint64_t driver,
                     uint64_t watermark,
                     const uint64_t *arrived,
                     size_t count)
{
    if (!j)
        return;
    ms_list_each (a, &j->asked.all, struct asked, link)
        if (a->driver == driver && is_settled(a->number, watermark, arrived, count))
            drop(j, a);
}

/* ---- carrying out ------------------------------------------------------------------ */

/* The job as it is now, or that it is gone. */
static int answer_again(struct ms_head_op *op, const struct asked *a)
{
    const struct ms_hosted *job = ms_hosted_find(op->head->jobs, a->job);
    Muster__JobStatus deleted = MUSTER__JOB_STATUS__INIT;
    char stage[] = "deleted";

    deleted.name = (char *)(uintptr_t)a->job;
    deleted.stage = stage;
    ms_head_op_answer(op,
                      job ? (ProtobufCMessage *)ms_hosted_status(job)
                          : ms_proto_copy(&deleted.base));
    return 0;
}

int ms_asked_run(struct ms_head_op *op, ms_verb_run *run)
{
    struct ms_jobs *j = op->head->jobs;
    const struct asked *a = j && op->driver ? find(j, op) : NULL;
    int rc;

    if (a)
        return answer_again(op, a);
    if (!j || !op->driver)
        return run(op);
    j->asked.op = op;
    rc = run(op);
    j->asked.op = NULL;
    return rc;
}

int ms_asked_write(struct ms_hosted *job, struct ms_error *err)
{
    struct ms_jobs *j = job->jobs;
    const struct ms_head_op *op = j->asked.op;
    MS_CLEANUP(ms_buf_finish) struct ms_buf packed = {0};
    Muster__KeptJobAsked m = MUSTER__KEPT_JOB_ASKED__INIT;
    char key[48];

    m.job = job->name;
    key_of(op->driver->id, op->pending.number, key);
    if (ms_proto_pack(&m.base, &packed) < 0)
        return ms_error_set(err, -ENOMEM, "out of memory");
    return ms_journal_write(j->head->persist.journal,
                            MS_PERSIST_JOB_ASKED,
                            key,
                            packed.data,
                            packed.len,
                            err);
}

void ms_asked_written(struct ms_hosted *job)
{
    const struct ms_head_op *op = job->jobs->asked.op;

    add(job->jobs, op->driver->id, op->pending.number, job->name);
}

/* ---- of the head before ------------------------------------------------------------ */

static void on_record(void *arg, const char *key, const uint8_t *data, size_t len)
{
    Muster__KeptJobAsked *m = muster__kept_job_asked__unpack(NULL, len, data);
    char *slash;
    uint64_t driver = strtoull(key, &slash, 10);

    if (m && *slash == '/')
        add(arg, driver, strtoull(slash + 1, NULL, 10), m->job);
    muster__kept_job_asked__free_unpacked(m, NULL);
}

static void on_late(void *arg)
{
    struct ms_jobs *j = arg;

    ms_list_each (a, &j->asked.all, struct asked, link)
        if (!ms_driver_find(j->head, a->driver))
            drop(j, a);
}

int ms_asked_open(struct ms_jobs *j, struct ms_error *err)
{
    int rc = ms_timer_init(&j->asked.late, j->head->loop, on_late, j);

    if (rc < 0)
        return ms_error_set(err, -ENOMEM, "out of memory");
    ms_timer_set(&j->asked.late, j->head->link_grace_ns);
    return ms_journal_read(
        j->head->persist.journal, MS_PERSIST_JOB_ASKED, "", on_record, j, err);
}

void ms_asked_close(struct ms_asked *a)
{
    ms_timer_finish(&a->late);
    ms_list_each (x, &a->all, struct asked, link) {
        ms_list_remove(&x->link);
        free(x);
    }
}
