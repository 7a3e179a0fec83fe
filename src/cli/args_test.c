/* args_test.c - tests of args.h: the command line, by the table */
#include "base/cleanup.h"
#include "base/nearest.h"
#include "cli/args.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const struct ms_cli_command command = {
    .name = "test",
    .operands = "[A] [B]",
    .operands_max = 2,
    .options = MS_OPT(MS_OPT_JSON) | MS_OPT(MS_OPT_FOLLOW) | MS_OPT(MS_OPT_LINES) |
               MS_OPT(MS_OPT_ALL) | MS_OPT(MS_OPT_SESSION) | MS_OPT(MS_OPT_TLS) |
               MS_OPT(MS_OPT_LABEL) | MS_OPT(MS_OPT_BIND) | MS_OPT(MS_OPT_FD) |
               MS_OPT(MS_OPT_STORE_LIMIT),
};

#define PARSE(cli, err, ...)                                                           \
    ms_args_parse((cli), (char *const[]){__VA_ARGS__, NULL}, (err))

static char *word(const char *text)
{
    return (char *)(uintptr_t)text;
}

static void test_forms_of_options(void **state)
{
    static const char *const lines[][4] = {
        {"-f", "-n", "5", "op"},
        {"-fn", "5", "op"},
        {"-fn5", "op"},
        {"op", "--lines=5", "--follow"},
        {"--lines", "5", "-f", "op"},
        {"--lines", "7", "-fn5", "op"}, /* the last one counts */
    };

    (void)state;
    for (size_t i = 0; i < MS_COUNT(lines); i++) {
        char *args[5] = {0};
        struct ms_cli cli = {.command = &command};

        for (size_t k = 0; k < 4 && lines[i][k]; k++)
            args[k] = word(lines[i][k]);
        assert_int_equal(ms_args_parse(&cli, args, NULL), 0);
        assert_true(ms_cli_has(&cli, MS_OPT_FOLLOW));
        assert_false(ms_cli_has(&cli, MS_OPT_JSON));
        assert_int_equal(ms_cli_number(&cli, MS_OPT_LINES, -1), 5);
        assert_int_equal(cli.operand_count, 1);
        assert_string_equal(cli.operands[0], "op");
    }
}

static void test_operands_after_dashes(void **state)
{
    struct ms_cli cli = {.command = &command};

    (void)state;
    assert_int_equal(PARSE(&cli, NULL, word("-"), word("--"), word("--json")), 0);
    assert_int_equal(cli.operand_count, 2);
    assert_string_equal(cli.operands[0], "-");
    assert_string_equal(cli.operands[1], "--json");
    assert_false(ms_cli_has(&cli, MS_OPT_JSON));
}

static void test_help_wins(void **state)
{
    struct ms_cli cli = {.command = &command};

    (void)state;
    assert_int_equal(PARSE(&cli, NULL, word("-h"), word("--nonsense")), 0);
    assert_true(ms_cli_has(&cli, MS_OPT_HELP));
}

static void test_mistakes(void **state)
{
    static const struct {
        const char *words[4], *wanted;
    } cases[] = {
        {{"--folow"}, "there is no option --folow; did you mean --follow?"},
        {{"--quux"}, "there is no option --quux"},
        {{"--timeout", "3"}, "there is no option --timeout"}, /* of other commands */
        {{"-x"}, "there is no option -x"},
        {{"-fx"}, "there is no option -x"},
        {{"--lines"}, "--lines needs a value: LINES"},
        {{"-n"}, "--lines needs a value: LINES"},
        {{"--json=1"}, "--json takes no value"},
        {{"a", "b", "c"}, "'c' is too much"},
    };

    (void)state;
    for (size_t i = 0; i < MS_COUNT(cases); i++) {
        char *args[5] = {0};
        struct ms_cli cli = {.command = &command};
        struct ms_error err = {0};

        for (size_t k = 0; k < 4 && cases[i].words[k]; k++)
            args[k] = word(cases[i].words[k]);
        assert_int_equal(ms_args_parse(&cli, args, &err), -EINVAL);
        assert_string_equal(err.text, cases[i].wanted);
    }
}

static void test_numbers(void **state)
{
    static const char *const bad[] = {
        "", "x", "5x", "-1", "+1", " 1", "1000000001", "99999999999999999999"};
    struct ms_cli cli = {.command = &command};
    struct ms_error err = {0};

    (void)state;
    assert_int_equal(ms_cli_number(&cli, MS_OPT_LINES, 77), 77);
    assert_int_equal(PARSE(&cli, &err, word("--lines"), word("1000000000")), 0);
    assert_int_equal(ms_cli_number(&cli, MS_OPT_LINES, 77), 1000000000);
    for (size_t i = 0; i < MS_COUNT(bad); i++) {
        assert_int_equal(PARSE(&cli, &err, word("--lines"), word(bad[i])), -EINVAL);
        assert_non_null(strstr(err.text, "not a whole number from 0 to 1000000000"));
    }
    assert_int_equal(PARSE(&cli, &err, word("--lines"), word("x"), word("-h")), 0);
}

static void test_sizes(void **state)
{
    struct ms_cli cli = {.command = &command};
    struct ms_error err = {0};

    (void)state;
    assert_int_equal(PARSE(&cli, &err, word("--store-limit"), word("2GiB")), 0);
    assert_int_equal(ms_cli_number(&cli, MS_OPT_STORE_LIMIT, 0), (int64_t)2 << 30);
    assert_int_equal(PARSE(&cli, &err, word("--store-limit"), word("lots")), -EINVAL);
    assert_non_null(strstr(err.text, "a size such as 20GiB, not 'lots'"));
}

static void test_nearest(void **state)
{
    static const char *const words[] = {"status", "stack", "logs", "doctor", "version"};
    static const char *const cases[][2] = {
        {"statsu", "status"},
        {"stat", "status"},
        {"log", "logs"},
        {"docter", "doctor"},
        {"vesrion", "version"},
        {"st", "status"}, /* begins two: the first */
        {"frobnicate", NULL},
        {"", NULL},
        {"a-word-that-is-much-longer-than-any-command", NULL},
    };
    struct ms_nearest swapped = {.word = "abc"};

    (void)state;
    ms_nearest_consider(&swapped, "acb");
    assert_int_equal(swapped.distance, 1);
    ms_nearest_consider(&swapped, "abc");
    assert_int_equal(swapped.distance, 0);
    for (size_t i = 0; i < MS_COUNT(cases); i++) {
        struct ms_nearest n = {.word = cases[i][0]};

        for (size_t k = 0; k < MS_COUNT(words); k++)
            ms_nearest_consider(&n, words[k]);
        if (cases[i][1])
            assert_string_equal(n.best, cases[i][1]);
        else
            assert_null(n.best);
    }
}

/* What generates help, man pages and completion relies on. */
static void test_table_is_whole(void **state)
{
    (void)state;
    for (enum ms_opt id = 0; id < MS_OPT_COUNT; id++) {
        const struct ms_cli_option *o = &ms_cli_options[id];

        assert_non_null(o->name);
        assert_non_null(o->help);
        for (enum ms_opt other = 0; other < id; other++) {
            assert_string_not_equal(o->name, ms_cli_options[other].name);
            assert_true(!o->letter || o->letter != ms_cli_options[other].letter);
        }
    }
    for (size_t i = 0; i < MS_EXIT_COUNT; i++)
        assert_non_null(ms_cli_exits[i]);
}

static void test_many_values(void **state)
{
    struct ms_cli cli = {.command = &command};
    char *args[MS_CLI_MANY_MAX + 2] = {0};
    struct ms_error err = {0};
    size_t pos = 0;

    (void)state;
    assert_int_equal(PARSE(&cli,
                           NULL,
                           word("--label=a=1"),
                           word("--bind"),
                           word("::1"),
                           word("--label"),
                           word("b=")),
                     0);
    assert_string_equal(ms_cli_next(&cli, MS_OPT_LABEL, &pos), "a=1");
    assert_string_equal(ms_cli_next(&cli, MS_OPT_LABEL, &pos), "b=");
    assert_null(ms_cli_next(&cli, MS_OPT_LABEL, &pos));
    pos = 0;
    assert_string_equal(ms_cli_next(&cli, MS_OPT_BIND, &pos), "::1");
    assert_null(ms_cli_next(&cli, MS_OPT_BIND, &pos));
    for (size_t i = 0; i <= MS_CLI_MANY_MAX; i++)
        args[i] = word("--label=x");
    cli = (struct ms_cli){.command = &command};
    assert_int_equal(ms_args_parse(&cli, args, &err), -EINVAL);
    assert_non_null(strstr(err.text, "--label"));
}

static void test_choices(void **state)
{
    static const char *const bad[] = {"", "o", "onn", "auto on", "On"};
    struct ms_cli cli = {.command = &command};

    (void)state;
    assert_int_equal(PARSE(&cli, NULL, word("--tls"), word("off")), 0);
    assert_string_equal(cli.values[MS_OPT_TLS], "off");
    for (size_t i = 0; i < MS_COUNT(bad); i++) {
        struct ms_error err = {0};

        cli = (struct ms_cli){.command = &command};
        assert_int_equal(PARSE(&cli, &err, word("--tls"), word(bad[i])), -EINVAL);
        assert_non_null(strstr(err.text, "auto on off"));
    }
}

static void test_hidden_options_are_not_guessed(void **state)
{
    struct ms_cli cli = {.command = &command};
    struct ms_error err = {0};

    (void)state;
    assert_int_equal(PARSE(&cli, &err, word("--fx")), -EINVAL);
    assert_null(strstr(err.text, "--fd"));
    assert_int_equal(PARSE(&cli, &err, word("--fd"), word("3")), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forms_of_options),
        cmocka_unit_test(test_operands_after_dashes),
        cmocka_unit_test(test_help_wins),
        cmocka_unit_test(test_mistakes),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_nearest),
        cmocka_unit_test(test_table_is_whole),
        cmocka_unit_test(test_many_values),
        cmocka_unit_test(test_choices),
        cmocka_unit_test(test_hidden_options_are_not_guessed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
