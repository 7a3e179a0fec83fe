/* history_test.c - random histories of a cluster whose changes are carried out by plans alone
 *
 * A world that is no more than a registry starts and ends workers as the plans say, in any
 * order of answers; constructors fail, workers die, ranks do not end, nodes are lost, and the
 * cluster is destroyed while it is changed. Whatever happens: each rank is there once, no
 * worker is started twice, an incarnation takes the place of an earlier one only, rank 0 ends
 * last, and a change that fails leaves nothing half made.
 */
#include "base/cleanup.h"
#include "base/test_random.h"
#include "cluster/bringup_plan.h"
#include "cluster/change_plan.h"
#include "cluster/end_plan.h"
#include "cluster/place_plan.h"
#include "cluster/test_cluster.h"

#include <errno.h>
#include <stdio.h>

enum { HISTORIES = 1000, CHANGES = 25, RANKS_MAX = 12, LUCK = 8 };

static struct world {
    struct ms_registry reg;
    struct ms_cluster *c;
    struct ms_change_plan plan;
    struct ms_bringup_plan bringup;
    struct ms_error err;
    uint64_t seed;
    bool is_unwanted; /* it is to be destroyed */
    uint32_t incarnation[RANKS_MAX], starts[RANKS_MAX];
    bool stays[RANKS_MAX]; /* not part of what is done now */
    uint64_t uids[RANKS_MAX];
    size_t size; /* before that */
    uint32_t port;
    unsigned done, failed, destroyed, moved; /* changes, for all histories */
} w;

static bool is_bad_luck(void)
{
    return test_roll(&w.seed, LUCK) == 0;
}

/* ---- ends ------------------------------------------------------------------------ */

/* The ranks of a wave end in any order; true: one did not. */
static bool end_wave(const struct ms_end_plan *plan, const struct ms_end_wave *wave)
{
    bool is_stuck = is_bad_luck() && is_bad_luck();

    for (uint32_t i = 0; i < w.c->count; i++) {
        struct ms_slot *s = &w.c->slots[i];

        if (!ms_end_plan_asks(plan, wave, s))
            continue;
        assert_true(plan->is_all || s->is_changing);
        if (s->rank == 0 && ms_slot_is_live(s) && wave->grace_ns > 0)
            for (uint32_t k = 1; k < w.c->count; k++) /* rank 0 is the last one */
                assert_false((plan->is_all || w.c->slots[k].is_changing) &&
                             ms_slot_is_live(&w.c->slots[k]));
        if (ms_slot_is_live(s) && !(is_stuck && is_bad_luck()))
            test_worker_exit(&w.reg, s->now.uid);
    }
    for (uint32_t i = 0; i < w.c->count; i++)
        if (ms_end_plan_asks(plan, wave, &w.c->slots[i]) &&
            ms_slot_is_live(&w.c->slots[i]))
            return true; /* the time will be up */
    return false;
}

static void end(bool is_all, int64_t grace_ns)
{
    struct ms_end_plan plan;
    struct ms_end_wave wave;

    ms_end_plan_init(&plan, w.c, is_all, grace_ns, 1);
    while (ms_end_plan_next(&plan, 2, &wave))
        if (end_wave(&plan, &wave))
            return;
    assert_int_equal(ms_end_plan_left(&plan, w.c), 0);
}

/* By force, which succeeds. */
static void kill_changing(void)
{
    ms_cluster_end_unstarted(&w.reg, w.c, false, "it was not started");
    ms_changing_each (s, w.c)
        if (ms_slot_is_live(s))
            test_worker_exit(&w.reg, s->now.uid);
}

/* ---- starts ---------------------------------------------------------------------- */

static void start_processes(void)
{
    ms_changing_each (s, w.c) {
        w.starts[s->rank]++;
        assert_int_equal(w.starts[s->rank], 1); /* once a change */
        assert_true(ms_slot_is_live(s) && !s->now.address);
        assert_true(s->now.incarnation > w.incarnation[s->rank]);
        w.incarnation[s->rank] = s->now.incarnation;
        if (is_bad_luck() && is_bad_luck())
            ms_error_set(&w.err, -ENOEXEC, "no such program");
        else
            test_worker_start(&w.reg, s->now.uid);
    }
}

/* A rank that has not answered, any of them; NULL: there is none. */
static struct ms_slot *any_open(void)
{
    uint32_t from = test_roll(&w.seed, (uint32_t)w.c->count);

    for (uint32_t i = 0; i < w.c->count; i++) {
        struct ms_slot *s = &w.c->slots[(from + i) % w.c->count];

        if (s->is_changing && !s->has_answered)
            return s;
    }
    return NULL;
}

/* One thing that can happen while constructors run. */
static struct ms_bringup_answer happen(void)
{
    struct ms_slot *s = any_open();
    bool counts;

    switch (test_roll(&w.seed, 12)) {
    case 0:
        w.is_unwanted = true;
        ms_error_set(&w.err, -ECANCELED, "it was destroyed");
        return ms_bringup_plan_cancel(&w.bringup, false);
    case 1: /* a constructor raises, or its worker dies */
        if (s && ms_slot_is_live(s) && is_bad_luck())
            test_worker_exit(&w.reg, s->now.uid);
        if (!s)
            break;
        ms_error_set(&w.err, -EREMOTEIO, "a constructor has failed");
        return ms_bringup_plan_rank_failed(&w.bringup, s, &counts);
    case 2:
        if (!w.err.code && w.bringup.is_late)
            ms_error_set(&w.err, -ETIMEDOUT, "constructors are slow");
        if (w.err.code || !w.bringup.is_late)
            return ms_bringup_plan_late(&w.bringup);
        break;
    default:
        if (!s)
            return ms_bringup_plan_late(&w.bringup);
        s->steps_sent = w.c->spec->n_steps;
        return ms_bringup_plan_rank_done(&w.bringup, s);
    }
    return (struct ms_bringup_answer){0};
}

static void bring_up(void)
{
    struct ms_bringup_answer next;

    ms_bringup_plan_init(&w.bringup, w.c, 0);
    start_processes();
    next = ms_bringup_plan_answered(&w.bringup, w.c, &w.err);
    if (next.what == MS_BRINGUP_DO_HELPERS)
        next = ms_bringup_plan_answered(&w.bringup, w.c, &w.err);
    while (next.what != MS_BRINGUP_DO_END && next.what != MS_BRINGUP_DO_DONE)
        next = happen();
    assert_int_equal(next.what == MS_BRINGUP_DO_END, w.err.code < 0);
    if (next.what == MS_BRINGUP_DO_END)
        kill_changing();
    ms_changing_each (s, w.c) /* all or none */
        assert_int_equal(ms_slot_is_live(s), w.err.code == 0);
}

/* ---- the other acts -------------------------------------------------------------- */

static void place(const Muster__RestartWorkers *r)
{
    ms_changing_each (s, w.c) {
        const struct ms_place_facts facts = {.is_lost = is_bad_luck()};
        struct ms_place_plan plan;
        Muster__RankPlace *to;

        assert_int_equal(ms_place_plan_init(&plan, s, r, &facts, &w.err), 0);
        if (!facts.is_lost)
            assert_true(ms_place_plan_is_empty(&plan));
        if (ms_place_plan_is_empty(&plan))
            continue;
        if (is_bad_luck()) {
            ms_error_set(&w.err, -ENOSPC, "there is no room");
            return;
        }
        to = test_place("other");
        assert_int_equal(ms_cluster_move(s, &to), 0);
        muster__rank_place__free_unpacked(to, NULL);
        w.moved++;
    }
}

static void add_ranks(uint32_t size)
{
    struct ms_slot_spec slots[RANKS_MAX] = {{0}};
    Muster__ClusterPlaced more = MUSTER__CLUSTER_PLACED__INIT;
    Muster__RankPlace *places[RANKS_MAX];

    if (is_bad_luck()) {
        ms_error_set(&w.err, -ENOSPC, "there is no room");
        return;
    }
    more.ranks = places;
    for (size_t i = w.c->count; i < size; i++) {
        slots[more.n_ranks] =
            (struct ms_slot_spec){.uid = test_next_uid(), .node = "n"};
        places[more.n_ranks++] = test_place("n");
    }
    assert_int_equal(ms_cluster_resize(&w.reg, w.c, slots, size), 0);
    assert_int_equal(ms_cluster_add_places(w.c, &more), 0);
}

static void hold_port(void)
{
    assert_true(!w.c->master || !w.c->master->port);
    if (!w.c->master)
        w.c->master = (Muster__PortHeld *)calloc(1, sizeof *w.c->master);
    muster__port_held__init(w.c->master);
    w.c->master->port = ++w.port;
}

static void carry_out(enum ms_act act,
                      const Muster__RestartWorkers *r,
                      const Muster__ResizeCluster *size)
{
    switch (act) {
    case MS_ACT_HOLD_PORT:
        hold_port();
        break;
    case MS_ACT_END:
        ms_change_plan_mark(&w.plan, w.c);
        end(false, w.plan.grace_ns);
        break;
    case MS_ACT_PLACE:
        place(r);
        break;
    case MS_ACT_ADD:
        add_ranks(size->world_size);
        break;
    case MS_ACT_START:
        ms_change_plan_mark(&w.plan, w.c);
        if (w.plan.renews)
            assert_int_equal(ms_cluster_renew(&w.reg, w.c, test_next_uid, &w.err), 0);
        bring_up();
        break;
    case MS_ACT_CUT:
        for (size_t i = w.plan.size; i < w.c->count; i++)
            assert_false(ms_slot_is_live(&w.c->slots[i]));
        ms_cluster_cut(&w.reg, w.c, w.plan.size);
        break;
    default: /* KEEP and TELL: nothing of a registry's */
        break;
    }
    if (act != MS_ACT_START && act != MS_ACT_DONE && is_bad_luck() && is_bad_luck())
        w.is_unwanted = true;
}

/* ---- what is true whatever has happened ------------------------------------------ */

static void look(void)
{
    memset(w.starts, 0, sizeof w.starts);
    w.size = w.c->count;
    for (uint32_t i = 0; i < w.size; i++) {
        w.uids[i] = w.c->slots[i].now.uid;
        w.stays[i] = true;
    }
    for (size_t i = 0; i < w.plan.rank_count; i++)
        if (w.plan.ranks[i] < w.size)
            w.stays[w.plan.ranks[i]] = false;
}

static void check(void)
{
    size_t live = 0;

    assert_int_equal(w.c->placed->n_ranks, w.c->count);
    for (uint32_t i = 0; i < w.c->count; i++) {
        const struct ms_slot *s = &w.c->slots[i];

        assert_int_equal(s->rank, i);
        assert_ptr_equal(ms_registry_find_uid(&w.reg, s->now.uid), s);
        live += ms_slot_is_live(s);
        if (i < w.size && w.stays[i])
            assert_int_equal(s->now.uid, w.uids[i]); /* others go on as they are */
        for (uint32_t k = 0; k < i; k++)
            assert_true(w.c->slots[k].now.uid != s->now.uid);
    }
    assert_int_equal(w.c->live, live);
    assert_int_equal(w.reg.live, live);
}

static void
check_restart(const Muster__RestartWorkers *r, uint32_t port, const char *node)
{
    assert_int_equal(w.c->count, w.size);
    if (port &&
        strcmp(w.c->slots[0].node, node) == 0) /* its ranks meet where they met */
        assert_int_equal(w.c->master->port, port);
    for (size_t i = 0; i < w.plan.rank_count; i++) {
        const struct ms_slot *s = &w.c->slots[w.plan.ranks[i]];

        if (r->end_only || w.starts[s->rank] == 0)
            assert_int_equal(s->now.uid, w.uids[s->rank]);
        else
            assert_int_equal(ms_slot_is_live(s), w.err.code == 0);
        if (r->end_only && !w.err.code)
            assert_false(ms_slot_is_live(s));
    }
}

static void check_resize(uint32_t size)
{
    size_t expected = w.err.code ? w.size : size;

    assert_int_equal(w.c->count, expected);
    for (uint32_t i = (uint32_t)w.size; !w.err.code && i < size; i++)
        assert_true(ms_slot_is_live(&w.c->slots[i]));
}

/* ---- histories ------------------------------------------------------------------- */

/* Carry out w.plan. */
static void run(const Muster__RestartWorkers *r, const Muster__ResizeCluster *size)
{
    enum ms_act act;
    bool was_cancelled;

    look();
    w.c->is_busy = true;
    do {
        was_cancelled = w.is_unwanted;
        act = ms_change_plan_next(&w.plan, w.c, was_cancelled, &w.err);
        carry_out(act, r, size);
    } while (act != MS_ACT_DONE);
    w.c->is_busy = false;
    ms_cluster_set_changing(w.c, w.c->count);
    check();
    w.done++;
    w.failed += w.err.code < 0;
}

static void create(void)
{
    uint32_t count = 1 + test_roll(&w.seed, RANKS_MAX);

    w.c = test_cluster_add(&w.reg, count);
    assert_int_equal(ms_change_plan_create(&w.plan, w.c->spec, count), 0);
    run(NULL, NULL);
    if (w.err.code)
        for (uint32_t i = 0; i < count; i++) /* undone as a whole */
            assert_true(!ms_slot_is_live(&w.c->slots[i]) || w.starts[i] == 0);
    else
        assert_int_equal(w.c->live, count);
    w.c->is_made = !w.err.code;
}

static void restart(void)
{
    Muster__RestartWorkers r = MUSTER__RESTART_WORKERS__INIT;
    uint32_t ranks[3];
    uint32_t port = w.c->master->port;
    char node[MS_NAME_MAX + 1];

    strcpy(node, w.c->slots[0].node);
    r.ranks = ranks;
    r.n_ranks = test_roll(&w.seed, 4);
    for (size_t i = 0; i < r.n_ranks; i++)
        ranks[i] = test_roll(&w.seed, (uint32_t)w.c->count);
    r.end_only = test_roll(&w.seed, 4) == 0;
    r.grace_ns = test_roll(&w.seed, 2) * 400;
    assert_int_equal(ms_change_plan_restart(&w.plan, w.c, &r, &w.err), 0);
    run(&r, NULL);
    check_restart(&r, port, node);
}

static void resize(void)
{
    Muster__ResizeCluster r = MUSTER__RESIZE_CLUSTER__INIT;

    r.world_size = 1 + test_roll(&w.seed, RANKS_MAX);
    r.grace_ns = test_roll(&w.seed, 2) * 400;
    assert_int_equal(ms_change_plan_resize(&w.plan, w.c, &r, &w.err), 0);
    run(NULL, &r);
    check_resize(r.world_size);
    for (uint32_t i = (uint32_t)w.c->count; i < RANKS_MAX; i++)
        w.incarnation[i] = 0; /* those that come later are other ones */
}

static void change(void)
{
    uint32_t dies = test_roll(&w.seed, (uint32_t)w.c->count);

    if (is_bad_luck() && ms_slot_is_live(&w.c->slots[dies]))
        test_worker_exit(&w.reg, w.c->slots[dies].now.uid);
    w.err = (struct ms_error){0};
    if (test_roll(&w.seed, 2))
        restart();
    else
        resize();
    ms_change_plan_finish(&w.plan);
}

static void begin(uint64_t number)
{
    unsigned done = w.done, failed = w.failed, destroyed = w.destroyed, moved = w.moved;

    w = (struct world){.seed = test_seed(number),
                       .done = done,
                       .failed = failed,
                       .destroyed = destroyed,
                       .moved = moved};
    ms_registry_init(&w.reg);
}

static void test_histories(void **state)
{
    (void)state;
    for (uint64_t number = 1; number <= HISTORIES; number++) {
        begin(number);
        create();
        ms_change_plan_finish(&w.plan);
        for (int i = 0; i < CHANGES && w.c->is_made && !w.is_unwanted; i++)
            change();
        if (w.is_unwanted && w.c->is_made) {
            w.destroyed++;
            end(true, 400);
        }
        ms_registry_finish(&w.reg);
    }
    /* all of it has happened */
    assert_true(w.done > HISTORIES && w.failed > 100 && w.destroyed > 50 &&
                w.moved > 20);
    assert_true(w.failed < w.done / 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_histories),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
