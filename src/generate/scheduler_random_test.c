/* Seeded histories: an engine that does anything it is allowed to, and some things that it
 * is not; rules of the life cycle that hold after each step; and the same events again,
 * which must give the same decisions to the byte. */
#include "base/cleanup.h"
#include "base/test_random.h"
#include "generate/policy.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#ifdef __SANITIZE_ADDRESS__
#define HISTORIES 10000 /* they take five times as long */
#else
#define HISTORIES 100000
#endif

enum { EVENTS = 80, REPLICAS = 4, GROUPS = 64, JOBS = 512 };

/* An attempt that an engine has. */
struct job {
    uint64_t id, group;
    uint32_t replica, attempt, tokens, max;
    bool aborting;
};

enum fate { UNKNOWN, OPEN, JUDGED, READY, LEASED, DROPPED, CONSUMED };

struct world {
    uint64_t seed;
    int64_t now_ns;
    struct ms_lengths *lengths;
    struct ms_scheduler *s;
    struct ms_scheduler_options o;
    struct job jobs[JOBS];
    size_t job_count;
    uint32_t epoch[REPLICAS];
    bool up[REPLICAS], updating[REPLICAS];
    enum fate fate[GROUPS];
    uint64_t last_group, batch;
    bool leased, weights, pulled, paused;
    uint32_t version;
    struct ms_generate_event log[EVENTS * 2 + 8192];
    int64_t times[EVENTS * 2 + 8192];
    size_t logged;
    uint64_t digest; /* of all decisions */
};

static uint32_t roll(struct world *w, uint32_t n)
{
    return test_roll(&w->seed, n);
}

static uint64_t digest_of(uint64_t digest, const void *bytes, size_t len)
{
    const uint8_t *at = bytes;

    for (size_t i = 0; i < len; i++)
        digest = (digest ^ at[i]) * UINT64_C(0x100000001b3);
    return digest;
}

/* ---- the rules --------------------------------------------------------------------- */

static void on_send(struct world *w, const struct ms_generate_decision *d)
{
    assert_true(d->replica < REPLICAS && w->up[d->replica]);
    assert_int_equal(d->epoch, w->epoch[d->replica]);
    assert_false(w->updating[d->replica] || w->paused);
    assert_true(w->fate[d->group] == OPEN); /* never for a group that is over */
    for (size_t i = 0; i < w->job_count; i++)
        assert_true(w->jobs[i].id != d->id); /* never twice at once */
    assert_true(w->job_count < JOBS);
    w->jobs[w->job_count++] = (struct job){.id = d->id,
                                           .group = d->group,
                                           .replica = d->replica,
                                           .attempt = d->attempt,
                                           .tokens = d->tokens,
                                           .max = d->tokens + d->max_tokens};
}

static void on_abort(struct world *w, const struct ms_generate_decision *d)
{
    for (size_t i = 0; i < w->job_count; i++)
        if (w->jobs[i].id == d->id && w->jobs[i].attempt == d->attempt) {
            assert_false(w->jobs[i].aborting); /* once */
            w->jobs[i].aborting = true;
            return;
        }
}

static void forget_replica(struct world *w, uint32_t replica)
{
    size_t kept = 0;

    for (size_t i = 0; i < w->job_count; i++)
        if (w->jobs[i].replica != replica)
            w->jobs[kept++] = w->jobs[i];
    w->job_count = kept;
    w->up[replica] = w->updating[replica] = false;
}

static void set_fate(struct world *w, uint64_t group, enum fate from, enum fate to)
{
    assert_int_equal(w->fate[group], from);
    w->fate[group] = to;
}

static void on_decision(struct world *w, const struct ms_generate_decision *d)
{
    if (d->what == MS_SEND) {
        on_send(w, d);
    } else if (d->what == MS_ABORT) {
        on_abort(w, d);
    } else if (d->what == MS_EVICT || d->what == MS_RELEASED) {
        forget_replica(w, d->replica);
    } else if (d->what == MS_UPDATE) {
        w->updating[d->replica] = true;
    } else if (d->what == MS_UPDATED) {
        w->weights = false;
    } else if (d->what == MS_READY) {
        set_fate(w, d->group, OPEN, w->o.filter ? JUDGED : READY);
    } else if (d->what == MS_DELIVER) {
        set_fate(w, d->group, READY, LEASED);
    } else if (d->what == MS_BATCH) {
        w->leased = true;
        w->pulled = false;
    } else if (d->what == MS_DROP) {
        assert_in_range(w->fate[d->group], OPEN, READY);
        w->fate[d->group] = DROPPED;
    }
}

static int step(struct world *w, const struct ms_generate_event *e)
{
    const struct ms_generate_decision *d = NULL;
    struct ms_scheduler_stats stats;
    size_t count = 0;
    int rc = ms_scheduler_step(w->s, e, w->now_ns, &d, &count);

    assert_true(w->logged < MS_COUNT(w->log));
    w->log[w->logged] = *e;
    w->times[w->logged++] = w->now_ns;
    w->digest = digest_of(w->digest, &rc, sizeof rc);
    if (rc < 0)
        return rc;
    w->digest = digest_of(w->digest, d, count * sizeof *d);
    for (size_t i = 0; i < count; i++)
        on_decision(w, &d[i]);
    stats = ms_scheduler_stats(w->s);
    assert_int_equal(stats.live, stats.queued + stats.running + stats.aborting);
    assert_true(stats.running + stats.aborting == w->job_count);
    return 0;
}

/* ---- what happens ------------------------------------------------------------------ */

static void submit(struct world *w)
{
    uint64_t id = w->last_group + 1;

    if (id >= GROUPS)
        return;
    w->fate[id] = OPEN;
    w->last_group = id;
    assert_int_equal(
        step(w,
             &(struct ms_generate_event){
                 .what = MS_SUBMIT,
                 .id = id,
                 .key = roll(w, 5),
                 .samples = 1 + roll(w, 3),
                 .surplus = roll(w, 2),
                 .prompt = 10 + roll(w, 50),
                 .max_new = 1 + roll(w, 100),
                 .replica = roll(w, 3) ? MS_NOWHERE : roll(w, REPLICAS),
                 .turn = (uint8_t)roll(w, 3),
                 .deadline_ns =
                     roll(w, 4) ? 0 : w->now_ns + roll(w, 100) * 1000000000LL}),
        0);
    if (roll(w, 4) == 0) /* it goes on behind what it has, if that is not all */
        step(w,
             &(struct ms_generate_event){
                 .what = MS_BEHIND,
                 .id = ms_scheduler_request(w->s, id, 0),
                 .tokens = roll(w, 100),
                 .version = w->version > 0 ? w->version - roll(w, 2) : 0});
}

static void replica_up(struct world *w)
{
    uint32_t i = roll(w, REPLICAS);

    if (w->up[i])
        forget_replica(w, i);
    w->up[i] = true;
    assert_int_equal(step(w,
                          &(struct ms_generate_event){.what = MS_REPLICA_UP,
                                                      .replica = i,
                                                      .epoch = ++w->epoch[i],
                                                      .samples = 1 + roll(w, 4),
                                                      .tokens = roll(w, 2) * 300,
                                                      .version = w->version}),
                     0);
}

static void replica_down(struct world *w)
{
    uint32_t i = roll(w, REPLICAS), epoch = w->epoch[i];

    if (w->up[i])
        forget_replica(w, i);
    step(w,
         &(struct ms_generate_event){
             .what = MS_REPLICA_DOWN, .replica = i, .epoch = epoch});
}

static void report(struct world *w)
{
    struct ms_generate_event e = {.what = MS_FINISHED};
    struct job *j;
    uint32_t what = roll(w, 8);

    if (w->job_count == 0)
        return;
    j = &w->jobs[roll(w, (uint32_t)w->job_count)];
    j->tokens += roll(w, j->max - j->tokens + 1);
    e.id = j->id;
    e.attempt = j->attempt;
    e.tokens = j->tokens;
    if (what < 3) {
        e.what = roll(w, 4) ? MS_PROGRESS : MS_WAITING;
    } else if (j->aborting && what < 7) {
        e.what = MS_ABORTED;
    } else if (what == 3) {
        e.what = MS_CHUNK;
        e.tokens = j->max;
    } else if (what == 4) {
        e.what = MS_FAILED;
    }
    if (what >= 3)
        *j = w->jobs[--w->job_count];
    assert_int_equal(step(w, &e), 0);
}

/* A report that nobody waits for. */
static void report_late(struct world *w)
{
    struct ms_generate_event e = {.what = MS_PROGRESS + roll(w, 5),
                                  .id = (uint64_t)roll(w, 4) << 32 | roll(w, 40),
                                  .attempt = 1000 + roll(w, 5),
                                  .tokens = roll(w, 1000)};

    assert_int_equal(step(w, &e), 0);
}

static void cancel(struct world *w)
{
    struct ms_generate_event e = {.what = MS_CANCEL_GROUP};

    if (roll(w, 2) && w->job_count > 0) {
        e.what = MS_CANCEL;
        e.id = w->jobs[roll(w, (uint32_t)w->job_count)].id;
        step(w, &e);
        return;
    }
    e.id = 1 + roll(w, GROUPS);
    if (e.id < GROUPS &&
        w->fate[e.id] != LEASED) /* what is leased may be taken back, too */
        step(w, &e);
}

static void deliver(struct world *w)
{
    struct ms_generate_event e = {
        .what = MS_PULL, .id = w->batch, .samples = 1 + roll(w, 3)};
    bool back = roll(w, 3) == 0;

    if (!w->leased) {
        if (!w->pulled)
            e.id = ++w->batch;
        if (!w->pulled) {
            w->pulled = true; /* the answer may come at once */
            assert_int_equal(step(w, &e), 0);
        }
        return;
    }
    e.what = back ? MS_RETURNED : MS_CONSUMED;
    w->leased = false;
    for (uint64_t g = 0; g < GROUPS; g++)
        if (w->fate[g] == LEASED)
            w->fate[g] = back ? READY : CONSUMED;
    assert_int_equal(step(w, &e), 0);
}

/* The first group of that fate, or 0. */
static uint64_t first_of(const struct world *w, enum fate fate)
{
    for (uint64_t g = 1; g <= w->last_group; g++)
        if (w->fate[g] == fate)
            return g;
    return 0;
}

static void judge(struct world *w)
{
    struct ms_generate_event e = {.what = MS_VERDICT,
                                  .id = first_of(w, JUDGED),
                                  .keep = (uint8_t)(roll(w, 3) > 0)};

    if (e.id == 0)
        return;
    if (e.keep)
        w->fate[e.id] = READY; /* and then it may be delivered, or too old */
    assert_int_equal(step(w, &e), 0);
}

static void take_one(struct world *w)
{
    struct ms_generate_event e = {.what = MS_TAKE, .id = first_of(w, READY)};

    if (e.id == 0)
        return;
    assert_int_equal(step(w, &e), 0);
    set_fate(w, e.id, READY, CONSUMED);
}

static void pause_or_resume(struct world *w)
{
    struct ms_generate_event e = {.what = w->paused ? MS_RESUME : MS_PAUSE};

    if (!w->paused)
        e.mode = roll(w, 2) ? MS_WEIGHTS_ABORT : MS_WEIGHTS_KEEP;
    w->paused = !w->paused;
    assert_int_equal(step(w, &e), 0);
}

static void give_weights_up(struct world *w)
{
    const struct ms_generate_event e = {.what = MS_WEIGHTS_FAILED};

    if (!w->weights)
        return;
    w->weights = false;
    memset(w->updating, 0, sizeof w->updating);
    assert_int_equal(step(w, &e), 0);
}

static void weights(struct world *w)
{
    struct ms_generate_event e = {.what = MS_WEIGHTS};

    for (uint32_t i = 0; i < REPLICAS; i++)
        if (w->updating[i]) {
            w->updating[i] = false;
            step(w,
                 &(struct ms_generate_event){.what = MS_WEIGHTS_READY,
                                             .replica = i,
                                             .epoch = w->epoch[i],
                                             .version = w->version});
            return;
        }
    if (w->weights)
        return;
    w->weights = true;
    e.version = ++w->version;
    e.mode = (uint8_t)roll(w, MS_WEIGHTS_KEEP + 1);
    e.rolling = (uint8_t)roll(w, 2);
    e.deadline_ns = w->now_ns + 5000000000LL;
    assert_int_equal(step(w, &e), 0);
}

static void other(struct world *w)
{
    struct ms_generate_event e = {.what = MS_LOAD,
                                  .replica = roll(w, REPLICAS),
                                  .samples = 1 + roll(w, 9),
                                  .step_ns = 1000000 + roll(w, 1000000)};

    e.epoch = w->epoch[e.replica];
    if (roll(w, 8) == 0) {
        e.what = MS_ADVANCE;
        e.version = w->version;
    } else if (roll(w, 8) == 0) {
        e.what = MS_DRAIN;
    } else if (roll(w, 4) == 0) {
        e.what = MS_ALIVE;
    }
    step(w, &e);
}

static void tick(struct world *w)
{
    w->now_ns += roll(w, 20) ? roll(w, 2000) * 1000000LL : 40000000000LL;
    assert_int_equal(step(w, &(struct ms_generate_event){.what = MS_TICK}), 0);
}

static bool has_work(const struct world *w)
{
    struct ms_scheduler_stats stats = ms_scheduler_stats(w->s);

    return stats.live + stats.held > 0;
}

/* Whatever has happened: with engines that do their work, all groups come to an end. */
static void wind_up(struct world *w)
{
    for (int i = 0; i < 900 && w->weights; i++) {
        weights(w);
        report(w);
        tick(w);
    }
    assert_false(w->weights);
    if (w->paused)
        pause_or_resume(w);
    step(w, &(struct ms_generate_event){.what = MS_TICK});
    for (int i = 0; i < 900 && has_work(w); i++) {
        struct ms_generate_event e = {.what = MS_FINISHED};

        if (ms_scheduler_stats(w->s).held > 0)
            step(w,
                 &(struct ms_generate_event){.what = MS_ADVANCE,
                                             .version = ++w->version});
        step(w, &(struct ms_generate_event){.what = MS_TICK});
        if (w->job_count == 0) { /* no replica may have been left */
            replica_up(w);
            continue;
        }
        e.id = w->jobs[0].id;
        e.attempt = w->jobs[0].attempt;
        e.tokens = w->jobs[0].tokens;
        w->jobs[0] = w->jobs[--w->job_count];
        step(w, &e);
    }
    assert_int_equal(ms_scheduler_stats(w->s).live, 0);
    for (uint64_t g = 1; g <= w->last_group; g++)
        assert_true(w->fate[g] != OPEN);
}

/* ---- histories --------------------------------------------------------------------- */

static void world_init(struct world *w, uint64_t number)
{
    static const struct ms_policy *const policies[] = {
        &ms_policy_fifo, &ms_policy_longest, &ms_policy_auto};

    *w = (struct world){.seed = test_seed(number)};
    w->o = (struct ms_scheduler_options){.policy = policies[number % 3],
                                         .seed = number + 1,
                                         .chunk = roll(w, 3) ? 0 : 8,
                                         .staleness_max = roll(w, 3),
                                         .batch = roll(w, 3) ? 0 : 1 + roll(w, 4),
                                         .filter = roll(w, 3) == 0,
                                         .silence_ns = 30000000000LL,
                                         .rebalance_ns = 1000000000LL};
    w->lengths = ms_lengths_create(16);
    w->s = ms_scheduler_create(&w->o, w->lengths, NULL);
    assert_true(w->lengths && w->s);
}

static void replay(struct world *w)
{
    struct ms_lengths *lengths = ms_lengths_create(16);
    struct ms_scheduler *s = ms_scheduler_create(&w->o, lengths, NULL);
    uint64_t digest = 0;

    for (size_t i = 0; i < w->logged; i++) {
        const struct ms_generate_decision *d = NULL;
        size_t count = 0;
        int rc = ms_scheduler_step(s, &w->log[i], w->times[i], &d, &count);

        digest = digest_of(digest, &rc, sizeof rc);
        if (rc == 0)
            digest = digest_of(digest, d, count * sizeof *d);
    }
    assert_true(digest == w->digest);
    ms_scheduler_destroy(s);
    ms_lengths_destroy(lengths);
}

static void history(uint64_t number)
{
    static void (*const acts[])(struct world *) = {
        submit,          submit,         report,  report,  report,
        report,          report,         tick,    tick,    cancel,
        replica_up,      deliver,        deliver, weights, replica_down,
        other,           report_late,    judge,   judge,   take_one,
        pause_or_resume, give_weights_up};
    static struct world w;

    world_init(&w, number);
    replica_up(&w);
    for (int i = 0; i < EVENTS; i++) {
        uint32_t what = roll(&w, MS_COUNT(acts));

        if ((acts[what] == cancel || acts[what] == replica_down ||
             acts[what] == weights || acts[what] == give_weights_up) &&
            roll(&w, 2))
            continue; /* rarer */
        acts[what](&w);
    }
    wind_up(&w);
    if (number % 16 == 0)
        replay(&w);
    ms_scheduler_destroy(w.s);
    ms_lengths_destroy(w.lengths);
}

static void test_histories(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < HISTORIES; i++)
        history(i);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_histories)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
