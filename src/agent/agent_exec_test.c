/* A real agent and real commands: starts, output, ends, limits. */
#include "agent/fake_head.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "io/tree.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static int set_up(void **state)
{
    static struct fake_head h;
    Muster__AgentToHead *ready;

    fake_head_init(&h);
    ready = fake_head_start(&h);
    assert_int_equal(ready->ready->pid, h.agent_pid);
    assert_true(ready->ready->shape->cpus >= 1);
    assert_true(ready->ready->shape->memory > 0);
    assert_int_equal(ready->ready->shape->n_devices, 3);
    assert_string_equal(ready->ready->node_name, "here");
    fake_free(ready);
    *state = &h;
    return 0;
}

static int tear_down(void **state)
{
    fake_head_finish(*state);
    return 0;
}

/* Start one shell worker, and how it ended. */
static Muster__AgentToHead *run(struct fake_head *h, const char *script)
{
    struct fake_spec s;

    fake_spec_shell(&s, 77, 0, script);
    fake_free(fake_head_started(h, &s, 1));
    return fake_head_exit(h, 77);
}

static void test_output_and_exit_code(void **state)
{
    struct fake_head *h = *state;
    Muster__AgentToHead *m =
        run(h, "echo hello; echo oops >&2; printf unfinished; exit 3");
    const Muster__Exit *x = m->exited->exit;
    char path[128];

    /* the lines came before the end */
    assert_non_null(strstr(ms_buf_str(&h->lines), "actor/0: hello\n"));
    assert_non_null(strstr(ms_buf_str(&h->lines), "actor/0! oops\n"));
    assert_non_null(strstr(ms_buf_str(&h->lines), "actor/0: unfinished\n"));
    assert_false(x->signaled);
    assert_int_equal(x->code, 3);
    assert_false(x->requested);
    assert_false(x->out_of_memory);
    assert_int_equal(x->n_last_lines, 3);
    assert_string_equal(x->node, "here");
    snprintf(path, sizeof path, "%s/logs/actor-0.log", h->dir);
    assert_string_equal(x->log_path, path);
    fake_free(m);
}

static void test_signal(void **state)
{
    Muster__AgentToHead *m = run(*state, "kill -SEGV $$");

    assert_true(m->exited->exit->signaled);
    assert_int_equal(m->exited->exit->code, SIGSEGV);
    fake_free(m);
}

static void test_what_a_worker_finds(void **state)
{
    struct fake_head *h = *state;
    struct fake_spec s;
    char env[] = "PLACE=there";

    fake_spec_shell(
        &s,
        0xabc,
        5,
        "echo uid=$MUSTER_WORKER_UID c=$MUSTER_CONTROL_FD l=$MUSTER_LISTEN_FD "
        "t=$MUSTER_LISTEN_TCP_FD p=$PLACE $PATH; pwd; [ -S /proc/$$/fd/3 ] && "
        "[ -S /proc/$$/fd/4 ] && [ -S /proc/$$/fd/5 ] && "
        "echo sockets; for f in 6 7 8 9 11 12 13 14; do [ -e /proc/$$/fd/$f "
        "] && echo too many; done; cat; echo end");
    s.env[0] = env;
    s.spec.working_dir = (char *)(uintptr_t) "/usr";
    fake_free(fake_head_started(h, &s, 1));
    fake_head_wait_line(h, "actor/5: end\n");
    assert_string_equal(ms_buf_str(&h->lines),
                        "actor/5: uid=0000000000000abc c=3 l=4 t=5 p=there "
                        "/usr/bin:/bin\n"
                        "actor/5: /usr\nactor/5: sockets\nactor/5: end\n");
    fake_free(fake_head_exit(h, 0xabc));
}

static void test_socket_is_there_and_goes(void **state)
{
    struct fake_head *h = *state;
    struct fake_spec s;
    Muster__AgentToHead *m;
    char address[128];

    fake_spec_shell(&s, 77, 0, "sleep 1000");
    m = fake_head_started(h, &s, 1);
    snprintf(address, sizeof address, "%s/w/actor-0-000000000000004d.sock", h->dir);
    assert_memory_equal(m->started->workers[0]->address, "unix:", 5);
    assert_non_null(strstr(m->started->workers[0]->address, address));
    assert_non_null(strstr(m->started->workers[0]->address, ".sock,127.0.0.1:"));
    assert_int_equal(m->started->workers[0]->uid, 77);
    assert_int_equal(kill(m->started->workers[0]->pid, 0), 0);
    assert_int_equal(access(address, F_OK), 0);
    fake_head_stop_workers(h, 77, 0);
    assert_int_equal(access(address, F_OK), -1);
    fake_wait_gone(m->started->workers[0]->pid);
    fake_free(m);
    m = fake_head_exit(h, 77);
    assert_true(m->exited->exit->requested);
    assert_int_equal(m->exited->exit->code, SIGKILL);
    fake_free(m);
}

static void test_command_that_is_not_there(void **state)
{
    struct fake_head *h = *state;
    struct fake_spec s[3];
    Muster__AgentToHead *m;
    char missing[] = "no-such-command";

    fake_spec_shell(&s[0], 1, 0, "echo pid=$$; sleep 1000");
    fake_spec_shell(&s[1], 2, 1, "");
    s[1].command[0] = missing;
    s[1].command[1] = NULL;
    fake_spec_shell(&s[2], 3, 2, "sleep 1000");
    m = fake_head_answer(h, fake_head_start_workers(h, s, 3));
    assert_int_equal(m->body_case, MUSTER__AGENT_TO_HEAD__BODY_FAILURE);
    assert_int_equal(m->failure->kind, MUSTER__FAILURE__KIND__REFUSED);
    assert_string_equal(
        m->failure->message,
        "cannot start actor/1: cannot execute 'no-such-command': No such "
        "file or directory");
    fake_free(m);
    /* none is left, and the uids are free again */
    fake_spec_shell(&s[0], 1, 0, "exit 0");
    fake_free(fake_head_started(h, s, 1));
    m = fake_head_exit(h, 0); /* the first that we hear of */
    assert_int_equal(m->exited->uid, 1);
    assert_int_equal(m->exited->exit->code, 0);
    fake_free(m);
}

static void refused(struct fake_head *h, struct fake_spec *s, size_t n, const char *why)
{
    Muster__AgentToHead *m = fake_head_answer(h, fake_head_start_workers(h, s, n));

    assert_int_equal(m->body_case, MUSTER__AGENT_TO_HEAD__BODY_FAILURE);
    if (!strstr(m->failure->message, why))
        fail_msg("'%s' is not in '%s'", why, m->failure->message);
    fake_free(m);
}

static void test_bad_specs_are_refused(void **state)
{
    struct fake_head *h = *state;
    struct fake_spec s[2];
    char bad_name[] = "../x", bad_env[] = "NOVALUE";

    refused(h, NULL, 0, "no workers");
    fake_spec_shell(&s[0], 0, 0, "true");
    refused(h, s, 1, "uid must not be 0");
    fake_spec_shell(&s[0], 1, 0, "true");
    s[0].spec.cluster = bad_name;
    refused(h, s, 1, "cluster");
    fake_spec_shell(&s[0], 1, 0, "true");
    s[0].env[0] = bad_env;
    refused(h, s, 1, "'NOVALUE' is not NAME=value");
    fake_spec_shell(&s[0], 1, 0, "true");
    s[0].spec.working_dir = (char *)(uintptr_t) "/no/such";
    refused(h, s, 1, "cannot enter the working folder '/no/such': No such file");
    fake_spec_shell(&s[0], 1, 0, "true");
    s[0].command[0] = NULL;
    refused(h, s, 1, "command is empty");
    fake_spec_shell(&s[0], 1, 0, "sleep 1000");
    fake_spec_shell(&s[1], 1, 1, "sleep 1000");
    refused(h, s, 2, "cannot start actor/1: its uid is taken");
}

static void test_stop_with_grace(void **state)
{
    struct fake_head *h = *state;
    struct fake_spec s;
    Muster__AgentToHead *m;

    /* one that listens */
    fake_spec_shell(
        &s,
        1,
        0,
        "trap 'echo bye; exit 5' TERM; echo up; while :; do sleep 0.01; done");
    fake_free(fake_head_started(h, &s, 1));
    fake_head_wait_line(h, "actor/0: up");
    fake_head_stop_workers(h, 1, (uint64_t)10 * MS_NS_PER_S);
    m = fake_head_exit(h, 1);
    assert_int_equal(m->exited->exit->code, 5);
    assert_true(m->exited->exit->requested);
    fake_free(m);
    /* and one that does not */
    fake_spec_shell(&s, 2, 1, "trap '' TERM; echo up; sleep 1000; sleep 1000");
    fake_free(fake_head_started(h, &s, 1));
    fake_head_wait_line(h, "actor/1: up");
    fake_head_stop_workers(h, 2, 50 * MS_NS_PER_MS);
    m = fake_head_exit(h, 2);
    assert_true(m->exited->exit->signaled);
    assert_int_equal(m->exited->exit->code, SIGKILL);
    fake_free(m);
    fake_head_stop_workers(h, 12345, 0); /* unknown: nothing to wait for */
}

static void test_orphans_go(void **state)
{
    struct fake_head *h = *state;
    struct fake_spec s;
    char log[128];

    /* one in its group, one in a session of its own, and a child of that in another */
    fake_spec_shell(
        &s,
        77,
        0,
        "sleep 1000 & echo group=$!; "
        "setsid sh -c 'echo session=$$; setsid sh -c \"echo deep=\\$\\$; exec "
        "sleep 1000\" & wait' & "
        "while ! grep -q deep= $LOG; do sleep 0.01; done; exit 0");
    snprintf(log, sizeof log, "LOG=%s/logs/actor-0.log", h->dir);
    s.env[0] = log;
    fake_free(fake_head_started(h, &s, 1));
    fake_free(fake_head_exit(h, 77));
    fake_head_stop_workers(h, 77, 0); /* answered when nothing of it is left */
    assert_int_equal(kill((pid_t)fake_head_number(h, "group="), 0), -1);
    assert_int_equal(kill((pid_t)fake_head_number(h, "session="), 0), -1);
    assert_int_equal(kill((pid_t)fake_head_number(h, "deep="), 0), -1);
}

static void test_daemons_of_the_living_stay(void **state)
{
    struct fake_head *h = *state;
    struct fake_spec s[2];
    Muster__AgentToHead *m;

    /* a daemon whose group's leader has gone: first ours, then nobody's */
    fake_spec_shell(
        &s[0],
        1,
        0,
        "(setsid sh -c 'sleep 1000 & echo daemon=$!' &); while :; do sleep 1000; "
        "done");
    fake_spec_shell(&s[1], 2, 1, "exit 0");
    fake_free(fake_head_started(h, &s[0], 1));
    fake_head_wait_line(h, "daemon=");
    fake_free(fake_head_started(h, &s[1], 1));
    fake_free(fake_head_exit(h, 2));
    fake_head_stop_workers(h, 2, 0); /* a sweep has been */
    assert_int_equal(kill((pid_t)fake_head_number(h, "daemon="), 0), 0);
    fake_head_stop_workers(h, 1, 0);
    m = fake_head_exit(h, 1);
    fake_free(m);
    assert_int_equal(kill((pid_t)fake_head_number(h, "daemon="), 0), -1);
}

static void test_flood_neither_starves_nor_grows(void **state)
{
    struct fake_head *h = *state;
    struct fake_spec s;
    Muster__HeadToAgent m = MUSTER__HEAD_TO_AGENT__INIT;
    Muster__HoldPort hold = MUSTER__HOLD_PORT__INIT;
    Muster__AgentToHead *answer;
    char owner[] = "x", path[64], text[4096];
    int64_t before;
    FILE *f;
    long rss_kb = 0;

    fake_spec_shell(
        &s, 1, 0, "yes a line of a flood | head -c 50000000; echo; echo done; exit 9");
    fake_free(fake_head_started(h, &s, 1));
    before = ms_now_ns();
    m.body_case = MUSTER__HEAD_TO_AGENT__BODY_HOLD_PORT;
    m.hold_port = &hold;
    hold.owner = owner;
    answer = fake_head_answer(h, fake_head_send(h, &m));
    assert_true(answer->port->port > 0);
    assert_string_equal(answer->port->host, "127.0.0.1");
    assert_true(ms_now_ns() - before < 5 * MS_NS_PER_S);
    fake_free(answer);
    answer = fake_head_exit(h, 1);
    assert_int_equal(answer->exited->exit->code, 9);
    assert_string_equal(answer->exited->exit->last_lines[MS_LAST_LINES - 1], "done");
    fake_free(answer);
    snprintf(path, sizeof path, "/proc/%d/status", (int)h->agent_pid);
    f = fopen(path, "re");
    while (fgets(text, sizeof text, f))
        sscanf(text, "VmHWM: %ld", &rss_kb);
    fclose(f);
    print_message("# highest memory of the agent: %ld kB, %llu lines not sent\n",
                  rss_kb,
                  (unsigned long long)h->dropped);
#ifndef __SANITIZE_ADDRESS__ /* which keeps freed memory for a while */
    assert_in_range(rss_kb, 1, 64 << 10);
#endif
}

static void test_memory_limit(void **state)
{
    struct fake_head *h = *state;
    struct fake_spec s;
    Muster__AgentToHead *m;
    char command[128];

    fake_spec_shell(&s, 0xbeef, 0, "x=1234567890; while :; do x=$x$x; done");
    s.spec.memory_limit = (uint64_t)32 << 20;
    m = fake_head_answer(h, fake_head_start_workers(h, &s, 1));
    if (m->body_case == MUSTER__AGENT_TO_HEAD__BODY_FAILURE) {
        assert_non_null(
            strstr(m->failure->message, "memory limits cannot be had here"));
        print_message("# skipped: %s\n", m->failure->message);
        fake_free(m);
        skip();
    }
    fake_free(m);
    m = fake_head_exit(h, 0xbeef);
    assert_true(m->exited->exit->signaled);
    assert_int_equal(m->exited->exit->code, SIGKILL);
    assert_true(m->exited->exit->out_of_memory);
    fake_free(m);
    fake_head_stop_workers(h, 0xbeef, 0);
    snprintf(command,
             sizeof command,
             "find /sys/fs/cgroup -name 'muster-%s-*' | grep -q .",
             h->session);
    assert_int_equal(system(command), 1 << 8);
}

static void test_many_at_once(void **state)
{
    struct fake_head *h = *state;
    enum { COUNT = 64 };
    struct fake_spec *s = calloc(COUNT, sizeof *s);

    for (uint32_t i = 0; i < COUNT; i++)
        fake_spec_shell(&s[i], 1000 + i, i, "echo $MUSTER_WORKER_UID; exit 4");
    fake_free(fake_head_started(h, s, COUNT));
    for (uint32_t i = 0; i < COUNT; i++) {
        Muster__AgentToHead *m = fake_head_exit(h, 1000 + i);

        assert_int_equal(m->exited->exit->code, 4);
        assert_int_equal(m->exited->exit->n_last_lines, 1);
        fake_free(m);
    }
    free(s);
}

#define AGENT_TEST(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)

/* A file with a secret of this digit alone; `entry` names it in an environment. */
static void
write_secret(const struct fake_head *h, const char *name, char digit, char entry[160])
{
    char text[65];
    int dir = open(h->dir, O_DIRECTORY | O_CLOEXEC);

    memset(text, digit, 64);
    text[64] = '\n';
    assert_true(dir >= 0);
    assert_int_equal(ms_tree_write(dir, name, text, sizeof text), 0);
    close(dir);
    snprintf(entry, 160, "MUSTER_SECRET_FILE=%s/%s", h->dir, name);
}

/* Of a head on another machine: the file that it names is not here, or is of another head. */
static void test_secret_of_a_head_elsewhere(void **state)
{
    struct fake_head *h = *state;
    struct fake_spec s[3];
    char far[] = "MUSTER_SECRET_FILE=/nowhere/secret", near[160], other[160], line[128];

    fake_spec_shell(&s[0],
                    1,
                    0,
                    "echo far=$MUSTER_SECRET_FILE $(stat -c %a "
                    "$MUSTER_SECRET_FILE) $(cat $MUSTER_SECRET_FILE | wc -c)");
    s[0].env[0] = far;
    fake_spec_shell(&s[1], 2, 1, "echo near=$MUSTER_SECRET_FILE");
    write_secret(h, "ours", '0', near);
    s[1].env[0] = near;
    fake_spec_shell(&s[2], 3, 2, "echo other=$MUSTER_SECRET_FILE");
    write_secret(h, "theirs", '7', other);
    s[2].env[0] = other;
    fake_free(fake_head_started(h, s, 3));
    snprintf(line, sizeof line, "far=%s/secret 600 64\n", h->dir);
    fake_head_wait_line(h, line);
    snprintf(line, sizeof line, "near=%s/ours\n", h->dir);
    fake_head_wait_line(h, line);
    snprintf(line, sizeof line, "other=%s/secret\n", h->dir);
    fake_head_wait_line(h, line);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        AGENT_TEST(test_secret_of_a_head_elsewhere),
        AGENT_TEST(test_output_and_exit_code),
        AGENT_TEST(test_signal),
        AGENT_TEST(test_what_a_worker_finds),
        AGENT_TEST(test_socket_is_there_and_goes),
        AGENT_TEST(test_command_that_is_not_there),
        AGENT_TEST(test_bad_specs_are_refused),
        AGENT_TEST(test_stop_with_grace),
        AGENT_TEST(test_orphans_go),
        AGENT_TEST(test_daemons_of_the_living_stay),
        AGENT_TEST(test_flood_neither_starves_nor_grows),
        AGENT_TEST(test_memory_limit),
        AGENT_TEST(test_many_at_once),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
