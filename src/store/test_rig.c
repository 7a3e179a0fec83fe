/* test_rig.c - a node's store on a loop of its own thread, for the tests of this
 * folder */
#include "store/test_rig.h"

#include "io/loop.h"

#include <stdio.h>
#include <unistd.h>

const uint8_t rig_secret[32] = "a secret of thirty-two bytes...";

static void *run(void *arg)
{
    ms_loop_run(((struct rig *)arg)->loop);
    return NULL;
}

void rig_start_with(struct rig *r, const struct ms_store_options *options)
{
    struct ms_store_options o = *options;
    struct ms_error err = {0};

    *r = (struct rig){.dir = "/tmp/muster-store-XXXXXX"};
    assert_non_null(mkdtemp(r->dir));
    snprintf(r->path, sizeof r->path, "%s/s", r->dir);
    r->loop = ms_loop_create();
    o.loop = r->loop;
    o.path = r->path;
    o.secret = rig_secret;
    o.node_name = "n0";
    o.listen_fd = -1;
    r->store = ms_store_create(&o, &err);
    if (!r->store)
        fail_msg("%s", err.text);
    assert_int_equal(pthread_create(&r->thread, NULL, run, r), 0);
}

void rig_start(struct rig *r, uint64_t limit)
{
    const struct ms_store_options o = {.limit = limit};

    rig_start_with(r, &o);
}

void rig_stop(struct rig *r)
{
    ms_loop_stop(r->loop);
    pthread_join(r->thread, NULL);
    ms_store_destroy(r->store);
    ms_loop_destroy(r->loop);
    assert_int_equal(rmdir(r->dir), 0); /* the socket has gone */
}

struct ms_store_client *rig_enter(struct rig *r, uint64_t holder)
{
    char name[32];
    struct ms_store_client_options o = {
        .path = r->path, .secret = rig_secret, .holder = holder, .name = name};
    struct ms_error err = {0};
    struct ms_store_client *c;

    snprintf(name, sizeof name, "actor/%d", (int)holder);
    c = ms_store_client_open(&o, &err);
    if (!c)
        fail_msg("%s", err.text);
    return c;
}

struct ms_held *rig_make(struct ms_store_client *c, uint64_t len)
{
    struct ms_error err = {0};
    struct ms_held *h = ms_store_client_make(c, len, "test.c:1", &err);

    if (!h)
        fail_msg("%s", err.text);
    return h;
}

struct ms_held *rig_attach(struct ms_store_client *c, const struct ms_held *h)
{
    struct ms_error err = {0};
    struct ms_stored_name name;
    struct ms_held *out = NULL;

    ms_held_name(h, &name);
    if (ms_store_client_attach(c, &name, 1, false, &out, &err) < 0)
        fail_msg("%s", err.text);
    return out;
}

uint64_t rig_object_count(struct ms_store_client *c, uint64_t *used)
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

void rig_wait_objects(struct ms_store_client *c, uint64_t want)
{
    int64_t until_ns = ms_now_ns() + DEADLINE_NS;

    while (rig_object_count(c, NULL) != want)
        assert_true(ms_now_ns() < until_ns);
}
