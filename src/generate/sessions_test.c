/* sessions_test.c - conversations that are finished, and those that nobody finishes */
#include "generate/sessions.h"

#include "base/cleanup.h"
#include "generate/scheduler.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#define TTL_NS (10 * MS_NS_PER_S)
#define S(n)   ((int64_t)(n)*MS_NS_PER_S)

static void cleanup(struct ms_gen_sessions **s)
{
    ms_gen_sessions_destroy(*s);
}
#define SESSIONS(name)                                                                 \
    MS_CLEANUP(cleanup) struct ms_gen_sessions *name = ms_gen_sessions_create(TTL_NS)

static uint64_t opened(struct ms_gen_sessions *s, uint64_t key, int64_t now_ns)
{
    uint64_t id = 0;

    assert_int_equal(ms_gen_sessions_open(s, key, 0, now_ns, &id), 0);
    assert_int_not_equal(id, 0);
    return id;
}

static void test_turns_follow_their_prefix(void **state)
{
    SESSIONS(s);
    struct ms_gen_turn turn;
    uint64_t id = opened(s, 7, 0), other = opened(s, 8, 0);

    (void)state;
    assert_int_equal(ms_gen_sessions_look(s, id, 0, &turn), 0);
    assert_int_equal(turn.key, 7);
    assert_int_equal(turn.turn, 0);
    assert_int_equal(turn.replica, MS_NOWHERE);
    assert_int_equal(ms_gen_sessions_begin(s, id), 0);
    assert_int_equal(ms_gen_sessions_end(s, id, 3, 5, 9, S(1)), 0);
    assert_int_equal(ms_gen_sessions_look(s, id, S(1), &turn), 0);
    assert_int_equal(turn.turn, 1);
    assert_int_equal(turn.replica, 3);
    assert_int_equal(turn.epoch, 5);
    assert_int_equal(turn.weights, 9);
    assert_int_equal(ms_gen_sessions_begin(s, id), 0);
    assert_int_equal(ms_gen_sessions_end(s, id, MS_NOWHERE, 0, 0, S(2)),
                     0); /* dropped */
    assert_int_equal(ms_gen_sessions_look(s, id, S(2), &turn), 0);
    assert_int_equal(turn.turn, 2);
    assert_int_equal(turn.replica, 3);
    assert_int_equal(ms_gen_sessions_end(s, id, 1, 1, 1, S(2)),
                     -ENOENT); /* none is open */
    assert_int_equal(ms_gen_sessions_look(s, other, S(2), &turn), 0);
    assert_int_equal(turn.turn, 0);
}

static void test_what_is_finished_is_forgotten(void **state)
{
    SESSIONS(s);
    struct ms_gen_turn turn;
    uint64_t id = opened(s, 7, 0);

    (void)state;
    assert_int_equal(ms_gen_sessions_begin(s, id), 0);
    assert_int_equal(ms_gen_sessions_finish(s, id), 0);
    assert_int_equal(ms_gen_sessions_count(s), 0);
    assert_int_equal(ms_gen_sessions_finish(s, id), -ENOENT);
    assert_int_equal(ms_gen_sessions_look(s, id, 0, &turn), -ENOENT);
    assert_int_equal(ms_gen_sessions_begin(s, id), -ENOENT);
    assert_int_equal(ms_gen_sessions_end(s, id, 1, 1, 1, 0),
                     -ENOENT); /* its turn ends late */
    assert_int_equal(ms_gen_sessions_expire(s, 0), MS_NEVER);
}

static void test_what_nobody_finishes_is_forgotten_in_time(void **state)
{
    SESSIONS(s);
    struct ms_gen_turn turn;
    uint64_t idle = opened(s, 1, 0), busy = opened(s, 2, 0), used = opened(s, 3, 0);

    (void)state;
    assert_int_equal(ms_gen_sessions_begin(s, busy), 0);
    assert_int_equal(ms_gen_sessions_begin(s, busy), 0); /* two turns at once */
    assert_int_equal(ms_gen_sessions_begin(s, used), 0);
    assert_int_equal(ms_gen_sessions_end(s, used, 0, 1, 0, S(4)), 0);
    assert_int_equal(ms_gen_sessions_expire(s, S(10) - 1), S(10));
    assert_int_equal(ms_gen_sessions_count(s), 3);
    assert_int_equal(ms_gen_sessions_expire(s, S(10)), S(14));
    assert_int_equal(ms_gen_sessions_look(s, idle, S(10), &turn), -ENOENT);
    assert_int_equal(ms_gen_sessions_look(s, used, S(14), &turn), -ENOENT);
    assert_int_equal(ms_gen_sessions_expire(s, S(1000)),
                     MS_NEVER); /* a turn is under way */
    assert_int_equal(ms_gen_sessions_end(s, busy, 0, 1, 0, S(1000)), 0);
    assert_int_equal(ms_gen_sessions_expire(s, S(2000)), MS_NEVER); /* and another */
    assert_int_equal(ms_gen_sessions_end(s, busy, 0, 1, 0, S(2000)), 0);
    assert_int_equal(ms_gen_sessions_expire(s, S(2000)), S(2010));
    assert_int_equal(ms_gen_sessions_expire(s, S(2010)), MS_NEVER);
    assert_int_equal(ms_gen_sessions_count(s), 0);
}

static void test_the_time_to_live_by_itself(void **state)
{
    MS_CLEANUP(cleanup) struct ms_gen_sessions *s = ms_gen_sessions_create(0);
    uint64_t id;

    (void)state;
    assert_int_equal(ms_gen_sessions_open(s, 1, 5, S(1), &id), 0);
    assert_int_equal(ms_gen_sessions_expire(s, S(2)), S(1) + MS_GEN_SESSION_TTL_NS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_turns_follow_their_prefix),
        cmocka_unit_test(test_what_is_finished_is_forgotten),
        cmocka_unit_test(test_what_nobody_finishes_is_forgotten_in_time),
        cmocka_unit_test(test_the_time_to_live_by_itself),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
