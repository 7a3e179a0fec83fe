/* Processes that end: a worker that is killed, a client that is destroyed, a fork. */
#include "wire/client/client_impl.h"
#include "wire/test_rig.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- the end of a worker --------------------------------------------------------- */

/* Where a rig in another process is: nothing that its threads change. */
static void copy_place(struct rig *to, const struct rig *from)
{
    memcpy(to->secret, from->secret, sizeof to->secret);
    memcpy(to->folder, from->folder, sizeof to->folder);
    memcpy(to->path, from->path, sizeof to->path);
    memcpy(to->spin_path, from->spin_path, sizeof to->spin_path);
    memcpy(to->tcp_address, from->tcp_address, sizeof to->tcp_address);
}

/* A worker of its own, in a process of its own. */
static pid_t start_worker(struct rig *rig)
{
    struct rig there = {0};
    int ends[2];
    pid_t pid;

    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    pid = fork();
    if (pid == 0) {
        rig->no_client = true;
        rig_start(rig);
        copy_place(&there, rig);
        if (write(ends[1], &there, sizeof there) != sizeof there)
            _exit(1);
        for (;;)
            pause();
    }
    assert_int_equal(read(ends[0], &there, sizeof there), sizeof there);
    copy_place(rig, &there);
    close(ends[0]);
    close(ends[1]);
    return pid;
}

/* The handshake is done, and the call has left. */
static void run_until_sent(struct ms_loop *loop, struct ms_peer *p)
{
    int64_t until_ns = ms_now_ns() + RIG_DEADLINE_NS;
    bool sent = false;

    while (!sent) {
        ms_loop_run_once(loop, true);
        assert_true(ms_now_ns() < until_ns);
        pthread_mutex_lock(&p->lock);
        sent = p->conn && ms_conn_is_ready(p->conn) && ms_conn_queued(p->conn) == 0;
        pthread_mutex_unlock(&p->lock);
    }
}

static void count_asked(void *arg, uint64_t uid)
{
    assert_int_equal(uid, RIG_UID);
    atomic_fetch_add((_Atomic unsigned *)arg, 1);
}

/* SIGKILL in the middle of a call: its exit is asked for at once. */
static void test_a_killed_process(void **state)
{
    struct rig rig = {0};
    pid_t pid = start_worker(&rig);
    struct ms_loop *loop = ms_loop_create();
    _Atomic unsigned asked = 0;
    struct ms_client *client = ms_client_create(&(struct ms_client_options){
        .loop = loop, .secret = rig.secret, .ask_exit = count_asked, .arg = &asked});
    struct ms_peer *peer = ms_peer_create(client, rig.path, RIG_UID, "it", NULL);
    int op = ms_peer_method(peer, "e", "hold");
    struct ms_call *c = ms_peer_call(
        peer, &(struct ms_call_spec){.op = (uint16_t)op, .deadline_ns = MS_NEVER});
    Muster__Exit exit = MUSTER__EXIT__INIT;
    int64_t until_ns = ms_now_ns() + RIG_DEADLINE_NS;

    (void)state;
    run_until_sent(loop, peer);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    while (!asked) {
        ms_loop_run_once(loop, true);
        assert_true(ms_now_ns() < until_ns);
    }
    assert_false(ms_call_is_done(c));
    ms_client_worker_exited(client, RIG_UID, &exit);
    rig_expect_failure(c, MUSTER__FAILURE__KIND__WORKER_DIED);
    ms_client_destroy(client, "over");
    ms_peer_unref(peer);
    ms_loop_destroy(loop);
    unlink(rig.path);
    unlink(rig.spin_path);
    rmdir(rig.folder);
}

/* ---- another one in its place ---------------------------------------------------- */

struct seeker {
    struct ms_loop *loop;
    struct ms_client *client;
    unsigned exits, seeks;
};

static void on_exit_asked(void *arg, uint64_t uid)
{
    struct seeker *k = arg;

    (void)uid;
    k->exits++;
}

static void on_successor_asked(void *arg, uint64_t uid)
{
    struct seeker *k = arg;

    assert_int_equal(uid, RIG_UID);
    k->seeks++;
}

static struct ms_call *call_method(struct ms_peer *p, const char *method)
{
    int op = ms_peer_method(p, "e", method);

    return ms_peer_call(
        p, &(struct ms_call_spec){.op = (uint16_t)op, .deadline_ns = MS_NEVER});
}

static void run_until(struct seeker *k, const unsigned *what, unsigned value)
{
    int64_t until_ns = ms_now_ns() + RIG_DEADLINE_NS;

    while (*what < value) {
        ms_loop_run_once(k->loop, true);
        assert_true(ms_now_ns() < until_ns);
    }
}

static void run_until_done(struct seeker *k, struct ms_call *c)
{
    int64_t until_ns = ms_now_ns() + RIG_DEADLINE_NS;

    while (!ms_call_is_done(c)) {
        ms_loop_run_once(k->loop, true);
        assert_true(ms_now_ns() < until_ns);
    }
}

static void remove_files(const struct rig *rig)
{
    unlink(rig->path);
    unlink(rig->spin_path);
    rmdir(rig->folder);
}

/* What was sent to the old one fails; what was not goes to the new one, once. */
static void test_a_successor(void **state)
{
    struct rig rig = {0}, next = {0};
    pid_t pid = start_worker(&rig), next_pid;
    struct seeker k = {.loop = ms_loop_create()};
    Muster__Exit exit = MUSTER__EXIT__INIT;
    Muster__WorkerStatus worker = MUSTER__WORKER_STATUS__INIT;
    struct ms_call *sent, *later, *none;
    struct ms_peer *peer;

    (void)state;
    memcpy(next.secret, rig.secret, sizeof next.secret);
    next.has_secret = true;
    next_pid = start_worker(&next);
    k.client = ms_client_create(
        &(struct ms_client_options){.loop = k.loop,
                                    .secret = next.secret,
                                    .ask_exit = on_exit_asked,
                                    .ask_successor = on_successor_asked,
                                    .arg = &k});
    peer = ms_peer_create(k.client, rig.path, RIG_UID, "it", NULL);
    sent = call_method(peer, "hold");
    run_until_sent(k.loop, peer);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    run_until(&k, &k.exits, 1);
    ms_client_worker_exited(k.client, RIG_UID, &exit);
    rig_expect_failure(sent, MUSTER__FAILURE__KIND__WORKER_DIED);
    assert_int_equal(k.seeks, 0); /* nobody wants one */

    none = call_method(peer, "echo"); /* there is none yet */
    run_until(&k, &k.seeks, 1);
    assert_false(ms_call_is_done(none));
    ms_client_successor(k.client, RIG_UID, NULL);
    rig_expect_failure(none, MUSTER__FAILURE__KIND__WORKER_DIED);

    later = call_method(peer, "echo");
    run_until(&k, &k.seeks, 2);
    worker.uid = RIG_UID;
    worker.address = next.path;
    ms_client_successor(k.client, RIG_UID + 1, &worker); /* of another */
    assert_false(ms_call_is_done(later));
    ms_client_successor(k.client, RIG_UID, &worker);
    run_until_done(&k, later);
    rig_expect(later, "");
    ms_client_destroy(k.client, "over");
    ms_peer_unref(peer);
    ms_loop_destroy(k.loop);
    kill(next_pid, SIGKILL);
    waitpid(next_pid, NULL, 0);
    remove_files(&rig);
    remove_files(&next);
}

/* ---- the end of a client --------------------------------------------------------- */

static void destroy_client(void *arg)
{
    ms_client_destroy(arg, "enough");
}

static void *wait_shut(void *arg)
{
    rig_expect_failure(arg, MUSTER__FAILURE__KIND__SHUTTING_DOWN);
    return NULL;
}

static void test_destroyed_while_threads_wait(void **state)
{
    struct rig rig = {0};
    pthread_t threads[4];
    struct ms_error err = {0};

    (void)state;
    rig_start(&rig);
    for (size_t i = 0; i < MS_COUNT(threads); i++)
        assert_int_equal(
            pthread_create(&threads[i], NULL, wait_shut, rig_call(&rig, "hold", "x")),
            0);
    rig_wait_count(&rig, &rig.held, 1);
    rig_on_loop(&rig, rig.client_loop, destroy_client, rig.client);
    for (size_t i = 0; i < MS_COUNT(threads); i++)
        pthread_join(threads[i], NULL);
    /* peers stay, and say so */
    rig_expect_failure(rig_call(&rig, "echo", "x"),
                       MUSTER__FAILURE__KIND__SHUTTING_DOWN);
    assert_null(ms_peer_create(rig.client, rig.path, 1, "late", &err));
    assert_int_equal(err.code, -ESHUTDOWN);
    ms_loop_stop(rig.client_loop);
    pthread_join(rig.client_thread, NULL);
    ms_peer_unref(rig.peer);
    ms_loop_destroy(rig.client_loop);
    rig.client = NULL;
    rig_stop(&rig);
}

/* The loop goes before the last peer. */
static void test_peers_outlive_the_loop(void **state)
{
    struct rig rig = {0};
    struct ms_peer *peer;
    struct ms_call *c;

    (void)state;
    rig_start(&rig);
    c = rig_call(&rig, "hold", "x");
    peer = ms_peer_ref(rig.peer);
    rig_stop(&rig); /* which lets "hold" go on: perhaps it was answered in time */
    rig_wait(c);
    ms_call_unref(c);
    ms_peer_unref(peer);
}

/* ---- forks ----------------------------------------------------------------------- */

static int in_the_child(struct rig *rig, struct ms_call *open)
{
    struct ms_call_spec spec = {.op = MS_OP_HEALTH, .deadline_ns = MS_NEVER};
    unsigned before = rig_open_fds();
    struct ms_outcome o;
    struct ms_call *c;

    ms_client_forget(rig->client);
    if (rig_open_fds() + 3 != before)
        return 1;
    if (!ms_call_is_done(open) || ms_call_wait(open, MS_NEVER) != 0)
        return 2;
    ms_call_outcome(open, &o);
    if (o.kind != MS_KIND_ERROR || o.len == 0)
        return 3;
    ms_call_cancel(open);
    c = ms_peer_call(rig->peer, &spec);
    if (!c || ms_call_wait(c, MS_NEVER) != 0)
        return 4;
    ms_call_outcome(c, &o);
    ms_call_unref(c);
    return o.kind == MS_KIND_ERROR ? 0 : 5;
}

static void test_a_forked_child(void **state)
{
    struct rig rig = {0};
    struct ms_call *open;
    int status;
    pid_t pid;

    (void)state;
    rig_start(&rig);
    open = rig_call(&rig, "hold", "x");
    rig_wait_count(&rig, &rig.held, 1);
    pid = fork();
    if (pid == 0)
        _exit(in_the_child(&rig, open));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    rig_open(&rig, 1);
    rig_expect(open, "x"); /* the parent has not noticed */
    rig_expect(rig_call(&rig, "echo", "y"), "y");
    rig_stop(&rig);
}

static void *wait_for_call(void *call)
{
    rig_wait(call);
    return NULL;
}

/* ---- answers before the end -------------------------------------------------------- */

struct last_answer {
    struct rig *rig;
    struct ms_call *call;
};

/* On the client's loop, which reads nothing meanwhile. */
static void answer_and_die(void *arg)
{
    Muster__Exit exit = MUSTER__EXIT__INIT;
    struct last_answer *a = arg;
    struct pollfd p = {.events = POLLIN};

    a->call = rig_call(a->rig, "echo", "x");
    p.fd = ms_conn_fd(a->rig->peer->conn);
    assert_int_equal(poll(&p, 1, (int)(RIG_DEADLINE_NS / MS_NS_PER_MS)), 1);
    ms_client_worker_exited(a->rig->client, RIG_UID, &exit);
}

/* The news of a death may come before its last answers are read. */
static void test_what_was_answered_before_the_end(void **state)
{
    struct rig rig = {0};
    struct last_answer a = {.rig = &rig};
    struct ms_call *late;

    (void)state;
    rig_start(&rig);
    rig_expect(rig_call(&rig, "echo", "x"), "x"); /* there is a connection */
    rig_on_loop(&rig, rig.client_loop, answer_and_die, &a);
    rig_expect(a.call, "x");
    late = rig_call(&rig, "echo", "x");
    rig_expect_failure(late, MUSTER__FAILURE__KIND__WORKER_DIED);
    rig_stop(&rig);
}

/* A thread that reads for its own call ends the others too. */
static void test_a_reader_at_the_end(void **state)
{
    Muster__Exit exit = MUSTER__EXIT__INIT;
    struct rig rig = {0};
    struct ms_call *held, *behind;
    pthread_t thread;

    (void)state;
    rig_start(&rig);
    held = rig_call(&rig, "hold", "x");
    behind = rig_call(&rig, "echo", "x");
    rig_wait_count(&rig, &rig.held, 1);
    assert_int_equal(pthread_create(&thread, NULL, wait_for_call, held), 0);
    for (bool reads = false; !reads;) {
        MS_LOCK(&rig.peer->lock);

        reads = rig.peer->reading;
    }
    ms_client_worker_exited(rig.client, RIG_UID, &exit);
    rig_expect_failure(behind, MUSTER__FAILURE__KIND__WORKER_DIED);
    pthread_join(thread, NULL);
    rig_expect_failure(held, MUSTER__FAILURE__KIND__WORKER_DIED);
    rig_open(&rig, 1);
    rig_stop(&rig);
}

/* ---- answers that lie unread when a send fails -------------------------------------- */

struct killed {
    struct rig rig, next; /* `next`: who has its place later */
    pid_t pid, next_pid;
    struct seeker k;
    struct ms_peer *peer;
    struct ms_call *held, *answered; /* the answer is there, and nobody has read it */
};

static void wait_readable(struct ms_peer *peer)
{
    struct pollfd p = {.fd = ms_conn_fd(peer->conn), .events = POLLIN};

    assert_int_equal(poll(&p, 1, (int)(RIG_DEADLINE_NS / MS_NS_PER_MS)), 1);
}

/* The loop runs only when the test runs it. */
static void kill_with_an_answer_unread(struct killed *d)
{
    d->pid = start_worker(&d->rig);
    memcpy(d->next.secret, d->rig.secret, sizeof d->next.secret);
    d->next.has_secret = true;
    d->next_pid = start_worker(&d->next);
    d->k.loop = ms_loop_create();
    d->k.client = ms_client_create(
        &(struct ms_client_options){.loop = d->k.loop,
                                    .secret = d->rig.secret,
                                    .ask_exit = on_exit_asked,
                                    .ask_successor = on_successor_asked,
                                    .arg = &d->k});
    d->peer = ms_peer_create(d->k.client, d->rig.path, RIG_UID, "it", NULL);
    rig_expect(call_method(d->peer, "echo"), "");
    d->answered = call_method(d->peer, "echo");
    wait_readable(d->peer);
    d->held = call_method(d->peer, "hold");
    assert_int_equal(kill(d->pid, SIGKILL), 0);
    assert_int_equal(waitpid(d->pid, NULL, 0), d->pid);
}

static void tell_exit(struct killed *d)
{
    Muster__Exit exit = MUSTER__EXIT__INIT;

    ms_client_worker_exited(d->k.client, RIG_UID, &exit);
}

static void killed_finish(struct killed *d)
{
    ms_client_destroy(d->k.client, "over");
    ms_peer_unref(d->peer);
    ms_loop_destroy(d->k.loop);
    kill(d->next_pid, SIGKILL);
    waitpid(d->next_pid, NULL, 0);
    remove_files(&d->rig);
    remove_files(&d->next);
}

static void test_unread_when_a_call_fails(void **state)
{
    for (unsigned asked = 0; asked < 2; asked++) { /* the loop reads before the news */
        struct killed d = {0};
        struct ms_call *late;

        (void)state;
        kill_with_an_answer_unread(&d);
        late = call_method(d.peer, "echo");
        run_until(&d.k, &d.k.exits, asked);
        tell_exit(&d);
        rig_expect(d.answered, "");
        rig_expect_failure(d.held, MUSTER__FAILURE__KIND__WORKER_DIED);
        rig_expect_failure(late, MUSTER__FAILURE__KIND__WORKER_DIED);
        killed_finish(&d);
    }
}

static void test_unread_when_a_cancel_fails(void **state)
{
    struct killed d = {0};

    (void)state;
    kill_with_an_answer_unread(&d);
    ms_call_cancel(d.held);
    rig_expect(d.answered, "");
    rig_expect_failure(d.held, MUSTER__FAILURE__KIND__CANCELLED);
    tell_exit(&d);
    killed_finish(&d);
}

/* What is called after a send has failed is not sent, and goes to who has its place. */
static void test_called_after_a_failed_send(void **state)
{
    struct killed d = {0};
    Muster__WorkerStatus worker = MUSTER__WORKER_STATUS__INIT;
    struct ms_call *failed, *later, *cancelled;

    (void)state;
    kill_with_an_answer_unread(&d);
    failed = call_method(d.peer, "echo");
    later = call_method(d.peer, "echo");
    cancelled = call_method(d.peer, "echo");
    ms_call_cancel(cancelled);
    rig_expect_failure(cancelled, MUSTER__FAILURE__KIND__CANCELLED);
    tell_exit(&d);
    rig_expect(d.answered, "");
    rig_expect_failure(d.held, MUSTER__FAILURE__KIND__WORKER_DIED);
    rig_expect_failure(failed, MUSTER__FAILURE__KIND__WORKER_DIED);
    run_until(&d.k, &d.k.seeks, 1);
    worker.uid = RIG_UID;
    worker.address = d.next.path;
    ms_client_successor(d.k.client, RIG_UID, &worker);
    run_until_done(&d.k, later);
    rig_expect(later, "");
    killed_finish(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_killed_process),
        cmocka_unit_test(test_a_successor),
        cmocka_unit_test(test_destroyed_while_threads_wait),
        cmocka_unit_test(test_peers_outlive_the_loop),
        cmocka_unit_test(test_a_forked_child),
        cmocka_unit_test(test_what_was_answered_before_the_end),
        cmocka_unit_test(test_a_reader_at_the_end),
        cmocka_unit_test(test_unread_when_a_call_fails),
        cmocka_unit_test(test_unread_when_a_cancel_fails),
        cmocka_unit_test(test_called_after_a_failed_send),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
