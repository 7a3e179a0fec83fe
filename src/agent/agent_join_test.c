/* Agents that dial, and heads that go and come back. */
#include "agent/fake_daemon.h"
#include "base/clock.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static struct fake_daemon daemon_head;

static int set_up(void **state)
{
    fake_daemon_init(&daemon_head);
    *state = &daemon_head;
    return 0;
}

static int tear_down(void **state)
{
    fake_daemon_finish(*state);
    return 0;
}

static void join(struct fake_daemon *d)
{
    fake_daemon_start_agent(d);
    fake_free(fake_daemon_hello(d));
    fake_daemon_welcome(d);
}

static pid_t start_shell(struct fake_daemon *d, uint64_t uid, const char *script)
{
    struct fake_spec s;
    Muster__AgentToHead *m;
    pid_t pid;

    fake_spec_shell(&s, uid, 0, script);
    m = fake_head_started(&d->head, &s, 1);
    pid = m->started->workers[0]->pid;
    fake_free(m);
    return pid;
}

static void hold_port(struct fake_daemon *d)
{
    Muster__HeadToAgent ask = MUSTER__HEAD_TO_AGENT__INIT;
    Muster__HoldPort hold = MUSTER__HOLD_PORT__INIT;
    Muster__AgentToHead *m;
    char owner[] = "me";

    hold.owner = owner;
    ask.body_case = MUSTER__HEAD_TO_AGENT__BODY_HOLD_PORT;
    ask.hold_port = &hold;
    m = fake_head_answer(&d->head, fake_head_send(&d->head, &ask));
    assert_int_equal(m->body_case, MUSTER__AGENT_TO_HEAD__BODY_PORT);
    fake_free(m);
}

/* It is asked, and nobody waits for the answer. */
static void ask_to_stop(struct fake_daemon *d, uint64_t uid)
{
    Muster__HeadToAgent ask = MUSTER__HEAD_TO_AGENT__INIT;
    Muster__StopWorkers stop = MUSTER__STOP_WORKERS__INIT;

    stop.n_uids = 1;
    stop.uids = &uid;
    stop.grace_ns = (uint64_t)(5 * MS_NS_PER_S);
    ask.body_case = MUSTER__HEAD_TO_AGENT__BODY_STOP;
    ask.stop = &stop;
    fake_head_send(&d->head, &ask);
    ms_link_drain(d->head.link, ms_now_ns() + MS_NS_PER_S);
}

static void test_hello_and_work(void **state)
{
    struct fake_daemon *d = *state;
    Muster__AgentToHead *m;
    const Muster__AgentReady *ready;
    struct fake_spec s;
    struct stat st;

    fake_daemon_start_agent(d);
    m = fake_daemon_hello(d);
    ready = m->hello->agent->ready;
    assert_true(m->hello->agent->agent != 0);
    assert_int_equal(m->hello->agent->n_workers, 0);
    assert_string_equal(m->hello->agent->session, "");
    assert_string_equal(ready->node_name, "there");
    assert_int_equal(ready->pid, d->head.agent_pid);
    assert_int_equal(ready->shape->cpus, 5);
    assert_int_equal(ready->shape->n_devices, 3);
    assert_int_equal(strlen(ready->host_id), 16);
    assert_int_equal(ready->shape->n_labels, 1);
    assert_string_equal(ready->shape->labels[0], "rack=7");
    assert_true(ready->n_addresses >= 1);
    fake_free(m);
    fake_daemon_welcome(d);
    fake_spec_shell(&s, 7, 0, "echo hello; exec sleep 1000");
    m = fake_head_started(&d->head, &s, 1);
    assert_memory_equal(m->started->workers[0]->address, "unix:", 5);
    assert_non_null(strstr(m->started->workers[0]->address, "train@there/w/actor-0-"));
    assert_non_null(strchr(m->started->workers[0]->address, ','));
    fake_free(m);
    fake_head_wait_line(&d->head, "actor/0: hello");
    assert_int_equal(stat(d->head.dir, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    fake_daemon_stop_agent(d);
}

static void test_workers_outlive_the_head(void **state)
{
    struct fake_daemon *d = *state;
    Muster__AgentToHead *m;
    char wait[96], script[256];
    pid_t pid;
    uint64_t id;

    snprintf(wait, sizeof wait, "%s/wait", d->head.root);
    close(open(wait, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    snprintf(
        script,
        sizeof script,
        "trap 'while [ -e %s ]; do sleep 0.02; done; echo last words; exit 5' TERM; "
        "echo up; while :; do sleep 0.02; done",
        wait);
    fake_daemon_start_agent(d);
    m = fake_daemon_hello(d);
    id = m->hello->agent->agent;
    fake_free(m);
    fake_daemon_welcome(d);
    pid = start_shell(d, 7, "exec sleep 1000");
    /* ends while there is no head, after it has printed */
    start_shell(d, 8, script);
    fake_head_wait_line(&d->head, "actor/0: up");
    hold_port(d);
    ask_to_stop(d, 8);
    fake_daemon_stop(d);
    unlink(wait);
    fake_daemon_start(d);
    m = fake_daemon_hello(d);
    assert_int_equal(m->hello->agent->agent, id);
    assert_string_equal(m->hello->agent->session, "train");
    assert_int_equal(m->hello->agent->n_ports, 1);
    assert_string_equal(m->hello->agent->ports[0]->owner, "me");
    assert_int_equal(m->hello->agent->n_workers, 2);
    for (size_t i = 0; i < 2; i++) {
        const Muster__WorkerReport *r = m->hello->agent->workers[i];

        assert_string_equal(r->spec->cluster, "actor");
        assert_int_equal(r->spec->uid, r->started->uid);
        if (r->spec->uid == 7)
            assert_int_equal(r->started->pid, pid);
    }
    fake_free(m);
    fake_daemon_welcome(d);
    /* the end of the other comes as an event, or came with the hello */
    fake_head_wait_line(&d->head, "last words");
    assert_int_equal(kill(pid, 0), 0);
    fake_daemon_stop_agent(d);
    fake_wait_gone(pid);
}

static void test_ends_are_reported(void **state)
{
    struct fake_daemon *d = *state;
    Muster__AgentToHead *m;
    const Muster__WorkerReport *r;
    pid_t pid;

    join(d);
    pid = start_shell(d, 9, "echo a line; exec sleep 1000");
    fake_head_wait_line(&d->head, "a line");
    fake_daemon_stop(d);
    kill(pid, SIGKILL);
    fake_wait_gone(pid);
    fake_daemon_start(d);
    m = fake_daemon_hello(d);
    assert_int_equal(m->hello->agent->n_workers, 1);
    r = m->hello->agent->workers[0];
    assert_int_equal(r->spec->uid, 9);
    assert_non_null(r->exit);
    assert_true(r->exit->signaled);
    assert_int_equal(r->exit->code, SIGKILL);
    assert_int_equal(r->exit->n_last_lines, 1);
    fake_free(m);
    fake_daemon_welcome(d);
    fake_daemon_stop_agent(d);
}

/* A head whose link broke asks again what was not answered. */
static void test_asked_twice_is_done_once(void **state)
{
    struct fake_daemon *d = *state;
    struct fake_spec s;
    Muster__AgentToHead *m;
    uint64_t request;
    pid_t pid;

    join(d);
    fake_spec_shell(&s, 7, 0, "exec sleep 1000");
    m = fake_head_started(&d->head, &s, 1);
    pid = m->started->workers[0]->pid;
    fake_free(m);
    request = d->head.next_request;
    d->head.next_request--; /* the same number */
    m = fake_head_started(&d->head, &s, 1);
    assert_int_equal(m->request, request);
    assert_int_equal(m->started->workers[0]->pid, pid);
    fake_free(m);
    fake_daemon_stop_agent(d);
}

static void test_head_that_does_not_come_back(void **state)
{
    struct fake_daemon *d = *state;
    pid_t pid;

    d->head_grace_ns = 300 * MS_NS_PER_MS;
    join(d);
    pid = start_shell(d, 7, "exec sleep 1000");
    fake_daemon_stop(d);
    assert_int_equal(fake_daemon_join_agent(d), 1);
    fake_wait_gone(pid);
}

/* Silence: nobody reads or answers, as if the cable was cut. */
static void test_silent_head(void **state)
{
    struct fake_daemon *d = *state;
    int64_t begin = ms_now_ns();
    pid_t pid;

    d->link_grace_ns = 4 * MS_NS_PER_S;
    join(d);
    pid = start_shell(d, 7, "exec sleep 1000");
    fake_wait_gone(pid); /* the loop does not run */
    assert_true(ms_now_ns() - begin > 3 * MS_NS_PER_S);
    assert_int_equal(fake_daemon_join_agent(d), 1);
}

static void test_wrong_secret(void **state)
{
    struct fake_daemon *d = *state;

    d->agent_secret[3] = 1;
    fake_daemon_start_agent(d);
    assert_int_equal(fake_daemon_join_agent(d), 1);
    assert_int_equal(d->links, 0);
}

static void test_refused_and_then_not(void **state)
{
    struct fake_daemon *d = *state;

    fake_daemon_start_agent(d);
    fake_free(fake_daemon_hello(d));
    fake_daemon_refuse(d, "node there is taken");
    fake_free(fake_daemon_hello(d)); /* it asks again */
    fake_daemon_welcome(d);
    start_shell(d, 7, "exec sleep 1000");
    fake_daemon_stop_agent(d);
}

static void test_head_comes_later(void **state)
{
    struct fake_daemon *d = *state;

    fake_daemon_stop(d);
    fake_daemon_start_agent(d);
    fake_daemon_start(d);
    fake_free(fake_daemon_hello(d));
    fake_daemon_welcome(d);
    fake_daemon_stop_agent(d);
}

static void test_signal_ends_it_in_order(void **state)
{
    struct fake_daemon *d = *state;
    pid_t pid;

    join(d);
    pid = start_shell(d,
                      7,
                      "trap 'echo bye; exit' TERM; echo up; while :; do sleep "
                      "0.02; done");
    fake_head_wait_line(&d->head, "up");
    kill(d->head.agent_pid, SIGTERM);
    fake_head_wait_line(&d->head, "bye");
    assert_int_equal(fake_daemon_join_agent(d), 0);
    fake_wait_gone(pid);
}

static void test_killed_it_leaves_nothing(void **state)
{
    struct fake_daemon *d = *state;
    pid_t pid;

    join(d);
    pid = start_shell(d, 7, "exec sleep 1000");
    kill(d->head.agent_pid, SIGKILL);
    fake_wait_gone(pid);
    waitpid(d->head.agent_pid, NULL, 0);
    d->head.agent_pid = 0;
}

#define JOIN_TEST(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        JOIN_TEST(test_hello_and_work),
        JOIN_TEST(test_workers_outlive_the_head),
        JOIN_TEST(test_ends_are_reported),
        JOIN_TEST(test_asked_twice_is_done_once),
        JOIN_TEST(test_head_that_does_not_come_back),
        JOIN_TEST(test_silent_head),
        JOIN_TEST(test_wrong_secret),
        JOIN_TEST(test_refused_and_then_not),
        JOIN_TEST(test_head_comes_later),
        JOIN_TEST(test_signal_ends_it_in_order),
        JOIN_TEST(test_killed_it_leaves_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
