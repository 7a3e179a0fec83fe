/* Tensors that are PUT, and the node's store that they go to. */
#include "base/clock.h"
#include "base/limits.h"
#include "io/base64.h"
#include "store/path.h"
#include "store/server/server.h"
#include "worker/http/http_impl.h"
#include "worker/http/store_impl.h"
#include "worker/http/test_rig.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define MIB ((uint64_t)1 << 20)

/* A worker's HTTP, and the store of its node. */
struct node {
    struct rig rig;
    char dir[64], spill[80], name[16], role[16];
    struct ms_loop *loop;
    struct ms_store *store;
    struct ms_store_client *client; /* the test's */
    pthread_t thread;
};

static void *run_loop(void *arg)
{
    ms_loop_run(arg);
    return NULL;
}

static void node_start(struct node *n, uint64_t limit, bool spills)
{
    char path[MS_STORE_PATH_MAX];
    struct ms_store_client_options client = {.path = path, .holder = 9, .name = "test"};
    struct ms_store_options o = {
        .path = path, .node_name = n->name, .limit = limit, .listen_fd = -1};
    struct ms_error err = {0};

    *n = (struct node){.dir = "/tmp/muster-put-XXXXXX", .name = "n0", .role = "actor"};
    rig_start(&n->rig, true);
    assert_non_null(mkdtemp(n->dir));
    snprintf(n->spill, sizeof n->spill, "%s/spill", n->dir);
    assert_int_equal(mkdir(n->spill, 0700), 0);
    ms_store_path(n->dir, n->name, path);
    o.loop = n->loop = ms_loop_create();
    o.secret = client.secret = n->rig.secret;
    o.spill_dir = spills ? n->spill : NULL;
    n->store = ms_store_create(&o, &err);
    if (!n->store)
        fail_msg("%s", err.text);
    assert_int_equal(pthread_create(&n->thread, NULL, run_loop, n->loop), 0);
    n->client = ms_store_client_open(&client, &err);
    if (!n->client)
        fail_msg("%s", err.text);
    n->rig.boot.session_dir = n->dir;
    n->rig.boot.node_name = n->name;
    n->rig.boot.cluster = n->role;
    rig_connect(&n->rig);
}

static void node_stop(struct node *n)
{
    ms_store_client_close(n->client);
    rig_stop(&n->rig);
    ms_loop_stop(n->loop);
    pthread_join(n->thread, NULL);
    ms_store_destroy(n->store);
    ms_loop_destroy(n->loop);
    assert_int_equal(rmdir(n->spill), 0);
    assert_int_equal(rmdir(n->dir), 0);
}

static Muster__StoreStats *stats(struct node *n)
{
    Muster__StoreStats *m = ms_store_client_stats(n->client, false, NULL);

    assert_non_null(m);
    return m;
}

/* Others tell the store in their own time. */
static void wait_objects(struct node *n, uint64_t want)
{
    int64_t until_ns = ms_now_ns() + DEADLINE_MS * MS_NS_PER_MS;
    uint64_t count;

    do {
        Muster__StoreStats *m = stats(n);

        count = m->object_count;
        muster__store_stats__free_unpacked(m, NULL);
        assert_true(ms_now_ns() < until_ns);
    } while (count != want);
}

/* ---- a client ----------------------------------------------------------------------- */

static void send_all(int fd, const void *data, size_t len)
{
    const char *at = data;

    while (len) {
        struct pollfd p = {.fd = fd, .events = POLLOUT};
        ssize_t n;

        assert_int_equal(poll(&p, 1, DEADLINE_MS), 1);
        n = send(fd, at, len, MSG_NOSIGNAL | MSG_DONTWAIT);
        assert_true(n > 0 || errno == EAGAIN);
        at += n > 0 ? n : 0;
        len -= n > 0 ? (size_t)n : 0;
    }
}

static void send_head(int fd, const char *what, uint64_t len)
{
    char head[256];

    snprintf(head,
             sizeof head,
             "%s HTTP/1.1\r\nHost: a\r\nContent-Length: %" PRIu64 "\r\n\r\n",
             what,
             len);
    send_all(fd, head, strlen(head));
}

/* The body of an answer with this status; the caller's. */
static char *receive(int fd, int status)
{
    struct ms_buf got = {0};
    char line[32];
    const char *end = NULL, *length;
    size_t want = 0;

    while (!want || got.len < want) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        ssize_t n;

        assert_int_equal(ms_buf_reserve(&got, 1 << 20), 0);
        assert_int_equal(poll(&p, 1, DEADLINE_MS), 1);
        n = recv(fd, got.data + got.len, 1 << 20, MSG_DONTWAIT);
        assert_true(n > 0);
        got.len += (size_t)n;
        if (want)
            continue;
        end = strstr(ms_buf_str(&got), "\r\n\r\n");
        length = end ? strstr((char *)got.data, "Content-Length: ") : NULL;
        if (length)
            want =
                (size_t)(end + 4 - (char *)got.data) + strtoull(length + 16, NULL, 10);
    }
    snprintf(line, sizeof line, "HTTP/1.1 %d ", status);
    end = strstr(ms_buf_str(&got), "\r\n\r\n");
    if (strncmp((char *)got.data, line, strlen(line)) != 0)
        fail_msg("instead of %d: %s", status, (char *)got.data);
    end = strdup(end + 4);
    ms_buf_finish(&got);
    return (char *)(uintptr_t)end;
}

static void expect(int fd, int status, const char *part)
{
    char *body = receive(fd, status);

    if (!strstr(body, part))
        fail_msg("instead of %s: %.200s", part, body);
    free(body);
}

/* A tensor as AReaL's clients write it, whose bytes follow from `seed`. */
static char *make_body(size_t size, const char *dtype, size_t width, unsigned seed)
{
    uint8_t *bytes = malloc(size + 1);
    char *text, *body;
    size_t len;

    for (size_t i = 0; i < size; i++)
        bytes[i] = (uint8_t)(i * 7 + (i >> 8) * 3 + (i >> 16) * 11 + seed);
    for (size_t i = 0; i < size && strcmp(dtype, "bfloat16") == 0; i++)
        bytes[i] = i % 4 < 2    ? 0
                   : i % 4 == 3 ? (uint8_t)(0x3f - (i >> 14) % 2)
                                : bytes[i];
    assert_int_equal(ms_base64_encode(bytes, size, &text, &len), 0);
    assert_true(asprintf(&body,
                         "{\"type\":\"tensor\",\"data\":\"%s\",\"shape\":[%zu],"
                         "\"dtype\":\"torch.%s\"}",
                         text,
                         size / width,
                         dtype) > 0);
    free(text);
    free(bytes);
    return body;
}

static void put(struct node *n, const char *id, const char *body, int status)
{
    char what[64];

    snprintf(what, sizeof what, "PUT /data/%s", id);
    send_head(n->rig.fd, what, strlen(body));
    send_all(n->rig.fd, body, strlen(body));
    expect(n->rig.fd, status, status == 200 ? "\"status\":\"ok\"" : "error");
}

static void get(struct node *n, const char *id, const char *body)
{
    char what[64], *got;

    snprintf(what, sizeof what, "GET /data/%s", id);
    send_head(n->rig.fd, what, 0);
    got = receive(n->rig.fd, 200);
    assert_int_equal(strlen(got), strlen(body));
    assert_string_equal(got, body);
    free(got);
}

/* ------------------------------------------------------------------------------------- */

static void test_sizes(void **state)
{
    static const size_t sizes[] = {0,
                                   1,
                                   MS_HTTP_PIECE_UNIT - 1,
                                   MS_HTTP_PIECE_UNIT,
                                   MS_HTTP_TENSOR_SMALL,
                                   MS_HTTP_TENSOR_SMALL + 1,
                                   2 * MS_HTTP_PIECE_UNIT,
                                   2 * MS_HTTP_PIECE_UNIT + 1,
                                   MS_HTTP_PIECE_MIN,
                                   (5 << 20) + 1};
    struct node n;

    (void)state;
    node_start(&n, 64 * MIB, false);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        char *body = make_body(sizes[i], "uint8", 1, (unsigned)i);

        put(&n, "x", body, 200);
        get(&n, "x", body);
        free(body);
        if (sizes[i] <= MS_HTTP_TENSOR_SMALL)
            wait_objects(&n, 0);
    }
    node_stop(&n);
}

static void test_bfloat16(void **state)
{
    static const size_t sizes[] = {4, 128 << 10, (256 << 10) + 4, 4 << 20};
    struct node n;

    (void)state;
    node_start(&n, 64 * MIB, false);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        char *body = make_body(sizes[i], "bfloat16", 4, (unsigned)i);

        put(&n, "x", body, 200);
        get(&n, "x", body);
        assert_int_equal(n.rig.http->shards.bytes, sizes[i] / 2);
        free(body);
    }
    node_stop(&n);
}

/* Its memory is that of the store, and is given back. */
static void test_given_back(void **state)
{
    static const char ids[] = "{\"shard_ids\": [\"a\", \"b\"]}";
    char *body = make_body(3 << 20, "uint8", 1, 5);
    Muster__StoreStats *m;
    struct node n;

    (void)state;
    node_start(&n, 64 * MIB, false);
    put(&n, "a", body, 200);
    put(&n, "b", body, 200);
    m = stats(&n);
    assert_true(m->used >= 6 * MIB && m->used < 7 * MIB);
    muster__store_stats__free_unpacked(m, NULL);
    assert_int_equal(n.rig.http->shards.own_bytes, 0);
    put(&n, "a", body, 200);
    rig_send(&n.rig, "DELETE /data/clear", JSON, ids);
    expect(n.rig.fd, 200, "\"cleared_count\":2");
    wait_objects(&n, 0);
    free(body);
    node_stop(&n);
}

/* Memory is taken for what has come, and not for what was announced. */
static void test_announced(void **state)
{
    enum { COME = 400 << 10 };
    static const char begin[] = "{\"type\":\"tensor\",\"data\":\"";
    char *letters = malloc(COME);
    Muster__StoreStats *m;
    struct node n;

    (void)state;
    node_start(&n, 64 * MIB, false);
    memset(letters, 'A', COME);
    send_head(n.rig.fd, "PUT /data/x", 8192 * MIB);
    send_all(n.rig.fd, begin, strlen(begin));
    send_all(n.rig.fd, letters, 1024);
    wait_objects(&n, 0);
    send_all(n.rig.fd, letters, COME);
    wait_objects(&n, 1);
    m = stats(&n);
    assert_true(m->used <= MS_HTTP_PIECE_MIN);
    muster__store_stats__free_unpacked(m, NULL);
    rig_connect(&n.rig); /* the connection of the PUT ends */
    rig_send(&n.rig, "GET /health", "", "");
    expect(n.rig.fd, 200, "healthy");
    wait_objects(&n, 0);
    free(letters);
    node_stop(&n);
}

static void look_at_store(struct rig *rig, void *arg)
{
    const struct ms_http_store *s = rig->http->store;
    unsigned *of = arg;

    of[0] = s->asked;
    of[1] = s->busy;
}

/* What is wrong may come while memory is asked for: that is not kept until the body ends. */
static void test_wrong_meanwhile(void **state)
{
    enum { ASKS = 128 << 10, COME = ASKS + 64 }; /* then memory is asked for */
    static const char begin[] = "{\"type\":\"tensor\",\"data\":\"";
    int64_t until_ns = ms_now_ns() + DEADLINE_MS * MS_NS_PER_MS;
    char *letters = malloc(COME);
    unsigned asked_busy[2];
    uint64_t allocated;
    struct node n;

    (void)state;
    node_start(&n, 64 * MIB, false);
    memset(letters, 'A', COME);
    memcpy(letters, begin, strlen(begin));
    memcpy(letters + COME - 2, "!\"", 2);
    send_head(n.rig.fd, "PUT /data/x", 8192 * MIB);
    send_all(n.rig.fd, letters, COME);
    do {
        Muster__StoreStats *m = stats(&n);

        allocated = m->allocated;
        muster__store_stats__free_unpacked(m, NULL);
        on_loop(&n.rig, look_at_store, asked_busy);
        assert_true(ms_now_ns() < until_ns);
    } while (!allocated || asked_busy[0]);
    assert_int_equal(asked_busy[1], 0);
    wait_objects(&n, 0);
    free(letters);
    node_stop(&n);
}

/* Also one tensor may be more than the memory of the store. */
static void test_more_than_fits(void **state)
{
    static const char *const ids[] = {"a", "b", "c", "d"};
    char *bodies[4], *big = make_body(24 << 20, "uint8", 1, 77);
    Muster__StoreStats *m;
    struct node n;

    (void)state;
    node_start(&n, 16 * MIB, true);
    for (unsigned i = 0; i < 4; i++) {
        bodies[i] = make_body(6 << 20, "uint8", 1, i);
        put(&n, ids[i], bodies[i], 200);
    }
    put(&n, "big", big, 200);
    m = stats(&n);
    assert_true(m->used <= 16 * MIB);
    assert_true(m->spilled >= 32 * MIB);
    muster__store_stats__free_unpacked(m, NULL);
    for (unsigned i = 0; i < 4; i++)
        get(&n, ids[i], bodies[i]);
    get(&n, "big", big);
    free(big);
    big = make_body(24 << 20, "bfloat16", 4, 78);
    put(&n, "big", big, 200);
    get(&n, "big", big);
    for (unsigned i = 0; i < 4; i++)
        free(bodies[i]);
    free(big);
    node_stop(&n);
}

/* The reason is told, and nothing is left. */
static void test_full(void **state)
{
    char *body = make_body(24 << 20, "uint8", 1, 1);
    char *small = make_body(1000, "uint8", 1, 1);
    struct node n;

    (void)state;
    node_start(&n, 16 * MIB, false);
    put(&n, "x", body, 507);
    wait_objects(&n, 0);
    put(&n, "x", small, 200);
    get(&n, "x", small);
    free(small);
    free(body);
    node_stop(&n);
}

/* Without a store only small ones are kept. */
static void test_no_store(void **state)
{
    char *body = make_body(MS_HTTP_TENSOR_SMALL + 1, "uint8", 1, 1);
    char *small = make_body(MS_HTTP_TENSOR_SMALL, "uint8", 1, 1);
    struct node n;

    (void)state;
    node_start(&n, 16 * MIB, false);
    n.rig.boot.node_name = (char[]){"another"};
    put(&n, "x", body, 507);
    put(&n, "x", small, 200);
    get(&n, "x", small);
    free(small);
    free(body);
    node_stop(&n);
}

static void fill_own(struct rig *rig, void *arg)
{
    rig->http->shards.own_bytes = *(uint64_t *)arg;
}

/* Small ones that are too many for this process. */
static void test_many_small(void **state)
{
    uint64_t full = MS_HTTP_TENSORS_OWN_MAX, none = 0;
    char *body = make_body(1000, "bfloat16", 4, 1);
    struct node n;

    (void)state;
    node_start(&n, 16 * MIB, false);
    on_loop(&n.rig, fill_own, &full);
    put(&n, "x", body, 200);
    get(&n, "x", body);
    wait_objects(&n, 1);
    on_loop(&n.rig, fill_own, &none);
    put(&n, "x", body, 200);
    get(&n, "x", body);
    wait_objects(&n, 0);
    free(body);
    node_stop(&n);
}

/* The end comes while the store is asked, while it narrows, and while somebody reads. */
static void test_cut_anywhere(void **state)
{
    char *body = make_body(3 << 20, "bfloat16", 4, 9);
    size_t len = strlen(body);
    struct node n;

    (void)state;
    node_start(&n, 64 * MIB, false);
    for (size_t sent = 1000; sent < len; sent += len / 16) {
        send_head(n.rig.fd, "PUT /data/x", len);
        send_all(n.rig.fd, body, sent);
        rig_connect(&n.rig);
    }
    send_head(n.rig.fd, "PUT /data/y", len);
    send_all(n.rig.fd, body, len);
    rig_connect(&n.rig);
    wait_objects(&n, n.rig.http->shards.count ? 1 : 0);
    put(&n, "z", body, 200);
    send_head(n.rig.fd, "GET /data/z", 0);
    rig_connect(&n.rig);
    get(&n, "z", body);
    free(body);
    node_stop(&n);
}

struct client {
    struct node node; /* with a connection of its own */
    pthread_t thread;
    unsigned number;
};

static void *put_and_get(void *arg)
{
    struct client *c = arg;
    char id[16], *body = make_body(3 << 20, "uint8", 1, c->number);

    snprintf(id, sizeof id, "%u", c->number);
    put(&c->node, id, body, 200);
    get(&c->node, id, body);
    get(&c->node, id, body);
    free(body);
    return NULL;
}

/* More clients at once than pieces of theirs fit. */
static void test_many_at_once(void **state)
{
    enum { CLIENTS = 32 };
    struct client *all = calloc(CLIENTS, sizeof *all);
    struct node n;

    (void)state;
    node_start(&n, 16 * MIB, true);
    for (unsigned i = 0; i < CLIENTS; i++) {
        all[i] = (struct client){.node = n, .number = i};
        all[i].node.rig.fd = rig_connect_one(&n.rig);
        assert_int_equal(pthread_create(&all[i].thread, NULL, put_and_get, &all[i]), 0);
    }
    for (unsigned i = 0; i < CLIENTS; i++) {
        pthread_join(all[i].thread, NULL);
        close(all[i].node.rig.fd);
    }
    free(all);
    node_stop(&n);
}

static void cut_soon(struct rig *rig, void *arg)
{
    rig->http->server.limits.send_ns = *(int64_t *)arg;
}

/* Readers who take nothing are cut, and until then others wait. */
static void test_stuck_readers(void **state)
{
    enum { READERS = 12 };
    char *big = make_body(24 << 20, "uint8", 1, 1);
    char *body = make_body(3 << 20, "uint8", 1, 2);
    int64_t soon_ns = 200 * MS_NS_PER_MS, before_ns = MS_HTTP_SEND_NS;
    int readers[READERS];
    struct node n;

    (void)state;
    node_start(&n, 16 * MIB, true);
    put(&n, "big", big, 200);
    on_loop(&n.rig, cut_soon, &soon_ns);
    for (int i = 0; i < READERS; i++) {
        readers[i] = rig_connect_one(&n.rig);
        send_head(readers[i], "GET /data/big", 0);
    }
    put(&n, "x", body, 200);
    on_loop(&n.rig, cut_soon, &before_ns);
    get(&n, "x", body);
    get(&n, "big", big);
    for (int i = 0; i < READERS; i++)
        close(readers[i]);
    free(body);
    free(big);
    node_stop(&n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_bfloat16),
        cmocka_unit_test(test_given_back),
        cmocka_unit_test(test_announced),
        cmocka_unit_test(test_wrong_meanwhile),
        cmocka_unit_test(test_more_than_fits),
        cmocka_unit_test(test_full),
        cmocka_unit_test(test_no_store),
        cmocka_unit_test(test_many_small),
        cmocka_unit_test(test_cut_anywhere),
        cmocka_unit_test(test_many_at_once),
        cmocka_unit_test(test_stuck_readers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
