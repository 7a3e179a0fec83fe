#include "base/cleanup.h"
#include "base/clock.h"
#include "base/list.h"
#include "base/name.h"
#include "head/nodes/far_impl.h"
#include "head/nodes/test_steps.h"
#include "io/loop.h"
#include "proto/muster.pb-c.h"
#include "resource/shape.h"
#include "wire/frame.h"
#include "wire/link/link.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct far_loop far = {.lock = PTHREAD_MUTEX_INITIALIZER,
                       .changed = PTHREAD_COND_INITIALIZER};

static void *run(void *arg)
{
    ms_loop_run(far.loop);
    return arg;
}

void far_start(void)
{
    far.loop = ms_loop_create();
    ms_list_init(&far.agents);
    pthread_create(&far.thread, NULL, run, NULL);
}

static void agent_free(struct far_agent *a)
{
    ms_list_remove(&a->link);
    ms_link_destroy(a->wire);
    for (size_t i = 0; i < a->count; i++) {
        muster__worker_spec__free_unpacked(a->workers[i].spec, NULL);
        free(a->workers[i].steps);
    }
    free(a);
}

void far_stop(void)
{
    ms_loop_stop(far.loop);
    pthread_join(far.thread, NULL);
    ms_list_each (a, &far.agents, struct far_agent, link)
        agent_free(a);
    ms_loop_destroy(far.loop);
}

const char *far_refusal(void)
{
    return far.refusal;
}

/* ---- what it answers; far.lock is held ------------------------------------------- */

void far_send(struct far_agent *a, Muster__AgentToHead *m)
{
    if (a->wire)
        ms_link_send(a->wire, &m->base);
}

static void answer_done(struct far_agent *a, uint64_t request)
{
    Muster__Done done = MUSTER__DONE__INIT;
    Muster__AgentToHead m = MUSTER__AGENT_TO_HEAD__INIT;

    m.request = request;
    m.body_case = MUSTER__AGENT_TO_HEAD__BODY_DONE;
    m.done = &done;
    if (request)
        far_send(a, &m);
}

static void begin_workers(struct far_agent *a, Muster__StartWorkers *s)
{
    for (size_t i = 0; i < s->n_workers; i++) {
        assert(a->count < FAR_WORKERS_MAX);
        a->workers[a->count].spec = MS_TAKE(s->workers[i]);
        a->workers[a->count++].lives = true;
    }
    s->n_workers = 0;
}

static void started(Muster__WorkerStarted *s, const struct far_agent *a, size_t i)
{
    static char address[] = "/w/far.sock", log_path[] = "/logs/far.log";

    muster__worker_started__init(s);
    s->uid = a->workers[i].spec->uid;
    s->pid = 1000 + (int)i;
    s->address = address;
    s->log_path = log_path;
}

/* For the last `n` workers. */
void far_answer_started(struct far_agent *a, uint64_t request, size_t n)
{
    Muster__WorkerStarted each[FAR_WORKERS_MAX], *pointers[FAR_WORKERS_MAX];
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
    far_send(a, &m);
}

static void answer_failure(struct far_agent *a, uint64_t request)
{
    static char why[] = "no zygote today";
    Muster__Failure f = MUSTER__FAILURE__INIT;
    Muster__AgentToHead m = MUSTER__AGENT_TO_HEAD__INIT;

    f.message = why;
    m.request = request;
    m.body_case = MUSTER__AGENT_TO_HEAD__BODY_FAILURE;
    m.failure = &f;
    far_send(a, &m);
}

static void on_start(struct far_agent *a, Muster__HeadToAgent *m)
{
    size_t n = m->start->n_workers;

    if (a->mode == FAR_FAILS) {
        answer_failure(a, m->request);
        return;
    }
    if (a->last_start == m->request) { /* asked once more */
        if (!a->kept)
            far_answer_started(a, m->request, n);
        return;
    }
    a->last_start = m->request;
    begin_workers(a, m->start);
    if (a->mode == FAR_KEEPS)
        a->kept = m->request;
    else
        far_answer_started(a, m->request, n);
}

void far_end_worker(struct far_agent *a, size_t i, int code)
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
    far_send(a, &m);
}

static void on_stop(struct far_agent *a, uint64_t request, const Muster__StopWorkers *s)
{
    for (size_t k = 0; k < s->n_uids; k++)
        for (size_t i = 0; i < a->count; i++)
            if (a->workers[i].spec->uid == s->uids[k])
                far_end_worker(a, i, 0);
    answer_done(a, request);
}

/* ---- steps ----------------------------------------------------------------------- */

static void note_steps(struct far_worker *w, const Muster__RunSteps *run)
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

static void answer_steps(struct far_agent *a, const Muster__HeadToAgent *q)
{
    struct steps_answer answer;

    steps_answer_fill(&answer, q, a->mode == FAR_STEPS_FAIL);
    if (q->request)
        far_send(a, &answer.message);
}

static void on_run_steps(struct far_agent *a, const Muster__HeadToAgent *q)
{
    size_t i = 0;

    a->runs++;
    while (i < a->count && a->workers[i].spec->uid != q->run_steps->uid)
        i++;
    assert(i < a->count);
    note_steps(&a->workers[i], q->run_steps);
    if (a->mode == FAR_STEPS_DIE)
        far_end_worker(a, i, 7);
    else if (a->mode != FAR_STEPS_NEVER)
        answer_steps(a, q);
}

/* ---- the rest -------------------------------------------------------------------- */

static void
on_hold_port(struct far_agent *a, uint64_t request, const Muster__HoldPort *hold)
{
    char host[sizeof a->node + 8];
    Muster__PortHeld port = MUSTER__PORT_HELD__INIT;
    Muster__AgentToHead m = MUSTER__AGENT_TO_HEAD__INIT;

    assert(a->ports < FAR_PORTS_MAX);
    snprintf(a->owners[a->ports++], sizeof a->owners[0], "%s", hold->owner);
    snprintf(host, sizeof host, "%s.host", a->node);
    port.host = host;
    port.port = 4711;
    m.request = request;
    m.body_case = MUSTER__AGENT_TO_HEAD__BODY_PORT;
    m.port = &port;
    far_send(a, &m);
}

static void drop_port(struct far_agent *a, const char *owner)
{
    size_t i = 0;

    while (i < a->ports && strcmp(a->owners[i], owner) != 0)
        i++;
    if (i < a->ports)
        memmove(a->owners[i], a->owners[--a->ports], sizeof a->owners[0]);
}

static void on_message(struct far_agent *a, Muster__HeadToAgent *m)
{
    switch (m->body_case) {
    case MUSTER__HEAD_TO_AGENT__BODY_WELCOME:
        a->welcome = true;
        if (a->head != m->welcome->head)
            a->last_start = 0; /* another head counts anew */
        a->head = m->welcome->head;
        break;
    case MUSTER__HEAD_TO_AGENT__BODY_FAILURE:
        snprintf(far.refusal, sizeof far.refusal, "%s", m->failure->message);
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
            far_end_worker(a, i, 0);
        a->ended = true;
        ms_link_destroy(MS_TAKE(a->wire));
        break;
    default:
        answer_done(a, m->request);
    }
}

static void on_body(void *arg, const uint8_t *body, size_t len)
{
    struct far_agent *a = arg;
    Muster__HeadToAgent *m = muster__head_to_agent__unpack(NULL, len, body);

    assert(m);
    pthread_mutex_lock(&far.lock);
    on_message(a, m);
    pthread_cond_broadcast(&far.changed);
    pthread_mutex_unlock(&far.lock);
    muster__head_to_agent__free_unpacked(m, NULL);
}

static void on_closed(void *arg, const struct ms_error *why)
{
    struct far_agent *a = arg;

    pthread_mutex_lock(&far.lock);
    if (!a->refused)
        snprintf(far.refusal, sizeof far.refusal, "%s", why->text);
    a->refused = true;
    ms_link_destroy(MS_TAKE(a->wire));
    pthread_cond_broadcast(&far.changed);
    pthread_mutex_unlock(&far.lock);
}

/* ---- hello ----------------------------------------------------------------------- */

static void report(const struct far_agent *a,
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
    struct far_agent *a = arg;
    Muster__WorkerReport reports[FAR_WORKERS_MAX], *pointers[FAR_WORKERS_MAX];
    Muster__WorkerStarted begun[FAR_WORKERS_MAX];
    Muster__PortReport ports[FAR_PORTS_MAX], *port_list[FAR_PORTS_MAX];
    Muster__AgentReady ready = MUSTER__AGENT_READY__INIT;
    Muster__AgentHello agent = MUSTER__AGENT_HELLO__INIT;
    Muster__LinkHello hello = MUSTER__LINK_HELLO__INIT;
    Muster__AgentToHead m = MUSTER__AGENT_TO_HEAD__INIT;

    pthread_mutex_lock(&far.lock);
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
    far_send(a, &m);
    ms_shape_destroy(ready.shape);
    pthread_mutex_unlock(&far.lock);
}

void far_connect(void *arg)
{
    static const struct ms_link_ops ops = {
        .on_body = on_body, .on_closed = on_closed, .on_open = on_open};
    struct far_agent *a = arg;
    struct ms_error err = {0};

    a->wire = ms_link_dial(far.loop,
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

bool far_wait_welcome(struct far_agent *a)
{
    bool welcome;

    pthread_mutex_lock(&far.lock);
    while (!a->welcome && !a->refused)
        pthread_cond_wait(&far.changed, &far.lock);
    welcome = a->welcome;
    pthread_mutex_unlock(&far.lock);
    return welcome;
}

static struct far_agent *agent_create(const char *address,
                                      const uint8_t *secret,
                                      const char *node,
                                      unsigned gpus)
{
    struct far_agent *a = calloc(1, sizeof *a);

    assert(a);
    snprintf(a->address, sizeof a->address, "%s", address);
    snprintf(a->node, sizeof a->node, "%s", node);
    memcpy(a->secret, secret, sizeof a->secret);
    a->id = ms_random_id();
    a->gpus = gpus;
    pthread_mutex_lock(&far.lock);
    ms_list_add_tail(&far.agents, &a->link);
    pthread_mutex_unlock(&far.lock);
    return a;
}

struct far_agent *
far_dial(const char *address, const uint8_t *secret, const char *node, unsigned gpus)
{
    struct far_agent *a = agent_create(address, secret, node, gpus);

    ms_loop_post(far.loop, far_connect, a);
    return far_wait_welcome(a) ? a : NULL;
}

void far_dial_many(const char *address,
                   const uint8_t *secret,
                   enum ms_tls_mode tls,
                   size_t count)
{
    enum { AT_ONCE = 32 };
    struct far_agent *open[AT_ONCE];
    char node[32];

    for (size_t i = 0; i < count; i++) {
        if (i >= AT_ONCE)
            assert(far_wait_welcome(open[i % AT_ONCE]));
        snprintf(node, sizeof node, "n%zu", i);
        open[i % AT_ONCE] = agent_create(address, secret, node, 8);
        open[i % AT_ONCE]->tls = tls;
        ms_loop_post(far.loop, far_connect, open[i % AT_ONCE]);
    }
    for (size_t i = 0; i < AT_ONCE && i < count; i++)
        assert(far_wait_welcome(open[i]));
}
