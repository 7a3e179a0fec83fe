/* visible_test.c - which devices a process sees */
#include "base/cleanup.h"
#include "resource/shape.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void expect(const Muster__NodeShape *s,
                   const char *variable,
                   const uint32_t *devices,
                   size_t count,
                   const char *text)
{
    struct ms_buf out;

    ms_buf_init(&out);
    assert_int_equal(ms_shape_visible(s, variable, devices, count, &out), 0);
    assert_string_equal(ms_buf_str(&out), text);
    ms_buf_finish(&out);
}

static void test_devices_of_two_vendors(void **state)
{
    MS_CLEANUP(ms_shape_cleanup) Muster__NodeShape *s = ms_shape_create("n");
    struct ms_shape_devices npus = {.kind = "npu", .vendor = "huawei", .count = 3};
    struct ms_shape_devices gpus = {.vendor = "amd", .count = 2};
    const char *variables[MS_DEVICE_VARIABLES_MAX];
    const uint32_t mine[] = {4, 0, 2};

    (void)state;
    assert_int_equal(ms_shape_add_devices(s, &npus, NULL), 0);
    assert_int_equal(ms_shape_add_devices(s, &gpus, NULL), 0);
    assert_int_equal(ms_shape_variables(s, variables), 2);
    assert_string_equal(variables[0], "ASCEND_RT_VISIBLE_DEVICES");
    assert_string_equal(variables[1], "HIP_VISIBLE_DEVICES");
    expect(s, variables[0], mine, 3, "0,2");
    expect(s, variables[1], mine, 3, "1");
    expect(s, variables[1], mine + 1, 2, ""); /* none of those */
}

static void test_a_node_without_devices(void **state)
{
    const char *variables[MS_DEVICE_VARIABLES_MAX];

    (void)state;
    assert_int_equal(ms_shape_variables(NULL, variables), 1);
    assert_string_equal(variables[0], "CUDA_VISIBLE_DEVICES");
    expect(NULL, variables[0], NULL, 0, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_devices_of_two_vendors),
        cmocka_unit_test(test_a_node_without_devices),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
