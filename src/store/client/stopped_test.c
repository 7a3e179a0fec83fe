/* An agent that is stopped: nobody waits for it for ever, and nothing is lost. */
#include "store/test_rig.h"

#include "io/loop.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#define ANSWER_NS (500 * MS_NS_PER_MS)
#define BUSY_NS   (10 * MS_NS_PER_S) /* what a busy machine may add to a time */

enum { MANY = 2000 }; /* more messages than a socket takes */

/* A store in a process of its own. */
struct agent {
    char dir[64], path[96];
    pid_t pid;
};

static void run_store(const char *path)
{
    struct ms_store_options o = {.path = path,
                                 .node_name = "n0",
                                 .secret = rig_secret,
                                 .limit = 64 * MIB,
                                 .listen_fd = -1};

    o.loop = ms_loop_create();
    if (!ms_store_create(&o, NULL))
        _exit(1);
    ms_loop_run(o.loop);
    _exit(0);
}

static void agent_start(struct agent *a)
{
    *a = (struct agent){.dir = "/tmp/muster-stopped-XXXXXX"};
    assert_non_null(mkdtemp(a->dir));
    snprintf(a->path, sizeof a->path, "%s/s", a->dir);
    a->pid = fork();
    assert_true(a->pid >= 0);
    if (a->pid == 0)
        run_store(a->path);
}

static void agent_stop(struct agent *a)
{
    kill(a->pid, SIGKILL);
    assert_int_equal(waitpid(a->pid, NULL, 0), a->pid);
    unlink(a->path);
    assert_int_equal(rmdir(a->dir), 0);
}

static struct ms_store_client *enter(struct agent *a)
{
    struct ms_store_client_options o = {.path = a->path,
                                        .secret = rig_secret,
                                        .holder = 1,
                                        .name = "actor/1",
                                        .answer_ns = ANSWER_NS};
    int64_t until_ns = ms_now_ns() + DEADLINE_NS;
    struct ms_store_client *c = NULL;

    while (!c && ms_now_ns() < until_ns)
        c = ms_store_client_open(&o, NULL); /* it listens soon */
    assert_non_null(c);
    return c;
}

static void pause_agent(const struct agent *a)
{
    int status;

    kill(a->pid, SIGSTOP);
    assert_int_equal(waitpid(a->pid, &status, WUNTRACED), a->pid);
    assert_true(WIFSTOPPED(status));
}

static void test_questions_end(void **unused)
{
    struct ms_stored_name name;
    struct ms_store_client *c;
    struct ms_held *h, *out = NULL;
    struct ms_error err = {0};
    struct agent a;
    int64_t begin_ns;

    (void)unused;
    agent_start(&a);
    c = enter(&a);
    h = rig_make(c, MIB);
    ms_held_name(h, &name);
    name.id++;
    pause_agent(&a);
    begin_ns = ms_now_ns();
    assert_null(ms_store_client_make(c, MIB, "test.c:1", &err));
    assert_int_equal(err.code, -ETIMEDOUT);
    assert_non_null(strstr(err.text, "is it stopped?"));
    assert_int_equal(ms_store_client_attach(c, &name, 1, false, &out, &err),
                     -ETIMEDOUT);
    assert_null(ms_store_client_stats(c, false, &err));
    assert_true(ms_now_ns() - begin_ns < 3 * ANSWER_NS + BUSY_NS);
    kill(a.pid, SIGCONT);
    rig_wait_objects(c, 1); /* what was made too late was given back */
    ms_held_unref(h);
    rig_wait_objects(c, 0);
    ms_store_client_close(c);
    agent_stop(&a);
}

static void test_releases_wait_for_it(void **unused)
{
    struct ms_store_client *c;
    struct ms_held *held[MANY];
    struct ms_error err = {0};
    struct agent a;
    int64_t begin_ns;

    (void)unused;
    agent_start(&a);
    c = enter(&a);
    for (int i = 0; i < MANY; i++)
        held[i] = rig_make(c, 4096);
    pause_agent(&a);
    begin_ns = ms_now_ns();
    for (int i = 0; i < MANY; i++)
        ms_held_unref(held[i]);
    assert_null(ms_store_client_make(c, MIB, "test.c:1", &err));
    assert_int_equal(err.code, -ETIMEDOUT);
    assert_true(ms_now_ns() - begin_ns < 3 * ANSWER_NS + BUSY_NS);
    kill(a.pid, SIGCONT);
    rig_wait_objects(c, 0);
    ms_store_client_close(c);
    agent_stop(&a);
}

/* One that works for longer than that, and answers others meanwhile, is waited for. */
static void test_a_working_agent_is_waited_for(void **unused)
{
    struct agent a;
    struct ms_store_client *c;
    pid_t waker;

    (void)unused;
    agent_start(&a);
    c = enter(&a);
    pause_agent(&a);
    waker = fork();
    assert_true(waker >= 0);
    if (waker == 0) { /* stopped for less than its time */
        usleep((useconds_t)(ANSWER_NS / 1000 / 2));
        kill(a.pid, SIGCONT);
        _exit(0);
    }
    ms_held_unref(rig_make(c, MIB));
    assert_int_equal(waitpid(waker, NULL, 0), waker);
    rig_wait_objects(c, 0);
    ms_store_client_close(c);
    agent_stop(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_questions_end),
        cmocka_unit_test(test_releases_wait_for_it),
        cmocka_unit_test(test_a_working_agent_is_waited_for),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
