/* fake_head.c - a head for the agent's tests */
#include "agent/fake_head.h"
#include "agent/agent.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "io/sock.h"
#include "resource/shape.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cmocka.h>

#define WAIT_NS (60 * MS_NS_PER_S) /* for 64 processes at once, on a slow machine */

struct letter {
    struct ms_list link;
    Muster__AgentToHead *m;
};

/* ---- what the agent says --------------------------------------------------------- */

static void keep_lines(struct fake_head *h, const Muster__LogLines *lines)
{
    h->dropped += lines->dropped;
    for (size_t i = 0; i < lines->n_lines; i++) {
        const Muster__LogLine *l = lines->lines[i];

        h->line_driver = l->driver;
        if (h->lines.len > 1 << 20) /* a flood: its end is enough */
            h->lines.len = 0;
        ms_buf_printf(
            &h->lines, "%s/%u%c ", l->cluster, l->rank, l->is_stderr ? '!' : ':');
        ms_buf_append(&h->lines, l->text.data, l->text.len);
        ms_buf_append(&h->lines, "\n", 1);
    }
}

static void on_body(void *arg, const uint8_t *body, size_t len)
{
    struct fake_head *h = arg;
    Muster__AgentToHead *m = muster__agent_to_head__unpack(NULL, len, body);
    struct letter *letter;

    assert_non_null(m);
    if (m->body_case == MUSTER__AGENT_TO_HEAD__BODY_LOG) {
        keep_lines(h, m->log);
        fake_free(m);
        return;
    }
    letter = malloc(sizeof *letter);
    if (!letter)
        abort();
    letter->m = m;
    ms_list_add_tail(&h->inbox, &letter->link);
}

static void on_closed(void *arg, const struct ms_error *why)
{
    struct fake_head *h = arg;

    (void)why;
    ms_link_destroy(MS_TAKE(h->link));
}

const struct ms_link_ops fake_head_link_ops = {.on_body = on_body,
                                               .on_closed = on_closed};

void fake_free(Muster__AgentToHead *m)
{
    muster__agent_to_head__free_unpacked(m, NULL);
}

/* ---- its life -------------------------------------------------------------------- */

void fake_head_init(struct fake_head *h)
{
    char path[160];

    *h = (struct fake_head){.root = "/tmp/muster-agent-XXXXXX"};
    assert_non_null(mkdtemp(h->root));
    setenv("MUSTER_HOME", h->root, 1);
    snprintf(h->session, sizeof h->session, "20200101-000000-%d", (int)getpid());
    snprintf(h->dir, sizeof h->dir, "%s/%s", h->root, h->session);
    assert_int_equal(mkdir(h->dir, 0700), 0);
    snprintf(path, sizeof path, "%s/w", h->dir);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof path, "%s/logs", h->dir);
    assert_int_equal(mkdir(path, 0700), 0);
    ms_list_init(&h->inbox);
    h->env[0] = (char *)(uintptr_t) "PATH=/usr/bin:/bin";
}

static void send_config(struct fake_head *h)
{
    static uint8_t secret[32];
    Muster__HeadToAgent m = MUSTER__HEAD_TO_AGENT__INIT;
    Muster__AgentConfig c = MUSTER__AGENT_CONFIG__INIT;
    Muster__DriverContext context = MUSTER__DRIVER_CONTEXT__INIT;
    char node[] = "here";

    c.secret.data = secret;
    c.secret.len = sizeof secret;
    c.session = h->session;
    c.session_dir = h->dir;
    c.node_name = node;
    c.driver_pid = h->driver_pid;
    c.shape = ms_shape_create(node);
    assert_int_equal(
        ms_shape_add_devices(c.shape, &(struct ms_shape_devices){.count = 3}, NULL), 0);
    c.context = &context;
    context.wants_logs = !h->is_quiet;
    context.python = h->python;
    while (h->python[context.n_python])
        context.n_python++;
    context.env = h->env;
    while (h->env[context.n_env])
        context.n_env++;
    m.body_case = MUSTER__HEAD_TO_AGENT__BODY_CONFIG;
    m.config = &c;
    fake_head_send(h, &m);
    ms_shape_destroy(c.shape);
}

Muster__AgentToHead *fake_head_start(struct fake_head *h)
{
    Muster__AgentToHead *ready;
    int fds[2];

    assert_int_equal(ms_unix_pair(SOCK_STREAM, fds), 0);
    fflush(NULL);
    h->agent_pid = fork();
    assert_true(h->agent_pid >= 0);
    if (h->agent_pid == 0) {
        struct rlimit limit = {h->nofile_max, h->nofile_max};

        if (h->nofile_max)
            setrlimit(RLIMIT_NOFILE, &limit);
        for (int sig = 1; sig < NSIG; sig++)
            signal(sig, SIG_DFL); /* cmocka would go on with the tests after a crash */
        exit(ms_agent_run(fds[1], -1, 0));
    }
    close(fds[1]);
    h->loop = ms_loop_create();
    h->link = ms_link_create(h->loop, fds[0], &fake_head_link_ops, h);
    assert_non_null(h->link);
    send_config(h);
    ready = fake_head_answer(h, h->next_request);
    assert_int_equal(ready->body_case, MUSTER__AGENT_TO_HEAD__BODY_READY);
    return ready;
}

static bool is_agent_gone(struct fake_head *h)
{
    pid_t pid = waitpid(h->agent_pid, &h->agent_status, WNOHANG);

    return pid != 0;
}

int fake_head_join(struct fake_head *h)
{
    if (h->agent_pid <= 0)
        return WEXITSTATUS(h->agent_status);
    fake_head_run(h, is_agent_gone);
    h->agent_pid = 0;
    assert_true(WIFEXITED(h->agent_status));
    return WEXITSTATUS(h->agent_status);
}

void fake_head_finish(struct fake_head *h)
{
    ms_link_destroy(MS_TAKE(h->link));
    assert_int_equal(fake_head_join(h), 0);
    fake_head_free(h);
}

void fake_head_free(struct fake_head *h)
{
    char command[128];

    ms_list_each (letter, &h->inbox, struct letter, link) {
        ms_list_remove(&letter->link);
        fake_free(letter->m);
        free(letter);
    }
    ms_buf_finish(&h->lines);
    ms_loop_destroy(h->loop);
    snprintf(command, sizeof command, "rm -rf '%s'", h->root);
    assert_int_equal(system(command), 0);
}

/* ---- talking --------------------------------------------------------------------- */

static void on_tick(void *arg)
{
    (void)arg;
}

/* What it has said by now: grows as long as it is at work. */
static uint64_t said(const struct fake_head *h)
{
    return h->lines.len + h->dropped;
}

void fake_head_run(struct fake_head *h, bool (*until)(struct fake_head *h))
{
    int64_t deadline = ms_now_ns() + WAIT_NS;
    uint64_t before = said(h);
    struct ms_timer tick = {0}; /* so that run_once returns: pids give no event here */

    assert_int_equal(ms_timer_init(&tick, h->loop, on_tick, NULL), 0);
    while (!until(h)) {
        if (ms_now_ns() > deadline) {
            print_error("lines so far:\n%s\n", ms_buf_str(&h->lines));
            fail_msg("nothing came");
        }
        ms_timer_set(&tick, 2 * MS_NS_PER_MS);
        ms_loop_run_once(h->loop, true);
        if (said(h) != before) { /* a slow machine takes its time for a flood */
            before = said(h);
            deadline = ms_now_ns() + WAIT_NS;
        }
    }
    ms_timer_finish(&tick);
}

uint64_t fake_head_send(struct fake_head *h, Muster__HeadToAgent *m)
{
    m->request = ++h->next_request;
    assert_int_equal(ms_link_send(h->link, &m->base), 0);
    return m->request;
}

static uint64_t wanted; /* a request, or the uid of an exit; 0: any exit */

static Muster__AgentToHead *take(struct fake_head *h,
                                 bool (*is_it)(Muster__AgentToHead *m))
{
    ms_list_each (letter, &h->inbox, struct letter, link) {
        Muster__AgentToHead *m = letter->m;

        if (!is_it(m))
            continue;
        ms_list_remove(&letter->link);
        free(letter);
        return m;
    }
    return NULL;
}

static bool is_answer(Muster__AgentToHead *m)
{
    return m->request == wanted;
}

static bool is_exit(Muster__AgentToHead *m)
{
    return m->body_case == MUSTER__AGENT_TO_HEAD__BODY_EXITED &&
           (!wanted || m->exited->uid == wanted);
}

bool fake_head_has(const struct fake_head *h, Muster__AgentToHead__BodyCase kind)
{
    ms_list_each (letter, &h->inbox, struct letter, link)
        if (letter->m->body_case == kind)
            return true;
    return false;
}

Muster__AgentToHead *fake_head_take(struct fake_head *h,
                                    Muster__AgentToHead__BodyCase kind)
{
    ms_list_each (letter, &h->inbox, struct letter, link) {
        Muster__AgentToHead *m = letter->m;

        if (m->body_case != kind)
            continue;
        ms_list_remove(&letter->link);
        free(letter);
        return m;
    }
    return NULL;
}

static bool has_answer(struct fake_head *h)
{
    ms_list_each (letter, &h->inbox, struct letter, link)
        if (is_answer(letter->m))
            return true;
    return false;
}

static bool has_exit(struct fake_head *h)
{
    ms_list_each (letter, &h->inbox, struct letter, link)
        if (is_exit(letter->m))
            return true;
    return false;
}

Muster__AgentToHead *fake_head_answer(struct fake_head *h, uint64_t request)
{
    wanted = request;
    fake_head_run(h, has_answer);
    return take(h, is_answer);
}

Muster__AgentToHead *fake_head_exit(struct fake_head *h, uint64_t uid)
{
    wanted = uid;
    fake_head_run(h, has_exit);
    return take(h, is_exit);
}

static const char *wanted_line;

static bool has_line(struct fake_head *h)
{
    const char *text = ms_buf_str(&h->lines);

    return text && strstr(text, wanted_line);
}

void fake_head_wait_line(struct fake_head *h, const char *text)
{
    wanted_line = text;
    fake_head_run(h, has_line);
}

long fake_head_number(struct fake_head *h, const char *name)
{
    const char *text = ms_buf_str(&h->lines);
    const char *at = text ? strstr(text, name) : NULL;

    assert_non_null(at);
    if (!at) /* for those who do not know that the assertion ends the test */
        return 0;
    return strtol(at + strlen(name), NULL, 10);
}

/* ---- workers --------------------------------------------------------------------- */

static void spec_init(struct fake_spec *s, uint64_t uid, uint32_t rank)
{
    static char cluster[] = "actor";

    memset(s, 0, sizeof *s);
    muster__worker_spec__init(&s->spec);
    muster__zygote_key__init(&s->key);
    s->spec.uid = uid;
    s->spec.rank = rank;
    s->spec.cluster = cluster;
}

void fake_spec_shell(struct fake_spec *s,
                     uint64_t uid,
                     uint32_t rank,
                     const char *script)
{
    static char sh[] = "sh", dash_c[] = "-c";

    spec_init(s, uid, rank);
    s->spec.start = MUSTER__START_KIND__START_COMMAND;
    s->command[0] = sh;
    s->command[1] = dash_c;
    s->command[2] = (char *)(uintptr_t)script;
}

void fake_spec_fork(struct fake_spec *s, uint64_t uid, uint32_t rank)
{
    spec_init(s, uid, rank);
    s->spec.start = MUSTER__START_KIND__START_FORK;
}

Muster__WorkerSpec *fake_spec_complete(struct fake_spec *s)
{
    s->spec.n_command = 0;
    s->spec.command = s->command;
    while (s->command[s->spec.n_command])
        s->spec.n_command++;
    s->spec.n_env = 0;
    s->spec.env = s->env;
    while (s->env[s->spec.n_env])
        s->spec.n_env++;
    s->spec.zygote = &s->key;
    return &s->spec;
}

uint64_t
fake_head_start_workers(struct fake_head *h, struct fake_spec *specs, size_t count)
{
    Muster__HeadToAgent m = MUSTER__HEAD_TO_AGENT__INIT;
    Muster__StartWorkers start = MUSTER__START_WORKERS__INIT;
    Muster__WorkerSpec **at = calloc(count + 1, sizeof(Muster__WorkerSpec *));
    uint64_t request;

    if (!at)
        abort();
    for (size_t i = 0; i < count; i++)
        at[i] = fake_spec_complete(&specs[i]);
    start.n_workers = count;
    start.workers = at;
    m.body_case = MUSTER__HEAD_TO_AGENT__BODY_START;
    m.start = &start;
    request = fake_head_send(h, &m);
    free(at);
    return request;
}

Muster__AgentToHead *
fake_head_started(struct fake_head *h, struct fake_spec *specs, size_t count)
{
    Muster__AgentToHead *m =
        fake_head_answer(h, fake_head_start_workers(h, specs, count));

    if (m->body_case == MUSTER__AGENT_TO_HEAD__BODY_FAILURE)
        fail_msg("%s", m->failure->message);
    assert_int_equal(m->body_case, MUSTER__AGENT_TO_HEAD__BODY_STARTED);
    assert_int_equal(m->started->n_workers, count);
    return m;
}

void fake_head_stop_workers(struct fake_head *h, uint64_t uid, uint64_t grace_ns)
{
    Muster__HeadToAgent m = MUSTER__HEAD_TO_AGENT__INIT;
    Muster__StopWorkers stop = MUSTER__STOP_WORKERS__INIT;
    Muster__AgentToHead *answer;

    stop.n_uids = 1;
    stop.uids = &uid;
    stop.grace_ns = grace_ns;
    m.body_case = MUSTER__HEAD_TO_AGENT__BODY_STOP;
    m.stop = &stop;
    answer = fake_head_answer(h, fake_head_send(h, &m));
    assert_int_equal(answer->body_case, MUSTER__AGENT_TO_HEAD__BODY_DONE);
    fake_free(answer);
}

void fake_wait_gone(pid_t pid)
{
    int64_t deadline = ms_now_ns() + WAIT_NS;
    struct timespec tick = {.tv_nsec = MS_NS_PER_MS};

    assert_true(pid > 1);
    while (kill(pid, 0) == 0) {
        assert_true(ms_now_ns() < deadline);
        nanosleep(&tick, NULL); /* that its parent has waited for it gives no event */
    }
}
