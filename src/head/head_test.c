#include "base/cleanup.h"
#include "base/clock.h"
#include "head/fake_agent.h"
#include "head/head.h"
#include "io/tree.h"
#include "wire/frame.h"
#include "wire/tool.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <cmocka.h>

/* ---- what the head told us ------------------------------------------------------- */

enum { EXITS_MAX = 16 };

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    size_t exits;
    uint64_t uids[EXITS_MAX];
    int codes[EXITS_MAX];
    char details[EXITS_MAX][600];
    char lost[600];
    size_t exits_before_lost;
} seen = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void on_exit_event(void *arg, uint64_t uid, const Muster__Exit *e)
{
    (void)arg;
    pthread_mutex_lock(&seen.lock);
    assert_true(seen.exits < EXITS_MAX);
    seen.uids[seen.exits] = uid;
    seen.codes[seen.exits] = e->code;
    snprintf(seen.details[seen.exits++], sizeof seen.details[0], "%s", e->detail);
    pthread_cond_broadcast(&seen.changed);
    pthread_mutex_unlock(&seen.lock);
}

static void on_agent_lost(void *arg, const char *why)
{
    (void)arg;
    pthread_mutex_lock(&seen.lock);
    snprintf(seen.lost, sizeof seen.lost, "%s", why);
    seen.exits_before_lost = seen.exits;
    pthread_cond_broadcast(&seen.changed);
    pthread_mutex_unlock(&seen.lock);
}

static void wait_exits(size_t count)
{
    pthread_mutex_lock(&seen.lock);
    while (seen.exits < count)
        pthread_cond_wait(&seen.changed, &seen.lock);
    pthread_mutex_unlock(&seen.lock);
}

static void wait_lost(void)
{
    pthread_mutex_lock(&seen.lock);
    while (!seen.lost[0])
        pthread_cond_wait(&seen.changed, &seen.lock);
    pthread_mutex_unlock(&seen.lock);
}

/* ---- set-up ---------------------------------------------------------------------- */

static char home[32];

static int setup(void **state)
{
    (void)state;
    strcpy(home, "/tmp/ms-test-XXXXXX");
    seen.exits = seen.exits_before_lost = 0;
    seen.lost[0] = 0;
    return mkdtemp(home) && setenv("MUSTER_HOME", home, 1) == 0 ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    return ms_tree_remove(AT_FDCWD, home);
}

static struct ms_head *
start_with(const char *path, const char *mode, int64_t timeout_ns, struct ms_error *err)
{
    const char *const python[] = {"python3", NULL};
    char fake[64];
    const char *const env[] = {fake, "PATH=/usr/bin:/bin", NULL};

    snprintf(fake, sizeof fake, "FAKE_AGENT=%s", mode);
    return ms_head_start(
        &(struct ms_head_options){
            .agent_path = path,
            .node_name = "here",
            .num_gpus = 4,
            .num_cpus = -1,
            .python = python,
            .env = env,
            .timeout_ns = timeout_ns,
            .on_exit = on_exit_event,
            .on_agent_lost = on_agent_lost,
        },
        err);
}

static struct ms_head *start(const char *mode)
{
    struct ms_error err = {0};
    struct ms_head *h = start_with("/proc/self/exe", mode, 0, &err);

    if (!h)
        fail_msg("%s", err.text);
    return h;
}

static int finish(struct ms_head_op *op, struct ms_error *err)
{
    assert_int_equal(ms_head_op_wait(op, ms_now_ns() + 20 * MS_NS_PER_S), 0);
    return ms_head_op_result(op, err);
}

/* Wait, check the code, and give it up. */
static void expect(struct ms_head_op *op, int code, const char *in_text)
{
    struct ms_error err = {0};

    assert_int_equal(finish(op, &err), code);
    if (in_text && !strstr(err.text, in_text))
        fail_msg("'%s' is not in '%s'", in_text, err.text);
    ms_head_op_unref(op);
}

static struct ms_head_op *create(struct ms_head *h, const char *name, size_t count)
{
    static const uint32_t device = 3;
    struct ms_head_rank ranks[8] = {0};

    for (size_t i = 0; i < count; i++) {
        muster__worker_spec__init(&ranks[i].spec);
        ranks[i].devices = &device;
        ranks[i].device_count = 1;
    }
    return ms_head_create_cluster(h, name, ranks, count);
}

static const Muster__Status *status(struct ms_head *h, struct ms_head_op **op)
{
    *op = ms_head_status(h);
    assert_int_equal(finish(*op, NULL), 0);
    return (const Muster__Status *)ms_head_op_message(*op);
}

static pid_t agent_pid(struct ms_head *h)
{
    struct ms_head_op *op;
    pid_t pid = status(h, &op)->nodes[0]->agent_pid;

    ms_head_op_unref(op);
    return pid;
}

static void assert_nothing_left(const char *dir)
{
    static const char *const gone[] = {
        "lock", "secret", "driver", "head.sock", "w", "spin"};
    char path[128];

    for (size_t i = 0; i < MS_COUNT(gone); i++) {
        snprintf(path, sizeof path, "%s/%s", dir, gone[i]);
        assert_int_equal(access(path, F_OK), -1);
    }
    assert_int_equal(waitpid(-1, NULL, WNOHANG),
                     -1); /* no child, not even a dead one */
    assert_int_equal(errno, ECHILD);
}

static int count_fds(void)
{
    DIR *d = opendir("/proc/self/fd");
    int n = 0;

    assert_non_null(d);
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

/* ---- start and stop -------------------------------------------------------------- */

static void test_start_and_stop(void **state)
{
    char dir[MS_SESSION_DIR_MAX], path[128];
    int before = count_fds();
    struct ms_head *h = start("");
    struct ms_head_op *op;
    const Muster__Status *s = status(h, &op);

    (void)state;
    strcpy(dir, ms_head_session(h)->dir);
    assert_string_equal(s->session, ms_head_session(h)->name);
    assert_string_equal(s->session_dir, dir);
    assert_string_equal(s->version, "0.1.0");
    assert_int_equal(s->driver_pid, getpid());
    assert_int_equal(s->n_nodes, 1);
    assert_string_equal(s->nodes[0]->name, "here");
    assert_int_equal(s->nodes[0]->cpus, 7);
    assert_int_equal(s->nodes[0]->gpus, 4);
    assert_true(s->nodes[0]->alive);
    assert_int_equal(s->n_clusters, 0);
    ms_head_op_unref(op);
    snprintf(path, sizeof path, "%s/spin", dir);
    assert_int_equal(access(path, R_OK | W_OK), 0);
    ms_head_stop(h, 0);
    assert_nothing_left(dir);
    assert_int_equal(count_fds(), before);
    assert_int_equal(seen.lost[0], 0);
    ms_head_stop(NULL, 0);
}

static void
expect_no_start(const char *path, const char *mode, int code, const char *in)
{
    struct ms_error err = {0};
    int before = count_fds();

    assert_null(start_with(path, mode, 300 * MS_NS_PER_MS, &err));
    assert_int_equal(err.code, code);
    if (!strstr(err.text, in))
        fail_msg("'%s' is not in '%s'", in, err.text);
    assert_int_equal(count_fds(), before);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
}

static void test_failed_starts_say_why(void **state)
{
    struct ms_session *list = NULL;

    (void)state;
    expect_no_start(NULL, "", -EINVAL, "agent_path");
    expect_no_start("/nowhere/muster", "", -ENOENT, "'/nowhere/muster'");
    expect_no_start("/proc/self/exe", "exit", -EPIPE, "exited with code 3");
    expect_no_start("/proc/self/exe", "exit", -EPIPE, "| cannot find my shoes");
    expect_no_start("/proc/self/exe", "refuse", -EIO, "no room for me");
    expect_no_start("/proc/self/exe", "mute", -ETIMEDOUT, "within 0.3 s");
    for (int i = ms_session_list(&list, NULL) - 1; i >= 0; i--)
        assert_false(list[i].alive);
    free(list);
}

static void test_no_descriptor_left(void **state)
{
    struct rlimit before, few;
    struct ms_error err = {0};

    (void)state;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    few = before;
    few.rlim_cur = (rlim_t)count_fds() + 5;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    assert_null(start_with("/proc/self/exe", "", 0, &err));
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(err.code, -EMFILE);
    assert_non_null(strstr(err.text, "ulimit -n"));
}

static void test_a_stubborn_agent_is_killed_in_time(void **state)
{
    struct ms_head *h = start("stubborn");
    char dir[MS_SESSION_DIR_MAX];
    int64_t before_ns;

    (void)state;
    strcpy(dir, ms_head_session(h)->dir);
    expect(create(h, "actor", 1), 0, NULL);
    before_ns = ms_now_ns();
    ms_head_stop(h, 10 * MS_NS_PER_MS);
    assert_true(ms_now_ns() - before_ns <= MS_STOP_GRACE_NS + 10 * MS_NS_PER_MS);
    assert_nothing_left(dir);
}

static void test_stop_ends_what_is_under_way(void **state)
{
    struct ms_head *h = start("silent");
    struct ms_head_op *op = create(h, "actor", 2), *port;
    char dir[MS_SESSION_DIR_MAX];

    (void)state;
    strcpy(dir, ms_head_session(h)->dir);
    port = ms_head_hold_port(h, "x");
    expect(port, 0, NULL);
    ms_head_stop(h, 0);
    expect(op, -EPIPE, "exited with code 0");
    assert_nothing_left(dir);
}

/* ---- clusters -------------------------------------------------------------------- */

static void test_life_of_a_cluster(void **state)
{
    struct ms_head *h = start("");
    struct ms_head_op *op = create(h, "actor", 2);
    const Muster__ClusterStatus *c;
    pid_t pid;

    (void)state;
    assert_int_equal(finish(op, NULL), 0);
    c = (const Muster__ClusterStatus *)ms_head_op_message(op);
    assert_string_equal(c->name, "actor");
    assert_int_equal(c->n_workers, 2);
    assert_int_equal(c->workers[1]->rank, 1);
    assert_string_equal(c->workers[1]->address, "/w/x.sock");
    assert_int_equal(c->workers[1]->devices[0], 3);
    assert_int_equal(c->workers[1]->state, MUSTER__WORKER_STATE__WORKER_RUNNING);
    pid = c->workers[1]->pid;
    assert_int_equal(kill(pid, 0), 0);
    ms_head_op_unref(op);

    expect(create(h, "actor", 1), -EEXIST, "'actor'");
    expect(create(h, "a b", 1), -EINVAL, "cluster");
    expect(create(h, "none", 0), -EINVAL, "0 workers");
    expect(ms_head_create_cluster(h, "many", NULL, 70000), -ENOSPC, "65536");
    expect(ms_head_destroy_cluster(h, "other", 0), -ENOENT, "'other'");
    expect(ms_head_destroy_cluster(h, NULL, 0), -EINVAL, NULL);
    expect(ms_head_destroy_cluster(h, "actor", MS_NS_PER_S), 0, NULL);
    wait_exits(2);
    assert_int_equal(kill(pid, 0), -1);
    expect(create(h, "actor", 1), 0, NULL); /* the name is free again */
    ms_head_stop(h, MS_NS_PER_S);
}

static void test_spec_must_be_one(void **state)
{
    struct ms_head *h = start("");
    struct ms_head_rank rank = {0};
    char *big = malloc(MS_CONTROL_MAX + 1);

    (void)state;
    expect(ms_head_create_cluster(h, "a", &rank, 1), -EINVAL, "rank 0");
    muster__worker_spec__init(&rank.spec);
    memset(big, 'x', MS_CONTROL_MAX);
    big[MS_CONTROL_MAX] = 0;
    rank.spec.working_dir = big;
    expect(ms_head_create_cluster(h, "a", &rank, 1), -E2BIG, "at most 16777216");
    free(big);
    ms_head_stop(h, 0);
}

static void test_a_failed_creation_leaves_no_trace(void **state)
{
    struct ms_head *h = start("failure");
    struct ms_head_op *op;

    (void)state;
    expect(create(h, "actor", 2), -EIO, "no zygote today");
    assert_int_equal(status(h, &op)->n_clusters, 0);
    ms_head_op_unref(op);
    assert_int_equal(seen.exits, 0);
    ms_head_stop(h, 0);

    h = start("partial");
    expect(create(h, "actor", 2), -EPROTO, "every worker");
    assert_int_equal(status(h, &op)->n_clusters, 0);
    ms_head_op_unref(op);
    ms_head_stop(h, 0);
    assert_int_equal(seen.exits, 0);
}

static void test_exit_before_the_answer_is_told_after_it(void **state)
{
    struct ms_head *h = start("early");
    struct ms_head_op *op = create(h, "actor", 2);
    const Muster__ClusterStatus *c;

    (void)state;
    assert_int_equal(finish(op, NULL), 0);
    c = (const Muster__ClusterStatus *)ms_head_op_message(op);
    assert_int_equal(c->workers[1]->state, MUSTER__WORKER_STATE__WORKER_EXITED);
    assert_int_equal(c->workers[1]->exit->code, 5);
    wait_exits(1);
    assert_int_equal(seen.codes[0], 5);
    assert_int_equal(seen.uids[0], c->workers[1]->uid);
    ms_head_op_unref(op);
    ms_head_stop(h, 0);
}

static void test_destroy_waits_for_the_creation(void **state)
{
    struct ms_head *h = start("late");
    struct ms_head_op *made = create(h, "actor", 2);
    struct ms_head_op *first = ms_head_destroy_cluster(h, "actor", 0);
    struct ms_head_op *second = ms_head_destroy_cluster(h, "actor", 0);

    (void)state;
    assert_int_equal(ms_head_op_wait(first, ms_now_ns()), -ETIMEDOUT);
    assert_int_equal(ms_head_op_result(first, NULL), -EINPROGRESS);
    expect(ms_head_hold_port(h, "x"), 0, NULL); /* the agent answers both now */
    expect(made, 0, NULL);
    expect(first, 0, NULL);
    expect(second, 0, NULL);
    expect(ms_head_destroy_cluster(h, "actor", 0), -ENOENT, NULL);
    ms_head_stop(h, 0);
}

static void test_destroy_has_a_deadline(void **state)
{
    struct ms_head *h = start("deaf");

    (void)state;
    expect(create(h, "actor", 2), 0, NULL);
    expect(ms_head_destroy_cluster(h, "actor", 0), -ETIMEDOUT, "2 of 2 workers");
    ms_head_stop(h, 0);
}

/* ---- an agent that dies ---------------------------------------------------------- */

static void test_agent_dies_in_the_middle_of_a_request(void **state)
{
    struct ms_head *h = start("die");
    char dir[MS_SESSION_DIR_MAX];

    (void)state;
    strcpy(dir, ms_head_session(h)->dir);
    expect(create(h, "actor", 2), -EPIPE, "was killed by signal 9 (Killed)");
    wait_lost();
    assert_non_null(strstr(seen.lost, "the agent on node here"));
    assert_int_equal(seen.exits, 0); /* there was no such cluster yet */
    expect(create(h, "actor", 1), -EPIPE, "signal 9");
    expect(ms_head_hold_port(h, "x"), -EPIPE, "signal 9");
    ms_head_stop(h, MS_NS_PER_S);
    assert_nothing_left(dir);
}

static void test_workers_of_a_dead_agent(void **state)
{
    struct ms_head *h = start("deaf");
    struct ms_head_op *op = create(h, "actor", 2), *destroy;
    const Muster__ClusterStatus *c;
    const Muster__Status *s;
    pid_t worker;

    (void)state;
    assert_int_equal(finish(op, NULL), 0);
    c = (const Muster__ClusterStatus *)ms_head_op_message(op);
    worker = c->workers[0]->pid;
    expect(create(h, "critic", 1), 0, NULL);
    destroy = ms_head_destroy_cluster(h, "critic", 0);
    assert_int_equal(kill(agent_pid(h), SIGKILL), 0);
    wait_lost();
    assert_int_equal(seen.exits_before_lost, 3);
    assert_int_equal(seen.uids[1], c->workers[1]->uid);
    assert_non_null(strstr(seen.details[1], "the agent on node here"));
    assert_non_null(strstr(seen.details[1], "signal 9"));
    ms_head_op_unref(op);
    expect(destroy, 0, NULL); /* they are dead, as was wanted */

    s = status(h, &op);
    assert_false(s->nodes[0]->alive);
    assert_int_equal(s->n_clusters, 1); /* the other one was to go anyway */
    assert_int_equal(s->clusters[0]->workers[0]->state,
                     MUSTER__WORKER_STATE__WORKER_EXITED);
    ms_head_op_unref(op);
    expect(ms_head_destroy_cluster(h, "actor", 0), 0, NULL);
    ms_head_stop(h, 0);
    /* a process that knows nothing of agents was ended all the same; it may be a zombie
     * of whoever adopted it */
    if (kill(worker, 0) == 0) {
        char path[64], text[256] = {0};
        int fd;

        snprintf(path, sizeof path, "/proc/%d/stat", (int)worker);
        fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd >= 0 && read(fd, text, sizeof text - 1) > 0)
            assert_non_null(strstr(text, ") Z"));
        close(fd);
    }
}

static void test_agent_that_hangs_up_or_talks_nonsense(void **state)
{
    const Muster__ZygoteKey key = MUSTER__ZYGOTE_KEY__INIT;
    struct ms_head *h = start("hangup");

    (void)state;
    expect(ms_head_prepare(h, &key), -EPIPE, "closed its link and was killed");
    ms_head_stop(h, 0);
    h = start("garbage");
    expect(ms_head_prepare(h, &key), -EPIPE, "broke its link");
    ms_head_stop(h, 0);
}

/* ---- the rest -------------------------------------------------------------------- */

static void test_ports_and_zygotes(void **state)
{
    const Muster__ZygoteKey key = MUSTER__ZYGOTE_KEY__INIT;
    struct ms_head *h = start("");
    struct ms_head_op *op = ms_head_hold_port(h, "actor");
    const Muster__PortHeld *port;

    (void)state;
    assert_int_equal(finish(op, NULL), 0);
    port = (const Muster__PortHeld *)ms_head_op_message(op);
    assert_int_equal(port->port, 4711);
    assert_string_equal(port->host, "127.0.0.1");
    ms_head_op_unref(op);
    expect(ms_head_drop_port(h, "actor"), 0, NULL);
    expect(ms_head_prepare(h, &key), 0, NULL);
    ms_head_stop(h, 0);
}

static void test_control_socket(void **state)
{
    struct ms_head *h = start("");
    const struct ms_session *s = ms_head_session(h);
    char path[128];
    uint8_t *reply = NULL, wrong[32] = {0};
    size_t len = 0;
    struct ms_error err = {0};
    Muster__Status *st;
    Muster__Health *health;

    (void)state;
    expect(create(h, "actor", 2), 0, NULL);
    snprintf(path, sizeof path, "%s/head.sock", s->dir);
    assert_int_equal(ms_tool_call(path,
                                  s->secret,
                                  MS_OP_STATUS,
                                  NULL,
                                  0,
                                  5 * MS_NS_PER_S,
                                  &reply,
                                  &len,
                                  &err),
                     0);
    st = muster__status__unpack(NULL, len, reply);
    free(reply);
    assert_non_null(st);
    assert_string_equal(st->session, s->name);
    assert_int_equal(st->clusters[0]->n_workers, 2);
    muster__status__free_unpacked(st, NULL);
    assert_int_equal(ms_tool_call(path,
                                  s->secret,
                                  MS_OP_HEALTH,
                                  NULL,
                                  0,
                                  5 * MS_NS_PER_S,
                                  &reply,
                                  &len,
                                  &err),
                     0);
    health = muster__health__unpack(NULL, len, reply);
    free(reply);
    assert_string_equal(health->status, "ok");
    muster__health__free_unpacked(health, NULL);
    assert_int_equal(
        ms_tool_call(
            path, s->secret, MS_OP_STACK, NULL, 0, 5 * MS_NS_PER_S, &reply, &len, &err),
        -EREMOTEIO);
    assert_non_null(strstr(err.text, "no operation"));
    assert_int_equal(
        ms_tool_call(
            path, wrong, MS_OP_STATUS, NULL, 0, 5 * MS_NS_PER_S, &reply, &len, NULL),
        -EACCES);
    ms_head_stop(h, 0);
}

/* How many open descriptors lead to a socket, a process, or into the session. */
static int count_ties(void)
{
    char path[64], to[256];
    int n = 0;

    for (int fd = 3; fd < 256; fd++) {
        ssize_t len;

        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        len = readlink(path, to, sizeof to - 1);
        to[len > 0 ? len : 0] = 0;
        if (strstr(to, "socket:") || strstr(to, "pidfd") || strstr(to, home))
            n++;
    }
    return n;
}

/* What a forked child of the driver sees; its exit code. */
static int in_child(struct ms_head *h)
{
    struct ms_head_op *op;

    ms_head_forget(h);
    ms_head_forget(h);
    if (count_ties() != 0)
        return 1;
    op = ms_head_status(h);
    if (ms_head_op_result(op, NULL) != -EPERM)
        return 2;
    ms_head_op_unref(op);
    ms_head_stop(h, 0); /* must do nothing */
    return 0;
}

static void test_a_forked_child_forgets(void **state)
{
    int code = -1;
    struct ms_head *h = start("");
    struct ms_head_op *op;
    pid_t pid;

    (void)state;
    expect(create(h, "actor", 1), 0, NULL);
    assert_true(count_ties() >= 4); /* link, listening socket, agent, lock */
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        _exit(in_child(h));
    assert_int_equal(waitpid(pid, &code, 0), pid);
    assert_int_equal(code, 0);
    assert_int_equal(status(h, &op)->clusters[0]->n_workers, 1); /* ours goes on */
    ms_head_op_unref(op);
    expect(ms_head_destroy_cluster(h, "actor", 0), 0, NULL);
    ms_head_stop(h, 0);
}

static void *hammer(void *arg)
{
    struct ms_head *h = arg;

    for (int i = 0; i < 50; i++) {
        struct ms_head_op *port = ms_head_hold_port(h, "x"), *s = ms_head_status(h);

        ms_head_op_unref(ms_head_drop_port(h, "x")); /* given up at once */
        if (ms_head_op_wait(port, MS_NEVER) < 0 || ms_head_op_wait(s, MS_NEVER) < 0 ||
            ms_head_op_result(port, NULL) < 0 || ms_head_op_result(s, NULL) < 0)
            return arg;
        ms_head_op_unref(port);
        ms_head_op_unref(s);
    }
    return NULL;
}

static void test_any_thread_may_ask(void **state)
{
    struct ms_head *h = start("");
    pthread_t threads[4];

    (void)state;
    for (size_t i = 0; i < MS_COUNT(threads); i++)
        assert_int_equal(pthread_create(&threads[i], NULL, hammer, h), 0);
    for (size_t i = 0; i < MS_COUNT(threads); i++) {
        void *failed;

        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    ms_head_stop(h, 0);
}

static void test_two_heads_at_once(void **state)
{
    struct ms_head *a = start(""), *b = start("");
    char dir[MS_SESSION_DIR_MAX];

    (void)state;
    strcpy(dir, ms_head_session(b)->dir);
    expect(create(a, "actor", 1), 0, NULL);
    expect(create(b, "actor", 1), 0, NULL);
    ms_head_stop(a, 0);
    expect(ms_head_destroy_cluster(b, "actor", 0), 0, NULL);
    ms_head_stop(b, 0);
    assert_nothing_left(dir);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(test_start_and_stop),
        TEST(test_failed_starts_say_why),
        TEST(test_no_descriptor_left),
        TEST(test_a_stubborn_agent_is_killed_in_time),
        TEST(test_stop_ends_what_is_under_way),
        TEST(test_life_of_a_cluster),
        TEST(test_spec_must_be_one),
        TEST(test_a_failed_creation_leaves_no_trace),
        TEST(test_exit_before_the_answer_is_told_after_it),
        TEST(test_destroy_waits_for_the_creation),
        TEST(test_destroy_has_a_deadline),
        TEST(test_agent_dies_in_the_middle_of_a_request),
        TEST(test_workers_of_a_dead_agent),
        TEST(test_agent_that_hangs_up_or_talks_nonsense),
        TEST(test_ports_and_zygotes),
        TEST(test_control_socket),
        TEST(test_a_forked_child_forgets),
        TEST(test_any_thread_may_ask),
        TEST(test_two_heads_at_once),
    };

    if (argc > 1 && strcmp(argv[1], "agent") == 0)
        return fake_agent_main();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
