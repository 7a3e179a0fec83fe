/* bench_test.c - the benchmark's sets and baselines are what its page says */
#include "baselines.h"
#include "cases.h"

#include "base/cleanup.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static int find_case(const char *name)
{
    for (int i = 0; i < CASES; i++)
        if (strcmp(case_name(i), name) == 0)
            return i;
    fail_msg("no case %s", name);
    return -1;
}

static const struct baseline *find_baseline(const char *name)
{
    for (int i = 0; i < baseline_count; i++)
        if (strcmp(baselines[i].name, name) == 0)
            return &baselines[i];
    fail_msg("no baseline %s", name);
    return NULL;
}

/* ---- sets -------------------------------------------------------------------------- */

/* 200 seeds: 16,000 prompts, so the mean's own error is about 30. */
static void check_lengths_of_deepcoder(const char *name)
{
    double sum = 0, cut = 0, n = 0;

    for (uint64_t seed = 0; seed < 200; seed++) {
        struct case_set set;

        assert_int_equal(case_make(find_case(name), seed, "none", &set), 0);
        for (uint32_t i = 0; i < set.c.groups * set.c.samples; i++, n++) {
            sum += set.c.requests[i].length;
            cut += set.c.requests[i].length == 16000;
            assert_true(set.c.requests[i].length <= 16000);
        }
        case_free(&set);
    }
    assert_true(fabs(sum / n - 9400) < 100);
    assert_true(fabs(cut / n - 0.15) < 0.01);
}

static void test_s1_to_s3_have_the_lengths_of_deepcoder(void **state)
{
    (void)state;
    check_lengths_of_deepcoder("S1");
    check_lengths_of_deepcoder("S2");
    check_lengths_of_deepcoder("S3");
}

/* A trace whose lengths grow row by row. */
static void write_trace(char path[static 64])
{
    MS_CLEANUP(ms_cleanup_file) FILE *f = NULL;
    int fd;

    snprintf(path, 64, "/tmp/bench_trace_XXXXXX");
    fd = mkstemp(path);
    assert_true(fd >= 0);
    f = fdopen(fd, "w");
    assert_non_null(f);
    fprintf(f, "TIMESTAMP,ContextTokens,GeneratedTokens\n");
    for (int row = 1; row <= 4000; row++)
        fprintf(f, "2023-11-16 18:17:%02d.0,10,%d\n", row / 100, row);
}

static void test_a_trace_knows_only_what_came_before(void **state)
{
    struct case_set set;
    char path[64];

    (void)state;
    write_trace(path);
    assert_int_equal(case_make(find_case("azure"), 1, path, &set), 0);
    unlink(path);
    assert_int_equal(set.c.groups, 1500);
    for (uint32_t g = 0; g < set.c.groups; g++) {
        assert_int_equal(set.c.requests[g].length, 400 + 1500 + g + 1);
        assert_int_equal(set.past[(size_t)g * CASE_PAST], 400 + g + 1);
    }
    case_free(&set);
}

/* ---- baselines --------------------------------------------------------------------- */

enum { SAMPLES = 8, GROUPS = 34 };

/* Two ranks are full of the first 32 prompts; then one request of rank 0 ends at 10 tokens,
 * one of rank 1 at 20, and all others much later. */
static void full_ranks(struct sim_request *requests)
{
    for (uint32_t i = 0; i < GROUPS * SAMPLES; i++)
        requests[i] = (struct sim_request){.length = 1000 + i, .prompt = 0};
    requests[0].length = 10;
    requests[SAMPLES].length = 20;
}

static void run_traced(const struct sim_case *c, const struct baseline *b, char **text)
{
    struct ms_lengths *lengths = ms_lengths_create(64);
    struct sim_setup setup = {.policy = b->policy,
                              .engine_queue = b->engine_queue,
                              .limit = b->limit,
                              .chunk = b->chunk,
                              .lengths = lengths,
                              .seed = 1};
    struct sim_result out;
    size_t size;

    sim_trace = open_memstream(text, &size);
    assert_non_null(sim_trace);
    assert_int_equal(sim_run(c, &setup, &out), 0);
    fclose(sim_trace);
    sim_trace = NULL;
    ms_lengths_destroy(lengths);
}

/* Prompt 32 gets the place on rank 0; its second sample waits for that rank, and prompt 33
 * goes to rank 1 meanwhile. */
static void test_roll_blocks_one_prompt_alone(void **state)
{
    struct sim_request requests[GROUPS * SAMPLES];
    uint64_t keys[GROUPS];
    struct sim_case c = {.name = "full",
                         .groups = GROUPS,
                         .samples = SAMPLES,
                         .requests = requests,
                         .keys = keys,
                         .replicas = 2,
                         .slots = 256,
                         .max_new = 4096,
                         .a = 8e-3,
                         .beta = 6e-5};
    const char *first, *other, *second;
    MS_CLEANUP(ms_cleanup_free) char *text = NULL;

    (void)state;
    full_ranks(requests);
    for (uint64_t i = 0; i < GROUPS; i++)
        keys[i] = i + 1;
    run_traced(&c, find_baseline("ROLL PromptAffinity"), &text);
    first = strstr(text, "+ 256 0\n");
    other = strstr(text, "+ 264 1\n");
    second = strstr(text, "+ 257 0\n");
    assert_non_null(first);
    assert_non_null(other);
    assert_non_null(second);
    assert_true(first < other && other < second);
}

/* One request alone, in chunks: it comes back to where its cache is. */
static void test_a_chunk_on_the_same_replica_pays_no_prefill(void **state)
{
    struct sim_request request = {.length = 10000, .prompt = 512};
    uint64_t key = 1;
    struct sim_case c = {.name = "one",
                         .groups = 1,
                         .samples = 1,
                         .requests = &request,
                         .keys = &key,
                         .replicas = 2,
                         .slots = 4,
                         .max_new = 16000,
                         .a = 8e-3,
                         .beta = 6e-5,
                         .prefill = 20e-6};
    const struct baseline *b = find_baseline("Seer-like");
    struct ms_lengths *lengths = ms_lengths_create(64);
    struct sim_setup setup = {
        .policy = b->policy, .chunk = b->chunk, .lengths = lengths, .seed = 1};
    struct sim_result out;

    (void)state;
    assert_int_equal(sim_run(&c, &setup, &out), 0);
    assert_int_equal(out.sent, 5); /* chunks of 2,048 */
    assert_true(out.reprefill < 1e-9);
    ms_lengths_destroy(lengths);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_s1_to_s3_have_the_lengths_of_deepcoder),
        cmocka_unit_test(test_a_trace_knows_only_what_came_before),
        cmocka_unit_test(test_roll_blocks_one_prompt_alone),
        cmocka_unit_test(test_a_chunk_on_the_same_replica_pays_no_prefill),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
