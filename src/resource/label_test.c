/* label_test.c - tests of label.h: labels of nodes, and conditions on them */
#include "resource/label.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static char *const labels[] = {(char[]){"zone=a"}, (char[]){"gpu=h800"}};

static bool matches(const char *name, const char *condition)
{
    struct ms_selector s = {0};
    bool yes;

    assert_int_equal(ms_selector_add(&s, name, condition, NULL), 0);
    yes = !ms_selector_misfit(&s, labels, 2);
    ms_selector_finish(&s);
    return yes;
}

static void test_conditions(void **state)
{
    (void)state;
    assert_true(matches("zone", "a"));
    assert_false(matches("zone", "b"));
    assert_false(matches("zone", "!a"));
    assert_true(matches("zone", "!b"));
    assert_true(matches("gpu", "in(h100,h800)"));
    assert_true(matches("gpu", "in(h100, h800)"));
    assert_false(matches("gpu", "!in(h100,h800)"));
    assert_true(matches("gpu", "!in(h100)"));
    assert_false(matches("rack", "x"));
    assert_true(matches("rack", "!x")); /* it is not there */
    assert_true(matches("rack", "!in(x,y)"));
}

static void expect_bad(const char *name, const char *condition, const char *why)
{
    struct ms_selector s = {0};
    struct ms_error err = {0};

    assert_true(ms_selector_add(&s, name, condition, &err) < 0);
    assert_non_null(strstr(err.text, why));
    assert_int_equal(s.count, 0);
    ms_selector_finish(&s);
}

static void test_bad_conditions(void **state)
{
    char many[1024] = "in(a";
    char lengthy[MS_LABEL_MAX + 2];

    (void)state;
    memset(lengthy, 'x', sizeof lengthy);
    lengthy[MS_LABEL_MAX + 1] = 0;
    for (size_t i = 0; i < MS_CONDITIONS_MAX; i++)
        strcat(many, ",a");
    strcat(many, ")");
    expect_bad("zone", "", "is empty");
    expect_bad("zone", "!", "is empty");
    expect_bad("", "a", "is empty");
    expect_bad("zone", "in()", "is empty");
    expect_bad("zone", "in(a,)", "is empty");
    expect_bad("zone", "in(a", "does not end with ')'");
    expect_bad("zone", "a b", "only letters");
    expect_bad("zo ne", "a", "only letters");
    expect_bad("zone", many, "more than 64 values");
    expect_bad("zone", lengthy, "longer than");
}

static void test_equality_and_misfit(void **state)
{
    struct ms_selector a = {0}, b = {0};

    (void)state;
    assert_int_equal(ms_selector_add(&a, "zone", "a", NULL), 0);
    assert_false(ms_selector_is_equal(&a, &b));
    assert_int_equal(ms_selector_add(&b, "zone", "!a", NULL), 0);
    assert_false(ms_selector_is_equal(&a, &b));
    assert_string_equal(ms_selector_misfit(&b, labels, 2)->name, "zone");
    assert_null(ms_selector_misfit(&a, labels, 2));
    ms_selector_finish(&b);
    assert_int_equal(ms_selector_add(&b, "zone", "in(a)", NULL), 0);
    assert_true(ms_selector_is_equal(&a, &b));
    ms_selector_finish(&a);
    ms_selector_finish(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_conditions),
        cmocka_unit_test(test_bad_conditions),
        cmocka_unit_test(test_equality_and_misfit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
