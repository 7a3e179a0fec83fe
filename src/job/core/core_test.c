/* core_test.c - what the core of a job decides, event by event */
#include "job/core/test_rig.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void test_a_job_from_submit_to_success(void **state)
{
    struct ms_job_role_spec role;
    struct ms_job_spec spec = rig_spec(&role, 4, true);
    struct rig g;

    (void)state;
    rig_init(&g, &spec);
    assert_int_equal(rig_stage(&g), MS_JOB_STAGE_QUEUED);
    assert_int_equal(rig_done_count(&g), 0);
    rig_do(&g, MS_JOB_ADMITTED);
    rig_done(&g, rig_action(&g, MS_JOB_DO_RESERVE)->id);
    assert_int_equal(rig_action(&g, MS_JOB_DO_CREATE)->count, 4);
    assert_int_equal(g.actions[0].incarnation, 1);
    rig_done(&g, rig_action(&g, MS_JOB_DO_CREATE)->id);
    assert_int_equal(rig_action(&g, MS_JOB_DO_START_DRIVER)->incarnation, 1);
    rig_done(&g, rig_action(&g, MS_JOB_DO_START_DRIVER)->id);
    assert_int_equal(rig_stage(&g), MS_JOB_STAGE_RUNNING);
    rig_driver_exit(&g, MS_JOB_SUCCEEDED, 0, NULL);
    rig_done(&g, rig_action(&g, MS_JOB_DO_DESTROY)->id);
    rig_done(&g, rig_action(&g, MS_JOB_DO_RELEASE)->id);
    assert_int_equal(rig_action(&g, MS_JOB_DO_FINISH)->stage, MS_JOB_STAGE_SUCCEEDED);
    assert_int_equal(ms_job_core_wake_ns(g.core), MS_NEVER);
    rig_finish(&g);
}

static void test_one_rank_is_replaced_and_the_others_go_on(void **state)
{
    struct ms_job_role_spec role;
    struct ms_job_spec spec = rig_spec(&role, 4, true);
    const struct ms_job_action *a;
    struct rig g;

    (void)state;
    rig_init(&g, &spec);
    rig_run(&g);
    rig_exit(&g, 0, 2, MS_JOB_HARDWARE, "Xid 79");
    a = rig_action(&g, MS_JOB_DO_REPLACE);
    assert_int_equal(a->rank_count, 1);
    assert_int_equal(a->ranks[0].rank, 2);
    assert_int_equal(a->ranks[0].flags, MS_JOB_ELSEWHERE);
    assert_int_equal(a->incarnation, 2);
    rig_done(&g, a->id);
    assert_int_equal(ms_job_core_role(g.core, 0).counts[MS_JOB_SLOT_RUNNING], 4);
    assert_int_equal(ms_job_core_slot(g.core, 0, 2).spent[MS_JOB_HARDWARE], 1);
    assert_int_equal(ms_job_core_slot(g.core, 0, 1).incarnation, 1);
    assert_true(rig_said(&g, "actor/2 ended: hardware error"));
    assert_true(rig_said(&g, "Xid 79"));
    rig_finish(&g);
}

static void test_starts_that_come_to_nothing_are_no_restarts(void **state)
{
    struct ms_job_role_spec role;
    struct ms_job_spec spec = rig_spec(&role, 4, true);
    struct rig g;

    (void)state;
    rig_init(&g, &spec);
    rig_run(&g);
    rig_exit(&g, 0, 2, MS_JOB_HARDWARE, NULL);
    for (int i = 0; i < 3; i++) {
        rig_not_done(
            &g, rig_action(&g, MS_JOB_DO_REPLACE)->id, MS_JOB_NO_ROOM, "no room");
        rig_tick(&g, 60);
    }
    rig_done(&g, rig_action(&g, MS_JOB_DO_REPLACE)->id);
    assert_int_equal(ms_job_core_role(g.core, 0).counts[MS_JOB_SLOT_RUNNING], 4);
    assert_int_equal(ms_job_core_slot(g.core, 0, 2).restarts, 1);
    rig_finish(&g);
}

static void test_a_role_restarts_together(void **state)
{
    struct ms_job_role_spec role;
    struct ms_job_spec spec = rig_spec(&role, 4, false);
    const struct ms_job_action *a;
    struct rig g;

    (void)state;
    role.restart = MS_JOB_RESTART_ROLE;
    rig_init(&g, &spec);
    rig_run(&g);
    rig_exit(&g, 0, 1, MS_JOB_OUT_OF_MEMORY, NULL);
    a = rig_action(&g, MS_JOB_DO_RESTART);
    assert_int_equal(a->count, 4);
    assert_int_equal(a->incarnation, 2);
    rig_exit(
        &g, 0, 3, MS_JOB_APPLICATION, NULL); /* before the answer: it belongs to it */
    assert_int_equal(rig_done_count(&g), 0);
    rig_finish(&g);
}

static void test_a_rank_that_was_killed_for_memory_asks_for_more(void **state)
{
    static const uint32_t wanted[] = {150, 225, 300, 300}; /* 300: the most */
    struct ms_job_role_spec role;
    struct ms_job_spec spec = rig_spec(&role, 4, false);
    const struct ms_job_action *a;
    struct rig g;

    (void)state;
    role.max = 6;
    role.memory_raise = 150;
    role.memory_raise_max = 300;
    role.budget[MS_JOB_OUT_OF_MEMORY] = 9;
    rig_init(&g, &spec);
    rig_run(&g);
    rig_exit(&g, 0, 1, MS_JOB_PREEMPTED, NULL); /* that is no reason */
    assert_int_equal(rig_action(&g, MS_JOB_DO_REPLACE)->memory, 100);
    rig_settle(&g);
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        rig_tick(&g, 1000); /* it was stable: nothing is waited for */
        rig_exit(&g, 0, 2, MS_JOB_OUT_OF_MEMORY, NULL);
        a = rig_action(&g, MS_JOB_DO_REPLACE);
        assert_int_equal(a->rank_count, 1);
        assert_int_equal(a->memory, wanted[i]);
        rig_settle(&g);
        if (i == 1)
            rig_replay(&g);
    }
    assert_true(rig_said(&g, "role actor asks for 225 % of its memory from now on"));
    rig_step(&g, &(struct ms_job_event){.what = MS_JOB_SCALE, .role = 0, .count = 5});
    assert_int_equal(rig_action(&g, MS_JOB_DO_RESIZE)->memory, 300); /* new ones too */
    rig_finish(&g);
}

/* The restart of the role, after which its ranks have a budget again, is not as small. */
static void test_a_role_whose_memory_was_spent_restarts_with_more(void **state)
{
    struct ms_job_role_spec role;
    struct ms_job_spec spec = rig_spec(&role, 2, false);
    struct rig g;

    (void)state;
    role.memory_raise = 200;
    role.memory_raise_max = 400;
    role.budget[MS_JOB_OUT_OF_MEMORY] = 1;
    rig_init(&g, &spec);
    rig_run(&g);
    rig_exit(&g, 0, 0, MS_JOB_OUT_OF_MEMORY, NULL);
    assert_int_equal(rig_action(&g, MS_JOB_DO_REPLACE)->memory, 200);
    rig_settle(&g);
    rig_exit(&g, 0, 0, MS_JOB_OUT_OF_MEMORY, NULL);
    assert_int_equal(rig_action(&g, MS_JOB_DO_RESTART)->memory, 400);
    rig_finish(&g);
}

static void test_the_job_restarts_for_a_role(void **state)
{
    struct ms_job_role_spec role;
    struct ms_job_spec spec = rig_spec(&role, 4, true);
    struct rig g;

    (void)state;
    role.restart = MS_JOB_RESTART_JOB;
    rig_init(&g, &spec);
    rig_run(&g);
    rig_exit(&g, 0, 1, MS_JOB_PREEMPTED, NULL);
    assert_int_equal(rig_stage(&g), MS_JOB_STAGE_RESTARTING);
    rig_done(&g, rig_action(&g, MS_JOB_DO_STOP_DRIVER)->id);
    rig_done(&g, rig_action(&g, MS_JOB_DO_DESTROY)->id);
    rig_done(&g, rig_action(&g, MS_JOB_DO_CREATE)->id);
    assert_int_equal(rig_action(&g, MS_JOB_DO_START_DRIVER)->incarnation, 2);
    rig_settle(&g);
    assert_int_equal(rig_stage(&g), MS_JOB_STAGE_RUNNING);
    assert_int_equal(ms_job_core_view(g.core).restarts, 1);
    rig_finish(&g);
}

static void test_the_job_restarts_without_limit(void **state)
{
    struct ms_job_role_spec role;
    struct ms_job_spec spec = rig_spec(&role, 2, true);
    struct rig g;

    (void)state;
    role.budget[MS_JOB_OUT_OF_MEMORY] = 0;
    spec.role_restarts_max = 0;
    spec.job_restarts_max = MS_JOB_UNLIMITED;
    rig_init(&g, &spec);
    rig_run(&g);
    for (int i = 0; i < 5; i++) {
        rig_exit(&g, 0, 1, MS_JOB_OUT_OF_MEMORY, NULL);
        assert_int_equal(rig_stage(&g), MS_JOB_STAGE_RESTARTING);
        rig_settle(&g);
        assert_int_equal(rig_stage(&g), MS_JOB_STAGE_RUNNING);
    }
    assert_true(rig_said(&g, "the job restarts (5 of unlimited)"));
    rig_finish(&g);
}

static void test_an_application_error_stops_early_with_the_traceback(void **state)
{
    static const char trace[] = "Traceback (most recent call last):\n"
                                "  File \"train.py\", line 12, in step\n"
                                "KeyError: 'reward' at 0x7f11";
    struct ms_job_role_spec role;
    struct ms_job_spec spec = rig_spec(&role, 8, true);
    struct rig g;

    (void)state;
    role.budget[MS_JOB_APPLICATION] = 100;
    rig_init(&g, &spec);
    rig_run(&g);
    for (uint32_t i = 0; i < 3; i++) { /* on whatever rank */
        rig_exit(&g, 0, i, MS_JOB_APPLICATION, trace);
        if (i < 2)
            rig_settle(&g);
    }
    assert_int_equal(rig_stage(&g), MS_JOB_STAGE_STOPPING);
    assert_non_null(strstr(ms_job_core_view(g.core).text, "KeyError: 'reward'"));
    assert_non_null(
        strstr(ms_job_core_view(g.core).text, "the same error came 3 times"));
    rig_settle(&g);
    assert_int_equal(rig_stage(&g), MS_JOB_STAGE_FAILED);
    assert_int_equal(ms_job_core_view(g.core).cause, MS_JOB_APPLICATION);
    rig_finish(&g);
}

static void test_the_driver_restarts_from_its_checkpoint(void **state)
{
    struct ms_job_role_spec role;
    struct ms_job_spec spec = rig_spec(&role, 2, true);
    struct rig g;

    (void)state;
    rig_init(&g, &spec);
    rig_run(&g);
    rig_driver_exit(&g, MS_JOB_PREEMPTED, 9, NULL);
    assert_int_equal(rig_action(&g, MS_JOB_DO_START_DRIVER)->incarnation, 2);
    assert_false(rig_has(&g, MS_JOB_DO_DESTROY)); /* its roles outlive it */
    rig_settle(&g);
    for (int i = 0; i < 3; i++) {
        rig_driver_exit(&g, MS_JOB_APPLICATION, 3, "ValueError: no data");
        if (i < 2) {
            rig_tick(&g, 60);
            rig_settle(&g);
        }
    }
    rig_settle(&g);
    assert_int_equal(rig_stage(&g), MS_JOB_STAGE_FAILED);
    assert_int_equal(ms_job_core_view(g.core).code, 3);
    assert_true(rig_said(&g, "the driver starts from its last checkpoint, attempt 4"));
    rig_finish(&g);
}

/* Its work is done, whatever becomes of the answer. */
static void
test_a_role_that_succeeded_before_its_start_failed_has_not_failed(void **state)
{
    struct ms_job_role_spec role;
    struct ms_job_spec spec = rig_spec(&role, 2, true);
    struct rig g;
    uint64_t id, driver_id;

    (void)state;
    rig_init(&g, &spec);
    rig_do(&g, MS_JOB_ADMITTED);
    rig_done(&g, rig_action(&g, MS_JOB_DO_RESERVE)->id);
    id = rig_action(&g, MS_JOB_DO_CREATE)->id;
    rig_exit(&g, 0, 0, MS_JOB_SUCCEEDED, NULL);
    rig_exit(&g, 0, 1, MS_JOB_SUCCEEDED, NULL);
    driver_id = rig_action(&g, MS_JOB_DO_START_DRIVER)->id;
    rig_not_done(&g, id, MS_JOB_FAILED, "they have ended");
    assert_int_equal(rig_done_count(&g), 0);
    assert_int_equal(ms_job_core_view(g.core).restarts, 0);
    rig_done(&g, driver_id);
    assert_int_equal(rig_stage(&g), MS_JOB_STAGE_RUNNING);
    rig_finish(&g);
}

static bool suspect(struct rig *g)
{
    struct ms_job_event e;
    bool is_event = ms_job_core_suspect(g->core, &e);

    if (is_event)
        rig_step(g, &e);
    return is_event;
}

/* A look at one process, whose answer took so long. */
static void
look_at(struct rig *g, uint32_t role, uint32_t rank, uint8_t seen, uint32_t late_ms)
{
    bool is_driver = role == MS_JOB_DRIVER;
    struct ms_job_report p = {
        .role = role,
        .rank = rank,
        .incarnation = is_driver ? ms_job_core_view(g->core).attempt
                                 : ms_job_core_slot(g->core, role, rank).incarnation,
        .seen = seen};

    rig_step(g,
             &(struct ms_job_event){.what = MS_JOB_PROGRESS,
                                    .count = late_ms,
                                    .reports = &p,
                                    .report_count = 1});
}

static void driver_works(struct rig *g)
{
    look_at(g, MS_JOB_DRIVER, 0, MS_JOB_SEEN_RUNNING, 0);
}

static void driver_is_silent(struct rig *g)
{
    look_at(g, MS_JOB_DRIVER, 0, MS_JOB_SEEN_SILENT, 0);
}

/* `hang` of 2 s: its node answers after 5 s, and others later still. */
static void test_a_node_that_answers_late_is_no_hang(void **state)
{
    struct ms_job_role_spec role;
    struct ms_job_spec spec = rig_spec(&role, 2, false);
    struct rig g;

    (void)state;
    role.hang_ns = 2 * MS_NS_PER_S;
    rig_init(&g, &spec);
    rig_run(&g);
    look_at(&g, 0, 0, MS_JOB_SEEN_RUNNING, 0);
    rig_tick(&g, 1);
    look_at(&g, 0, 0, MS_JOB_SEEN_SILENT, 0);
    rig_tick(&g, 5); /* nobody was heard meanwhile */
    assert_false(suspect(&g));
    look_at(&g, 0, 0, MS_JOB_SEEN_SILENT, 4500); /* 1.5 s after its last sign */
    assert_false(suspect(&g));
    look_at(&g, 0, 0, MS_JOB_SEEN_RUNNING, 0); /* it has worked */
    assert_false(suspect(&g));
    rig_tick(&g, 3);
    look_at(&g, 0, 0, MS_JOB_SEEN_SILENT, 500);
    assert_true(suspect(&g));
    assert_true(rig_said(&g, "1 of 2 processes"));
    rig_finish(&g);
}

static void test_a_driver_that_hangs_is_started_again(void **state)
{
    struct ms_job_role_spec role;
    struct ms_job_spec spec = rig_spec(&role, 2, true);
    struct rig g;

    (void)state;
    spec.driver_hang_ns = 60 * MS_NS_PER_S;
    spec.driver_budget[MS_JOB_HANG] = 1;
    rig_init(&g, &spec);
    rig_run(&g);
    rig_tick(&g, 50);
    driver_works(&g);
    rig_tick(&g, 50);
    driver_is_silent(&g);
    assert_false(suspect(&g)); /* 50 s after its last sign */
    rig_tick(&g, 11);
    assert_false(suspect(&g)); /* nobody has looked */
    driver_is_silent(&g);
    assert_true(suspect(&g));
    assert_int_equal(rig_action(&g, MS_JOB_DO_DUMP_STACKS)->role, MS_JOB_DRIVER);
    assert_false(suspect(&g)); /* the stack comes first */
    rig_done(&g, rig_action(&g, MS_JOB_DO_DUMP_STACKS)->id);
    assert_true(suspect(&g));
    assert_int_equal(rig_action(&g, MS_JOB_DO_START_DRIVER)->incarnation, 2);
    assert_true(rig_said(&g, "the driver ended: hang"));
    rig_settle(&g);
    rig_driver_exit(&g, MS_JOB_SUCCEEDED, 0, NULL); /* of attempt 2 */
    rig_settle(&g);
    assert_int_equal(rig_stage(&g), MS_JOB_STAGE_SUCCEEDED);
    rig_finish(&g);
}

static void test_a_hung_driver_whose_budget_is_spent_is_ended_with_the_job(void **state)
{
    struct ms_job_role_spec role;
    struct ms_job_spec spec = rig_spec(&role, 2, true);
    struct rig g;

    (void)state;
    spec.driver_hang_ns = 60 * MS_NS_PER_S;
    spec.driver_budget[MS_JOB_HANG] = 0;
    rig_init(&g, &spec);
    rig_run(&g);
    rig_tick(&g, 61);
    driver_is_silent(&g);
    assert_true(suspect(&g));
    rig_done(&g, rig_action(&g, MS_JOB_DO_DUMP_STACKS)->id);
    assert_true(suspect(&g));
    rig_action(&g, MS_JOB_DO_STOP_DRIVER); /* its process is still there */
    rig_settle(&g);
    assert_int_equal(rig_stage(&g), MS_JOB_STAGE_FAILED);
    assert_int_equal(ms_job_core_view(g.core).cause, MS_JOB_HANG);
    rig_finish(&g);
}

/* Its process is there as far as anybody knows. */
static void
test_a_silent_driver_whose_budget_is_spent_is_ended_with_the_job(void **state)
{
    struct ms_job_role_spec role;
    struct ms_job_spec spec = rig_spec(&role, 2, true);
    struct rig g;

    (void)state;
    spec.driver_budget[MS_JOB_NO_HEARTBEAT] = 0;
    rig_init(&g, &spec);
    rig_run(&g);
    rig_driver_exit(&g, MS_JOB_NO_HEARTBEAT, 0, "it was stopped");
    rig_action(&g, MS_JOB_DO_STOP_DRIVER);
    rig_settle(&g);
    assert_int_equal(rig_stage(&g), MS_JOB_STAGE_FAILED);
    assert_int_equal(ms_job_core_view(g.core).cause, MS_JOB_NO_HEARTBEAT);
    rig_finish(&g);
}

static void test_a_driver_that_works_again_is_left_alone(void **state)
{
    struct ms_job_role_spec role;
    struct ms_job_spec spec = rig_spec(&role, 2, true);
    struct rig g;
    uint64_t id;

    (void)state;
    spec.driver_hang_ns = 60 * MS_NS_PER_S;
    rig_init(&g, &spec);
    rig_run(&g);
    rig_tick(&g, 61);
    driver_is_silent(&g);
    assert_true(suspect(&g));
    id = rig_action(&g, MS_JOB_DO_DUMP_STACKS)->id;
    driver_works(&g);
    rig_done(&g, id);
    assert_true(suspect(&g));
    assert_true(rig_said(&g, "the driver works again"));
    assert_int_equal(ms_job_core_view(g.core).attempt, 1);
    assert_true(ms_job_core_view(g.core).driver_runs);
    rig_finish(&g);
}

static void test_a_driver_that_was_asked_for_twice_is_ended_with_the_job(void **state)
{
    struct ms_job_role_spec role;
    struct ms_job_spec spec = rig_spec(&role, 1, true);
    struct rig g;

    (void)state;
    rig_init(&g, &spec);
    rig_do(&g, MS_JOB_ADMITTED);
    rig_done(&g, rig_action(&g, MS_JOB_DO_RESERVE)->id);
    rig_done(&g, rig_action(&g, MS_JOB_DO_CREATE)->id);
    assert_true(rig_has(&g, MS_JOB_DO_START_DRIVER));
    rig_replay(&g);
    rig_step(&g, &(struct ms_job_event){.what = MS_JOB_RECOVERED});
    assert_true(rig_has(&g, MS_JOB_DO_START_DRIVER)); /* and one may run already */
    rig_driver_exit(&g, MS_JOB_SUCCEEDED, 0, NULL);
    assert_int_equal(rig_stage(&g), MS_JOB_STAGE_STOPPING);
    assert_true(rig_has(&g, MS_JOB_DO_STOP_DRIVER));
    rig_settle(&g);
    assert_int_equal(rig_stage(&g), MS_JOB_STAGE_SUCCEEDED);
    rig_finish(&g);
}

static void test_what_is_replayed_is_the_same(void **state)
{
    struct ms_job_role_spec role;
    struct ms_job_spec spec = rig_spec(&role, 4, true);
    struct ms_buf before = {0}, after = {0};
    struct rig g;

    (void)state;
    rig_init(&g, &spec);
    rig_run(&g);
    rig_exit(&g, 0, 2, MS_JOB_HARDWARE, "Xid 79");
    assert_int_equal(ms_job_core_encode(g.core, &before), 0);
    rig_replay(&g);
    assert_int_equal(ms_job_core_encode(g.core, &after), 0);
    assert_int_equal(before.len, after.len);
    assert_memory_equal(before.data, after.data, before.len);
    ms_buf_finish(&before);
    ms_buf_finish(&after);
    rig_finish(&g);
}

static void test_a_resumed_job_waits_for_its_turn(void **state)
{
    struct ms_job_role_spec role;
    struct ms_job_spec spec = rig_spec(&role, 2, false);
    struct rig g;

    (void)state;
    rig_init(&g, &spec);
    rig_run(&g);
    rig_do(&g, MS_JOB_SUSPEND);
    rig_settle(&g);
    assert_int_equal(rig_stage(&g), MS_JOB_STAGE_SUSPENDED);
    rig_step(&g,
             &(struct ms_job_event){.what = MS_JOB_RESUME, .flags = MS_JOB_REQUEUE});
    assert_int_equal(rig_stage(&g), MS_JOB_STAGE_QUEUED);
    assert_int_equal(rig_done_count(&g), 0);
    rig_do(&g, MS_JOB_SUSPEND); /* meanwhile: it has nothing */
    assert_int_equal(rig_stage(&g), MS_JOB_STAGE_SUSPENDED);
    rig_step(&g,
             &(struct ms_job_event){.what = MS_JOB_RESUME, .flags = MS_JOB_REQUEUE});
    rig_run(&g);
    rig_finish(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_job_from_submit_to_success),
        cmocka_unit_test(test_one_rank_is_replaced_and_the_others_go_on),
        cmocka_unit_test(test_starts_that_come_to_nothing_are_no_restarts),
        cmocka_unit_test(test_a_role_restarts_together),
        cmocka_unit_test(test_a_rank_that_was_killed_for_memory_asks_for_more),
        cmocka_unit_test(test_a_role_whose_memory_was_spent_restarts_with_more),
        cmocka_unit_test(test_the_job_restarts_for_a_role),
        cmocka_unit_test(test_the_job_restarts_without_limit),
        cmocka_unit_test(test_an_application_error_stops_early_with_the_traceback),
        cmocka_unit_test(test_the_driver_restarts_from_its_checkpoint),
        cmocka_unit_test(
            test_a_role_that_succeeded_before_its_start_failed_has_not_failed),
        cmocka_unit_test(test_a_node_that_answers_late_is_no_hang),
        cmocka_unit_test(test_a_driver_that_hangs_is_started_again),
        cmocka_unit_test(
            test_a_hung_driver_whose_budget_is_spent_is_ended_with_the_job),
        cmocka_unit_test(
            test_a_silent_driver_whose_budget_is_spent_is_ended_with_the_job),
        cmocka_unit_test(test_a_driver_that_works_again_is_left_alone),
        cmocka_unit_test(test_a_driver_that_was_asked_for_twice_is_ended_with_the_job),
        cmocka_unit_test(test_what_is_replayed_is_the_same),
        cmocka_unit_test(test_a_resumed_job_waits_for_its_turn),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
