/* Workers beside workers: asked for by the head, and by a worker itself, which is this
 * program, run with "as-worker" and the command line that it wants beside it. */
#include "agent/fake_head.h"
#include "wire/link/link.h"

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

static char self[256], as_worker[] = "as-worker", sh[] = "sh", dash_c[] = "-c";

/* ---- as a worker ----------------------------------------------------------------- */

struct asker {
    struct ms_link *link;
    char *script;
};

static void ask_fork(struct asker *k)
{
    Muster__WorkerToAgent m = MUSTER__WORKER_TO_AGENT__INIT;
    Muster__ForkWorker fork = MUSTER__FORK_WORKER__INIT;
    Muster__WorkerSpec spec = MUSTER__WORKER_SPEC__INIT;
    char cluster[] = "proxy", *command[] = {sh, dash_c, k->script};

    spec.uid = 0x99;
    spec.cluster = cluster;
    spec.rank = 4;
    spec.start = MUSTER__START_KIND__START_COMMAND;
    spec.command = command;
    spec.n_command = 3;
    fork.spec = &spec;
    m.body_case = MUSTER__WORKER_TO_AGENT__BODY_FORK;
    m.fork = &fork;
    ms_link_send(k->link, &m.base);
}

static void ask_kill(struct asker *k, uint64_t uid)
{
    Muster__WorkerToAgent m = MUSTER__WORKER_TO_AGENT__INIT;
    Muster__StopWorkers stop = MUSTER__STOP_WORKERS__INIT;
    uint64_t uids[] = {uid, 0x1000}; /* the other one is none of its */

    stop.uids = uids;
    stop.n_uids = 2;
    m.body_case = MUSTER__WORKER_TO_AGENT__BODY_KILL;
    m.kill = &stop;
    ms_link_send(k->link, &m.base);
}

static void on_body(void *arg, const uint8_t *body, size_t len)
{
    struct asker *k = arg;
    Muster__AgentToWorker *m = muster__agent_to_worker__unpack(NULL, len, body);

    if (m->body_case == MUSTER__AGENT_TO_WORKER__BODY_BOOT) {
        ask_fork(k);
    } else if (m->body_case == MUSTER__AGENT_TO_WORKER__BODY_FORKED) {
        printf("forked uid=%llx pid=%d problem=%s\n",
               (unsigned long long)m->forked->uid,
               m->forked->pid,
               m->forked->problem);
        if (getenv("KILL"))
            ask_kill(k, m->forked->uid);
    } else if (m->body_case == MUSTER__AGENT_TO_WORKER__BODY_CHILD) {
        printf("child uid=%llx signaled=%d code=%d requested=%d\n",
               (unsigned long long)m->child->uid,
               m->child->exit->signaled,
               m->child->exit->code,
               m->child->exit->requested);
    }
    fflush(stdout);
    muster__agent_to_worker__free_unpacked(m, NULL);
}

static void on_closed(void *arg, const struct ms_error *why)
{
    (void)arg;
    (void)why;
    _exit(0);
}

static int be_worker(char *script)
{
    static const struct ms_link_ops ops = {.on_body = on_body, .on_closed = on_closed};
    struct ms_loop *loop = ms_loop_create();
    struct asker k = {.script = script};

    k.link = ms_link_create(loop, atoi(getenv("MUSTER_CONTROL_FD")), &ops, &k);
    return ms_loop_run(loop);
}

/* ---- tests ----------------------------------------------------------------------- */

static int set_up(void **state)
{
    static struct fake_head h;

    fake_head_init(&h);
    h.python[0] = sh; /* of modules: it knows no "-m", and says so */
    fake_free(fake_head_start(&h));
    *state = &h;
    return 0;
}

static int tear_down(void **state)
{
    fake_head_finish(*state);
    return 0;
}

/* Asks the agent for a worker beside uid 7. */
static Muster__AgentToHead *fork_beside(struct fake_head *h, struct fake_spec *s)
{
    Muster__HeadToAgent m = MUSTER__HEAD_TO_AGENT__INIT;
    Muster__ForkWorker fork = MUSTER__FORK_WORKER__INIT;

    fork.beside = 7;
    fork.spec = fake_spec_complete(s);
    m.body_case = MUSTER__HEAD_TO_AGENT__BODY_FORK;
    m.fork = &fork;
    return fake_head_answer(h, fake_head_send(h, &m));
}

static void start_parent(struct fake_head *h, const char *script)
{
    static char place[] = "PLACE=there", device[] = "CUDA_VISIBLE_DEVICES=3";
    struct fake_spec s;

    fake_spec_shell(&s, 7, 0, script);
    s.env[0] = place;
    s.env[1] = device;
    s.spec.working_dir = (char *)(uintptr_t) "/usr";
    fake_free(fake_head_started(h, &s, 1));
}

static void test_by_the_head(void **state)
{
    struct fake_head *h = *state;
    struct fake_spec s;
    Muster__AgentToHead *m;
    char cluster[] = "beside", other[] = "PLACE=here";

    start_parent(h, "exec sleep 1000");
    fake_spec_shell(
        &s,
        8,
        2,
        "echo $PLACE $CUDA_VISIBLE_DEVICES $MUSTER_WORKER_UID $(pwd); [ $(ps "
        "-o pgid= -p $$) = $$ ] && echo own group; exit 4");
    s.spec.cluster = cluster;
    s.env[0] = other;
    m = fork_beside(h, &s);
    assert_int_equal(m->body_case, MUSTER__AGENT_TO_HEAD__BODY_STARTED);
    assert_int_equal(m->started->workers[0]->uid, 8);
    assert_non_null(strstr(m->started->workers[0]->log_path, "logs/beside-2.log"));
    fake_free(m);
    m = fake_head_exit(h, 8);
    assert_int_equal(m->exited->exit->code, 4);
    fake_free(m);
    assert_string_equal(ms_buf_str(&h->lines),
                        "beside/2: here 3 0000000000000008 /usr\n"
                        "beside/2: own group\n");
}

static void test_it_ends_with_its_worker(void **state)
{
    struct fake_head *h = *state;
    struct fake_spec s;
    Muster__AgentToHead *m;
    pid_t pid;

    start_parent(h, "exec sleep 1000");
    fake_spec_shell(&s, 8, 1, "exec sleep 1000");
    m = fork_beside(h, &s);
    pid = m->started->workers[0]->pid;
    fake_free(m);
    fake_head_stop_workers(h, 7, 0);
    m = fake_head_exit(h, 8);
    assert_true(m->exited->exit->requested);
    fake_free(m);
    fake_wait_gone(pid);
}

static void test_module(void **state)
{
    struct fake_head *h = *state;
    struct fake_spec s;
    Muster__AgentToHead *m;
    char dash_m[] = "-m", module[] = "pkg.mod";

    start_parent(h, "exec sleep 1000");
    fake_spec_shell(&s, 8, 1, "");
    s.command[0] = dash_m; /* "sh -m pkg.mod": a file that is not there */
    s.command[1] = module;
    s.command[2] = NULL;
    m = fork_beside(h, &s);
    assert_int_equal(m->body_case, MUSTER__AGENT_TO_HEAD__BODY_STARTED);
    fake_free(m);
    m = fake_head_exit(h, 8);
    assert_int_not_equal(m->exited->exit->code, 0);
    assert_non_null(strstr(ms_buf_str(&h->lines), "pkg.mod"));
    fake_free(m);
}

static void test_refusals(void **state)
{
    struct fake_head *h = *state;
    struct fake_spec s;
    Muster__AgentToHead *m;
    static char nowhere[] = "/nowhere/program";

    fake_spec_shell(&s, 8, 1, "exit 0");
    m = fork_beside(h, &s);
    assert_int_equal(m->body_case, MUSTER__AGENT_TO_HEAD__BODY_FAILURE);
    assert_non_null(strstr(m->failure->message, "does not run here"));
    fake_free(m);
    start_parent(h, "exec sleep 1000");
    s.command[0] = nowhere;
    m = fork_beside(h, &s);
    assert_int_equal(m->body_case, MUSTER__AGENT_TO_HEAD__BODY_FAILURE);
    assert_non_null(strstr(m->failure->message, nowhere));
    fake_free(m);
}

static void start_asker(struct fake_head *h, char *script, bool kills)
{
    static char yes[] = "KILL=1";
    struct fake_spec s;

    fake_spec_shell(&s, 7, 0, "");
    s.command[0] = self;
    s.command[1] = as_worker;
    s.command[2] = script;
    if (kills)
        s.env[0] = yes;
    fake_free(fake_head_started(h, &s, 1));
}

static void test_by_a_worker(void **state)
{
    struct fake_head *h = *state;
    char script[] = "echo I am $MUSTER_WORKER_UID; exit 3";

    start_asker(h, script, false);
    fake_head_wait_line(h, "proxy/4: I am 0000000000000099");
    fake_head_wait_line(h, "actor/0: child uid=99 signaled=0 code=3 requested=0");
    assert_non_null(strstr(ms_buf_str(&h->lines), "actor/0: forked uid=99 pid="));
    assert_false(fake_head_has(h, MUSTER__AGENT_TO_HEAD__BODY_EXITED)); /* not its */
}

static void test_killed_by_a_worker(void **state)
{
    struct fake_head *h = *state;
    char script[] = "exec sleep 1000";
    struct fake_spec other;

    fake_spec_shell(&other, 0x1000, 1, "exec sleep 1000");
    fake_free(fake_head_started(h, &other, 1));
    start_asker(h, script, true);
    fake_head_wait_line(h, "actor/0: child uid=99 signaled=1 code=9 requested=1");
    assert_false(fake_head_has(h, MUSTER__AGENT_TO_HEAD__BODY_EXITED));
    fake_head_stop_workers(h, 0x1000, 0); /* it lived */
    fake_free(fake_head_exit(h, 0x1000));
}

#define AGENT_TEST(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        AGENT_TEST(test_by_the_head),
        AGENT_TEST(test_it_ends_with_its_worker),
        AGENT_TEST(test_module),
        AGENT_TEST(test_refusals),
        AGENT_TEST(test_by_a_worker),
        AGENT_TEST(test_killed_by_a_worker),
    };

    if (argc > 2 && !strcmp(argv[1], as_worker))
        return be_worker(argv[2]);
    assert_true(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
