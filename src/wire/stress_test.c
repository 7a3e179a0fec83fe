/* Everything at once, for a few seconds: calls of all sizes from several threads over two
 * peers, waited for, polled, cancelled, forgotten, expired, streamed; connections that
 * break; answers from other threads; a server that is replaced under way. Every call
 * completes, none runs twice, no answer goes to the wrong call. */
#include "base/limits.h"
#include "wire/client/client_impl.h"
#include "wire/test_pipe.h"
#include "wire/test_rig.h"

#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CALLERS = 4, NUMBERS = 1 << 20, LATER_MAX = 64 };

#define STRESS_NS (3 * MS_NS_PER_S)

static _Atomic uint8_t runs[NUMBERS];
static _Atomic unsigned next_number;
static _Atomic bool is_over;

/* Requests that another thread answers. */
struct later {
    pthread_mutex_t lock;
    struct ms_request *request[LATER_MAX];
    size_t count;
};

static struct later later = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void must(bool ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "stress: %s\n", what);
    abort();
}

static void pause_us(uint64_t us)
{
    struct timespec ts = {0, (long)(us * 1000)};

    nanosleep(&ts, NULL);
}

/* ---- the worker ------------------------------------------------------------------ */

static void answer(struct ms_request *r)
{
    struct iovec iov = {r->body, r->len};

    ms_request_reply(r, MS_CODEC_BYTES, &iov, 1);
}

static bool leave_for_later(struct ms_request *r)
{
    bool left;

    pthread_mutex_lock(&later.lock);
    left = later.count < LATER_MAX;
    if (left)
        later.request[later.count++] = r;
    pthread_mutex_unlock(&later.lock);
    return left;
}

static void *answer_later(void *arg)
{
    uint64_t seed = 77;

    (void)arg;
    for (;;) {
        struct ms_request *r = NULL;
        bool was_over = atomic_load(&is_over);

        pthread_mutex_lock(&later.lock);
        if (later.count)
            r = later.request[--later.count];
        pthread_mutex_unlock(&later.lock);
        if (r)
            answer(r);
        else if (was_over)
            return NULL;
        pause_us(test_random(&seed) % 300);
    }
}

static void stream_items(struct ms_request *r, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        struct iovec iov = {&i, sizeof i};
        int rc;

        while ((rc = ms_request_item(r, MS_CODEC_BYTES, &iov, 1)) == -EAGAIN)
            ms_request_item_wait(r, ms_now_ns() + MS_NS_PER_S);
        if (rc < 0)
            break;
    }
    answer(r);
}

static void work(struct rig *rig, struct ms_request *r)
{
    static uint64_t seed = 4711; /* the engine's thread only */
    uint64_t dice = test_random(&seed);
    uint32_t number;

    (void)rig;
    must(r->len >= sizeof number, "a call without a number");
    memcpy(&number, r->body, sizeof number);
    must(atomic_fetch_add(&runs[number % NUMBERS], 1) == 0, "a call ran twice");
    if (dice % 50 == 0)
        pause_us(dice % 3000);
    if (r->flags & MS_FRAME_STREAM)
        stream_items(r, (uint32_t)(dice % 600));
    else if (dice % 5 || !leave_for_later(r))
        answer(r);
}

/* ---- the callers ----------------------------------------------------------------- */

struct caller {
    struct rig *rig;
    struct ms_peer *peer[2];
    struct ms_inbox *inbox;
    uint64_t seed;
    unsigned replies, failures;
};

static void check_reply(struct caller *k, struct ms_call *c, uint32_t number)
{
    struct ms_outcome o;
    uint32_t echoed;

    ms_call_outcome(c, &o);
    if (o.kind != MS_KIND_REPLY) {
        k->failures++;
        return;
    }
    k->replies++;
    must(o.len >= sizeof echoed, "a reply without a number");
    memcpy(&echoed, o.body, sizeof echoed);
    must(echoed == number, "the reply of another call");
}

/* Items come in order and without a gap, up to where the stream ends or breaks. */
static void read_items(struct ms_call *c, uint32_t *next)
{
    uint8_t codec, *body;
    size_t len;

    while (ms_call_take_item(c, &codec, &body, &len, NULL)) {
        uint32_t item;

        must(len == sizeof item, "an item of a wrong size");
        memcpy(&item, body, sizeof item);
        must(item == (*next)++, "an item out of order");
        free(body);
    }
}

static void wait_done(struct caller *k, struct ms_call *c)
{
    int64_t until_ns = ms_now_ns() + RIG_DEADLINE_NS;
    uint32_t next = 0;

    while (!ms_call_is_done(c)) {
        must(ms_call_wait(c, until_ns) == 0, "a call that does not end");
        read_items(c, &next);
        if (test_random(&k->seed) % 500 == 0)
            ms_call_cancel(c);
    }
    read_items(c, &next);
}

static void wait_by_inbox(struct caller *k, struct ms_call *c)
{
    struct pollfd p = {.fd = ms_inbox_fd(k->inbox), .events = POLLIN};
    uint64_t tags[4];
    uint32_t next = 0;

    must(ms_call_notify(c, k->inbox, 1) == 0, "no memory");
    while (!ms_call_is_done(c)) {
        must(poll(&p, 1, (int)(RIG_DEADLINE_NS / MS_NS_PER_MS)) == 1, "no tag");
        ms_inbox_take(k->inbox, tags, 4);
        read_items(c, &next);
    }
}

static size_t random_size(struct caller *k)
{
    uint64_t dice = test_random(&k->seed);

    if (dice % 100 == 0)
        return 4 + dice % (3 << 20);
    return 4 + (dice % 10 ? dice % 100 : dice % 200000);
}

static void call_once(struct caller *k, uint8_t *data)
{
    uint64_t dice = test_random(&k->seed);
    uint32_t number = atomic_fetch_add(&next_number, 1);
    struct iovec iov = {data, random_size(k)};
    struct ms_peer *p = k->peer[dice % 2];
    struct ms_call_spec spec = {.op = (uint16_t)ms_peer_method(p, "e", "work"),
                                .stream = dice % 16 == 3,
                                .waits = dice % 3 == 0,
                                .deadline_ns = ms_now_ns() + RIG_DEADLINE_NS,
                                .iov = &iov,
                                .count = 1};
    struct ms_call *c;

    if (dice % 40 == 7)
        spec.deadline_ns = ms_now_ns() + (int64_t)(dice % 3000) * 1000;
    memcpy(data, &number, sizeof number);
    c = ms_peer_call(p, &spec);
    must(c, "no memory");
    if (dice % 32 == 5)
        ms_call_cancel(c);
    if (dice % 64 == 9) { /* forgotten */
        ms_call_unref(c);
        return;
    }
    if (dice % 8 == 6)
        wait_by_inbox(k, c);
    else
        wait_done(k, c);
    check_reply(k, c, number);
    ms_call_unref(c);
}

static void *call_all_the_time(void *arg)
{
    struct caller *k = arg;
    uint8_t *data = calloc(1, 4 << 20);

    k->inbox = ms_inbox_create();
    while (!atomic_load(&is_over) && atomic_load(&next_number) < NUMBERS - 100)
        call_once(k, data);
    ms_inbox_unref(k->inbox);
    free(data);
    return NULL;
}

/* ---- bad luck -------------------------------------------------------------------- */

static void break_peer(struct ms_peer *p)
{
    pthread_mutex_lock(&p->lock);
    if (p->conn)
        shutdown(ms_conn_fd(p->conn), SHUT_RDWR);
    pthread_mutex_unlock(&p->lock);
}

static void bad_luck(struct rig *rig, struct ms_peer *other)
{
    int64_t until_ns = ms_now_ns() + STRESS_NS;
    uint64_t seed = 99;

    while (ms_now_ns() < until_ns) {
        uint64_t dice = test_random(&seed);

        pause_us(dice % 5000);
        if (dice % 4 == 0)
            break_peer(rig->peer);
        if (dice % 7 == 0)
            break_peer(other);
        if (dice % 100 == 0) {
            rig_stop_server(rig);
            pause_us(dice % 3000);
            rig_start_server(rig);
        }
    }
}

static void test_stress(void **state)
{
    struct rig rig = {.engine = work, .spin = true, .exit_wait_ns = 2 * MS_NS_PER_MS};
    struct caller callers[CALLERS];
    pthread_t threads[CALLERS], answering;
    struct ms_peer *other;
    unsigned replies = 0, failures = 0;

    (void)state;
    rig_start(&rig);
    other = ms_peer_create(rig.client, rig.path, RIG_UID, "other", NULL);
    assert_int_equal(pthread_create(&answering, NULL, answer_later, NULL), 0);
    for (size_t i = 0; i < CALLERS; i++) {
        callers[i] =
            (struct caller){.rig = &rig, .peer = {rig.peer, other}, .seed = i + 1};
        assert_int_equal(
            pthread_create(&threads[i], NULL, call_all_the_time, &callers[i]), 0);
    }
    bad_luck(&rig, other);
    atomic_store(&is_over, true);
    for (size_t i = 0; i < CALLERS; i++) {
        pthread_join(threads[i], NULL);
        replies += callers[i].replies;
        failures += callers[i].failures;
    }
    pthread_join(answering, NULL);
    assert_true(replies > 0);
    assert_true(replies > failures);
    print_message("# %u replies, %u failures\n", replies, failures);
    ms_peer_unref(other);
    rig_stop(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stress),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
