/* A real agent: every way in which it ends, and that nothing is left then. */
#include "agent/agent.h"
#include "agent/fake_head.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static int set_up(void **state)
{
    static struct fake_head h;

    fake_head_init(&h);
    *state = &h;
    return 0;
}

static int tear_down(void **state)
{
    fake_head_finish(*state);
    return 0;
}

/* Without descriptors it has no loop: it says so and ends, with what it was given. */
static void test_no_descriptors(void **state)
{
    const struct rlimit none = {.rlim_cur = 3, .rlim_max = 3};
    pid_t pid = fork();
    int status;

    (void)state;
    if (pid == 0) {
        setrlimit(RLIMIT_NOFILE, &none);
        if (ms_agent_run(-1, -1, getppid()) != 1)
            _exit(2);
        _exit(fcntl(STDIN_FILENO, F_GETFD) < 0 ? 3 : 0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

/* A worker that ignores SIGTERM, with a child in its group and one in another session.
 */
static void start_stubborn(struct fake_head *h)
{
    struct fake_spec s;

    fake_free(fake_head_start(h));
    fake_spec_shell(
        &s,
        7,
        0,
        "trap '' TERM; echo worker=$$; sleep 1000 & echo group=$!; setsid sh -c "
        "'echo session=$$; while :; do sleep 1000; done' & while :; do sleep "
        "1000; done");
    fake_free(fake_head_started(h, &s, 1));
    fake_head_wait_line(h, "worker=");
    fake_head_wait_line(h, "group=");
    fake_head_wait_line(h, "session=");
}

static void assert_nothing_left(struct fake_head *h)
{
    static const char *const names[] = {"worker=", "group=", "session="};
    char path[128];

    for (size_t i = 0; i < MS_COUNT(names); i++)
        assert_int_equal(kill((pid_t)fake_head_number(h, names[i]), 0), -1);
    snprintf(path, sizeof path, "%s/w", h->dir);
    assert_int_equal(access(path, F_OK), -1);
    snprintf(path, sizeof path, "%s/logs/actor-0.log", h->dir);
    assert_int_equal(access(path, F_OK), 0); /* logs stay */
}

static void test_link_ends(void **state)
{
    struct fake_head *h = *state;

    start_stubborn(h);
    ms_link_destroy(MS_TAKE(h->link));
    assert_int_equal(fake_head_join(h), 0);
    assert_nothing_left(h);
}

static void test_driver_dies(void **state)
{
    struct fake_head *h = *state;
    pid_t driver = fork();

    if (driver == 0) {
        pause();
        _exit(0);
    }
    h->driver_pid = driver;
    start_stubborn(h);
    kill(driver, SIGKILL);
    assert_int_equal(fake_head_join(h), 0);
    assert_int_equal(waitpid(driver, NULL, 0), driver);
    assert_nothing_left(h);
}

static void test_sigterm_to_the_agent(void **state)
{
    struct fake_head *h = *state;

    start_stubborn(h);
    kill(h->agent_pid, SIGTERM);
    assert_int_equal(fake_head_join(h), 0);
    assert_nothing_left(h);
}

static void test_keyboard_and_hangup_are_not_for_us(void **state)
{
    struct fake_head *h = *state;

    start_stubborn(h);
    kill(h->agent_pid, SIGINT);
    kill(h->agent_pid, SIGHUP);
    fake_head_stop_workers(h, 7, 0); /* it still answers */
}

static void
test_a_hung_worker_is_killed_after_its_grace_with_its_process_group(void **state)
{
    struct fake_head *h = *state;
    Muster__AgentToHead *answer;
    int64_t before;

    start_stubborn(h);
    before = ms_now_ns();
    fake_head_stop_workers(h, 7, 300 * MS_NS_PER_MS);
    answer = fake_head_exit(h, 7);
    assert_int_equal(answer->exited->exit->code, SIGKILL);
    assert_true(answer->exited->exit->requested);
    assert_true(ms_now_ns() - before >= 300 * MS_NS_PER_MS);
    fake_free(answer);
    assert_int_equal(kill((pid_t)fake_head_number(h, "worker="), 0), -1);
    assert_int_equal(kill((pid_t)fake_head_number(h, "group="), 0), -1);
}

static void test_agent_stop(void **state)
{
    struct fake_head *h = *state;
    Muster__HeadToAgent m = MUSTER__HEAD_TO_AGENT__INIT;
    Muster__AgentStop stop = MUSTER__AGENT_STOP__INIT;
    Muster__AgentToHead *answer;
    struct fake_spec s;
    uint64_t request;
    int64_t before;

    start_stubborn(h);
    fake_spec_shell(&s, 8, 1, "sleep 1000");
    fake_free(fake_head_started(h, &s, 1));
    before = ms_now_ns();
    m.body_case = MUSTER__HEAD_TO_AGENT__BODY_SHUTDOWN;
    m.shutdown = &stop;
    request = fake_head_send(h, &m);
    answer = fake_head_exit(h, 8); /* this one heeds SIGTERM */
    assert_true(answer->exited->exit->requested);
    assert_int_equal(answer->exited->exit->code, SIGTERM);
    fake_free(answer);
    /* nothing is begun any more */
    fake_spec_shell(&s, 9, 2, "sleep 1000");
    answer = fake_head_answer(h, fake_head_start_workers(h, &s, 1));
    assert_int_equal(answer->failure->kind, MUSTER__FAILURE__KIND__SHUTTING_DOWN);
    fake_free(answer);
    answer = fake_head_exit(h, 7); /* and this one does not, until its grace is over */
    assert_int_equal(answer->exited->exit->code, SIGKILL);
    assert_true(ms_now_ns() - before >= 2 * MS_NS_PER_S);
    fake_free(answer);
    fake_free(fake_head_answer(h, request));
    assert_int_equal(fake_head_join(h), 0);
    assert_nothing_left(h);
}

static void test_idle_agent_stops_at_once(void **state)
{
    struct fake_head *h = *state;
    Muster__HeadToAgent m = MUSTER__HEAD_TO_AGENT__INIT;
    Muster__AgentStop stop = MUSTER__AGENT_STOP__INIT;
    int64_t before;

    fake_free(fake_head_start(h));
    before = ms_now_ns();
    m.body_case = MUSTER__HEAD_TO_AGENT__BODY_SHUTDOWN;
    m.shutdown = &stop;
    fake_free(fake_head_answer(h, fake_head_send(h, &m)));
    assert_int_equal(fake_head_join(h), 0);
    assert_true(ms_now_ns() - before < MS_STOP_GRACE_NS); /* nobody to wait for */
}

static void test_head_of_another_version(void **state)
{
    struct fake_head *h = *state;
    Muster__HeadToAgent m = MUSTER__HEAD_TO_AGENT__INIT;
    Muster__AgentConfig c = MUSTER__AGENT_CONFIG__INIT;
    Muster__AgentToHead *answer;

    fake_free(fake_head_start(h));
    /* a second config is refused, and the agent goes on */
    m.body_case = MUSTER__HEAD_TO_AGENT__BODY_CONFIG;
    m.config = &c;
    answer = fake_head_answer(h, fake_head_send(h, &m));
    assert_string_equal(answer->failure->message, "the agent is configured already");
    fake_free(answer);
    /* a message from the future */
    muster__head_to_agent__init(&m);
    answer = fake_head_answer(h, fake_head_send(h, &m));
    assert_int_equal(answer->body_case, MUSTER__AGENT_TO_HEAD__BODY_FAILURE);
    fake_free(answer);
}

static void test_no_descriptor_left(void **state)
{
    struct fake_head *h = *state;
    enum { COUNT = 32 };
    struct fake_spec *s = calloc(COUNT, sizeof *s);
    Muster__AgentToHead *m;

    h->nofile_max = 64;
    fake_free(fake_head_start(h));
    for (uint32_t i = 0; i < COUNT; i++)
        fake_spec_shell(&s[i], 100 + i, i, "sleep 1000");
    m = fake_head_answer(h, fake_head_start_workers(h, s, COUNT));
    assert_int_equal(m->body_case, MUSTER__AGENT_TO_HEAD__BODY_FAILURE);
    assert_true(
        strstr(m->failure->message, "no descriptor left: the agent may have 64") ||
        strstr(m->failure->message, "Too many open files"));
    fake_free(m);
    fake_free(fake_head_started(h, s, 4)); /* fewer work, with the same uids */
    free(s);
}

static void test_agent_is_small_and_silent(void **state)
{
    struct fake_head *h = *state;
    char path[64], text[256], name[32] = "";
    long pss_kb = 0;
    FILE *f;

    fake_free(fake_head_start(h));
    snprintf(path, sizeof path, "/proc/%d/comm", (int)h->agent_pid);
    f = fopen(path, "re");
    assert_non_null(fgets(name, sizeof name, f));
    fclose(f);
    assert_string_equal(name, "muster-agent\n");
    snprintf(path, sizeof path, "/proc/%d/smaps_rollup", (int)h->agent_pid);
    f = fopen(path, "re");
    while (fgets(text, sizeof text, f))
        sscanf(text, "Pss: %ld", &pss_kb);
    fclose(f);
    print_message("# agent: %ld kB of proportional memory\n", pss_kb);
}

#define AGENT_TEST(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_descriptors),
        AGENT_TEST(test_link_ends),
        AGENT_TEST(test_driver_dies),
        AGENT_TEST(test_sigterm_to_the_agent),
        AGENT_TEST(test_keyboard_and_hangup_are_not_for_us),
        AGENT_TEST(test_a_hung_worker_is_killed_after_its_grace_with_its_process_group),
        AGENT_TEST(test_agent_stop),
        AGENT_TEST(test_idle_agent_stops_at_once),
        AGENT_TEST(test_head_of_another_version),
        AGENT_TEST(test_no_descriptor_left),
        AGENT_TEST(test_agent_is_small_and_silent),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
