/* Calls when all goes well: results, order, many at once, waiting. */
#include "base/limits.h"
#include "wire/test_rig.h"

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

static void test_round_trip(void **state)
{
    struct rig rig = {0};

    (void)state;
    rig_start(&rig);
    rig_expect(rig_call(&rig, "echo", "hello"), "hello");
    rig_expect(rig_call(&rig, "echo", ""), "");
    assert_int_equal(rig.executed, 2);
    assert_int_equal(ms_peer_uid(rig.peer), RIG_UID);
    assert_string_equal(ms_peer_label(rig.peer), "rig/0@here");
    rig_stop(&rig);
}

static void test_spinning_round_trips(void **state)
{
    struct rig rig = {.spin = true};

    (void)state;
    rig_start(&rig);
    for (int i = 0; i < 1000; i++) {
        struct ms_call_spec spec = {.waits = true};

        rig_expect(rig_call_spec(&rig, "echo", "x", 1, &spec), "x");
    }
    assert_int_equal(rig.executed, 1000);
    rig_stop(&rig);
}

static void test_big_payloads_both_ways(void **state)
{
    static const size_t sizes[] = {65535, 65536, 65537, 1 << 20, 20000003};
    struct rig rig = {0};

    (void)state;
    rig_start(&rig);
    for (size_t i = 0; i < MS_COUNT(sizes); i++) {
        MS_CLEANUP(ms_cleanup_free) uint8_t *data = malloc(sizes[i]);
        struct ms_call_spec spec = {.waits = i % 2, .codec = MS_CODEC_PLAIN};
        struct ms_outcome o;
        struct ms_call *c;
        uint8_t *taken;

        for (size_t at = 0; at < sizes[i]; at++)
            data[at] = (uint8_t)(at * 7 + i);
        c = rig_call_spec(&rig, "echo", data, sizes[i], &spec);
        rig_wait(c);
        ms_call_outcome(c, &o);
        assert_int_equal(o.kind, MS_KIND_REPLY);
        assert_int_equal(o.codec, MS_CODEC_PLAIN);
        assert_int_equal(o.len, sizes[i]);
        assert_memory_equal(o.body, data, sizes[i]);
        taken = ms_call_take_body(c, NULL);
        assert_ptr_equal(taken, o.body);
        free(taken);
        ms_call_unref(c);
    }
    rig_stop(&rig);
}

/* ---- many at once ---------------------------------------------------------------- */

enum { THREADS = 6, ROUNDS = 60, WINDOW = 10 };

static void expect_number(struct ms_call *c, int number)
{
    char want[32];
    struct ms_outcome o;

    snprintf(want, sizeof want, "%d", number);
    if (ms_call_wait(c, ms_now_ns() + RIG_DEADLINE_NS) < 0)
        abort();
    ms_call_outcome(c, &o);
    if (o.kind != MS_KIND_REPLY || o.len != strlen(want) ||
        memcmp(o.body, want, o.len) != 0)
        abort();
    ms_call_unref(c);
}

static void *caller(void *arg)
{
    struct rig *rig = arg;
    int op = ms_peer_method(rig->peer, "e", "echo");

    for (int round = 0; round < ROUNDS; round++) {
        struct ms_call *calls[WINDOW];

        for (int i = 0; i < WINDOW; i++) {
            char text[32];
            struct iovec iov = {
                text, (size_t)snprintf(text, sizeof text, "%d", round * WINDOW + i)};

            calls[i] = ms_peer_call(rig->peer,
                                    &(struct ms_call_spec){.op = (uint16_t)op,
                                                           .waits = round % 3 == 0,
                                                           .deadline_ns = MS_NEVER,
                                                           .iov = &iov,
                                                           .count = 1});
        }
        for (int i = WINDOW - 1; i >= 0; i--) /* the last one first */
            expect_number(calls[i], round * WINDOW + i);
    }
    return NULL;
}

static void test_many_calls_from_many_threads(void **state)
{
    struct rig rig = {.spin = true};
    pthread_t threads[THREADS];

    (void)state;
    rig_start(&rig);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, caller, &rig), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(rig.executed, THREADS * ROUNDS * WINDOW);
    rig_stop(&rig);
}

static void *wait_for(void *arg)
{
    return (void *)(intptr_t)ms_call_wait(arg, ms_now_ns() + RIG_DEADLINE_NS);
}

static void test_many_wait_for_one(void **state)
{
    struct rig rig = {0};
    pthread_t threads[THREADS];
    struct ms_call *held;

    (void)state;
    rig_start(&rig);
    held = rig_call(&rig, "hold", "x");
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, wait_for, held), 0);
    assert_int_equal(ms_call_wait(held, ms_now_ns() + MS_NS_PER_MS), -ETIMEDOUT);
    assert_false(ms_call_is_done(held));
    rig_open(&rig, 1);
    for (int i = 0; i < THREADS; i++) {
        void *rc = threads;

        pthread_join(threads[i], &rc);
        assert_null(rc);
    }
    assert_true(ms_call_is_done(held));
    rig_expect(held, "x");
    rig_stop(&rig);
}

/* ---- order ----------------------------------------------------------------------- */

struct order {
    uint64_t seen[64];
    unsigned count;
};

static void note_order(struct rig *rig, struct ms_request *r)
{
    struct order *o = rig->data;

    o->seen[o->count++] = r->call_id;
    rig_reply(r, "");
}

/* A big call before a small one is run before it. */
static void test_big_before_small(void **state)
{
    struct order order = {0};
    struct rig rig = {.engine = note_order, .data = &order};
    struct ms_call *calls[40];
    MS_CLEANUP(ms_cleanup_free) uint8_t *data = calloc(1, 3000000);

    (void)state;
    rig_start(&rig);
    for (size_t i = 0; i < MS_COUNT(calls); i++) {
        struct ms_call_spec spec = {0};

        calls[i] =
            rig_call_spec(&rig, "any", data, i % 5 ? 10 : 300000 * (i % 10 + 1), &spec);
    }
    for (size_t i = 0; i < MS_COUNT(calls); i++)
        rig_expect(calls[i], "");
    assert_int_equal(order.count, MS_COUNT(calls));
    for (size_t i = 1; i < MS_COUNT(calls); i++)
        assert_true(order.seen[i] > order.seen[i - 1]);
    rig_stop(&rig);
}

/* ---- who answers ----------------------------------------------------------------- */

static void test_built_in_operations(void **state)
{
    struct rig rig = {0};
    struct ms_call_spec spec = {.op = MS_OP_HEALTH, .deadline_ns = MS_NEVER};

    (void)state;
    rig_start(&rig);
    rig_expect(ms_peer_call(rig.peer, &spec), "loop");
    spec.waits = true;
    rig_expect(ms_peer_call(rig.peer, &spec), "loop");
    assert_int_equal(rig.executed, 0);
    spec.op = MS_OP_CONFIGURE;
    rig_expect(ms_peer_call(rig.peer, &spec), "");
    assert_int_equal(rig.executed, 1);
    rig_stop(&rig);
}

static void test_without_an_engine(void **state)
{
    struct rig rig = {.no_engine = true};

    (void)state;
    rig_start(&rig);
    rig_expect(rig_call(&rig, "echo", "x"), "loop");
    rig_stop(&rig);
}

static void test_a_method_that_was_never_named(void **state)
{
    struct rig rig = {0};
    struct ms_call_spec spec = {.op = MS_OP_METHOD + 9, .deadline_ns = MS_NEVER};

    (void)state;
    rig_start(&rig);
    rig_expect_failure(ms_peer_call(rig.peer, &spec), MUSTER__FAILURE__KIND__NO_METHOD);
    rig_expect(rig_call(&rig, "echo", "x"), "x");
    rig_stop(&rig);
}

static void test_names_of_methods(void **state)
{
    char longest[MS_METHOD_NAME_MAX + 1];
    struct rig rig = {0};
    int op;

    (void)state;
    memset(longest, 'x', sizeof longest);
    longest[MS_METHOD_NAME_MAX - 2] = 0; /* and "e" and NUL */
    rig_start(&rig);
    op = ms_peer_method(rig.peer, "e", "echo");
    assert_int_equal(op, MS_OP_METHOD);
    assert_int_equal(ms_peer_method(rig.peer, "f", "echo"), op + 1);
    assert_int_equal(ms_peer_method(rig.peer, "e", "echo"), op);
    assert_int_equal(ms_peer_method(rig.peer, "e", longest), op + 2);
    assert_int_equal(ms_peer_method(rig.peer, "ee", longest), -ENAMETOOLONG);
    assert_int_equal(ms_peer_method(rig.peer, "e", ""), -ENAMETOOLONG);
    assert_int_equal(ms_peer_method(rig.peer, "e", "a\nb"), -EILSEQ);
    assert_int_equal(ms_peer_method(rig.peer, "\xff", "echo"), -EILSEQ);
    rig_expect(rig_call(&rig, longest, "x"), "x");
    rig_stop(&rig);
}

static void reply_chain(struct rig *rig, struct ms_request *r)
{
    char text[256];
    int n = 0;

    (void)rig;
    for (uint32_t i = 0; i < r->chain_count; i++)
        n += snprintf(text + n,
                      sizeof text - (size_t)n,
                      "%llu ",
                      (unsigned long long)r->chain[i]);
    snprintf(text + n, sizeof text - (size_t)n, "%.*s", (int)r->len, (char *)r->body);
    rig_reply(r, text);
}

static void test_the_chain_of_waiting_workers(void **state)
{
    const uint64_t chain[MS_CHAIN_MAX + 1] = {1, UINT64_MAX, 3};
    struct rig rig = {.engine = reply_chain};
    struct ms_call_spec spec = {.chain = chain, .chain_count = 3};

    (void)state;
    rig_start(&rig);
    rig_expect(rig_call_spec(&rig, "any", "body", 4, &spec),
               "1 18446744073709551615 3 body");
    spec.chain_count = MS_CHAIN_MAX + 1;
    rig_expect_failure(rig_call_spec(&rig, "any", "body", 4, &spec),
                       MUSTER__FAILURE__KIND__REFUSED);
    rig_stop(&rig);
}

/* ---- waiting --------------------------------------------------------------------- */

static void on_signal(int number)
{
    (void)number;
}

struct waiting {
    struct ms_call *call;
    _Atomic pid_t tid;
    int rc;
};

static void *wait_in_thread(void *arg)
{
    struct waiting *w = arg;

    w->tid = (pid_t)syscall(SYS_gettid);
    w->rc = ms_call_wait(w->call, ms_now_ns() + RIG_DEADLINE_NS);
    return NULL;
}

/* Both who reads and who waits for the reader wake for a signal. */
static void test_signals_interrupt(void **state)
{
    struct sigaction sa = {.sa_handler = on_signal};
    struct rig rig = {0};
    struct waiting w[2];
    pthread_t threads[2];

    (void)state;
    sigaction(SIGUSR1, &sa, NULL);
    rig_start(&rig);
    for (int i = 0; i < 2; i++) {
        w[i] = (struct waiting){.call = rig_call(&rig, "hold", "x"), .rc = 1};
        assert_int_equal(pthread_create(&threads[i], NULL, wait_in_thread, &w[i]), 0);
    }
    rig_wait_count(&rig, &rig.held, 1);
    for (int i = 0; i < 2; i++) {
        /* again and again: a signal that comes before the system call is lost */
        while (pthread_tryjoin_np(threads[i], NULL) != 0) {
            if (w[i].tid)
                syscall(SYS_tgkill, getpid(), w[i].tid, SIGUSR1);
            sched_yield();
        }
        assert_int_equal(w[i].rc, -EINTR);
    }
    rig_open(&rig, 2);
    rig_expect(w[0].call, "x");
    rig_expect(w[1].call, "x");
    rig_stop(&rig);
}

/* Whoever forgets a call leaves nothing behind, not even its peer. */
static void test_unreferenced_before_the_answer(void **state)
{
    struct rig rig = {0};
    struct ms_peer *other;
    struct ms_call *c;
    unsigned fds;

    (void)state;
    rig_start(&rig);
    rig_expect(rig_call(&rig, "echo", "x"), "x");
    fds = rig_open_fds();
    for (int i = 0; i < 20; i++) {
        struct ms_call_spec spec = {.op = MS_OP_CONFIGURE, .deadline_ns = MS_NEVER};

        other = ms_peer_create(rig.client, rig.path, RIG_UID, "other", NULL);
        c = ms_peer_call(other, &spec);
        ms_call_unref(c);
        ms_peer_unref(other);
    }
    rig_wait_count(&rig, &rig.executed, 21);
    for (int64_t until_ns = ms_now_ns() + RIG_DEADLINE_NS; rig_open_fds() > fds;)
        assert_true(ms_now_ns() < until_ns);
    rig_stop(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_spinning_round_trips),
        cmocka_unit_test(test_big_payloads_both_ways),
        cmocka_unit_test(test_many_calls_from_many_threads),
        cmocka_unit_test(test_many_wait_for_one),
        cmocka_unit_test(test_big_before_small),
        cmocka_unit_test(test_built_in_operations),
        cmocka_unit_test(test_without_an_engine),
        cmocka_unit_test(test_a_method_that_was_never_named),
        cmocka_unit_test(test_names_of_methods),
        cmocka_unit_test(test_the_chain_of_waiting_workers),
        cmocka_unit_test(test_signals_interrupt),
        cmocka_unit_test(test_unreferenced_before_the_answer),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
