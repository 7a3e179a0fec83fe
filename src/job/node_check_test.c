/* node_check_test.c - tests of node_check.h: which nodes are faulty or slow, from
 * two rounds of checks in pairs */
#include "base/cleanup.h"
#include "base/test_random.h"
#include "job/node_check.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

/* What nodes are really like: g good, s slow (3 times as long), f fails with anybody and
 * alone, n its network fails: alone it passes. */
static bool passes(const char *nodes, const struct ms_node_pair *p)
{
    if (p->a == p->b)
        return nodes[p->a] != 'f';
    return !strchr("fn", nodes[p->a]) && !strchr("fn", nodes[p->b]);
}

static int64_t time_of(const char *nodes, const struct ms_node_pair *p)
{
    return nodes[p->a] == 's' || nodes[p->b] == 's' ? 300 : 100;
}

static void run(struct ms_node_check *c, const char *nodes)
{
    assert_int_equal(ms_node_check_init(c, (uint32_t)strlen(nodes), NULL), 0);
    for (unsigned round = 0; round < MS_NODE_CHECK_ROUNDS; round++) {
        size_t count;
        const struct ms_node_pair *pairs = ms_node_check_plan(c, round, &count);

        for (size_t i = 0; i < count; i++) {
            bool ok = passes(nodes, &pairs[i]);
            int64_t t = time_of(nodes, &pairs[i]);

            ms_node_check_report(c, round, pairs[i].a, ok, t);
            if (pairs[i].b != pairs[i].a)
                ms_node_check_report(c, round, pairs[i].b, ok, t);
        }
    }
}

static void test_verdicts(void **state)
{
    /* what they are; what is said: . good, s straggler, ? suspect, F faulty */
    static const struct {
        const char *nodes, *said;
    } cases[] = {
        {"g", "."},
        {"f", "F"},
        {"gg", ".."},
        {"gf", ".F"},
        {"ff", "FF"},
        {"gn", "??"}, /* each is good alone: what is between them */
        {"ggg", "..."},
        {"gfg", ".F."},
        {"ngg", "F.."},
        {"ggf", "..F"},
        {"ggn", "..F"},
        {"gggg", "...."},
        {"fggg", "F..."},
        {"gggn", "...F"},
        {"gggs", "...s"},
        {"gfggg", ".F..."},
        {"ffgg", "FF.."},
        {"fgfg", "????"}, /* every check failed: nobody can tell */
        {"gggggsgg", ".....s.."},
        {"gfgggggsg", ".F.....s."},
        {"nggggggf", "F......F"},
    };

    (void)state;
    for (size_t i = 0; i < MS_COUNT(cases); i++) {
        MS_CLEANUP(ms_node_check_finish) struct ms_node_check c;
        char said[16] = {0};

        run(&c, cases[i].nodes);
        for (uint32_t n = 0; n < c.count; n++)
            said[n] = ".s?F"[ms_node_check_verdict(&c, n)];
        assert_string_equal(said, cases[i].said);
    }
}

static void test_pairs(void **state)
{
    MS_CLEANUP(ms_node_check_finish) struct ms_node_check c;
    static const int64_t times[] = {50, 20, 40, 10, 30};
    const struct ms_node_pair *p;
    size_t count;

    (void)state;
    assert_int_equal(ms_node_check_init(&c, 5, NULL), 0);
    p = ms_node_check_plan(&c, 0, &count);
    assert_int_equal(count, 3);
    assert_true(p[0].a == 0 && p[0].b == 1 && p[1].a == 2 && p[1].b == 3);
    assert_true(p[2].a == 4 && p[2].b == 4);
    for (uint32_t i = 0; i < 5; i++)
        ms_node_check_report(&c, 0, i, true, times[i]);
    p = ms_node_check_plan(&c, 1, &count);
    assert_int_equal(count, 3);
    assert_true(p[0].a == 3 && p[0].b == 0); /* fastest, slowest */
    assert_true(p[1].a == 1 && p[1].b == 2);
    assert_true(p[2].a == 4 && p[2].b == 4);
    assert_int_equal(ms_node_check_median_ns(&c), 30);
    assert_int_equal(ms_node_check_time_ns(&c, 2), 40);
}

static void test_nobody(void **state)
{
    struct ms_node_check c;
    struct ms_error err = {0};

    (void)state;
    assert_int_equal(ms_node_check_init(&c, 0, &err), -EINVAL);
    assert_int_equal(ms_node_check_init(&c, 1u << 20, &err), -EINVAL);
    assert_non_null(strstr(err.text, "4096"));
}

/* One faulty node among any number above 2 is always found, and nobody else blamed. */
static void test_random_one_faulty(void **state)
{
    (void)state;
    for (uint64_t number = 1; number <= 2000; number++) {
        uint64_t seed = test_seed(number);
        uint32_t count = 3 + test_roll(&seed, 40), bad = test_roll(&seed, count);
        MS_CLEANUP(ms_node_check_finish) struct ms_node_check c;
        char nodes[64] = {0};

        memset(nodes, 'g', count);
        nodes[bad] = 'f';
        run(&c, nodes);
        for (uint32_t i = 0; i < count; i++)
            assert_int_equal(ms_node_check_verdict(&c, i),
                             i == bad ? MS_NODE_FAULTY : MS_NODE_GOOD);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_verdicts),
        cmocka_unit_test(test_pairs),
        cmocka_unit_test(test_nobody),
        cmocka_unit_test(test_random_one_faulty),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
