/* scheduler_test.c - the generation scheduler, event by event */
#include "generate/explain.h"
#include "generate/test_rig.h"

static void test_one_group_from_submit_to_consumed(void **state)
{
    RIG(r, .seed = 1);
    uint64_t a, b;

    (void)state;
    up(&r, 0, 4);
    submit_now(&r, 7, 2);
    DECIDED(&r, MS_SEND, MS_SEND);
    a = r.d[0].id;
    b = r.d[1].id;
    assert_int_equal(r.d[0].group, 7);
    assert_int_equal(r.d[0].seq, 0);
    assert_int_equal(r.d[1].seq, 1);
    assert_int_equal(r.d[0].attempt, 1);
    assert_int_equal(r.d[0].max_tokens, 100);
    EVENT(&r, MS_PULL, .id = 5, .samples = 1);
    NOTHING(&r);
    EVENT(&r, MS_FINISHED, .id = a, .attempt = 1, .tokens = 30);
    NOTHING(&r);
    EVENT(&r, MS_FINISHED, .id = b, .attempt = 1, .tokens = 20);
    DECIDED(&r, MS_READY, MS_DELIVER, MS_BATCH);
    assert_int_equal(r.d[1].group, 7);
    assert_int_equal(r.d[1].id, 5);
    EVENT(&r, MS_FINISHED, .id = b, .attempt = 1, .tokens = 20); /* again */
    NOTHING(&r);
    assert_int_equal(ms_scheduler_stats(r.s).late, 1);
    EVENT(&r, MS_CONSUMED, .id = 5);
    REFUSED(&r, -ENOENT, MS_CONSUMED, .id = 5);
    assert_int_equal(ms_scheduler_stats(r.s).tokens, 50);
    assert_int_equal(ms_scheduler_stats(r.s).groups, 0);
    assert_true(ms_lengths_has(r.lengths, 7));
}

static void test_refused_changes_nothing(void **state)
{
    RIG(r, .seed = 1);

    (void)state;
    REFUSED(&r, -EINVAL, 0);
    REFUSED(&r, -EINVAL, MS_GENERATE_WHATS);
    REFUSED(&r, -EINVAL, MS_SUBMIT, .id = 0, .samples = 1, .max_new = 1);
    REFUSED(&r, -EINVAL, MS_SUBMIT, .id = 1, .samples = 0, .max_new = 1);
    REFUSED(&r, -EINVAL, MS_SUBMIT, .id = 1, .samples = 1, .max_new = 0);
    REFUSED(&r, -EINVAL, MS_SUBMIT, .id = 1, .samples = 5000, .max_new = 1);
    REFUSED(
        &r, -EINVAL, MS_SUBMIT, .id = 1, .samples = 1, .surplus = ~0U, .max_new = 1);
    submit(&r, 1, 1);
    REFUSED(&r, -EEXIST, MS_SUBMIT, .id = 1, .samples = 1, .max_new = 1);
    REFUSED(&r, -ENOENT, MS_CANCEL_GROUP, .id = 2);
    REFUSED(&r, -ENOENT, MS_CANCEL, .id = 99);
    REFUSED(&r, -ENOENT, MS_REPLICA_DOWN, .replica = 0, .epoch = 1);
    REFUSED(&r, -EINVAL, MS_REPLICA_UP, .replica = 1U << 20, .epoch = 1, .samples = 1);
    REFUSED(&r, -EINVAL, MS_REPLICA_UP, .replica = 0, .epoch = 1, .samples = 0);
    REFUSED(&r, -EINVAL, MS_PULL, .id = 0, .samples = 1);
    REFUSED(&r, -ENOENT, MS_VERDICT, .id = 9);
    r.now_ns = -1;
    REFUSED(&r, -EINVAL, MS_TICK); /* time does not go back */
    assert_int_equal(ms_scheduler_stats(r.s).groups, 1);
}

static void test_limits_of_replicas(void **state)
{
    RIG(r, .seed = 1);

    (void)state;
    EVENT(&r, MS_REPLICA_UP, .replica = 0, .epoch = 1, .samples = 8, .tokens = 25);
    up(&r, 1, 3);
    submit_now(&r, 1, 9);
    /* 3 on the one with slots, 2 of 10 tokens on the one with 25 tokens of cache */
    assert_int_equal(r.count, 5);
    EVENT(&r, MS_FINISHED, .id = r.d[0].id, .attempt = 1, .tokens = 1);
    DECIDED(&r, MS_SEND);
}

static void test_poison_fails_its_group_only(void **state)
{
    RIG(r, .seed = 1);
    uint64_t id;

    (void)state;
    for (uint32_t i = 0; i < 4; i++)
        up(&r, i, 1);
    submit_now(&r, 1, 1);
    id = r.d[0].id;
    for (uint32_t attempt = 1; attempt <= 2; attempt++) {
        uint32_t on = r.d[0].replica;

        EVENT(&r, MS_REPLICA_DOWN, .replica = on, .epoch = 1);
        DECIDED(&r, MS_SEND);
        assert_int_equal(r.d[0].id, id);
    }
    EVENT(&r, MS_FAILED, .id = id, .attempt = 3);
    DECIDED(&r, MS_DROP);
    assert_int_equal(r.d[0].why, MS_WHY_POISON);
    assert_int_equal(ms_scheduler_stats(r.s).failed, 1);
    submit_now(&r, 2, 1);
    DECIDED(&r, MS_SEND);
}

static void test_poison_with_few_replicas(void **state)
{
    RIG(r, .seed = 1);
    uint64_t id;

    (void)state;
    up(&r, 0, 2);
    up(&r, 1, 1);
    submit_now(&r, 1, 1);
    id = r.d[0].id;
    for (uint32_t attempt = 1; attempt <= 2; attempt++) {
        uint32_t on = r.d[0].replica;

        EVENT(&r, MS_FAILED, .id = id, .attempt = attempt);
        DECIDED(&r, MS_SEND);
        if (attempt == 1) /* not where it has just failed */
            assert_int_not_equal(r.d[0].replica, on);
    }
    EVENT(&r, MS_FAILED, .id = id, .attempt = 3); /* it has failed on all */
    DECIDED(&r, MS_DROP);
    assert_int_equal(r.d[0].why, MS_WHY_POISON);
}

/* Plans of places do not know where a request has failed; it goes elsewhere all the same. */
static void test_poison_goes_elsewhere_against_the_plan(void **state)
{
    RIG(r, .seed = 1, .policy = &ms_policy_auto);
    bool was_on[4] = {false};
    uint64_t id;

    (void)state;
    for (uint32_t i = 0; i < 4; i++)
        up(&r, i, 4);
    /* batches of two sizes: from here on the time of a step is known, and places are planned */
    EVENT(&r, MS_LOAD, .replica = 0, .epoch = 1, .samples = 1, .step_ns = 1000);
    EVENT(&r, MS_LOAD, .replica = 1, .epoch = 1, .samples = 2, .step_ns = 1500);
    submit_now(&r, 1, 1);
    id = r.d[0].id;
    for (uint32_t attempt = 1; attempt <= 3; attempt++) {
        DECIDED(&r, MS_SEND);
        assert_false(was_on[r.d[0].replica]);
        was_on[r.d[0].replica] = true;
        EVENT(&r, MS_FAILED, .id = id, .attempt = attempt);
    }
    DECIDED(&r, MS_DROP);
    assert_int_equal(r.d[0].why, MS_WHY_POISON);
}

/* ---- a request that ends replicas, among others ------------------------------------ */

enum { FLEET = 4, PLACES = 8, CROWD = FLEET * PLACES };

/* Where each request runs, by its group; MS_NOWHERE: it does not, or is dropped. */
struct crowd {
    uint64_t id[CROWD + 1];
    uint32_t on[CROWD + 1], attempt[CROWD + 1];
    uint32_t epoch[FLEET], dropped;
    bool done[CROWD + 1];
};

static void note(struct rig *r, struct crowd *c)
{
    for (size_t i = 0; i < r->count; i++) {
        const struct ms_generate_decision *d = &r->d[i];

        if (d->what == MS_SEND) {
            c->id[d->group] = d->id;
            c->on[d->group] = d->replica;
            c->attempt[d->group] = d->attempt;
        } else if (d->what == MS_DROP) {
            c->dropped++;
            c->on[d->group] = MS_NOWHERE;
            assert_int_equal(d->why, MS_WHY_POISON);
        }
    }
}

static void fill_fleet(struct rig *r, struct crowd *c)
{
    for (uint32_t i = 0; i < FLEET; i++) {
        up(r, i, PLACES);
        c->epoch[i] = 1;
    }
    for (uint64_t g = 1; g <= CROWD; g++)
        EVENT(r,
              MS_SUBMIT,
              .id = g,
              .samples = 1,
              .max_new = 100000,
              .replica = MS_NOWHERE);
    EVENT(r, MS_TICK);
    note(r, c);
}

/* It goes with all that it runs, and another comes into its place. */
static void end_replica(struct rig *r, struct crowd *c, uint32_t replica)
{
    for (uint64_t g = 1; g <= CROWD; g++)
        if (c->on[g] == replica)
            c->on[g] = MS_NOWHERE;
    EVENT(r, MS_REPLICA_DOWN, .replica = replica, .epoch = c->epoch[replica]);
    note(r, c);
    EVENT(r,
          MS_REPLICA_UP,
          .replica = replica,
          .epoch = ++c->epoch[replica],
          .samples = PLACES);
    note(r, c);
}

/* All but the one in question go on; what that makes room for is sent. */
static void progress(struct rig *r, struct crowd *c, uint64_t but, uint32_t tokens)
{
    for (int again = 0; again < PLACES; again++)
        for (uint64_t g = 1; g <= CROWD; g++)
            if (c->on[g] != MS_NOWHERE && g != but) {
                EVENT(r,
                      MS_PROGRESS,
                      .id = c->id[g],
                      .attempt = c->attempt[g],
                      .tokens = tokens);
                note(r, c);
            }
}

/* Room for one more. */
static void finish_one(struct rig *r, struct crowd *c, uint64_t but)
{
    uint64_t g = 1;

    while (g <= CROWD && (c->on[g] == MS_NOWHERE || g == but))
        g++;
    assert_true(g <= CROWD);
    c->done[g] = true;
    c->on[g] = MS_NOWHERE;
    EVENT(r, MS_FINISHED, .id = c->id[g], .attempt = c->attempt[g], .tokens = 90000);
    note(r, c);
}

/* One of 32 ends each replica that it gets to: at once, with all places taken. It fails after
 * three; those beside it go on. */
static void test_poison_among_others_fails_alone(void **state)
{
    (void)state;
    for (uint64_t poison = 1; poison <= CROWD; poison++)
        for (int hears = 0; hears < 2; hears++) {
            RIG(r, .seed = poison);
            struct crowd c = {0};
            int lost = 0;

            memset(c.on, -1, sizeof c.on);
            fill_fleet(&r, &c);
            while (c.dropped == 0) {
                while (c.on[poison] == MS_NOWHERE)
                    finish_one(&r, &c, poison);
                if (hears)
                    progress(&r, &c, poison, 50 * (uint32_t)(lost + 1));
                end_replica(&r, &c, c.on[poison]);
                lost++;
            }
            assert_int_equal(lost, 3);
            assert_int_equal(c.dropped, 1);
            while (ms_scheduler_stats(r.s).live > 0)
                finish_one(&r, &c, poison);
            for (uint64_t g = 1; g <= CROWD; g++)
                assert_true(c.done[g] == (g != poison));
        }
}

/* Long answers where replicas go often: what gets on is not what ends them. */
static void test_losses_between_tokens_are_no_poison(void **state)
{
    RIG(r, .seed = 1);
    struct crowd c = {0};

    (void)state;
    memset(c.on, -1, sizeof c.on);
    fill_fleet(&r, &c);
    for (uint32_t i = 0; i < 5 * FLEET; i++) {
        end_replica(&r, &c, i % FLEET);
        progress(&r, &c, 0, 100 * (i + 1));
    }
    assert_int_equal(c.dropped, 0);
}

static void test_cancel(void **state)
{
    RIG(r, .seed = 1);
    uint64_t id[3];

    (void)state;
    up(&r, 0, 3);
    submit_now(&r, 1, 4);
    for (int i = 0; i < 3; i++)
        id[i] = r.d[i].id;
    EVENT(&r, MS_CANCEL, .id = id[1]); /* one, by its exact id */
    DECIDED(&r, MS_ABORT);
    assert_int_equal(r.d[0].id, id[1]);
    EVENT(&r, MS_CANCEL, .id = id[1]);
    NOTHING(&r);
    EVENT(&r, MS_ABORTED, .id = id[1], .attempt = 1, .tokens = 3);
    DECIDED(&r, MS_SEND); /* the fourth has its place */
    EVENT(&r, MS_FINISHED, .id = id[0], .attempt = 1, .tokens = 3);
    EVENT(&r, MS_CANCEL_GROUP, .id = 1);
    DECIDED(&r, MS_ABORT, MS_ABORT, MS_DROP);
    EVENT(&r, MS_CANCEL_GROUP, .id = 1); /* it is there until its aborts are answered */
    NOTHING(&r);
    EVENT(&r, MS_REPLICA_DOWN, .replica = 0, .epoch = 1);
    NOTHING(&r);
    REFUSED(&r, -ENOENT, MS_CANCEL_GROUP, .id = 1);
    assert_int_equal(ms_scheduler_stats(r.s).live, 0);
    submit(&r, 2, 1);
    submit_now(&r, 3, 1);
    EVENT(&r, MS_CANCEL_ALL);
    DECIDED(&r, MS_DROP, MS_DROP);
}

static void test_deadline(void **state)
{
    RIG(r, .seed = 1);

    (void)state;
    up(&r, 0, 1);
    EVENT(&r,
          MS_SUBMIT,
          .id = 1,
          .samples = 2,
          .max_new = 9,
          .replica = MS_NOWHERE,
          .deadline_ns = S(5));
    EVENT(&r, MS_TICK);
    DECIDED(&r, MS_SEND);
    assert_int_equal(ms_scheduler_wake_ns(r.s), S(5));
    r.now_ns = S(5);
    EVENT(&r, MS_TICK);
    DECIDED(&r, MS_ABORT, MS_DROP);
    assert_int_equal(r.d[1].why, MS_WHY_DEADLINE);
    assert_true(ms_scheduler_wake_ns(r.s) == MS_NEVER);
}

/* A fault of the request's own is not looked for on other replicas. */
static void test_refused_fails_its_group_at_once(void **state)
{
    RIG(r, .seed = 1);
    uint64_t first, second;

    (void)state;
    up(&r, 0, 1);
    up(&r, 1, 1);
    submit_now(&r, 1, 2);
    DECIDED(&r, MS_SEND, MS_SEND);
    first = r.d[0].id;
    second = r.d[1].id;
    EVENT(&r, MS_FAILED, .id = first, .attempt = 1, .keep = 1);
    DECIDED(&r, MS_ABORT, MS_DROP);
    assert_int_equal(r.d[0].id, second);
    assert_int_equal(r.d[1].why, MS_WHY_REFUSED);
    EVENT(&r, MS_FAILED, .id = second, .attempt = 1, .keep = 1); /* and so says this */
    NOTHING(&r);
    assert_int_equal(ms_scheduler_stats(r.s).failed, 1);
    assert_int_equal(ms_scheduler_stats(r.s).groups, 0);
}

/* A sample that has tokens goes first, behind them, and as a whole is learnt and too old. */
static void test_submitted_with_tokens(void **state)
{
    RIG(r, .seed = 1, .policy = &ms_policy_longest, .staleness_max = 1);
    uint64_t id;

    (void)state;
    EVENT(&r, MS_REPLICA_UP, .replica = 0, .epoch = 1, .samples = 1, .version = 5);
    EVENT(&r, MS_ADVANCE, .version = 5);
    submit(&r, 1, 1);
    EVENT(&r,
          MS_SUBMIT,
          .id = 2,
          .key = 2,
          .samples = 1,
          .prompt = 10,
          .max_new = 100,
          .replica = MS_NOWHERE);
    id = ms_scheduler_request(r.s, 2, 0);
    REFUSED(&r, -ENOENT, MS_BEHIND, .id = 99, .tokens = 40);
    REFUSED(&r, -EINVAL, MS_BEHIND, .id = id, .tokens = 100); /* it would be whole */
    REFUSED(&r, -EINVAL, MS_BEHIND, .id = id, .tokens = 0);
    EVENT(&r, MS_BEHIND, .id = id, .tokens = 40, .version = 4);
    NOTHING(&r);
    EVENT(&r, MS_TICK);
    DECIDED(&r, MS_SEND);
    assert_int_equal(r.d[0].group, 2);
    assert_int_equal(r.d[0].tokens, 40);
    assert_int_equal(r.d[0].max_tokens, 60);
    REFUSED(&r, -EINVAL, MS_BEHIND, .id = id, .tokens = 50); /* it has begun */
    EVENT(&r, MS_FINISHED, .id = id, .attempt = 1, .tokens = 90);
    assert_int_equal(r.d[0].what, MS_READY);
    assert_true(
        ms_lengths_guess(r.lengths, 2, 0, &(struct ms_length_sums){0}, NULL, 0).mu >
        4.4F);                           /* log 90 is 4.5, log 50 is 3.9 */
    EVENT(&r, MS_ADVANCE, .version = 6); /* its first tokens are of version 4 */
    assert_int_equal(r.d[0].what, MS_DROP);
    assert_int_equal(r.d[0].group, 2);
    assert_int_equal(r.d[0].why, MS_WHY_STALE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_group_from_submit_to_consumed),
        cmocka_unit_test(test_refused_changes_nothing),
        cmocka_unit_test(test_limits_of_replicas),
        cmocka_unit_test(test_poison_fails_its_group_only),
        cmocka_unit_test(test_poison_with_few_replicas),
        cmocka_unit_test(test_poison_goes_elsewhere_against_the_plan),
        cmocka_unit_test(test_poison_among_others_fails_alone),
        cmocka_unit_test(test_losses_between_tokens_are_no_poison),
        cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_deadline),
        cmocka_unit_test(test_refused_fails_its_group_at_once),
        cmocka_unit_test(test_submitted_with_tokens),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
