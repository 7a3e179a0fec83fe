/* fake_daemon.c - a daemon head for the tests of agents that dial */
#include "agent/fake_daemon.h"
#include "agent/agent.h"
#include "base/cleanup.h"
#include "io/tcp.h"
#include "resource/shape.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static uint8_t secret[32];

static void on_link(void *arg, struct ms_link *l)
{
    struct fake_daemon *d = arg;

    d->links++;
    ms_link_destroy(d->head.link); /* the newer one counts */
    d->head.link = l;
    ms_link_accept(l, &fake_head_link_ops, &d->head);
}

static void on_request(void *arg, struct ms_request *r)
{
    (void)arg;
    ms_request_fail_text(r, MUSTER__FAILURE__KIND__REFUSED, "no");
}

void fake_daemon_start(struct fake_daemon *d)
{
    static const struct ms_server_ops ops = {.on_link = on_link,
                                             .on_request = on_request};
    struct ms_server_options o = {
        .loop = d->head.loop, .secret = secret, .identity = 1, .ops = &ops, .arg = d};
    struct ms_error err = {0};
    int fd = ms_tcp_listen("127.0.0.1", &d->port, &err);

    if (fd < 0)
        fail_msg("%s", err.text);
    d->id++;
    d->server = ms_server_create(&o);
    assert_non_null(d->server);
    assert_int_equal(ms_server_listen(d->server, fd), 0);
}

void fake_daemon_stop(struct fake_daemon *d)
{
    ms_link_destroy(d->head.link);
    d->head.link = NULL;
    ms_server_destroy(d->server);
    d->server = NULL;
}

void fake_daemon_init(struct fake_daemon *d)
{
    *d = (struct fake_daemon){.node = "there", .session = "train"};
    fake_head_init(&d->head);
    snprintf(d->head.dir, sizeof d->head.dir, "%s/train@there", d->head.root);
    d->head.loop = ms_loop_create();
    assert_non_null(d->head.loop);
    fake_daemon_start(d);
}

void fake_daemon_start_agent(struct fake_daemon *d)
{
    MS_CLEANUP(ms_shape_cleanup) Muster__NodeShape *shape = ms_shape_create("");
    char address[32];
    struct ms_join_options o = {.head = address,
                                .secret = d->agent_secret,
                                .node_name = d->node,
                                .shape = shape};

    assert_non_null(shape);
    shape->cpus = 5;
    ms_shape_add_devices(shape, &(struct ms_shape_devices){.count = 3}, NULL);
    ms_shape_add_label_text(shape, "rack=7", NULL);
    snprintf(address, sizeof address, "127.0.0.1:%u", (unsigned)d->port);
    fflush(NULL);
    d->head.agent_pid = fork();
    assert_true(d->head.agent_pid >= 0);
    if (d->head.agent_pid > 0)
        return;
    for (int sig = 1; sig < NSIG; sig++)
        signal(sig, SIG_DFL); /* cmocka would go on with the tests after a crash */
    if (!getenv("MUSTER_TEST_VERBOSE") && !freopen("/dev/null", "we", stderr))
        _exit(99);
    exit(ms_agent_join(&o));
}

int fake_daemon_join_agent(struct fake_daemon *d)
{
    return fake_head_join(&d->head);
}

void fake_daemon_finish(struct fake_daemon *d)
{
    if (d->server)
        fake_daemon_stop(d);
    fake_head_free(&d->head);
}

static bool has_hello(struct fake_head *h)
{
    return fake_head_has(h, MUSTER__AGENT_TO_HEAD__BODY_HELLO);
}

Muster__AgentToHead *fake_daemon_hello(struct fake_daemon *d)
{
    Muster__AgentToHead *m;

    fake_head_run(&d->head, has_hello);
    m = fake_head_take(&d->head, MUSTER__AGENT_TO_HEAD__BODY_HELLO);
    assert_int_equal(m->hello->who_case, MUSTER__LINK_HELLO__WHO_AGENT);
    return m;
}

void fake_daemon_welcome(struct fake_daemon *d)
{
    Muster__HeadToAgent m = MUSTER__HEAD_TO_AGENT__INIT;
    Muster__LinkWelcome w = MUSTER__LINK_WELCOME__INIT;
    Muster__AgentConfig c = MUSTER__AGENT_CONFIG__INIT;
    Muster__DriverContext context = MUSTER__DRIVER_CONTEXT__INIT;

    c.context = &context;
    context.wants_logs = true;
    context.env = d->head.env;
    while (d->head.env[context.n_env])
        context.n_env++;
    w.session = (char *)(uintptr_t)d->session;
    w.head = d->id;
    w.link_grace_ns = d->link_grace_ns;
    w.head_grace_ns = d->head_grace_ns;
    w.config = &c;
    m.body_case = MUSTER__HEAD_TO_AGENT__BODY_WELCOME;
    m.welcome = &w;
    assert_int_equal(ms_link_send(d->head.link, &m.base), 0);
}

void fake_daemon_refuse(struct fake_daemon *d, const char *why)
{
    Muster__HeadToAgent m = MUSTER__HEAD_TO_AGENT__INIT;
    Muster__Failure f = MUSTER__FAILURE__INIT;

    f.kind = MUSTER__FAILURE__KIND__REFUSED;
    f.message = (char *)(uintptr_t)why;
    m.body_case = MUSTER__HEAD_TO_AGENT__BODY_FAILURE;
    m.failure = &f;
    assert_int_equal(ms_link_send(d->head.link, &m.base), 0);
}

void fake_daemon_stop_agent(struct fake_daemon *d)
{
    Muster__HeadToAgent m = MUSTER__HEAD_TO_AGENT__INIT;
    Muster__AgentStop stop = MUSTER__AGENT_STOP__INIT;
    Muster__AgentToHead *answer;

    m.body_case = MUSTER__HEAD_TO_AGENT__BODY_SHUTDOWN;
    m.shutdown = &stop;
    answer = fake_head_answer(&d->head, fake_head_send(&d->head, &m));
    assert_int_equal(answer->body_case, MUSTER__AGENT_TO_HEAD__BODY_DONE);
    fake_free(answer);
    assert_int_equal(fake_daemon_join_agent(d), 0);
}
