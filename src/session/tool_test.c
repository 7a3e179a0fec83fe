/* tool_test.c - tests of tool.h: asking a head as a command does */
#include "session/tool.h"

#include "base/cleanup.h"
#include "base/proto.h"
#include "head/test_serve.h"
#include "wire/test_proxy.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>

static char job_text[] =
    "name: mine\n"
    "on: sim\n"
    "nodes: [{name: n, gpus: 4, cpus: 4}]\n"
    "roles:\n"
    "  a: {worker_cls: w.A, world_size: \"1:4\", num_gpus_per_worker: 1}\n";
static char job_name[] = "mine", role_name[] = "a";

/* A change that is asked for by a thread of its own, through a network that can be broken. */
struct asking {
    struct proxy proxy;
    struct ms_tool tool;
    Muster__DriverToHead__BodyCase what;
    const ProtobufCMessage *want;
    pthread_t thread;
    int rc;
    Muster__JobStatus *status;
    struct ms_error err;
};

static int set_up(void **state)
{
    serve_agent_path = "/nobody/starts/anything";
    return serve_setup(state);
}

static int ask(struct ms_tool *t,
               Muster__DriverToHead__BodyCase what,
               const ProtobufCMessage *want)
{
    struct ms_error err = {0};
    ProtobufCMessage *got = NULL;
    int rc = ms_tool_ask(t, what, want, OPS_DEADLINE_NS, &got, &err);

    protobuf_c_message_free_unpacked(got, NULL);
    return rc == -EREMOTEIO ? err.code : rc;
}

static void *run(void *arg)
{
    struct asking *a = arg;

    a->rc = ms_tool_ask(&a->tool,
                        a->what,
                        a->want,
                        OPS_DEADLINE_NS,
                        (ProtobufCMessage **)&a->status,
                        &a->err);
    return NULL;
}

static void join(struct asking *a)
{
    struct ms_error err = {0};

    *a = (struct asking){0};
    proxy_start(&a->proxy, (uint16_t)atoi(strrchr(serve_address, ':') + 1));
    snprintf(a->proxy.address, sizeof a->proxy.address, "127.0.0.1:%u", a->proxy.port);
    a->tool = (struct ms_tool){.at = {a->proxy.address, serve_secret(), MS_TLS_AUTO},
                               .is_patient = true};
    if (ms_tool_join(&a->tool, OPS_DEADLINE_NS, &err) < 0)
        fail_msg("%s", err.text);
}

static void leave(struct asking *a)
{
    ms_tool_leave(&a->tool);
    proxy_stop(&a->proxy);
    muster__job_status__free_unpacked(a->status, NULL);
}

/* The answer will not arrive. */
static void
begin(struct asking *a, Muster__DriverToHead__BodyCase what, const void *want)
{
    a->what = what;
    a->want = want;
    proxy_hold(&a->proxy, true);
    assert_int_equal(pthread_create(&a->thread, NULL, run, a), 0);
}

/* Now that it was carried out: the link is cut, and the next one works. */
static void cut(struct asking *a, bool is_killed)
{
    if (is_killed) {
        serve_crash();
        serve_begin(serve_address);
    }
    proxy_hold(&a->proxy, false);
    proxy_reset(&a->proxy);
    pthread_join(a->thread, NULL);
    if (a->rc)
        fail_msg("%s", a->err.text);
    assert_string_equal(a->status->name, "mine");
}

/* ---- what the head has ------------------------------------------------------------- */

/* NULL: it has no such job. */
static Muster__JobStatus *look(void)
{
    Muster__JobRef want = MUSTER__JOB_REF__INIT;
    struct ms_head_op *op;
    ProtobufCMessage *copy = NULL;

    want.name = job_name;
    op = ops_request(serve_head, MUSTER__DRIVER_TO_HEAD__BODY_GET_JOB, &want);
    if (ops_finish(op, NULL) == 0)
        copy = ms_proto_copy(ms_head_op_message(op));
    ms_head_op_unref(op);
    return (Muster__JobStatus *)copy;
}

static bool is_there(const Muster__JobStatus *s)
{
    return s;
}

static bool is_gone(const Muster__JobStatus *s)
{
    return !s;
}

static bool is_whole(const Muster__JobStatus *s)
{
    return s && !s->is_recovering && s->roles[0]->running == s->roles[0]->wanted;
}

static bool has_two(const Muster__JobStatus *s)
{
    return is_whole(s) && s->roles[0]->wanted == 2;
}

static bool has_restarted(const Muster__JobStatus *s)
{
    return is_whole(s) && s->roles[0]->restarts > 0;
}

static void wait_until(bool (*is)(const Muster__JobStatus *s))
{
    int64_t until_ns = ms_now_ns() + OPS_DEADLINE_NS;
    bool found = false;

    while (!found) {
        Muster__JobStatus *s = look();

        found = is(s);
        muster__job_status__free_unpacked(s, NULL);
        assert_true(ms_now_ns() < until_ns);
        if (!found)
            poll(NULL, 0, 5);
    }
}

static uint32_t count_restarts(void)
{
    Muster__JobStatus *s;
    uint32_t count;

    wait_until(is_whole);
    s = look();
    count = s->roles[0]->restarts;
    muster__job_status__free_unpacked(s, NULL);
    return count;
}

static size_t count_lines(const char *text)
{
    Muster__AskJobEvents want = MUSTER__ASK_JOB_EVENTS__INIT;
    const Muster__JobEvents *all;
    struct ms_head_op *op;
    size_t count = 0;

    want.name = job_name;
    op = ops_request(serve_head, MUSTER__DRIVER_TO_HEAD__BODY_JOB_EVENTS, &want);
    all = (const Muster__JobEvents *)ops_message(op);
    for (size_t i = 0; i < all->n_events; i++)
        count += strstr(all->events[i]->text, text) != NULL;
    ms_head_op_unref(op);
    return count;
}

/* ---- each change, by a link that breaks, and a head that is killed ------------------ */

static void submit(struct asking *a, bool is_killed)
{
    Muster__SubmitJob want = MUSTER__SUBMIT_JOB__INIT;
    char folder[] = "/tmp";

    want.text = job_text;
    want.folder = folder;
    begin(a, MUSTER__DRIVER_TO_HEAD__BODY_SUBMIT_JOB, &want);
    wait_until(is_there);
    cut(a, is_killed);
    wait_until(is_whole);
}

static void scale(struct asking *a, bool is_killed)
{
    Muster__ScaleJob want = MUSTER__SCALE_JOB__INIT;

    want.name = job_name;
    want.role = role_name;
    want.count = 2;
    begin(a, MUSTER__DRIVER_TO_HEAD__BODY_SCALE_JOB, &want);
    wait_until(has_two);
    cut(a, is_killed);
}

static void restart(struct asking *a, bool is_killed)
{
    Muster__RestartJob want = MUSTER__RESTART_JOB__INIT;

    want.name = job_name;
    begin(a, MUSTER__DRIVER_TO_HEAD__BODY_RESTART_JOB, &want);
    wait_until(has_restarted);
    cut(a, is_killed);
}

static void delete (struct asking *a, bool is_killed)
{
    Muster__JobRef want = MUSTER__JOB_REF__INIT;

    want.name = job_name;
    begin(a, MUSTER__DRIVER_TO_HEAD__BODY_DELETE_JOB, &want);
    wait_until(is_gone);
    cut(a, is_killed);
}

static void in_turn(bool is_killed,
                    void (*const *changes)(struct asking *a, bool is_killed),
                    size_t count)
{
    struct asking a;

    for (size_t i = 0; i < count; i++) {
        join(&a);
        changes[i](&a, is_killed);
        leave(&a);
    }
}

static void check_all(bool is_killed)
{
    void (*const first[])(struct asking *, bool) = {submit, scale, restart};
    void (*const last[])(struct asking *, bool) = {delete};

    in_turn(is_killed, first, MS_COUNT(first));
    assert_int_equal(count_lines("submitted"), 1);
    assert_int_equal(count_lines("scales from"), 1);
    assert_int_equal(count_lines("the job restarts"), 1);
    assert_int_equal(count_restarts(), 2);
    in_turn(is_killed, last, MS_COUNT(last));
    wait_until(is_gone);
}

static void test_each_change_is_made_once_over_a_link_that_breaks(void **state)
{
    (void)state;
    check_all(false);
}

static void test_each_change_is_made_once_by_a_head_that_is_killed(void **state)
{
    (void)state;
    check_all(true);
}

/* What was asked again is not in anybody's way afterwards. */
static void test_nothing_stays_of_who_has_asked(void **state)
{
    Muster__JobRef want = MUSTER__JOB_REF__INIT;
    const Muster__Status *st;
    struct ms_head_op *op;
    struct asking a;

    (void)state;
    want.name = job_name;
    join(&a);
    assert_int_equal(ask(&a.tool, MUSTER__DRIVER_TO_HEAD__BODY_GET_JOB, &want.base),
                     -ENXIO);
    st = ops_status(serve_head, &op);
    assert_int_equal(st->n_drivers, 0); /* it is none */
    ms_head_op_unref(op);
    submit(&a, true);
    assert_int_equal(ask(&a.tool, MUSTER__DRIVER_TO_HEAD__BODY_DELETE_JOB, &want.base),
                     0);
    assert_int_equal(ask(&a.tool, MUSTER__DRIVER_TO_HEAD__BODY_DELETE_JOB, &want.base),
                     -ENXIO);
    leave(&a);
    join(&a);
    submit(&a, false); /* the name is free */
    leave(&a);
}

static void test_a_head_that_is_not_there(void **state)
{
    const uint8_t secret[MS_SESSION_SECRET_SIZE] = {0};
    struct ms_tool t = {.at = {"/nobody/listens", secret, MS_TLS_AUTO}};
    struct ms_error err = {0};

    (void)state;
    assert_int_equal(ms_tool_join(&t, OPS_DEADLINE_NS, &err), -ENOENT);
    assert_int_equal(err.code, -ENOENT);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, serve_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_each_change_is_made_once_over_a_link_that_breaks),
        TEST(test_each_change_is_made_once_by_a_head_that_is_killed),
        TEST(test_nothing_stays_of_who_has_asked),
        cmocka_unit_test(test_a_head_that_is_not_there),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
