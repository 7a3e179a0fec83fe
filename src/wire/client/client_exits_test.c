/* client_exits_test.c - what a client is told of workers that ended */
#include "wire/client/client_impl.h"
#include "wire/test_rig.h"

struct site {
    struct ms_loop *loop;
    struct ms_client *client;
    unsigned asked, sought;
    uint64_t about; /* the last of both */
};

static void ask(void *arg, uint64_t uid)
{
    struct site *s = arg;

    s->asked++;
    s->about = uid;
}

static void seek(void *arg, uint64_t uid)
{
    struct site *s = arg;

    s->sought++;
    s->about = uid;
}

static int set_up(void **state)
{
    static struct site s;
    static const uint8_t secret[32];
    struct ms_client_options o = {.secret = secret,
                                  .ask_exit = ask,
                                  .ask_successor = seek,
                                  .exit_wait_ns = RIG_DEADLINE_NS,
                                  .arg = &s};

    s = (struct site){.loop = ms_loop_create()};
    o.loop = s.loop;
    s.client = ms_client_create(&o);
    *state = &s;
    return s.client ? 0 : -1;
}

static int tear_down(void **state)
{
    struct site *s = *state;

    ms_client_destroy(s->client, "over");
    ms_loop_destroy(s->loop);
    return 0;
}

static void end(struct site *s, uint64_t uid, int code)
{
    Muster__Exit exit = MUSTER__EXIT__INIT;

    exit.code = code;
    ms_client_worker_exited(s->client, uid, &exit);
}

/* A call to a worker where nobody listens. */
static struct ms_call *call(struct site *s, uint64_t uid)
{
    struct ms_peer *p = ms_peer_create(s->client, "/nowhere/w.sock", uid, "it", NULL);
    struct ms_call *c;

    assert_non_null(p);
    c = ms_peer_call(
        p, &(struct ms_call_spec){.op = MS_OP_HEALTH, .deadline_ns = MS_NEVER});
    ms_peer_unref(p); /* the call holds it */
    assert_non_null(c);
    return c;
}

static void run_until(struct site *s, const unsigned *what)
{
    int64_t until_ns = ms_now_ns() + RIG_DEADLINE_NS;

    while (!*what) {
        ms_loop_run_once(s->loop, true);
        assert_true(ms_now_ns() < until_ns);
    }
}

static void expect_death(struct site *s, struct ms_call *c, int code)
{
    int64_t until_ns = ms_now_ns() + RIG_DEADLINE_NS;
    Muster__Failure *f;
    struct ms_outcome o;

    while (!ms_call_is_done(c)) {
        ms_loop_run_once(s->loop, true);
        assert_true(ms_now_ns() < until_ns);
        if (s->sought)
            ms_client_successor(s->client, s->about, NULL);
    }
    ms_call_outcome(c, &o);
    assert_int_equal(o.kind, MS_KIND_ERROR);
    f = muster__failure__unpack(NULL, o.len, o.body);
    assert_int_equal(f->kind, MUSTER__FAILURE__KIND__WORKER_DIED);
    assert_int_equal(f->exit->code, code);
    muster__failure__free_unpacked(f, NULL);
    ms_call_unref(c);
}

static void test_what_is_known_is_not_asked(void **state)
{
    struct site *s = *state;

    end(s, 5, 3);
    end(s, 5, 4); /* a second report changes nothing */
    expect_death(s, call(s, 5), 3);
    assert_int_equal(s->asked, 0);
    assert_int_equal(s->sought, 1); /* the call had not been sent */
    assert_int_equal(s->about, 5);
}

static void test_what_is_unknown_is_asked(void **state)
{
    struct site *s = *state;
    struct ms_call *c = call(s, 6);

    run_until(s, &s->asked);
    assert_int_equal(s->about, 6);
    assert_false(ms_call_is_done(c));
    end(s, 7, 1); /* another one */
    assert_false(ms_call_is_done(c));
    end(s, 6, 2);
    expect_death(s, c, 2);
}

static unsigned kept(const struct ms_exits *e)
{
    unsigned count = 0;

    for (unsigned i = 0; i < MS_EXITS_KEPT; i++)
        count += e->kept[i] != NULL;
    return count;
}

static void test_the_oldest_is_forgotten_and_asked_again(void **state)
{
    struct site *s = *state;
    struct ms_call *c;

    for (uint64_t uid = 1; uid <= 10 * MS_EXITS_KEPT; uid++)
        end(s, uid, 9);
    assert_int_equal(kept(&s->client->exits), MS_EXITS_KEPT);
    expect_death(s, call(s, 10 * MS_EXITS_KEPT), 9);
    assert_int_equal(s->asked, 0);
    c = call(s, 1);
    run_until(s, &s->asked);
    assert_int_equal(s->about, 1);
    end(s, 1, -1); /* who was asked does not know either */
    expect_death(s, c, -1);
    assert_int_equal(kept(&s->client->exits), MS_EXITS_KEPT);
}

/* Of a worker that nobody here calls: it is known when somebody does. */
static void test_before_there_is_a_peer(void **state)
{
    struct site *s = *state;

    end(s, 8, 1);
    ms_client_successor(s->client, 8, NULL);
    expect_death(s, call(s, 8), 1);
    assert_int_equal(s->asked, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_what_is_known_is_not_asked),
        TEST(test_what_is_unknown_is_asked),
        TEST(test_the_oldest_is_forgotten_and_asked_again),
        TEST(test_before_there_is_a_peer),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
