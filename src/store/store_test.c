/* A node's store on a loop of its own thread, and processes that use it. */
#include "store/test_rig.h"

#include "base/cleanup.h"
#include "store/client/state.h"
#include "store/server/state.h"

#include <errno.h>
#include <netinet/in.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

static void test_written_once_and_read_in_place(void **unused)
{
    struct ms_store_client *a, *b;
    struct ms_held *mine, *theirs, *part;
    uint64_t offset = 0, used = 0;
    struct rig r;

    (void)unused;
    rig_start(&r, 64 * MIB);
    a = rig_enter(&r, 1);
    b = rig_enter(&r, 2);
    mine = rig_make(a, 5 * MIB);
    memset(mine->write, 7, 5 * MIB);
    theirs = rig_attach(b, mine);
    assert_null(theirs->write);
    assert_int_equal(theirs->read[5 * MIB - 1], 7);
    assert_int_equal(rig_object_count(b, &used), 1);
    assert_int_equal(used, 5 * MIB);

    part = ms_store_client_find_memory(b, theirs->read + 100, 1000, &offset);
    assert_ptr_equal(part, theirs);
    assert_int_equal(offset, 100);
    ms_held_unref(part);
    assert_null(ms_store_client_find_memory(b, theirs->read + 100, 5 * MIB, &offset));
    assert_null(ms_store_client_find_memory(b, &offset, 8, &offset));
    part = ms_store_client_find_memory(a, mine->write, 5 * MIB, &offset);
    assert_ptr_equal(part, mine);
    ms_held_unref(part);

    ms_held_unref(mine);
    assert_int_equal(rig_object_count(a, NULL), 1); /* b has it */
    ms_held_unref(theirs);
    rig_wait_objects(a, 0);
    ms_store_client_close(a);
    ms_store_client_close(b);
    rig_stop(&r);
}

static void test_what_is_gone_is_an_error(void **unused)
{
    struct ms_stored_name name;
    struct ms_error err = {0};
    struct ms_store_client *a, *b;
    struct ms_held *h, *out = NULL;
    struct rig r;

    (void)unused;
    rig_start(&r, 64 * MIB);
    a = rig_enter(&r, 1);
    b = rig_enter(&r, 2);
    h = rig_make(a, MIB);
    ms_held_name(h, &name);
    ms_held_unref(h);
    rig_wait_objects(a, 0);
    name.address = "";
    name.address_len = 0;
    assert_int_equal(ms_store_client_attach(b, &name, 1, false, &out, &err), -ENOENT);
    assert_non_null(strstr(err.text, "gone"));
    assert_int_equal(b->held.count, 0);
    ms_store_client_close(a);
    ms_store_client_close(b);
    rig_stop(&r);
}

static void test_an_answer_grants(void **unused)
{
    struct ms_store_client *a, *b;
    struct ms_held *h, *got;
    struct ms_stored_name name;
    struct rig r;

    (void)unused;
    rig_start(&r, 64 * MIB);
    a = rig_enter(&r, 1);
    b = rig_enter(&r, 2);
    for (int i = 0; i < 200; i++) {
        h = rig_make(a, 4096);
        h->write[0] = (uint8_t)i;
        ms_held_name(h, &name);
        assert_int_equal(
            ms_store_client_grant(a, &name, ms_store_client_node(b), 2, false), 0);
        got = ms_store_client_adopt(b, &name, ms_store_client_node(a));
        ms_held_unref(h);
        assert_non_null(got);
        assert_int_equal(got->read[0], (uint8_t)i);
        ms_held_unref(got);
    }
    rig_wait_objects(a, 0);
    ms_store_client_close(a);
    ms_store_client_close(b);
    rig_stop(&r);
}

/* Its grant has lapsed before it was read: nothing is read where it was. */
static void test_an_answer_that_comes_too_late(void **unused)
{
    struct ms_store_client *a, *b;
    struct ms_held *h, *got, *out = NULL;
    struct ms_stored_name name;
    struct ms_error err = {0};
    char address[64];
    struct rig r;

    (void)unused;
    rig_start(&r, 64 * MIB);
    a = rig_enter(&r, 1);
    b = rig_enter(&r, 2);
    h = rig_make(a, 4096);
    ms_held_name(h, &name);
    snprintf(address, sizeof address, "%.*s", (int)name.address_len, name.address);
    name.address = address;
    ms_held_unref(h);
    rig_wait_objects(a, 0);
    name.at = MS_PLACE_UNKNOWN; /* as of an answer that is not fresh */
    got = ms_store_client_adopt(b, &name, ms_store_client_node(a));
    assert_non_null(got);
    assert_null(got->read);
    assert_int_equal(ms_store_client_attach(b, &name, 1, false, &out, &err), -ENOENT);
    ms_held_unref(got);
    assert_int_equal(rig_object_count(b, NULL), 0);
    ms_store_client_close(a);
    ms_store_client_close(b);
    rig_stop(&r);
}

static void test_full_and_none(void **unused)
{
    struct ms_error err = {0};
    struct ms_store_client *a;
    struct ms_held *h;
    struct rig r;

    (void)unused;
    rig_start(&r, 4 * MIB);
    a = rig_enter(&r, 1);
    h = rig_make(a, 3 * MIB);
    assert_null(ms_store_client_make(a, 2 * MIB, "", &err));
    assert_int_equal(err.code, -ENOSPC);
    assert_non_null(strstr(err.text, "actor/1 holds 3.0 MiB in 1"));
    ms_held_unref(h);
    ms_held_unref(rig_make(a, 4 * MIB));
    ms_store_client_close(a);
    rig_stop(&r);

    rig_start(&r, 0);
    a = rig_enter(&r, 1);
    assert_int_equal(ms_store_client_limit(a), 0);
    assert_null(ms_store_client_make(a, 1, "", &err));
    assert_non_null(strstr(err.text, "store_limit is 0"));
    ms_store_client_close(a);
    rig_stop(&r);
}

/* ---- the order of messages --------------------------------------------------------- */

/* The store does nothing until another message of this holder has come. */
struct pause {
    struct rig *r;
    uint64_t holder;
    sem_t begun, sent;
};

static int unread(struct rig *r, uint64_t holder)
{
    int bytes = 0;

    return ioctl(ms_store_conn_find(r->store, holder)->fd, FIONREAD, &bytes) < 0
               ? -1
               : bytes;
}

static void on_pause(void *arg)
{
    struct pause *p = arg;
    int64_t until_ns = ms_now_ns() + DEADLINE_NS;
    int before;

    sem_post(&p->begun);
    sem_wait(&p->sent);
    before = unread(p->r, p->holder);
    sem_post(&p->begun);
    while (unread(p->r, p->holder) == before && ms_now_ns() < until_ns)
        sched_yield();
}

/* Who has let go before another asks is heard first, whoever's socket is read first. */
static void test_what_was_let_go_of_is_room(void **unused)
{
    struct ms_store_client *a, *b;
    struct ms_held *big, *small;
    struct pause p;
    struct rig r;

    (void)unused;
    rig_start(&r, 4 * MIB);
    a = rig_enter(&r, 1);
    b = rig_enter(&r, 2);
    big = rig_make(a, 3 * MIB);
    small = rig_make(b, 1);
    p = (struct pause){.r = &r, .holder = 2};
    assert_int_equal(sem_init(&p.begun, 0, 0) | sem_init(&p.sent, 0, 0), 0);
    assert_int_equal(ms_loop_post(r.loop, on_pause, &p), 0);
    sem_wait(&p.begun);
    ms_held_unref(small); /* so that b is the first to be read */
    ms_held_unref(big);
    sem_post(&p.sent);
    sem_wait(&p.begun);
    ms_held_unref(rig_make(b, 2 * MIB));
    ms_store_client_close(a);
    ms_store_client_close(b);
    rig_stop(&r);
    sem_destroy(&p.begun);
    sem_destroy(&p.sent);
}

/* ---- ends ------------------------------------------------------------------------ */

static bool always(void)
{
    return true;
}

/* A node that takes connections and says nothing. */
static int silent_node(char *address, size_t room)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(fd, 8), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &len), 0);
    snprintf(address, room, "127.0.0.1:%d", ntohs(at.sin_port));
    return fd;
}

/* Two objects of a node that does not answer: nothing is left of the question when the one
 * who asked has gone (the sanitizers look). */
static void test_who_goes_while_it_waits_for_another_node(void **unused)
{
    char address[64];
    MS_CLEANUP(ms_cleanup_fd) int node = silent_node(address, sizeof address);
    struct ms_store_client_options o = {
        .secret = rig_secret, .holder = 9, .name = "hasty", .is_interrupted = always};
    struct ms_stored_name names[2];
    struct ms_held *out[2] = {NULL, NULL};
    struct ms_error err = {0};
    struct ms_store_client *a, *hasty;
    struct rig r;

    (void)unused;
    (void)node;
    rig_start(&r, 4 * MIB);
    a = rig_enter(&r, 1);
    o.path = r.path;
    hasty = ms_store_client_open(&o, &err);
    assert_non_null(hasty);
    for (uint64_t i = 0; i < 2; i++)
        names[i] = (struct ms_stored_name){.node = 4711,
                                           .id = i + 1,
                                           .len = MIB,
                                           .address = address,
                                           .address_len = (uint32_t)strlen(address)};
    assert_int_equal(ms_store_client_attach(hasty, names, 2, false, out, &err), -EINTR);
    rig_wait_objects(a, 2);
    ms_store_client_close(hasty);
    rig_wait_objects(a, 0);
    ms_held_unref(rig_make(a, MIB)); /* the store goes on */
    ms_store_client_close(a);
    rig_stop(&r);
}

/* A child that holds an object, and says so. */
static pid_t start_holder(struct rig *r, const struct ms_held *h, int *said)
{
    int fds[2];
    pid_t pid;

    assert_int_equal(pipe(fds), 0);
    pid = fork();
    if (pid == 0) {
        struct ms_store_client *c = rig_enter(r, 77);

        if (rig_attach(c, h)->read[0] == 9 && rig_make(c, MIB) &&
            write(fds[1], "x", 1) == 1)
            pause();
        _exit(1);
    }
    close(fds[1]);
    *said = fds[0];
    return pid;
}

static void test_the_dead_hold_nothing(void **unused)
{
    struct ms_store_client *a;
    struct ms_held *h;
    struct rig r;
    char byte;
    pid_t pid;
    int said;

    (void)unused;
    rig_start(&r, 64 * MIB);
    a = rig_enter(&r, 1);
    h = rig_make(a, MIB);
    h->write[0] = 9;
    pid = start_holder(&r, h, &said);
    assert_int_equal(read(said, &byte, 1), 1);
    assert_int_equal(rig_object_count(a, NULL), 2);
    ms_held_unref(h);
    assert_int_equal(rig_object_count(a, NULL), 2); /* the child has both */
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    rig_wait_objects(a, 0);
    close(said);
    ms_store_client_close(a);
    rig_stop(&r);
}

static void test_who_does_not_know_the_secret(void **unused)
{
    uint8_t wrong[32] = "another";
    struct ms_store_client_options o = {.secret = wrong, .holder = 5, .name = "thief"};
    struct ms_error err = {0};
    struct ms_store_client *a;
    struct rig r;

    (void)unused;
    rig_start(&r, 64 * MIB);
    o.path = r.path;
    assert_null(ms_store_client_open(&o, &err));
    assert_int_not_equal(err.code, 0);
    a = rig_enter(&r, 1); /* others are served */
    assert_int_equal(rig_object_count(a, NULL), 0);
    ms_store_client_close(a);
    rig_stop(&r);
}

/* ---- threads --------------------------------------------------------------------- */

enum { THREADS = 4, ROUNDS = 150 };

struct job {
    struct ms_store_client *mine, *other;
    unsigned seed;
};

static void *work(void *arg)
{
    struct job *j = arg;

    for (int i = 0; i < ROUNDS; i++) {
        uint64_t len = 1 + (uint64_t)rand_r(&j->seed) % (256 << 10);
        struct ms_held *h = rig_make(j->mine, len), *got;
        uint8_t mark = (uint8_t)rand_r(&j->seed);

        memset(h->write, mark, len);
        got = rig_attach(j->other, h);
        ms_held_unref(h);
        for (uint64_t at = 0; at < len; at += 1000)
            assert_int_equal(got->read[at], mark);
        ms_held_unref(got);
    }
    return NULL;
}

static void test_many_threads_of_two_processes(void **unused)
{
    struct ms_store_client *a, *b;
    pthread_t threads[THREADS];
    struct job jobs[THREADS];
    uint64_t used = 1;
    struct rig r;

    (void)unused;
    rig_start(&r, 64 * MIB);
    a = rig_enter(&r, 1);
    b = rig_enter(&r, 2);
    for (unsigned i = 0; i < THREADS; i++) {
        jobs[i] = (struct job){i % 2 ? a : b, i % 2 ? b : a, i + 1};
        assert_int_equal(pthread_create(&threads[i], NULL, work, &jobs[i]), 0);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    rig_wait_objects(a, 0);
    rig_object_count(a, &used);
    assert_int_equal(used, 0);
    ms_store_client_close(a);
    ms_store_client_close(b);
    rig_stop(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_written_once_and_read_in_place),
        cmocka_unit_test(test_what_is_gone_is_an_error),
        cmocka_unit_test(test_an_answer_grants),
        cmocka_unit_test(test_an_answer_that_comes_too_late),
        cmocka_unit_test(test_full_and_none),
        cmocka_unit_test(test_what_was_let_go_of_is_room),
        cmocka_unit_test(test_who_goes_while_it_waits_for_another_node),
        cmocka_unit_test(test_the_dead_hold_nothing),
        cmocka_unit_test(test_who_does_not_know_the_secret),
        cmocka_unit_test(test_many_threads_of_two_processes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
