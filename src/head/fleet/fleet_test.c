/* fleet_test.c - nodes that an orchestrator lends to a head: leases, drivers, ends
 *
 * The orchestrator is `local`; this very program is the agent that it starts, which dials
 * the head and has workers that are nothing but numbers (test_agents.h). */
#include "base/cleanup.h"
#include "head/head.h"
#include "head/nodes/test_agents.h"
#include "head/test_events.h"
#include "head/test_ops.h"
#include "head/test_serve.h"
#include "io/session/secret.h"
#include "io/spawn.h"
#include "orchestrator/orchestrator.h"

#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NODES = 2, READY_FD = 4, LEAVES = 3, SOON_S = 20 };

static char self[PATH_MAX];

/* ---- what the head is told of pieces, on its own thread ------------------------------ */

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    size_t ended;
    enum ms_cause cause; /* of the last that ended */
    int code;
} told = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void on_piece(void *arg, const char *key, const struct ms_lent_piece *p)
{
    (void)arg;
    (void)key;
    pthread_mutex_lock(&told.lock);
    if (p->phase == MS_PHASE_ENDED) {
        told.ended++;
        told.cause = p->cause;
        told.code = p->code;
    }
    pthread_cond_broadcast(&told.changed);
    pthread_mutex_unlock(&told.lock);
}

static void wait_ended(size_t count)
{
    struct timespec until;
    int rc = 0;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += SOON_S;
    pthread_mutex_lock(&told.lock);
    while (told.ended < count && rc == 0)
        rc = pthread_cond_timedwait(&told.changed, &told.lock, &until);
    pthread_mutex_unlock(&told.lock);
    assert_int_equal(rc, 0);
}

/* ---- the head ------------------------------------------------------------------------ */

static struct ms_head *serve(bool lends)
{
    static const char *const at[] = {"127.0.0.1:0", NULL};
    static char names[NODES][4] = {"n0", "n1"};
    Muster__NodeShape shapes[NODES];
    const Muster__NodeShape *list[NODES];
    struct ms_head_lender lender = {.name = "local",
                                    .agent_path = self,
                                    .nodes = list,
                                    .node_count = NODES,
                                    .on_piece = on_piece};
    struct ms_error err = {0};
    struct ms_head *h;

    for (size_t i = 0; i < NODES; i++) {
        muster__node_shape__init(&shapes[i]);
        shapes[i].name = names[i];
        shapes[i].cpus = 4;
        list[i] = &shapes[i];
    }
    h = ms_head_serve(&(struct ms_head_serve_options){.name = lends ? "lent" : "plain",
                                                      .listen = at,
                                                      .link_grace_ns = MS_NS_PER_S,
                                                      .lender = lends ? &lender : NULL},
                      &err);
    if (!h)
        fail_msg("%s", err.text);
    return h;
}

static int setup(void **state)
{
    if (ops_home_make(state) < 0)
        return -1;
    unsetenv("FAKE_AGENT");
    told.ended = 0;
    serve_head = serve(true);
    snprintf(
        serve_address, sizeof serve_address, "%s", ms_head_addresses(serve_head)[0]);
    return 0;
}

/* With the head all that was lent has ended. */
static int teardown(void **state)
{
    if (serve_head)
        ms_head_stop(MS_TAKE(serve_head), 0);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
    return ops_home_remove(state);
}

/* ---- asking -------------------------------------------------------------------------- */

struct wish {
    const char *key;
    uint32_t count, cpus;
    bool is_more;
    int64_t timeout_ns; /* 0: plenty */
};

static struct ms_head_op *ask(struct ms_head *h, const struct wish *w)
{
    static char spread[] = "STRICT_SPREAD";
    char key[MS_ORCH_KEY_MAX + 8];
    Muster__BundleSpec bundle = MUSTER__BUNDLE_SPEC__INIT, *list[] = {&bundle};
    Muster__PlaceGroup pieces = MUSTER__PLACE_GROUP__INIT;
    Muster__Reserve reserve = MUSTER__RESERVE__INIT;

    snprintf(key, sizeof key, "%s", w->key);
    bundle.count = w->count;
    bundle.cpu_milli = w->cpus * 1000UL;
    pieces.name = key;
    pieces.bundles = list;
    pieces.n_bundles = 1;
    pieces.strategy = spread;
    pieces.timeout_ns =
        (uint64_t)(w->timeout_ns ? w->timeout_ns : SOON_S * MS_NS_PER_S);
    reserve.pieces = &pieces;
    reserve.more = w->is_more;
    return ms_head_request(h, MUSTER__DRIVER_TO_HEAD__BODY_RESERVE, &reserve);
}

/* A gang of that many, each of one CPU. */
static struct ms_head_op *gang(struct ms_head *h, const char *key, uint32_t count)
{
    return ask(h, &(struct wish){.key = key, .count = count, .cpus = 1});
}

static struct ms_head_op *
give_back(struct ms_head *h, const char *key, const uint32_t *numbers, size_t count)
{
    char copy[MS_ORCH_KEY_MAX + 8];
    Muster__ReleasePieces release = MUSTER__RELEASE_PIECES__INIT;

    snprintf(copy, sizeof copy, "%s", key);
    release.key = copy;
    release.numbers = (uint32_t *)(uintptr_t)numbers;
    release.n_numbers = count;
    return ms_head_request(h, MUSTER__DRIVER_TO_HEAD__BODY_RELEASE_PIECES, &release);
}

static struct ms_head_op *describe(struct ms_head *h, const char *key)
{
    char copy[MS_ORCH_KEY_MAX + 8];
    Muster__ReservationRef ref = MUSTER__RESERVATION_REF__INIT;

    snprintf(copy, sizeof copy, "%s", key);
    ref.key = copy;
    return ms_head_request(h, MUSTER__DRIVER_TO_HEAD__BODY_RESERVATION, &ref);
}

/* What a request that must succeed says of a reservation: "0 n0 running, 1 n1 running" */
static void expect_pieces(struct ms_head_op *op, const char *all)
{
    const Muster__Reservation *r = (const Muster__Reservation *)ops_message(op);
    char text[512] = "";
    size_t used = 0;

    assert_non_null(r);
    assert_string_equal(r->orchestrator, "local");
    for (size_t i = 0; i < r->n_pieces; i++)
        used += (size_t)snprintf(text + used,
                                 sizeof text - used,
                                 "%s%u %s %s",
                                 i ? ", " : "",
                                 r->pieces[i]->number,
                                 r->pieces[i]->node,
                                 r->pieces[i]->phase);
    assert_string_equal(text, all);
    ms_head_op_unref(op);
}

/* The agent of a node; 0: there is no such node. */
static pid_t agent_of(const char *node)
{
    struct ms_head_op *op;
    const Muster__Status *s = ops_status(serve_head, &op);
    pid_t pid = 0;

    for (size_t i = 0; i < s->n_nodes; i++)
        if (strcmp(s->nodes[i]->name, node) == 0)
            pid = (pid_t)s->nodes[i]->agent_pid;
    ms_head_op_unref(op);
    assert_true(pid >= 0 && pid != getpid());
    return pid;
}

/* ---- the tests ----------------------------------------------------------------------- */

static void test_lent_and_given_back(void **state)
{
    static const uint32_t third[] = {2};

    (void)state;
    expect_pieces(gang(serve_head, "gang", 2), "0 n0 running, 1 n1 running");
    assert_true(agent_of("n0") > 0 && agent_of("n1") > 0);
    /* the same again is the same; something else is not */
    expect_pieces(gang(serve_head, "gang", 2), "0 n0 running, 1 n1 running");
    ops_expect(gang(serve_head, "gang", 1), -EEXIST, "gang");
    expect_pieces(
        ask(serve_head,
            &(struct wish){.key = "gang", .count = 1, .cpus = 1, .is_more = true}),
        "0 n0 running, 1 n1 running, 2 n0.2 running");
    ops_expect(give_back(serve_head, "gang", third, 1), 0, NULL);
    assert_int_equal(agent_of("n0.2"), 0);
    expect_pieces(describe(serve_head, "gang"), "0 n0 running, 1 n1 running");
    ops_expect(give_back(serve_head, "gang", NULL, 0), 0, NULL);
    assert_int_equal(agent_of("n0"), 0);
    ops_expect(describe(serve_head, "gang"), -ENOENT, "gang");
    ops_expect(give_back(serve_head, "gang", NULL, 0), 0, NULL); /* what is not there */
}

static void test_what_does_not_fit_fails_at_its_deadline(void **state)
{
    const struct wish wide = {
        .key = "wide", .count = 3, .cpus = 1, .timeout_ns = 100 * MS_NS_PER_MS};

    (void)state;
    ops_expect(ask(serve_head, &wide), -ETIMEDOUT, "wide: not lent in time");
    ops_expect(describe(serve_head, "wide"), -ENOENT, NULL);
    /* agents that never came: the error says where they were to come to */
    setenv("FAKE_AGENT", "late", 1);
    ops_expect(ask(serve_head,
                   &(struct wish){.key = "late",
                                  .count = 1,
                                  .cpus = 1,
                                  .timeout_ns = 500 * MS_NS_PER_MS}),
               -ETIMEDOUT,
               "its agents dial the head at 127.0.0.1:");
    unsetenv("FAKE_AGENT");
    expect_pieces(gang(serve_head, "wide", 1), "0 n0 running");
}

static void test_agent_that_ends_before_it_joins(void **state)
{
    (void)state;
    setenv("FAKE_AGENT", "leave", 1);
    ops_expect(gang(serve_head, "gang", 2), -ECHILD, "exited with code 3");
    ops_expect(describe(serve_head, "gang"), -ENOENT, NULL);
}

static void test_agent_that_is_killed(void **state)
{
    (void)state;
    expect_pieces(gang(serve_head, "gang", 2), "0 n0 running, 1 n1 running");
    assert_int_equal(kill(agent_of("n1"), SIGKILL), 0);
    wait_ended(1);
    assert_int_equal(told.cause, MS_CAUSE_SIGNALED);
    assert_int_equal(told.code, SIGKILL);
    expect_pieces(describe(serve_head, "gang"), "0 n0 running, 1 n1 ended");
    assert_int_equal(agent_of("n1"), 0); /* the node is lost with it */
    assert_true(agent_of("n0") > 0);
    ops_expect(give_back(serve_head, "gang", NULL, 0), 0, NULL);
}

static void test_wrong_requests(void **state)
{
    const struct wish more = {.key = "none", .count = 1, .cpus = 1, .is_more = true};
    struct ms_head *plain;
    char name[MS_ORCH_KEY_MAX + 3];

    (void)state;
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = 0;
    ops_expect(ask(serve_head, &more), -ENOENT, "none");
    ops_expect(gang(serve_head, "", 1), -EINVAL, "name");
    ops_expect(gang(serve_head, name, 1), -EINVAL, "name");
    plain = serve(false);
    ops_expect(gang(plain, "gang", 1), -ENOTSUP, "no orchestrator");
    ms_head_stop(plain, 0);
}

static void test_leases_are_their_drivers(void **state)
{
    struct test_events s[2] = {0};
    struct ms_head *drivers[] = {serve_join(&s[0]), serve_join(&s[1])};
    struct ms_head_op *waits;

    (void)state;
    expect_pieces(gang(drivers[0], "mine", 1), "0 n0 running");
    ops_expect(gang(drivers[1], "mine", 1), -EEXIST, "another driver's");
    ops_expect(give_back(drivers[1], "mine", NULL, 0), -EEXIST, "another driver's");
    expect_pieces(describe(drivers[0], "mine"), "0 n0 running");
    /* what the other one waits for is given up with it, too */
    waits = gang(drivers[1], "wide", 3);
    expect_pieces(gang(drivers[1], "theirs", 1), "0 n0.2 running");
    ms_head_stop(drivers[1], 0);
    ms_head_op_unref(waits);
    ms_head_stop(drivers[0], 0);
    /* whole nodes: there is room when all of that has ended */
    expect_pieces(ask(serve_head, &(struct wish){.key = "all", .count = 2, .cpus = 4}),
                  "0 n0 running, 1 n1 running");
}

/* The head ends while some is lent and some is waited for. */
static void test_head_ends(void **state)
{
    struct ms_head_op *waits;
    pid_t agent;

    (void)state;
    expect_pieces(gang(serve_head, "held", 2), "0 n0 running, 1 n1 running");
    agent = agent_of("n0");
    waits = gang(serve_head, "wide", 3);
    ms_head_stop(MS_TAKE(serve_head), 0);
    assert_true(ms_head_op_result(waits, NULL) < 0);
    ms_head_op_unref(waits);
    assert_int_equal(kill(agent, 0), -1);
}

/* ---- this program as an agent -------------------------------------------------------- */

static const char *option(char **argv, const char *name)
{
    for (size_t i = 0; argv[i]; i++)
        if (strcmp(argv[i], name) == 0)
            return argv[i + 1];
    return "";
}

static int agent_main(char **argv)
{
    const char *mode = getenv("FAKE_AGENT");
    uint8_t secret[MS_SESSION_SECRET_SIZE];
    struct pollfd end = {.events = POLLIN};

    end.fd = ms_process_open((pid_t)strtol(option(argv, "--end-with"), NULL, 10));
    if (end.fd < 0 || ms_secret_read(option(argv, "--secret-file"), secret, NULL) < 0)
        return 90;
    if (mode && strcmp(mode, "leave") == 0)
        return LEAVES;
    if (!mode) {
        test_agent_start();
        if (!test_agent_dial(
                option(argv, "--head"), secret, option(argv, "--node-name"), 0))
            return 91;
        if (write(READY_FD, "1", 1) != 1)
            return 92;
    }
    while (poll(&end, 1, -1) < 0)
        ;
    return 93;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(test_lent_and_given_back),
        TEST(test_what_does_not_fit_fails_at_its_deadline),
        TEST(test_agent_that_ends_before_it_joins),
        TEST(test_agent_that_is_killed),
        TEST(test_wrong_requests),
        TEST(test_leases_are_their_drivers),
        TEST(test_head_ends),
    };

    if (argc > 2 && strcmp(argv[1], "agent") == 0)
        return agent_main(argv);
    if (readlink("/proc/self/exe", self, sizeof self - 1) < 0)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
