/* mapping_test.c - tests of mapping.h: device mappings, as people write them */
#include "base/cleanup.h"
#include "resource/mapping.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void test_forms(void **state)
{
    /* what is written, and how it is printed */
    static const char *const cases[][2] = {
        {"0", "0"},
        {"0-15", "0-15"},
        {"0,1,4-7", "0,1,4-7"},
        {" 3 , 1 - 2 ", "3,1,2"},
        {"[0, 1, 4]", "0,1,4"},
        {"[0,1,]", "0,1"},
        {"[0-3, 8]", "0-3,8"},
        {"[]", "none"},
        {"range(4)", "0-3"},
        {"list(range(0,8))", "0-7"},
        {"list ( range ( 0 , 8 ) )", "0-7"},
        {"list(range(8))", "0-7"},
        {"list(range(0,8,2))", "0,2,4,6"},
        {"list(range(3,-1,-1))", "3,2,1,0"},
        {"list(range(8,8))", "none"},
        {"list([5, 6])", "5,6"},
        {"list(range(0,8)) + [8, 9]", "0-9"},
        {"list(range(0,4))+list(range(8,12))", "0-3,8-11"},
        {"0-3 + [6]", "0-3,6"},
        {"1,1", "1,1"},
        {"16777215", "16777215"},
    };

    (void)state;
    for (size_t i = 0; i < MS_COUNT(cases); i++) {
        MS_CLEANUP(ms_cleanup_free) uint32_t *ids = NULL;
        MS_CLEANUP(ms_buf_finish) struct ms_buf out = {0};
        struct ms_error err = {0};
        size_t count = 0;

        if (ms_mapping_parse(cases[i][0], &ids, &count, &err) < 0)
            fail_msg("'%s': %s", cases[i][0], err.text);
        assert_int_equal(ms_mapping_print(ids, count, 0, &out), 0);
        assert_string_equal(ms_buf_str(&out), cases[i][1]);
    }
}

static void test_base_is_added(void **state)
{
    static const uint32_t ids[] = {0, 1, 2, 5};
    MS_CLEANUP(ms_buf_finish) struct ms_buf out = {0};

    (void)state;
    assert_int_equal(ms_mapping_print(ids, MS_COUNT(ids), 8, &out), 0);
    assert_string_equal(ms_buf_str(&out), "8-10,13");
}

static void test_errors_point_at_the_character(void **state)
{
    static const struct {
        const char *text;
        int code;
        const char *wanted;
    } cases[] = {
        {"", -EINVAL, "it is empty"},
        {"  ", -EINVAL, "it is empty"},
        {"x", -EINVAL, "character 1: a device number, [...] or list(range(...)) is"},
        {"0-15,x", -EINVAL, "character 6: a device number is expected, not 'x'"},
        {"0,,1", -EINVAL, "character 3: a device number is expected, not ','"},
        {"0,", -EINVAL, "character 3: a device number is expected, not the end"},
        {"-1", -EINVAL, "character 1: "},
        {"7-4", -EINVAL, "character 1: the run goes backwards"},
        {"0 1", -EINVAL, "character 3: '+' or the end is expected, not '1'"},
        {"[0,1", -EINVAL, "character 5: ',' or ']' is expected, not the end"},
        {"[0;1]", -EINVAL, "character 3: ',' or ']' is expected, not ';'"},
        {"list(range(0,8)", -EINVAL, "character 16: ')' is expected, not the end"},
        {"list(range(0,8)) +", -EINVAL, "character 19: "},
        {"list(range(0,8)), 9", -EINVAL, "character 17: '+' or the end"},
        {"list(range(0,8,0))", -EINVAL, "character 12: a range's step"},
        {"list(range(1,2,3,4))", -EINVAL, "character 18: ')' is expected, not '4'"},
        {"list(range(-2,2))", -EINVAL, "character 12: device ids start at 0"},
        {"list(8)", -EINVAL, "character 6: range(...) or [...] is expected, not '8'"},
        {"listrange(8)", -EINVAL, "character 1: "},
        {"__import__('os')", -EINVAL, "character 1: "},
        {"[0]*4", -EINVAL, "character 4: '+' or the end is expected, not '*'"},
        {"16777216", -E2BIG, "character 1: the number is too big"},
        {"99999999999999999999999", -E2BIG, "character 1: the number is too big"},
        {"range(16777216)", -E2BIG, "character 7: that makes more than 1048576"},
        {"0-16777215", -E2BIG, "character 1: that makes more than 1048576"},
    };

    (void)state;
    for (size_t i = 0; i < MS_COUNT(cases); i++) {
        uint32_t *ids = (uint32_t *)(uintptr_t)1;
        size_t count = 99;
        struct ms_error err = {0};

        assert_int_equal(ms_mapping_parse(cases[i].text, &ids, &count, &err),
                         cases[i].code);
        if (!strstr(err.text, cases[i].wanted))
            fail_msg("'%s' gives \"%s\"", cases[i].text, err.text);
        assert_int_equal(count, 99); /* failure left no trace */
        assert_ptr_equal(ids, (void *)(uintptr_t)1);
    }
}

static void test_long_text_is_refused(void **state)
{
    MS_CLEANUP(ms_cleanup_free) char *text = malloc(MS_MAPPING_TEXT_MAX + 2);
    uint32_t *ids;
    size_t count;

    (void)state;
    assert_non_null(text);
    memset(text, '1', MS_MAPPING_TEXT_MAX + 1);
    text[MS_MAPPING_TEXT_MAX + 1] = 0;
    assert_int_equal(ms_mapping_parse(text, &ids, &count, NULL), -E2BIG);
}

/* Random texts of the grammar's own pieces: nothing crashes, and whatever is accepted
 * prints to a text that parses back to the same list. */
static void test_random_texts(void **state)
{
    static const char *const pieces[] = {"0",
                                         "7",
                                         "12",
                                         ",",
                                         "-",
                                         "[",
                                         "]",
                                         "(",
                                         ")",
                                         "list",
                                         "range",
                                         "+",
                                         " ",
                                         "list(range("};
    uint64_t seed = 20261115;
    int accepted = 0;

    (void)state;
    for (int round = 0; round < 200000; round++) {
        MS_CLEANUP(ms_cleanup_free) uint32_t *ids = NULL;
        MS_CLEANUP(ms_cleanup_free) uint32_t *again = NULL;
        MS_CLEANUP(ms_buf_finish) struct ms_buf out = {0};
        size_t count, count_again;
        char text[160] = "";

        for (int n = 1 + round % 9; n > 0; n--) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            strcat(text, pieces[(seed >> 33) % MS_COUNT(pieces)]);
        }
        if (ms_mapping_parse(text, &ids, &count, NULL) < 0 || count == 0)
            continue;
        accepted++;
        assert_int_equal(ms_mapping_print(ids, count, 0, &out), 0);
        assert_int_equal(ms_mapping_parse(ms_buf_str(&out), &again, &count_again, NULL),
                         0);
        assert_int_equal(count, count_again);
        assert_memory_equal(ids, again, count * sizeof *ids);
    }
    assert_true(accepted > 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forms),
        cmocka_unit_test(test_base_is_added),
        cmocka_unit_test(test_errors_point_at_the_character),
        cmocka_unit_test(test_long_text_is_refused),
        cmocka_unit_test(test_random_texts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
