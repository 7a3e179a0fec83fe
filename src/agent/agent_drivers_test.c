/* A real agent with the workers of several drivers. Zygotes are this program. */
#include "agent/fake_head.h"
#include "agent/fake_python.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char self[256], as_python[] = "as-python";

static int set_up(void **state)
{
    static struct fake_head h;

    fake_head_init(&h);
    fake_free(fake_head_start(&h));
    *state = &h;
    return 0;
}

static int tear_down(void **state)
{
    fake_head_finish(*state);
    return 0;
}

/* A driver whose workers are at `place`. */
static void
add_driver(struct fake_head *h, uint64_t driver, const char *place, bool wants_logs)
{
    Muster__HeadToAgent m = MUSTER__HEAD_TO_AGENT__INIT;
    Muster__DriverContext c = MUSTER__DRIVER_CONTEXT__INIT;
    char path[] = "PATH=/usr/bin:/bin", at[64];
    char *python[] = {self, as_python}, *env[] = {path, at};
    Muster__AgentToHead *answer;

    snprintf(at, sizeof at, "PLACE=%s", place);
    c.driver = driver;
    c.n_python = 2;
    c.python = python;
    c.n_env = 2;
    c.env = env;
    c.wants_logs = wants_logs;
    m.body_case = MUSTER__HEAD_TO_AGENT__BODY_DRIVER;
    m.driver = &c;
    answer = fake_head_answer(h, fake_head_send(h, &m));
    assert_int_equal(answer->body_case, MUSTER__AGENT_TO_HEAD__BODY_DONE);
    fake_free(answer);
}

static void forget_driver(struct fake_head *h, uint64_t driver)
{
    Muster__HeadToAgent m = MUSTER__HEAD_TO_AGENT__INIT;
    Muster__ForgetDriver f = MUSTER__FORGET_DRIVER__INIT;
    Muster__AgentToHead *answer;

    f.driver = driver;
    m.body_case = MUSTER__HEAD_TO_AGENT__BODY_FORGET_DRIVER;
    m.forget_driver = &f;
    answer = fake_head_answer(h, fake_head_send(h, &m));
    assert_int_equal(answer->body_case, MUSTER__AGENT_TO_HEAD__BODY_DONE);
    fake_free(answer);
}

static struct fake_spec spec_of(uint64_t driver, uint64_t uid)
{
    struct fake_spec s;

    fake_spec_fork(&s, uid, 0);
    s.spec.driver = driver;
    return s;
}

/* How many zygotes the agent has. */
static int count_zygotes(const struct fake_head *h)
{
    char command[128], line[32] = "";
    FILE *f;

    snprintf(command,
             sizeof command,
             "ps -o args --ppid %d | grep -c ' as-python '",
             (int)h->agent_pid);
    f = popen(command, "r");
    assert_non_null(f);
    assert_non_null(fgets(line, sizeof line, f));
    pclose(f);
    return atoi(line);
}

static void test_each_has_its_own(void **state)
{
    struct fake_head *h = *state;
    struct fake_spec s[2];
    Muster__AgentToHead *m;
    char path[160];

    add_driver(h, 0xa, "left", true);
    add_driver(h, 0xb, "right", true);
    s[0] = spec_of(0xa, 1);
    s[1] = spec_of(0xb, 2);
    s[1].spec.rank = 1;
    m = fake_head_started(h, s, 1);
    fake_head_wait_line(h, "place=left\n");
    assert_int_equal(h->line_driver, 0xa);
    fake_free(fake_head_started(h, s + 1, 1));
    fake_head_wait_line(h, "place=right\n");
    assert_int_equal(h->line_driver, 0xb);
    assert_int_equal(count_zygotes(h), 2);
    snprintf(path, sizeof path, "%s/logs/actor-0.000000000000000a.log", h->dir);
    assert_string_equal(m->started->workers[0]->log_path, path);
    fake_free(m);
}

/* What workers come from belongs to nobody. */
static void test_they_share(void **state)
{
    struct fake_head *h = *state;
    struct fake_spec s[2];

    add_driver(h, 0xa, "same", true);
    add_driver(h, 0xb, "same", true);
    s[0] = spec_of(0xa, 1);
    s[1] = spec_of(0xb, 2);
    s[1].spec.rank = 1;
    fake_free(fake_head_started(h, s, 2));
    fake_head_wait_line(h, "forked actor/0");
    fake_head_wait_line(h, "forked actor/1");
    assert_int_equal(count_zygotes(h), 1);
    forget_driver(h, 0xa);
    s[1] = spec_of(0xb, 3);
    fake_free(fake_head_started(h, s + 1, 1));
    assert_int_equal(count_zygotes(h), 1);
}

static void test_a_driver_goes(void **state)
{
    struct fake_head *h = *state;
    struct fake_spec s[2];
    Muster__AgentToHead *m;
    pid_t pid;

    add_driver(h, 0xa, "left", true);
    add_driver(h, 0xb, "right", true);
    s[0] = spec_of(0xa, 1); /* detached, say: nobody stops it */
    s[1] = spec_of(0xb, 2);
    m = fake_head_started(h, s, 2);
    pid = m->started->workers[0]->pid;
    fake_free(m);
    forget_driver(h, 0xa);
    assert_int_equal(kill(pid, 0), 0); /* its worker goes on */
    s[0] = spec_of(0xa, 3);
    m = fake_head_answer(h, fake_head_start_workers(h, s, 1));
    assert_int_equal(m->body_case, MUSTER__AGENT_TO_HEAD__BODY_FAILURE);
    assert_non_null(
        strstr(m->failure->message, "driver 000000000000000a is not known"));
    fake_free(m);
    fake_head_stop_workers(h, 1, 0);
    fake_wait_gone(pid);
    add_driver(h, 0xa, "left", true); /* it comes back */
    s[0] = spec_of(0xa, 4);
    fake_free(fake_head_started(h, s, 1));
    assert_int_equal(count_zygotes(h), 2); /* its zygote has waited for it */
}

static void test_quiet_driver(void **state)
{
    struct fake_head *h = *state;
    struct fake_spec s;
    Muster__AgentToHead *m;
    char leave[] = "DO=exit";

    add_driver(h, 0xc, "silent", false);
    s = spec_of(0xc, 5);
    s.env[0] = leave;
    fake_free(fake_head_started(h, &s, 1));
    m = fake_head_exit(h, 5); /* lines would have come before */
    assert_int_equal(m->exited->exit->n_last_lines, 1);
    assert_int_equal(h->lines.len, 0);
    fake_free(m);
}

static void test_unknown_driver(void **state)
{
    struct fake_head *h = *state;
    struct fake_spec s = spec_of(0xdead, 6);
    Muster__AgentToHead *m = fake_head_answer(h, fake_head_start_workers(h, &s, 1));

    assert_int_equal(m->body_case, MUSTER__AGENT_TO_HEAD__BODY_FAILURE);
    assert_non_null(strstr(m->failure->message, "000000000000dead is not known"));
    fake_free(m);
}

#define AGENT_TEST(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        AGENT_TEST(test_each_has_its_own),
        AGENT_TEST(test_they_share),
        AGENT_TEST(test_a_driver_goes),
        AGENT_TEST(test_quiet_driver),
        AGENT_TEST(test_unknown_driver),
    };

    if (argc > 3 && !strcmp(argv[1], as_python))
        return fake_python_run(argv[3]);
    assert_true(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
