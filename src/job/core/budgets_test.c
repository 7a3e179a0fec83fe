/* What a failure leads to, by name: again, together, from the start, the end; and when. */
#include "job/core/test_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

/* Running, with so many restarts of each kind for hardware errors. */
static void start(struct rig *g,
                  struct ms_job_spec *spec,
                  uint16_t budget,
                  uint16_t roles,
                  uint16_t jobs)
{
    spec->roles[0].budget[MS_JOB_HARDWARE] = budget;
    spec->role_restarts_max = roles;
    spec->job_restarts_max = jobs;
    rig_init(g, spec);
    rig_run(g);
}

static void exit_on(struct rig *g, uint32_t rank, uint8_t cause, const char *node)
{
    struct ms_job_report p = {.rank = rank,
                              .incarnation =
                                  ms_job_core_slot(g->core, 0, rank).incarnation,
                              .cause = cause,
                              .node = node};

    rig_step(g,
             &(struct ms_job_event){
                 .what = MS_JOB_EXITED, .reports = &p, .report_count = 1});
}

static void no_room(struct rig *g, uint32_t what)
{
    rig_not_done(g, rig_action(g, what)->id, MS_JOB_NO_ROOM, "all machines are taken");
}

static double wake_s(const struct rig *g)
{
    return (double)(ms_job_core_wake_ns(g->core) - g->now_ns) / (double)MS_NS_PER_S;
}

/* ---- what restarts ----------------------------------------------------------------- */

static void test_a_rank_whose_budget_is_spent_restarts_its_role(void **state)
{
    struct ms_job_role_spec role;
    struct ms_job_spec spec = rig_spec(&role, 4, true);
    struct rig g;

    (void)state;
    start(&g, &spec, 1, 1, 0);
    rig_exit(&g, 0, 2, MS_JOB_HARDWARE, NULL);
    assert_int_equal(rig_action(&g, MS_JOB_DO_REPLACE)->rank_count, 1);
    rig_settle(&g);
    rig_exit(&g, 0, 3, MS_JOB_HARDWARE, NULL); /* another one has its own budget */
    assert_int_equal(rig_action(&g, MS_JOB_DO_REPLACE)->ranks[0].rank, 3);
    rig_settle(&g);
    rig_exit(&g, 0, 2, MS_JOB_HARDWARE, NULL);
    assert_int_equal(rig_action(&g, MS_JOB_DO_RESTART)->count, 4);
    assert_true(rig_said(&g,
                         "actor/2 has spent its budget for hardware error: role actor "
                         "restarts (1 of 1)"));
    rig_settle(&g);
    assert_int_equal(rig_stage(&g), MS_JOB_STAGE_RUNNING);
    for (uint32_t i = 0; i < 4; i++) /* they begin anew */
        assert_int_equal(ms_job_core_slot(g.core, 0, i).spent[MS_JOB_HARDWARE], 0);
    assert_int_equal(ms_job_core_view(g.core).restarts, 0);
    rig_finish(&g);
}

static void
test_a_role_whose_budget_is_spent_restarts_the_job_and_then_ends_it(void **state)
{
    struct ms_job_role_spec role;
    struct ms_job_spec spec = rig_spec(&role, 4, true);
    struct rig g;

    (void)state;
    role.restart = MS_JOB_RESTART_ROLE;
    start(&g, &spec, 1, 0, 1);
    rig_exit(&g, 0, 0, MS_JOB_HARDWARE, NULL);
    rig_action(&g, MS_JOB_DO_RESTART);
    rig_settle(&g);
    rig_exit(&g, 0, 1, MS_JOB_HARDWARE, NULL);
    assert_int_equal(rig_stage(&g), MS_JOB_STAGE_RESTARTING);
    assert_true(
        rig_said(&g, "role actor has spent its budget: the job restarts (1 of 1)"));
    rig_settle(&g);
    assert_int_equal(rig_stage(&g), MS_JOB_STAGE_RUNNING);
    rig_exit(&g, 0, 2, MS_JOB_HARDWARE, "Xid 79");
    assert_int_equal(rig_stage(&g), MS_JOB_STAGE_STOPPING);
    rig_settle(&g);
    assert_int_equal(rig_stage(&g), MS_JOB_STAGE_FAILED);
    assert_int_equal(ms_job_core_view(g.core).cause, MS_JOB_HARDWARE);
    assert_string_equal(ms_job_core_view(g.core).text,
                        "actor/2: hardware error: the budget of 1 restarts for it is "
                        "spent: Xid 79");
    rig_finish(&g);
}

static void test_a_rank_goes_up_by_its_role_and_the_job_to_the_end(void **state)
{
    struct ms_job_role_spec role;
    struct ms_job_spec spec = rig_spec(&role, 4, false);
    struct rig g;

    (void)state;
    start(&g, &spec, 0, 1, 1);
    rig_exit(&g, 0, 1, MS_JOB_HARDWARE, NULL);
    assert_int_equal(rig_action(&g, MS_JOB_DO_RESTART)->count, 4);
    rig_settle(&g);
    rig_exit(&g, 0, 1, MS_JOB_HARDWARE, NULL);
    assert_int_equal(rig_stage(&g), MS_JOB_STAGE_RESTARTING);
    rig_settle(&g);
    assert_int_equal(rig_stage(&g), MS_JOB_STAGE_RUNNING);
    rig_exit(&g, 0, 1, MS_JOB_HARDWARE, NULL);
    rig_settle(&g);
    assert_int_equal(rig_stage(&g), MS_JOB_STAGE_FAILED);
    rig_finish(&g);
}

/* The same would happen there. */
static void test_an_application_error_goes_no_further_than_its_budget(void **state)
{
    struct ms_job_role_spec role;
    struct ms_job_spec spec = rig_spec(&role, 2, false);
    struct rig g;

    (void)state;
    role.budget[MS_JOB_APPLICATION] = 1;
    spec.role_restarts_max = spec.job_restarts_max = 9;
    rig_init(&g, &spec);
    rig_run(&g);
    rig_exit(&g, 0, 0, MS_JOB_APPLICATION, "KeyError: a");
    rig_settle(&g);
    rig_exit(&g, 0, 0, MS_JOB_APPLICATION, "ValueError: b");
    rig_settle(&g);
    assert_int_equal(rig_stage(&g), MS_JOB_STAGE_FAILED);
    assert_int_equal(ms_job_core_view(g.core).restarts, 0);
    rig_finish(&g);
}

static void test_a_whole_role_that_is_not_critical_is_given_up(void **state)
{
    struct ms_job_role_spec roles[2], one;
    struct ms_job_spec spec = rig_spec(&roles[0], 2, true);
    struct rig g;

    (void)state;
    rig_spec(&one, 3, false);
    roles[1] = one;
    memcpy(roles[1].name, "judge", 6);
    roles[1].critical = false;
    roles[1].restart = MS_JOB_RESTART_ROLE;
    roles[1].budget[MS_JOB_PREEMPTED] = 0;
    spec.role_count = 2;
    rig_init(&g, &spec);
    rig_run(&g);
    rig_exit(&g, 1, 2, MS_JOB_PREEMPTED, NULL);
    assert_true(rig_said(&g, "role judge is given up"));
    assert_int_equal(rig_action(&g, MS_JOB_DO_DESTROY)->role,
                     1); /* its other ranks end */
    rig_settle(&g);
    assert_int_equal(ms_job_core_role(g.core, 1).counts[MS_JOB_SLOT_ABSENT], 3);
    assert_int_equal(ms_job_core_role(g.core, 0).counts[MS_JOB_SLOT_RUNNING], 2);
    assert_int_equal(rig_stage(&g), MS_JOB_STAGE_RUNNING);
    rig_tick(&g, 3600);
    assert_int_equal(rig_done_count(&g), 0); /* and nothing of it is tried again */
    rig_driver_exit(&g, MS_JOB_SUCCEEDED, 0, NULL);
    rig_settle(&g);
    assert_int_equal(rig_stage(&g), MS_JOB_STAGE_SUCCEEDED);
    rig_finish(&g);
}

/* ---- nodes ------------------------------------------------------------------------- */

static void strike(struct rig *g, double after_s)
{
    rig_tick(g, after_s);
    exit_on(g, 0, MS_JOB_START_FAILED, "n1");
}

static void test_a_node_is_avoided_after_three_strikes(void **state)
{
    struct ms_job_role_spec role;
    struct ms_job_spec spec = rig_spec(&role, 2, true);
    struct rig g;

    (void)state;
    role.budget[MS_JOB_START_FAILED] = MS_JOB_UNLIMITED;
    rig_init(&g, &spec);
    rig_run(&g);
    for (int i = 0; i < 2; i++) {
        strike(&g, 700); /* stable before: it starts again at once */
        assert_false(rig_has(&g, MS_JOB_DO_AVOID));
        rig_settle(&g);
    }
    assert_false(ms_job_core_avoids(g.core, "n1"));
    strike(&g, 700);
    assert_string_equal(rig_action(&g, MS_JOB_DO_AVOID)->node, "n1");
    assert_true(ms_job_core_avoids(g.core, "n1"));
    rig_settle(&g);
    assert_int_equal(rig_stage(&g), MS_JOB_STAGE_RUNNING);
    rig_finish(&g);
}

static void test_strikes_are_forgotten_after_an_hour(void **state)
{
    struct ms_job_role_spec role;
    struct ms_job_spec spec = rig_spec(&role, 2, true);
    struct rig g;

    (void)state;
    role.budget[MS_JOB_START_FAILED] = MS_JOB_UNLIMITED;
    rig_init(&g, &spec);
    rig_run(&g);
    for (int i = 0; i < 6; i++) {
        strike(&g, 3601);
        assert_false(ms_job_core_avoids(g.core, "n1"));
        rig_settle(&g);
    }
    rig_finish(&g);
}

/* ---- room -------------------------------------------------------------------------- */

/* Ranks from `left` on end, and there is no room for them until `end_s` is over. */
static void run_without_room(struct rig *g, uint32_t left, double end_s)
{
    int64_t end_ns = g->now_ns + (int64_t)(end_s * (double)MS_NS_PER_S);

    for (uint32_t rank = left; rank < 4; rank++) {
        rig_exit(g, 0, rank, MS_JOB_PREEMPTED, NULL);
        if (rig_has(g, MS_JOB_DO_REPLACE))
            no_room(g, MS_JOB_DO_REPLACE);
    }
    while (g->now_ns < end_ns && rig_stage(g) == MS_JOB_STAGE_RUNNING) {
        int64_t at_ns = ms_job_core_wake_ns(g->core);

        rig_tick(g,
                 (double)((at_ns < end_ns ? at_ns : end_ns) - g->now_ns) /
                     (double)MS_NS_PER_S);
        if (rig_has(g, MS_JOB_DO_REPLACE))
            no_room(g, MS_JOB_DO_REPLACE);
    }
}

static void test_a_role_below_min_without_room_fails_in_time(void **state)
{
    struct ms_job_role_spec role;
    struct ms_job_spec spec = rig_spec(&role, 4, false);
    struct rig g;

    (void)state;
    role.min = 2;
    spec.pending_timeout_ns = 900 * MS_NS_PER_S;
    rig_init(&g, &spec);
    rig_run(&g);
    run_without_room(&g, 1, 899);
    assert_int_equal(rig_stage(&g), MS_JOB_STAGE_RUNNING);
    rig_tick(&g, 1);
    rig_settle(&g);
    assert_int_equal(rig_stage(&g), MS_JOB_STAGE_FAILED);
    assert_int_equal(ms_job_core_view(g.core).cause, MS_JOB_NO_CAPACITY);
    assert_true(
        rig_said(&g,
                 "role actor had fewer than 2 processes for 900 s: all machines "
                 "are taken"));
    rig_finish(&g);
}

static void test_a_role_at_min_without_room_goes_on(void **state)
{
    struct ms_job_role_spec role;
    struct ms_job_spec spec = rig_spec(&role, 4, false);
    struct rig g;

    (void)state;
    role.min = 2;
    spec.pending_timeout_ns = 900 * MS_NS_PER_S;
    rig_init(&g, &spec);
    rig_run(&g);
    run_without_room(&g, 2, 7200);
    assert_int_equal(rig_stage(&g), MS_JOB_STAGE_RUNNING);
    assert_int_equal(ms_job_core_role(g.core, 0).counts[MS_JOB_SLOT_RUNNING], 2);
    rig_do(&g, MS_JOB_ROOM);
    assert_int_equal(rig_action(&g, MS_JOB_DO_REPLACE)->rank_count, 2);
    for (uint32_t rank = 2; rank < 4; rank++) /* what was not done cost nothing */
        assert_int_equal(ms_job_core_slot(g.core, 0, rank).spent[MS_JOB_PREEMPTED], 1);
    rig_finish(&g);
}

static void test_a_job_without_machines_fails_in_time(void **state)
{
    struct ms_job_role_spec role;
    struct ms_job_spec spec = rig_spec(&role, 4, false);
    struct rig g;

    (void)state;
    spec.pending_timeout_ns = 900 * MS_NS_PER_S;
    rig_init(&g, &spec);
    rig_do(&g, MS_JOB_ADMITTED);
    no_room(&g, MS_JOB_DO_RESERVE);
    for (int i = 0; i < 14; i++) {
        rig_tick(&g, 60);
        no_room(&g, MS_JOB_DO_RESERVE);
    }
    rig_tick(&g, 59.5);
    assert_int_equal(rig_stage(&g), MS_JOB_STAGE_STARTING);
    rig_tick(&g, 0.5);
    rig_settle(&g);
    assert_int_equal(rig_stage(&g), MS_JOB_STAGE_FAILED);
    assert_true(rig_said(&g, "no machines for 900 s: all machines are taken"));
    rig_finish(&g);
}

/* ---- back-off ---------------------------------------------------------------------- */

static const double waits_s[] = {
    0, 1, 2, 4, 8, 16, 32, 60, 60}; /* quick ends, one by one */

static void check_waits(struct rig *g, uint32_t what, void (*end)(struct rig *g))
{
    for (size_t i = 0; i < sizeof waits_s / sizeof *waits_s; i++) {
        end(g);
        if (waits_s[i] > 0) {
            assert_false(rig_has(g, what));
            assert_true(wake_s(g) == waits_s[i]);
            rig_tick(g, waits_s[i] - 0.001);
            assert_false(rig_has(g, what));
            rig_tick(g, 0.001);
        }
        rig_action(g, what);
        rig_settle(g);
    }
    rig_tick(g, 600); /* it was stable */
    end(g);
    rig_action(g, what);
}

static void end_rank(struct rig *g)
{
    rig_exit(g, 0, 1, MS_JOB_PREEMPTED, NULL);
}

static void end_driver(struct rig *g)
{
    rig_driver_exit(g, MS_JOB_PREEMPTED, 9, NULL);
}

static void test_a_rank_waits_twice_as_long_each_time_up_to_a_minute(void **state)
{
    struct ms_job_role_spec role;
    struct ms_job_spec spec = rig_spec(&role, 2, false);
    struct rig g;

    (void)state;
    rig_init(&g, &spec);
    rig_run(&g);
    check_waits(&g, MS_JOB_DO_REPLACE, end_rank);
    rig_finish(&g);
}

static void test_a_role_waits_twice_as_long_each_time_up_to_a_minute(void **state)
{
    struct ms_job_role_spec role;
    struct ms_job_spec spec = rig_spec(&role, 2, false);
    struct rig g;

    (void)state;
    role.restart = MS_JOB_RESTART_ROLE;
    rig_init(&g, &spec);
    rig_run(&g);
    check_waits(&g, MS_JOB_DO_RESTART, end_rank);
    rig_finish(&g);
}

static void test_a_driver_waits_twice_as_long_each_time_up_to_a_minute(void **state)
{
    struct ms_job_role_spec role;
    struct ms_job_spec spec = rig_spec(&role, 2, true);
    struct rig g;

    (void)state;
    rig_init(&g, &spec);
    rig_run(&g);
    check_waits(&g, MS_JOB_DO_START_DRIVER, end_driver);
    rig_finish(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_rank_whose_budget_is_spent_restarts_its_role),
        cmocka_unit_test(
            test_a_role_whose_budget_is_spent_restarts_the_job_and_then_ends_it),
        cmocka_unit_test(test_a_rank_goes_up_by_its_role_and_the_job_to_the_end),
        cmocka_unit_test(test_an_application_error_goes_no_further_than_its_budget),
        cmocka_unit_test(test_a_whole_role_that_is_not_critical_is_given_up),
        cmocka_unit_test(test_a_node_is_avoided_after_three_strikes),
        cmocka_unit_test(test_strikes_are_forgotten_after_an_hour),
        cmocka_unit_test(test_a_role_below_min_without_room_fails_in_time),
        cmocka_unit_test(test_a_role_at_min_without_room_goes_on),
        cmocka_unit_test(test_a_job_without_machines_fails_in_time),
        cmocka_unit_test(test_a_rank_waits_twice_as_long_each_time_up_to_a_minute),
        cmocka_unit_test(test_a_role_waits_twice_as_long_each_time_up_to_a_minute),
        cmocka_unit_test(test_a_driver_waits_twice_as_long_each_time_up_to_a_minute),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
