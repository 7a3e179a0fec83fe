/* frame_test.c - tests of frame.h: what `muster top` shows */
#include "base/cleanup.h"
#include "base/clock.h"
#include "cli/top/frame.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MIB ((uint64_t)1 << 20)

/* A cluster with a worker of each kind, and another one that waits for room. */
struct scene {
    Muster__Status status;
    Muster__ClusterStatus clusters[2], *cluster_list[2];
    Muster__WorkerStatus workers[4], *worker_list[4];
    Muster__Activity activities[4];
    Muster__Exit exit;
    Muster__NodeStatus node, *node_list[1];
    Muster__StoreStats store;
};

static char session[] = "s", node[] = "n0", actor[] = "actor", waiting[] = "critic",
            step[] = "default.step", why[] = "no room";

static void activity_set(struct scene *s,
                         size_t rank,
                         Muster__Doing doing,
                         int seconds,
                         uint64_t cpu_ms,
                         uint64_t calls)
{
    Muster__Activity *a = &s->activities[rank];

    a->doing = doing;
    a->for_ns = (uint64_t)seconds * (uint64_t)MS_NS_PER_S;
    a->method = doing == MUSTER__DOING__DOING_CALL ? step : a->method;
    a->memory = (rank + 1) * MIB;
    a->cpu_ns = cpu_ms * (uint64_t)MS_NS_PER_MS;
    a->calls_done = calls;
    s->workers[rank].activity = a;
}

static void scene_init(struct scene *s, int up_s)
{
    *s = (struct scene){0};
    muster__status__init(&s->status);
    muster__exit__init(&s->exit);
    muster__node_status__init(&s->node);
    muster__store_stats__init(&s->store);
    for (size_t i = 0; i < 2; i++) {
        muster__cluster_status__init(&s->clusters[i]);
        s->cluster_list[i] = &s->clusters[i];
    }
    for (size_t i = 0; i < 4; i++) {
        muster__worker_status__init(&s->workers[i]);
        muster__activity__init(&s->activities[i]);
        s->workers[i].uid = 10 - i;
        s->workers[i].rank = (uint32_t)i;
        s->workers[i].node = node;
        s->workers[i].state = MUSTER__WORKER_STATE__WORKER_RUNNING;
        s->worker_list[i] = &s->workers[i];
    }
    s->status.session = session;
    s->status.uptime_ns = (uint64_t)up_s * (uint64_t)MS_NS_PER_S;
    s->clusters[0].name = actor;
    s->clusters[0].workers = s->worker_list;
    s->clusters[0].n_workers = 4;
    s->clusters[1].name = waiting;
    s->clusters[1].waits_for = why;
    s->status.clusters = s->cluster_list;
    s->status.n_clusters = 2;
    s->exit.code = 3;
    s->workers[3].state = MUSTER__WORKER_STATE__WORKER_EXITED;
    s->workers[3].exit = &s->exit;
    s->node.alive = true;
    s->node.store = &s->store;
    s->store.limit = 10 * MIB;
    s->store.used = 3 * MIB;
    s->store.object_count = 2;
    s->node_list[0] = &s->node;
    s->status.nodes = s->node_list;
    s->status.n_nodes = 1;
}

static char *
frame(struct ms_top_view *v, const struct scene *before, const struct scene *now)
{
    struct ms_buf out = {0};
    char *text;

    assert_int_equal(
        ms_top_frame(v, before ? &before->status : NULL, &now->status, &out), 0);
    text = strdup(ms_buf_str(&out));
    ms_buf_finish(&out);
    return text;
}

/* Where in the frame the line of this worker is; fails if there is none. */
static const char *line_of(const char *text, const char *worker)
{
    const char *at = strstr(text, worker);

    assert_non_null(at);
    return at;
}

static void test_what_is_shown(void **state)
{
    struct ms_top_view v = {0};
    struct scene s;
    char *text;

    (void)state;
    scene_init(&s, 61);
    activity_set(&s, 0, MUSTER__DOING__DOING_IDLE, 5, 0, 7);
    activity_set(&s, 1, MUSTER__DOING__DOING_CALL, 75, 0, 8);
    activity_set(&s, 2, MUSTER__DOING__DOING_STOPPED, 3, 0, 0);
    text = frame(&v, NULL, &s);
    assert_non_null(strstr(
        text, "session s  up 1m01s  1 node  store 3.0 MiB of 10.0 MiB in 2 obj"));
    assert_non_null(strstr(text, "4 workers: "));
    assert_non_null(strstr(text, "1 stopped"));
    assert_non_null(strstr(text, "waiting for room: critic"));
    assert_null(strstr(text, "calls/s")); /* there is nothing to compare with */
    assert_null(strstr(text, "CPU%"));
    assert_non_null(strstr(text, "exit code 3"));
    assert_non_null(strstr(text, "busy     1m15s  step")); /* not "default.step" */
    /* trouble, then who is busy, then the others */
    assert_true(line_of(text, "actor/2") < line_of(text, "actor/1"));
    assert_true(line_of(text, "actor/3") < line_of(text, "actor/1"));
    assert_true(line_of(text, "actor/1") < line_of(text, "actor/0"));
    free(text);
}

static void test_rates_and_orders(void **state)
{
    static const struct {
        enum ms_top_sort sort;
        const char *first, *second;
    } orders[] = {{MS_TOP_BY_CPU, "actor/0", "actor/1"},
                  {MS_TOP_BY_CALLS, "actor/1", "actor/0"},
                  {MS_TOP_BY_MEMORY, "actor/2", "actor/1"},
                  {MS_TOP_BY_NAME, "actor/0", "actor/1"}};
    struct scene was, now;

    (void)state;
    scene_init(&was, 10);
    scene_init(&now, 12);
    activity_set(&was, 0, MUSTER__DOING__DOING_IDLE, 5, 1000, 100);
    activity_set(&now, 0, MUSTER__DOING__DOING_IDLE, 5, 2000, 110);
    activity_set(&was, 1, MUSTER__DOING__DOING_IDLE, 5, 0, 100);
    activity_set(&now, 1, MUSTER__DOING__DOING_IDLE, 5, 100, 300);
    activity_set(&now, 2, MUSTER__DOING__DOING_IDLE, 5, 0, 0); /* is new */
    for (size_t i = 0; i < MS_COUNT(orders); i++) {
        struct ms_top_view v = {.sort = orders[i].sort};
        char *text = frame(&v, &was, &now);

        assert_true(line_of(text, orders[i].first) < line_of(text, orders[i].second));
        assert_non_null(strstr(text, "105 calls/s"));
        assert_non_null(strstr(line_of(text, "actor/0"), "  50  ")); /* CPU% */
        free(text);
    }
}

/* Who did not answer has no count of calls: no rate follows from it, before or after. */
static void test_no_rate_without_an_answer(void **state)
{
    static const Muster__Doing silences[] = {MUSTER__DOING__DOING_SILENT,
                                             MUSTER__DOING__DOING_STOPPED,
                                             MUSTER__DOING__DOING_UNKNOWN,
                                             MUSTER__DOING__DOING_STARTING};

    (void)state;
    for (size_t i = 0; i < MS_COUNT(silences); i++) {
        struct ms_top_view v = {0};
        struct scene was, now;
        char *text;

        scene_init(&was, 10);
        scene_init(&now, 12);
        activity_set(&was, 0, silences[i], 5, 1000, 0);
        activity_set(&now, 0, MUSTER__DOING__DOING_IDLE, 5, 2000, 2001);
        activity_set(&was, 1, silences[i], 5, 0, 0);
        activity_set(&now, 1, silences[i], 5, 0, 0);
        text = frame(&v, &was, &now);
        assert_null(strstr(text, "calls/s"));
        assert_null(strstr(text, "CALLS/S"));
        assert_non_null(
            strstr(line_of(text, "actor/0"), "  50  ")); /* the kernel knows */
        free(text);
    }
}

static size_t count_lines(const char *text, size_t *widest)
{
    size_t lines = 0;

    *widest = 0;
    for (; *text; text += strcspn(text, "\n"), text += *text == '\n') {
        size_t len = strcspn(text, "\n");

        if (len > *widest)
            *widest = len;
        lines++;
    }
    return lines;
}

static void test_any_screen(void **state)
{
    struct scene s;
    size_t widest;

    (void)state;
    scene_init(&s, 61);
    activity_set(&s, 1, MUSTER__DOING__DOING_CALL, 75, 0, 8);
    for (size_t columns = 1; columns < 120; columns += 7)
        for (size_t lines = 1; lines < 12; lines++) {
            struct ms_top_view v = {
                .columns = columns, .lines = lines, .skip = 99, .has_keys = true};
            char *text = frame(&v, NULL, &s);
            size_t shown = count_lines(text, &widest);

            assert_true(widest <= columns);
            assert_true(lines < 6 || shown <= lines);
            assert_true(v.skip < 4); /* it does not scroll beyond the last */
            assert_true(text[strlen(text) - 1] != '\n');
            free(text);
        }
}

static void test_selected(void **state)
{
    struct ms_top_view v = {
        .selector = {.cluster = "actor", .has_rank = true, .rank = 1}};
    struct scene s;
    char *text;

    (void)state;
    scene_init(&s, 1);
    text = frame(&v, NULL, &s);
    assert_non_null(strstr(text, "actor/1"));
    assert_null(strstr(text, "actor/0"));
    free(text);
    strcpy(v.selector.cluster, "none");
    text = frame(&v, NULL, &s);
    assert_non_null(strstr(text, "no workers"));
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_shown),
        cmocka_unit_test(test_rates_and_orders),
        cmocka_unit_test(test_no_rate_without_an_answer),
        cmocka_unit_test(test_any_screen),
        cmocka_unit_test(test_selected),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
