/* When nobody answers: deaths, exits that are told, strangers, no descriptors. */
#include "io/sock.h"
#include "wire/client/client.h"
#include "wire/client/client_impl.h"
#include "wire/test_rig.h"

#include <sys/resource.h>
#include <unistd.h>

static void tell_exit(struct rig *rig)
{
    Muster__Exit exit = MUSTER__EXIT__INIT;

    exit.signaled = true;
    exit.code = 9;
    ms_client_worker_exited(rig->client, RIG_UID, &exit);
}

static void destroy_client(void *arg)
{
    ms_client_destroy(arg, "enough");
}

static Muster__Failure *failure_of(struct ms_call *c)
{
    struct ms_outcome o;
    Muster__Failure *f;

    rig_wait(c);
    ms_call_outcome(c, &o);
    assert_int_equal(o.kind, MS_KIND_ERROR);
    f = muster__failure__unpack(NULL, o.len, o.body);
    assert_non_null(f);
    return f;
}

/* The worker goes in the middle of calls; somebody knows why. */
static void test_an_exit_fails_all_at_once(void **state)
{
    struct rig rig = {0};
    struct ms_call *c[10];

    (void)state;
    rig_start(&rig);
    rig_expect(rig_call(&rig, "echo", "x"), "x");
    rig_stop_server(&rig);
    for (size_t i = 0; i < MS_COUNT(c); i++)
        c[i] = rig_call(&rig, "echo", "x");
    rig_wait_count(&rig, &rig.asked, 1);
    for (size_t i = 0; i < MS_COUNT(c); i++)
        assert_false(ms_call_is_done(c[i])); /* it waits to hear of its exit */
    tell_exit(&rig);
    for (size_t i = 0; i < MS_COUNT(c); i++) {
        Muster__Failure *f = failure_of(c[i]);

        assert_int_equal(f->kind, MUSTER__FAILURE__KIND__WORKER_DIED);
        assert_true(f->exit && f->exit->signaled && f->exit->code == 9);
        assert_string_equal(f->where, "rig/0@here");
        muster__failure__free_unpacked(f, NULL);
        ms_call_unref(c[i]);
    }
    rig_expect_failure(rig_call(&rig, "echo", "x"), MUSTER__FAILURE__KIND__WORKER_DIED);
    tell_exit(&rig); /* again: nothing */
    assert_int_equal(rig.asked, 1);
    rig_stop(&rig);
}

/* An exit that was not asked for, while threads wait. */
static void *wait_dead(void *arg)
{
    rig_expect_failure(arg, MUSTER__FAILURE__KIND__WORKER_DIED);
    return NULL;
}

static void test_an_exit_wakes_waiters(void **state)
{
    struct rig rig = {0};
    pthread_t threads[4];

    (void)state;
    rig_start(&rig);
    for (size_t i = 0; i < MS_COUNT(threads); i++)
        assert_int_equal(
            pthread_create(&threads[i], NULL, wait_dead, rig_call(&rig, "hold", "x")),
            0);
    rig_wait_count(&rig, &rig.held, 1);
    tell_exit(&rig);
    for (size_t i = 0; i < MS_COUNT(threads); i++)
        pthread_join(threads[i], NULL);
    rig_stop(&rig);
}

/* Nobody knows: it is unreachable after a while, and a later call tries again. */
static void test_without_an_exit(void **state)
{
    struct rig rig = {.exit_wait_ns = 20 * MS_NS_PER_MS};
    struct ms_call_spec spec = {.waits = true};

    (void)state;
    rig_start(&rig);
    rig_expect(rig_call(&rig, "echo", "x"), "x");
    rig_stop_server(&rig);
    rig_expect_failure(rig_call(&rig, "echo", "x"), MUSTER__FAILURE__KIND__UNREACHABLE);
    rig_expect_failure(rig_call_spec(&rig, "echo", "x", 1, &spec),
                       MUSTER__FAILURE__KIND__UNREACHABLE);
    assert_int_equal(rig.asked, 2);
    rig_start_server(&rig);
    rig_expect(rig_call(&rig, "echo", "x"), "x");
    rig_stop(&rig);
}

/* Broken while a call runs, and its server does not come back. */
static void test_it_dies_while_a_call_runs(void **state)
{
    struct rig rig = {.exit_wait_ns = 20 * MS_NS_PER_MS};
    struct ms_call *c;

    (void)state;
    rig_start(&rig);
    c = rig_call(&rig, "hold", "x");
    rig_wait_count(&rig, &rig.held, 1);
    rig_open(&rig, 1);
    rig_stop_server(&rig); /* perhaps after the reply */
    rig_wait(c);
    ms_call_unref(c);
    rig_stop(&rig);
}

static void test_a_wrong_secret(void **state)
{
    struct rig rig = {0};
    struct ms_client *client;
    struct ms_peer *peer;
    uint8_t wrong[32] = {1};
    struct ms_call_spec spec = {.op = MS_OP_HEALTH, .deadline_ns = MS_NEVER};
    Muster__Failure *f;
    struct ms_call *c;

    (void)state;
    rig_start(&rig);
    client = ms_client_create(
        &(struct ms_client_options){.loop = rig.client_loop, .secret = wrong});
    peer = ms_peer_create(client, rig.path, RIG_UID, "rig/0@here", NULL);
    for (int i = 0; i < 2; i++) {
        spec.waits = i;
        c = ms_peer_call(peer, &spec);
        f = failure_of(c);
        assert_int_equal(f->kind, MUSTER__FAILURE__KIND__UNREACHABLE);
        assert_non_null(strstr(f->message, "does not know the secret"));
        muster__failure__free_unpacked(f, NULL);
        ms_call_unref(c);
    }
    ms_peer_unref(peer);
    rig_on_loop(&rig, rig.client_loop, destroy_client, client);
    rig_expect(rig_call(&rig, "echo", "x"), "x");
    rig_stop(&rig);
}

/* Another worker listens at the address: the one we mean is gone. */
static void test_another_identity(void **state)
{
    struct rig rig = {.exit_wait_ns = 50 * MS_NS_PER_MS};
    struct ms_peer *stranger;
    struct ms_call_spec spec = {.op = MS_OP_HEALTH, .deadline_ns = MS_NEVER};

    (void)state;
    rig_start(&rig);
    stranger = ms_peer_create(rig.client, rig.path, RIG_UID + 1, "old", NULL);
    ms_peer_unref(rig.peer);
    rig.peer = stranger;
    rig_expect_failure(ms_peer_call(stranger, &spec),
                       MUSTER__FAILURE__KIND__UNREACHABLE);
    rig_stop(&rig);
}

/* A path that cannot be connected to at all fails at once. */
static void test_a_path_that_is_no_socket(void **state)
{
    struct rig rig = {0};
    struct ms_call_spec spec = {.op = MS_OP_HEALTH, .deadline_ns = MS_NEVER};
    char long_path[200] = "/";
    struct ms_error err = {0};
    struct ms_peer *p;

    (void)state;
    rig_start(&rig);
    memset(long_path + 1, 'x', sizeof long_path - 2);
    assert_null(ms_peer_create(rig.client, long_path, 1, "long", &err));
    assert_int_equal(err.code, -ENAMETOOLONG);
    p = ms_peer_create(rig.client, "/dev/null/socket", 1, "no folder", NULL);
    assert_non_null(p);
    rig_expect_failure(ms_peer_call(p, &spec), MUSTER__FAILURE__KIND__UNREACHABLE);
    rig_expect_failure(ms_peer_call(p, &spec), MUSTER__FAILURE__KIND__UNREACHABLE);
    ms_peer_unref(p);
    rig_stop(&rig);
}

/* Without a descriptor a call fails at once, and says what to do. */
static void test_no_descriptor_left(void **state)
{
    struct rig rig = {0};
    struct ms_call_spec spec = {.op = MS_OP_HEALTH, .deadline_ns = MS_NEVER};
    struct rlimit before, none;
    Muster__Failure *f;
    struct ms_call *c;

    (void)state;
    rig_start(&rig);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = before;
    none.rlim_cur = 0;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    c = ms_peer_call(rig.peer, &spec);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    f = failure_of(c);
    assert_int_equal(f->kind, MUSTER__FAILURE__KIND__UNREACHABLE);
    assert_non_null(strstr(f->message, "ulimit -n"));
    muster__failure__free_unpacked(f, NULL);
    ms_call_unref(c);
    rig_expect(rig_call(&rig, "echo", "x"), "x"); /* and a later one tries again */
    rig_stop(&rig);
}

/* A server that takes the connection and ends it, again and again, is given up. */
static void test_a_server_that_hangs_up(void **state)
{
    struct rig rig = {.client_grace_ns = 50 * MS_NS_PER_MS,
                      .exit_wait_ns = MS_NS_PER_MS};
    struct ms_call *c;
    int fd, accepted;

    (void)state;
    rig_start(&rig);
    rig_stop_server(&rig);
    fd = ms_unix_listen(rig.path, SOCK_STREAM, NULL);
    c = rig_call(&rig, "echo", "x");
    while (!ms_call_is_done(c)) {
        accepted = ms_unix_accept(fd);
        if (accepted >= 0)
            close(accepted);
    }
    rig_expect_failure(c, MUSTER__FAILURE__KIND__UNREACHABLE);
    close(fd);
    unlink(rig.path);
    rig_stop(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_exit_fails_all_at_once),
        cmocka_unit_test(test_an_exit_wakes_waiters),
        cmocka_unit_test(test_without_an_exit),
        cmocka_unit_test(test_it_dies_while_a_call_runs),
        cmocka_unit_test(test_a_wrong_secret),
        cmocka_unit_test(test_another_identity),
        cmocka_unit_test(test_a_path_that_is_no_socket),
        cmocka_unit_test(test_no_descriptor_left),
        cmocka_unit_test(test_a_server_that_hangs_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
