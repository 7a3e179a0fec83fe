/* shards_test.c - heads that are killed, and journals that cannot be written, between any two
 * steps of taking shards and ending them: what was answered is so, and nothing is done twice
 *
 * A step is: the request arrives, it is in the journal, the answer arrives. A head that is
 * killed before the second has never heard of it, as far as the next one knows; one that is
 * killed before the third is asked the same again, under the same number.
 */
#include "base/cleanup.h"
#include "head/drivers/uplink.h"
#include "head/head_impl.h"
#include "head/ops/op.h"
#include "head/test_serve.h"

#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>

static struct test_events told[2];
static struct ms_head *drivers[2];

static int setup(void **state)
{
    if (serve_setup(state) < 0)
        return -1;
    for (size_t i = 0; i < 2; i++) {
        events_init(&told[i]);
        drivers[i] = serve_join(&told[i]);
    }
    return 0;
}

static int teardown(void **state)
{
    for (size_t i = 0; i < 2; i++)
        ms_head_stop(MS_TAKE(drivers[i]), 0);
    return serve_teardown(state);
}

/* ---- asking ------------------------------------------------------------------------ */

static char queue[] = "q";

static void open_queue(uint64_t size)
{
    Muster__OpenShards m = MUSTER__OPEN_SHARDS__INIT;

    m.name = queue;
    m.size = size;
    m.shard = m.epochs = 1;
    m.failures_max = m.deaths_max = 3;
    m.detached = true;
    ops_expect(
        ops_request(drivers[0], MUSTER__DRIVER_TO_HEAD__BODY_OPEN_SHARDS, &m), 0, NULL);
}

static struct ms_head_op *ask_take(struct ms_head *h, uint32_t count, int64_t wait_ns)
{
    Muster__TakeShards m = MUSTER__TAKE_SHARDS__INIT;

    m.name = queue;
    m.count = count;
    m.wait_ns = (uint64_t)wait_ns;
    return ops_request(h, MUSTER__DRIVER_TO_HEAD__BODY_TAKE_SHARDS, &m);
}

static struct ms_head_op *
ask_end(struct ms_head *h, uint64_t lease, Muster__ShardEnd how, int64_t wait_ns)
{
    Muster__EndShard m = MUSTER__END_SHARD__INIT;

    m.name = queue;
    m.lease = lease;
    m.how = how;
    m.reason = (char[]){"a reason"};
    m.wait_ns = (uint64_t)wait_ns;
    return ops_request(h, MUSTER__DRIVER_TO_HEAD__BODY_END_SHARD, &m);
}

static const Muster__ShardsTaken *taken(struct ms_head_op *op)
{
    return (const Muster__ShardsTaken *)ops_message(op);
}

static const Muster__ShardsStatus *status(struct ms_head_op *op)
{
    return (const Muster__ShardsStatus *)ops_message(op);
}

struct counts {
    uint64_t done, doing;
};

static struct counts count(void)
{
    Muster__AskShards m = MUSTER__ASK_SHARDS__INIT;
    struct ms_head_op *op;
    struct counts c;

    m.name = queue;
    op = ops_request(drivers[1], MUSTER__DRIVER_TO_HEAD__BODY_SHARDS, &m);
    c = (struct counts){status(op)->done, status(op)->doing};
    ms_head_op_unref(op);
    return c;
}

/* ---- kills ------------------------------------------------------------------------- */

enum moment {
    NEVER,
    BEFORE, /* the request arrives */
    LATE,   /* it is in the journal, and the answer is lost */
    MOMENTS
};

static void restart(void)
{
    ms_head_crash(serve_head);
    serve_begin(serve_address);
}

static int unanswer(struct ms_head_op *op)
{
    ms_uplink_unanswer(op->head->uplink);
    ms_head_op_succeed(op, NULL);
    return 0;
}

/* The answer to the last request of this driver has not arrived: it asks again. */
static void lose_answer(struct ms_head *h)
{
    assert_int_equal(ms_head_op_call(h, unanswer, ms_now_ns() + OPS_DEADLINE_NS, NULL),
                     0);
}

static uint64_t take_one(struct ms_head *h, enum moment when)
{
    struct ms_head_op *op;
    uint64_t first = 0, lease;

    if (when == LATE) {
        first = take_one(h, NEVER);
        lose_answer(h);
    }
    if (when != NEVER)
        ms_head_crash(serve_head);
    if (when == BEFORE) { /* it is sent when the head is there again */
        op = ask_take(h, 1, 0);
        serve_begin(serve_address);
    } else {
        if (when == LATE)
            serve_begin(serve_address);
        op = ask_take(h, 1, 0);
    }
    assert_int_equal(taken(op)->n_shards, 1);
    assert_int_equal(taken(op)->shards[0]->attempt, 0);
    lease = taken(op)->shards[0]->lease;
    assert_true(when != LATE || lease == first);
    ms_head_op_unref(op);
    return lease;
}

static void end_one(struct ms_head *h, uint64_t lease, enum moment when)
{
    struct ms_head_op *op;

    if (when == LATE) {
        end_one(h, lease, NEVER);
        lose_answer(h);
    }
    if (when != NEVER)
        restart();
    op = ask_end(h, lease, MUSTER__SHARD_END__SHARD_DONE, 0);
    assert_true(status(op)->accepted);
    assert_string_equal(status(op)->not_kept, "");
    ms_head_op_unref(op);
}

/* ---- tests ------------------------------------------------------------------------- */

static void test_a_kill_between_any_two_steps(void **state)
{
    uint64_t last = 0;

    (void)state;
    open_queue(MOMENTS * MOMENTS);
    for (enum moment first = NEVER; first < MOMENTS; first++)
        for (enum moment second = NEVER; second < MOMENTS; second++) {
            uint64_t lease = take_one(drivers[0], first);

            assert_int_equal(lease, last + 1); /* none was given that nobody knows */
            end_one(drivers[0], lease, second);
            last = lease;
            assert_int_equal(count().doing, 0);
            assert_int_equal(count().done, last);
        }
}

static void test_many_at_once_are_the_same_again(void **state)
{
    struct ms_head_op *op;

    (void)state;
    open_queue(8);
    op = ask_take(drivers[0], 5, 0);
    assert_int_equal(taken(op)->n_shards, 5);
    ms_head_op_unref(op);
    lose_answer(drivers[0]);
    restart();
    op = ask_take(drivers[0], 5, 0);
    assert_int_equal(taken(op)->n_shards, 5);
    for (uint64_t i = 0; i < 5; i++)
        assert_int_equal(taken(op)->shards[i]->lease, i + 1);
    ms_head_op_unref(op);
    op = ask_take(drivers[0], 5, 0); /* another request */
    assert_int_equal(taken(op)->n_shards, 3);
    assert_int_equal(taken(op)->shards[0]->lease, 6);
    ms_head_op_unref(op);
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

static void empty_disk(const struct rlimit *before)
{
    assert_int_equal(setrlimit(RLIMIT_FSIZE, before), 0);
}

static void test_done_is_answered_when_it_is_written(void **state)
{
    struct ms_head_op *op, *late;
    struct rlimit before;
    uint64_t lease;

    (void)state;
    open_queue(3);
    lease = take_one(drivers[0], NEVER);
    before = fill_disk();
    op = ask_end(drivers[0], lease, MUSTER__SHARD_END__SHARD_DONE, 0);
    assert_true(status(op)->accepted);
    assert_non_null(strstr(status(op)->not_kept, "cannot write the journal"));
    ms_head_op_unref(op);
    op = ask_take(drivers[0], 1, 0); /* and nothing is given away */
    assert_int_equal(taken(op)->n_shards, 0);
    assert_int_equal(taken(op)->state, MUSTER__SHARDS_STATE__SHARDS_OPEN);
    assert_non_null(strstr(taken(op)->not_kept, "cannot write the journal"));
    ms_head_op_unref(op);
    late = ask_end(
        drivers[0], lease, MUSTER__SHARD_END__SHARD_DONE, OPS_DEADLINE_NS); /* again */
    assert_int_equal(count().done, 1);
    assert_int_equal(ms_head_op_wait(late, ms_now_ns() + 50 * MS_NS_PER_MS),
                     -ETIMEDOUT);
    empty_disk(&before);
    assert_true(status(late)->accepted);
    assert_string_equal(status(late)->not_kept, "");
    ms_head_op_unref(late);
    restart();
    assert_int_equal(count().done, 1);
}

/* It is the next head that answers. */
static void test_a_kill_while_nothing_can_be_written(void **state)
{
    struct ms_head_op *ends[2], *take;
    struct rlimit before;
    uint64_t lease;

    (void)state;
    open_queue(3);
    lease = take_one(drivers[0], NEVER);
    before = fill_disk();
    ends[0] =
        ask_end(drivers[0], lease, MUSTER__SHARD_END__SHARD_FAILED, OPS_DEADLINE_NS);
    take = ask_take(drivers[0], 3, OPS_DEADLINE_NS);
    while (count().doing < 3)
        ;
    ms_head_crash(serve_head);
    empty_disk(&before);
    serve_begin(serve_address);
    assert_true(status(ends[0])->accepted);
    ms_head_op_unref(ends[0]);
    assert_int_equal(taken(take)->n_shards, 3);
    for (uint64_t i = 0; i < 3; i++) {
        uint64_t next = taken(take)->shards[i]->lease;

        assert_true(next > lease);
        end_one(drivers[0], next, NEVER);
    }
    ms_head_op_unref(take);
    assert_int_equal(count().done, 3);
}

static void test_a_queue_that_cannot_be_written_is_not_made(void **state)
{
    Muster__OpenShards m = MUSTER__OPEN_SHARDS__INIT;
    struct rlimit before;

    (void)state;
    open_queue(1);
    before = fill_disk();
    m.name = (char[]){"other"};
    m.size = m.shard = m.epochs = 1;
    m.failures_max = m.deaths_max = 3;
    ops_expect(ops_request(drivers[0], MUSTER__DRIVER_TO_HEAD__BODY_OPEN_SHARDS, &m),
               -EIO,
               "cannot write the journal");
    empty_disk(&before);
    ops_expect(
        ops_request(drivers[0], MUSTER__DRIVER_TO_HEAD__BODY_OPEN_SHARDS, &m), 0, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(
            test_a_kill_between_any_two_steps, setup, teardown),
        cmocka_unit_test_setup_teardown(
            test_many_at_once_are_the_same_again, setup, teardown),
        cmocka_unit_test_setup_teardown(
            test_done_is_answered_when_it_is_written, setup, teardown),
        cmocka_unit_test_setup_teardown(
            test_a_kill_while_nothing_can_be_written, setup, teardown),
        cmocka_unit_test_setup_teardown(
            test_a_queue_that_cannot_be_written_is_not_made, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
