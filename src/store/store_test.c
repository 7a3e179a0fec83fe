/* A node's store on a loop of its own thread, and processes that use it. */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "io/loop.h"
#include "store/client.h"
#include "store/server.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cmocka.h>

#define MIB         ((uint64_t)1 << 20)
#define DEADLINE_NS (20 * MS_NS_PER_S)

static const uint8_t secret[32] = "a secret of thirty-two bytes...";

struct rig {
    char dir[64], path[96];
    struct ms_loop *loop;
    struct ms_store *store;
    pthread_t thread;
};

static void *run(void *arg)
{
    ms_loop_run(((struct rig *)arg)->loop);
    return NULL;
}

static void rig_start(struct rig *r, uint64_t limit)
{
    struct ms_store_options o = {
        .secret = secret, .node_name = "n0", .limit = limit, .listen_fd = -1};
    struct ms_error err = {0};

    *r = (struct rig){.dir = "/tmp/muster-store-XXXXXX"};
    assert_non_null(mkdtemp(r->dir));
    snprintf(r->path, sizeof r->path, "%s/s", r->dir);
    r->loop = ms_loop_create();
    o.loop = r->loop;
    o.path = r->path;
    r->store = ms_store_create(&o, &err);
    if (!r->store)
        fail_msg("%s", err.text);
    assert_int_equal(pthread_create(&r->thread, NULL, run, r), 0);
}

static void rig_stop(struct rig *r)
{
    ms_loop_stop(r->loop);
    pthread_join(r->thread, NULL);
    ms_store_destroy(r->store);
    ms_loop_destroy(r->loop);
    assert_int_equal(rmdir(r->dir), 0); /* the socket has gone */
}

static struct ms_store_client *enter(struct rig *r, uint64_t holder)
{
    char name[32];
    struct ms_store_client_options o = {
        .path = r->path, .secret = secret, .holder = holder, .name = name};
    struct ms_error err = {0};
    struct ms_store_client *c;

    snprintf(name, sizeof name, "actor/%d", (int)holder);
    c = ms_store_open(&o, &err);
    if (!c)
        fail_msg("%s", err.text);
    return c;
}

static struct ms_held *make(struct ms_store_client *c, uint64_t len)
{
    struct ms_error err = {0};
    struct ms_held *h = ms_store_make(c, len, "test.c:1", &err);

    if (!h)
        fail_msg("%s", err.text);
    return h;
}

static struct ms_held *attach(struct ms_store_client *c, const struct ms_held *h)
{
    struct ms_error err = {0};
    struct ms_stored_name name;
    struct ms_held *out = NULL;

    ms_held_name(h, &name);
    if (ms_store_attach(c, &name, 1, false, &out, &err) < 0)
        fail_msg("%s", err.text);
    return out;
}

static uint64_t object_count(struct ms_store_client *c, uint64_t *used)
{
    Muster__StoreStats *m = ms_store_client_stats(c, true, NULL);
    uint64_t n;

    assert_non_null(m);
    n = m->object_count;
    if (used)
        *used = m->used;
    muster__store_stats__free_unpacked(m, NULL);
    return n;
}

/* Wait until so many objects are there: others tell the agent in their own time. */
static void wait_objects(struct ms_store_client *c, uint64_t want)
{
    int64_t until_ns = ms_now_ns() + DEADLINE_NS;

    while (object_count(c, NULL) != want)
        assert_true(ms_now_ns() < until_ns);
}

static void test_written_once_and_read_in_place(void **unused)
{
    struct ms_store_client *a, *b;
    struct ms_held *mine, *theirs, *part;
    uint64_t offset = 0, used = 0;
    struct rig r;

    (void)unused;
    rig_start(&r, 64 * MIB);
    a = enter(&r, 1);
    b = enter(&r, 2);
    mine = make(a, 5 * MIB);
    memset(mine->write, 7, 5 * MIB);
    theirs = attach(b, mine);
    assert_null(theirs->write);
    assert_int_equal(theirs->read[5 * MIB - 1], 7);
    assert_int_equal(object_count(b, &used), 1);
    assert_int_equal(used, 5 * MIB);

    part = ms_store_find_memory(b, theirs->read + 100, 1000, &offset);
    assert_ptr_equal(part, theirs);
    assert_int_equal(offset, 100);
    ms_held_unref(part);
    assert_null(ms_store_find_memory(b, theirs->read + 100, 5 * MIB, &offset));
    assert_null(ms_store_find_memory(b, &offset, 8, &offset));
    part = ms_store_find_memory(a, mine->write, 5 * MIB, &offset);
    assert_ptr_equal(part, mine);
    ms_held_unref(part);

    ms_held_unref(mine);
    assert_int_equal(object_count(a, NULL), 1); /* b has it */
    ms_held_unref(theirs);
    wait_objects(a, 0);
    ms_store_close(a);
    ms_store_close(b);
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
    a = enter(&r, 1);
    b = enter(&r, 2);
    h = make(a, MIB);
    ms_held_name(h, &name);
    ms_held_unref(h);
    wait_objects(a, 0);
    name.address = "";
    name.address_len = 0;
    assert_int_equal(ms_store_attach(b, &name, 1, false, &out, &err), -ENOENT);
    assert_non_null(strstr(err.text, "gone"));
    assert_null(ms_store_find(b, name.node, name.id));
    ms_store_close(a);
    ms_store_close(b);
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
    a = enter(&r, 1);
    b = enter(&r, 2);
    for (int i = 0; i < 200; i++) {
        h = make(a, 4096);
        h->write[0] = (uint8_t)i;
        assert_int_equal(ms_store_grant(h, ms_store_node(b), 2), 0);
        ms_held_name(h, &name);
        got = ms_store_adopt(b, &name, ms_store_node(a));
        ms_held_unref(h);
        assert_non_null(got);
        assert_int_equal(got->read[0], (uint8_t)i);
        ms_held_unref(got);
    }
    wait_objects(a, 0);
    ms_store_close(a);
    ms_store_close(b);
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
    a = enter(&r, 1);
    h = make(a, 3 * MIB);
    assert_null(ms_store_make(a, 2 * MIB, "", &err));
    assert_int_equal(err.code, -ENOSPC);
    assert_non_null(strstr(err.text, "actor/1 holds 3.0 MiB in 1"));
    ms_held_unref(h);
    ms_held_unref(make(a, 4 * MIB));
    ms_store_close(a);
    rig_stop(&r);

    rig_start(&r, 0);
    a = enter(&r, 1);
    assert_int_equal(ms_store_limit(a), 0);
    assert_null(ms_store_make(a, 1, "", &err));
    assert_non_null(strstr(err.text, "store_limit is 0"));
    ms_store_close(a);
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
        struct ms_store_client *c = enter(r, 77);

        if (attach(c, h)->read[0] == 9 && make(c, MIB) && write(fds[1], "x", 1) == 1)
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
    a = enter(&r, 1);
    h = make(a, MIB);
    h->write[0] = 9;
    pid = start_holder(&r, h, &said);
    assert_int_equal(read(said, &byte, 1), 1);
    assert_int_equal(object_count(a, NULL), 2);
    ms_held_unref(h);
    assert_int_equal(object_count(a, NULL), 2); /* the child has both */
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    wait_objects(a, 0);
    close(said);
    ms_store_close(a);
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
    assert_null(ms_store_open(&o, &err));
    assert_int_not_equal(err.code, 0);
    a = enter(&r, 1); /* others are served */
    assert_int_equal(object_count(a, NULL), 0);
    ms_store_close(a);
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
        struct ms_held *h = make(j->mine, len), *got;
        uint8_t mark = (uint8_t)rand_r(&j->seed);

        memset(h->write, mark, len);
        got = attach(j->other, h);
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
    a = enter(&r, 1);
    b = enter(&r, 2);
    for (unsigned i = 0; i < THREADS; i++) {
        jobs[i] = (struct job){i % 2 ? a : b, i % 2 ? b : a, i + 1};
        assert_int_equal(pthread_create(&threads[i], NULL, work, &jobs[i]), 0);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    wait_objects(a, 0);
    object_count(a, &used);
    assert_int_equal(used, 0);
    ms_store_close(a);
    ms_store_close(b);
    rig_stop(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_written_once_and_read_in_place),
        cmocka_unit_test(test_what_is_gone_is_an_error),
        cmocka_unit_test(test_an_answer_grants),
        cmocka_unit_test(test_full_and_none),
        cmocka_unit_test(test_the_dead_hold_nothing),
        cmocka_unit_test(test_who_does_not_know_the_secret),
        cmocka_unit_test(test_many_threads_of_two_processes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
