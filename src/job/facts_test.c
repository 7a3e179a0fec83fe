/* What other controllers are known to get wrong, test by test. A hung process that ignores
 * SIGTERM is in agent/agent_end_test.c. */
#include "base/cleanup.h"
#include "job/core/test_rig.h"
#include "job/plan.h"
#include "job/rendezvous.h"
#include "job/shards.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void test_five_minutes_without_the_orchestrator_relaunch_nothing(void **state)
{
    struct ms_job_role_spec role;
    struct ms_job_spec spec = rig_spec(&role, 64, true);
    struct rig g;

    (void)state;
    rig_init(&g, &spec);
    rig_run(&g);
    rig_do(&g, MS_JOB_CANNOT_ASK);
    for (int i = 0; i < 300; i++) {
        rig_tick(&g, 1);
        assert_int_equal(rig_done_count(&g), 0);
    }
    rig_exit(&g, 0, 3, MS_JOB_PREEMPTED, NULL);
    assert_int_equal(rig_done_count(&g), 0); /* one that does end waits */
    rig_do(&g, MS_JOB_CAN_ASK);
    assert_int_equal(rig_action(&g, MS_JOB_DO_REPLACE)->rank_count, 1);
    for (uint32_t i = 0; i < 64; i++) {
        assert_int_equal(ms_job_core_slot(g.core, 0, i).restarts, i == 3);
        for (int cause = 0; cause < MS_JOB_BUDGETS; cause++)
            assert_int_equal(ms_job_core_slot(g.core, 0, i).spent[cause],
                             i == 3 && cause == MS_JOB_PREEMPTED);
    }
    rig_finish(&g);
}

static void mute_for(struct rig *g, int seconds)
{
    struct ms_job_event e = {.what = MS_JOB_CANNOT_ASK, .text = "connection refused"};

    rig_step(g, &e);
    for (int i = 0; i < seconds; i++) {
        rig_tick(g, 1);
        assert_int_equal(rig_done_count(g), 0);
    }
    rig_do(g, MS_JOB_CAN_ASK);
}

/* Its role waits below min; the timeout goes on where it was. */
static void test_ten_minutes_without_the_orchestrator_let_no_deadline_pass(void **state)
{
    struct ms_job_role_spec role;
    struct ms_job_spec spec = rig_spec(&role, 2, true);
    struct rig g;

    (void)state;
    spec.pending_timeout_ns = 400 * MS_NS_PER_S;
    rig_init(&g, &spec);
    rig_run(&g);
    rig_exit(&g, 0, 1, MS_JOB_PREEMPTED, NULL);
    rig_not_done(&g, rig_action(&g, MS_JOB_DO_REPLACE)->id, MS_JOB_NO_ROOM, "full");
    mute_for(&g, 600);
    assert_true(rig_said(&g, "the orchestrator cannot be asked: connection refused"));
    assert_true(rig_said(&g, "the orchestrator can be asked again, after 600 s"));
    rig_not_done(&g, rig_action(&g, MS_JOB_DO_REPLACE)->id, MS_JOB_NO_ROOM, "full");
    rig_tick(&g, 399);
    assert_int_equal(rig_stage(&g), MS_JOB_STAGE_RUNNING);
    rig_not_done(&g, rig_action(&g, MS_JOB_DO_REPLACE)->id, MS_JOB_NO_ROOM, "full");
    rig_tick(&g, 1);
    rig_settle(&g);
    assert_int_equal(rig_stage(&g), MS_JOB_STAGE_FAILED);
    assert_non_null(strstr(ms_job_core_view(g.core).text,
                           "fewer than 2 processes for 400 s: full"));
    rig_finish(&g);
}

/* Nor of a job that waits for its machines. */
static void
test_ten_minutes_without_the_orchestrator_are_no_wait_for_machines(void **state)
{
    struct ms_job_role_spec role;
    struct ms_job_spec spec = rig_spec(&role, 2, true);
    struct rig g;

    (void)state;
    spec.pending_timeout_ns = 400 * MS_NS_PER_S;
    rig_init(&g, &spec);
    rig_do(&g, MS_JOB_ADMITTED);
    rig_not_done(&g, rig_action(&g, MS_JOB_DO_RESERVE)->id, MS_JOB_NO_ROOM, "full");
    mute_for(&g, 600);
    rig_not_done(&g, rig_action(&g, MS_JOB_DO_RESERVE)->id, MS_JOB_NO_ROOM, "full");
    rig_tick(&g, 399);
    rig_done(&g, rig_action(&g, MS_JOB_DO_RESERVE)->id);
    rig_settle(&g);
    assert_int_equal(rig_stage(&g), MS_JOB_STAGE_RUNNING);
    rig_finish(&g);
}

/* What a controller that was restarted meanwhile does not know of is not lost. */
static void test_ten_minutes_without_the_orchestrator_lose_nothing(void **state)
{
    struct ms_job_role_spec role;
    struct ms_job_spec spec = rig_spec(&role, 2, true);
    struct ms_job_report found[] = {
        {.rank = 0, .incarnation = 1, .seen = MS_JOB_SEEN_RUNNING},
        {.rank = 1, .incarnation = 1, .seen = MS_JOB_SEEN_RUNNING},
        {.role = MS_JOB_DRIVER, .incarnation = 1, .seen = MS_JOB_SEEN_RUNNING},
    };
    struct rig g;

    (void)state;
    rig_init(&g, &spec);
    rig_run(&g);
    rig_replay(&g);
    rig_do(&g, MS_JOB_RECOVERED); /* nobody has reported yet */
    mute_for(&g, 600);
    rig_step(&g,
             &(struct ms_job_event){
                 .what = MS_JOB_FOUND, .reports = found, .report_count = 3});
    rig_tick(&g, 3600);
    assert_int_equal(rig_done_count(&g), 0);
    assert_int_equal(ms_job_core_role(g.core, 0).counts[MS_JOB_SLOT_RUNNING], 2);
    assert_true(ms_job_core_view(g.core).driver_runs);
    assert_int_equal(ms_job_core_slot(g.core, 0, 1).restarts, 0);
    rig_finish(&g);
}

static void test_succeeded_before_the_controller_starts_ends_succeeded(void **state)
{
    struct ms_job_role_spec role;
    struct ms_job_spec spec = rig_spec(&role, 4, false);
    struct ms_job_report found[4];
    struct rig g;

    (void)state;
    rig_init(&g, &spec);
    rig_run(&g);
    rig_replay(&g);
    for (uint32_t i = 0; i < 4; i++)
        found[i] = (struct ms_job_report){
            .rank = i, .incarnation = 1, .cause = MS_JOB_SUCCEEDED};
    rig_step(&g,
             &(struct ms_job_event){.what = MS_JOB_RECOVERED,
                                    .reports = found,
                                    .report_count = 4,
                                    .flags = MS_JOB_COMPLETE});
    assert_false(rig_has(&g, MS_JOB_DO_CREATE) || rig_has(&g, MS_JOB_DO_REPLACE));
    rig_settle(&g);
    assert_int_equal(rig_stage(&g), MS_JOB_STAGE_SUCCEEDED);
    rig_finish(&g);
}

static void test_ten_preemptions_then_a_hardware_error_is_relaunched(void **state)
{
    struct ms_job_role_spec role;
    struct ms_job_spec spec = rig_spec(&role, 2, true);
    struct rig g;

    (void)state;
    rig_init(&g, &spec);
    rig_run(&g);
    for (int i = 0; i < 10; i++) {
        rig_exit(&g, 0, 1, MS_JOB_PREEMPTED, NULL);
        if (!rig_has(&g, MS_JOB_DO_REPLACE))
            rig_tick(&g, 61);
        rig_settle(&g);
    }
    rig_exit(&g, 0, 1, MS_JOB_HARDWARE, NULL);
    rig_tick(&g, 61);
    assert_int_equal(rig_action(&g, MS_JOB_DO_REPLACE)->ranks[0].rank, 1);
    assert_int_equal(ms_job_core_slot(g.core, 0, 1).spent[MS_JOB_HARDWARE], 1);
    assert_int_equal(ms_job_core_slot(g.core, 0, 1).spent[MS_JOB_PREEMPTED], 10);
    rig_finish(&g);
}

static void test_min_that_is_no_multiple_of_unit_is_refused(void **state)
{
    struct ms_job_role_spec role;
    struct ms_job_spec spec = rig_spec(&role, 4, true);
    struct ms_error err = {0};

    (void)state;
    role.min = 3;
    role.unit = 2;
    assert_int_equal(ms_job_spec_check(&spec, &err), -EINVAL);
    assert_non_null(strstr(err.text, "multiples of unit 2"));
}

static void test_trickling_joiners_complete_by_the_absolute_deadline(void **state)
{
    const struct ms_rendezvous_limits limits = {
        2, 1000, 2, 30 * MS_NS_PER_S, 600 * MS_NS_PER_S};
    MS_CLEANUP(ms_rendezvous_finish) struct ms_rendezvous r;
    int64_t now_ns = 0;

    (void)state;
    ms_rendezvous_init(&r, &limits);
    for (uint64_t i = 1; now_ns < limits.join_ns; i++, now_ns += 20 * MS_NS_PER_S) {
        char key[16];

        snprintf(key, sizeof key, "n%u", (unsigned)i);
        assert_int_equal(
            ms_rendezvous_join(
                &r, &(struct ms_rendezvous_join){.key = key, .owner = i}, now_ns, NULL),
            1);
        assert_int_equal(ms_rendezvous_step(&r, now_ns, NULL), MS_RENDEZVOUS_NOTHING);
        assert_true(ms_rendezvous_next_ns(&r) <= limits.join_ns);
    }
    assert_int_equal(ms_rendezvous_step(&r, limits.join_ns, NULL),
                     MS_RENDEZVOUS_COMPLETED);
    assert_int_equal(r.world_count, 30);
}

static void test_a_shard_that_fails_four_times_is_reported_not_completed(void **state)
{
    const struct ms_shards_spec spec = {
        .size = 20, .shard = 10, .epochs = 1, .failures_max = 4, .deaths_max = 8};
    MS_CLEANUP(ms_shard_queue_finish) struct ms_shard_queue q;
    struct ms_shard_range r;

    (void)state;
    assert_int_equal(ms_shard_queue_init(&q, &spec, NULL), 0);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(ms_shard_queue_take(&q, 1, &r), 1);
        assert_int_equal(r.start, 0);
        assert_int_equal(ms_shard_queue_fail(&q, r.lease, 1, "cannot decode"),
                         i < 3 ? 1 : 2);
    }
    assert_int_equal(ms_shard_queue_take(&q, 1, &r), 1);
    assert_int_equal(ms_shard_queue_done(&q, r.lease, 1), 1);
    assert_int_equal(ms_shard_queue_state(&q), MS_SHARDS_FAILED);
    assert_int_equal(q.failed.count, 1);
    assert_string_equal(q.failed.at[0].reason, "cannot decode");
}

static void test_late_events_of_an_older_incarnation_change_nothing(void **state)
{
    struct ms_job_role_spec role;
    struct ms_job_spec spec = rig_spec(&role, 4, true);
    struct ms_job_report late = {
        .rank = 2, .incarnation = 1, .cause = MS_JOB_APPLICATION, .code = 1};
    struct ms_buf before = {0}, after = {0};
    struct rig g;

    (void)state;
    rig_init(&g, &spec);
    rig_run(&g);
    rig_exit(&g, 0, 2, MS_JOB_PREEMPTED, NULL);
    rig_settle(&g);
    assert_int_equal(ms_job_core_encode(g.core, &before), 0);
    rig_step(&g,
             &(struct ms_job_event){
                 .what = MS_JOB_EXITED, .reports = &late, .report_count = 1});
    assert_int_equal(g.count, 0);
    assert_int_equal(ms_job_core_encode(g.core, &after), 0);
    assert_int_equal(before.len, after.len);
    assert_memory_equal(before.data, after.data, before.len);
    ms_buf_finish(&before);
    ms_buf_finish(&after);
    rig_finish(&g);
}

static void test_a_crash_between_create_and_its_answer_duplicates_nothing(void **state)
{
    struct ms_job_role_spec role;
    struct ms_job_spec spec = rig_spec(&role, 4, false);
    struct ms_job_action first;
    struct rig g;

    (void)state;
    rig_init(&g, &spec);
    rig_do(&g, MS_JOB_ADMITTED);
    rig_done(&g, rig_action(&g, MS_JOB_DO_RESERVE)->id);
    first = *rig_action(&g, MS_JOB_DO_CREATE);
    rig_replay(&g);
    rig_do(&g, MS_JOB_RECOVERED);
    assert_int_equal(rig_done_count(&g), 1);
    assert_int_equal(rig_action(&g, MS_JOB_DO_CREATE)->id, first.id);
    assert_int_equal(rig_action(&g, MS_JOB_DO_CREATE)->incarnation, first.incarnation);
    rig_finish(&g);
}

/* 100 ranks of one GPU each do not fit on 8 GPUs, though each alone does. */
static void test_capacity_counts_the_total_of_all_instances(void **state)
{
    static const char file[] = "nodes:\n"
                               "  - {name: n0, cpus: 64, gpus: 8}\n"
                               "roles:\n"
                               "  actor: {world_size: 100, bundle: {GPU: 1}}\n";
    struct ms_error err = {0};
    struct ms_buf table = {0};
    struct ms_job_plan plan;
    struct ms_job job;

    (void)state;
    assert_int_equal(ms_job_read(&job, "x.yaml", file, strlen(file), &err), 0);
    ms_job_plan_init(&plan);
    assert_int_equal(ms_books_node_came(&plan.books, job.nodes[0], &err), 0);
    assert_int_equal(ms_job_plan_make(&plan, &job, &table, &err), -ENOSPC);
    assert_non_null(strstr(err.text, "100"));
    ms_job_plan_finish(&plan);
    ms_buf_finish(&table);
    ms_job_finish(&job);
}

static void test_a_thousand_lost_at_once_are_replaced_by_one_action(void **state)
{
    enum { COUNT = 1000 };
    static struct ms_job_report reports[COUNT];
    struct ms_job_role_spec role;
    struct ms_job_spec spec = rig_spec(&role, COUNT, true);
    struct rig g;

    (void)state;
    rig_init(&g, &spec);
    rig_run(&g);
    for (uint32_t i = 0; i < COUNT; i++)
        reports[i] = (struct ms_job_report){
            .rank = i, .incarnation = 1, .cause = MS_JOB_NODE_LOST};
    rig_step(&g,
             &(struct ms_job_event){
                 .what = MS_JOB_EXITED, .reports = reports, .report_count = COUNT});
    assert_int_equal(rig_action(&g, MS_JOB_DO_REPLACE)->rank_count, COUNT);
    assert_int_equal(rig_done_count(&g), 1);
    rig_finish(&g);
}

static void test_records_that_are_cut_damaged_or_newer_say_so(void **state)
{
    struct ms_job_event_read r;
    struct ms_error err = {0};
    struct ms_buf b = {0};

    (void)state;
    assert_int_equal(ms_job_event_encode(
                         &(struct ms_job_event){.what = MS_JOB_STOP, .text = "me"}, &b),
                     0);
    for (size_t i = 0; i < b.len; i++)
        assert_int_equal(ms_job_event_decode(&r, b.data, i, &err), -EBADMSG);
    b.data[5] ^= 1;
    assert_int_equal(ms_job_event_decode(&r, b.data, b.len, &err), -EBADMSG);
    assert_non_null(strstr(err.text, "damaged"));
    b.data[1] = 99;
    assert_int_equal(ms_job_event_decode(&r, b.data, b.len, &err), -ENOTSUP);
    assert_non_null(strstr(err.text, "newer"));
    assert_null(ms_job_core_decode(b.data, b.len, &err));
    ms_buf_finish(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_five_minutes_without_the_orchestrator_relaunch_nothing),
        cmocka_unit_test(
            test_ten_minutes_without_the_orchestrator_let_no_deadline_pass),
        cmocka_unit_test(
            test_ten_minutes_without_the_orchestrator_are_no_wait_for_machines),
        cmocka_unit_test(test_ten_minutes_without_the_orchestrator_lose_nothing),
        cmocka_unit_test(test_succeeded_before_the_controller_starts_ends_succeeded),
        cmocka_unit_test(test_ten_preemptions_then_a_hardware_error_is_relaunched),
        cmocka_unit_test(test_min_that_is_no_multiple_of_unit_is_refused),
        cmocka_unit_test(test_trickling_joiners_complete_by_the_absolute_deadline),
        cmocka_unit_test(test_a_shard_that_fails_four_times_is_reported_not_completed),
        cmocka_unit_test(test_late_events_of_an_older_incarnation_change_nothing),
        cmocka_unit_test(test_a_crash_between_create_and_its_answer_duplicates_nothing),
        cmocka_unit_test(test_capacity_counts_the_total_of_all_instances),
        cmocka_unit_test(test_a_thousand_lost_at_once_are_replaced_by_one_action),
        cmocka_unit_test(test_records_that_are_cut_damaged_or_newer_say_so),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
