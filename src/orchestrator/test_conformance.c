/* test_conformance.c - what every orchestrator must do, as tests that run on each of them */
#include "orchestrator/test_conformance.h"

#include "base/cleanup.h"
#include "base/clock.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { PIECES_MAX = 64, EVENTS_MAX = 4096, TEXT_MAX = 64, STEPS = 200 };

/* ---- asking and waiting --------------------------------------------------------------- */

/* A copy of what a completion told. */
struct told {
    bool done;
    int times, rc;
    struct ms_error why;
    size_t reservations, pieces;
    struct ms_lent_piece piece[PIECES_MAX]; /* of the first reservation; no devices */
    char nodes[PIECES_MAX][TEXT_MAX];
    uint64_t cursor;
    uint32_t first;
};

static void on_done(void *arg,
                    int rc,
                    const struct ms_error *why,
                    const struct ms_orch_answer *answer)
{
    struct told *t = arg;

    t->done = true;
    t->times++;
    t->rc = rc;
    if (rc < 0) {
        t->why = *why;
        return;
    }
    t->reservations = answer->count;
    t->cursor = answer->cursor;
    t->first = answer->first;
    t->pieces = answer->count ? answer->reservations[0].count : 0;
    assert_in_range(t->pieces, 0, PIECES_MAX);
    for (size_t i = 0; i < t->pieces; i++) {
        t->piece[i] = *answer->reservations[0].pieces[i];
        snprintf(t->nodes[i], TEXT_MAX, "%s", t->piece[i].node ? t->piece[i].node : "");
    }
}

static void wait_for(struct ms_rig *rig, struct told *t)
{
    assert_true(rig->ops->run(rig, &t->done, rig->ops->patience_ns));
    assert_int_equal(t->times, 1);
    if (t->rc == -ECHILD ||
        t->rc == -EIO) /* the backend's fault: its words are needed */
        print_message("# %s\n", t->why.text);
}

static void on_time(void *arg)
{
    *(bool *)arg = true;
}

bool ms_rig_run_loop(struct ms_loop *loop,
                     const bool *until,
                     int64_t timeout_ns,
                     bool (*is_quiet)(void *arg),
                     void *arg)
{
    struct ms_timer timer;
    bool is_late = false;

    assert_int_equal(ms_timer_init(&timer, loop, on_time, &is_late), 0);
    assert_int_equal(ms_timer_set(&timer, timeout_ns), 0);
    while (!*until && !is_late && !(is_quiet && is_quiet(arg)))
        assert_int_equal(ms_loop_run_once(loop, true), 0);
    ms_timer_finish(&timer);
    return *until;
}

static const struct ms_agent_start no_agent = {0};

/* `count` pieces of that many CPUs. */
static struct ms_reserve
wanted(const char *key, struct ms_bundle *bundles, size_t count, uint32_t cpus)
{
    for (size_t i = 0; i < count; i++)
        bundles[i] = (struct ms_bundle){.cpu_milli = cpus * 1000U};
    return (struct ms_reserve){.key = key,
                               .pieces = {.name = key,
                                          .bundles = bundles,
                                          .count = count,
                                          .strategy = MS_STRATEGY_PACK},
                               .agent = &no_agent,
                               .timeout_ns = 600 * MS_NS_PER_S};
}

static struct told reserve(struct ms_rig *rig,
                           struct ms_orchestrator *o,
                           const char *key,
                           size_t count,
                           uint32_t cpus)
{
    struct ms_bundle bundles[PIECES_MAX];
    struct ms_reserve r = wanted(key, bundles, count, cpus);
    struct told t = {0};

    assert_non_null(o->ops->reserve(o, &r, on_done, &t));
    assert_false(t.done); /* never from inside */
    wait_for(rig, &t);
    return t;
}

static struct told list(struct ms_rig *rig, struct ms_orchestrator *o, const char *key)
{
    struct told t = {0};

    assert_non_null(o->ops->list(o, key, on_done, &t));
    wait_for(rig, &t);
    return t;
}

static int release(struct ms_rig *rig,
                   struct ms_orchestrator *o,
                   const char *key,
                   const uint32_t *numbers,
                   size_t count)
{
    struct told t = {0};

    assert_non_null(o->ops->release(o, key, numbers, count, on_done, &t));
    wait_for(rig, &t);
    return t.rc;
}

/* ---- watching --------------------------------------------------------------------------- */

struct heard {
    int rc;
    bool stops; /* set when what is waited for was heard */
    uint64_t cursor;
    size_t count, gone;
    struct ms_lent_piece last[PIECES_MAX]; /* by number; texts are not kept */
    size_t of[PIECES_MAX];
    enum ms_phase wanted;
    size_t wanted_count;
};

static void on_event(void *arg, int rc, const struct ms_orch_event *e)
{
    struct heard *h = arg;
    size_t have = 0;

    if (rc < 0) {
        h->rc = rc;
        h->stops = true;
        return;
    }
    assert_true(e->cursor > h->cursor); /* in order, each once */
    h->cursor = e->cursor;
    h->count++;
    h->gone += e->gone;
    assert_in_range(e->piece->number, 0, PIECES_MAX - 1);
    if (!e->gone) {
        const struct ms_lent_piece *before = &h->last[e->piece->number];

        assert_true(e->piece->incarnation >= before->incarnation);
        if (e->piece->incarnation == before->incarnation)
            assert_true(e->piece->phase >= before->phase);
        h->last[e->piece->number] = *e->piece;
    }
    for (size_t i = 0; i < PIECES_MAX; i++)
        have += h->last[i].incarnation && h->last[i].phase == h->wanted;
    if (h->wanted_count && have >= h->wanted_count)
        h->stops = true;
}

/* What a backend cannot do is not tested, and that is said. */
static void skip_for(const struct ms_orchestrator *o, const char *what)
{
    print_message("# skipped: %s cannot %s\n", o->ops->name, what);
}

/* ---- the tests --------------------------------------------------------------------------- */

static void test_lends_and_takes_back(void **state)
{
    struct ms_rig *rig = *state;
    struct ms_orchestrator *o = rig->ops->open(rig, false);
    struct told t = reserve(rig, o, "gang", 6, 2);

    assert_int_equal(t.rc, 0);
    assert_int_equal(t.pieces, 6);
    for (uint32_t i = 0; i < 6; i++) {
        assert_int_equal(t.piece[i].number, i);
        assert_int_equal(t.piece[i].incarnation, 1);
        assert_int_equal(t.piece[i].phase, MS_PHASE_RUNNING);
        assert_true(t.nodes[i][0] != 0);
    }
    assert_int_equal(rig->ops->held(rig), 6);
    assert_int_equal(release(rig, o, "gang", NULL, 0), 0);
    assert_int_equal(rig->ops->held(rig), 0);
    assert_int_equal(list(rig, o, NULL).reservations, 0);
}

static void test_all_or_none_by_the_deadline(void **state)
{
    struct ms_rig *rig = *state;
    struct ms_orchestrator *o = rig->ops->open(rig, false);
    struct ms_bundle bundles[PIECES_MAX];
    struct ms_reserve r =
        wanted("wide", bundles, MS_RIG_NODES + 1, MS_RIG_CPUS); /* one too many */
    struct told t = {0};

    r.timeout_ns = 10 * MS_NS_PER_S;
    assert_non_null(o->ops->reserve(o, &r, on_done, &t));
    wait_for(rig, &t);
    assert_int_equal(t.rc, -ETIMEDOUT);
    assert_non_null(strstr(t.why.text, "wide"));
    assert_true(strlen(t.why.text) > strlen("wide: not lent in time: ")); /* and why */
    assert_int_equal(rig->ops->held(rig), 0);
    assert_int_equal(list(rig, o, "wide").rc, -ENOENT);
}

static void test_waits_for_room(void **state)
{
    struct ms_rig *rig = *state;
    struct ms_orchestrator *o = rig->ops->open(rig, false);
    struct ms_bundle bundles[PIECES_MAX];
    struct ms_reserve r = wanted("second", bundles, 2, MS_RIG_CPUS);
    struct told t = {0};

    assert_int_equal(reserve(rig, o, "first", MS_RIG_NODES, MS_RIG_CPUS).rc, 0);
    assert_non_null(o->ops->reserve(o, &r, on_done, &t));
    assert_int_equal(release(rig, o, "first", NULL, 0), 0);
    wait_for(rig, &t);
    assert_int_equal(t.rc, 0);
    assert_int_equal(release(rig, o, "second", NULL, 0), 0);
}

static void test_longest_key(void **state)
{
    struct ms_rig *rig = *state;
    struct ms_orchestrator *o = rig->ops->open(rig, false);
    char key[MS_ORCH_KEY_MAX + 2] = "";

    memset(key, 'k', MS_ORCH_KEY_MAX);
    assert_int_equal(reserve(rig, o, key, 1, 1).rc, 0);
    key[MS_ORCH_KEY_MAX] = 'k'; /* another one, that nothing can have */
    release(rig, o, key, NULL, 0);
    assert_int_equal(list(rig, o, key).rc, -ENOENT);
    assert_int_equal(rig->ops->held(rig), 1);
    key[MS_ORCH_KEY_MAX] = 0;
    assert_int_equal(release(rig, o, key, NULL, 0), 0);
}

static void test_the_same_again(void **state)
{
    struct ms_rig *rig = *state;
    struct ms_orchestrator *o = rig->ops->open(rig, false);
    struct told t;

    assert_int_equal(reserve(rig, o, "same", 3, 1).rc, 0);
    t = reserve(rig, o, "same", 3, 1);
    assert_int_equal(t.rc, 0);
    assert_int_equal(t.pieces, 3);
    assert_int_equal(rig->ops->held(rig), 3);
    t = reserve(rig, o, "same", 2, 1);
    assert_int_equal(t.rc, -EEXIST);
    assert_int_equal(rig->ops->held(rig), 3);
    assert_int_equal(release(rig, o, "same", NULL, 0), 0);
    assert_int_equal(release(rig, o, "same", NULL, 0), 0); /* it is not there */
    assert_int_equal(release(rig, o, "never", NULL, 0), 0);
}

static void test_wrong_requests(void **state)
{
    struct ms_rig *rig = *state;
    struct ms_orchestrator *o = rig->ops->open(rig, false);

    assert_int_equal(reserve(rig, o, "none", 0, 1).rc, -EINVAL);
    assert_int_equal(reserve(rig, o, "../../etc", 1, 1).rc, -EINVAL);
    assert_int_equal(reserve(rig, o, "", 1, 1).rc, -EINVAL);
    assert_int_equal(rig->ops->held(rig), 0);
}

static void test_cancel(void **state)
{
    struct ms_rig *rig = *state;
    struct ms_orchestrator *o = rig->ops->open(rig, false);
    struct ms_bundle bundles[PIECES_MAX];
    struct ms_reserve r = wanted("gone", bundles, MS_RIG_NODES + 1, MS_RIG_CPUS);
    struct told t = {0};
    struct ms_orch_op *op = o->ops->reserve(o, &r, on_done, &t);
    bool never = false;

    assert_non_null(op);
    assert_false(rig->ops->run(rig, &never, MS_NS_PER_S)); /* it is on its way */
    assert_false(t.done);
    o->ops->cancel(op);
    assert_false(t.done);
    wait_for(rig, &t);
    assert_int_equal(t.rc, -ECANCELED);
    assert_int_equal(rig->ops->held(rig), 0);
    assert_int_equal(list(rig, o, "gone").rc, -ENOENT);
    assert_false(rig->ops->run(rig, &never, MS_NS_PER_S));
    assert_int_equal(t.times, 1);
}

static void test_grows_and_shrinks(void **state)
{
    static const uint32_t two[] = {0, 2};
    struct ms_rig *rig = *state;
    struct ms_orchestrator *o = rig->ops->open(rig, false);
    struct ms_bundle bundles[PIECES_MAX];
    struct ms_reserve more = wanted("role", bundles, 2, 1);
    struct told t = {0};

    if (!(o->ops->can & MS_ORCH_GROW)) {
        skip_for(o, "grow piece by piece");
        return;
    }
    assert_int_equal(reserve(rig, o, "role", 3, 1).rc, 0);
    more.is_more = true;
    assert_non_null(o->ops->reserve(o, &more, on_done, &t));
    wait_for(rig, &t);
    assert_int_equal(t.rc, 0);
    assert_int_equal(t.pieces, 5);
    assert_int_equal(t.first, 3);
    assert_int_equal(rig->ops->held(rig), 5);
    assert_int_equal(release(rig, o, "role", two, 2), 0);
    assert_int_equal(rig->ops->held(rig), 3);
    t = list(rig, o, "role");
    assert_int_equal(t.pieces, 3);
    assert_int_equal(t.piece[0].number, 1); /* numbers stay */
    assert_int_equal(t.piece[2].number, 4);
    more.key = "unknown";
    t = (struct told){0};
    assert_non_null(o->ops->reserve(o, &more, on_done, &t));
    wait_for(rig, &t);
    assert_int_equal(t.rc, -ENOENT);
    assert_int_equal(release(rig, o, "role", NULL, 0), 0);
}

static void test_watch_hears_of_ends(void **state)
{
    struct ms_rig *rig = *state;
    struct ms_orchestrator *o = rig->ops->open(rig, false);
    struct heard h = {.wanted = MS_PHASE_ENDED, .wanted_count = 1};
    struct ms_orch_watch *w;
    struct told t;

    /* each on its own node: those of one node may share an agent */
    assert_int_equal(reserve(rig, o, "watched", 3, MS_RIG_CPUS).rc, 0);
    h.cursor = list(rig, o, NULL).cursor;
    w = o->ops->watch(o, h.cursor, on_event, &h);
    assert_non_null(w);
    rig->ops->end_piece(rig, "watched", 1, 7);
    assert_true(rig->ops->run(rig, &h.stops, rig->ops->patience_ns));
    assert_int_equal(h.rc, 0);
    assert_int_equal(h.last[1].phase, MS_PHASE_ENDED);
    assert_int_equal(h.last[1].cause, MS_CAUSE_EXITED);
    assert_int_equal(h.last[1].code, 7);
    assert_int_equal(h.last[0].phase, MS_PHASE_PENDING); /* nothing was heard of it */
    o->ops->unwatch(w);
    t = list(rig, o, "watched");
    assert_int_equal(t.piece[1].cause, MS_CAUSE_EXITED);
    assert_int_equal(t.piece[0].phase, MS_PHASE_RUNNING);
    t = reserve(rig, o, "watched", 3, MS_RIG_CPUS); /* the same again, as it is now */
    assert_int_equal(t.rc, 0);
    assert_int_equal(t.piece[0].phase, MS_PHASE_RUNNING);
    assert_int_equal(t.piece[1].phase, MS_PHASE_ENDED);
    assert_int_equal(rig->ops->held(rig), 2);
    assert_int_equal(release(rig, o, "watched", NULL, 0), 0);
    assert_int_equal(rig->ops->held(rig), 0);
}

static void test_watch_resumes_without_a_gap(void **state)
{
    struct ms_rig *rig = *state;
    struct ms_orchestrator *o = rig->ops->open(rig, false);
    uint64_t start = list(rig, o, NULL).cursor;
    struct heard whole = {
        .cursor = start, .wanted = MS_PHASE_RUNNING, .wanted_count = 4};
    struct heard first = whole, second = whole;
    struct ms_orch_watch *w;

    first.wanted_count = 1;
    w = o->ops->watch(o, start, on_event, &first);
    assert_int_equal(reserve(rig, o, "resumed", 4, 1).rc, 0);
    assert_true(rig->ops->run(rig, &first.stops, rig->ops->patience_ns));
    o->ops->unwatch(w);
    memcpy(second.last, first.last, sizeof second.last);
    second.cursor = first.cursor;
    w = o->ops->watch(o, second.cursor, on_event, &second);
    assert_non_null(o->ops->watch(o, start, on_event, &whole));
    assert_true(rig->ops->run(rig, &whole.stops, rig->ops->patience_ns));
    if (first.count < whole.count)
        assert_true(rig->ops->run(rig, &second.stops, rig->ops->patience_ns));
    assert_int_equal(first.count + second.count, whole.count);
    o->ops->unwatch(w);
    assert_int_equal(release(rig, o, "resumed", NULL, 0), 0);
}

static void test_watch_from_nowhere_is_stale(void **state)
{
    struct ms_rig *rig = *state;
    struct ms_orchestrator *o = rig->ops->open(rig, false);
    struct heard h = {0};

    assert_non_null(o->ops->watch(o, UINT64_MAX, on_event, &h));
    assert_true(rig->ops->run(rig, &h.stops, rig->ops->patience_ns));
    assert_int_equal(h.rc, -ESTALE);
}

static void test_lost_node(void **state)
{
    struct ms_rig *rig = *state;
    struct ms_orchestrator *o = rig->ops->open(rig, false);
    struct heard h = {.wanted = MS_PHASE_ENDED, .wanted_count = 1};
    struct told t;

    if (!rig->ops->kill_node) {
        skip_for(o, "lose a node");
        return;
    }
    t = reserve(rig, o, "spread", 2, MS_RIG_CPUS);
    assert_int_equal(t.rc, 0);
    assert_string_not_equal(t.nodes[0], t.nodes[1]);
    h.cursor = list(rig, o, NULL).cursor;
    assert_non_null(o->ops->watch(o, h.cursor, on_event, &h));
    rig->ops->kill_node(rig, t.nodes[1]);
    assert_true(rig->ops->run(rig, &h.stops, rig->ops->patience_ns));
    assert_int_equal(h.last[1].cause, MS_CAUSE_NODE_LOST);
    assert_int_equal(release(rig, o, "spread", NULL, 0), 0);
}

static void test_avoid(void **state)
{
    struct ms_rig *rig = *state;
    struct ms_orchestrator *o = rig->ops->open(rig, false);
    struct told t = {0}, first;
    char avoided[TEXT_MAX];

    if (!(o->ops->can & MS_ORCH_AVOID)) {
        skip_for(o, "avoid a node");
        return;
    }
    first = reserve(rig, o, "first", 1, MS_RIG_CPUS);
    memcpy(avoided, first.nodes[0], sizeof avoided);
    assert_int_equal(release(rig, o, "first", NULL, 0), 0);
    assert_non_null(o->ops->avoid(o, avoided, "it was slow", on_done, &t));
    wait_for(rig, &t);
    assert_int_equal(t.rc, 0);
    t = reserve(rig, o, "rest", MS_RIG_NODES - 1, MS_RIG_CPUS);
    assert_int_equal(t.rc, 0);
    for (size_t i = 0; i < t.pieces; i++)
        assert_string_not_equal(t.nodes[i], avoided);
    assert_int_equal(release(rig, o, "rest", NULL, 0), 0);
}

static void test_could_not_ask_is_not_nothing(void **state)
{
    struct ms_rig *rig = *state;
    struct ms_orchestrator *o = rig->ops->open(rig, false);

    if (!rig->ops->silence) {
        skip_for(o, "fall silent");
        return;
    }
    assert_int_equal(reserve(rig, o, "quiet", 2, 1).rc, 0);
    rig->ops->silence(rig, 120 * MS_NS_PER_S);
    assert_int_equal(list(rig, o, NULL).rc, -EAGAIN);
    while (list(rig, o, NULL).rc == -EAGAIN)
        ;
    assert_int_equal(list(rig, o, "quiet").pieces, 2);
    rig->ops->silence(rig, 60 * MS_NS_PER_S);
    assert_int_equal(reserve(rig, o, "later", 1, 1).rc, 0); /* it asks on */
    assert_int_equal(release(rig, o, "quiet", NULL, 0), 0);
    assert_int_equal(release(rig, o, "later", NULL, 0), 0);
}

static void controller_goes(struct ms_rig *rig, bool killed)
{
    struct ms_orchestrator *o = rig->ops->open(rig, false);
    bool durable = o->ops->can & MS_ORCH_DURABLE, never = false;
    const uint32_t first = 0;
    struct told t;

    assert_int_equal(reserve(rig, o, "kept", 3, 1).rc, 0);
    o = rig->ops->open(rig, killed);
    t = list(rig, o, NULL);
    assert_int_equal(t.rc, 0);
    if (durable) {
        assert_int_equal(t.reservations, 1);
        assert_int_equal(t.pieces, 3);
        assert_int_equal(reserve(rig, o, "kept", 3, 1).rc, 0); /* it is its own again */
        assert_int_equal(rig->ops->held(rig), 3);
        assert_int_equal(reserve(rig, o, "kept", 4, 1).rc, -EEXIST);
        assert_int_equal(release(rig, o, "kept", &first, 1), 0);
        o = rig->ops->open(rig, killed);
        t = list(rig, o, NULL);
        assert_int_equal(t.pieces, 2); /* and none that was */
        assert_int_equal(t.piece[0].number, 1);
        assert_int_equal(release(rig, o, "kept", NULL, 0), 0);
    } else {
        /* the backend itself is asked: nobody tells a controller what another one had */
        for (int i = 0; i < STEPS && rig->ops->held(rig) > 0; i++)
            rig->ops->run(rig, &never, rig->ops->patience_ns / STEPS);
    }
    assert_int_equal(rig->ops->held(rig), 0);
}

static void test_controller_ends(void **state)
{
    controller_goes(*state, false);
}

static void test_controller_is_killed(void **state)
{
    controller_goes(*state, true);
}

/* ---- running ----------------------------------------------------------------------------- */

static const struct ms_conformance *current; /* whose rig it is */

/* The state that a test begins with is the way to have its rig. */
static int setup(void **state)
{
    current = *state;
    *state = current->make(current->arg);
    return *state ? 0 : -1;
}

static int teardown(void **state)
{
    current->destroy(*state);
    return 0;
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

static const struct CMUnitTest suite[] = {
    TEST(test_lends_and_takes_back),
    TEST(test_all_or_none_by_the_deadline),
    TEST(test_waits_for_room),
    TEST(test_the_same_again),
    TEST(test_longest_key),
    TEST(test_wrong_requests),
    TEST(test_cancel),
    TEST(test_grows_and_shrinks),
    TEST(test_watch_hears_of_ends),
    TEST(test_watch_resumes_without_a_gap),
    TEST(test_watch_from_nowhere_is_stale),
    TEST(test_lost_node),
    TEST(test_avoid),
    TEST(test_could_not_ask_is_not_nothing),
    TEST(test_controller_ends),
    TEST(test_controller_is_killed),
};

enum { SUITE = MS_COUNT(suite), SHOWN_MAX = 96 };

int ms_conformance_run(const struct ms_conformance *all,
                       size_t count,
                       const struct CMUnitTest *more,
                       size_t more_count)
{
    size_t total = more_count + count * SUITE;
    struct CMUnitTest *tests = calloc(total, sizeof *tests);
    char(*names)[SHOWN_MAX] = calloc(total, sizeof *names);
    int failed = -1;

    for (size_t i = 0; tests && names && i < total; i++) {
        size_t at = i - more_count;

        if (i < more_count) {
            tests[i] = more[i];
            continue;
        }
        tests[i] = suite[at % SUITE];
        snprintf(names[i], SHOWN_MAX, "%s: %s", all[at / SUITE].name, tests[i].name);
        tests[i].name = names[i];
        tests[i].initial_state = (void *)(uintptr_t)&all[at / SUITE];
    }
    if (tests && names)
        failed = _cmocka_run_group_tests("tests", tests, total, NULL, NULL);
    free(tests);
    free(names);
    return failed;
}
