/* test_serve.c - for tests: a daemon head on loopback, agents and drivers that
 * dial it */
#include "head/test_serve.h"
#include "base/cleanup.h"
#include "head/head_impl.h"

#include <stdio.h>

/* Longer than any machine takes to come back, and as short as a test likes to wait. */
#define GRACE_NS (60 * MS_NS_PER_S)
#define SOON_NS  (1 * MS_NS_PER_S)

struct ms_head *serve_head;
char serve_address[128];
const char *serve_agent_path;

static int64_t grace_ns;

struct ms_head *serve_at(const char *listen, struct ms_error *err)
{
    const char *const at[] = {listen, NULL};

    return ms_head_serve(
        &(struct ms_head_serve_options){
            .name = "test",
            .listen = at,
            .link_grace_ns = grace_ns,
            .agent_path = serve_agent_path,
        },
        err);
}

void serve_begin(const char *listen)
{
    struct ms_error err = {0};

    serve_head = serve_at(listen, &err);
    if (!serve_head)
        fail_msg("%s", err.text);
    snprintf(
        serve_address, sizeof serve_address, "%s", ms_head_addresses(serve_head)[0]);
}

static int set_up(void **state, int64_t link_grace_ns)
{
    if (ops_home_make(state) < 0)
        return -1;
    grace_ns = link_grace_ns;
    test_agent_start();
    serve_begin("127.0.0.1:0");
    return 0;
}

int serve_setup(void **state)
{
    return set_up(state, GRACE_NS);
}

int serve_setup_hasty(void **state)
{
    return set_up(state, SOON_NS);
}

int serve_teardown(void **state)
{
    ms_head_stop(MS_TAKE(serve_head), 0);
    test_agent_stop();
    return ops_home_remove(state);
}

void serve_crash(void)
{
    ms_head_crash(serve_head);
}

const uint8_t *serve_secret(void)
{
    return ms_head_session(serve_head)->secret;
}

struct test_agent *serve_agent(const char *node)
{
    struct test_agent *a = test_agent_dial(serve_address, serve_secret(), node, 4);

    if (!a)
        fail_msg("%s", test_agent_refusal());
    return a;
}

struct ms_head *serve_join_at(struct test_events *s, const char *at)
{
    const char *const python[] = {"python3", NULL};
    struct ms_error err = {0};
    struct ms_head *h = ms_head_join(
        &(struct ms_head_options){
            .python = python,
            .script = "train.py",
            .log_to_driver = true,
            .on_exit = events_exit,
            .on_log = events_log,
            .on_agent_lost = events_lost,
            .arg = s,
        },
        &(struct ms_head_address){.addresses = at, .secret = serve_secret()},
        &err);

    if (!h)
        fail_msg("%s", err.text);
    return h;
}

struct ms_head *serve_join(struct test_events *s)
{
    return serve_join_at(s, serve_address);
}

void serve_spec(struct spec *s, const char *name)
{
    static const uint32_t devices[] = {2, 3, 6, 7};

    spec_init(s, name, 2);
    spec_add_node(s, "a");
    spec_add_node(s, "b");
    for (size_t i = 0; i < MS_COUNT(devices); i++)
        spec_add_device(s, devices[i]);
    s->place.devices_per_worker = 2;
}

struct ms_head_op *serve_ask(struct ms_head *h, const char *name, bool detached)
{
    struct spec s;

    serve_spec(&s, name);
    s.message.detached = detached;
    return spec_create(h, &s);
}

void serve_create(struct ms_head *h, const char *name, bool detached, uint64_t uids[2])
{
    struct ms_head_op *op = serve_ask(h, name, detached);
    const Muster__ClusterStatus *c = (const Muster__ClusterStatus *)ops_message(op);

    for (size_t i = 0; i < 2; i++)
        uids[i] = c->workers[i]->uid;
    ms_head_op_unref(op);
}

size_t serve_count(void)
{
    struct ms_head_op *op;
    size_t n = ops_status(serve_head, &op)->n_clusters;

    ms_head_op_unref(op);
    return n;
}
