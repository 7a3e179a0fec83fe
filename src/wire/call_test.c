#include "wire/test_rig.h"

static void test_round_trip(void **state)
{
    struct rig rig = {0};

    (void)state;
    rig_start(&rig);
    rig_expect(rig_call(&rig, "echo", "hello"), "hello");
    rig_expect(rig_call(&rig, "echo", ""), "");
    assert_int_equal(rig.executed, 2);
    rig_stop(&rig);
}

static void test_spinning_round_trips(void **state)
{
    struct rig rig = {.spin = true};

    (void)state;
    rig_start(&rig);
    for (int i = 0; i < 1000; i++) {
        struct ms_call_spec spec = {.waits = true};

        rig_expect(rig_call_bytes(&rig, "echo", "x", 1, &spec), "x");
    }
    assert_int_equal(rig.executed, 1000);
    rig_stop(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_spinning_round_trips),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
