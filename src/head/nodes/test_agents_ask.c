/* test_agents_ask.c - what test agents answer when their head asks */
#include "base/cleanup.h"
#include "head/nodes/test_agents_impl.h"

#include <stdio.h>
#include <string.h>

/* Run on the loop's thread and wait for it. */
struct task {
    void (*run)(struct task *t);
    struct test_agent *agent;
    uint64_t uid;
    int code;
    const char *text;
    bool done;
};

static void run_task(void *arg)
{
    struct task *t = arg;

    pthread_mutex_lock(&test_agents.lock);
    t->run(t);
    t->done = true;
    pthread_cond_broadcast(&test_agents.changed);
    pthread_mutex_unlock(&test_agents.lock);
}

static void do_task(struct task *t)
{
    ms_loop_post(test_agents.loop, run_task, t);
    pthread_mutex_lock(&test_agents.lock);
    while (!t->done)
        pthread_cond_wait(&test_agents.changed, &test_agents.lock);
    pthread_mutex_unlock(&test_agents.lock);
}

void test_agent_set_mode(struct test_agent *a, enum test_agent_mode mode)
{
    pthread_mutex_lock(&test_agents.lock);
    a->mode = mode;
    pthread_mutex_unlock(&test_agents.lock);
}

static void do_answer(struct task *t)
{
    struct test_agent *a = t->agent;

    test_agent_answer_started(a, a->kept, 1);
    a->kept = 0;
}

void test_agent_answer(struct test_agent *a)
{
    do_task(&(struct task){.run = do_answer, .agent = a});
}

static void do_close(struct task *t)
{
    t->agent->welcome = t->agent->refused = false;
    ms_link_destroy(MS_TAKE(t->agent->wire));
}

void test_agent_end(struct test_agent *a)
{
    do_task(&(struct task){.run = do_close, .agent = a});
}

bool test_agent_come_back(struct test_agent *a, const char *address)
{
    pthread_mutex_lock(&test_agents.lock);
    while (a->wire) /* until it has seen that its link is no more */
        pthread_cond_wait(&test_agents.changed, &test_agents.lock);
    snprintf(a->address, sizeof a->address, "%s", address);
    a->welcome = a->refused = false;
    pthread_mutex_unlock(&test_agents.lock);
    ms_loop_post(test_agents.loop, test_agent_connect, a);
    return test_agent_wait_welcome(a);
}

static void do_exit(struct task *t)
{
    for (size_t i = 0; i < t->agent->count; i++)
        if (t->agent->workers[i].spec->uid == t->uid)
            test_agent_end_worker(t->agent, i, t->code);
}

void test_agent_exit(struct test_agent *a, uint64_t uid, int code)
{
    do_task(&(struct task){.run = do_exit, .agent = a, .uid = uid, .code = code});
}

static void do_print(struct task *t)
{
    Muster__LogLine line = MUSTER__LOG_LINE__INIT, *lines[] = {&line};
    Muster__LogLines all = MUSTER__LOG_LINES__INIT;
    Muster__AgentToHead m = MUSTER__AGENT_TO_HEAD__INIT;

    line.uid = t->uid;
    line.text.data = (uint8_t *)(uintptr_t)t->text;
    line.text.len = strlen(t->text);
    all.n_lines = 1;
    all.lines = lines;
    m.body_case = MUSTER__AGENT_TO_HEAD__BODY_LOG;
    m.log = &all;
    test_agent_send(t->agent, &m);
}

void test_agent_print(struct test_agent *a, uint64_t uid, const char *line)
{
    do_task(&(struct task){.run = do_print, .agent = a, .uid = uid, .text = line});
}

static size_t living(const struct test_agent *a)
{
    size_t n = 0;

    for (size_t i = 0; i < a->count; i++)
        n += a->workers[i].lives;
    return n;
}

static size_t started_count(const struct test_agent *a)
{
    return a->count;
}

static size_t contexts(const struct test_agent *a)
{
    return a->contexts;
}

static size_t runs(const struct test_agent *a)
{
    return a->runs;
}

static size_t ports(const struct test_agent *a)
{
    return a->ports;
}

static void
wait_for(struct test_agent *a, size_t (*get)(const struct test_agent *a), size_t count)
{
    pthread_mutex_lock(&test_agents.lock);
    while (get(a) != count)
        pthread_cond_wait(&test_agents.changed, &test_agents.lock);
    pthread_mutex_unlock(&test_agents.lock);
}

void test_agent_wait_living(struct test_agent *a, size_t count)
{
    wait_for(a, living, count);
}

void test_agent_wait_contexts(struct test_agent *a, size_t count)
{
    wait_for(a, contexts, count);
}

void test_agent_wait_started(struct test_agent *a, size_t count)
{
    wait_for(a, started_count, count);
}

void test_agent_wait_runs(struct test_agent *a, size_t count)
{
    wait_for(a, runs, count);
}

void test_agent_wait_ports(struct test_agent *a, size_t count)
{
    wait_for(a, ports, count);
}

static size_t look(struct test_agent *a, size_t (*get)(const struct test_agent *a))
{
    size_t n;

    pthread_mutex_lock(&test_agents.lock);
    n = get(a);
    pthread_mutex_unlock(&test_agents.lock);
    return n;
}

size_t test_agent_living(struct test_agent *a)
{
    return look(a, living);
}

size_t test_agent_started(struct test_agent *a)
{
    return look(a, started_count);
}

size_t test_agent_contexts(struct test_agent *a)
{
    return look(a, contexts);
}

size_t test_agent_runs(struct test_agent *a)
{
    return look(a, runs);
}

void test_agent_steps(struct test_agent *a, uint64_t uid, char *out, size_t room)
{
    out[0] = 0;
    pthread_mutex_lock(&test_agents.lock);
    for (size_t i = 0; i < a->count; i++)
        if (a->workers[i].spec->uid == uid && a->workers[i].steps)
            snprintf(out, room, "%s", a->workers[i].steps);
    pthread_mutex_unlock(&test_agents.lock);
}

static void
read_env(const Muster__WorkerSpec *s, const char *name, char *out, size_t room)
{
    size_t len = strlen(name);

    for (size_t i = 0; i < s->n_env; i++)
        if (strncmp(s->env[i], name, len) == 0 && s->env[i][len] == '=')
            snprintf(out, room, "%s", s->env[i] + len + 1);
}

void test_agent_env(
    struct test_agent *a, uint64_t uid, const char *name, char *out, size_t room)
{
    out[0] = 0;
    pthread_mutex_lock(&test_agents.lock);
    for (size_t i = 0; i < a->count; i++)
        if (a->workers[i].spec->uid == uid)
            read_env(a->workers[i].spec, name, out, room);
    pthread_mutex_unlock(&test_agents.lock);
}

uint64_t test_agent_memory(struct test_agent *a, uint64_t uid)
{
    uint64_t memory = 0;

    pthread_mutex_lock(&test_agents.lock);
    for (size_t i = 0; i < a->count; i++)
        if (a->workers[i].spec->uid == uid)
            memory = a->workers[i].spec->memory_limit;
    pthread_mutex_unlock(&test_agents.lock);
    return memory;
}

size_t test_agent_ports(struct test_agent *a)
{
    return look(a, ports);
}
