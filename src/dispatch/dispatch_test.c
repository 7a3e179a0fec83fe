/* dispatch_test.c - tests of dispatch.h: who gets which part of a call, and whose
 * answer counts */
#include "dispatch/dispatch.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static struct ms_mesh mesh(uint32_t world, uint32_t tp, uint32_t cp, uint32_t pp)
{
    struct ms_mesh m = {.tp = tp, .cp = cp, .pp = pp};

    assert_int_equal(ms_mesh_fit(&m, world, NULL), 0);
    return m;
}

/* The vectors as text: chunk ('-': not called), then 'p' for the payload and 'c' for
 * collecting. */
static void expect(enum ms_dispatch_mode mode,
                   const struct ms_mesh *m,
                   const char *text,
                   const char *order)
{
    uint32_t world = m->tp * m->cp * m->dp * m->pp;
    struct ms_mesh_rank places[32];
    struct ms_dispatch d;
    char got[256] = "";
    uint32_t ranks[32], count;
    size_t at = 0;

    for (uint32_t i = 0; i < world; i++)
        places[i] = ms_mesh_at(m, i);
    assert_int_equal(ms_dispatch_init_ranks(&d, mode, world, places, NULL), 0);
    for (uint32_t i = 0; i < d.ranks; i++) {
        if (d.chunk_of_rank[i] == MS_NOT_CALLED)
            at += (size_t)snprintf(got + at, sizeof got - at, "%s-", i ? " " : "");
        else
            at += (size_t)snprintf(
                got + at, sizeof got - at, "%s%u", i ? " " : "", d.chunk_of_rank[i]);
        at += (size_t)snprintf(got + at,
                               sizeof got - at,
                               "%s%s",
                               d.receives_payload[i] ? "p" : "",
                               d.collects[i] ? "c" : "");
    }
    assert_string_equal(got, text);
    count = ms_dispatch_order(&d, ranks);
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(ranks[i], order[i] - '0');
    assert_int_equal(order[count], 0);
    ms_dispatch_finish(&d);
}

static void test_simple_modes(void **state)
{
    struct ms_mesh m = mesh(3, 1, 1, 1);

    (void)state;
    expect(MS_DISPATCH_ONE_TO_ALL, &m, "0pc 0pc 0pc", "012");
    expect(MS_DISPATCH_ONE_TO_ALL_ONE, &m, "0pc 0p 0p", "0");
    expect(MS_DISPATCH_ALL_TO_ALL, &m, "0pc 1pc 2pc", "012");
    expect(MS_DISPATCH_RANK_ZERO, &m, "0pc - -", "0");
    expect(MS_DISPATCH_DP, &m, "0pc 1pc 2pc", "012");
}

/* tp 2, dp 2, pp 2: payload to the first stage, results from the last. */
static void test_meshes(void **state)
{
    struct ms_mesh m = mesh(8, 2, 1, 2);

    (void)state;
    expect(MS_DISPATCH_DP_MP, &m, "0p 0p 1p 1p 0pc 0p 1pc 1p", "46");
    expect(MS_DISPATCH_DP_MP_FIRST, &m, "0p 0 1p 1 0c 0 1c 1", "46");
    expect(MS_DISPATCH_DP_MP_FIRST_ALL,
           &m,
           "0pc 0c 1pc 1c 0c 0c 1c 1c",
           "01452367"); /* in the order of the chunks */
    m = mesh(8, 2, 2, 1);
    expect(MS_DISPATCH_DP_MP_FIRST, &m, "0pc 0 0 0 1pc 1 1 1", "04");
}

static void test_ranks_are_where_the_formula_says(void **state)
{
    struct ms_mesh m = mesh(48, 2, 3, 4);

    (void)state;
    assert_int_equal(m.dp, 2);
    for (uint32_t rank = 0; rank < 48; rank++) {
        struct ms_mesh_rank at = ms_mesh_at(&m, rank);

        assert_int_equal(at.tp + m.tp * (at.cp + m.cp * (at.dp + m.dp * at.pp)), rank);
        assert_true(at.tp < m.tp && at.cp < m.cp && at.dp < m.dp && at.pp < m.pp);
    }
}

static void expect_bad_mesh(struct ms_mesh m, uint32_t world, const char *why)
{
    struct ms_error err = {0};

    assert_int_equal(ms_mesh_fit(&m, world, &err), -EINVAL);
    assert_non_null(strstr(err.text, why));
}

static void test_bad_meshes(void **state)
{
    (void)state;
    expect_bad_mesh((struct ms_mesh){.tp = 3}, 8, "cannot be divided by tp 3");
    expect_bad_mesh((struct ms_mesh){.tp = 16}, 8, "cannot be divided");
    expect_bad_mesh(
        (struct ms_mesh){.tp = UINT32_MAX, .cp = UINT32_MAX, .pp = UINT32_MAX},
        8,
        "cannot be divided");
    expect_bad_mesh((struct ms_mesh){.tp = 2, .dp = 2}, 8, "make dp 4");
    expect_bad_mesh((struct ms_mesh){.ep = 3}, 8, "ep 3 does not divide dp 8");
    expect_bad_mesh((struct ms_mesh){0}, 0, "1 to");
}

static void test_vectors_of_the_ranks_own(void **state)
{
    const uint32_t dp[] = {0, 0, 1, 1, 0, 0, 1, 1}, gap[] = {0, 2, 2},
                   far[] = {0, 3, 1};
    const bool odd[] = {0, 1, 0, 1, 0, 1, 0, 1}, none[8] = {0};
    struct ms_dispatch d;
    struct ms_error err = {0};
    uint32_t ranks[8];

    (void)state;
    assert_int_equal(ms_dispatch_init_custom(&d, 8, dp, odd, NULL), 0);
    assert_int_equal(d.chunks, 2);
    assert_int_equal(ms_dispatch_order(&d, ranks), 4);
    assert_memory_equal(ranks, ((uint32_t[]){1, 5, 3, 7}), 16);
    ms_dispatch_finish(&d);
    assert_int_equal(ms_dispatch_init_custom(&d, 8, dp, none, &err), -EINVAL);
    assert_non_null(strstr(err.text, "no rank collects"));
    assert_int_equal(ms_dispatch_init_custom(&d, 3, gap, odd, &err), -EINVAL);
    assert_non_null(strstr(err.text, "no rank has dp rank 1 of 3"));
    assert_int_equal(ms_dispatch_init_custom(&d, 3, far, odd, &err), -EINVAL);
    assert_int_equal(ms_dispatch_init_custom(&d, 0, far, odd, &err), -EINVAL);
}

/* Of tp 2, dp 2, pp 2: its first stage; one dp group; a last stage alone. */
static void test_parts_of_a_mesh(void **state)
{
    struct ms_mesh m = mesh(8, 2, 1, 2);
    const uint32_t parts[][4] = {{0, 1, 2, 3}, {2, 3, 6, 7}, {7, 6, 5, 4}};
    const char *chunks[] = {"0011", "0000", "1100"}, *rows[] = {"0", "0", "1"},
               *order[] = {"02", "2", "31"};
    struct ms_error err = {0};

    (void)state;
    for (size_t p = 0; p < 3; p++) {
        struct ms_mesh_rank at[4];
        struct ms_dispatch d;
        uint32_t ranks[4], count;

        for (uint32_t i = 0; i < 4; i++)
            at[i] = ms_mesh_at(&m, parts[p][i]);
        assert_int_equal(
            ms_dispatch_init_ranks(&d, MS_DISPATCH_DP_MP_FIRST, 4, at, &err), 0);
        for (uint32_t i = 0; i < 4; i++)
            assert_int_equal(d.chunk_of_rank[i], chunks[p][i] - '0');
        assert_int_equal(d.chunks, p == 1 ? 1 : 2);
        assert_true(d.receives_payload[rows[p][0] - '0']);
        count = ms_dispatch_order(&d, ranks);
        assert_int_equal(count, strlen(order[p]));
        for (uint32_t i = 0; i < count; i++)
            assert_int_equal(ranks[i], order[p][i] - '0');
        ms_dispatch_finish(&d);
    }
    assert_int_equal(
        ms_dispatch_init_ranks(&(struct ms_dispatch){0},
                               MS_DISPATCH_DP_MP,
                               1,
                               &(struct ms_mesh_rank){.dp = MS_MESH_RANKS_MAX},
                               &err),
        -EINVAL);
    assert_non_null(strstr(err.text, "too high"));
    assert_int_equal(ms_dispatch_init_ranks(
                         &(struct ms_dispatch){0}, MS_DISPATCH_DP_MP, 0, NULL, &err),
                     -EINVAL);
}

static void test_chunks_are_even(void **state)
{
    (void)state;
    for (uint64_t rows = 0; rows < 40; rows++)
        for (uint32_t chunks = 1; chunks < 12; chunks++) {
            uint64_t next = 0, first, count, before = 0;

            for (uint32_t i = 0; i < chunks; i++) {
                ms_chunk_rows(rows, chunks, i, &first, &count);
                assert_int_equal(first, next);
                assert_true(i == 0 || count == before || count + 1 == before);
                before = count;
                next = first + count;
            }
            assert_int_equal(next, rows);
        }
}

static void test_names(void **state)
{
    enum ms_dispatch_mode mode;
    struct ms_error err = {0};

    (void)state;
    assert_int_equal(ms_dispatch_mode_parse("DP_MP_COMPUTE", &mode, NULL), 0);
    assert_int_equal(mode, MS_DISPATCH_DP_MP);
    assert_int_equal(ms_dispatch_mode_parse("DP_COMPUTE_PROTO", &mode, NULL), 0);
    assert_int_equal(mode, MS_DISPATCH_DP);
    assert_int_equal(ms_dispatch_mode_parse("ALL", &mode, &err), -EINVAL);
    assert_non_null(strstr(err.text, "ONE_TO_ALL, "));
    assert_non_null(strstr(err.text, "DIRECT_ROLLOUT_METHOD"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_simple_modes),
        cmocka_unit_test(test_meshes),
        cmocka_unit_test(test_ranks_are_where_the_formula_says),
        cmocka_unit_test(test_bad_meshes),
        cmocka_unit_test(test_vectors_of_the_ranks_own),
        cmocka_unit_test(test_parts_of_a_mesh),
        cmocka_unit_test(test_chunks_are_even),
        cmocka_unit_test(test_names),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
