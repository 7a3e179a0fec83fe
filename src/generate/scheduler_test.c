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

static void test_retry_waits_for_the_ack(void **state)
{
    RIG(r, .seed = 1, .silence_ns = S(30));
    uint64_t id;

    (void)state;
    up(&r, 0, 2);
    up(&r, 1, 2);
    submit_now(&r, 1, 1);
    id = r.d[0].id;
    EVENT(&r, MS_PROGRESS, .id = id, .attempt = 1, .tokens = 12);
    r.now_ns = S(29);
    EVENT(&r, MS_LOAD, .replica = 0, .epoch = 1, .samples = 1, .step_ns = 1);
    EVENT(&r, MS_LOAD, .replica = 1, .epoch = 1, .samples = 1, .step_ns = 1);
    r.now_ns = S(30);
    assert_true(ms_scheduler_wake_ns(r.s) <= S(30));
    EVENT(&r, MS_TICK); /* its replica lives, the request does not move */
    DECIDED(&r, MS_ABORT);
    assert_int_equal(r.d[0].why, MS_WHY_SILENT);
    EVENT(&r, MS_TICK);
    NOTHING(&r); /* never twice at once */
    EVENT(&r, MS_ABORTED, .id = id, .attempt = 1, .tokens = 15);
    DECIDED(&r, MS_SEND);
    assert_int_equal(r.d[0].attempt, 2);
    assert_int_equal(r.d[0].tokens, 15);
    assert_int_equal(r.d[0].max_tokens, 85);
    EVENT(&r, MS_FINISHED, .id = id, .attempt = 1, .tokens = 99); /* the old attempt */
    NOTHING(&r);
    EVENT(&r, MS_FINISHED, .id = id, .attempt = 2, .tokens = 40);
    DECIDED(&r, MS_READY);
}

static void test_silent_replica_is_probed_and_evicted(void **state)
{
    RIG(r, .seed = 1, .silence_ns = S(30), .probe_ns = S(10));
    uint32_t first;
    uint64_t id;

    (void)state;
    up(&r, 0, 2);
    up(&r, 1, 2);
    submit_now(&r, 1, 1);
    id = r.d[0].id;
    first = r.d[0].replica;
    EVENT(&r, MS_PROGRESS, .id = id, .attempt = 1, .tokens = 12);
    r.now_ns = S(31);
    EVENT(&r, MS_TICK);
    DECIDED(&r, MS_PROBE);
    assert_int_equal(r.d[0].replica, first);
    EVENT(&r, MS_ALIVE, .replica = first, .epoch = 1);
    r.now_ns = S(62);
    EVENT(&r, MS_TICK);
    DECIDED(&r, MS_PROBE);
    r.now_ns = S(73);
    EVENT(&r, MS_TICK);
    DECIDED(&r, MS_EVICT, MS_SEND);
    assert_int_equal(r.d[1].replica, 1 - first);
    assert_int_equal(r.d[1].tokens, 12);               /* from what was streamed */
    EVENT(&r, MS_ALIVE, .replica = first, .epoch = 1); /* too late */
    NOTHING(&r);
}

/* What waits in its engine for cache is not silent, if the engine says so. */
static void test_waiting_is_not_silence(void **state)
{
    RIG(r, .seed = 1, .silence_ns = S(30));
    uint64_t id;

    (void)state;
    up(&r, 0, 2);
    submit_now(&r, 1, 1);
    id = r.d[0].id;
    EVENT(&r, MS_PROGRESS, .id = id, .attempt = 1, .tokens = 12);
    for (int i = 1; i <= 10; i++) {
        r.now_ns = S(20 * i);
        EVENT(&r, MS_WAITING, .id = id, .attempt = 1);
        EVENT(&r, MS_TICK);
        NOTHING(&r);
    }
    EVENT(&r, MS_WAITING, .id = id, .attempt = 2); /* of no attempt */
    assert_int_equal(ms_scheduler_stats(r.s).late, 1);
    EVENT(&r, MS_FINISHED, .id = id, .attempt = 1, .tokens = 20);
    DECIDED(&r, MS_READY);
}

static void up_with_cache(struct rig *r, uint32_t replica, uint32_t tokens)
{
    EVENT(r,
          MS_REPLICA_UP,
          .replica = replica,
          .epoch = 1,
          .samples = 4,
          .tokens = tokens);
}

/* Where it does not, the scheduler can tell by the tokens that it has sent there: a request
 * that is silent on a full replica goes elsewhere, as often as it takes. */
static void test_silent_on_a_full_replica_is_no_failure(void **state)
{
    RIG(r, .seed = 1, .silence_ns = S(30));
    uint64_t ids[4] = {0};

    (void)state;
    up_with_cache(&r, 0, 100);
    submit_now(&r, 1, 4);
    DECIDED(&r, MS_SEND, MS_SEND, MS_SEND, MS_SEND);
    for (int i = 0; i < 4; i++)
        ids[i] = r.d[i].id;
    for (uint32_t attempt = 1; attempt <= 5; attempt++) {
        r.now_ns += S(20);
        for (int i = 0; i < 3; i++)
            EVENT(&r, MS_PROGRESS, .id = ids[i], .attempt = 1, .tokens = 20);
        r.now_ns += S(20);
        EVENT(&r, MS_TICK);
        DECIDED(&r, MS_ABORT); /* 3 * 30 and 10 tokens of 100 */
        assert_true(r.d[0].id == ids[3]);
        assert_int_equal(r.d[0].why, MS_WHY_PREEMPTED);
        EVENT(&r, MS_ABORTED, .id = ids[3], .attempt = attempt);
        DECIDED(&r, MS_SEND);
    }
    assert_int_equal(ms_scheduler_stats(r.s).failed, 0);
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

static void test_surplus_is_aborted(void **state)
{
    RIG(r, .seed = 1);
    uint64_t last;

    (void)state;
    up(&r, 0, 8);
    EVENT(
        &r, MS_SUBMIT, .id = 1, .samples = 2, .surplus = 1, .max_new = 9, .replica = 0);
    EVENT(&r, MS_TICK);
    DECIDED(&r, MS_SEND, MS_SEND, MS_SEND);
    last = r.d[1].id;
    EVENT(&r, MS_FINISHED, .id = r.d[2].id, .attempt = 1, .tokens = 2);
    EVENT(&r, MS_FINISHED, .id = last, .attempt = 1, .tokens = 3);
    DECIDED(&r, MS_ABORT, MS_READY);
    assert_int_equal(r.d[0].why, MS_WHY_SURPLUS);
}

static void test_filter_asks_for_another(void **state)
{
    RIG(r, .seed = 1, .filter = true);

    (void)state;
    up(&r, 0, 2);
    submit(&r, 1, 1);
    submit_now(&r, 2, 1);
    EVENT(&r, MS_FINISHED, .id = r.d[0].id, .attempt = 1, .tokens = 2);
    DECIDED(&r, MS_READY);
    REFUSED(&r, -EINVAL, MS_VERDICT, .id = 2, .keep = 1); /* it still runs */
    EVENT(&r, MS_PULL, .id = 1, .samples = 1);
    NOTHING(&r); /* not judged yet */
    EVENT(&r, MS_VERDICT, .id = 1, .keep = 0);
    DECIDED(&r, MS_DROP, MS_REFILL);
    assert_int_equal(r.d[0].why, MS_WHY_FILTERED);
    assert_int_equal(r.d[1].tokens, 1);
}

/* Groups are handed out oldest first, come back from a consumer that died, and are dropped
 * when their oldest token is too old. */
static void test_batches_and_staleness(void **state)
{
    RIG(r, .seed = 1, .staleness_max = 1);

    (void)state;
    up(&r, 0, 8);
    for (uint64_t g = 1; g <= 3; g++) {
        submit_now(&r, g, 1);
        EVENT(&r, MS_FINISHED, .id = r.d[0].id, .attempt = 1, .tokens = 2);
    }
    EVENT(&r, MS_PULL, .id = 1, .samples = 2);
    DECIDED(&r, MS_DELIVER, MS_DELIVER, MS_BATCH);
    assert_int_equal(r.d[0].group, 1);
    EVENT(&r, MS_RETURNED, .id = 1);
    EVENT(&r, MS_PULL, .id = 2, .samples = 1);
    assert_int_equal(r.d[0].group, 1); /* it is again the oldest */
    EVENT(&r, MS_ADVANCE, .version = 1);
    NOTHING(&r);
    EVENT(&r, MS_ADVANCE, .version = 2);
    DECIDED(&r, MS_DROP, MS_DROP, MS_REFILL);
    assert_int_equal(r.d[0].why, MS_WHY_STALE);
    assert_int_equal(r.d[2].tokens, 2);
    REFUSED(&r, -EINVAL, MS_ADVANCE, .version = 1);
    EVENT(&r, MS_RETURNED, .id = 2); /* a lease stays, but does not come back */
    DECIDED(&r, MS_DROP, MS_REFILL);
    submit_now(&r, 4, 1); /* its replica has old weights */
    EVENT(&r, MS_FINISHED, .id = r.d[0].id, .attempt = 1, .tokens = 2);
    DECIDED(&r, MS_READY, MS_DROP, MS_REFILL);
}

static void test_admission_is_bounded(void **state)
{
    RIG(r, .seed = 1, .batch = 2, .staleness_max = 1);

    (void)state;
    up(&r, 0, 100);
    for (uint64_t g = 1; g <= 7; g++)
        submit(&r, g, 1);
    EVENT(&r, MS_TICK);
    assert_int_equal(r.count, 4); /* (staleness + version + 1) * batch */
    assert_int_equal(ms_scheduler_stats(r.s).held, 3);
    EVENT(&r, MS_CANCEL_GROUP, .id = 1);
    DECIDED(&r, MS_ABORT, MS_DROP, MS_SEND); /* rejected gives back */
    EVENT(&r, MS_ADVANCE, .version = 1);
    DECIDED(&r, MS_SEND, MS_SEND);
}

/* A job that begins at version 100 has consumed its first 100 batches. */
static void test_admission_of_a_restored_job(void **state)
{
    RIG(r, .seed = 1, .batch = 2, .staleness_max = 1);

    (void)state;
    up(&r, 0, 100);
    EVENT(&r, MS_ADVANCE, .version = 100);
    for (uint64_t g = 1; g <= 7; g++)
        submit(&r, g, 1);
    EVENT(&r, MS_TICK);
    assert_int_equal(r.count, 4);
    assert_int_equal(ms_scheduler_stats(r.s).held, 3);
    EVENT(&r, MS_ADVANCE, .version = 101);
    DECIDED(&r, MS_SEND, MS_SEND);
}

static void test_chunks_move_on(void **state)
{
    RIG(r, .seed = 1, .chunk = 40);
    uint64_t id;

    (void)state;
    up(&r, 0, 1);
    submit_now(&r, 1, 1);
    id = r.d[0].id;
    assert_int_equal(r.d[0].max_tokens, 40);
    EVENT(&r, MS_CHUNK, .id = id, .attempt = 1, .tokens = 40);
    DECIDED(&r, MS_SEND);
    assert_int_equal(r.d[0].tokens, 40);
    EVENT(&r, MS_CHUNK, .id = id, .attempt = 2, .tokens = 80);
    assert_int_equal(r.d[0].max_tokens, 20);
    EVENT(&r, MS_CHUNK, .id = id, .attempt = 3, .tokens = 100);
    DECIDED(&r, MS_READY); /* max_new is the end */
}

static void test_longest_goes_first(void **state)
{
    RIG(r, .seed = 1, .policy = &ms_policy_longest);

    (void)state;
    for (uint64_t key = 1; key <= 3; key++) {
        struct ms_length_sums sums = {0};

        ms_length_sums_add(&sums, key == 2 ? 5000 : (uint32_t)(100 * key));
        ms_length_sums_add(&sums, key == 2 ? 5100 : (uint32_t)(110 * key));
        ms_lengths_learn(r.lengths, key, &sums, NULL, 0, 0);
    }
    up(&r, 0, 1);
    for (uint64_t g = 1; g <= 4; g++) /* 4 is not known: its probe goes before all */
        EVENT(&r,
              MS_SUBMIT,
              .id = g,
              .key = g,
              .samples = 1,
              .max_new = 10000,
              .replica = MS_NOWHERE);
    EVENT(&r, MS_TICK);
    for (int i = 0; i < 4; i++) {
        static const uint64_t wanted[] = {4, 2, 3, 1};
        uint64_t id = r.d[r.count - 1].id;

        assert_int_equal(r.d[r.count - 1].what, MS_SEND);
        assert_int_equal(r.d[r.count - 1].group, wanted[i]);
        EVENT(&r, MS_FINISHED, .id = id, .attempt = 1, .tokens = 10);
    }
}

/* What runs says how long the rest of its group will be; while something waits the scheduler
 * asks for the ticks that it needs to put that into the order. */
static void test_progress_changes_the_order(void **state)
{
    RIG(r, .seed = 1, .policy = &ms_policy_longest, .rebalance_ns = S(2));
    uint64_t second;

    (void)state;
    up(&r, 0, 1);
    up(&r, 1, 1);
    for (uint64_t id = 1; id <= 2; id++)
        EVENT(&r,
              MS_SUBMIT,
              .id = id,
              .key = id,
              .samples = 2,
              .max_new = 100000,
              .replica = MS_NOWHERE);
    EVENT(&r, MS_TICK);
    DECIDED(&r, MS_SEND, MS_SEND); /* one probe of each */
    second = r.d[1].id;
    assert_int_equal(r.d[1].group, 2);
    assert_int_equal(ms_scheduler_wake_ns(r.s), 0);
    EVENT(&r, MS_TICK);
    EVENT(&r, MS_PROGRESS, .id = second, .attempt = 1, .tokens = 50000);
    assert_int_equal(ms_scheduler_wake_ns(r.s), S(2));
    r.now_ns = ms_scheduler_wake_ns(r.s);
    EVENT(&r, MS_TICK);
    NOTHING(&r);
    up(&r, 2, 1);
    DECIDED(&r, MS_SEND);
    assert_int_equal(r.d[0].group, 2);
    up(&r, 3, 1);
    assert_int_equal(r.d[0].group, 1);
    assert_true(ms_scheduler_wake_ns(r.s) == MS_NEVER); /* nothing waits */
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

/* Samples of one prompt that are groups of their own have one probe together. */
static void test_sibling_groups_have_one_probe(void **state)
{
    RIG(r, .seed = 1, .policy = &ms_policy_longest);
    struct ms_length_sums sums = {0};

    (void)state;
    ms_length_sums_add(&sums, 9000); /* prompt 3 is known to be long */
    ms_length_sums_add(&sums, 9000);
    ms_lengths_learn(r.lengths, 3, &sums, NULL, 0, 0);
    up(&r, 0, 1);
    for (uint64_t g = 1; g <= 3; g++) /* 2 is a sibling of 1 */
        EVENT(&r,
              MS_SUBMIT,
              .id = g,
              .key = g == 3 ? 3 : 1,
              .keep = g == 2,
              .samples = 1,
              .max_new = g == 3 ? 20000 : 100,
              .replica = MS_NOWHERE);
    EVENT(&r, MS_TICK);
    for (int i = 0; i < 3; i++) {
        static const uint64_t wanted[] = {1, 3, 2};
        uint64_t id = r.d[r.count - 1].id;

        assert_int_equal(r.d[r.count - 1].what, MS_SEND);
        assert_int_equal(r.d[r.count - 1].group, wanted[i]);
        EVENT(&r, MS_FINISHED, .id = id, .attempt = 1, .tokens = 10);
    }
}

/* A sample that has tokens goes first, behind them, and as a whole is learnt and too old. */
static void test_submitted_with_tokens(void **state)
{
    RIG(r, .seed = 1, .policy = &ms_policy_longest, .staleness_max = 1);

    (void)state;
    REFUSED(&r, -EINVAL, MS_SUBMIT, .id = 1, .samples = 2, .max_new = 9, .tokens = 1);
    REFUSED(&r, -EINVAL, MS_SUBMIT, .id = 1, .samples = 1, .max_new = 9, .tokens = 9);
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
          .tokens = 40,
          .attempt = 4,
          .replica = MS_NOWHERE);
    EVENT(&r, MS_TICK);
    DECIDED(&r, MS_SEND);
    assert_int_equal(r.d[0].group, 2);
    assert_int_equal(r.d[0].tokens, 40);
    assert_int_equal(r.d[0].max_tokens, 60);
    EVENT(&r, MS_FINISHED, .id = r.d[0].id, .attempt = 1, .tokens = 90);
    assert_int_equal(r.d[0].what, MS_READY);
    assert_true(
        ms_lengths_guess(r.lengths, 2, 0, &(struct ms_length_sums){0}, NULL, 0).mu >
        4.4F);                           /* log 90 is 4.5, log 50 is 3.9 */
    EVENT(&r, MS_ADVANCE, .version = 6); /* its first tokens are of version 4 */
    assert_int_equal(r.d[0].what, MS_DROP);
    assert_int_equal(r.d[0].group, 2);
    assert_int_equal(r.d[0].why, MS_WHY_STALE);
}

/* A session's next turn goes where its prefix is: at once, or when there is room; and
 * elsewhere if that takes too long. */
static void test_warm_replica(void **state)
{
    RIG(r, .seed = 1, .policy = &ms_policy_auto);
    uint64_t id;

    (void)state;
    up(&r, 0, 1);
    up(&r, 1, 2);
    EVENT(
        &r, MS_SUBMIT, .id = 1, .samples = 1, .max_new = 9, .prompt = 9, .replica = 0);
    EVENT(&r, MS_TICK);
    assert_int_equal(r.d[0].replica, 0);
    id = r.d[0].id;
    EVENT(
        &r, MS_SUBMIT, .id = 2, .samples = 1, .max_new = 9, .prompt = 9, .replica = 0);
    EVENT(&r, MS_TICK);
    NOTHING(&r); /* it waits for replica 0, and others pass */
    EVENT(&r, MS_SUBMIT, .id = 3, .samples = 1, .max_new = 9, .replica = MS_NOWHERE);
    EVENT(&r, MS_TICK);
    assert_int_equal(r.d[0].replica, 1);
    EVENT(&r, MS_FINISHED, .id = id, .attempt = 1, .tokens = 4);
    DECIDED(&r, MS_READY, MS_SEND);
    assert_int_equal(r.d[1].replica, 0);
    EVENT(
        &r, MS_SUBMIT, .id = 4, .samples = 1, .max_new = 9, .prompt = 9, .replica = 0);
    EVENT(&r, MS_TICK);
    NOTHING(&r);
    r.now_ns = ms_scheduler_wake_ns(r.s);
    assert_true(r.now_ns <= S(60));
    EVENT(&r, MS_TICK);
    DECIDED(&r, MS_SEND);
    assert_int_equal(r.d[0].replica, 1);
}

static void submit_warm(struct rig *r, uint64_t id, uint32_t epoch, uint32_t version)
{
    EVENT(r,
          MS_SUBMIT,
          .id = id,
          .samples = 1,
          .prompt = 9,
          .max_new = 9,
          .replica = 0,
          .epoch = epoch,
          .version = version);
    EVENT(r, MS_TICK);
}

/* A cache lasts as long as its engine and its weights: a prefix of earlier ones is nowhere. */
static void test_prefix_of_other_weights_is_cold(void **state)
{
    RIG(r, .seed = 1, .policy = &ms_policy_auto);

    (void)state;
    up(&r, 0, 1);
    up(&r, 1, 4);
    submit_warm(&r, 1, 1, 0);
    DECIDED(&r, MS_SEND);
    assert_int_equal(r.d[0].replica, 0);
    submit_warm(&r, 2, 1, 0);
    NOTHING(&r); /* it waits for its prefix */
    submit_warm(&r, 3, 1, 7);
    DECIDED(&r, MS_SEND); /* of other weights */
    assert_int_equal(r.d[0].replica, 1);
    submit_warm(&r, 4, 2, 0);
    DECIDED(&r, MS_SEND); /* of another incarnation */
    assert_int_equal(r.d[0].replica, 1);
    EVENT(&r, MS_WEIGHTS, .version = 7, .mode = MS_WEIGHTS_KEEP);
    EVENT(&r, MS_WEIGHTS_READY, .replica = 0, .epoch = 1, .version = 7);
    EVENT(&r, MS_WEIGHTS_READY, .replica = 1, .epoch = 1, .version = 7);
    submit_warm(&r, 5, 1, 0);
    DECIDED(&r, MS_SEND); /* what was warm is not any more */
    assert_int_equal(r.d[0].replica, 1);
    submit_warm(&r, 6, 1, 7);
    NOTHING(&r);
}

/* An attempt that ended before its first token may have left no prefix. */
static void test_an_aborted_request_is_not_warm(void **state)
{
    RIG(r, .seed = 1, .policy = &ms_policy_auto);
    struct ms_explanation x;
    uint64_t id;

    (void)state;
    up(&r, 0, 1);
    submit_warm(&r, 1, 0, 0);
    id = r.d[0].id;
    assert_int_equal(ms_scheduler_explain(r.s, id, 0, 0, &x), 0);
    assert_int_equal(x.placed, MS_PLACED_WARM);
    EVENT(&r, MS_PAUSE, .mode = MS_WEIGHTS_ABORT);
    EVENT(&r, MS_ABORTED, .id = id, .attempt = 1);
    EVENT(&r, MS_RESUME);
    DECIDED(&r, MS_SEND);
    assert_int_equal(ms_scheduler_explain(r.s, id, 0, 0, &x), 0);
    assert_int_equal(x.placed, MS_PLACED_LOAD);
}

static void submit_turn(struct rig *r, uint64_t id, uint64_t key, uint8_t turn)
{
    EVENT(r,
          MS_SUBMIT,
          .id = id,
          .key = key,
          .turn = turn,
          .samples = 1,
          .prompt = 10,
          .max_new = 10000,
          .replica = MS_NOWHERE);
}

/* A session is as long as its turns together: what is known of later ones, as many as
 * earlier sessions of the prompt had, counts already at its first. */
static void test_longest_session_goes_first(void **state)
{
    RIG(r, .seed = 1, .policy = &ms_policy_auto);
    static const uint64_t wanted[] = {4, 2, 1, 3};

    (void)state;
    for (uint64_t key = 1; key <= 3; key++) { /* 200; 100 in each of 4 turns; 150 */
        uint64_t turn_key = key;

        for (int turn = 0; turn < (key == 2 ? 4 : 1); turn++) {
            struct ms_length_sums sums = {0};

            for (int i = 0; i < 8; i++)
                ms_length_sums_add(&sums, key == 1 ? 200 : key == 2 ? 100 : 150);
            ms_lengths_learn(r.lengths, turn_key, &sums, NULL, 0, 0);
            turn_key = ms_lengths_next_turn(turn_key);
        }
    }
    for (uint64_t key = 1; key <= 3; key++)
        submit_turn(&r, key, key, 0);
    submit_turn(&r, 4, 4, 1); /* nothing is known of it: it goes first */
    up(&r, 0, 1);
    for (size_t i = 0; i < MS_COUNT(wanted); i++) {
        uint64_t id = r.d[r.count - 1].id;

        assert_int_equal(r.d[r.count - 1].group, wanted[i]);
        EVENT(&r, MS_FINISHED, .id = id, .attempt = 1, .tokens = 10);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_group_from_submit_to_consumed),
        cmocka_unit_test(test_refused_changes_nothing),
        cmocka_unit_test(test_limits_of_replicas),
        cmocka_unit_test(test_retry_waits_for_the_ack),
        cmocka_unit_test(test_silent_replica_is_probed_and_evicted),
        cmocka_unit_test(test_waiting_is_not_silence),
        cmocka_unit_test(test_silent_on_a_full_replica_is_no_failure),
        cmocka_unit_test(test_poison_fails_its_group_only),
        cmocka_unit_test(test_poison_with_few_replicas),
        cmocka_unit_test(test_poison_goes_elsewhere_against_the_plan),
        cmocka_unit_test(test_poison_among_others_fails_alone),
        cmocka_unit_test(test_losses_between_tokens_are_no_poison),
        cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_deadline),
        cmocka_unit_test(test_surplus_is_aborted),
        cmocka_unit_test(test_filter_asks_for_another),
        cmocka_unit_test(test_batches_and_staleness),
        cmocka_unit_test(test_admission_is_bounded),
        cmocka_unit_test(test_admission_of_a_restored_job),
        cmocka_unit_test(test_chunks_move_on),
        cmocka_unit_test(test_longest_goes_first),
        cmocka_unit_test(test_progress_changes_the_order),
        cmocka_unit_test(test_refused_fails_its_group_at_once),
        cmocka_unit_test(test_sibling_groups_have_one_probe),
        cmocka_unit_test(test_submitted_with_tokens),
        cmocka_unit_test(test_warm_replica),
        cmocka_unit_test(test_prefix_of_other_weights_is_cold),
        cmocka_unit_test(test_an_aborted_request_is_not_warm),
        cmocka_unit_test(test_longest_session_goes_first),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
