/* A session over real processes, with a head of its own and with one that it joins. */
#include "session/session.h"

#include "base/clock.h"
#include "io/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define DEADLINE_NS (20 * MS_NS_PER_S)

static char home[] = "/tmp/muster-sess-XXXXXX";
static struct ms_head *daemon_head;
static struct ms_driver_session *session; /* of the test that runs */
static struct ms_error err;

static int set_up_all(void **state)
{
    static const char *const listen[] = {"127.0.0.1:0", NULL};

    (void)state;
    if (!mkdtemp(home) || setenv("MUSTER_HOME", home, 1) < 0)
        return -1;
    daemon_head = ms_head_serve(
        &(struct ms_head_serve_options){.name = "d", .listen = listen}, &err);
    return daemon_head ? 0 : -1;
}

static int tear_down_all(void **state)
{
    (void)state;
    ms_head_stop(daemon_head, 0);
    return ms_tree_remove(AT_FDCWD, home);
}

static struct ms_driver_session *start(const char *address, const char *secret_file)
{
    static const char *const python[] = {"python3", NULL}, *const none[] = {NULL};
    struct ms_driver_session_options o = {
        .head = {.agent_path = getenv("MUSTER_CLI"),
                 .num_gpus = 0,
                 .num_cpus = 1,
                 .python = python,
                 .sys_path = none,
                 .env = none,
                 .working_dir = "/",
                 .timeout_ns = DEADLINE_NS},
        .address = address,
        .secret_file = secret_file,
    };

    return ms_driver_session_start(&o, &err);
}

static int set_up_own(void **state)
{
    (void)state;
    session = start(NULL, NULL);
    return session ? 0 : -1;
}

static int set_up_joined(void **state)
{
    char address[128], secret[128];

    (void)state;
    snprintf(address, sizeof address, "%s/d/head.sock", home);
    snprintf(secret, sizeof secret, "%s/d/secret", home);
    session = start(address, secret);
    return session ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    ms_driver_session_stop(session, 0);
    ms_driver_session_destroy(session);
    return 0;
}

/* A worker where nobody listens. */
static struct ms_peer *peer_of(uint64_t uid)
{
    struct ms_peer *p = ms_peer_create(
        ms_driver_session_client(session), "/nowhere/w.sock", uid, "it", &err);

    assert_non_null(p);
    return p;
}

static struct ms_call *call(struct ms_peer *p)
{
    return ms_peer_call(
        p, &(struct ms_call_spec){.op = MS_OP_HEALTH, .deadline_ns = MS_NEVER});
}

/* Its failure, and what is in the text. */
static void
expect(struct ms_call *c, Muster__Failure__Kind kind, int code, const char *text)
{
    Muster__Failure *f;
    struct ms_outcome o;

    assert_non_null(c);
    assert_int_equal(ms_call_wait(c, ms_now_ns() + DEADLINE_NS), 0);
    ms_call_outcome(c, &o);
    f = muster__failure__unpack(NULL, o.len, o.body);
    assert_int_equal(f->kind, kind);
    if (f->exit)
        assert_int_equal(f->exit->code, code);
    assert_non_null(strstr(f->exit ? f->exit->detail : f->message, text));
    muster__failure__free_unpacked(f, NULL);
    ms_call_unref(c);
}

static void expect_unknown(struct ms_call *c)
{
    expect(c, MUSTER__FAILURE__KIND__WORKER_DIED, -1, "the head knows nothing of it");
}

/* Also twice: what the head has said is known then. */
static void test_a_worker_that_nobody_knows(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct ms_peer *one = peer_of(4711), *two = peer_of(4711);
        struct ms_call *first = call(one), *second = call(two);

        expect_unknown(first);
        expect_unknown(second);
        ms_peer_unref(one);
        ms_peer_unref(two);
    }
}

static void test_stop(void **state)
{
    struct ms_peer *peer = peer_of(4711);

    (void)state;
    assert_true(ms_driver_session_is_open(session));
    assert_true(ms_driver_session_is_alive(session));
    ms_driver_session_stop(session, 0);
    assert_false(ms_driver_session_is_open(session));
    assert_false(ms_driver_session_is_alive(session));
    expect(call(peer), MUSTER__FAILURE__KIND__SHUTTING_DOWN, 0, "muster was shut down");
    ms_peer_unref(peer);
    ms_driver_session_stop(session, 0);
}

static bool is_refused(struct ms_peer *peer)
{
    struct ms_call *c = call(peer);
    struct ms_outcome o = {0};
    Muster__Failure *f;

    if (!c || ms_call_wait(c, ms_now_ns() + DEADLINE_NS) != 0)
        return false;
    ms_call_outcome(c, &o);
    f = muster__failure__unpack(NULL, o.len, o.body);
    return f && f->kind == MUSTER__FAILURE__KIND__REFUSED;
}

static int in_the_child(struct ms_peer *dead, struct ms_peer *fresh)
{
    struct ms_head_op *op = ms_head_status(ms_driver_session_head(session));

    if (ms_driver_session_is_open(session) || ms_driver_session_is_alive(session))
        return 1;
    if (!is_refused(dead) || !is_refused(fresh))
        return 2;
    if (ms_head_op_result(op, NULL) != -EPERM)
        return 3;
    ms_driver_session_stop(session, 0);
    return 0;
}

static void test_a_forked_child(void **state)
{
    struct ms_peer *dead = peer_of(4711), *fresh = peer_of(4712);
    struct ms_head_op *op;
    int status;
    pid_t pid;

    (void)state;
    expect_unknown(call(dead));
    pid = fork();
    if (pid == 0)
        _exit(in_the_child(dead, fresh));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_true(ms_driver_session_is_alive(session)); /* the parent has not noticed */
    op = ms_head_status(ms_driver_session_head(session));
    assert_int_equal(ms_head_op_wait(op, ms_now_ns() + DEADLINE_NS), 0);
    assert_int_equal(ms_head_op_result(op, &err), 0);
    ms_head_op_unref(op);
    ms_peer_unref(dead);
    ms_peer_unref(fresh);
}

static void test_which_head(void **state)
{
    bool is_joined = *(const char *const *)state != NULL;

    assert_int_equal(ms_driver_session_is_joined(session), is_joined);
}

static void test_refusals(void **state)
{
    (void)state;
    assert_null(start("/nowhere/head.sock", NULL));
    assert_int_equal(err.code, -EINVAL);
    assert_null(start("/nowhere/head.sock", "/nowhere/secret"));
    assert_int_equal(err.code, -ENOENT);
}

#define BOTH(name)                                                                     \
    {#name "[own]", name, set_up_own, tear_down, NULL},                                \
    {                                                                                  \
#name "[joined]", name, set_up_joined, tear_down, joined                       \
    }

int main(void)
{
    static char joined[] = "joined";
    const struct CMUnitTest tests[] = {
        BOTH(test_a_worker_that_nobody_knows),
        BOTH(test_stop),
        BOTH(test_a_forked_child),
        BOTH(test_which_head),
        cmocka_unit_test(test_refusals),
    };

    return cmocka_run_group_tests(tests, set_up_all, tear_down_all);
}
