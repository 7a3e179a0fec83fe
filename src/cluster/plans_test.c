/* plans_test.c - the order of ends, the acts of changes and the places of restarted ranks, each
 * by a table
 */
#include "base/cleanup.h"
#include "base/proto.h"
#include "cluster/change_plan.h"
#include "cluster/end_plan.h"
#include "cluster/place_plan.h"
#include "cluster/test_cluster.h"

#include <errno.h>

static struct ms_registry reg;

static int setup(void **state)
{
    (void)state;
    ms_registry_init(&reg);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    ms_registry_finish(&reg);
    return 0;
}

/* ---- ends ------------------------------------------------------------------------ */

enum { RANKS = 4 };

static void test_order_of_an_end(void **state)
{
    static const struct {
        const char *why;
        int64_t grace_ns;
        bool is_all, alive[RANKS], changing[RANKS];
        const char *waves[2]; /* the ranks that are asked */
        int64_t graces_ns[2];
        bool cleans;
    } cases[] = {
        {"rank 0 ends last, with what is left of the grace",
         400,
         true,
         {1, 1, 1, 1},
         {0},
         {"123", "0"},
         {300, 250},
         true},
        {"without a grace all at once", 0, true, {1, 1, 1, 1}, {0}, {"0123"}, {0}, 0},
        {"dead ranks leave things to clean up",
         400,
         true,
         {1, 0, 1, 1},
         {0},
         {"123", "0"},
         {300, 250},
         true},
        {"rank 0 is dead", 400, true, {0, 1, 1, 1}, {0}, {"0123"}, {400}, false},
        {"rank 0 stays", 400, false, {1, 1, 1, 1}, {0, 1, 0, 1}, {"13"}, {400}, false},
        {"rank 0 alone", 400, false, {1, 1, 1, 1}, {1, 0, 0, 0}, {"0"}, {400}, false},
        {"rank 0 and another one",
         400,
         false,
         {1, 1, 1, 1},
         {1, 0, 1, 0},
         {"2", "0"},
         {300, 250},
         true},
    };

    (void)state;
    for (size_t i = 0; i < MS_COUNT(cases); i++) {
        struct ms_cluster *c = test_cluster_made(&reg, RANKS);
        struct ms_end_plan plan;
        struct ms_end_wave wave;
        size_t waves = 0;

        for (uint32_t rank = 0; rank < RANKS; rank++) {
            c->slots[rank].is_changing = cases[i].changing[rank];
            if (!cases[i].alive[rank])
                test_worker_exit(&reg, c->slots[rank].now.uid);
        }
        ms_end_plan_init(&plan, c, cases[i].is_all, cases[i].grace_ns, 1000);
        assert_int_equal(plan.cleans_first, cases[i].cleans);
        for (; ms_end_plan_next(&plan, 1150, &wave); waves++) {
            char asked[RANKS + 1] = "";

            for (uint32_t rank = 0; rank < RANKS; rank++)
                if (ms_end_plan_asks(&plan, &wave, &c->slots[rank]))
                    asked[strlen(asked)] = (char)('0' + rank);
            assert_true(waves < 2 && cases[i].waves[waves]);
            if (strcmp(asked, cases[i].waves[waves]) != 0 ||
                wave.grace_ns != cases[i].graces_ns[waves])
                fail_msg("%s: wave %zu asks %s with %d ns",
                         cases[i].why,
                         waves,
                         asked,
                         (int)wave.grace_ns);
        }
        assert_true(waves == 2 || !cases[i].waves[waves]);
        ms_registry_remove(&reg, c);
    }
}

/* The others have used up all of it. */
static void test_first_has_a_quarter(void **state)
{
    struct ms_cluster *c = test_cluster_made(&reg, RANKS);
    struct ms_end_plan plan;
    struct ms_end_wave wave;

    (void)state;
    ms_end_plan_init(&plan, c, true, 400, 1000);
    assert_true(ms_end_plan_next(&plan, 1000, &wave));
    assert_true(ms_end_plan_next(&plan, 9000, &wave));
    assert_int_equal(wave.grace_ns, 100);
    assert_int_equal(ms_end_plan_time_ns(&plan), MS_STOP_GRACE_NS + 400);
}

static void test_who_does_not_end(void **state)
{
    struct ms_cluster *c = test_cluster_made(&reg, RANKS);
    struct ms_error err = {0};
    struct ms_end_plan plan;

    (void)state;
    ms_end_plan_init(&plan, c, true, 0, 1000);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        if (rank != 2)
            test_worker_exit(&reg, c->slots[rank].now.uid);
    assert_int_equal(ms_end_plan_left(&plan, c), 1);
    assert_int_equal(ms_end_plan_late(&plan, c, &err), -ETIMEDOUT);
    assert_non_null(strstr(err.text, "1 of 4 workers"));
    assert_non_null(strstr(err.text, "rank 2"));
    test_worker_exit(&reg, c->slots[2].now.uid);
    assert_int_equal(ms_end_plan_left(&plan, c), 0);
}

/* ---- acts ------------------------------------------------------------------------ */

static const char *const act_names[] = {
    [MS_ACT_DONE] = "",
    [MS_ACT_KEEP] = "keep ",
    [MS_ACT_HOLD_PORT] = "port ",
    [MS_ACT_END] = "end ",
    [MS_ACT_PLACE] = "place ",
    [MS_ACT_ADD] = "add ",
    [MS_ACT_START] = "start ",
    [MS_ACT_CUT] = "cut ",
    [MS_ACT_TELL] = "tell ",
};

/* What goes wrong, and with which act. */
enum wrong { NOTHING, FAILS, DESTROYED, MOVED };

/* The acts of a plan, carried out by the words alone. */
static void expect_acts(struct ms_change_plan *p,
                        struct ms_cluster *c,
                        enum ms_act at,
                        enum wrong wrong,
                        const char *expected)
{
    char acts[64] = "";
    struct ms_error err = {0};
    enum ms_act act = MS_ACT_DONE;
    int count = 0;

    do {
        act = ms_change_plan_next(p, c, wrong == DESTROYED && act == at && count, &err);
        strcat(acts, act_names[act]);
        if (act == MS_ACT_END) {
            ms_change_plan_mark(p, c);
            ms_changing_each (s, c)
                test_worker_exit(&reg, s->now.uid);
        }
        if (act == at && wrong == FAILS)
            ms_error_set(&err, -EIO, "it fails");
        if (act == at && wrong == MOVED)
            c->master->port = 0;
        if (act == MS_ACT_HOLD_PORT && c->master)
            c->master->port = 29501;
        assert_true(++count < 10);
    } while (act != MS_ACT_DONE);
    if (strcmp(acts, expected) != 0)
        fail_msg("'%s', not '%s'", acts, expected);
    assert_int_equal(err.code < 0, wrong == FAILS || wrong == DESTROYED);
    ms_change_plan_finish(p);
}

static void test_acts_of_a_creation(void **state)
{
    struct ms_cluster *c = test_cluster_add(&reg, RANKS);
    struct ms_change_plan p = {0};
    static char beside[] = "other";

    (void)state;
    assert_int_equal(ms_change_plan_create(&p, c->spec, RANKS), 0);
    assert_int_equal(p.rank_count, RANKS);
    expect_acts(&p, c, MS_ACT_DONE, NOTHING, "keep port start ");
    ms_change_plan_create(&p, c->spec, RANKS);
    expect_acts(&p, c, MS_ACT_KEEP, FAILS, "keep ");
    ms_change_plan_create(&p, c->spec, RANKS);
    expect_acts(&p, c, MS_ACT_HOLD_PORT, DESTROYED, "keep port ");
    ms_change_plan_create(&p, c->spec, RANKS);
    expect_acts(&p, c, MS_ACT_START, FAILS, "keep port start ");
    c->spec->worker->start = MUSTER__START_KIND__START_COMMAND;
    ms_proto_set_text(&c->spec->beside, beside);
    ms_change_plan_create(&p, c->spec, RANKS);
    expect_acts(&p, c, MS_ACT_DONE, NOTHING, "keep start ");
}

static void test_acts_of_a_restart(void **state)
{
    static const struct {
        bool end_only;
        enum ms_act at;
        enum wrong wrong;
        const char *acts;
    } cases[] = {
        {false, MS_ACT_DONE, NOTHING, "end place start "}, /* its port stays held */
        {false, MS_ACT_PLACE, MOVED, "end place port start "},
        {false, MS_ACT_END, DESTROYED, "end "},
        {false, MS_ACT_END, FAILS, "end "},
        {false, MS_ACT_PLACE, FAILS, "end place "},
        {false, MS_ACT_START, FAILS, "end place start "},
        {true, MS_ACT_DONE, NOTHING, "end "},
        {true, MS_ACT_END, DESTROYED, "end "},
    };

    (void)state;
    for (size_t i = 0; i < MS_COUNT(cases); i++) {
        struct ms_cluster *c = test_cluster_made(&reg, RANKS);
        Muster__RestartWorkers w = MUSTER__RESTART_WORKERS__INIT;
        struct ms_change_plan p = {0};

        w.end_only = cases[i].end_only;
        assert_int_equal(ms_change_plan_restart(&p, c, &w, NULL), 0);
        assert_int_equal(p.rank_count, RANKS);
        expect_acts(&p, c, cases[i].at, cases[i].wrong, cases[i].acts);
        ms_registry_remove(&reg, c);
    }
}

static void test_acts_of_another_size(void **state)
{
    static const struct {
        uint32_t size;
        enum ms_act at;
        enum wrong wrong;
        const char *acts;
    } cases[] = {
        {6, MS_ACT_DONE, NOTHING, "add start tell "},
        {6, MS_ACT_ADD, FAILS, "add "},
        {6, MS_ACT_START, FAILS, "add start cut "}, /* as large as before */
        {2, MS_ACT_DONE, NOTHING, "end cut tell "},
        {2, MS_ACT_END, FAILS, "end "},
        {RANKS, MS_ACT_DONE, NOTHING, ""},
    };

    (void)state;
    for (size_t i = 0; i < MS_COUNT(cases); i++) {
        struct ms_cluster *c = test_cluster_made(&reg, RANKS);
        Muster__ResizeCluster w = MUSTER__RESIZE_CLUSTER__INIT;
        struct ms_change_plan p = {0};

        w.world_size = cases[i].size;
        assert_int_equal(ms_change_plan_resize(&p, c, &w, NULL), 0);
        assert_int_equal(p.size, w.world_size < RANKS ? w.world_size : RANKS);
        for (size_t k = 0; k < p.rank_count; k++) /* the last ones come and go */
            assert_int_equal(p.ranks[k], p.size + k);
        expect_acts(&p, c, cases[i].at, cases[i].wrong, cases[i].acts);
        ms_registry_remove(&reg, c);
    }
}

static void test_each_rank_once(void **state)
{
    struct ms_cluster *c = test_cluster_made(&reg, RANKS);
    Muster__RestartWorkers w = MUSTER__RESTART_WORKERS__INIT;
    struct ms_change_plan p = {0};
    uint32_t ranks[] = {3, 1, 3};

    (void)state;
    w.ranks = ranks;
    w.n_ranks = 3;
    assert_int_equal(ms_change_plan_restart(&p, c, &w, NULL), 0);
    assert_int_equal(p.rank_count, 2);
    assert_int_equal(p.ranks[0], 1);
    assert_int_equal(p.ranks[1], 3);
    ms_change_plan_mark(&p, c);
    for (uint32_t rank = 0; rank < RANKS; rank++)
        assert_int_equal(c->slots[rank].is_changing, rank % 2 == 1);
    ms_change_plan_finish(&p);
}

static void test_what_cannot_be(void **state)
{
    struct ms_cluster *c = test_cluster_made(&reg, RANKS);
    Muster__RestartWorkers w = MUSTER__RESTART_WORKERS__INIT;
    Muster__ResizeCluster size = MUSTER__RESIZE_CLUSTER__INIT;
    struct ms_change_plan p = {0};
    struct ms_error err = {0};
    uint32_t rank = RANKS;

    (void)state;
    assert_int_equal(ms_cluster_check_change(c, &err), 0);
    c->is_busy = true;
    assert_int_equal(ms_cluster_check_change(c, &err), -EBUSY);
    c->is_busy = false;
    c->state = MS_CLUSTER_STOPPING;
    assert_int_equal(ms_cluster_check_change(c, &err), -ENOENT);
    w.ranks = &rank;
    w.n_ranks = 1;
    assert_int_equal(ms_change_plan_restart(&p, c, &w, &err), -EINVAL);
    assert_non_null(strstr(err.text, "actor has no rank 4: it has 4"));
    assert_int_equal(ms_change_plan_resize(&p, c, &size, &err), -EINVAL);
    size.world_size = 2;
    c->spec->can_resize = false; /* it has tp, pp, cp or ep */
    assert_int_equal(ms_change_plan_resize(&p, c, &size, &err), -ENOTSUP);
    assert_non_null(strstr(err.text, "a mesh"));
    assert_null(p.ranks);
}

/* ---- places ---------------------------------------------------------------------- */

static const char *const try_names[] = {
    [MS_PLACE_STAY] = "stay ",
    [MS_PLACE_MEMORY] = "memory ",
    [MS_PLACE_AMONG] = "among ",
    [MS_PLACE_ANYWHERE] = "anywhere ",
};

static void test_places(void **state)
{
    static const struct {
        bool is_lost, is_elsewhere, is_named, is_unnamed, needs_memory, is_fixed;
        bool has_bundles, is_shared; /* of its own; with others in them */
        const char *tries;
    } cases[] = {
        {.tries = "stay "},
        {.is_lost = true, .tries = "anywhere "},
        {.is_elsewhere = true, .tries = "among stay "},
        {.is_elsewhere = true, .is_fixed = true, .tries = "stay "},
        {.is_named = true, .tries = "stay "},
        {.is_unnamed = true, .tries = "among "},
        {.is_lost = true, .is_unnamed = true, .tries = "among "},
        {.is_lost = true, .is_named = true, .tries = "anywhere "},
        {.needs_memory = true, .tries = "memory anywhere "},
        {.needs_memory = true, .is_named = true, .tries = "memory among "},
        {.needs_memory = true, .is_fixed = true, .tries = "memory "},
        {.needs_memory = true, .is_elsewhere = true, .tries = "among memory anywhere "},
        {.needs_memory = true, .has_bundles = true, .tries = "anywhere "},
        {.needs_memory = true,
         .has_bundles = true,
         .is_named = true,
         .tries = "among "},
        {.is_elsewhere = true, .has_bundles = true, .tries = "among stay "},
        {.is_elsewhere = true,
         .has_bundles = true,
         .is_shared = true,
         .tries = "stay "},
        {.is_lost = true, .has_bundles = true, .is_named = true, .tries = "among "},
    };
    static char here[] = "n0", there[] = "n7";
    char *with_here[] = {here, there}, *only_there[] = {there};
    uint32_t rank = 1;

    (void)state;
    for (size_t i = 0; i < MS_COUNT(cases); i++) {
        struct ms_cluster *c = test_cluster_made(&reg, RANKS);
        Muster__RestartWorkers w = MUSTER__RESTART_WORKERS__INIT;
        struct ms_place_facts facts = {0};
        struct ms_place_plan plan;
        char tries[64] = "";

        if (cases[i].has_bundles)
            c->spec->place->own_group =
                (Muster__PlaceGroup *)ms_proto_create(&muster__place_group__descriptor);
        w.elsewhere = &rank;
        w.n_elsewhere = cases[i].is_elsewhere;
        w.nodes = cases[i].is_named ? with_here : only_there;
        w.n_nodes = cases[i].is_named ? 2 : cases[i].is_unnamed;
        c->spec->worker->memory_limit = cases[i].needs_memory ? 1 << 20 : 0;
        if (cases[i].is_fixed) {
            c->spec->place->devices = calloc(1, sizeof(uint32_t));
            c->spec->place->n_devices = 1;
        }
        facts.is_lost = cases[i].is_lost;
        facts.is_shared = cases[i].is_shared;
        assert_int_equal(ms_place_plan_init(&plan, &c->slots[rank], &w, &facts, NULL),
                         0);
        do
            strcat(tries, try_names[plan.tries[plan.at]]);
        while (ms_place_plan_goes_on(&plan, -ENOSPC));
        if (strcmp(tries, cases[i].tries) != 0)
            fail_msg("case %zu: '%s', not '%s'", i, tries, cases[i].tries);
        ms_registry_remove(&reg, c);
    }
}

/* Only for want of room a rank that is to have more memory leaves its node. */
static void test_memory_that_fails(void **state)
{
    struct ms_cluster *c = test_cluster_made(&reg, RANKS);
    Muster__RestartWorkers w = MUSTER__RESTART_WORKERS__INIT;
    const struct ms_place_facts here = {0};
    struct ms_place_plan plan;

    (void)state;
    c->spec->worker->memory_limit = 1;
    ms_place_plan_init(&plan, &c->slots[1], &w, &here, NULL);
    assert_int_equal(plan.tries[plan.at], MS_PLACE_MEMORY);
    assert_false(ms_place_plan_goes_on(&plan, -ENOMEM));
}

static void test_nodes_to_move_to(void **state)
{
    struct ms_cluster *c = test_cluster_made(&reg, RANKS);
    Muster__RestartWorkers w = MUSTER__RESTART_WORKERS__INIT;
    Muster__Scope scope = MUSTER__SCOPE__INIT;
    static char here[] = "n0", there[] = "n7", lost[] = "n9";
    char *asked[] = {here, lost, there};
    uint32_t rank = 1;
    char **names;

    (void)state;
    w.elsewhere = &rank;
    w.n_elsewhere = 1;
    scope.nodes = asked;
    scope.n_nodes = 3;
    names = ms_place_plan_nodes(&w, &c->slots[rank], &scope);
    assert_int_equal(scope.n_nodes, 2);
    assert_string_equal(names[0], lost);
    assert_string_equal(names[1], there);
    free(names);
}

static void test_port_of_a_rank_0_that_moves(void **state)
{
    struct ms_cluster *c = test_cluster_made(&reg, RANKS);
    Muster__RankPlace *place = test_place("n7");

    (void)state;
    assert_int_equal(ms_cluster_move(&c->slots[1], &place), 0);
    assert_string_equal(c->slots[1].node, "n7");
    assert_string_equal(c->placed->ranks[1]->pieces[0]->node, "n7");
    assert_string_equal(place->pieces[0]->node, "n0"); /* the one before */
    assert_int_equal(c->master->port, 29500);
    assert_int_equal(ms_cluster_move(&c->slots[0], &place), 0);
    assert_int_equal(c->master->port, 29500); /* on the same node */
    muster__rank_place__free_unpacked(place, NULL);
    place = test_place("n7");
    assert_int_equal(ms_cluster_move(&c->slots[0], &place), 0);
    assert_int_equal(c->master->port, 0);
    muster__rank_place__free_unpacked(place, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_order_of_an_end, setup, teardown),
        cmocka_unit_test_setup_teardown(test_first_has_a_quarter, setup, teardown),
        cmocka_unit_test_setup_teardown(test_who_does_not_end, setup, teardown),
        cmocka_unit_test_setup_teardown(test_acts_of_a_creation, setup, teardown),
        cmocka_unit_test_setup_teardown(test_acts_of_a_restart, setup, teardown),
        cmocka_unit_test_setup_teardown(test_acts_of_another_size, setup, teardown),
        cmocka_unit_test_setup_teardown(test_each_rank_once, setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_cannot_be, setup, teardown),
        cmocka_unit_test_setup_teardown(test_places, setup, teardown),
        cmocka_unit_test_setup_teardown(test_memory_that_fails, setup, teardown),
        cmocka_unit_test_setup_teardown(test_nodes_to_move_to, setup, teardown),
        cmocka_unit_test_setup_teardown(
            test_port_of_a_rank_0_that_moves, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
