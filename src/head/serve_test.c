/* serve_test.c - a daemon head with agents and drivers that dial */
#include "base/cleanup.h"
#include "base/clock.h"
#include "head/far_agent.h"
#include "head/head.h"
#include "head/seen.h"
#include "head/state.h"
#include "io/tree.h"
#include "wire/test_proxy.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

static char home[32];
static struct ms_head *head;
static char address[128];

static struct ms_head *serve(const char *listen, struct ms_error *err)
{
    const char *const at[] = {listen, NULL};

    return ms_head_serve(
        &(struct ms_head_serve_options){
            .name = "test",
            .listen = at,
            .link_grace_ns = 1 * MS_NS_PER_S,
        },
        err);
}

static void begin(const char *listen)
{
    struct ms_error err = {0};

    head = serve(listen, &err);
    if (!head)
        fail_msg("%s", err.text);
    snprintf(address, sizeof address, "%s", ms_head_addresses(head)[0]);
}

static int setup(void **state)
{
    (void)state;
    strcpy(home, "/tmp/ms-test-XXXXXX");
    if (!mkdtemp(home) || setenv("MUSTER_HOME", home, 1) < 0)
        return -1;
    far_start();
    begin("127.0.0.1:0");
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    ms_head_stop(MS_TAKE(head), 0);
    far_stop();
    return ms_tree_remove(AT_FDCWD, home);
}

static const uint8_t *secret(void)
{
    return ms_head_session(head)->secret;
}

static struct far_agent *agent(const char *node)
{
    struct far_agent *a = far_dial(address, secret(), node, 4);

    if (!a)
        fail_msg("%s", far_refusal());
    return a;
}

static struct ms_head *join_at(struct seen *s, const char *at)
{
    const char *const python[] = {"python3", NULL};
    struct ms_error err = {0};
    struct ms_head *h = ms_head_join(
        &(struct ms_head_options){
            .python = python,
            .script = "train.py",
            .log_to_driver = true,
            .on_exit = seen_exit,
            .on_log = seen_log,
            .on_agent_lost = seen_lost,
            .arg = s,
        },
        &(struct ms_head_address){.addresses = at, .secret = secret()},
        &err);

    if (!h)
        fail_msg("%s", err.text);
    return h;
}

static struct ms_head *join(struct seen *s)
{
    return join_at(s, address);
}

/* A way to the head that can be broken. */
static void break_point(struct proxy *p)
{
    proxy_start(p, (uint16_t)atoi(strrchr(address, ':') + 1));
    snprintf(p->address, sizeof p->address, "127.0.0.1:%u", p->port);
}

static int finish(struct ms_head_op *op, struct ms_error *err)
{
    assert_int_equal(ms_head_op_wait(op, ms_now_ns() + 20 * MS_NS_PER_S), 0);
    return ms_head_op_result(op, err);
}

static void expect(struct ms_head_op *op, int code, const char *in_text)
{
    struct ms_error err = {0};

    assert_int_equal(finish(op, &err), code);
    if (in_text && !strstr(err.text, in_text))
        fail_msg("'%s' is not in '%s'", in_text, err.text);
    ms_head_op_unref(op);
}

/* One rank on each node, in order. */
static struct ms_head_op *create_on(struct ms_head *h,
                                    const char *name,
                                    const char *const *nodes,
                                    size_t count,
                                    bool detached)
{
    static const uint32_t devices[] = {2, 3};
    struct ms_head_rank ranks[8] = {0};

    for (size_t i = 0; i < count; i++) {
        muster__worker_spec__init(&ranks[i].spec);
        ranks[i].spec.detached = detached;
        ranks[i].node = nodes[i];
        ranks[i].devices = devices;
        ranks[i].device_count = 2;
    }
    return ms_head_create_cluster(h, name, ranks, count);
}

static const char *const both[] = {"a", "b"};

/* A cluster of two, and the uids of its workers. */
static void create(struct ms_head *h, const char *name, bool detached, uint64_t uids[2])
{
    struct ms_head_op *op = create_on(h, name, both, 2, detached);
    const Muster__ClusterStatus *c;
    struct ms_error err = {0};

    if (finish(op, &err) < 0)
        fail_msg("%s", err.text);
    c = (const Muster__ClusterStatus *)ms_head_op_message(op);
    for (size_t i = 0; i < 2; i++)
        uids[i] = c->workers[i]->uid;
    ms_head_op_unref(op);
}

static const Muster__Status *status(struct ms_head_op **op)
{
    *op = ms_head_status(head);
    assert_int_equal(finish(*op, NULL), 0);
    return (const Muster__Status *)ms_head_op_message(*op);
}

static size_t cluster_count(void)
{
    struct ms_head_op *op;
    size_t n = status(&op)->n_clusters;

    ms_head_op_unref(op);
    return n;
}

/* Until the head has written down which nodes it has. */
static void wait_for_names(const char *names)
{
    const struct timespec moment = {.tv_nsec = 10 * MS_NS_PER_MS};
    MS_CLEANUP(ms_cleanup_fd)
    int dir = ms_tree_open(AT_FDCWD, ms_head_session(head)->dir);
    char text[256] = "";

    while (strcmp(text, names) != 0) {
        nanosleep(&moment, NULL);
        ms_tree_read(dir, "nodes", text, sizeof text);
    }
}

/* ---- the tests ------------------------------------------------------------------- */

static void test_a_cluster_over_two_nodes(void **state)
{
    struct far_agent *a = agent("a"), *b = agent("b");
    struct seen s;
    struct ms_head *h;
    struct ms_head_op *op;
    const Muster__Status *st;
    uint64_t uids[2];

    (void)state;
    seen_init(&s);
    h = join(&s);
    create(h, "actor", false, uids);
    assert_int_equal(far_living(a), 1);
    assert_int_equal(far_living(b), 1);
    assert_int_equal(far_contexts(a), 1);

    op = ms_head_status(h); /* asked through the link */
    assert_int_equal(finish(op, NULL), 0);
    st = (const Muster__Status *)ms_head_op_message(op);
    assert_true(st->is_daemon);
    assert_int_equal(st->n_nodes, 2);
    assert_string_equal(st->nodes[1]->name, "b");
    assert_int_equal(st->nodes[1]->gpus, 4);
    assert_int_equal(st->n_drivers, 1);
    assert_int_equal(st->drivers[0]->pid, getpid());
    assert_string_equal(st->drivers[0]->script, "train.py");
    assert_int_equal(st->clusters[0]->driver, st->drivers[0]->driver);
    assert_string_equal(st->clusters[0]->workers[1]->node, "b");
    assert_int_equal(st->clusters[0]->workers[1]->devices[1], 3);
    ms_head_op_unref(op);

    far_exit(b, uids[1], 5);
    seen_wait_exits(&s, 1);
    assert_int_equal(s.uids[0], uids[1]);
    assert_int_equal(s.codes[0], 5);
    far_print(a, uids[0], "hello");
    seen_wait_line(&s, "hello");
    expect(ms_head_destroy_cluster(h, "actor", 0), 0, NULL);
    assert_int_equal(far_living(a), 0);
    seen_wait_exits(&s, 2);
    ms_head_stop(h, 0);
    far_wait_contexts(a, 0);
}

static void test_all_or_none_across_nodes(void **state)
{
    struct far_agent *a = agent("a"), *b = agent("b");
    struct seen s;
    struct ms_head *h;

    (void)state;
    seen_init(&s);
    h = join(&s);
    far_set_mode(b, FAR_FAILS);
    expect(create_on(h, "actor", both, 2, false), -EIO, "node b: no zygote today");
    assert_int_equal(far_started(a), 1);
    assert_int_equal(far_living(a), 0); /* stopped before it completed */
    assert_int_equal(cluster_count(), 0);
    assert_int_equal(s.exits, 0); /* nobody has heard of them */
    far_set_mode(b, FAR_HONEST);
    expect(create_on(h, "actor", both, 2, false), 0, NULL);
    expect(ms_head_hold_port_on(h, "b", "actor:1"), 0, NULL);
    assert_int_equal(far_ports(b), 1);
    assert_int_equal(far_ports(a), 0);
    expect(ms_head_drop_port(h, "actor:1"), 0, NULL);
    assert_int_equal(far_ports(b), 0);
    ms_head_stop(h, 0);
    assert_int_equal(far_living(a), 0);
}

static void test_a_node_ends_while_a_cluster_is_made(void **state)
{
    struct far_agent *a = agent("a"), *b = agent("b");
    struct seen s;
    struct ms_head *h;
    struct ms_head_op *op;

    (void)state;
    seen_init(&s);
    h = join(&s);
    far_set_mode(b, FAR_KEEPS);
    op = create_on(h, "actor", both, 2, false);
    far_wait_started(b, 1);
    far_end(b);
    expect(op, -EPIPE, "node b");
    assert_int_equal(far_living(a), 0);
    ms_head_stop(h, 0);
}

static void test_drivers_have_their_own(void **state)
{
    struct far_agent *a = agent("a"), *b = agent("b");
    struct seen s, t;
    struct ms_head *one, *two;
    uint64_t mine[2], yours[2], kept[2];

    (void)state;
    seen_init(&s);
    seen_init(&t);
    one = join(&s);
    two = join(&t);
    create(one, "mine", false, mine);
    create(two, "yours", false, yours);
    create(one, "kept", true, kept);
    expect(create_on(two, "mine", both, 2, false), -EEXIST, "train.py");
    expect(ms_head_destroy_that_cluster(two, "mine", true, 0, 0), -ENOENT, "'mine'");
    expect(
        ms_head_destroy_that_cluster(two, "mine", false, yours[0], 0), -ENOENT, NULL);
    far_exit(a, mine[0], 1);
    far_print(b, yours[1], "to two");
    seen_wait_exits(&s, 1);
    seen_wait_line(&t, "to two");
    assert_int_equal(t.exits, 0);
    assert_int_equal(s.lines, 0);
    assert_int_equal(far_contexts(a), 2);

    ms_head_stop(one, 0);
    far_wait_living(b, 2); /* yours, kept */
    far_wait_contexts(a, 1);
    assert_int_equal(cluster_count(), 2);
    far_exit(b, kept[1], 9);
    expect(ms_head_ask_death(two, kept[1]), 0, NULL);
    seen_wait_exits(&t, 1);
    assert_int_equal(t.uids[0], kept[1]);
    expect(ms_head_destroy_that_cluster(two, "kept", false, kept[0], 0), 0, NULL);
    ms_head_stop(two, 0);
    assert_int_equal(far_living(a) + far_living(b), 0);
    assert_int_equal(cluster_count(), 0);
}

static void test_an_agent_that_ends_takes_its_workers(void **state)
{
    struct far_agent *b;
    struct seen s;
    struct ms_head *h;
    uint64_t uids[2];

    (void)state;
    agent("a");
    b = agent("b");
    seen_init(&s);
    h = join(&s);
    create(h, "actor", false, uids);
    far_end(b);
    seen_wait_exits(&s, 1);
    assert_int_equal(s.uids[0], uids[1]);
    assert_non_null(strstr(s.details[0], "node b"));
    expect(create_on(h, "more", both, 2, false), -ENODEV, "no node b");
    ms_head_stop(h, 0);
}

static void test_a_second_agent_of_a_name_is_refused(void **state)
{
    uint8_t wrong[32] = {1};

    (void)state;
    agent("a");
    assert_null(far_dial(address, secret(), "a", 1));
    assert_non_null(strstr(far_refusal(), "node a has an agent already"));
    assert_null(far_dial(address, secret(), "../a", 1));
    assert_null(far_dial(address, wrong, "c", 1));
}

static void test_a_second_head_of_a_name_is_refused(void **state)
{
    struct ms_error err = {0};
    char before[32], path[128];
    struct stat st;

    (void)state;
    assert_null(serve("127.0.0.1:0", &err));
    assert_int_equal(err.code, -EBUSY);
    assert_non_null(strstr(err.text, "'test' runs here already"));
    snprintf(path, sizeof path, "%s/secret", ms_head_session(head)->dir);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    memcpy(before, secret(), 32);
    ms_head_stop(head, 0);
    begin("127.0.0.1:0");
    assert_memory_equal(before, secret(), 32); /* it found its own again */
}

static void test_a_head_that_was_started_again(void **state)
{
    struct far_agent *a = agent("a"), *b = agent("b");
    struct seen s;
    struct ms_head *h;
    struct ms_head_op *op, *late;
    const Muster__Status *st;
    uint64_t uids[2], kept[2];

    (void)state;
    seen_init(&s);
    h = join(&s);
    create(h, "actor", false, uids);
    create(h, "kept", true, kept);
    wait_for_names("a\nb\n");
    ms_head_crash(head);
    begin(address);
    late = create_on(h, "new", both, 2, false); /* waits for head and nodes */
    assert_true(far_come_back(a, address));
    assert_true(far_come_back(b, address));
    expect(late, 0, NULL);
    assert_int_equal(far_living(a), 3);

    st = status(&op);
    assert_int_equal(st->n_nodes, 2);
    assert_int_equal(st->n_clusters, 3);
    assert_string_equal(st->clusters[0]->name, "actor");
    assert_int_equal(st->clusters[0]->workers[1]->uid, uids[1]);
    assert_string_equal(st->clusters[0]->workers[1]->address, "/w/far.sock");
    assert_true(st->clusters[1]->detached);
    assert_int_equal(st->n_drivers, 1);
    ms_head_op_unref(op);
    assert_int_equal(s.exits, 0); /* nothing was disturbed */

    far_exit(a, uids[0], 7);
    seen_wait_exits(&s, 1);
    assert_int_equal(s.codes[0], 7);
    ms_head_stop(h, 0);
    assert_int_equal(far_living(b), 1); /* the detached one */
}

static void test_a_driver_that_does_not_come_back(void **state)
{
    struct far_agent *a = agent("a"), *b = agent("b");
    struct seen s;
    struct ms_head *h;
    uint64_t uids[2];

    (void)state;
    seen_init(&s);
    h = join(&s);
    create(h, "actor", false, uids);
    ms_head_crash(head);
    ms_head_stop(h, 0); /* nobody hears of it */
    begin(address);
    assert_true(far_come_back(a, address));
    assert_true(far_come_back(b, address));
    far_wait_living(a, 0); /* after link_grace */
    far_wait_living(b, 0);
}

static void test_an_agents_link_breaks_and_heals(void **state)
{
    struct far_agent *b;
    struct proxy p;
    struct seen s;
    struct ms_head *h;
    struct ms_head_op *op;
    uint64_t uids[2];

    (void)state;
    agent("a");
    break_point(&p);
    b = far_dial(p.address, secret(), "b", 4);
    assert_non_null(b);
    seen_init(&s);
    h = join(&s);
    create(h, "actor", false, uids);
    far_set_mode(b, FAR_KEEPS);
    op = create_on(h, "more", both, 2, false);
    far_wait_started(b, 2);
    proxy_reset(&p);
    assert_true(far_come_back(b, p.address));
    far_answer(b); /* under the number of before */
    expect(op, 0, NULL);
    assert_int_equal(far_started(b), 2);  /* none was started twice */
    assert_int_equal(far_contexts(b), 2); /* told once more */
    assert_int_equal(s.exits, 0);
    far_set_mode(b, FAR_HONEST);
    expect(ms_head_destroy_cluster(h, "actor", 0), 0, NULL);
    ms_head_stop(h, 0);
    assert_int_equal(far_living(b), 0);
    proxy_stop(&p);
}

static void test_an_agents_link_breaks_for_good(void **state)
{
    struct far_agent *b;
    struct proxy p;
    struct seen s;
    struct ms_head *h;
    struct ms_head_op *op;
    uint64_t uids[2];

    (void)state;
    agent("a");
    break_point(&p);
    b = far_dial(p.address, secret(), "b", 4);
    assert_non_null(b);
    seen_init(&s);
    h = join(&s);
    create(h, "actor", false, uids);
    proxy_reset(&p);
    op = ms_head_destroy_cluster(h, "actor", 0); /* waits for the node */
    seen_wait_exits(&s, 2);
    assert_int_equal(s.uids[1], uids[1]);
    assert_non_null(strstr(s.details[1], "node b was silent for 1 s"));
    expect(op, 0, NULL);
    assert_true(far_come_back(b, p.address)); /* too late */
    far_wait_living(b, 0);
    ms_head_stop(h, 0);
    proxy_stop(&p);
}

static void test_a_drivers_link_breaks_and_heals(void **state)
{
    struct far_agent *a = agent("a"), *b = agent("b");
    struct proxy p;
    struct seen s;
    struct ms_head *h;
    struct ms_head_op *op;
    uint64_t uids[2];

    (void)state;
    break_point(&p);
    seen_init(&s);
    h = join_at(&s, p.address);
    create(h, "actor", false, uids);
    far_set_mode(b, FAR_KEEPS);
    op = create_on(h, "more", both, 2, false);
    far_wait_started(b, 2);
    proxy_reset(&p);
    far_exit(a, uids[0], 3); /* perhaps while nobody hears it */
    far_answer(b);
    expect(op, 0, NULL);
    seen_wait_exits(&s, 1);
    expect(ms_head_status(h), 0, NULL); /* what came before has arrived */
    assert_int_equal(s.exits, 1);
    assert_int_equal(s.codes[0], 3);
    assert_int_equal(far_started(b), 2);
    ms_head_stop(h, 0);
    assert_int_equal(far_living(a) + far_living(b), 0);
    proxy_stop(&p);
}

static void test_goodbye_ends_all(void **state)
{
    struct far_agent *a = agent("a");
    struct seen s;
    struct ms_head *h;
    uint64_t uids[2];

    (void)state;
    agent("b");
    seen_init(&s);
    h = join(&s);
    create(h, "actor", false, uids);
    ms_head_stop(MS_TAKE(head), 0);
    seen_wait_lost(&s);
    assert_int_equal(s.exits, 2);
    assert_int_equal(far_living(a), 0);
    expect(ms_head_status(h), -EPIPE, "the head was stopped");
    ms_head_stop(h, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_a_cluster_over_two_nodes),
        TEST(test_all_or_none_across_nodes),
        TEST(test_a_node_ends_while_a_cluster_is_made),
        TEST(test_drivers_have_their_own),
        TEST(test_an_agent_that_ends_takes_its_workers),
        TEST(test_a_second_agent_of_a_name_is_refused),
        TEST(test_a_second_head_of_a_name_is_refused),
        TEST(test_a_head_that_was_started_again),
        TEST(test_a_driver_that_does_not_come_back),
        TEST(test_an_agents_link_breaks_and_heals),
        TEST(test_an_agents_link_breaks_for_good),
        TEST(test_a_drivers_link_breaks_and_heals),
        TEST(test_goodbye_ends_all),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
