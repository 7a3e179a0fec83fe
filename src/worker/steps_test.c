/* steps_test.c - the steps of a worker, on a server whose engine is the test's own */
#include "wire/test_rig.h"
#include "worker/steps.h"

#include <stdio.h>

enum { STEPS_MAX = 4 };

/* A rig, its steps, and what they came to. */
struct bench {
    struct rig rig;
    struct ms_steps *steps;
    _Atomic unsigned done; /* runs that were answered */
    Muster__StepsDone *last;
    Muster__RunSteps *next; /* for the loop's thread */
    char order[128];        /* the methods, as the engine ran them; its thread */
};

static struct bench *bench;

static ProtobufCMessage *copy(const ProtobufCMessage *m)
{
    size_t len = protobuf_c_message_get_packed_size(m);
    MS_CLEANUP(ms_cleanup_free) uint8_t *packed = malloc(len + 1);

    protobuf_c_message_pack(m, packed);
    return protobuf_c_message_unpack(m->descriptor, NULL, len, packed);
}

/* "fail" fails, "hold" waits for rig_open, all others answer with their argument. */
static void engine(struct rig *rig, struct ms_request *r)
{
    const char *name = r->method ? r->method->name : "op";
    struct iovec iov = {r->body, r->len};
    size_t len = strlen(bench->order);

    snprintf(bench->order + len, sizeof bench->order - len, "%s ", name);
    if (strcmp(name, "hold") == 0) {
        rig_count(rig, &rig->held);
        rig_wait_count(rig, &rig->gate, 1);
    }
    if (strcmp(name, "fail") == 0)
        ms_request_fail_text(r, MUSTER__FAILURE__KIND__RAISED, "no such model");
    else
        ms_request_reply(r, r->codec, &iov, 1);
}

static void on_done(void *arg, const Muster__StepsDone *done)
{
    struct bench *b = arg;

    muster__steps_done__free_unpacked(b->last, NULL);
    b->last = (Muster__StepsDone *)copy(&done->base);
    rig_count(&b->rig, &b->done);
}

static void take_stack(void *arg, struct ms_buf *out)
{
    (void)arg;
    ms_buf_printf(out, "in the constructor");
}

static void make_steps(void *arg)
{
    struct bench *b = arg;

    static const struct ms_steps_ops ops = {on_done, take_stack};

    b->steps = ms_steps_create(b->rig.server, &ops, b);
}

static void drop_steps(void *arg)
{
    struct bench *b = arg;

    ms_steps_destroy(b->steps);
}

static int setup(void **state)
{
    bench = calloc(1, sizeof *bench);
    bench->rig.engine = engine;
    rig_start(&bench->rig);
    rig_on_loop(&bench->rig, bench->rig.server_loop, make_steps, bench);
    *state = bench;
    return bench->steps ? 0 : -1;
}

static int teardown(void **state)
{
    struct bench *b = *state;

    rig_on_loop(&b->rig, b->rig.server_loop, drop_steps, b);
    rig_stop(&b->rig);
    muster__steps_done__free_unpacked(b->last, NULL);
    free(b);
    return 0;
}

static void begin(void *arg)
{
    struct bench *b = arg;

    ms_steps_run(b->steps, MS_TAKE(b->next));
}

/* These methods, each with its own name as the argument; `methods` ends with NULL. */
static void run(struct bench *b, uint64_t number, const char *const *methods)
{
    static char default_engine[] = "default";
    Muster__RunSteps m = MUSTER__RUN_STEPS__INIT;
    Muster__Step steps[STEPS_MAX], *list[STEPS_MAX];
    ProtobufCBinaryData arguments[STEPS_MAX];

    for (; methods[m.n_steps]; m.n_steps++) {
        char *name = (char *)(uintptr_t)methods[m.n_steps];

        muster__step__init(&steps[m.n_steps]);
        arguments[m.n_steps] =
            (ProtobufCBinaryData){strlen(name), (uint8_t *)(uintptr_t)name};
        steps[m.n_steps].engine = default_engine;
        steps[m.n_steps].method = name;
        steps[m.n_steps].arguments = &arguments[m.n_steps];
        steps[m.n_steps].n_arguments = 1;
        list[m.n_steps] = &steps[m.n_steps];
    }
    m.uid = RIG_UID;
    m.run = number;
    m.steps = list;
    b->next = (Muster__RunSteps *)copy(&m.base);
    rig_on_loop(&b->rig, b->rig.server_loop, begin, b);
}

static void assert_answer(const Muster__StepAnswer *a, const char *text)
{
    assert_int_equal(a->body.len, strlen(text));
    assert_memory_equal(a->body.data, text, strlen(text));
}

static void test_in_order(void **state)
{
    struct bench *b = *state;

    run(b, 1, (const char *[]){"one", "two", "three", NULL});
    rig_wait_count(&b->rig, &b->done, 1);
    assert_string_equal(b->order, "one two three ");
    assert_int_equal(b->last->uid, RIG_UID);
    assert_int_equal(b->last->run, 1);
    assert_null(b->last->failure);
    assert_int_equal(b->last->n_answers, 3);
    assert_answer(b->last->answers[2], "three");
}

static void test_a_failure_is_the_last(void **state)
{
    struct bench *b = *state;

    run(b, 1, (const char *[]){"one", "fail", "three", NULL});
    rig_wait_count(&b->rig, &b->done, 1);
    assert_string_equal(b->order, "one fail ");
    assert_int_equal(b->last->n_answers, 1);
    assert_non_null(b->last->failure);
    assert_int_equal(b->last->failure->kind, MUSTER__FAILURE__KIND__RAISED);
    assert_string_equal(b->last->failure->message, "no such model");
    run(b, 2, (const char *[]){"one", NULL}); /* another run begins anew */
    rig_wait_count(&b->rig, &b->done, 2);
    assert_null(b->last->failure);
    assert_string_equal(b->order, "one fail one ");
}

/* Before and after its end. */
static void test_one_that_is_asked_twice_is_done_once(void **state)
{
    struct bench *b = *state;

    run(b, 1, (const char *[]){"hold", "two", NULL});
    rig_wait_count(&b->rig, &b->rig.held, 1);
    run(b, 1, (const char *[]){"hold", "two", NULL});
    rig_open(&b->rig, 1);
    rig_wait_count(&b->rig, &b->done, 1);
    assert_int_equal(b->last->n_answers, 2);
    run(b, 1, (const char *[]){"hold", "two", NULL});
    assert_int_equal(b->done, 2); /* the same answer again, at once */
    assert_int_equal(b->last->run, 1);
    assert_int_equal(b->last->n_answers, 2);
    assert_string_equal(b->order, "hold two ");
}

static void test_another_one_meanwhile_is_refused(void **state)
{
    struct bench *b = *state;

    run(b, 1, (const char *[]){"hold", NULL});
    rig_wait_count(&b->rig, &b->rig.held, 1);
    run(b, 2, (const char *[]){"two", NULL});
    assert_int_equal(b->done, 1);
    assert_int_equal(b->last->run, 2);
    assert_non_null(b->last->failure);
    assert_int_equal(b->last->failure->kind, MUSTER__FAILURE__KIND__REFUSED);
    rig_open(&b->rig, 1);
    rig_wait_count(&b->rig, &b->done, 2);
    assert_int_equal(b->last->run, 1); /* which it has not disturbed */
    assert_null(b->last->failure);
    assert_string_equal(b->order, "hold ");
}

/* The head asks where it is, and is told; what runs goes on. */
static void test_late_steps_say_where_they_are(void **state)
{
    struct bench *b = *state;
    Muster__RunSteps m = MUSTER__RUN_STEPS__INIT;

    run(b, 1, (const char *[]){"hold", NULL});
    rig_wait_count(&b->rig, &b->rig.held, 1);
    m.run = 2;
    m.is_late = true;
    b->next = (Muster__RunSteps *)copy(&m.base);
    rig_on_loop(&b->rig, b->rig.server_loop, begin, b);
    assert_int_equal(b->done, 1);
    assert_int_equal(b->last->run, 2);
    assert_int_equal(b->last->failure->kind, MUSTER__FAILURE__KIND__DEADLINE);
    assert_string_equal(b->last->failure->traceback, "in the constructor");
    rig_open(&b->rig, 1);
    rig_wait_count(&b->rig, &b->done, 2);
    assert_int_equal(b->last->run, 1);
    assert_null(b->last->failure);
}

static void test_what_is_no_step(void **state)
{
    struct bench *b = *state;
    Muster__Step step = MUSTER__STEP__INIT, *list[] = {&step};
    Muster__RunSteps m = MUSTER__RUN_STEPS__INIT;

    run(b, 1, (const char *[]){NULL}); /* none at all */
    rig_wait_count(&b->rig, &b->done, 1);
    assert_null(b->last->failure);
    step.op = MS_OP_METHOD;
    m.run = 2;
    m.steps = list;
    m.n_steps = 1;
    b->next = (Muster__RunSteps *)copy(&m.base);
    rig_on_loop(&b->rig, b->rig.server_loop, begin, b);
    assert_int_equal(b->last->failure->kind, MUSTER__FAILURE__KIND__BAD_ARGUMENT);
    assert_string_equal(b->order, "");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_in_order),
        TEST(test_a_failure_is_the_last),
        TEST(test_one_that_is_asked_twice_is_done_once),
        TEST(test_another_one_meanwhile_is_refused),
        TEST(test_late_steps_say_where_they_are),
        TEST(test_what_is_no_step),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
