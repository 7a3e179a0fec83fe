/* plan_test.c - tests of plan.h: from a cluster's spec and its places to what each
 * process is started with */
#include "base/cleanup.h"
#include "cluster/plan.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { DEVICES = 8, RANKS = 8 };

/* Two nodes of eight devices and three ranks: two on the first node, one on the second. */
struct rig {
    Muster__Device devices[DEVICES], *device_list[DEVICES];
    char ids[DEVICES][4];
    Muster__NodeShape shape;
    bool is_unknown; /* nobody has told what the nodes have */
    uint32_t numbers[RANKS][4];
    Muster__Piece pieces[RANKS][2], *piece_list[RANKS][2];
    Muster__RankPlace ranks[RANKS], *rank_list[RANKS];
    Muster__ClusterPlaced placed;
    char *env[8];
    Muster__WorkerSpec worker;
    Muster__ClusterSpec spec;
    struct ms_plan plan;
};

static const Muster__NodeShape *shape_of(void *arg, const char *node)
{
    struct rig *rig = arg;

    (void)node;
    return rig->is_unknown ? NULL : &rig->shape;
}

static void set_shape(struct rig *rig)
{
    static char variable[] = "CUDA_VISIBLE_DEVICES";

    muster__node_shape__init(&rig->shape);
    for (int i = 0; i < DEVICES; i++) {
        muster__device__init(&rig->devices[i]);
        snprintf(rig->ids[i], sizeof rig->ids[i], "%d", i);
        rig->devices[i].id = rig->ids[i];
        rig->devices[i].variable = variable;
        rig->device_list[i] = &rig->devices[i];
    }
    rig->shape.devices = rig->device_list;
    rig->shape.n_devices = DEVICES;
}

/* A rank with two devices from `first` on. */
static void place(struct rig *rig, uint32_t rank, char *node, uint32_t first)
{
    Muster__Piece *p = &rig->pieces[rank][0];

    muster__piece__init(p);
    rig->numbers[rank][0] = first;
    rig->numbers[rank][1] = first + 1;
    p->node = node;
    p->devices = rig->numbers[rank];
    p->n_devices = 2;
    rig->piece_list[rank][0] = p;
    muster__rank_place__init(&rig->ranks[rank]);
    rig->ranks[rank].pieces = rig->piece_list[rank];
    rig->ranks[rank].n_pieces = 1;
    rig->rank_list[rank] = &rig->ranks[rank];
    rig->placed.n_ranks = rank + 1;
}

static struct rig *rig_create(void)
{
    static char name[] = "actor", n0[] = "n0", n1[] = "n1";
    struct rig *rig = calloc(1, sizeof *rig);

    set_shape(rig);
    muster__cluster_placed__init(&rig->placed);
    rig->placed.ranks = rig->rank_list;
    place(rig, 0, n0, 4);
    place(rig, 1, n0, 6);
    place(rig, 2, n1, 0);
    muster__worker_spec__init(&rig->worker);
    muster__cluster_spec__init(&rig->spec);
    rig->worker.env = rig->env;
    rig->spec.name = name;
    rig->spec.worker = &rig->worker;
    rig->plan = (struct ms_plan){.spec = &rig->spec,
                                 .placed = &rig->placed,
                                 .master_host = "127.0.0.1",
                                 .master_port = 29500,
                                 .shape_of = shape_of,
                                 .arg = rig};
    return rig;
}

static void rig_destroy(struct rig **rig)
{
    ms_plan_finish(&(*rig)->plan);
    free(*rig);
}

static void spec_free(Muster__WorkerSpec **w)
{
    muster__worker_spec__free_unpacked(*w, NULL);
}

static Muster__WorkerSpec *plan(struct rig *rig, uint32_t rank)
{
    struct ms_error err = {0};
    Muster__WorkerSpec *w;

    ms_plan_finish(&rig->plan);
    assert_int_equal(ms_plan_init(&rig->plan), 0);
    w = ms_plan_worker(&rig->plan, rank, &err);
    if (!w)
        fail_msg("%s", err.text);
    return w;
}

static const char *get(const Muster__WorkerSpec *w, const char *name)
{
    size_t len = strlen(name);

    for (size_t i = 0; i < w->n_env; i++)
        if (strncmp(w->env[i], name, len) == 0 && w->env[i][len] == '=')
            return w->env[i] + len + 1;
    return NULL;
}

static void test_environment_of_a_rank(void **state)
{
    static const char *const expected[] = {
        "RANK=1",
        "WORLD_SIZE=3",
        "LOCAL_RANK=0",
        "MUSTER_LOCAL_RANK=1",
        "LOCAL_WORLD_SIZE=2",
        "NODE_RANK=0",
        "MASTER_ADDR=127.0.0.1",
        "MASTER_PORT=29500",
        "CLUSTER_NAME=actor",
        "WORKER_NAME=actor-1-G67",
        "CUDA_VISIBLE_DEVICES=6,7",
        "MUSTER_DEVICE_VARIABLE=CUDA_VISIBLE_DEVICES",
    };
    MS_CLEANUP(rig_destroy) struct rig *rig = rig_create();
    MS_CLEANUP(spec_free) Muster__WorkerSpec *w = plan(rig, 1);

    (void)state;
    assert_int_equal(w->n_env, MS_COUNT(expected));
    for (size_t i = 0; i < MS_COUNT(expected); i++)
        assert_string_equal(w->env[i], expected[i]);
    assert_int_equal(w->rank, 1);
    assert_int_equal(w->world_size, 3);
    assert_int_equal(w->n_devices, 2);
    assert_int_equal(w->devices[1], 7);
}

static void test_another_node(void **state)
{
    MS_CLEANUP(rig_destroy) struct rig *rig = rig_create();
    MS_CLEANUP(spec_free) Muster__WorkerSpec *w = plan(rig, 2);

    (void)state;
    assert_string_equal(get(w, "NODE_RANK"), "1");
    assert_string_equal(get(w, "MUSTER_LOCAL_RANK"), "0");
    assert_string_equal(get(w, "LOCAL_WORLD_SIZE"), "1");
    assert_string_equal(get(w, "CUDA_VISIBLE_DEVICES"), "0,1");
}

/* Ranks that alternate between two nodes: counted on each. */
static void test_nodes_in_turns(void **state)
{
    static char n0[] = "n0", n1[] = "n1";
    MS_CLEANUP(rig_destroy) struct rig *rig = rig_create();

    (void)state;
    for (uint32_t r = 0; r < 6; r++)
        place(rig, r, r % 2 ? n0 : n1, 0);
    for (uint32_t r = 0; r < 6; r++) {
        MS_CLEANUP(spec_free) Muster__WorkerSpec *w = plan(rig, r);

        assert_int_equal(atoi(get(w, "NODE_RANK")), r % 2);
        assert_int_equal(atoi(get(w, "MUSTER_LOCAL_RANK")), r / 2);
        assert_string_equal(get(w, "LOCAL_WORLD_SIZE"), "3");
    }
}

static void test_all_devices_of_the_node(void **state)
{
    MS_CLEANUP(rig_destroy) struct rig *rig = rig_create();
    Muster__WorkerSpec *w;

    (void)state;
    rig->spec.visible = MUSTER__VISIBLE__VISIBLE_NODE;
    w = plan(rig, 1);
    assert_string_equal(get(w, "LOCAL_RANK"), "1");
    assert_string_equal(get(w, "CUDA_VISIBLE_DEVICES"), "4,5,6,7");
    spec_free(&w);
}

static void test_a_node_that_has_told_nothing(void **state)
{
    static char told[] = "CUDA_VISIBLE_DEVICES=5";
    MS_CLEANUP(rig_destroy) struct rig *rig = rig_create();
    Muster__WorkerSpec *w;

    (void)state;
    rig->is_unknown = true;
    w = plan(rig, 0);
    assert_string_equal(get(w, "CUDA_VISIBLE_DEVICES"), "");
    assert_string_equal(get(w, "MUSTER_DEVICE_VARIABLE"), "CUDA_VISIBLE_DEVICES");
    spec_free(&w);
    rig->env[0] = told; /* of devices that are not Muster's to give */
    rig->worker.n_env = 1;
    w = plan(rig, 0);
    assert_string_equal(get(w, "CUDA_VISIBLE_DEVICES"), "5");
    spec_free(&w);
}

static void test_two_vendors(void **state)
{
    static char npus[] = "ASCEND_RT_VISIBLE_DEVICES";
    MS_CLEANUP(rig_destroy) struct rig *rig = rig_create();
    Muster__WorkerSpec *w;

    (void)state;
    for (int i = 6; i < DEVICES; i++)
        rig->devices[i].variable = npus;
    w = plan(rig, 1);
    assert_string_equal(get(w, "CUDA_VISIBLE_DEVICES"), "");
    assert_string_equal(get(w, "ASCEND_RT_VISIBLE_DEVICES"), "6,7");
    assert_string_equal(get(w, "MUSTER_DEVICE_VARIABLE"), npus);
    spec_free(&w);
}

static void test_the_roles_own_come_last(void **state)
{
    static char master[] = "MASTER_ADDR=10.0.0.1", port[] = "MASTER_PORT=1",
                own[] = "A=b", same[] = "CUDA_VISIBLE_DEVICES=6,7";
    MS_CLEANUP(rig_destroy) struct rig *rig = rig_create();
    struct ms_error err = {0};
    Muster__WorkerSpec *w;

    (void)state;
    rig->env[0] = master;
    rig->env[1] = port;
    rig->env[2] = own;
    rig->env[3] = same;
    rig->worker.n_env = 4;
    w = plan(rig, 1);
    assert_string_equal(get(w, "MASTER_ADDR"), "10.0.0.1");
    assert_string_equal(get(w, "A"), "b");
    assert_int_equal(w->n_env, 13); /* each name once */
    spec_free(&w);
    assert_null(ms_plan_worker(&rig->plan, 0, &err));
    assert_int_equal(err.code, -EINVAL);
    assert_non_null(strstr(err.text, "CUDA_VISIBLE_DEVICES follows from"));
}

static void test_a_helper(void **state)
{
    static char n1[] = "n1";
    static uint32_t numbers[] = {2, 3};
    MS_CLEANUP(rig_destroy) struct rig *rig = rig_create();
    Muster__Piece *further = &rig->pieces[1][1];
    Muster__WorkerSpec *w;

    (void)state;
    muster__piece__init(further);
    further->node = n1;
    further->devices = numbers;
    further->n_devices = 2;
    rig->piece_list[1][1] = further;
    rig->ranks[1].n_pieces = 2;
    assert_int_equal(ms_plan_init(&rig->plan), 0);
    w = ms_plan_helper(&rig->plan, 1, 1, 77, NULL);
    assert_non_null(w);
    assert_string_equal(get(w, "RANK"), "1");
    assert_string_equal(get(w, "CUDA_VISIBLE_DEVICES"), "2,3");
    assert_string_equal(get(w, "MUSTER_HELPER"), "1");
    assert_int_equal(w->helps, 77);
    spec_free(&w);
}

static void test_beside_another(void **state)
{
    static char own[] = "A=b";
    MS_CLEANUP(rig_destroy) struct rig *rig = rig_create();
    Muster__WorkerSpec *w;

    (void)state;
    rig->env[0] = own;
    rig->worker.n_env = 1;
    assert_int_equal(ms_plan_init(&rig->plan), 0);
    w = ms_plan_beside(&rig->plan, 2, 78, NULL);
    assert_non_null(w);
    assert_null(get(w, "RANK")); /* as the worker has it */
    assert_string_equal(get(w, "WORKER_NAME"), "actor-2-G01");
    assert_string_equal(get(w, "MASTER_PORT"), "29500");
    assert_string_equal(get(w, "A"), "b");
    assert_int_equal(w->beside, 78);
    spec_free(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_environment_of_a_rank),
        cmocka_unit_test(test_another_node),
        cmocka_unit_test(test_nodes_in_turns),
        cmocka_unit_test(test_all_devices_of_the_node),
        cmocka_unit_test(test_a_node_that_has_told_nothing),
        cmocka_unit_test(test_two_vendors),
        cmocka_unit_test(test_the_roles_own_come_last),
        cmocka_unit_test(test_a_helper),
        cmocka_unit_test(test_beside_another),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
