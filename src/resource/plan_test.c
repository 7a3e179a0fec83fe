#include "base/cleanup.h"
#include "resource/plan.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>

#include <cmocka.h>

#define GIB ((uint64_t)1 << 30)

static const char *const held[] = {"actor/0", "actor/0", "ref/0", NULL};

static const char *const more[] = {NULL, NULL, NULL, "critic/0"};

static const struct ms_plan_node two[] = {
    {.name = "a", .devices = 4, .cpu_milli = 8000, .memory = 32 * GIB, .held_by = held},
    {.name = "b", .devices = 4, .cpu_milli = 8000, .memory = 32 * GIB, .held_by = more},
};

static const uint32_t first_eight[] = {0, 1, 2, 3, 4, 5, 6, 7};

/* Ask `two` for something that fails: the code, the sentence, and a line of the table.
 */
static void check_failure(const struct ms_plan_request *r,
                          int code,
                          const char *sentence,
                          const char *line)
{
    MS_CLEANUP(ms_buf_finish) struct ms_buf table = {0};
    struct ms_plan p = {.world_size = 77};
    struct ms_error err = {0};

    assert_int_equal(ms_plan_make(two, 2, r, &p, &table, &err), code);
    assert_int_equal(p.world_size, 77); /* failure left no trace */
    if (!strstr(err.text, sentence))
        fail_msg("the sentence is \"%s\"", err.text);
    if (!strstr(ms_buf_str(&table), line))
        fail_msg("the table is\n%s", ms_buf_str(&table));
}

static void test_devices_in_order(void **state)
{
    static const uint32_t ids[] = {6, 7, 1, 0};
    struct ms_plan_request r = {
        .cluster = "actor", .devices = ids, .device_count = 4, .devices_per_worker = 2};
    MS_CLEANUP(ms_plan_finish) struct ms_plan p = {0};

    (void)state;
    assert_int_equal(ms_plan_make(two, 2, &r, &p, NULL, NULL), 0);
    assert_int_equal(p.world_size, 2);
    assert_int_equal(p.nodes[0], 1);
    assert_int_equal(p.nodes[1], 0);
    assert_memory_equal(p.devices, ((uint32_t[]){2, 3, 1, 0}), sizeof ids);
}

static void test_cpu_ranks_go_round(void **state)
{
    struct ms_plan_request r = {
        .cluster = "reward", .world_size = 5, .devices_per_worker = 1};
    MS_CLEANUP(ms_plan_finish) struct ms_plan p = {0};

    (void)state;
    assert_int_equal(ms_plan_make(two, 2, &r, &p, NULL, NULL), 0);
    assert_int_equal(p.devices_per_worker, 0);
    assert_memory_equal(p.nodes, ((uint32_t[]){0, 1, 0, 1, 0}), 5 * sizeof(uint32_t));
}

static void test_full_nodes_are_passed_over(void **state)
{
    struct ms_plan_node nodes[] = {two[0], two[1], two[1]};
    struct ms_plan_request r = {
        .cluster = "reward", .world_size = 5, .cpu_milli = 2000};
    MS_CLEANUP(ms_plan_finish) struct ms_plan p = {0};

    (void)state;
    nodes[0].cpu_milli_held = 6000;
    nodes[1].cpu_milli_held = 9000; /* more than there is */
    assert_int_equal(ms_plan_make(nodes, 3, &r, &p, NULL, NULL), 0);
    assert_memory_equal(p.nodes, ((uint32_t[]){0, 2, 2, 2, 2}), 5 * sizeof(uint32_t));
}

static void test_request_that_contradicts_itself(void **state)
{
    struct ms_plan_request r = {.cluster = "c"};

    (void)state;
    check_failure(
        &r, -EINVAL, "say how many workers", "> asked: cluster 'c', 0 workers");
    r.devices = first_eight;
    r.device_count = 8;
    check_failure(&r, -EINVAL, "but 0 for each worker", "> asked");
    r.devices_per_worker = 3;
    check_failure(&r, -EINVAL, "8 devices cannot be divided", "> asked");
    r.devices_per_worker = 2;
    r.world_size = 3;
    check_failure(&r,
                  -EINVAL,
                  "8 devices make 4 workers of 2 devices, but world_size is 3",
                  "> asked: cluster 'c', 4 workers, 2 devices each, of 0-7\n");
    r.devices = ((uint32_t[]){0, 1, 2, 1});
    r.device_count = 4;
    r.world_size = 0;
    check_failure(&r, -EINVAL, "device 1 is given twice (again for rank 1)", "> asked");
    r = (struct ms_plan_request){.cluster = "c", .world_size = UINT32_MAX};
    check_failure(&r, -EINVAL, "more than 1048576 workers", "asked");
}

static void test_no_nodes_and_unequal_nodes(void **state)
{
    struct ms_plan_node nodes[] = {two[0], two[1]};
    struct ms_plan_request r = {.cluster = "c", .world_size = 1};
    struct ms_error err = {0};
    struct ms_plan p = {0};

    (void)state;
    assert_int_equal(ms_plan_make(NULL, 0, &r, &p, NULL, &err), -EINVAL);
    assert_non_null(strstr(err.text, "no nodes"));
    nodes[1].devices = 2;
    r = (struct ms_plan_request){.cluster = "c",
                                 .devices = first_eight,
                                 .device_count = 1,
                                 .devices_per_worker = 1};
    assert_int_equal(ms_plan_make(nodes, 2, &r, &p, NULL, &err), -EINVAL);
    assert_non_null(strstr(err.text, "'a' has 4 devices and 'b' has 2"));
}

static void test_devices_that_are_not_there(void **state)
{
    static const uint32_t ids[] = {7, 8}, across[] = {3, 4};
    struct ms_plan_node none = {.name = "laptop"};
    struct ms_plan_request r = {
        .cluster = "c", .devices = ids, .device_count = 2, .devices_per_worker = 1};
    struct ms_error err = {0};
    struct ms_plan p = {0};

    (void)state;
    check_failure(
        &r,
        -ENOSPC,
        "rank 1 wants device 8, but the ids are 0 to 7 (nodes: 2, devices on each: 4)",
        "> asked: cluster 'c', 2 workers, 1 device each, of 7,8\n");
    r.devices = across;
    r.devices_per_worker = 2;
    check_failure(
        &r, -ENOSPC, "device 3 on node 'a' and device 4 on node 'b'", "asked");
    assert_int_equal(ms_plan_make(&none, 1, &r, &p, NULL, &err), -ENOSPC);
    assert_non_null(strstr(err.text, "no node has devices"));
}

static void test_cpus_and_memory_that_are_not_there(void **state)
{
    struct ms_plan_request r = {.cluster = "c",
                                .devices = first_eight,
                                .device_count = 6,
                                .devices_per_worker = 1,
                                .cpu_milli = 2500};

    (void)state;
    check_failure(&r,
                  -ENOSPC,
                  "4 workers on node 'a' would need 10 CPUs, and 8 is what is free",
                  ">  a     0-3      0-1 actor/0, 2 ref/0  8 of 8     32.0 GiB of 32.0 "
                  "GiB  4 workers, 10 CPUs  3 workers\n");
    r.cpu_milli = 0;
    r.memory = 10 * GIB;
    check_failure(
        &r, -ENOSPC, "need 40.0 GiB of memory, and 32.0 GiB is what is free", ">  a");
    r = (struct ms_plan_request){
        .cluster = "c", .world_size = 7, .cpu_milli = 2500, .memory = UINT64_MAX / 2};
    check_failure(
        &r, -ENOSPC, "7 workers are asked for", ">  b     4-7      7 critic/0 ");
    r.memory = 10 * GIB;
    check_failure(&r, -ENOSPC, "are enough for 6", "3 workers, 7.5 CPUs, 30.0 GiB");
}

static void test_map_is_printed(void **state)
{
    static const uint32_t ids[] = {1, 2, 4, 5};
    struct ms_plan_request r = {
        .cluster = "c", .devices = ids, .device_count = 4, .devices_per_worker = 2};
    MS_CLEANUP(ms_plan_finish) struct ms_plan p = {0}, q = {0};
    MS_CLEANUP(ms_buf_finish) struct ms_buf out = {0};

    (void)state;
    assert_int_equal(ms_plan_make(two, 2, &r, &p, NULL, NULL), 0);
    assert_int_equal(ms_plan_print(&p, two, &out), 0);
    assert_string_equal(ms_buf_str(&out),
                        "RANK  NODE  DEVICES  GLOBAL  SHARED WITH\n"
                        "   0  a     1,2      1,2     actor/0, ref/0\n"
                        "   1  b     0,1      4,5\n");
    out.len = 0;
    r = (struct ms_plan_request){.cluster = "c", .world_size = 1};
    assert_int_equal(ms_plan_make(two, 2, &r, &q, NULL, NULL), 0);
    assert_int_equal(ms_plan_print(&q, two, &out), 0);
    assert_string_equal(ms_buf_str(&out),
                        "RANK  NODE  DEVICES  GLOBAL  SHARED WITH\n"
                        "   0  a     -        -\n");
}

/* ---- random requests against a naive checker ------------------------------------- */

enum { NODES = 5, IDS = 48 };

struct random_case {
    struct ms_plan_node nodes[NODES];
    size_t node_count;
    uint32_t ids[IDS];
    struct ms_plan_request request;
};

static uint32_t pick(uint64_t *seed, uint32_t below)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*seed >> 33) % below;
}

/* Ids from all there are and one more, in a random order: some do not exist, and with
 * luck 1 in 4 one is repeated. */
static void pick_ids(struct random_case *c, uint64_t *seed)
{
    uint32_t all = (uint32_t)c->node_count * c->nodes[0].devices + 1;
    uint32_t pool[IDS];
    uint32_t count;

    all = all > IDS ? IDS : all;
    for (uint32_t i = 0; i < all; i++)
        pool[i] = i;
    count = pick(seed, all + 1);
    if (c->request.devices_per_worker && pick(seed, 4))
        count -= count % c->request.devices_per_worker;
    if (pick(seed, 2)) { /* mostly in order: workers then fit on a node more often */
        uint32_t from = pick(seed, all - (count ? count - 1 : 0));

        memcpy(c->ids, pool + from, count * sizeof *pool);
    } else {
        for (uint32_t i = 0; i < count; i++) {
            uint32_t j = i + pick(seed, all - i), id = pool[j];

            pool[j] = pool[i];
            c->ids[i] = pool[i] = id;
        }
    }
    if (count > 1 && pick(seed, 4) == 0)
        c->ids[count - 1] = c->ids[0];
    c->request.device_count = count;
    c->request.devices = c->ids;
}

static void make_case(struct random_case *c, uint64_t *seed)
{
    uint32_t devices = pick(seed, 9);

    *c = (struct random_case){.node_count = 1 + pick(seed, NODES)};
    for (size_t i = 0; i < c->node_count; i++)
        c->nodes[i] = (struct ms_plan_node){.name = "n",
                                            .devices = devices,
                                            .cpu_milli = 1000 * pick(seed, 9),
                                            .cpu_milli_held = 500 * pick(seed, 5),
                                            .memory = pick(seed, 40),
                                            .memory_held = pick(seed, 10)};
    c->request = (struct ms_plan_request){.cluster = "c",
                                          .world_size = pick(seed, 12),
                                          .devices_per_worker = pick(seed, 4),
                                          .cpu_milli = 500 * pick(seed, 5),
                                          .memory = pick(seed, 6)};
    if (pick(seed, 2))
        c->request.cpu_milli = c->request.memory = 0;
    if (pick(seed, 3))
        pick_ids(c, seed);
    if (c->request.device_count && pick(seed, 4))
        c->request.world_size = 0;
}

/* Take one worker's share from what is left of a node; false if it is not there. */
static bool take(const struct random_case *c, struct ms_plan_node *n)
{
    if (n->cpu_milli < n->cpu_milli_held + c->request.cpu_milli && c->request.cpu_milli)
        return false;
    if (n->memory < n->memory_held + c->request.memory && c->request.memory)
        return false;
    n->cpu_milli_held += c->request.cpu_milli;
    n->memory_held += c->request.memory;
    return true;
}

/* What the rules of plan.h say, with no cleverness at all. */
static bool is_possible(const struct random_case *c)
{
    const struct ms_plan_request *r = &c->request;
    struct ms_plan_node nodes[NODES];
    uint32_t per = r->devices_per_worker, per_node = c->nodes[0].devices;
    size_t placed = 0;

    memcpy(nodes, c->nodes, sizeof nodes);
    if (r->device_count == 0) {
        for (size_t i = 0; i < c->node_count; i++)
            for (size_t k = 0; k < r->world_size && take(c, &nodes[i]); k++)
                placed++;
        return r->world_size > 0 && placed >= r->world_size;
    }
    if (per == 0 || r->device_count % per ||
        (r->world_size && r->device_count != (size_t)per * r->world_size))
        return false;
    for (size_t i = 0; i < r->device_count; i++) {
        if (r->devices[i] >= per_node * c->node_count)
            return false;
        for (size_t k = 0; k < i; k++)
            if (r->devices[k] == r->devices[i])
                return false;
        if (r->devices[i] / per_node != r->devices[i - i % per] / per_node)
            return false;
        if (i % per == 0 && !take(c, &nodes[r->devices[i] / per_node]))
            return false;
    }
    return true;
}

/* No node has two ranks more than a node that has room for another. */
static void check_spread(const struct random_case *c, const struct ms_plan *p)
{
    struct ms_plan_node nodes[NODES];
    uint32_t counts[NODES] = {0};

    memcpy(nodes, c->nodes, sizeof nodes);
    for (uint32_t r = 0; r < p->world_size; r++) {
        assert_true(p->nodes[r] < c->node_count);
        assert_true(take(c, &nodes[p->nodes[r]]));
        counts[p->nodes[r]]++;
    }
    for (size_t i = 0; i < c->node_count; i++)
        for (size_t k = 0; k < c->node_count; k++)
            if (counts[i] > counts[k] + 1)
                assert_false(take(c, &nodes[k]));
}

static void check_devices(const struct random_case *c, const struct ms_plan *p)
{
    struct ms_plan_node nodes[NODES];
    uint32_t per = p->devices_per_worker;

    memcpy(nodes, c->nodes, sizeof nodes);
    assert_int_equal(p->world_size * per, c->request.device_count);
    for (uint32_t i = 0; i < p->world_size * per; i++) {
        uint32_t node = p->nodes[i / per];

        assert_int_equal(node * c->nodes[0].devices + p->devices[i], c->ids[i]);
        assert_true(p->devices[i] < c->nodes[0].devices);
        if (i % per == 0)
            assert_true(take(c, &nodes[node]));
    }
}

static void test_random_requests(void **state)
{
    uint64_t seed = 4711;
    int good[2] = {0};

    (void)state;
    for (int round = 0; round < 20000; round++) {
        MS_CLEANUP(ms_plan_finish) struct ms_plan p = {0}, again = {0};
        MS_CLEANUP(ms_buf_finish) struct ms_buf table = {0};
        struct random_case c;
        struct ms_error err = {0};
        int rc;

        make_case(&c, &seed);
        rc = ms_plan_make(c.nodes, c.node_count, &c.request, &p, &table, &err);
        assert_int_equal(rc == 0, is_possible(&c));
        if (rc < 0) {
            assert_true(rc == -EINVAL || rc == -ENOSPC);
            assert_true(err.text[0] && strstr(ms_buf_str(&table), ">"));
            continue;
        }
        good[p.devices_per_worker > 0]++;
        if (p.devices_per_worker)
            check_devices(&c, &p);
        else
            check_spread(&c, &p);
        assert_int_equal(
            ms_plan_make(c.nodes, c.node_count, &c.request, &again, NULL, NULL), 0);
        assert_memory_equal(p.nodes, again.nodes, p.world_size * sizeof *p.nodes);
    }
    assert_true(good[0] > 1000 && good[1] > 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_devices_in_order),
        cmocka_unit_test(test_cpu_ranks_go_round),
        cmocka_unit_test(test_full_nodes_are_passed_over),
        cmocka_unit_test(test_request_that_contradicts_itself),
        cmocka_unit_test(test_no_nodes_and_unequal_nodes),
        cmocka_unit_test(test_devices_that_are_not_there),
        cmocka_unit_test(test_cpus_and_memory_that_are_not_there),
        cmocka_unit_test(test_map_is_printed),
        cmocka_unit_test(test_random_requests),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
