/* A real agent with zygotes that are this program, run with "as-python": the protocol
 * without an interpreter. $FAKE says how it misbehaves. */
#include "agent/fake_head.h"
#include "agent/fake_python.h"
#include "base/cleanup.h"
#include "base/limits.h"
#include "wire/link/link.h"

#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- as a worker that asks how another ended ------------------------------------- */

struct asker {
    struct ms_link *link;
    uint64_t about;
    struct ms_loop *loop;
};

static void on_body(void *arg, const uint8_t *body, size_t len)
{
    struct asker *k = arg;
    Muster__AgentToWorker *m = muster__agent_to_worker__unpack(NULL, len, body);
    Muster__WorkerToAgent out = MUSTER__WORKER_TO_AGENT__INIT;
    Muster__AskDeath ask = MUSTER__ASK_DEATH__INIT;

    if (m->body_case == MUSTER__AGENT_TO_WORKER__BODY_BOOT) {
        printf("booted %s/%u\n", m->boot->cluster, m->boot->rank);
        out.body_case = MUSTER__WORKER_TO_AGENT__BODY_ASK;
        out.ask = &ask;
        ask.uid = k->about;
        ms_link_send(k->link, &out.base);
    } else {
        printf("heard uid=%d code=%d %s\n",
               (int)m->died->uid,
               m->died->exit->code,
               m->died->exit->detail);
        ms_loop_stop(k->loop);
    }
    fflush(stdout);
    muster__agent_to_worker__free_unpacked(m, NULL);
}

static void on_closed(void *arg, const struct ms_error *why)
{
    (void)arg;
    (void)why;
    _exit(1);
}

static int be_asker(const char *about)
{
    static const struct ms_link_ops ops = {.on_body = on_body, .on_closed = on_closed};
    struct asker k = {.about = strtoull(about, NULL, 10)};

    k.loop = ms_loop_create();
    k.link = ms_link_create(k.loop, atoi(getenv("MUSTER_CONTROL_FD")), &ops, &k);
    ms_loop_run(k.loop);
    ms_link_destroy(k.link);
    ms_loop_destroy(k.loop);
    return 0;
}

/* ---- the tests ------------------------------------------------------------------- */

static char self[256], as_python[] = "as-python";

static int set_up(void **state)
{
    static struct fake_head h;

    fake_head_init(&h);
    h.python[0] = self;
    h.python[1] = as_python;
    *state = &h;
    return 0;
}

static int tear_down(void **state)
{
    fake_head_finish(*state);
    return 0;
}

static void start_as(struct fake_head *h, const char *mode)
{
    static char fake[64];

    snprintf(fake, sizeof fake, "FAKE=%s", mode);
    h->env[1] = fake;
    fake_free(fake_head_start(h));
}

static void test_fork(void **state)
{
    struct fake_head *h = *state;
    struct fake_spec s[2];
    char leave[] = "DO=exit";
    Muster__AgentToHead *m;
    pid_t pid;

    start_as(h, "");
    fake_spec_fork(&s[0], 0x11, 0);
    s[0].env[0] = leave;
    fake_spec_fork(&s[1], 0x22, 1);
    m = fake_head_started(h, s, 2);
    pid = m->started->workers[1]->pid;
    fake_free(m);
    m = fake_head_exit(h, 0x11);
    assert_false(m->exited->exit->signaled);
    assert_int_equal(m->exited->exit->code, 6);
    assert_non_null(strstr(m->exited->exit->last_lines[0],
                           "forked actor/0 uid=0000000000000011 group=1 boot="));
    assert_null(strstr(m->exited->exit->last_lines[0], "boot=0 "));
    fake_free(m);
    fake_head_wait_line(h, "forked actor/1 uid=0000000000000022");
    kill(pid, SIGKILL);
    m = fake_head_exit(h, 0x22);
    assert_true(m->exited->exit->signaled);
    assert_int_equal(m->exited->exit->code, SIGKILL);
    assert_false(m->exited->exit->requested);
    assert_false(m->exited->exit->out_of_memory);
    fake_free(m);
}

static void test_memory_limit(void **state)
{
    struct fake_head *h = *state;
    struct fake_spec s;
    Muster__AgentToHead *m;
    char command[160];

    start_as(h, "");
    fake_spec_fork(&s, 0x77, 0);
    s.spec.memory_limit = (uint64_t)256 << 20;
    m = fake_head_answer(h, fake_head_start_workers(h, &s, 1));
    if (m->body_case == MUSTER__AGENT_TO_HEAD__BODY_FAILURE) {
        print_message("# skipped: %s\n", m->failure->message);
        fake_free(m);
        skip();
    }
    fake_head_wait_line(h, "forked actor/0");
    snprintf(command,
             sizeof command,
             "grep -q '[y:]:.*/muster-%s-0000000000000077$' /proc/%d/cgroup",
             h->session,
             m->started->workers[0]->pid);
    assert_int_equal(system(command), 0);
    fake_free(m);
    fake_head_stop_workers(h, 0x77, 0);
}

static void test_zygote_that_does_not_start(void **state)
{
    struct fake_head *h = *state;
    struct fake_spec s[2];
    Muster__AgentToHead *m;

    start_as(h, "die");
    for (int attempt = 0; attempt < 2; attempt++) { /* each asks anew */
        fake_spec_fork(&s[0], 1, 0);
        fake_spec_fork(&s[1], 2, 1);
        m = fake_head_answer(h, fake_head_start_workers(h, s, 2));
        assert_int_equal(m->body_case, MUSTER__AGENT_TO_HEAD__BODY_FAILURE);
        assert_int_equal(m->failure->kind, MUSTER__FAILURE__KIND__REFUSED);
        assert_non_null(
            strstr(m->failure->message,
                   "exited with code 3 before it was ready; its last lines:\n"
                   "ModuleNotFoundError: no muster"));
        fake_free(m);
    }
}

static void test_interpreter_that_is_not_there(void **state)
{
    struct fake_head *h = *state;
    struct fake_spec s;
    char missing[] = "/no/such/python";
    Muster__AgentToHead *m;

    h->python[0] = missing;
    start_as(h, "");
    fake_spec_fork(&s, 1, 0);
    m = fake_head_answer(h, fake_head_start_workers(h, &s, 1));
    assert_string_equal(
        m->failure->message,
        "cannot start actor/0: the zygote did not start: cannot execute "
        "'/no/such/python': No such file or directory");
    fake_free(m);
}

static void test_zygote_that_cannot_be_forked(void **state)
{
    struct fake_head *h = *state;
    struct fake_spec s[2];

    start_as(h, "threads");
    fake_spec_fork(&s[0], 1, 0);
    fake_free(fake_head_started(h, &s[0], 1));
    fake_head_wait_line(h, "actor/0! [muster] this worker is a fresh interpreter");
    fake_head_wait_line(h, "actor/0: executed");
    /* now that it is known */
    fake_spec_fork(&s[1], 2, 1);
    fake_free(fake_head_started(h, &s[1], 1));
    fake_head_wait_line(h, "actor/1: executed");
}

static void test_fork_fails(void **state)
{
    struct fake_head *h = *state;
    struct fake_spec s;
    Muster__AgentToHead *m;

    start_as(h, "no-fork");
    fake_spec_fork(&s, 1, 0);
    m = fake_head_answer(h, fake_head_start_workers(h, &s, 1));
    assert_non_null(
        strstr(m->failure->message, "could not fork: Resource temporarily"));
    fake_free(m);
}

static void test_zygote_dies_with_requests(void **state)
{
    struct fake_head *h = *state;
    struct fake_spec s[3];
    Muster__AgentToHead *m;

    start_as(h, "die-later");
    for (uint32_t i = 0; i < 3; i++)
        fake_spec_fork(&s[i], i + 1, i);
    m = fake_head_answer(h, fake_head_start_workers(h, s, 3));
    assert_non_null(strstr(m->failure->message, "was killed by signal 6 (Aborted)"));
    fake_free(m);
}

static pid_t only_child_named(pid_t parent, const char *name)
{
    char command[160];
    FILE *f;
    int pid = 0;

    snprintf(command, sizeof command, "pgrep -P %d -f %s", (int)parent, name);
    f = popen(command, "r");
    assert_int_equal(fscanf(f, "%d", &pid), 1);
    pclose(f);
    return pid;
}

static void test_workers_outlive_their_zygote(void **state)
{
    struct fake_head *h = *state;
    struct fake_spec s[2];
    Muster__AgentToHead *m;
    pid_t zygote, worker;

    start_as(h, "");
    fake_spec_fork(&s[0], 1, 0);
    m = fake_head_started(h, &s[0], 1);
    worker = m->started->workers[0]->pid;
    fake_free(m);
    zygote = only_child_named(h->agent_pid, "as-python");
    kill(zygote, SIGKILL);
    fake_wait_gone(zygote);
    /* a new one takes its place, the old worker lives and is still watched */
    fake_spec_fork(&s[1], 2, 1);
    fake_free(fake_head_started(h, &s[1], 1));
    assert_int_equal(kill(worker, 0), 0);
    kill(worker, SIGUSR1);
    m = fake_head_exit(h, 1);
    assert_true(m->exited->exit->signaled);
    assert_int_equal(m->exited->exit->code, SIGUSR1);
    fake_free(m);
}

/* It has ended, and its parent does not know yet. */
static void end_unreaped(pid_t pid)
{
    MS_CLEANUP(ms_cleanup_fd) int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    struct pollfd p = {fd, POLLIN, 0};

    assert_true(fd >= 0);
    kill(pid, SIGKILL);
    assert_int_equal(poll(&p, 1, 10000), 1);
}

/* What was never sent to it is sent to the next one. */
static void test_asked_before_its_death_is_known(void **state)
{
    struct fake_head *h = *state;
    struct fake_spec s[2];
    pid_t zygote;
    uint64_t request;

    start_as(h, "");
    fake_spec_fork(&s[0], 1, 0);
    fake_free(fake_head_started(h, &s[0], 1));
    for (uint64_t uid = 2; uid < 8; uid++) {
        Muster__AgentToHead *m;

        zygote = only_child_named(h->agent_pid, "as-python");
        kill(h->agent_pid, SIGSTOP);
        fake_spec_fork(&s[1], uid, 1);
        request = fake_head_start_workers(h, &s[1], 1); /* it reads this first */
        end_unreaped(zygote);
        kill(h->agent_pid, SIGCONT);
        m = fake_head_answer(h, request);
        assert_int_equal(m->body_case, MUSTER__AGENT_TO_HEAD__BODY_STARTED);
        fake_free(m);
    }
}

static void test_derived_zygote(void **state)
{
    struct fake_head *h = *state;
    struct fake_spec s;
    char module[] = "torch", line[] = "derived for torch";
    char *preload[] = {module}, command[160];

    start_as(h, "");
    fake_spec_fork(&s, 1, 0);
    s.key.n_preload = 1;
    s.key.preload = preload;
    fake_free(fake_head_started(h, &s, 1));
    fake_head_wait_line(h, "forked actor/0");
    snprintf(command, sizeof command, "grep -q '%s' %s/logs/zygote.log", line, h->dir);
    assert_int_equal(system(command), 0);
    fake_head_stop_workers(h, 1, 0);
    fake_free(fake_head_exit(h, 1));
}

/* Its pid. */
static pid_t start_one(struct fake_head *h, uint64_t uid, char *env)
{
    struct fake_spec s;

    fake_spec_fork(&s, uid, (uint32_t)uid);
    s.env[0] = env;
    fake_free(fake_head_started(h, &s, 1));
    return only_child_named(h->agent_pid, "as-python");
}

static void test_a_file_changes(void **state)
{
    struct fake_head *h = *state;
    char variable[128], path[] = "/tmp/muster-loaded-XXXXXX";
    int fd = mkstemp(path);
    pid_t first, second;

    assert_true(fd >= 0);
    snprintf(variable, sizeof variable, "FAKE_FILE=%s", path);
    h->env[2] = variable;
    start_as(h, "");
    first = start_one(h, 1, NULL);
    assert_int_equal(start_one(h, 2, NULL), first);
    assert_int_equal(write(fd, "new", 3), 3);
    close(fd);
    second = start_one(h, 3, NULL);
    assert_true(second != first);
    fake_wait_gone(first); /* the workers that came from it stay */
    assert_int_equal(start_one(h, 4, NULL), second);
    unlink(path);
    for (uint64_t uid = 1; uid <= 4; uid++)
        fake_head_stop_workers(h, uid, 0);
}

/* Not what was there when the import began; and if it never ends, not for ever. */
static void test_a_file_changes_meanwhile(void **state)
{
    struct fake_head *h = *state;
    char variable[128], path[] = "/tmp/muster-loaded-XXXXXX";
    int fd = mkstemp(path);

    assert_true(fd >= 0);
    close(fd);
    snprintf(variable, sizeof variable, "FAKE_FILE=%s", path);
    h->env[2] = variable;
    start_as(h, "edits");
    start_one(h, 1, NULL);
    fake_head_wait_line(h, " loaded=");
    assert_null(strstr(ms_buf_str(&h->lines), " loaded=0 "));
    unlink(path);
}

/* It is killed after 10 s, and another does what it has not read. */
static void test_stopped(void **state)
{
    struct fake_head *h = *state;
    struct fake_spec s;
    Muster__AgentToHead *m;
    pid_t first;

    start_as(h, "");
    first = start_one(h, 1, NULL);
    kill(first, SIGSTOP);
    fake_spec_fork(&s, 2, 2);
    m = fake_head_answer(h, fake_head_start_workers(h, &s, 1));
    assert_int_equal(m->body_case, MUSTER__AGENT_TO_HEAD__BODY_STARTED);
    fake_free(m);
    fake_wait_gone(first);
    fake_head_wait_line(h, "forked actor/2");
    assert_true(start_one(h, 3, NULL) != first);
}

/* A role's own variables are there when its modules are imported. */
static void test_environment_of_a_role(void **state)
{
    struct fake_head *h = *state;
    struct fake_spec s[2];
    char here[] = "PLACE=here", rank[] = "RANK=1", own[] = "LOCAL_RANK=7";

    start_as(h, "");
    fake_spec_fork(&s[0], 1, 0);
    s[0].env[0] = here;
    s[0].env[1] = own;
    fake_spec_fork(&s[1], 2, 1);
    s[1].env[0] = rank;
    fake_free(fake_head_started(h, s, 2));
    /* LOCAL_RANK is sent, PLACE was there before */
    fake_head_wait_line(h, ",LOCAL_RANK=7,MUSTER_WORKER_UID=0000000000000001,");
    fake_head_wait_line(h, " place=here\n");
    fake_head_wait_line(h, ",RANK=1,MUSTER_WORKER_UID=0000000000000002,");
    fake_head_wait_line(h, " place=\n");
}

static void test_too_many(void **state)
{
    struct fake_head *h = *state;
    struct fake_spec s[MS_ZYGOTES_MAX + 1];
    char slow[] = "FAKE=slow", places[MS_ZYGOTES_MAX][24];
    uint64_t uid = 1;

    start_as(h, "");
    fake_spec_fork(&s[0], uid, 0);
    fake_free(fake_head_started(h, &s[0], 1));
    /* the idle one goes for the last of these, which all have somebody waiting */
    for (uint32_t i = 0; i < MS_ZYGOTES_MAX; i++) {
        fake_spec_fork(&s[i], ++uid, i);
        snprintf(places[i], sizeof places[i], "PLACE=%u", i);
        s[i].env[0] = slow;
        s[i].env[1] = places[i];
        fake_head_start_workers(h, &s[i], 1);
    }
    fake_spec_fork(&s[0], ++uid, MS_ZYGOTES_MAX);
    fake_free(fake_head_started(h, &s[0], 1));
    fake_head_wait_line(h, "fresh interpreter: there are 32 zygotes");
    fake_head_wait_line(h, "actor/32: executed");
}

static void test_prepare(void **state)
{
    struct fake_head *h = *state;
    Muster__HeadToAgent m = MUSTER__HEAD_TO_AGENT__INIT;
    Muster__Prepare prepare = MUSTER__PREPARE__INIT;
    Muster__ZygoteKey key = MUSTER__ZYGOTE_KEY__INIT;
    Muster__AgentToHead *answer;

    start_as(h, "");
    m.body_case = MUSTER__HEAD_TO_AGENT__BODY_PREPARE;
    m.prepare = &prepare;
    prepare.key = &key;
    for (int i = 0; i < 2; i++) { /* not ready, and ready */
        answer = fake_head_answer(h, fake_head_send(h, &m));
        assert_int_equal(answer->body_case, MUSTER__AGENT_TO_HEAD__BODY_DONE);
        fake_free(answer);
    }
}

static void ask(struct fake_head *h, uint64_t uid, uint32_t rank, const char *about)
{
    static char as_asker[] = "as-asker";
    struct fake_spec s;

    fake_spec_shell(&s, uid, rank, "");
    s.command[0] = self;
    s.command[1] = as_asker;
    s.command[2] = (char *)(uintptr_t)about;
    fake_free(fake_head_started(h, &s, 1));
}

static void test_ask_how_another_ended(void **state)
{
    struct fake_head *h = *state;
    struct fake_spec s;

    start_as(h, "");
    fake_spec_shell(&s, 10, 0, "cat <&3 >/dev/null; exit 9");
    fake_free(fake_head_started(h, &s, 1));
    ask(h, 11, 1, "10"); /* it lives: the answer comes when it ends */
    fake_head_wait_line(h, "actor/1: booted actor/1");
    fake_head_stop_workers(h, 10, 0);
    fake_head_wait_line(h, "actor/1: heard uid=10 code=9");
    ask(h, 12, 2, "10"); /* it has ended */
    fake_head_wait_line(h, "actor/2: heard uid=10 code=9");
    ask(h, 13, 3, "999"); /* nobody knows it */
    fake_head_wait_line(h, "actor/3: heard uid=999 code=0 unknown");
}

#define AGENT_TEST(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        AGENT_TEST(test_fork),
        AGENT_TEST(test_memory_limit),
        AGENT_TEST(test_zygote_that_does_not_start),
        AGENT_TEST(test_interpreter_that_is_not_there),
        AGENT_TEST(test_zygote_that_cannot_be_forked),
        AGENT_TEST(test_fork_fails),
        AGENT_TEST(test_zygote_dies_with_requests),
        AGENT_TEST(test_workers_outlive_their_zygote),
        AGENT_TEST(test_asked_before_its_death_is_known),
        AGENT_TEST(test_derived_zygote),
        AGENT_TEST(test_a_file_changes),
        AGENT_TEST(test_a_file_changes_meanwhile),
        AGENT_TEST(test_stopped),
        AGENT_TEST(test_environment_of_a_role),
        AGENT_TEST(test_too_many),
        AGENT_TEST(test_prepare),
        AGENT_TEST(test_ask_how_another_ended),
    };

    if (argc > 3 && !strcmp(argv[1], as_python))
        return fake_python_run(argv[3]);
    if (argc > 2 && !strcmp(argv[1], "as-asker"))
        return be_asker(argv[2]);
    assert_true(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
