/* head_events_test.c - a line each, and no flood */
#include "cli/head_events.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

struct rig {
    struct ms_head_events events;
    int out, saved; /* what was printed; the stdout of before */
};

static int setup(void **state)
{
    static struct rig r;
    int ends[2];

    assert_int_equal(ms_head_events_init(&r.events), 0);
    assert_int_equal(pipe(ends), 0);
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    fflush(stdout);
    r.saved = dup(STDOUT_FILENO);
    dup2(ends[1], STDOUT_FILENO);
    close(ends[1]);
    r.out = ends[0];
    *state = &r;
    return 0;
}

static int teardown(void **state)
{
    struct rig *r = *state;

    alarm(0);
    dup2(r->saved, STDOUT_FILENO);
    close(r->saved);
    close(r->out);
    ms_head_events_finish(&r->events);
    return 0;
}

/* All lines since the last time, and how many they are. */
static size_t read_lines(struct rig *r, char *text, size_t room)
{
    ssize_t got = read(r->out, text, room - 1);
    size_t count = 0;

    text[got > 0 ? got : 0] = 0;
    for (const char *at = text; (at = strchr(at, '\n')); at++)
        count++;
    return count;
}

static void
node(struct rig *r, const char *name, bool alive, bool suspect, const char *detail)
{
    char address[] = "10.0.0.2", *addresses[] = {address};
    Muster__NodeStatus n = MUSTER__NODE_STATUS__INIT;

    n.name = (char *)(uintptr_t)name;
    n.detail = (char *)(uintptr_t)detail;
    n.alive = alive;
    n.suspect = suspect;
    n.gpus = 8;
    n.cpus = 1;
    n.memory = UINT64_C(3) << 29;
    n.addresses = addresses;
    n.n_addresses = 1;
    ms_head_events_on_node(&r->events, &n);
}

static void test_life_of_a_node(void **state)
{
    struct rig *r = *state;
    char text[4096];

    node(r, "a", true, false, "");
    node(r, "a", true, false, "");
    assert_int_equal(read_lines(r, text, sizeof text), 1);
    assert_non_null(
        strstr(text, " node a at 10.0.0.2 has joined: 8 GPUs, 1 CPU, 1.5 GiB\n"));
    node(r, "a", true, true, "");
    node(r, "a", true, false, "");
    node(r, "a", false, false, "silent\nfor \033[2J 30 s");
    assert_int_equal(read_lines(r, text, sizeof text), 3);
    assert_non_null(strstr(text, "node a at 10.0.0.2 is silent\n"));
    assert_non_null(strstr(text, "node a at 10.0.0.2 is heard again\n"));
    assert_non_null(strstr(text, "has gone: silent?for ?[2J 30 s\n"));
}

static void test_hundreds_are_counted(void **state)
{
    struct rig *r = *state;
    char text[16384], name[16];

    for (int i = 0; i < 300; i++) {
        snprintf(name, sizeof name, "n%d", i);
        node(r, name, true, false, "");
    }
    assert_int_equal(read_lines(r, text, sizeof text), MS_HEAD_EVENTS_MAX);
    ms_head_events_end_period(&r->events);
    assert_int_equal(read_lines(r, text, sizeof text), 1);
    assert_non_null(strstr(text, " 280 more have come or gone"));
    ms_head_events_end_period(&r->events);
    assert_int_equal(read_lines(r, text, sizeof text), 0);
    node(r, "n7", false, false, "it has ended");
    assert_int_equal(read_lines(r, text, sizeof text), 1);
}

static void test_full_pipe_delays_nobody(void **state)
{
    struct rig *r = *state;
    static char text[1 << 17];
    int flags = fcntl(STDOUT_FILENO, F_GETFL);

    fcntl(STDOUT_FILENO, F_SETFL, flags | O_NONBLOCK);
    memset(text, 'x', sizeof text);
    while (write(STDOUT_FILENO, text, 4096) > 0)
        ;
    fcntl(STDOUT_FILENO, F_SETFL, flags);
    node(r, "a", true, false, "");
    ms_head_events_end_period(&r->events); /* still full */
    read_lines(r, text, sizeof text);
    ms_head_events_end_period(&r->events);
    assert_int_equal(read_lines(r, text, sizeof text), 1);
    assert_non_null(strstr(text, " 1 more have come or gone"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_life_of_a_node, setup, teardown),
        cmocka_unit_test_setup_teardown(test_hundreds_are_counted, setup, teardown),
        cmocka_unit_test_setup_teardown(test_full_pipe_delays_nobody, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
