/* layout_test.c - tests of layout.h: where every rank of a cluster goes, or why it
 * cannot */
#include "base/cleanup.h"
#include "resource/bundle.h"
#include "resource/layout.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define GIB ((uint64_t)1 << 30)

static const uint32_t ids[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};

/* Three unequal nodes that came in another order: n2 has 4 devices, n3 none, n10 6. */
struct rig {
    struct ms_stock stock;
    struct ms_scope scope;
};

enum { N10, N2, N3 }; /* indexes in the stock */

static void add(struct ms_stock *s, const char *name, uint32_t devices)
{
    int64_t at = ms_stock_append(s, name, 8000, 32 * GIB, NULL);

    assert_true(at >= 0);
    assert_int_equal(ms_stock_add_devices(s, (size_t)at, 1, devices, 80 * GIB, 0, NULL),
                     0);
}

static int setup(void **state)
{
    static const struct ms_scope_request all = {.devices_per_node = MS_ALL_DEVICES};
    struct rig *r = calloc(1, sizeof *r);

    r->stock = (struct ms_stock){0};
    assert_int_equal(ms_stock_kind(&r->stock, "gpu", NULL), 1);
    add(&r->stock, "n10", 6);
    add(&r->stock, "n2", 4);
    add(&r->stock, "n3", 0);
    assert_int_equal(ms_scope_init(&r->scope, &r->stock, &all, NULL, NULL), 0);
    *state = r;
    return 0;
}

static int teardown(void **state)
{
    struct rig *r = *state;

    for (size_t i = 0; i < r->stock.count; i++) { /* every test gives all back */
        assert_int_equal(r->stock.nodes[i].cpu_milli_held, 0);
        assert_int_equal(r->stock.nodes[i].memory_held, 0);
        assert_int_equal(r->stock.nodes[i].whole, r->stock.nodes[i].device_count);
    }
    ms_scope_finish(&r->scope);
    ms_stock_finish(&r->stock);
    free(r);
    return 0;
}

static void
print_holder(void *arg, uint32_t node, uint32_t id, uint32_t count, struct ms_buf *out)
{
    (void)node;
    if (count)
        ms_buf_printf(out, "%u %s", id, (const char *)arg);
}

/* Ask for something that fails: the code, the sentence, a line of the table, the hint. */
static void check_failure(struct rig *rig,
                          struct ms_layout_request *r,
                          int code,
                          const char *sentence,
                          const char *line,
                          const char *hint)
{
    MS_CLEANUP(ms_buf_finish) struct ms_buf table = {0};
    char holder[] = "actor";
    struct ms_holders holders = {print_holder, holder};
    struct ms_layout l = {.world_size = 77};
    struct ms_error err = {0};

    r->scope = &rig->scope;
    assert_int_equal(ms_layout_make(&rig->stock, r, &l, &holders, &table, &err), code);
    assert_int_equal(l.world_size, 77); /* failure left no trace */
    if (!strstr(err.text, sentence))
        fail_msg("the sentence is \"%s\"", err.text);
    if (!strstr(ms_buf_str(&table), line))
        fail_msg("the table is\n%s", ms_buf_str(&table));
    if (hint && !strstr(ms_buf_str(&table), hint))
        fail_msg("no \"%s\" in\n%s", hint, ms_buf_str(&table));
    if (!hint && strstr(ms_buf_str(&table), "it fits"))
        fail_msg("a hint in\n%s", ms_buf_str(&table));
}

static void make(struct rig *rig, struct ms_layout_request r, struct ms_layout *out)
{
    struct ms_error err = {0};

    r.scope = &rig->scope;
    if (ms_layout_make(&rig->stock, &r, out, NULL, NULL, &err) < 0)
        fail_msg("%s", err.text);
}

static void check_piece(const struct ms_layout *l,
                        uint32_t at,
                        uint32_t node,
                        const uint32_t *devices,
                        uint32_t count)
{
    assert_int_equal(l->pieces[at].node, node);
    assert_int_equal(l->pieces[at].count, count);
    assert_memory_equal(
        l->devices + l->pieces[at].first, devices, count * sizeof *devices);
}

/* ---- where ranks go -------------------------------------------------------------- */

static void test_ids_count_on_over_unequal_nodes(void **state)
{
    static const uint32_t named[] = {9, 8, 0, 5};
    struct rig *rig = *state;
    struct ms_layout l = {0};

    assert_memory_equal(rig->scope.nodes, ((uint32_t[]){N2, N3, N10}), 12);
    assert_memory_equal(rig->scope.first, ((uint32_t[]){0, 4, 4, 10}), 16);
    make(rig,
         (struct ms_layout_request){.cluster = "a",
                                    .devices = named,
                                    .device_count = 4,
                                    .devices_per_worker = 1},
         &l);
    assert_int_equal(l.world_size, 4);
    check_piece(&l, 0, N10, (uint32_t[]){5}, 1);
    check_piece(&l, 1, N10, (uint32_t[]){4}, 1);
    check_piece(&l, 2, N2, (uint32_t[]){0}, 1);
    check_piece(&l, 3, N10, (uint32_t[]){1}, 1);
    ms_layout_release(&rig->stock, &l);
}

static void test_worker_wider_than_a_node(void **state)
{
    struct rig *rig = *state;
    struct ms_layout l = {0};

    make(rig,
         (struct ms_layout_request){.cluster = "a",
                                    .devices = ids,
                                    .device_count = 10,
                                    .devices_per_worker = 5,
                                    .cpu_milli = 1500,
                                    .device_memory = GIB},
         &l);
    assert_memory_equal(l.first, ((uint32_t[]){0, 2, 3}), 12);
    check_piece(&l, 0, N2, (uint32_t[]){0, 1, 2, 3}, 4);
    check_piece(&l, 1, N10, (uint32_t[]){0}, 1);
    check_piece(&l, 2, N10, (uint32_t[]){1, 2, 3, 4, 5}, 5);
    assert_int_equal(rig->stock.nodes[N2].cpu_milli_held, 1500);
    assert_int_equal(rig->stock.nodes[N10].cpu_milli_held, 3000);
    assert_int_equal(rig->stock.nodes[N10].devices[0].memory_held, GIB);
    ms_layout_release(&rig->stock, &l);
}

static void test_devices_of_a_node_are_one_piece(void **state)
{
    static const uint32_t mixed[] = {0, 4, 1, 5};
    struct rig *rig = *state;
    struct ms_layout l = {0};

    make(rig,
         (struct ms_layout_request){.cluster = "a",
                                    .devices = mixed,
                                    .device_count = 4,
                                    .devices_per_worker = 4},
         &l);
    assert_int_equal(l.first[1], 2);
    check_piece(&l, 0, N2, (uint32_t[]){0, 1}, 2);
    check_piece(&l, 1, N10, (uint32_t[]){0, 1}, 2);
    ms_layout_release(&rig->stock, &l);
}

static void test_two_clusters_on_one_device(void **state)
{
    struct rig *rig = *state;
    struct ms_stock_node *n = &rig->stock.nodes[N2];
    struct ms_bundle b = {.share_milli = 100};
    struct ms_layout l = {0}, other = {0};
    struct ms_layout_request r = {
        .cluster = "a", .devices = ids, .device_count = 4, .devices_per_worker = 1};
    uint32_t device;

    make(rig, r, &l);
    r.devices_per_worker = 4;
    make(rig, r, &other);
    assert_int_equal(n->devices[0].mapped, 2);
    assert_int_equal(n->whole, 0);
    assert_false(ms_bundle_take(&b, n, &device)); /* not for groups */
    ms_layout_release(&rig->stock, &l);
    assert_int_equal(n->whole, 0);
    ms_layout_release(&rig->stock, &other);
    assert_true(ms_bundle_take(&b, n, &device));
    ms_bundle_give(&b, n, &device);
}

static void test_ranks_without_devices_go_round(void **state)
{
    struct rig *rig = *state;
    struct ms_layout l = {0}, more = {0};

    make(rig,
         (struct ms_layout_request){.cluster = "r", .world_size = 5, .cpu_milli = 3000},
         &l);
    assert_int_equal(l.pieces[0].count, 0);
    for (uint32_t r = 0; r < 5; r++)
        assert_int_equal(l.pieces[r].node, ((uint32_t[]){N2, N3, N10, N2, N3})[r]);
    make(rig,
         (struct ms_layout_request){.cluster = "s", .world_size = 2, .cpu_milli = 2500},
         &more); /* 2 CPUs are left on n2 and on n3, 5 on n10 */
    assert_int_equal(more.pieces[0].node, N10);
    assert_int_equal(more.pieces[1].node, N10);
    ms_layout_release(&rig->stock, &more);
    ms_layout_release(&rig->stock, &l);
}

static void test_devices_that_nobody_named(void **state)
{
    struct rig *rig = *state;
    struct ms_layout mapped = {0}, l = {0}, more = {0};
    struct ms_layout_request two = {.cluster = "r", .world_size = 3};

    make(rig,
         (struct ms_layout_request){.cluster = "m",
                                    .devices = ids + 1,
                                    .device_count = 1,
                                    .devices_per_worker = 1},
         &mapped); /* 1 of n2 */
    two.devices_per_worker = 2;
    two.device_memory = GIB;
    make(rig, two, &l);
    assert_int_equal(l.first[3], 3);
    check_piece(&l, 0, N2, (uint32_t[]){0, 2}, 2); /* one of n2 is left over */
    check_piece(&l, 1, N10, (uint32_t[]){0, 1}, 2);
    check_piece(&l, 2, N10, (uint32_t[]){2, 3}, 2);
    check_failure(
        rig,
        &two,
        -ENOSPC,
        "3 workers with 2 devices each are asked for, and what is free on the "
        "nodes is enough for 1",
        "> asked: cluster 'r', 3 workers, 2 devices each, 1.0 GiB",
        "it fits with 1 worker");
    two.world_size = 1;
    two.cpu_milli = 9000;
    check_failure(rig, &two, -ENOSPC, "enough for 0", "> asked", "with 8 CPUs");
    two.cpu_milli = 0;
    make(rig, two, &more);
    check_piece(&more, 0, N10, (uint32_t[]){4, 5}, 2);
    ms_layout_release(&rig->stock, &more);
    ms_layout_release(&rig->stock, &l);
    ms_layout_release(&rig->stock, &mapped);
}

/* ---- scopes ---------------------------------------------------------------------- */

static void test_scope_of_some_nodes(void **state)
{
    static const char *const names[] = {"n10", "n2"};
    struct rig *rig = *state;
    struct ms_scope_request r = {.devices_per_node = 3, .num_nodes = 2};
    MS_CLEANUP(ms_buf_finish) struct ms_buf table = {0};
    struct ms_scope scope = {0};
    struct ms_error err = {0};
    uint32_t index;
    size_t node;

    assert_int_equal(ms_scope_init(&scope, &rig->stock, &r, NULL, NULL), 0);
    assert_memory_equal(scope.nodes, ((uint32_t[]){N2, N10}), 8);
    assert_int_equal(ms_scope_devices(&scope), 6);
    assert_true(ms_scope_find(&scope, 4, &node, &index) && node == 1 && index == 1);
    assert_false(ms_scope_find(&scope, 6, &node, &index));
    ms_scope_finish(&scope);

    r.num_nodes = 3;
    assert_int_equal(ms_scope_init(&scope, &rig->stock, &r, &table, &err), -ENOSPC);
    assert_string_equal(err.text,
                        "3 nodes of 3 devices are asked for, and there are 2 of 3");
    assert_non_null(strstr(ms_buf_str(&table), ">  n3    0"));
    r = (struct ms_scope_request){
        .devices_per_node = MS_ALL_DEVICES, .names = names, .name_count = 2};
    rig->stock.nodes[N10].is_gone = true; /* it keeps its ids */
    assert_int_equal(ms_scope_init(&scope, &rig->stock, &r, NULL, NULL), 0);
    rig->stock.nodes[N10].is_gone = false;
    assert_int_equal(ms_scope_devices(&scope), 10);
    ms_scope_finish(&scope);
    r.names = (const char *const[]){"n2", "x"};
    assert_int_equal(ms_scope_init(&scope, &rig->stock, &r, NULL, &err), -ENOENT);
    r.names = (const char *const[]){"n2", "n2"};
    assert_int_equal(ms_scope_init(&scope, &rig->stock, &r, NULL, &err), -EINVAL);
}

/* ---- what does not fit ----------------------------------------------------------- */

static void test_request_that_contradicts_itself(void **state)
{
    struct rig *rig = *state;
    struct ms_layout_request r = {.cluster = "c"};

    check_failure(
        rig, &r, -EINVAL, "say how many workers", "> asked: cluster 'c'", NULL);
    r.devices = ids;
    r.device_count = 8;
    check_failure(rig, &r, -EINVAL, "but 0 for each worker", "> asked", "1 GPU per");
    r.devices_per_worker = 3;
    check_failure(rig,
                  &r,
                  -EINVAL,
                  "8 devices cannot be divided into workers of 3 devices",
                  "> asked",
                  "it fits with 2 GPUs per worker\n");
    r.devices_per_worker = 2;
    r.world_size = 3;
    check_failure(rig,
                  &r,
                  -EINVAL,
                  "8 devices make 4 workers of 2 devices, but world_size is 3",
                  "> asked: cluster 'c', 4 workers, 2 devices each, of 0-7\n",
                  "it fits with world_size=4\n");
    r = (struct ms_layout_request){.cluster = "c",
                                   .devices = (uint32_t[]){0, 1, 2, 1},
                                   .device_count = 4,
                                   .devices_per_worker = 2};
    check_failure(rig,
                  &r,
                  -EINVAL,
                  "device 1 is given twice (again for rank 1)",
                  "> asked",
                  "device_mapping=\"0-3\"");
    r = (struct ms_layout_request){.cluster = "c", .world_size = UINT32_MAX};
    check_failure(rig, &r, -EINVAL, "more than 1048576 workers", "asked", NULL);
    r = (struct ms_layout_request){.cluster = "c", .world_size = 1, .device_memory = 1};
    check_failure(rig, &r, -EINVAL, "gpu_memory is asked for", "> asked", NULL);
}

static void test_devices_that_are_not_there(void **state)
{
    struct rig *rig = *state;
    struct ms_layout_request r = {.cluster = "c",
                                  .devices = (uint32_t[]){8, 9, 10, 11},
                                  .device_count = 4,
                                  .devices_per_worker = 2};

    check_failure(rig,
                  &r,
                  -ENOSPC,
                  "rank 1 wants device 10, but the ids are 0 to 9 (on 3 nodes)",
                  "> asked: cluster 'c', 2 workers, 2 devices each, of 8-11\n",
                  "it fits with device_mapping=\"0-3\"\n");
    rig->stock.nodes[N2].is_gone = true;
    r.devices = ids;
    check_failure(rig,
                  &r,
                  -ENOSPC,
                  "node 'n2' is gone",
                  ">  n2 (gone)",
                  "device_mapping=\"4-7\"");
    rig->stock.nodes[N2].is_gone = false;
}

static void test_device_of_a_group(void **state)
{
    struct rig *rig = *state;
    struct ms_bundle b = {.devices = 1};
    struct ms_layout_request r = {
        .cluster = "c", .devices = ids, .device_count = 4, .devices_per_worker = 4};
    uint32_t device;

    assert_true(ms_bundle_take(&b, &rig->stock.nodes[N2], &device));
    check_failure(
        rig,
        &r,
        -ENOSPC,
        "rank 0 wants device 0 (on node 'n2'), but a placement group holds it",
        ">  n2    0-3      0 actor",
        "it fits with device_mapping=\"1-4\"\n");
    ms_bundle_give(&b, &rig->stock.nodes[N2], &device);
}

static void test_amounts_that_are_not_there(void **state)
{
    struct rig *rig = *state;
    struct ms_layout_request r = {.cluster = "c",
                                  .devices = ids,
                                  .device_count = 6,
                                  .devices_per_worker = 1,
                                  .cpu_milli = 2500};

    check_failure(
        rig,
        &r,
        -ENOSPC,
        "4 workers on node 'n2' would need 10 CPUs, and 8 is what is free",
        ">  n2    0-3      0 actor  8 of 8     32.0 GiB of 32.0 GiB  4 workers, "
        "10 CPUs  3 workers\n",
        "it fits with 2 CPUs per worker\n");
    r.cpu_milli = 0;
    r.memory = 10 * GIB;
    check_failure(rig,
                  &r,
                  -ENOSPC,
                  "need 40.0 GiB of memory, and 32.0 GiB is what is free",
                  ">  n2",
                  "it fits with 8.0 GiB of memory per worker\n");
    r.memory = 0;
    r.device_memory = 81 * GIB;
    check_failure(rig,
                  &r,
                  -ENOSPC,
                  "rank 0 wants 81.0 GiB of the memory of device 0 (on node 'n2'), and "
                  "80.0 GiB is what is free",
                  ">  n2",
                  "it fits with 80.0 GiB of the memory of each device\n");
    r = (struct ms_layout_request){.cluster = "c", .world_size = 10, .cpu_milli = 2500};
    check_failure(
        rig, &r, -ENOSPC, "are enough for 9", "> asked", "it fits with 9 workers\n");
    r.cpu_milli = 9000;
    check_failure(rig, &r, -ENOSPC, "enough for 0", ">  n2", "with 2 CPUs per worker");
    r.world_size = 3;
    check_failure(rig, &r, -ENOSPC, "enough for 0", ">  n2", "with 8 CPUs per worker");
}

static void expect_piece(const struct rig *rig,
                         const struct ms_layout *l,
                         uint32_t at,
                         const char *node,
                         uint32_t first,
                         uint32_t count)
{
    const struct ms_piece *p = &l->pieces[at];

    assert_string_equal(rig->stock.nodes[p->node].name, node);
    assert_int_equal(p->count, count);
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(l->devices[p->first + i], first + i);
}

static void test_pieces_of_ranks_that_are_wider_than_a_node(void **state)
{
    struct rig *rig = *state;
    struct ms_layout l = {0}, none = {0};

    make(rig,
         (struct ms_layout_request){.cluster = "c",
                                    .devices = ids + 2,
                                    .device_count = 6,
                                    .devices_per_worker = 3},
         &l);
    assert_int_equal(l.first[1], 2);
    assert_int_equal(l.first[2], 3);
    expect_piece(rig, &l, 0, "n2", 2, 2);
    expect_piece(rig, &l, 1, "n10", 0, 1);
    expect_piece(rig, &l, 2, "n10", 1, 3);
    make(rig, (struct ms_layout_request){.cluster = "d", .world_size = 1}, &none);
    expect_piece(rig, &none, 0, "n2", 0, 0);
    ms_layout_release(&rig->stock, &none);
    ms_layout_release(&rig->stock, &l);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_ids_count_on_over_unequal_nodes),
        TEST(test_worker_wider_than_a_node),
        TEST(test_devices_of_a_node_are_one_piece),
        TEST(test_two_clusters_on_one_device),
        TEST(test_ranks_without_devices_go_round),
        TEST(test_devices_that_nobody_named),
        TEST(test_scope_of_some_nodes),
        TEST(test_request_that_contradicts_itself),
        TEST(test_devices_that_are_not_there),
        TEST(test_device_of_a_group),
        TEST(test_amounts_that_are_not_there),
        TEST(test_pieces_of_ranks_that_are_wider_than_a_node),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
