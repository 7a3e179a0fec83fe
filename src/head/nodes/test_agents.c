/* test_agents.c - agents that a test plays, on a loop of their own */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/list.h"
#include "base/name.h"
#include "head/nodes/test_agents_impl.h"
#include "head/nodes/test_steps.h"
#include "io/loop.h"
#include "proto/muster.pb-c.h"
#include "resource/shape.h"
#include "wire/frame.h"
#include "wire/link/link.h"

#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct test_agent_loop test_agents = {.lock = PTHREAD_MUTEX_INITIALIZER,
                                      .changed = PTHREAD_COND_INITIALIZER};

static void *run(void *arg)
{
    ms_loop_run(test_agents.loop);
    return arg;
}

void test_agent_start(void)
{
    test_agents.loop = ms_loop_create();
    ms_list_init(&test_agents.agents);
    pthread_create(&test_agents.thread, NULL, run, NULL);
}

static void agent_free(struct test_agent *a)
{
    ms_list_remove(&a->link);
    ms_link_destroy(a->wire);
    for (size_t i = 0; i < a->count; i++) {
        muster__worker_spec__free_unpacked(a->workers[i].spec, NULL);
        free(a->workers[i].steps);
    }
    free(a);
}

void test_agent_stop(void)
{
    ms_loop_stop(test_agents.loop);
    pthread_join(test_agents.thread, NULL);
    ms_list_each (a, &test_agents.agents, struct test_agent, link)
        agent_free(a);
    ms_loop_destroy(test_agents.loop);
}

const char *test_agent_refusal(void)
{
    return test_agents.refusal;
}

/* ---- what it answers; test_agents.lock is held ------------------------------------------- */

void test_agent_send(struct test_agent *a, Muster__AgentToHead *m)
{
    if (a->wire)
        ms_link_send(a->wire, &m->base);
}

static void answer_done(struct test_agent *a, uint64_t request)
{
    Muster__Done done = MUSTER__DONE__INIT;
    Muster__AgentToHead m = MUSTER__AGENT_TO_HEAD__INIT;

    m.request = request;
    m.body_case = MUSTER__AGENT_TO_HEAD__BODY_DONE;
    m.done = &done;
    if (request)
        test_agent_send(a, &m);
}

static void begin_workers(struct test_agent *a, Muster__StartWorkers *s)
{
    for (size_t i = 0; i < s->n_workers; i++) {
        assert(a->count < TEST_AGENT_WORKERS_MAX);
        a->workers[a->count].spec = MS_TAKE(s->workers[i]);
        a->workers[a->count++].lives = true;
    }
    s->n_workers = 0;
}

static void started(Muster__WorkerStarted *s, const struct test_agent *a, size_t i)
{
    static char address[] = "/w/far.sock", log_path[] = "/logs/far.log";

    muster__worker_started__init(s);
    s->uid = a->workers[i].spec->uid;
    s->pid = 1000 + (int)i;
    s->address = address;
    s->log_path = log_path;
}

/* For the last `n` workers. */
void test_agent_answer_started(struct test_agent *a, uint64_t request, size_t n)
{
    Muster__WorkerStarted each[TEST_AGENT_WORKERS_MAX],
        *pointers[TEST_AGENT_WORKERS_MAX];
    Muster__WorkersStarted all = MUSTER__WORKERS_STARTED__INIT;
    Muster__AgentToHead m = MUSTER__AGENT_TO_HEAD__INIT;

    for (size_t i = 0; i < n; i++) {
        started(&each[i], a, a->count - n + i);
        pointers[i] = &each[i];
    }
    all.n_workers = n;
    all.workers = pointers;
    m.request = request;
    m.body_case = MUSTER__AGENT_TO_HEAD__BODY_STARTED;
    m.started = &all;
    test_agent_send(a, &m);
}

static void answer_failure(struct test_agent *a, uint64_t request)
{
    static char why[] = "no zygote today";
    Muster__Failure f = MUSTER__FAILURE__INIT;
    Muster__AgentToHead m = MUSTER__AGENT_TO_HEAD__INIT;

    f.message = why;
    m.request = request;
    m.body_case = MUSTER__AGENT_TO_HEAD__BODY_FAILURE;
    m.failure = &f;
    test_agent_send(a, &m);
}

static void on_start(struct test_agent *a, Muster__HeadToAgent *m)
{
    size_t n = m->start->n_workers;

    if (a->mode == TEST_AGENT_FAILS) {
        answer_failure(a, m->request);
        return;
    }
    if (a->last_start == m->request) { /* asked once more */
        if (!a->kept)
            test_agent_answer_started(a, m->request, n);
        return;
    }
    a->last_start = m->request;
    begin_workers(a, m->start);
    if (a->mode == TEST_AGENT_KEEPS)
        a->kept = m->request;
    else
        test_agent_answer_started(a, m->request, n);
}

void test_agent_end_worker(struct test_agent *a, size_t i, int code)
{
    Muster__Exit e = MUSTER__EXIT__INIT;
    Muster__WorkerExited exited = MUSTER__WORKER_EXITED__INIT;
    Muster__AgentToHead m = MUSTER__AGENT_TO_HEAD__INIT;

    if (!a->workers[i].lives)
        return;
    a->workers[i].lives = false;
    e.code = code;
    e.node = a->node;
    exited.uid = a->workers[i].spec->uid;
    exited.exit = &e;
    m.body_case = MUSTER__AGENT_TO_HEAD__BODY_EXITED;
    m.exited = &exited;
    test_agent_send(a, &m);
}

static void
on_stop(struct test_agent *a, uint64_t request, const Muster__StopWorkers *s)
{
    for (size_t k = 0; k < s->n_uids; k++)
        for (size_t i = 0; i < a->count; i++)
            if (a->workers[i].spec->uid == s->uids[k])
                test_agent_end_worker(a, i, 0);
    answer_done(a, request);
}

/* ---- steps ----------------------------------------------------------------------- */

static void note_steps(struct test_agent_worker *w, const Muster__RunSteps *run)
{
    for (size_t i = 0; i < run->n_steps; i++) {
        MS_CLEANUP(ms_cleanup_free) char *before = w->steps;
        const Muster__Step *s = run->steps[i];

        if (asprintf(&w->steps,
                     "%s%s%s=%.*s",
                     before ? before : "",
                     before ? " " : "",
                     s->method,
                     (int)s->arguments[0].len,
                     (const char *)s->arguments[0].data) < 0)
            w->steps = NULL;
    }
}

static void answer_steps(struct test_agent *a,
                         const Muster__HeadToAgent *q,
                         const Muster__RunSteps *run)
{
    struct steps_answer answer;

    steps_answer_fill(&answer, q, run, a->mode == TEST_AGENT_STEPS_FAIL);
    if (q->request)
        test_agent_send(a, &answer.message);
}

static void on_run_steps(struct test_agent *a, const Muster__HeadToAgent *q)
{
    const Muster__RunSteps *run;
    size_t i = 0;

    a->runs++;
    while (i < a->count && a->workers[i].spec->uid != q->run_steps->uid)
        i++;
    assert(i < a->count);
    run = steps_asked(q, a->workers[i].spec->steps);
    note_steps(&a->workers[i], run);
    if (a->mode == TEST_AGENT_STEPS_DIE)
        test_agent_end_worker(a, i, 7);
    else if (a->mode != TEST_AGENT_STEPS_NEVER)
        answer_steps(a, q, run);
}

/* ---- the rest -------------------------------------------------------------------- */

static void
on_hold_port(struct test_agent *a, uint64_t request, const Muster__HoldPort *hold)
{
    char host[sizeof a->node + 8];
    Muster__PortHeld port = MUSTER__PORT_HELD__INIT;
    Muster__AgentToHead m = MUSTER__AGENT_TO_HEAD__INIT;

    assert(a->ports < TEST_AGENT_PORTS_MAX);
    snprintf(a->owners[a->ports++], sizeof a->owners[0], "%s", hold->owner);
    snprintf(host, sizeof host, "%s.host", a->node);
    port.host = host;
    port.port = 4711;
    m.request = request;
    m.body_case = MUSTER__AGENT_TO_HEAD__BODY_PORT;
    m.port = &port;
    test_agent_send(a, &m);
}

static void drop_port(struct test_agent *a, const char *owner)
{
    size_t i = 0;

    while (i < a->ports && strcmp(a->owners[i], owner) != 0)
        i++;
    if (i < a->ports)
        memmove(a->owners[i], a->owners[--a->ports], sizeof a->owners[0]);
}

static void on_message(struct test_agent *a, Muster__HeadToAgent *m)
{
    switch (m->body_case) {
    case MUSTER__HEAD_TO_AGENT__BODY_WELCOME:
        a->welcome = true;
        if (a->head != m->welcome->head)
            a->last_start = 0; /* another head counts anew */
        a->head = m->welcome->head;
        break;
    case MUSTER__HEAD_TO_AGENT__BODY_FAILURE:
        snprintf(
            test_agents.refusal, sizeof test_agents.refusal, "%s", m->failure->message);
        a->refused = true;
        break;
    case MUSTER__HEAD_TO_AGENT__BODY_START:
        on_start(a, m);
        break;
    case MUSTER__HEAD_TO_AGENT__BODY_STOP:
        on_stop(a, m->request, m->stop);
        break;
    case MUSTER__HEAD_TO_AGENT__BODY_HOLD_PORT:
        on_hold_port(a, m->request, m->hold_port);
        break;
    case MUSTER__HEAD_TO_AGENT__BODY_RUN_STEPS:
        on_run_steps(a, m);
        break;
    case MUSTER__HEAD_TO_AGENT__BODY_DROP_PORT:
        drop_port(a, m->drop_port->owner);
        answer_done(a, m->request);
        break;
    case MUSTER__HEAD_TO_AGENT__BODY_DRIVER:
        a->contexts++;
        break;
    case MUSTER__HEAD_TO_AGENT__BODY_FORGET_DRIVER:
        a->contexts--;
        break;
    case MUSTER__HEAD_TO_AGENT__BODY_SHUTDOWN:
        for (size_t i = 0; i < a->count; i++)
            test_agent_end_worker(a, i, 0);
        a->ended = true;
        ms_link_destroy(MS_TAKE(a->wire));
        break;
    default:
        answer_done(a, m->request);
    }
}

static void on_body(void *arg, const uint8_t *body, size_t len)
{
    struct test_agent *a = arg;
    Muster__HeadToAgent *m = muster__head_to_agent__unpack(NULL, len, body);

    assert(m);
    pthread_mutex_lock(&test_agents.lock);
    on_message(a, m);
    pthread_cond_broadcast(&test_agents.changed);
    pthread_mutex_unlock(&test_agents.lock);
    muster__head_to_agent__free_unpacked(m, NULL);
}

static void on_closed(void *arg, const struct ms_error *why)
{
    struct test_agent *a = arg;

    pthread_mutex_lock(&test_agents.lock);
    if (!a->refused)
        snprintf(test_agents.refusal, sizeof test_agents.refusal, "%s", why->text);
    a->refused = true;
    ms_link_destroy(MS_TAKE(a->wire));
    pthread_cond_broadcast(&test_agents.changed);
    pthread_mutex_unlock(&test_agents.lock);
}

/* ---- hello ----------------------------------------------------------------------- */

static void report(const struct test_agent *a,
                   size_t i,
                   Muster__WorkerReport *r,
                   Muster__WorkerStarted *s)
{
    static Muster__Exit dead = MUSTER__EXIT__INIT;

    muster__worker_report__init(r);
    started(s, a, i);
    r->spec = a->workers[i].spec;
    r->started = a->kept ? NULL : s;
    if (!a->workers[i].lives)
        r->exit = &dead;
}

static void on_open(void *arg)
{
    static char host_id[] = "00000000feedbeef";
    struct test_agent *a = arg;
    Muster__WorkerReport reports[TEST_AGENT_WORKERS_MAX],
        *pointers[TEST_AGENT_WORKERS_MAX];
    Muster__WorkerStarted begun[TEST_AGENT_WORKERS_MAX];
    Muster__PortReport ports[TEST_AGENT_PORTS_MAX], *port_list[TEST_AGENT_PORTS_MAX];
    Muster__AgentReady ready = MUSTER__AGENT_READY__INIT;
    Muster__AgentHello agent = MUSTER__AGENT_HELLO__INIT;
    Muster__LinkHello hello = MUSTER__LINK_HELLO__INIT;
    Muster__AgentToHead m = MUSTER__AGENT_TO_HEAD__INIT;

    pthread_mutex_lock(&test_agents.lock);
    ready.pid = getpid();
    ready.shape = ms_shape_create(a->node);
    assert(ready.shape);
    ready.shape->cpus = 8;
    ready.shape->memory = 1 << 30;
    ms_shape_add_devices(
        ready.shape, &(struct ms_shape_devices){.count = a->gpus}, NULL);
    ready.node_name = a->node;
    ready.host_id = host_id;
    for (size_t i = 0; i < a->count; i++) {
        report(a, i, &reports[i], &begun[i]);
        pointers[i] = &reports[i];
    }
    agent.agent = a->id;
    agent.head = a->head;
    agent.ready = &ready;
    agent.n_workers = a->count;
    agent.workers = pointers;
    for (size_t i = 0; i < a->ports; i++) {
        muster__port_report__init(&ports[i]);
        ports[i].owner = a->owners[i];
        port_list[i] = &ports[i];
    }
    agent.n_ports = a->ports;
    agent.ports = port_list;
    hello.protocol = MS_FRAME_VERSION;
    hello.who_case = MUSTER__LINK_HELLO__WHO_AGENT;
    hello.agent = &agent;
    m.body_case = MUSTER__AGENT_TO_HEAD__BODY_HELLO;
    m.hello = &hello;
    test_agent_send(a, &m);
    ms_shape_destroy(ready.shape);
    pthread_mutex_unlock(&test_agents.lock);
}

void test_agent_connect(void *arg)
{
    static const struct ms_link_ops ops = {
        .on_body = on_body, .on_closed = on_closed, .on_open = on_open};
    struct test_agent *a = arg;
    struct ms_error err = {0};

    a->wire = ms_link_dial(test_agents.loop,
                           &(struct ms_link_dial){
                               .addresses = a->address,
                               .secret = a->secret,
                               .tls = a->tls,
                               .deadline_ns = ms_now_ns() + 60 * MS_NS_PER_S,
                               .is_patient = true,
                           },
                           &ops,
                           a,
                           &err);
    assert(a->wire);
}

bool test_agent_wait_welcome(struct test_agent *a)
{
    bool welcome;

    pthread_mutex_lock(&test_agents.lock);
    while (!a->welcome && !a->refused)
        pthread_cond_wait(&test_agents.changed, &test_agents.lock);
    welcome = a->welcome;
    pthread_mutex_unlock(&test_agents.lock);
    return welcome;
}

static struct test_agent *agent_create(const char *address,
                                       const uint8_t *secret,
                                       const char *node,
                                       unsigned gpus)
{
    struct test_agent *a = calloc(1, sizeof *a);

    assert(a);
    snprintf(a->address, sizeof a->address, "%s", address);
    snprintf(a->node, sizeof a->node, "%s", node);
    memcpy(a->secret, secret, sizeof a->secret);
    a->id = ms_random_id();
    a->gpus = gpus;
    pthread_mutex_lock(&test_agents.lock);
    ms_list_add_tail(&test_agents.agents, &a->link);
    pthread_mutex_unlock(&test_agents.lock);
    return a;
}

struct test_agent *test_agent_dial(const char *address,
                                   const uint8_t *secret,
                                   const char *node,
                                   unsigned gpus)
{
    struct test_agent *a = agent_create(address, secret, node, gpus);

    ms_loop_post(test_agents.loop, test_agent_connect, a);
    return test_agent_wait_welcome(a) ? a : NULL;
}

void test_agent_dial_many(const char *address,
                          const uint8_t *secret,
                          enum ms_tls_mode tls,
                          size_t count)
{
    enum { AT_ONCE = 32 };
    struct test_agent *open[AT_ONCE];
    char node[32];

    for (size_t i = 0; i < count; i++) {
        if (i >= AT_ONCE)
            assert(test_agent_wait_welcome(open[i % AT_ONCE]));
        snprintf(node, sizeof node, "n%zu", i);
        open[i % AT_ONCE] = agent_create(address, secret, node, 8);
        open[i % AT_ONCE]->tls = tls;
        ms_loop_post(test_agents.loop, test_agent_connect, open[i % AT_ONCE]);
    }
    for (size_t i = 0; i < AT_ONCE && i < count; i++)
        assert(test_agent_wait_welcome(open[i]));
}
