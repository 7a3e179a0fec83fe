/* local_test.c - the conformance suite on this host, and its files */
#include "base/cleanup.h"
#include "io/tree.h"
#include "orchestrator/local/test_local_rig.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void read_log(const struct local_rig *r, const char *name, char out[TEXT_MAX])
{
    char path[64];

    snprintf(path, sizeof path, "%s/agent-%s.log", r->dir, name);
    assert_true(ms_tree_read(AT_FDCWD, path, out, TEXT_MAX) >= 0);
}

static void test_agents_lend_what_their_pieces_hold(void **state)
{
    const struct ms_bundle first[] = {{.cpu_milli = 1500, .devices = 1},
                                      {.cpu_milli = 1000, .devices = 2}};
    const struct ms_bundle second[] = {{.devices = 1}};
    struct local_rig *r = rig_of(*state);
    char text[TEXT_MAX];

    open_rig(*state, false);
    assert_int_equal(reserve(r, "a", first, 2, "FAKE_AGENT=").rc, 0);
    assert_int_equal(count_children(), 2); /* one agent for both */
    assert_int_equal(reserve(r, "b", second, 1, "FAKE_AGENT=").rc, 0);
    read_log(r, "n0", text);
    assert_string_equal(text,
                        "n0: 3 CPUs, 1073741824 bytes, 3 devices, head on loopback\n");
    read_log(r, "n0.2", text);
    assert_string_equal(
        text, "n0.2: 8 CPUs, 1073741824 bytes, 1 devices, head on loopback\n");
    release(r, "a");
    release(r, "b");
}

static void test_prefix(void **state)
{
    struct ms_bundle whole[NODES];
    struct local_rig *r = rig_of(*state);
    char text[TEXT_MAX];

    for (size_t i = 0; i < NODES; i++)
        whole[i] = (struct ms_bundle){.cpu_milli = MS_RIG_CPUS * 1000};
    open_rig(*state, false);
    assert_int_equal(reserve(r, "all", whole, NODES, "FAKE_AGENT=").rc, 0);
    read_log(r, "n3", text);
    assert_non_null(strstr(text, "by the prefix"));
    read_log(r, "n2", text);
    assert_null(strstr(text, "by the prefix"));
    release(r, "all");
}

static void test_agent_that_never_joins(void **state)
{
    const struct ms_bundle one = {.cpu_milli = 1000};
    struct local_rig *r = rig_of(*state);
    struct outcome t;

    open_rig(*state, false);
    t = reserve(r, "early", &one, 1, "FAKE_AGENT=leave");
    assert_int_equal(t.rc, -ECHILD);
    assert_non_null(strstr(t.why.text,
                           "piece 0 on n0 ended (refused): the agent exited "
                           "with code 3 before it had joined: see "));
    assert_non_null(strstr(t.why.text, "/agent-n0.log"));
    assert_int_equal(held_pieces(*state), 0);
    r->o->ops->destroy(r->o);
    open_with(r, "/nowhere/muster");
    t = reserve(r, "path", &one, 1, "FAKE_AGENT=");
    assert_int_equal(t.rc, -ECHILD);
    assert_non_null(strstr(t.why.text, "cannot execute '/nowhere/muster'"));
    assert_int_equal(held_pieces(*state), 0);
}

static void test_stubborn_agent_is_killed(void **state)
{
    const struct ms_bundle one = {.cpu_milli = 1000};
    struct local_rig *r = rig_of(*state);

    open_rig(*state, false);
    assert_int_equal(reserve(r, "deaf", &one, 1, "FAKE_AGENT=deaf").rc, 0);
    release(r, "deaf");
    assert_int_equal(held_pieces(*state), 0);
}

static void on_event(void *arg, int rc, const struct ms_orch_event *e)
{
    struct ms_lent_piece *last = arg;

    assert_int_equal(rc, 0);
    if (e->piece->phase == MS_PHASE_ENDED && !e->gone)
        *last = *e->piece;
}

static void test_signal_is_told(void **state)
{
    const struct ms_bundle one = {.cpu_milli = 1000};
    struct local_rig *r = rig_of(*state);
    struct ms_lent_piece last = {0};
    bool never = false;

    open_rig(*state, false);
    assert_int_equal(reserve(r, "shot", &one, 1, "FAKE_AGENT=").rc, 0);
    assert_non_null(r->o->ops->watch(
        r->o, ((struct local *)r->o)->controller.inventory.cursor, on_event, &last));
    kill(agent_pid(r->o, "shot", 0), SIGKILL);
    run_rig(*state, &never, PATIENCE_NS);
    assert_int_equal(last.cause, MS_CAUSE_SIGNALED);
    assert_int_equal(last.code, SIGKILL);
    assert_int_equal(agent_pid(r->o, "shot", 0), 0);
    release(r, "shot");
}

static int setup(void **state)
{
    *state = local_rig_make(NULL);
    return 0;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, local_rig_teardown)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(test_agents_lend_what_their_pieces_hold),
        TEST(test_prefix),
        TEST(test_agent_that_never_joins),
        TEST(test_stubborn_agent_is_killed),
        TEST(test_signal_is_told),
    };
    const struct ms_conformance all[] = {
        {"local", local_rig_make, local_rig_destroy, NULL},
        {"local, durable", local_rig_make, local_rig_destroy, local_rig_self},
    };
    int code;

    if (local_rig_is_agent(argc, argv, &code))
        return code;
    return ms_conformance_run(all, MS_COUNT(all), tests, MS_COUNT(tests));
}
