/* why_test.c - tests of why.h: why a group could not be placed, for people */
#include "resource/why.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void add_nodes(struct ms_stock *s, unsigned count, unsigned cpus, unsigned gpus)
{
    char name[16];

    assert_int_equal(ms_stock_kind(s, "gpu", NULL), 1);
    for (unsigned i = 0; i < count; i++) {
        snprintf(name, sizeof name, "n%zu", s->count);
        assert_true(ms_stock_append(s, name, cpus * 1000ull, 64ull << 30, NULL) >= 0);
        assert_int_equal(ms_stock_add_devices(s, s->count - 1, 1, gpus, 0, 0, NULL), 0);
    }
}

/* The request cannot be placed, and this is what people are told. */
static void
expect(struct ms_stock *s, const struct ms_place_request *r, const char *text)
{
    struct ms_buf out = {0};
    struct ms_placement p;

    assert_int_equal(ms_place(s, r, &p, NULL), -ENOSPC);
    assert_int_equal(ms_place_explain(s, r, NULL, &out), 0);
    assert_string_equal(ms_buf_str(&out), text);
    ms_buf_finish(&out);
}

static void test_table(void **state)
{
    struct ms_stock s = {0};
    struct ms_bundle b = {.devices = 4, .cpu_milli = 2000, .kind = 1};
    struct ms_bundle bundles[] = {b, b, b, b};
    struct ms_place_request r = {.name = "actor", .bundles = bundles, .count = 4};

    (void)state;
    add_nodes(&s, 1, 1, 4);
    add_nodes(&s, 3, 8, 4);
    expect(
        &s,
        &r,
        "group 'actor': 4 bundles, PACK\n"
        "  bundle 0-3  4 gpus, 2 CPUs\n"
        "   node     CPUs    memory                devices  fits  why not\n"
        ">  n0       1 of 1  64.0 GiB of 64.0 GiB  4 of 4   0     2 CPUs asked for, 1 "
        "free\n"
        "   n1 - n3  8 of 8  64.0 GiB of 64.0 GiB  4 of 4   1\n"
        "it fits with 2 gpus for each, or with 3 bundles\n");
    ms_stock_finish(&s);
}

static void
expect_hint(struct ms_stock *s, const struct ms_place_request *r, const char *text)
{
    struct ms_buf out = {0};

    assert_int_equal(ms_place_suggest(s, r, &out), 0);
    assert_string_equal(out.len ? ms_buf_str(&out) : "", text);
    ms_buf_finish(&out);
}

static void test_hints(void **state)
{
    struct ms_stock s = {0};
    struct ms_bundle two = {.devices = 2, .kind = 1}, wide = {.cpu_milli = 20000};
    struct ms_bundle bundles[] = {two, two, two};
    struct ms_place_request r = {.name = "g", .bundles = bundles, .count = 3};

    (void)state;
    add_nodes(&s, 2, 8, 4);
    ms_stock_add_label(&s, 0, "rack=a", NULL);
    ms_stock_add_label(&s, 1, "rack=b", NULL);
    r.strategy = MS_STRATEGY_STRICT_PACK;
    expect_hint(
        &s,
        &r,
        "it fits with strategy PACK, or with 1 gpu for each, or with 2 bundles");
    r.strategy = MS_STRATEGY_PACK;
    r.same = "rack";
    expect_hint(
        &s,
        &r,
        "it fits on more than one rack, or with 1 gpu for each, or with 2 bundles");
    r = (struct ms_place_request){.name = "g", .bundles = &wide, .count = 1};
    expect_hint(&s, &r, "it fits with 8 CPUs for each");
    wide = (struct ms_bundle){.memory = 100ull << 30};
    expect_hint(&s, &r, "it fits with 64.0 GiB for each");
    wide = (struct ms_bundle){.devices = 1, .kind = 1, .device_memory = 1};
    expect_hint(&s, &r, ""); /* nothing helps */
    ms_stock_finish(&s);
}

static void test_reasons(void **state)
{
    struct ms_stock s = {0};
    struct ms_selector fast = {0};
    struct ms_extra_need nic = {"nic", 2};
    struct ms_bundle bundles[] = {
        {.cpu_milli = 500, .share_milli = 250, .kind = 1, .device_memory = 1 << 30},
        {.memory = 1 << 20, .extras = &nic, .extra_count = 1, .selector = &fast}};
    struct ms_place_request r = {
        .name = "g", .bundles = bundles, .count = 2, .same = "rack"};

    (void)state;
    assert_int_equal(ms_selector_add(&fast, "gpu", "!in(h20,l20)", NULL), 0);
    add_nodes(&s, 4, 8, 1);
    ms_stock_add_label(&s, 0, "gpu=h20", NULL);
    ms_stock_add_extra(&s, 1, "nic", 1, NULL);
    s.nodes[2].is_gone = true;
    expect(&s,
           &r,
           "group 'g': 2 bundles, PACK, all on one rack\n"
           "  bundle 0  0.250 of a gpu with 1.0 GiB, 0.5 CPUs\n"
           "  bundle 1  1.0 MiB, 2 nic, gpu not h20|l20\n"
           "   node  CPUs    memory                devices  fits  why not\n"
           ">  n0    8 of 8  64.0 GiB of 64.0 GiB  1 of 1   0     no gpu like that is "
           "free\n"
           "   n1    8 of 8  64.0 GiB of 64.0 GiB  1 of 1   0     no gpu like that is "
           "free\n"
           "   n2    8 of 8  64.0 GiB of 64.0 GiB  1 of 1   0     it is gone\n"
           "   n3    8 of 8  64.0 GiB of 64.0 GiB  1 of 1   0     no gpu like that is "
           "free\n");
    r.bundles = bundles + 1;
    r.count = 1;
    expect(&s,
           &r,
           "group 'g': 1 bundle, PACK, all on one rack\n"
           "  bundle 0  1.0 MiB, 2 nic, gpu not h20|l20\n"
           "   node  CPUs    memory                devices  fits  why not\n"
           ">  n0    8 of 8  64.0 GiB of 64.0 GiB  1 of 1   0     gpu is h20\n"
           "   n1    8 of 8  64.0 GiB of 64.0 GiB  1 of 1   0     2 nic asked for, 1 "
           "free\n"
           "   n2    8 of 8  64.0 GiB of 64.0 GiB  1 of 1   0     it is gone\n"
           "   n3    8 of 8  64.0 GiB of 64.0 GiB  1 of 1   0     2 nic asked for, 0 "
           "free\n");
    ms_selector_finish(&fast);
    ms_stock_finish(&s);
}

static void test_many_nodes_are_folded(void **state)
{
    struct ms_stock s = {0};
    struct ms_bundle b = {.devices = 9, .kind = 1};
    struct ms_place_request r = {.name = "g", .bundles = &b, .count = 1};
    struct ms_buf out = {0};

    (void)state;
    for (unsigned i = 0; i < 100; i++)
        add_nodes(&s, 10, 1 + i, 8);
    assert_int_equal(ms_place_explain(&s, &r, NULL, &out), 0);
    assert_non_null(strstr(ms_buf_str(&out), "n0 - n9"));
    assert_non_null(strstr(ms_buf_str(&out), "and 760 more nodes"));
    assert_non_null(strstr(ms_buf_str(&out), "it fits with 8 gpus for each"));
    ms_buf_finish(&out);
    ms_stock_finish(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_hints),
        cmocka_unit_test(test_reasons),
        cmocka_unit_test(test_many_nodes_are_folded),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
