/* A busy engine: what is cancelled, what expires, and who answers meanwhile. */
#include "wire/client/blocking_call.h"
#include "wire/test_raw.h"

#include <unistd.h>

/* The engine is in "hold". */
static struct ms_call *occupy(struct rig *rig)
{
    struct ms_call *c = rig_call(rig, "hold", "x");

    rig_wait_count(rig, &rig->held, 1);
    return c;
}

static void test_cancel_what_waits(void **state)
{
    struct rig rig = {0};
    struct ms_call *held, *first, *second;

    (void)state;
    rig_start(&rig);
    held = occupy(&rig);
    first = rig_call(&rig, "echo", "never");
    second = rig_call(&rig, "echo", "second");
    ms_call_cancel(first);
    ms_call_cancel(first); /* again: nothing */
    rig_expect_failure(first, MUSTER__FAILURE__KIND__CANCELLED);
    rig_open(&rig, 1);
    rig_expect(held, "x");
    rig_expect(second, "second");
    assert_int_equal(rig.executed, 2);
    assert_int_equal(rig.cancelled, 0);
    rig_stop(&rig);
}

/* Even if the engine is busy for a moment only, and nobody took over. */
static void test_cancel_what_waits_at_once(void **state)
{
    struct rig rig = {0};
    struct ms_call *held, *first;

    (void)state;
    rig_start(&rig);
    for (int i = 0; i < 200; i++) {
        held = rig_call(&rig, "hold", "x");
        first = rig_call(&rig, "echo", "never");
        rig_wait_count(&rig, &rig.held, (unsigned)i + 1);
        ms_call_cancel(first);
        rig_open(&rig, 1);
        rig_expect_failure(first, MUSTER__FAILURE__KIND__CANCELLED);
        rig_expect(held, "x");
    }
    rig_expect(rig_call(&rig, "echo", "y"), "y");
    assert_int_equal(rig.executed, 201);
    rig_stop(&rig);
}

/* Its handler is told, its result is dropped, the client does not wait. */
static void test_cancel_what_runs(void **state)
{
    struct rig rig = {0};
    struct ms_call *held;

    (void)state;
    rig_start(&rig);
    held = occupy(&rig);
    ms_call_cancel(held);
    rig_expect_failure(held, MUSTER__FAILURE__KIND__CANCELLED);
    rig_wait_count(&rig, &rig.cancelled, 1);
    rig_open(&rig, 1);
    rig_expect(rig_call(&rig, "echo", "next"), "next");
    assert_int_equal(rig.cancelled, 1);
    rig_stop(&rig);
}

static void test_cancel_what_is_done(void **state)
{
    struct rig rig = {0};
    struct ms_call *c;

    (void)state;
    rig_start(&rig);
    c = rig_call(&rig, "echo", "x");
    rig_wait(c);
    ms_call_cancel(c);
    rig_expect(c, "x");
    rig_stop(&rig);
}

/* ---- deadlines ------------------------------------------------------------------- */

static struct ms_call *call_until(struct rig *rig, const char *method, int64_t delay_ns)
{
    struct ms_call_spec spec = {.deadline_ns = ms_now_ns() + delay_ns};

    return rig_call_spec(rig, method, "x", 1, &spec);
}

/* Nobody waits for it: it expires all the same, here and there. */
static void test_deadline_of_what_runs(void **state)
{
    struct rig rig = {0};
    struct ms_inbox *inbox = ms_inbox_create();
    struct ms_call *c;
    uint64_t tag = 0;

    (void)state;
    rig_start(&rig);
    c = call_until(&rig, "hold", 20 * MS_NS_PER_MS);
    assert_int_equal(ms_call_notify(c, inbox, 5), 0);
    for (int64_t until_ns = ms_now_ns() + RIG_DEADLINE_NS; tag == 0;) {
        ms_inbox_take(inbox, &tag, 1);
        assert_true(ms_now_ns() < until_ns);
    }
    assert_int_equal(tag, 5);
    rig_expect_failure(c, MUSTER__FAILURE__KIND__DEADLINE);
    if (rig.held) /* it had begun */
        rig_wait_count(&rig, &rig.cancelled, 1);
    rig_open(&rig, 1);
    rig_expect(rig_call(&rig, "echo", "next"), "next");
    ms_inbox_unref(inbox);
    rig_stop(&rig);
}

static void test_deadline_of_what_is_waited_for(void **state)
{
    struct rig rig = {.spin = true};
    struct ms_call_spec spec = {.waits = true};
    struct ms_call *c;
    int rc;

    (void)state;
    rig_start(&rig);
    spec.deadline_ns = ms_now_ns() + 300 * MS_NS_PER_MS;
    c = rig_call_spec(&rig, "hold", "x", 1, &spec);
    rc = ms_call_wait(c, ms_now_ns() + MS_NS_PER_MS);
    if (ms_now_ns() < spec.deadline_ns) /* a busy machine may be later than that */
        assert_int_equal(rc, -ETIMEDOUT);
    rig_expect_failure(c, MUSTER__FAILURE__KIND__DEADLINE);
    rig_open(&rig, 1);
    rig_stop(&rig);
}

/* It never runs. */
static void test_deadline_of_what_waits(void **state)
{
    struct rig rig = {0};
    struct ms_call *held, *queued;

    (void)state;
    rig_start(&rig);
    held = occupy(&rig);
    queued = call_until(&rig, "echo", 5 * MS_NS_PER_MS);
    rig_expect_failure(queued, MUSTER__FAILURE__KIND__DEADLINE);
    rig_open(&rig, 1);
    rig_expect(held, "x");
    rig_expect(rig_call(&rig, "echo", "y"), "y");
    assert_int_equal(rig.executed, 2);
    rig_stop(&rig);
}

static void test_deadline_that_is_past(void **state)
{
    struct rig rig = {0};
    struct ms_call_spec spec = {.deadline_ns = 1, .waits = true};

    (void)state;
    rig_start(&rig);
    rig_expect_failure(rig_call_spec(&rig, "echo", "x", 1, &spec),
                       MUSTER__FAILURE__KIND__DEADLINE);
    rig_expect(rig_call(&rig, "echo", "y"), "y");
    rig_stop(&rig);
}

static void run_until_cancelled(struct rig *rig, struct ms_request *r)
{
    rig_count(rig, &rig->held);
    rig_wait_count(rig, &rig->cancelled, 1);
    rig_reply(r, "too late");
}

/* The server knows the deadline, also when its client does not say a word. */
static void test_deadline_without_its_client(void **state)
{
    struct rig rig = {.no_client = true, .engine = run_until_cancelled};
    struct ms_frame call = {
        .kind = MS_KIND_CALL, .op = MS_OP_METHOD, .budget_ns = 200 * MS_NS_PER_MS};
    struct ms_frame method = {.kind = MS_KIND_METHOD, .op = MS_OP_METHOD};
    struct raw raw;

    (void)state;
    rig_start(&rig);
    raw_open(&raw, &rig, 1, MS_LANE_CALL);
    raw_send(&raw, &method, "e\0hold", 6);
    do { /* on a busy machine it may be over before it began */
        call.call_id++;
        call.budget_ns *= 2;
        raw_send(&raw, &call, "x", 1);
        raw_expect_failure(&raw, call.call_id, MUSTER__FAILURE__KIND__DEADLINE);
    } while (atomic_load(&rig.held) == 0);
    assert_int_equal(atomic_load(&rig.cancelled), 1);
    raw_close(&raw);
    rig_stop(&rig);
}

/* ---- the loop answers ------------------------------------------------------------ */

enum { PROBES = 200, BUSY_TIMES = 20 };

static int compare(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return x < y ? -1 : x > y;
}

/* What a call of the loop takes, in the best quarter: the machine may have other things to
 * do as well. */
static int64_t probe_health(struct rig *rig)
{
    int64_t took_ns[PROBES];

    for (int i = 0; i < PROBES; i++) {
        struct ms_call_spec spec = {.op = MS_OP_HEALTH, .deadline_ns = MS_NEVER};
        int64_t before_ns = ms_now_ns();

        rig_expect(ms_peer_call(rig->peer, &spec), "loop");
        took_ns[i] = ms_now_ns() - before_ns;
    }
    qsort(took_ns, PROBES, sizeof *took_ns, compare);
    return took_ns[PROBES / 4];
}

/* Health in less than a millisecond while the engine is away and a big call comes in; on a
 * slow machine, not much later than at rest. */
static void test_health_while_busy(void **state)
{
    struct rig rig = {0};
    struct ms_call_spec big = {0};
    struct ms_call *held, *behind;
    MS_CLEANUP(ms_cleanup_free) uint8_t *data = calloc(1, 64 << 20);
    int64_t rest_ns, busy_ns;

    (void)state;
    rig_start(&rig);
    rest_ns = probe_health(&rig);
    held = occupy(&rig);
    behind = rig_call_spec(&rig, "echo", data, 64 << 20, &big);
    busy_ns = probe_health(&rig);
    assert_true(busy_ns < MS_NS_PER_MS || busy_ns < BUSY_TIMES * rest_ns);
    rig_open(&rig, 1);
    rig_expect(held, "x");
    rig_wait(behind);
    ms_call_unref(behind);
    rig_stop(&rig);
}

static void test_control_lane_while_busy(void **state)
{
    struct rig rig = {0};
    struct ms_call *held;
    uint8_t *reply;
    size_t len;

    (void)state;
    rig_start(&rig);
    held = rig_call(&rig, "hold", "x");
    rig_wait_count(&rig, &rig.held, 1);
    assert_int_equal(ms_blocking_call(rig.path,
                                      rig.secret,
                                      MS_OP_HEALTH,
                                      NULL,
                                      0,
                                      RIG_DEADLINE_NS,
                                      &reply,
                                      &len,
                                      NULL),
                     0);
    assert_int_equal(len, 4);
    free(reply);
    rig_open(&rig, 1);
    rig_expect(held, "x");
    rig_stop(&rig);
}

static void test_what_the_engine_does(void **state)
{
    struct rig rig = {0};
    struct ms_call *held, *queued;
    char name[64];
    int64_t since_ns;
    uint64_t waiting, done;

    (void)state;
    rig_start(&rig);
    assert_false(ms_server_engine_running(
        rig.server, name, sizeof name, &since_ns, &waiting, &done));
    assert_string_equal(name, "");
    held = occupy(&rig);
    queued = rig_call(&rig, "echo", "y");
    do
        assert_true(ms_server_engine_running(
            rig.server, name, sizeof name, &since_ns, &waiting, &done));
    while (waiting == 0);
    assert_string_equal(name, "e.hold");
    assert_true(since_ns > 0 && since_ns < ms_now_ns());
    assert_int_equal(waiting, 1);
    assert_int_equal(done, 0);
    rig_open(&rig, 1);
    rig_expect(held, "x");
    rig_expect(queued, "y");
    rig_stop(&rig);
}

static Muster__Activity *look(struct rig *rig)
{
    Muster__Activity *a = ms_server_activity(rig->server);

    assert_non_null(a);
    return a;
}

static void test_calls_are_counted(void **state)
{
    struct rig rig = {0};
    struct ms_call *held, *queued;
    Muster__Activity *a;

    (void)state;
    rig_start(&rig);
    a = look(&rig);
    assert_int_equal(a->doing, MUSTER__DOING__DOING_IDLE);
    assert_int_equal(a->n_methods, 0);
    muster__activity__free_unpacked(a, NULL);
    for (int i = 0; i < 3; i++)
        rig_expect(rig_call(&rig, "echo", "x"), "x");
    held = occupy(&rig);
    queued = rig_call(&rig, "echo", "y");
    while ((a = look(&rig))->calls_queued == 0)
        muster__activity__free_unpacked(a, NULL);
    assert_int_equal(a->doing, MUSTER__DOING__DOING_CALL);
    assert_string_equal(a->method, "e.hold");
    assert_int_equal(a->calls_running, 1);
    assert_int_equal(a->calls_done, 3);
    assert_int_equal(a->n_methods, 1);
    assert_string_equal(a->methods[0]->method, "e.echo");
    assert_int_equal(a->methods[0]->calls, 3);
    assert_true(a->methods[0]->total_ns > 0);
    muster__activity__free_unpacked(a, NULL);
    rig_open(&rig, 1);
    rig_expect(held, "x");
    rig_expect(queued, "y");
    a = look(&rig); /* also before the engine has come back from it */
    assert_int_equal(a->doing, MUSTER__DOING__DOING_IDLE);
    assert_int_equal(a->calls_failed, 0);
    assert_int_equal(a->n_methods, 2);
    assert_string_equal(a->methods[0]->method, "e.echo"); /* the most called */
    assert_int_equal(a->methods[0]->calls, 4);
    assert_int_equal(a->methods[0]->failed, 0);
    muster__activity__free_unpacked(a, NULL);
    rig_stop(&rig);
}

/* Somebody who calls without end does not keep others from being heard. */
static void *call_without_end(void *arg)
{
    struct rig *rig = arg;

    while (!atomic_load(&rig->gate)) {
        struct ms_call_spec spec = {.waits = true};

        rig_expect(rig_call_spec(rig, "echo", "x", 1, &spec), "x");
    }
    return NULL;
}

static void test_others_are_heard(void **state)
{
    struct rig rig = {.spin = true};
    pthread_t thread;
    struct raw raw;

    (void)state;
    rig_start(&rig);
    assert_int_equal(pthread_create(&thread, NULL, call_without_end, &rig), 0);
    rig_wait_count(&rig, &rig.executed, 100);
    raw_open(&raw, &rig, 1, MS_LANE_CALL);
    for (uint64_t id = 1; id <= 20; id++) {
        raw_call(&raw, id, 0, "y");
        raw_expect(&raw, id, "y");
    }
    raw_close(&raw);
    rig_open(&rig, 1);
    pthread_join(thread, NULL);
    rig_stop(&rig);
}

/* ---- the engine's own thread ----------------------------------------------------- */

static void test_wake_and_timeout(void **state)
{
    struct rig rig = {.no_engine = true, .no_client = true};
    struct ms_request *r;
    int64_t before_ns;

    (void)state;
    rig_start(&rig);
    before_ns = ms_now_ns();
    assert_int_equal(
        ms_server_engine_next(rig.server, before_ns + 5 * MS_NS_PER_MS, &r),
        -ETIMEDOUT);
    assert_true(ms_now_ns() - before_ns >= 5 * MS_NS_PER_MS);
    assert_int_equal(write(ms_server_engine_wake_fd(rig.server), "\2", 1), 1);
    assert_int_equal(ms_server_engine_next(rig.server, MS_NEVER, &r), -EINTR);
    assert_int_equal(ms_server_engine_next(rig.server, 1, &r), -ETIMEDOUT);
    ms_server_engine_stop(rig.server);
    assert_int_equal(ms_server_engine_next(rig.server, MS_NEVER, &r), -ESHUTDOWN);
    assert_int_equal(ms_server_engine_next(rig.server, MS_NEVER, &r), -ESHUTDOWN);
    rig_stop(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cancel_what_waits),
        cmocka_unit_test(test_cancel_what_waits_at_once),
        cmocka_unit_test(test_cancel_what_runs),
        cmocka_unit_test(test_cancel_what_is_done),
        cmocka_unit_test(test_deadline_of_what_runs),
        cmocka_unit_test(test_deadline_of_what_is_waited_for),
        cmocka_unit_test(test_deadline_of_what_waits),
        cmocka_unit_test(test_deadline_that_is_past),
        cmocka_unit_test(test_deadline_without_its_client),
        cmocka_unit_test(test_health_while_busy),
        cmocka_unit_test(test_control_lane_while_busy),
        cmocka_unit_test(test_what_the_engine_does),
        cmocka_unit_test(test_calls_are_counted),
        cmocka_unit_test(test_others_are_heard),
        cmocka_unit_test(test_wake_and_timeout),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
