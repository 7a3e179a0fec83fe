/* Requests that came by another way than a connection. */
#include "wire/test_rig.h"

enum { MANY = 8 };

struct job {
    struct rig *rig;
    const char *text;
    struct ms_request *request;
    uint8_t kind;
    Muster__Failure__Kind failure;
    char reply[32];
    _Atomic unsigned done;
};

static void
on_done(void *arg, uint8_t kind, uint8_t codec, const uint8_t *body, size_t len)
{
    struct job *j = arg;

    j->kind = kind;
    if (kind == MS_KIND_ERROR) {
        Muster__Failure *f = muster__failure__unpack(NULL, len, body);

        assert_int_equal(codec, MS_CODEC_PROTO);
        assert_non_null(f);
        j->failure = f->kind;
        muster__failure__free_unpacked(f, NULL);
    } else {
        assert_true(len < sizeof j->reply);
        memcpy(j->reply, body, len);
    }
    rig_count(j->rig, &j->done);
}

static void submit(void *arg)
{
    struct job *j = arg;

    j->request = ms_server_submit(j->rig->server,
                                  MS_OP_CONFIGURE,
                                  MS_CODEC_BYTES,
                                  (uint8_t *)strdup(j->text),
                                  strlen(j->text),
                                  on_done,
                                  j);
    assert_non_null(j->request);
    assert_int_equal(atomic_load(&j->done), 0);
}

static void cancel(void *arg)
{
    struct job *j = arg;

    ms_server_submit_cancel(j->request);
}

static void on_loop(struct job *j, void (*fn)(void *))
{
    rig_on_loop(j->rig, j->rig->server_loop, fn, j);
}

/* "hold..." waits for the gate; all are echoed. */
static void hold_engine(struct rig *rig, struct ms_request *r)
{
    struct iovec iov = {r->body, r->len};

    if (r->len >= 4 && memcmp(r->body, "hold", 4) == 0) {
        unsigned ticket = atomic_load(&rig->held) + 1;

        rig_count(rig, &rig->held);
        rig_wait_count(rig, &rig->gate, ticket);
    }
    ms_request_reply(r, r->codec, &iov, 1);
}

static void test_is_answered_on_the_loop(void **state)
{
    struct rig rig = {.engine = hold_engine};

    (void)state;
    rig_start(&rig);
    for (int i = 0; i < 100; i++) {
        struct job j = {.rig = &rig, .text = "hello"};

        on_loop(&j, submit);
        rig_wait_count(&rig, &j.done, 1);
        assert_int_equal(j.kind, MS_KIND_REPLY);
        assert_string_equal(j.reply, "hello");
        rig_expect(rig_call(&rig, "m", "between"), "between"); /* by a connection */
    }
    rig_stop(&rig);
}

static void test_order_is_that_of_submission(void **state)
{
    struct rig rig = {.engine = hold_engine};
    struct job jobs[MANY] = {{0}};
    struct ms_call *call;

    (void)state;
    rig_start(&rig);
    for (int i = 0; i < MANY; i++) {
        jobs[i] = (struct job){.rig = &rig, .text = i ? "later" : "hold"};
        on_loop(&jobs[i], submit);
    }
    rig_wait_count(&rig, &rig.held, 1);
    call = rig_call(&rig, "m", "last");
    assert_int_equal(atomic_load(&rig.executed), 1);
    rig_open(&rig, 1);
    rig_expect(call, "last");
    for (int i = 0; i < MANY; i++)
        rig_wait_count(&rig, &jobs[i].done, 1);
    rig_stop(&rig);
}

static void test_cancelled_before_it_began(void **state)
{
    struct rig rig = {.engine = hold_engine};
    struct job first = {.rig = &rig, .text = "hold"},
               second = {.rig = &rig, .text = "no"};

    (void)state;
    rig_start(&rig);
    on_loop(&first, submit);
    rig_wait_count(&rig, &rig.held, 1);
    on_loop(&second, submit);
    on_loop(&second, cancel);
    rig_wait_count(&rig, &second.done, 1); /* although the engine is busy */
    assert_int_equal(second.failure, MUSTER__FAILURE__KIND__CANCELLED);
    rig_open(&rig, 1);
    rig_wait_count(&rig, &first.done, 1);
    assert_int_equal(atomic_load(&rig.executed), 1);
    rig_stop(&rig);
}

static void test_cancelled_while_it_runs(void **state)
{
    struct rig rig = {.engine = hold_engine};
    struct job j = {.rig = &rig, .text = "hold"};

    (void)state;
    rig_start(&rig);
    on_loop(&j, submit);
    rig_wait_count(&rig, &rig.held, 1);
    on_loop(&j, cancel);
    rig_wait_count(&rig, &rig.cancelled, 1);
    assert_int_equal(atomic_load(&j.done), 0); /* when it is answered */
    rig_open(&rig, 1);
    rig_wait_count(&rig, &j.done, 1);
    assert_int_equal(j.failure, MUSTER__FAILURE__KIND__CANCELLED);
    rig_stop(&rig);
}

/* The engine is asleep on nothing: nobody has ever connected. */
static void test_wakes_a_lonely_engine(void **state)
{
    struct rig rig = {.engine = hold_engine, .no_client = true};
    struct job j = {.rig = &rig, .text = "x"};

    (void)state;
    rig_start(&rig);
    on_loop(&j, submit);
    rig_wait_count(&rig, &j.done, 1);
    rig_stop(&rig);
}

static void test_a_destroyed_server_forgets(void **state)
{
    struct rig rig = {.engine = hold_engine, .no_client = true};
    struct job first = {.rig = &rig, .text = "hold"},
               second = {.rig = &rig, .text = "no"};

    (void)state;
    rig_start(&rig);
    on_loop(&first, submit);
    rig_wait_count(&rig, &rig.held, 1);
    on_loop(&second, submit);
    rig_open(&rig, 1);
    ms_server_engine_stop(rig.server);
    rig_stop(&rig); /* the leak sanitizer looks */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_is_answered_on_the_loop),
        cmocka_unit_test(test_order_is_that_of_submission),
        cmocka_unit_test(test_cancelled_before_it_began),
        cmocka_unit_test(test_cancelled_while_it_runs),
        cmocka_unit_test(test_wakes_a_lonely_engine),
        cmocka_unit_test(test_a_destroyed_server_forgets),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
