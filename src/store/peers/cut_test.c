/* Nodes whose links break: what they hold for each other is right afterwards. */
#include "base/limits.h"
#include "base/test_random.h"
#include "io/tcp.h"
#include "store/client/client.h"
#include "store/server/server.h"
#include "wire/test_proxy.h"

#include "base/clock.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define DEADLINE_NS (15 * MS_NS_PER_S)

enum { NODES = 3, OBJECTS = 24, STEPS = 200, LEN = 4096 };

static const uint8_t secret[32] = "a secret of thirty-two bytes...";

/* A node; others reach its store through a proxy. */
struct node {
    char dir[64], path[96], address[32];
    struct ms_store *store;
    struct ms_store_client *client;
    struct proxy proxy;
};

static void *run(void *arg)
{
    ms_loop_run(arg);
    return NULL;
}

static _Atomic unsigned notes;

static void on_note(void *arg, const char *text)
{
    (void)arg;
    assert_non_null(strstr(text, "has come back"));
    atomic_fetch_add(&notes, 1);
}

static void node_start(struct node *n, int i, struct ms_loop *loop)
{
    struct ms_store_options o = {
        .secret = secret, .limit = 64 << 20, .on_note = on_note};
    char name[8];
    uint16_t port = 0;

    *n = (struct node){.dir = "/tmp/muster-cut-XXXXXX"};
    assert_non_null(mkdtemp(n->dir));
    snprintf(n->path, sizeof n->path, "%s/s", n->dir);
    snprintf(name, sizeof name, "n%d", i);
    o.loop = loop;
    o.listen_fd = ms_tcp_listen("127.0.0.1", &port, NULL);
    assert_true(o.listen_fd >= 0);
    proxy_start(&n->proxy, port);
    snprintf(n->address, sizeof n->address, "127.0.0.1:%u", (unsigned)n->proxy.port);
    o.address = n->address;
    o.path = n->path;
    o.node_name = name;
    n->store = ms_store_create(&o, NULL);
    assert_non_null(n->store);
}

static void node_enter(struct node *n)
{
    struct ms_store_client_options c = {
        .path = n->path, .secret = secret, .holder = 1, .name = "a/0"};

    n->client = ms_store_client_open(&c, NULL);
    assert_non_null(n->client);
}

static void node_stop(struct node *n)
{
    ms_store_destroy(n->store);
    proxy_stop(&n->proxy);
    rmdir(n->dir);
}

static void print_left(struct node *n)
{
    Muster__StoreStats *m = ms_store_client_stats(n->client, true, NULL);

    for (size_t i = 0; m && i < m->n_objects; i++)
        for (size_t k = 0; k < m->objects[i]->n_holders; k++)
            print_message("object %llu: %s has %lld\n",
                          (unsigned long long)m->objects[i]->id,
                          m->objects[i]->holders[k]->name,
                          (long long)m->objects[i]->holders[k]->count);
    muster__store_stats__free_unpacked(m, NULL);
}

static uint64_t objects_of(struct node *n)
{
    Muster__StoreStats *m = ms_store_client_stats(n->client, false, NULL);
    uint64_t count;

    assert_non_null(m);
    count = m->object_count;
    muster__store_stats__free_unpacked(m, NULL);
    return count;
}

static void wait_empty(struct node *n)
{
    int64_t until_ns = ms_now_ns() + DEADLINE_NS;

    while (objects_of(n) > 0 && ms_now_ns() < until_ns)
        usleep(10000);
    if (objects_of(n) > 0)
        print_left(n);
    assert_int_equal(objects_of(n), 0);
}

/* One of them holds what another has made. */
static struct ms_held *hold(struct node *n, const struct ms_held *h)
{
    struct ms_stored_name name;
    struct ms_held *out = NULL;
    struct ms_error err = {0};

    ms_held_name(h, &name);
    if (ms_store_client_attach(n->client, &name, 1, true, &out, &err) < 0)
        fail_msg("%s", err.text);
    return out;
}

/* An answer of node `from` gives node `to` what `h` is. */
static struct ms_held *answer(struct node *from, struct node *to, struct ms_held *h)
{
    struct ms_stored_name name;
    struct ms_held *out;

    ms_held_name(h, &name);
    assert_int_equal(
        ms_store_client_grant(
            from->client, &name, ms_store_client_node(to->client), 1, false),
        0);
    out = ms_store_client_adopt(to->client, &name, ms_store_client_node(from->client));
    assert_non_null(out);
    return out;
}

struct world {
    struct ms_loop *loop; /* of all */
    pthread_t thread;
    struct node nodes[NODES];
    struct ms_held *made[OBJECTS]; /* by node i % NODES */
    struct ms_held *held[OBJECTS][NODES];
    uint64_t seed;
};

static void drop(struct ms_held **h)
{
    ms_held_unref(*h);
    *h = NULL;
}

/* Holds that are taken, given and dropped at random; taking one waits for its node. */
static void step(struct world *w, bool may_wait)
{
    size_t i = test_roll(&w->seed, OBJECTS);
    int at = (int)test_roll(&w->seed, NODES), home = (int)(i % NODES);
    int by = (int)test_roll(&w->seed, NODES);
    struct ms_held **h = &w->held[i][at];
    struct ms_held *giver = by == home ? w->made[i] : w->held[i][by];

    if (at == home)
        return;
    if (*h)
        drop(h);
    else if (giver && by != at)
        *h = answer(&w->nodes[by], &w->nodes[at], giver);
    else if (may_wait)
        *h = hold(&w->nodes[at], w->made[i]);
}

/* Silence, for long enough that links are made anew: what was sent meanwhile is lost. */
static void cut(struct world *w, int i)
{
    int64_t until_ns = ms_now_ns() + MS_SUSPECT_NS + MS_NS_PER_S;

    proxy_cut(&w->nodes[i].proxy);
    for (int k = 0; k < STEPS; k++)
        step(w, false);
    while (ms_now_ns() < until_ns) {
        usleep(50000);
        step(w, false);
    }
    proxy_heal(&w->nodes[i].proxy, true);
}

static void world_start(struct world *w, uint64_t seed)
{
    w->seed = test_seed(seed);
    w->loop = ms_loop_create();
    for (int i = 0; i < NODES; i++)
        node_start(&w->nodes[i], i, w->loop);
    assert_int_equal(pthread_create(&w->thread, NULL, run, w->loop), 0);
    for (int i = 0; i < NODES; i++)
        node_enter(&w->nodes[i]);
    for (size_t i = 0; i < OBJECTS; i++) {
        w->made[i] =
            ms_store_client_make(w->nodes[i % NODES].client, LEN, "cut_test.c:1", NULL);
        assert_non_null(w->made[i]);
    }
}

static void world_stop(struct world *w)
{
    for (size_t i = 0; i < OBJECTS; i++) {
        for (int k = 0; k < NODES; k++)
            if (w->held[i][k])
                drop(&w->held[i][k]);
        drop(&w->made[i]);
    }
    for (int k = 0; k < NODES; k++)
        wait_empty(&w->nodes[k]);
    for (int k = 0; k < NODES; k++)
        ms_store_client_close(w->nodes[k].client);
    ms_loop_stop(w->loop);
    pthread_join(w->thread, NULL);
    for (int k = 0; k < NODES; k++)
        node_stop(&w->nodes[k]);
    ms_loop_destroy(w->loop);
}

static void test_nothing_is_left_after_cuts(void **state)
{
    struct world *w = calloc(1, sizeof *w);

    (void)state;
    assert_non_null(w);
    world_start(w, 7);
    for (int i = 0; i < NODES; i++) {
        for (int k = 0; k < STEPS; k++)
            step(w, true);
        cut(w, i);
    }
    world_stop(w);
    assert_true(atomic_load(&notes) > 0); /* something was lost, and was found */
    free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing_is_left_after_cuts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
