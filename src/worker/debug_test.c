/* debug_test.c - a debugger's terminal, and clients that come and go */
#include "base/limits.h"
#include "base/proto.h"
#include "wire/test_rig.h"
#include "worker/debug.h"

#include <unistd.h>

struct bench {
    struct rig rig;
    struct ms_debug *debug;
};

static struct bench *bench;

static void on_request(void *arg, struct ms_request *r)
{
    (void)arg;
    ms_debug_ask(bench->debug, r);
}

static void make_debug(void *arg)
{
    struct bench *b = arg;

    b->debug = ms_debug_create(b->rig.server_loop, getpid());
}

static void drop_debug(void *arg)
{
    struct bench *b = arg;

    ms_debug_destroy(b->debug);
}

static int setup(void **state)
{
    bench = calloc(1, sizeof *bench);
    bench->rig.on_request = on_request;
    rig_start(&bench->rig);
    rig_on_loop(&bench->rig, bench->rig.server_loop, make_debug, bench);
    *state = bench;
    return bench->debug ? 0 : -1;
}

static int teardown(void **state)
{
    struct bench *b = *state;

    rig_on_loop(&b->rig, b->rig.server_loop, drop_debug, b);
    rig_stop(&b->rig);
    free(b);
    return 0;
}

static struct ms_call *ask(uint64_t client, Muster__Debug *m)
{
    MS_CLEANUP(ms_buf_finish) struct ms_buf packed = {0};
    static char who[] = "me";
    struct iovec iov;
    struct ms_call *c;

    m->client = client;
    m->who = who;
    assert_int_equal(ms_proto_pack(&m->base, &packed), 0);
    iov = (struct iovec){packed.data, packed.len};
    c = ms_peer_call(bench->rig.peer,
                     &(struct ms_call_spec){.op = MS_OP_DEBUG,
                                            .codec = MS_CODEC_PROTO,
                                            .deadline_ns = MS_NEVER,
                                            .iov = &iov,
                                            .count = 1});
    assert_non_null(c);
    return c;
}

static Muster__DebugState *answer_of(struct ms_call *c)
{
    Muster__DebugState *m;
    struct ms_outcome o;

    assert_int_equal(ms_call_wait(c, ms_now_ns() + RIG_DEADLINE_NS), 0);
    ms_call_outcome(c, &o);
    assert_int_equal(o.kind, MS_KIND_REPLY);
    m = muster__debug_state__unpack(NULL, o.len, o.body);
    assert_non_null(m);
    ms_call_unref(c);
    return m;
}

static void expect(struct ms_call *c, bool is_open, const char *output, uint64_t prompt)
{
    Muster__DebugState *m = answer_of(c);

    assert_int_equal(m->is_open, is_open);
    assert_int_equal(m->output.len, strlen(output));
    if (m->output.len)
        assert_memory_equal(m->output.data, output, m->output.len);
    assert_int_equal(m->prompt, prompt);
    muster__debug_state__free_unpacked(m, NULL);
}

static struct ms_call *poll_of(uint64_t client, uint64_t seen, uint64_t prompt)
{
    Muster__Debug m = MUSTER__DEBUG__INIT;

    m.seen = seen;
    m.prompt = prompt;
    m.wait_ns = MS_DEBUG_HOLD_NS;
    return ask(client, &m);
}

static struct ms_call *
type(uint64_t client, uint64_t seen, uint64_t prompt, const char *line)
{
    Muster__Debug m = MUSTER__DEBUG__INIT;

    m.seen = seen;
    m.prompt = prompt;
    m.has_line = true;
    m.line = (ProtobufCBinaryData){strlen(line), (uint8_t *)(uintptr_t)line};
    m.wait_ns = MS_DEBUG_HOLD_NS;
    return ask(client, &m);
}

static void read_line(const char *wanted)
{
    char *line = NULL;

    assert_int_equal(ms_debug_read(bench->debug, &line), 0);
    assert_string_equal(line, wanted);
    free(line);
}

static void test_a_session(void **state)
{
    struct bench *b = *state;
    struct ms_call *c;

    expect(poll_of(5, 0, 0), false, "", 0); /* nothing waits */
    assert_false(ms_debug_open(b->debug, "f.py:1 in f"));
    ms_debug_write(b->debug, "> f.py\n", 7);
    ms_debug_prompt(b->debug, "(Pdb) ");
    expect(poll_of(5, 0, 0), true, "> f.py\n", 1);
    c = type(5, 7, 1, "p 1");
    read_line("p 1");
    ms_debug_write(b->debug, "1\n", 2); /* answers the question that is held */
    expect(c, true, "1\n", 0);
    c = poll_of(5, 9, 0);
    ms_debug_prompt(b->debug, "(Pdb) ");
    expect(c, true, "", 2);
    assert_true(ms_debug_open(b->debug, "f.py:2 in f"));
    c = poll_of(5, 9, 2);
    ms_debug_close(b->debug);
    expect(c, false, "", 0);
}

static void test_one_client_at_a_time(void **state)
{
    Muster__Debug detach = MUSTER__DEBUG__INIT, look = MUSTER__DEBUG__INIT;
    struct bench *b = *state;
    Muster__DebugState *m;
    struct ms_call *c;

    ms_debug_open(b->debug, "here");
    ms_debug_prompt(b->debug, "(Pdb) ");
    expect(poll_of(5, 0, 0), true, "", 1);
    c = poll_of(5, 0, 1);
    for (uint64_t other = 0; other < 10; other += 9) {
        m = answer_of(ask(other, &look));
        assert_string_equal(m->where, "here");
        assert_string_equal(m->client, "me");
        assert_int_equal(m->prompt, 0);
        muster__debug_state__free_unpacked(m, NULL);
    }
    detach.detach = true;
    expect(ask(5, &detach), true, "", 1);
    expect(c, true, "", 1);
    expect(poll_of(9, 0, 0), true, "", 1);
}

/* A line of a prompt that is no more goes nowhere. */
static void test_late_lines(void **state)
{
    struct bench *b = *state;
    struct ms_call *c;

    ms_debug_open(b->debug, "here");
    ms_debug_prompt(b->debug, "(Pdb) ");
    ms_debug_prompt(b->debug, "(Pdb) ");
    expect(type(5, 0, 1, "late"), true, "", 2);
    c = type(5, 0, 2, "now");
    read_line("now");
    ms_debug_close(b->debug);
    expect(c, false, "", 0);
}

static void test_much_output(void **state)
{
    struct bench *b = *state;
    Muster__DebugState *m;
    char line[1000];

    memset(line, 'x', sizeof line);
    ms_debug_open(b->debug, "here");
    for (size_t i = 0; i < 3000; i++)
        ms_debug_write(b->debug, line, sizeof line);
    m = answer_of(poll_of(5, 0, 0));
    assert_int_equal(m->output.len, MS_DEBUG_OUTPUT_MAX);
    assert_int_equal(m->output_end, 3000 * sizeof line);
    muster__debug_state__free_unpacked(m, NULL);
}

static void test_garbage(void **state)
{
    struct bench *b = *state;
    static uint8_t bytes[] = "\xff\xff\xff";
    struct iovec iov = {bytes, 3};
    struct ms_outcome o;
    struct ms_call *c = ms_peer_call(b->rig.peer,
                                     &(struct ms_call_spec){.op = MS_OP_DEBUG,
                                                            .codec = MS_CODEC_PROTO,
                                                            .deadline_ns = MS_NEVER,
                                                            .iov = &iov,
                                                            .count = 1});

    assert_int_equal(ms_call_wait(c, ms_now_ns() + RIG_DEADLINE_NS), 0);
    ms_call_outcome(c, &o);
    assert_int_equal(o.kind, MS_KIND_ERROR);
    ms_call_unref(c);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_a_session),
        TEST(test_one_client_at_a_time),
        TEST(test_late_lines),
        TEST(test_much_output),
        TEST(test_garbage),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
