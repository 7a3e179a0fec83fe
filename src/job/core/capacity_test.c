/* capacity_test.c - machines, the check of nodes, and roles of another size */
#include "job/core/test_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void rig_checked(struct rig *g, const char *bad, uint8_t cause)
{
    struct ms_job_report p = {.role = MS_JOB_NO_ROLE, .node = bad, .cause = cause};

    rig_step(g,
             &(struct ms_job_event){.what = MS_JOB_DONE,
                                    .id = rig_action(g, MS_JOB_DO_CHECK_NODES)->id,
                                    .reports = &p,
                                    .report_count = bad != NULL,
                                    .text = "node check: 2 nodes"});
}

static void test_nodes_are_checked_before_the_job(void **state)
{
    struct ms_job_role_spec role;
    struct ms_job_spec spec = rig_spec(&role, 4, false);
    struct rig g;

    (void)state;
    spec.check_nodes = true;
    rig_init(&g, &spec);
    rig_do(&g, MS_JOB_ADMITTED);
    rig_done(&g, rig_action(&g, MS_JOB_DO_RESERVE)->id);
    assert_false(rig_has(&g, MS_JOB_DO_CREATE));
    rig_checked(&g, "n1", MS_JOB_CHECK_FAILED);
    assert_true(rig_said(&g, "1 node failed the check: n1"));
    assert_true(ms_job_core_avoids(g.core, "n1"));
    rig_done(&g, rig_action(&g, MS_JOB_DO_RELEASE)->id);
    rig_done(&g, rig_action(&g, MS_JOB_DO_RESERVE)->id);
    rig_checked(&g, NULL, 0);
    rig_settle(&g);
    assert_int_equal(rig_stage(&g), MS_JOB_STAGE_RUNNING);
    rig_finish(&g);
}

static void test_nodes_that_always_fail_the_check_end_the_job(void **state)
{
    struct ms_job_role_spec role;
    struct ms_job_spec spec = rig_spec(&role, 4, false);
    static const char *const bad[] = {"n1", "n2"};
    struct rig g;

    (void)state;
    spec.check_nodes = true;
    assert_int_equal(spec.driver_budget[MS_JOB_CHECK_FAILED],
                     3); /* if nothing is said */
    spec.driver_budget[MS_JOB_CHECK_FAILED] = 1;
    rig_init(&g, &spec);
    rig_do(&g, MS_JOB_ADMITTED);
    for (size_t i = 0; i < 2; i++) {
        if (i > 0)
            rig_done(&g, rig_action(&g, MS_JOB_DO_RELEASE)->id);
        rig_done(&g, rig_action(&g, MS_JOB_DO_RESERVE)->id);
        rig_checked(&g, bad[i], MS_JOB_CHECK_FAILED);
    }
    rig_settle(&g);
    assert_int_equal(rig_stage(&g), MS_JOB_STAGE_FAILED);
    assert_true(rig_said(&g, "nodes failed the check 2 times; the last were n2"));
    rig_finish(&g);
}

/* They do not count as checks that found something, nor the other way round. */
static void test_checks_that_cannot_be_made_are_counted_by_themselves(void **state)
{
    struct ms_job_role_spec role;
    struct ms_job_spec spec = rig_spec(&role, 4, false);
    static const char *const bad[] = {"n1", "n2"};
    struct rig g;

    (void)state;
    spec.check_nodes = true;
    spec.driver_budget[MS_JOB_CHECK_FAILED] = 5;
    rig_init(&g, &spec);
    rig_do(&g, MS_JOB_ADMITTED);
    rig_done(&g, rig_action(&g, MS_JOB_DO_RESERVE)->id);
    for (size_t i = 0; i < 2; i++) {
        rig_checked(&g, bad[i], MS_JOB_CHECK_FAILED);
        rig_done(&g, rig_action(&g, MS_JOB_DO_RELEASE)->id);
        rig_done(&g, rig_action(&g, MS_JOB_DO_RESERVE)->id);
    }
    for (size_t i = 0; i < 2; i++) { /* two of three */
        rig_not_done(
            &g, rig_action(&g, MS_JOB_DO_CHECK_NODES)->id, MS_JOB_FAILED, "no");
        rig_tick(&g, 60);
    }
    rig_checked(&g, NULL, 0);
    rig_settle(&g);
    assert_int_equal(rig_stage(&g), MS_JOB_STAGE_RUNNING);
    rig_finish(&g);
}

static void test_nodes_are_checked_again_when_a_machine_may_be_the_reason(void **state)
{
    struct ms_job_role_spec role;
    struct ms_job_spec spec = rig_spec(&role, 4, false);
    struct rig g;

    (void)state;
    spec.check_nodes = true;
    rig_init(&g, &spec);
    rig_run(&g);
    rig_exit(&g, 0, 1, MS_JOB_APPLICATION, "ValueError");
    assert_false(rig_has(&g, MS_JOB_DO_CHECK_NODES));
    rig_done(&g, rig_action(&g, MS_JOB_DO_REPLACE)->id);
    rig_exit(&g, 0, 2, MS_JOB_NODE_LOST, NULL);
    assert_false(rig_has(&g, MS_JOB_DO_REPLACE));
    rig_checked(&g, "n1", MS_JOB_CHECK_FAILED);
    assert_false(rig_has(&g, MS_JOB_DO_RELEASE)); /* the others run there */
    assert_true(ms_job_core_avoids(g.core, "n1"));
    rig_settle(&g);
    rig_tick(&g, 60);
    rig_settle(&g);
    assert_int_equal(ms_job_core_role(g.core, 0).counts[MS_JOB_SLOT_RUNNING], 4);
    rig_finish(&g);
}

static void test_a_check_that_cannot_be_made_ends_nothing_that_runs(void **state)
{
    struct ms_job_role_spec role;
    struct ms_job_spec spec = rig_spec(&role, 4, false);
    struct rig g;

    (void)state;
    spec.check_nodes = true;
    rig_init(&g, &spec);
    rig_run(&g);
    rig_exit(&g, 0, 2, MS_JOB_HANG, NULL);
    rig_not_done(&g, rig_action(&g, MS_JOB_DO_CHECK_NODES)->id, MS_JOB_REFUSED, "no");
    assert_true(rig_said(&g, "the nodes are not checked: no"));
    rig_settle(&g);
    assert_int_equal(rig_stage(&g), MS_JOB_STAGE_RUNNING);
    rig_finish(&g);
}

static void test_a_slow_node_is_said_and_used(void **state)
{
    struct ms_job_role_spec role;
    struct ms_job_spec spec = rig_spec(&role, 4, false);
    struct rig g;

    (void)state;
    spec.check_nodes = true;
    rig_init(&g, &spec);
    rig_do(&g, MS_JOB_ADMITTED);
    rig_done(&g, rig_action(&g, MS_JOB_DO_RESERVE)->id);
    rig_checked(&g, "n1", MS_JOB_CAUSE_NONE);
    assert_true(rig_said(&g, "node n1 is slow"));
    assert_false(ms_job_core_avoids(g.core, "n1"));
    assert_true(rig_has(&g, MS_JOB_DO_CREATE));
    rig_finish(&g);
}

/* It does not wait for the minute to be over. */
static void test_a_role_that_wants_more_takes_the_room_that_comes(void **state)
{
    struct ms_job_role_spec role;
    struct ms_job_spec spec = rig_spec(&role, 4, false);
    struct rig g;

    (void)state;
    role.min = 2;
    rig_init(&g, &spec);
    rig_do(&g, MS_JOB_ADMITTED);
    rig_done(&g, rig_action(&g, MS_JOB_DO_RESERVE)->id);
    rig_step(&g,
             &(struct ms_job_event){.what = MS_JOB_NOT_DONE,
                                    .id = rig_action(&g, MS_JOB_DO_CREATE)->id,
                                    .failure = MS_JOB_NO_ROOM,
                                    .fits = 3});
    assert_int_equal(rig_action(&g, MS_JOB_DO_CREATE)->count, 3);
    rig_done(&g, rig_action(&g, MS_JOB_DO_CREATE)->id);
    assert_int_equal(ms_job_core_slot(g.core, 0, 0).restarts, 0);
    rig_tick(&g, 5);
    assert_false(rig_has(&g, MS_JOB_DO_RESIZE));
    rig_do(&g, MS_JOB_ROOM);
    assert_int_equal(rig_action(&g, MS_JOB_DO_RESIZE)->count, 4);
    rig_done(&g, rig_action(&g, MS_JOB_DO_RESIZE)->id);
    assert_int_equal(ms_job_core_role(g.core, 0).counts[MS_JOB_SLOT_RUNNING], 4);
    rig_do(&g, MS_JOB_ROOM);
    assert_int_equal(rig_done_count(&g), 0);
    rig_finish(&g);
}

/* The answer to the first was lost: the last ranks may be gone. */
static void test_a_shrink_that_may_be_done_is_not_given_up(void **state)
{
    struct ms_job_role_spec role;
    struct ms_job_spec spec = rig_spec(&role, 4, false);
    struct rig g;

    (void)state;
    role.restart = MS_JOB_RESTART_RANK;
    role.min = 1;
    rig_init(&g, &spec);
    rig_run(&g);
    rig_step(&g, &(struct ms_job_event){.what = MS_JOB_SCALE, .count = 2});
    rig_done(&g, rig_action(&g, MS_JOB_DO_DRAIN)->id);
    rig_not_done(&g, rig_action(&g, MS_JOB_DO_RESIZE)->id, MS_JOB_NOT_ASKED, "cut");
    for (int i = 0; i < 10; i++) {
        rig_tick(&g, 60);
        rig_not_done(&g, rig_action(&g, MS_JOB_DO_RESIZE)->id, MS_JOB_REFUSED, "busy");
    }
    rig_tick(&g, 60);
    assert_int_equal(rig_action(&g, MS_JOB_DO_RESIZE)->count, 2);
    rig_done(&g, rig_action(&g, MS_JOB_DO_RESIZE)->id);
    assert_int_equal(ms_job_core_role(g.core, 0).size, 2);
    assert_int_equal(ms_job_core_role(g.core, 0).counts[MS_JOB_SLOT_RUNNING], 2);
    rig_finish(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nodes_are_checked_before_the_job),
        cmocka_unit_test(test_nodes_that_always_fail_the_check_end_the_job),
        cmocka_unit_test(test_checks_that_cannot_be_made_are_counted_by_themselves),
        cmocka_unit_test(test_nodes_are_checked_again_when_a_machine_may_be_the_reason),
        cmocka_unit_test(test_a_check_that_cannot_be_made_ends_nothing_that_runs),
        cmocka_unit_test(test_a_slow_node_is_said_and_used),
        cmocka_unit_test(test_a_role_that_wants_more_takes_the_room_that_comes),
        cmocka_unit_test(test_a_shrink_that_may_be_done_is_not_given_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
