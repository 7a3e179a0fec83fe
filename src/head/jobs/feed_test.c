/* feed_test.c - events of a job on sim, in a head whose journal cannot be written for a while */
#include "head/head_impl.h"
#include "head/jobs/feed.h"
#include "head/jobs/jobs.h"
#include "head/ops/op.h"
#include "head/test_serve.h"

#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>

enum { RANKS = 8, LOOKS = 1000 };

static struct test_events told;
static struct ms_head *driver;

static int setup(void **state)
{
    serve_agent_path = "/bin/false";
    if (serve_setup(state) < 0)
        return -1;
    events_init(&told);
    driver = serve_join(&told);
    return 0;
}

static int teardown(void **state)
{
    ms_head_stop(MS_TAKE(driver), 0);
    return serve_teardown(state);
}

static void on_head(ms_verb_run *run)
{
    struct ms_error err = {0};

    if (ms_head_op_call(serve_head, run, ms_now_ns() + OPS_DEADLINE_NS, &err) < 0)
        fail_msg("%s", err.text);
}

static struct ms_hosted *job_of(const struct ms_head_op *op)
{
    return ms_hosted_find(op->head->jobs, "looks");
}

static uint32_t running;
static size_t waiting;

static int look(struct ms_head_op *op)
{
    struct ms_hosted *job = job_of(op);

    running = ms_job_core_role(job->core, 0).counts[MS_JOB_SLOT_RUNNING];
    waiting = 0;
    ms_list_each (w, &job->waiting, struct ms_job_waiting, link)
        waiting++;
    ms_head_op_succeed(op, NULL);
    return 0;
}

static void submit(void)
{
    Muster__SubmitJob m = MUSTER__SUBMIT_JOB__INIT;

    m.folder = (char[]){"/tmp"};
    m.text = (char[]){"name: looks\non: sim\nnodes: [{name: n0, cpus: 8}]\n"
                      "roles: {a: {command: [sh], world_size: 8, num_cpus: 1}}\n"};
    ops_expect(
        ops_request(driver, MUSTER__DRIVER_TO_HEAD__BODY_SUBMIT_JOB, &m), 0, NULL);
    do
        on_head(look);
    while (running < RANKS);
}

static struct rlimit fill_disk(void)
{
    char path[128];
    struct rlimit before, full;
    struct stat st;

    snprintf(path, sizeof path, "%s/test/state.db-wal", ops_home);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, SIG_IGN);
    full = (struct rlimit){(rlim_t)st.st_size, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &full), 0);
    return before;
}

static struct ms_job_report report(const struct ms_hosted *job, uint32_t rank)
{
    return (struct ms_job_report){.rank = rank,
                                  .incarnation =
                                      ms_job_core_slot(job->core, 0, rank).incarnation,
                                  .seen = MS_JOB_SEEN_RUNNING};
}

static int lose_one(struct ms_head_op *op)
{
    struct ms_hosted *job = job_of(op);
    struct ms_job_report end = report(job, 3);

    end.seen = MS_JOB_SEEN_ENDED;
    end.cause = MS_JOB_PREEMPTED;
    ms_hosted_feed(job,
                   &(struct ms_job_event){
                       .what = MS_JOB_EXITED, .reports = &end, .report_count = 1});
    ms_head_op_succeed(op, NULL);
    return 0;
}

static int look_often(struct ms_head_op *op)
{
    struct ms_hosted *job = job_of(op);
    struct ms_job_report works = report(job, 5);

    for (int i = 0; i < LOOKS; i++)
        assert_false(ms_hosted_feed_looks(
            job,
            &(struct ms_job_event){
                .what = MS_JOB_PROGRESS, .reports = &works, .report_count = 1}));
    ms_head_op_succeed(op, NULL);
    return 0;
}

static void test_signs_of_work_do_not_pile_up(void **state)
{
    struct rlimit before;

    (void)state;
    submit();
    before = fill_disk();
    on_head(lose_one);
    on_head(look_often);
    on_head(look);
    assert_int_equal(waiting, 2); /* the end, and the last look */
    assert_int_equal(running, RANKS);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    do
        on_head(look);
    while (waiting);
    do
        on_head(look);
    while (running < RANKS);
}

static bool is_asked;

static int look_for_asked(struct ms_head_op *op)
{
    is_asked = !ms_list_is_empty(&op->head->jobs->asked.all);
    ms_head_op_succeed(op, NULL);
    return 0;
}

static void scale(int code, const char *says)
{
    Muster__ScaleJob m = MUSTER__SCALE_JOB__INIT;

    m.name = (char[]){"looks"};
    m.role = (char[]){"a"};
    m.count = RANKS - 1;
    ops_expect(
        ops_request(driver, MUSTER__DRIVER_TO_HEAD__BODY_SCALE_JOB, &m), code, says);
}

/* Who asks for it again is not told that it was done. */
static void test_a_change_that_cannot_be_written_is_not_made(void **state)
{
    struct rlimit before;

    (void)state;
    submit();
    before = fill_disk();
    on_head(lose_one);
    scale(-EIO, "cannot write the journal");
    on_head(look_for_asked);
    assert_false(is_asked);
    on_head(look);
    assert_int_equal(waiting, 1); /* the end */
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            test_signs_of_work_do_not_pile_up, setup, teardown),
        cmocka_unit_test_setup_teardown(
            test_a_change_that_cannot_be_written_is_not_made, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
