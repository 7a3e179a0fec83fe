/* hosts_test.c - tests of hosts.h: many names in one text */
#include "job/hosts.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* The names, joined by blanks. */
static void check(const char *text, const char *wanted)
{
    struct ms_error err = {0};
    char all[512] = "", **names = NULL;
    size_t count = 0;

    if (ms_hosts_expand(text, &names, &count, &err) < 0)
        fail_msg("%s", err.text);
    for (size_t i = 0; i < count; i++) {
        strcat(all, i ? " " : "");
        strcat(all, names[i]);
    }
    assert_string_equal(all, wanted);
    ms_hosts_free(names, count);
}

static void test_names(void **state)
{
    (void)state;
    check("n0", "n0");
    check("n[0-3]", "n0 n1 n2 n3");
    check("gpu[08-11]", "gpu08 gpu09 gpu10 gpu11");
    check("r1-n[2,4-5].local", "r1-n2.local r1-n4.local r1-n5.local");
    check("[7-7]", "7");
    check("n[3,1]", "n3 n1");
}

static void refuse(const char *text, int code, const char *in_text)
{
    struct ms_error err = {0};
    char **names = NULL;
    size_t count = 0;

    assert_int_equal(ms_hosts_expand(text, &names, &count, &err), code);
    if (!strstr(err.text, in_text))
        fail_msg("'%s' is not in: %s", in_text, err.text);
    assert_null(names);
}

static void test_what_is_refused(void **state)
{
    (void)state;
    refuse("", -EINVAL, "a name is needed");
    refuse("n[0-3", -EINVAL, "one pair of brackets");
    refuse("n[0][1]", -EINVAL, "one pair of brackets");
    refuse("n[]", -EINVAL, "numbers and ranges");
    refuse("n[a]", -EINVAL, "numbers and ranges");
    refuse("n[1,]", -EINVAL, "numbers and ranges");
    refuse("n[1-]", -EINVAL, "numbers and ranges");
    refuse("n[1 2]", -EINVAL, "numbers and ranges");
    refuse("n[1234567890]", -EINVAL, "numbers and ranges");
    refuse("n[3-1]", -EINVAL, "1 is before 3");
    refuse("a b", -EINVAL, "character 2");
    refuse("n[0-999999999]", -E2BIG, "more than");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_what_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
