/* fake_agent.c - for tests: an agent that behaves as the environment says */
#include "head/nodes/fake_agent.h"
#include "base/cleanup.h"
#include "head/nodes/test_steps.h"
#include "io/loop.h"
#include "proto/muster.pb-c.h"
#include "wire/link/link.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

enum { WORKERS_MAX = 64 };

static struct {
    const char *mode;
    struct ms_loop *loop;
    struct ms_link *link;
    uint64_t uids[WORKERS_MAX];
    pid_t pids[WORKERS_MAX];
    Muster__RunSteps *steps[WORKERS_MAX]; /* that came with their start; NULL: none */
    size_t count;
    Muster__HeadToAgent *kept; /* a StartWorkers whose answer must wait */
} self;

static bool is(const char *mode)
{
    return strcmp(self.mode, mode) == 0;
}

static void send(Muster__AgentToHead *m)
{
    ms_link_send(self.link, &m->base);
}

static void answer_done(uint64_t request)
{
    Muster__Done done = MUSTER__DONE__INIT;
    Muster__AgentToHead m = MUSTER__AGENT_TO_HEAD__INIT;

    m.request = request;
    m.body_case = MUSTER__AGENT_TO_HEAD__BODY_DONE;
    m.done = &done;
    if (request)
        send(&m);
}

static void answer_failure(uint64_t request, const char *why)
{
    Muster__Failure f = MUSTER__FAILURE__INIT;
    Muster__AgentToHead m = MUSTER__AGENT_TO_HEAD__INIT;

    f.message = (char *)(uintptr_t)why;
    m.request = request;
    m.body_case = MUSTER__AGENT_TO_HEAD__BODY_FAILURE;
    m.failure = &f;
    send(&m);
}

static void on_config(const Muster__HeadToAgent *q)
{
    Muster__AgentReady ready = MUSTER__AGENT_READY__INIT;
    Muster__AgentToHead m = MUSTER__AGENT_TO_HEAD__INIT;

    if (is("mute"))
        return;
    if (is("refuse")) {
        answer_failure(q->request, "no room for me");
        return;
    }
    ready.pid = getpid();
    ready.shape = q->config->shape;
    ready.shape->cpus = 7;
    ready.shape->memory = 1 << 20;
    m.request = q->request;
    m.body_case = MUSTER__AGENT_TO_HEAD__BODY_READY;
    m.ready = &ready;
    send(&m);
}

static void tell_exit(size_t i, int code)
{
    Muster__Exit e = MUSTER__EXIT__INIT;
    Muster__WorkerExited exited = MUSTER__WORKER_EXITED__INIT;
    Muster__AgentToHead m = MUSTER__AGENT_TO_HEAD__INIT;

    e.code = code;
    e.pid = self.pids[i];
    exited.uid = self.uids[i];
    exited.exit = &e;
    m.body_case = MUSTER__AGENT_TO_HEAD__BODY_EXITED;
    m.exited = &exited;
    send(&m);
}

/* A process that knows nothing of us. */
static pid_t start_sleep(void)
{
    pid_t pid = fork();

    if (pid == 0) {
        setpgid(0, 0);
        execl("/bin/sleep", "sleep", "600", (char *)NULL);
        _exit(127);
    }
    setpgid(pid, pid);
    return pid;
}

static void answer_start(Muster__HeadToAgent *q)
{
    static char address[] = "/w/x.sock", log_path[] = "/logs/x.log";
    Muster__WorkerStarted each[WORKERS_MAX], *pointers[WORKERS_MAX];
    Muster__WorkersStarted started = MUSTER__WORKERS_STARTED__INIT;
    Muster__AgentToHead m = MUSTER__AGENT_TO_HEAD__INIT;
    size_t n = q->start->n_workers;

    for (size_t i = 0; i < n; i++) {
        muster__worker_started__init(&each[i]);
        self.uids[self.count] = q->start->workers[i]->uid;
        self.pids[self.count] = start_sleep();
        self.steps[self.count] = MS_TAKE(q->start->workers[i]->steps);
        each[i].uid = self.uids[self.count];
        each[i].pid = self.pids[self.count++];
        each[i].address = address;
        each[i].log_path = log_path;
        pointers[i] = &each[i];
    }
    if (is("early"))
        tell_exit(self.count - 1, 5);
    started.n_workers = is("partial") ? n - 1 : n;
    started.workers = pointers;
    m.request = q->request;
    m.body_case = MUSTER__AGENT_TO_HEAD__BODY_STARTED;
    m.started = &started;
    send(&m);
}

static void on_start(Muster__HeadToAgent **q)
{
    if (is("die"))
        raise(SIGKILL);
    else if (is("failure"))
        answer_failure((*q)->request, "no zygote today");
    else if (is("late"))
        self.kept = MS_TAKE(*q);
    else if (!is("silent"))
        answer_start(*q);
}

static void stop_worker(size_t i)
{
    if (!self.pids[i])
        return;
    kill(self.pids[i], SIGKILL);
    waitpid(self.pids[i], NULL, 0);
    tell_exit(i, 0);
    self.pids[i] = 0;
}

static void on_stop(uint64_t request, const Muster__StopWorkers *s)
{
    if (is("deaf"))
        return;
    for (size_t k = 0; k < s->n_uids; k++)
        for (size_t i = 0; i < self.count; i++)
            if (self.uids[i] == s->uids[k])
                stop_worker(i);
    answer_done(request);
}

static void on_shutdown(void)
{
    if (is("stubborn"))
        return;
    for (size_t i = 0; i < self.count; i++)
        stop_worker(i);
    ms_loop_stop(self.loop);
}

static void on_hold_port(const Muster__HeadToAgent *q)
{
    static char host[] = "127.0.0.1";
    Muster__PortHeld port = MUSTER__PORT_HELD__INIT;
    Muster__AgentToHead m = MUSTER__AGENT_TO_HEAD__INIT;

    if (self.kept && strcmp(q->hold_port->owner, "go") == 0)
        answer_start(self.kept);
    port.host = host;
    port.port = 4711;
    m.request = q->request;
    m.body_case = MUSTER__AGENT_TO_HEAD__BODY_PORT;
    m.port = &port;
    send(&m);
}

static void answer_steps(const Muster__HeadToAgent *q, const Muster__RunSteps *run)
{
    struct steps_answer answer;

    steps_answer_fill(&answer, q, run, is("steps fail"));
    if (q->request)
        send(&answer.message);
}

static void on_run_steps(const Muster__HeadToAgent *q)
{
    size_t i = 0;

    while (i < self.count && self.uids[i] != q->run_steps->uid)
        i++;
    if (is("steps die") && i < self.count && self.pids[i]) {
        kill(self.pids[i], SIGKILL);
        waitpid(self.pids[i], NULL, 0);
        tell_exit(i, 7);
        self.pids[i] = 0;
    } else if (!is("steps never")) {
        answer_steps(q, steps_asked(q, i < self.count ? self.steps[i] : NULL));
    }
}

static void on_prepare(uint64_t request)
{
    static const char nonsense[100] = "\xff\xff no message";

    if (is("hangup")) {
        close(3);
        signal(SIGTERM, SIG_IGN);
        pause();
    }
    if (is("garbage"))
        (void)!write(3, nonsense, sizeof nonsense);
    else
        answer_done(request);
}

static void on_body(void *arg, const uint8_t *body, size_t len)
{
    Muster__HeadToAgent *q = muster__head_to_agent__unpack(NULL, len, body);

    (void)arg;
    switch (q->body_case) {
    case MUSTER__HEAD_TO_AGENT__BODY_CONFIG:
        on_config(q);
        break;
    case MUSTER__HEAD_TO_AGENT__BODY_START:
        on_start(&q);
        break;
    case MUSTER__HEAD_TO_AGENT__BODY_STOP:
        on_stop(q->request, q->stop);
        break;
    case MUSTER__HEAD_TO_AGENT__BODY_HOLD_PORT:
        on_hold_port(q);
        break;
    case MUSTER__HEAD_TO_AGENT__BODY_RUN_STEPS:
        on_run_steps(q);
        break;
    case MUSTER__HEAD_TO_AGENT__BODY_PREPARE:
        on_prepare(q->request);
        break;
    case MUSTER__HEAD_TO_AGENT__BODY_SHUTDOWN:
        on_shutdown();
        break;
    default:
        answer_done(q->request);
    }
    muster__head_to_agent__free_unpacked(q, NULL);
}

static void on_closed(void *arg, const struct ms_error *why)
{
    (void)arg;
    (void)why;
    ms_loop_stop(self.loop);
}

int fake_agent_main(void)
{
    static const struct ms_link_ops ops = {.on_body = on_body, .on_closed = on_closed};

    self.mode = getenv("FAKE_AGENT");
    if (!self.mode)
        return 99;
    if (is("exit")) {
        fprintf(stderr, "first line\ncannot find my shoes\n");
        return 3;
    }
    self.loop = ms_loop_create();
    self.link = ms_link_create(self.loop, 3, &ops, NULL);
    ms_loop_run(self.loop);
    for (size_t i = 0; i < self.count; i++)
        stop_worker(i);
    ms_link_destroy(self.link);
    ms_loop_destroy(self.loop);
    muster__head_to_agent__free_unpacked(self.kept, NULL);
    return 0;
}
