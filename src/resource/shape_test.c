/* shape_test.c - tests of shape.h: what a node has, as a message */
#include "base/cleanup.h"
#include "resource/shape.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void test_described_devices(void **state)
{
    MS_CLEANUP(ms_shape_cleanup) Muster__NodeShape *s = ms_shape_create("n0");
    struct ms_shape_devices d = {.count = 8, .memory = 80, .per_domain = 4};
    struct ms_error err = {0};

    (void)state;
    assert_int_equal(ms_shape_add_devices(s, &d, &err), 0);
    assert_int_equal(s->n_devices, 8);
    assert_string_equal(s->devices[7]->kind, "gpu");
    assert_string_equal(s->devices[7]->id, "7");
    assert_string_equal(s->devices[7]->variable, "CUDA_VISIBLE_DEVICES");
    assert_int_equal(s->devices[3]->domain, 0);
    assert_int_equal(s->devices[4]->domain, 1);
    assert_int_equal(s->devices[4]->memory, 80);

    d = (struct ms_shape_devices){.kind = "npu", .count = 2, .domain = 9};
    assert_int_equal(ms_shape_add_devices(s, &d, &err), 0);
    assert_string_equal(s->devices[8]->id, "0"); /* among those of its variable */
    assert_string_equal(s->devices[9]->id, "1");
    assert_string_equal(s->devices[9]->variable, "ASCEND_RT_VISIBLE_DEVICES");
    assert_int_equal(s->devices[9]->domain, 9);

    d = (struct ms_shape_devices){.count = MS_STOCK_DEVICES_MAX};
    assert_int_equal(ms_shape_add_devices(s, &d, &err), -E2BIG);
    assert_int_equal(s->n_devices, 10);
    d = (struct ms_shape_devices){.kind = "a kind", .count = 1};
    assert_int_equal(ms_shape_add_devices(s, &d, &err), -EINVAL);
}

static void test_variables(void **state)
{
    (void)state;
    assert_string_equal(ms_device_variable("gpu", "amd"), "HIP_VISIBLE_DEVICES");
    assert_string_equal(ms_device_variable("gpu", "nvidia"), "CUDA_VISIBLE_DEVICES");
    assert_string_equal(ms_device_variable("gpu", "intel"), "ZE_AFFINITY_MASK");
    assert_string_equal(ms_device_variable("hpu", ""), "HABANA_VISIBLE_MODULES");
    assert_string_equal(ms_device_variable("fpga", "acme"), "MUSTER_VISIBLE_DEVICES");
}

static void test_labels_and_resources(void **state)
{
    MS_CLEANUP(ms_shape_cleanup) Muster__NodeShape *s = ms_shape_create("n0");
    struct ms_error err = {0};

    (void)state;
    assert_int_equal(ms_shape_add_label(s, "rack", "r1", &err), 0);
    assert_int_equal(ms_shape_add_label(s, "rack", "r2", &err), -EEXIST);
    assert_int_equal(ms_shape_add_label_text(s, "rac=r2", &err), 0);
    assert_int_equal(ms_shape_add_label_text(s, "rack", &err), -EINVAL);
    assert_non_null(strstr(err.text, "NAME=VALUE"));
    assert_int_equal(ms_shape_add_label_text(s, "a=", &err), -EINVAL);
    assert_int_equal(s->n_labels, 2);
    assert_string_equal(s->labels[0], "rack=r1");
    assert_int_equal(ms_shape_add_resource(s, "license", 4, &err), 0);
    assert_int_equal(ms_shape_add_resource(s, "license", 4, &err), -EEXIST);
    assert_int_equal(ms_shape_add_resource(s, "a b", 4, &err), -EINVAL);
    assert_int_equal(s->n_resources, 1);
}

static void test_into_a_stock(void **state)
{
    MS_CLEANUP(ms_shape_cleanup) Muster__NodeShape *s = ms_shape_create("n0");
    MS_CLEANUP(ms_shape_cleanup) Muster__NodeShape *copy = NULL;
    struct ms_shape_devices d = {.count = 2, .memory = 80, .per_domain = 1};
    struct ms_stock stock;
    struct ms_error err = {0};

    (void)state;
    s->cpus = 64;
    s->memory = 1 << 20;
    ms_shape_add_devices(s, &d, &err);
    ms_shape_add_label(s, "rack", "r1", &err);
    ms_shape_add_resource(s, "license", 4, &err);
    copy = ms_shape_copy(s);
    assert_non_null(copy);
    stock = (struct ms_stock){0};
    assert_int_equal(ms_stock_add_shape(&stock, copy, &err), 0);
    assert_int_equal(stock.nodes[0].cpu_milli, 64000);
    assert_int_equal(stock.nodes[0].memory, 1 << 20);
    assert_int_equal(stock.nodes[0].device_count, 2);
    assert_int_equal(stock.nodes[0].devices[1].domain, 1);
    assert_string_equal(ms_stock_kind_name(&stock, stock.nodes[0].devices[0].kind),
                        "gpu");
    assert_string_equal(
        ms_label_find(stock.nodes[0].labels, stock.nodes[0].label_count, "rack"), "r1");
    assert_int_equal(ms_stock_find_extra(&stock.nodes[0], "license")->total, 4);
    assert_int_equal(ms_stock_add_shape(&stock, copy, &err), -EEXIST);
    ms_stock_finish(&stock);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_described_devices),
        cmocka_unit_test(test_variables),
        cmocka_unit_test(test_labels_and_resources),
        cmocka_unit_test(test_into_a_stock),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
