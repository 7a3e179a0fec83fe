/* place_test.c - tests of place.h: a placement group */
#include "base/cleanup.h"
#include "resource/place.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void add_node(struct ms_stock *s, const char *name, unsigned cpus, unsigned gpus)
{
    int kind = ms_stock_kind(s, "gpu", NULL);
    int64_t i = ms_stock_append(s, name, cpus * 1000ull, 64ull << 30, NULL);

    assert_true(kind > 0 && i >= 0);
    assert_int_equal(
        ms_stock_add_devices(s, (size_t)i, (uint8_t)kind, gpus, 80ull << 30, 0, NULL),
        0);
}

/* n0, n1, ... */
static void add_nodes(struct ms_stock *s, unsigned count, unsigned cpus, unsigned gpus)
{
    char name[16];

    for (unsigned i = 0; i < count; i++) {
        snprintf(name, sizeof name, "n%zu", s->count);
        add_node(s, name, cpus, gpus);
    }
}

static int place(struct ms_stock *s,
                 enum ms_strategy strategy,
                 const struct ms_bundle *bundles,
                 size_t count,
                 struct ms_placement *p)
{
    struct ms_place_request r = {
        .name = "g", .bundles = bundles, .count = count, .strategy = strategy};
    struct ms_error err = {0};

    return ms_place(s, &r, p, &err);
}

static int place_equal(struct ms_stock *s,
                       enum ms_strategy strategy,
                       struct ms_bundle bundle,
                       size_t count,
                       struct ms_placement *p)
{
    struct ms_bundle bundles[64];

    for (size_t i = 0; i < count; i++)
        bundles[i] = bundle;
    return place(s, strategy, bundles, count, p);
}

static void expect_nodes(struct ms_placement *p, const char *nodes)
{
    assert_int_equal(p->count, strlen(nodes));
    for (size_t i = 0; i < p->count; i++)
        assert_int_equal(p->nodes[i], nodes[i] - '0');
    ms_placement_finish(p);
}

static const struct ms_bundle one_gpu = {.devices = 1}, two_gpus = {.devices = 2},
                              one_cpu = {.cpu_milli = 1000};

static void test_pack_uses_few_nodes(void **state)
{
    struct ms_stock s = {0};
    struct ms_placement p;

    (void)state;
    add_nodes(&s, 1, 8, 2);
    add_nodes(&s, 2, 8, 4);
    assert_int_equal(place_equal(&s, MS_STRATEGY_PACK, one_gpu, 4, &p), 0);
    expect_nodes(&p, "1111");
    assert_int_equal(place_equal(&s, MS_STRATEGY_PACK, one_gpu, 6, &p), 0);
    expect_nodes(&p, "002222");
    assert_int_equal(place_equal(&s, MS_STRATEGY_PACK, one_gpu, 1, &p), -ENOSPC);
    ms_stock_finish(&s);
}

/* What is left over goes where it fits best. */
static void test_pack_fills_small_gaps(void **state)
{
    struct ms_stock s = {0};
    struct ms_placement p;

    (void)state;
    add_nodes(&s, 1, 8, 8);
    add_nodes(&s, 1, 8, 4);
    add_nodes(&s, 1, 8, 2);
    assert_int_equal(place_equal(&s, MS_STRATEGY_PACK, one_gpu, 10, &p), 0);
    expect_nodes(&p, "0000000022");
    ms_stock_finish(&s);
}

static void test_spread_is_even(void **state)
{
    struct ms_stock s = {0};
    struct ms_placement p;

    (void)state;
    add_nodes(&s, 1, 1, 0);
    add_nodes(&s, 2, 8, 0);
    assert_int_equal(place_equal(&s, MS_STRATEGY_SPREAD, one_cpu, 6, &p), 0);
    expect_nodes(&p, "011122");
    ms_stock_finish(&s);
}

static void test_strict_pack_is_one_node(void **state)
{
    struct ms_stock s = {0};
    struct ms_placement p;

    (void)state;
    add_nodes(&s, 1, 8, 8);
    add_nodes(&s, 1, 8, 4);
    assert_int_equal(place_equal(&s, MS_STRATEGY_STRICT_PACK, two_gpus, 2, &p), 0);
    expect_nodes(&p, "11");
    assert_int_equal(place_equal(&s, MS_STRATEGY_STRICT_PACK, two_gpus, 5, &p),
                     -ENOSPC);
    ms_stock_finish(&s);
}

static void test_strict_spread_is_one_each(void **state)
{
    struct ms_stock s = {0};
    struct ms_placement p;

    (void)state;
    add_nodes(&s, 3, 8, 1);
    assert_int_equal(place_equal(&s, MS_STRATEGY_STRICT_SPREAD, one_gpu, 3, &p), 0);
    expect_nodes(&p, "012");
    assert_int_equal(place_equal(&s, MS_STRATEGY_STRICT_SPREAD, one_cpu, 4, &p),
                     -ENOSPC);
    ms_stock_finish(&s);
}

static void test_devices_of_one_domain(void **state)
{
    struct ms_stock s = {0};
    struct ms_bundle b = {.devices = 3, .one_domain = true};
    struct ms_placement p;
    int kind = ms_stock_kind(&s, "gpu", NULL);

    (void)state;
    add_node(&s, "n0", 8, 2); /* domain 0 */
    assert_int_equal(ms_stock_add_devices(&s, 0, (uint8_t)kind, 4, 0, 1, NULL), 0);
    assert_int_equal(place_equal(&s, MS_STRATEGY_PACK, b, 1, &p), 0);
    assert_int_equal(p.devices[0], 2);
    assert_int_equal(p.devices[2], 4);
    ms_placement_finish(&p);
    assert_int_equal(place_equal(&s, MS_STRATEGY_PACK, b, 1, &p), -ENOSPC);
    b.one_domain = false;
    assert_int_equal(place_equal(&s, MS_STRATEGY_PACK, b, 1, &p), 0);
    assert_int_equal(p.devices[2], 5);
    ms_placement_finish(&p);
    ms_stock_finish(&s);
}

static void test_shares_fill_a_device(void **state)
{
    struct ms_stock s = {0};
    struct ms_bundle b = {.share_milli = 500, .device_memory = 30ull << 30};
    struct ms_placement p;

    (void)state;
    add_nodes(&s, 1, 8, 2);
    assert_int_equal(place_equal(&s, MS_STRATEGY_PACK, b, 4, &p), 0);
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(p.devices[i], i / 2);
    ms_placement_finish(&p);
    assert_int_equal(s.nodes[0].whole, 0);
    assert_int_equal(place_equal(&s, MS_STRATEGY_PACK, b, 1, &p), -ENOSPC);
    ms_stock_finish(&s);
}

static void test_device_memory_counts(void **state)
{
    struct ms_stock s = {0};
    struct ms_bundle b = {.share_milli = 100, .device_memory = 50ull << 30};
    struct ms_placement p;

    (void)state;
    add_nodes(&s, 1, 8, 1);
    assert_int_equal(place_equal(&s, MS_STRATEGY_PACK, b, 1, &p), 0);
    ms_placement_finish(&p);
    assert_int_equal(place_equal(&s, MS_STRATEGY_PACK, b, 1, &p), -ENOSPC);
    ms_stock_finish(&s);
}

static void test_kinds_and_extras(void **state)
{
    struct ms_stock s = {0};
    struct ms_extra_need need = {"nic", 2};
    struct ms_bundle b = {.extras = &need, .extra_count = 1}, npu = {.devices = 1};
    struct ms_placement p;

    (void)state;
    add_nodes(&s, 2, 8, 1);
    assert_int_equal(ms_stock_add_extra(&s, 1, "nic", 4, NULL), 0);
    npu.kind = (uint8_t)ms_stock_kind(&s, "npu", NULL);
    assert_int_equal(ms_stock_add_devices(&s, 1, npu.kind, 1, 0, 0, NULL), 0);
    assert_int_equal(place_equal(&s, MS_STRATEGY_PACK, b, 2, &p), 0);
    expect_nodes(&p, "11");
    assert_int_equal(place_equal(&s, MS_STRATEGY_PACK, b, 1, &p), -ENOSPC);
    assert_int_equal(place_equal(&s, MS_STRATEGY_PACK, npu, 1, &p), 0);
    assert_int_equal(p.devices[0], 1);
    expect_nodes(&p, "1");
    ms_stock_finish(&s);
}

static void test_labels_and_same_domain(void **state)
{
    struct ms_stock s = {0};
    struct ms_selector fast = {0};
    struct ms_bundle b = {.devices = 1, .selector = &fast};
    struct ms_bundle bundles[3] = {b, b, b};
    struct ms_place_request r = {.name = "g", .bundles = bundles, .count = 3};
    struct ms_placement p;

    (void)state;
    add_nodes(&s, 4, 8, 2);
    ms_stock_add_label(&s, 0, "gpu=h800", NULL);
    ms_stock_add_label(&s, 1, "gpu=h20", NULL);
    ms_stock_add_label(&s, 2, "gpu=h800", NULL);
    ms_stock_add_label(&s, 3, "gpu=h800", NULL);
    ms_stock_add_label(&s, 0, "rack=a", NULL);
    ms_stock_add_label(&s, 2, "rack=b", NULL);
    ms_stock_add_label(&s, 3, "rack=b", NULL);
    assert_int_equal(ms_selector_add(&fast, "gpu", "in(h800, h100)", NULL), 0);
    r.same = "rack";
    assert_int_equal(ms_place(&s, &r, &p, NULL), 0);
    expect_nodes(&p, "223");
    assert_int_equal(ms_place(&s, &r, &p, NULL), -ENOSPC); /* 2 left in a, 1 in b */
    r.same = NULL;
    assert_int_equal(ms_place(&s, &r, &p, NULL), 0);
    expect_nodes(&p, "003");
    ms_selector_finish(&fast);
    ms_stock_finish(&s);
}

/* The greedy way fails here, another does not. */
static void test_mixed_bundles_are_searched(void **state)
{
    struct ms_stock s = {0};
    struct ms_bundle bundles[] = {{.cpu_milli = 5000},
                                  {.cpu_milli = 4000},
                                  {.cpu_milli = 3000},
                                  {.cpu_milli = 3000},
                                  {.cpu_milli = 3000}};
    struct ms_placement p;

    (void)state;
    add_nodes(&s, 2, 9, 0);
    assert_int_equal(place(&s, MS_STRATEGY_PACK, bundles, 5, &p), 0);
    assert_int_equal(p.nodes[0], p.nodes[1]);
    ms_placement_finish(&p);
    assert_int_equal(s.nodes[0].cpu_milli_held, 9000);
    assert_int_equal(s.nodes[1].cpu_milli_held, 9000);
    ms_stock_finish(&s);
}

static void test_at_the_limit_it_says_so(void **state)
{
    struct ms_stock s = {0};
    struct ms_bundle bundles[8];
    struct ms_place_request r = {
        .name = "g", .bundles = bundles, .count = 8, .steps_max = 50};
    struct ms_placement p;
    struct ms_error err = {0};

    (void)state;
    for (unsigned i = 0; i < 8; i++)
        bundles[i] = (struct ms_bundle){.cpu_milli = 3000 + 7 * i};
    add_nodes(&s, 4, 6, 0);
    s.nodes[0].cpu_milli = 6001; /* nodes that are not alike */
    s.nodes[1].cpu_milli = 6002;
    assert_int_equal(ms_place(&s, &r, &p, &err), -EAGAIN);
    assert_non_null(strstr(err.text, "was found in 50 steps"));
    ms_stock_finish(&s);
}

static void test_bad_requests(void **state)
{
    struct ms_stock s = {0};
    struct ms_bundle b = {.devices = 1, .share_milli = 1};
    struct ms_place_request r = {.name = "g", .bundles = &b};
    struct ms_placement p;
    enum ms_strategy strategy;

    (void)state;
    assert_int_equal(ms_place(&s, &r, &p, NULL), -EINVAL);
    r.count = 1;
    assert_int_equal(ms_place(&s, &r, &p, NULL), -EINVAL);
    b = (struct ms_bundle){.share_milli = 1000};
    assert_int_equal(ms_place(&s, &r, &p, NULL), -EINVAL);
    b = (struct ms_bundle){.device_memory = 1};
    assert_int_equal(ms_place(&s, &r, &p, NULL), -EINVAL);
    b = (struct ms_bundle){0};
    assert_int_equal(ms_place(&s, &r, &p, NULL), -ENOSPC); /* there is no node */
    assert_int_equal(ms_strategy_parse("STRICT_PACK", &strategy, NULL), 0);
    assert_int_equal(strategy, MS_STRATEGY_STRICT_PACK);
    assert_int_equal(ms_strategy_parse("pack", &strategy, NULL), -EINVAL);
    ms_stock_finish(&s);
}

static void test_a_gone_node_is_not_used(void **state)
{
    struct ms_stock s = {0};
    struct ms_placement p;

    (void)state;
    add_nodes(&s, 2, 8, 1);
    s.nodes[0].is_gone = true;
    assert_int_equal(place_equal(&s, MS_STRATEGY_PACK, one_gpu, 1, &p), 0);
    expect_nodes(&p, "1");
    assert_int_equal(place_equal(&s, MS_STRATEGY_PACK, one_gpu, 1, &p), -ENOSPC);
    ms_stock_finish(&s);
}

static void test_as_many_as_fit(void **state)
{
    static const struct {
        enum ms_strategy strategy;
        size_t most;
    } cases[] = {{MS_STRATEGY_PACK, 6},
                 {MS_STRATEGY_STRICT_PACK, 2},
                 {MS_STRATEGY_STRICT_SPREAD, 3}};
    struct ms_placement p;

    (void)state;
    for (size_t i = 0; i < MS_COUNT(cases); i++) {
        enum ms_strategy how = cases[i].strategy;
        struct ms_stock s = {0};

        add_nodes(&s, 3, 8, 5);
        assert_int_equal(place_equal(&s, how, two_gpus, cases[i].most + 1, &p),
                         -ENOSPC);
        assert_int_equal(place_equal(&s, how, two_gpus, cases[i].most, &p), 0);
        ms_placement_finish(&p);
        ms_stock_finish(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pack_uses_few_nodes),
        cmocka_unit_test(test_pack_fills_small_gaps),
        cmocka_unit_test(test_spread_is_even),
        cmocka_unit_test(test_strict_pack_is_one_node),
        cmocka_unit_test(test_strict_spread_is_one_each),
        cmocka_unit_test(test_devices_of_one_domain),
        cmocka_unit_test(test_shares_fill_a_device),
        cmocka_unit_test(test_device_memory_counts),
        cmocka_unit_test(test_kinds_and_extras),
        cmocka_unit_test(test_labels_and_same_domain),
        cmocka_unit_test(test_mixed_bundles_are_searched),
        cmocka_unit_test(test_at_the_limit_it_says_so),
        cmocka_unit_test(test_bad_requests),
        cmocka_unit_test(test_a_gone_node_is_not_used),
        cmocka_unit_test(test_as_many_as_fit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
