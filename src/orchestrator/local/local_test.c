#include "orchestrator/local/local.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "io/proc.h"
#include "io/tree.h"
#include "orchestrator/local/local_impl.h"
#include "orchestrator/test_conformance.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { NODES = MS_RIG_NODES, DEVICES = 4, TEXT_MAX = 512 };

#define PATIENCE_NS (60 * MS_NS_PER_S)

/* ---- this host as four nodes, with small agents -------------------------------------- */

struct local_rig {
    struct ms_rig base;
    struct ms_loop *loop;
    struct ms_orchestrator *o;
    pid_t anchor; /* stands for the controller's process */
    bool is_durable;
    char dir[32];
};

static char self[TEXT_MAX]; /* this program */

static struct local_rig *rig_of(struct ms_rig *rig)
{
    return (struct local_rig *)rig;
}

static size_t count_children(void)
{
    pid_t *all = NULL;
    int count = ms_proc_children(&all);

    free(all);
    assert_true(count >= 0);
    return (size_t)count;
}

/* Nothing can happen any more: nobody waits, and no agent is there. */
static bool is_quiet(void *arg)
{
    const struct local_rig *r = arg;
    const struct local *l = (const struct local *)r->o;

    return ms_list_is_empty(&l->controller.ops) && !l->controller.is_turn_due &&
           count_children() == 1;
}

static bool run(struct ms_rig *rig, const bool *until, int64_t timeout_ns)
{
    struct local_rig *r = rig_of(rig);

    return ms_rig_run_loop(r->loop, until, timeout_ns, is_quiet, r);
}

static void start_anchor(struct local_rig *r)
{
    r->anchor = fork();
    assert_true(r->anchor >= 0);
    if (r->anchor == 0)
        for (;;)
            pause();
}

static void end_anchor(struct local_rig *r)
{
    kill(r->anchor, SIGKILL);
    assert_int_equal(waitpid(r->anchor, NULL, 0), r->anchor);
}

static struct ms_orchestrator *open_with(struct local_rig *r, const char *path)
{
    Muster__Device like = MUSTER__DEVICE__INIT, *devices[DEVICES];
    Muster__NodeShape shapes[NODES];
    const Muster__NodeShape *nodes[NODES];
    char names[NODES][8];
    static const char *const prefix[] = {"env", "FAKE_PREFIX=1", NULL};
    const char *const *const prefixes[NODES] = {NULL, NULL, NULL, prefix};
    struct ms_error err = {0};

    like.kind = (char[]){"gpu"};
    for (size_t i = 0; i < DEVICES; i++)
        devices[i] = &like;
    for (size_t i = 0; i < NODES; i++) {
        muster__node_shape__init(&shapes[i]);
        snprintf(names[i], sizeof names[i], "n%zu", i);
        shapes[i].name = names[i];
        shapes[i].cpus = MS_RIG_CPUS;
        shapes[i].memory = UINT64_C(1) << 30;
        shapes[i].devices = devices;
        shapes[i].n_devices = i == 0 ? DEVICES : 0;
        nodes[i] = &shapes[i];
    }
    r->o = ms_orchestrator_local(
        &(struct ms_local_options){.loop = r->loop,
                                   .agent_path = path,
                                   .nodes = nodes,
                                   .node_count = NODES,
                                   .prefixes = prefixes,
                                   .log_dir = r->dir,
                                   .state_dir = r->is_durable ? r->dir : NULL,
                                   .end_with = r->anchor,
                                   .grace_ns = MS_NS_PER_S},
        &err);
    if (!r->o)
        fail_msg("%s", err.text);
    return r->o;
}

/* A controller that is killed says nothing to anybody: its agents end by themselves. */
static struct ms_orchestrator *open_rig(struct ms_rig *rig, bool killed)
{
    struct local_rig *r = rig_of(rig);

    if (r->o && killed && !r->is_durable) {
        end_anchor(r);
        while (count_children() > 0)
            assert_int_equal(ms_loop_run_once(r->loop, true), 0);
        start_anchor(r);
    }
    if (r->o)
        r->o->ops->destroy(r->o);
    if (!r->is_durable)
        assert_int_equal(count_children(), 1);
    return open_with(r, self);
}

/* The process of a piece's agent; 0: there is none. */
static pid_t
agent_pid(const struct ms_orchestrator *o, const char *key, uint32_t number)
{
    const struct gang *g = ms_gang_find((const struct local *)o, key, number);

    if (!g || !g->is_placed)
        return 0;
    ms_list_each (p, &g->parts, struct part, link)
        if (p->node == g->placement.nodes[number - g->first] && p->is_alive)
            return p->agent.process.pid;
    return 0;
}

/* Pieces that hold something, or wait. Of a part that has ended nothing is held. */
static size_t held_pieces(const struct ms_orchestrator *o)
{
    size_t held = 0;

    ms_list_each (g, &((const struct local *)o)->gangs, struct gang, link) {
        held += g->is_placed ? 0 : g->left;
        ms_list_each (p, &g->parts, struct part, link)
            held += p->is_alive ? p->left : 0;
    }
    return held;
}

static void end_piece(struct ms_rig *rig, const char *key, uint32_t number, int code)
{
    pid_t pid = agent_pid(rig_of(rig)->o, key, number);

    assert_true(pid > 0);
    assert_int_equal(sigqueue(pid, SIGUSR1, (union sigval){.sival_int = code}), 0);
}

static size_t held(struct ms_rig *rig)
{
    size_t pieces = held_pieces(rig_of(rig)->o);

    if (pieces == 0)
        assert_int_equal(count_children(), 1); /* the anchor alone */
    return pieces;
}

static struct ms_rig *make(void *arg)
{
    static const struct ms_rig_ops ops = {.open = open_rig,
                                          .run = run,
                                          .end_piece = end_piece,
                                          .held = held,
                                          .patience_ns = PATIENCE_NS};
    struct local_rig *r = calloc(1, sizeof *r);

    assert_non_null(r);
    r->is_durable = arg != NULL;
    r->base.ops = &ops;
    strcpy(r->dir, "/tmp/ms-test-XXXXXX");
    assert_non_null(mkdtemp(r->dir));
    r->loop = ms_loop_create();
    assert_non_null(r->loop);
    start_anchor(r);
    return &r->base;
}

static void destroy(struct ms_rig *rig)
{
    struct local_rig *r = rig_of(rig);

    if (r->o)
        r->o->ops->destroy(r->o);
    end_anchor(r);
    ms_loop_destroy(r->loop);
    assert_int_equal(ms_tree_remove(AT_FDCWD, r->dir), 0);
    free(r);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* nobody is left */
}

/* ---- what only this one has ---------------------------------------------------------- */

struct told {
    bool done;
    int rc;
    struct ms_error why;
};

static void on_done(void *arg,
                    int rc,
                    const struct ms_error *why,
                    const struct ms_orch_answer *answer)
{
    struct told *t = arg;

    (void)answer;
    t->done = true;
    t->rc = rc;
    if (rc < 0)
        t->why = *why;
}

static struct told reserve(struct local_rig *r,
                           const char *key,
                           const struct ms_bundle *bundles,
                           size_t count,
                           const char *mode)
{
    const char *const env[] = {mode, NULL};
    const struct ms_agent_start start = {
        .head = "127.0.0.1:1", .secret_file = "/ours/secret", .env = env};
    const struct ms_reserve request = {.key = key,
                                       .pieces = {.name = key,
                                                  .bundles = bundles,
                                                  .count = count,
                                                  .strategy = MS_STRATEGY_PACK},
                                       .agent = &start,
                                       .timeout_ns = PATIENCE_NS};
    struct told t = {0};

    assert_non_null(r->o->ops->reserve(r->o, &request, on_done, &t));
    run(&r->base, &t.done, PATIENCE_NS);
    assert_true(t.done);
    return t;
}

static void release_some(struct local_rig *r,
                         const char *key,
                         const uint32_t *numbers,
                         size_t count)
{
    struct told t = {0};

    assert_non_null(r->o->ops->release(r->o, key, numbers, count, on_done, &t));
    run(&r->base, &t.done, PATIENCE_NS);
    assert_int_equal(t.rc, 0);
    assert_true(t.done);
}

static void release(struct local_rig *r, const char *key)
{
    release_some(r, key, NULL, 0);
}

static void read_log(const struct local_rig *r, const char *name, char out[TEXT_MAX])
{
    char path[64];

    snprintf(path, sizeof path, "%s/agent-%s.log", r->dir, name);
    assert_true(ms_tree_read(AT_FDCWD, path, out, TEXT_MAX) >= 0);
}

static void test_agents_lend_what_their_pieces_hold(void **state)
{
    const struct ms_bundle first[] = {{.cpu_milli = 1500, .devices = 1},
                                      {.cpu_milli = 1000, .devices = 2}};
    const struct ms_bundle second[] = {{.devices = 1}};
    struct local_rig *r = rig_of(*state);
    char text[TEXT_MAX];

    open_rig(*state, false);
    assert_int_equal(reserve(r, "a", first, 2, "FAKE_AGENT=").rc, 0);
    assert_int_equal(count_children(), 2); /* one agent for both */
    assert_int_equal(reserve(r, "b", second, 1, "FAKE_AGENT=").rc, 0);
    read_log(r, "n0", text);
    assert_string_equal(text,
                        "n0: 3 CPUs, 1073741824 bytes, 3 devices, head on loopback\n");
    read_log(r, "n0.2", text);
    assert_string_equal(
        text, "n0.2: 8 CPUs, 1073741824 bytes, 1 devices, head on loopback\n");
    release(r, "a");
    release(r, "b");
}

static void test_prefix(void **state)
{
    struct ms_bundle whole[NODES];
    struct local_rig *r = rig_of(*state);
    char text[TEXT_MAX];

    for (size_t i = 0; i < NODES; i++)
        whole[i] = (struct ms_bundle){.cpu_milli = MS_RIG_CPUS * 1000};
    open_rig(*state, false);
    assert_int_equal(reserve(r, "all", whole, NODES, "FAKE_AGENT=").rc, 0);
    read_log(r, "n3", text);
    assert_non_null(strstr(text, "by the prefix"));
    read_log(r, "n2", text);
    assert_null(strstr(text, "by the prefix"));
    release(r, "all");
}

static void test_agent_that_never_joins(void **state)
{
    const struct ms_bundle one = {.cpu_milli = 1000};
    struct local_rig *r = rig_of(*state);
    struct told t;

    open_rig(*state, false);
    t = reserve(r, "early", &one, 1, "FAKE_AGENT=leave");
    assert_int_equal(t.rc, -ECHILD);
    assert_non_null(strstr(t.why.text,
                           "piece 0 on n0 ended (refused): the agent exited "
                           "with code 3 before it had joined: see "));
    assert_non_null(strstr(t.why.text, "/agent-n0.log"));
    assert_int_equal(held(*state), 0);
    r->o->ops->destroy(r->o);
    open_with(r, "/nowhere/muster");
    t = reserve(r, "path", &one, 1, "FAKE_AGENT=");
    assert_int_equal(t.rc, -ECHILD);
    assert_non_null(strstr(t.why.text, "cannot execute '/nowhere/muster'"));
    assert_int_equal(held(*state), 0);
}

static void test_stubborn_agent_is_killed(void **state)
{
    const struct ms_bundle one = {.cpu_milli = 1000};
    struct local_rig *r = rig_of(*state);

    open_rig(*state, false);
    assert_int_equal(reserve(r, "deaf", &one, 1, "FAKE_AGENT=deaf").rc, 0);
    release(r, "deaf");
    assert_int_equal(held(*state), 0);
}

static void on_event(void *arg, int rc, const struct ms_orch_event *e)
{
    struct ms_lent_piece *last = arg;

    assert_int_equal(rc, 0);
    if (e->piece->phase == MS_PHASE_ENDED && !e->gone)
        *last = *e->piece;
}

static void test_signal_is_told(void **state)
{
    const struct ms_bundle one = {.cpu_milli = 1000};
    struct local_rig *r = rig_of(*state);
    struct ms_lent_piece last = {0};
    bool never = false;

    open_rig(*state, false);
    assert_int_equal(reserve(r, "shot", &one, 1, "FAKE_AGENT=").rc, 0);
    assert_non_null(r->o->ops->watch(
        r->o, ((struct local *)r->o)->controller.inventory.cursor, on_event, &last));
    kill(agent_pid(r->o, "shot", 0), SIGKILL);
    run(*state, &never, PATIENCE_NS);
    assert_int_equal(last.cause, MS_CAUSE_SIGNALED);
    assert_int_equal(last.code, SIGKILL);
    assert_int_equal(agent_pid(r->o, "shot", 0), 0);
    release(r, "shot");
}

/* ---- this program as an agent -------------------------------------------------------- */

static void on_usr1(int sig, siginfo_t *info, void *context)
{
    (void)sig;
    (void)context;
    _exit(info->si_value.sival_int);
}

static const char *option(char **argv, const char *name)
{
    for (size_t i = 0; argv[i]; i++)
        if (strcmp(argv[i], name) == 0)
            return argv[i + 1];
    return NULL;
}

static int say_shape(char **argv)
{
    uint8_t data[4096];
    ssize_t n = read(3, data, sizeof data);
    Muster__NodeShape *s =
        muster__node_shape__unpack(NULL, n > 0 ? (size_t)n : 0, data);

    if (!s || strcmp(s->name, option(argv, "--node-name")) != 0)
        return -1;
    printf("%s: %d CPUs, %llu bytes, %zu devices%s%s\n",
           s->name,
           s->cpus,
           (unsigned long long)s->memory,
           s->n_devices,
           option(argv, "--bind") ? ", head on loopback" : "",
           getenv("FAKE_PREFIX") ? ", by the prefix" : "");
    muster__node_shape__free_unpacked(s, NULL);
    return fflush(stdout);
}

static int agent_main(char **argv)
{
    struct sigaction usr1 = {.sa_sigaction = on_usr1, .sa_flags = SA_SIGINFO};
    struct pollfd end = {.events = POLLIN};
    const char *mode = getenv("FAKE_AGENT");

    const char *end_with = option(argv, "--end-with");

    end.fd = end_with ? ms_process_open((pid_t)strtol(end_with, NULL, 10)) : -1;
    sigaction(SIGUSR1, &usr1, NULL);
    if ((end_with && end.fd < 0) || say_shape(argv) != 0)
        return 90;
    if (mode && strcmp(mode, "leave") == 0)
        return 3;
    if (mode && strcmp(mode, "deaf") == 0)
        signal(SIGTERM, SIG_IGN);
    if (write(4, "1", 1) != 1)
        return 91;
    while (poll(&end, 1, -1) < 0)
        ;
    return 92;
}

/* ---- what outlives a controller ------------------------------------------------------ */

/* As if the controller before had written something else of its first gang. */
static void change_file(const struct local_rig *r,
                        void (*change)(Muster__LocalGang *g, void *arg),
                        void *arg)
{
    uint8_t data[4096];
    char path[64];
    Muster__LocalGangs *m;
    ssize_t len;
    size_t size;
    int fd;

    snprintf(path, sizeof path, "%s/lent-", r->dir);
    fd = open(path, O_RDWR | O_CLOEXEC);
    len = read(fd, data, sizeof data);
    assert_true(len > 0);
    m = muster__local_gangs__unpack(NULL, (size_t)len, data);
    assert_non_null(m);
    change(m->gangs[0], arg);
    assert_true(muster__local_gangs__get_packed_size(m) <= sizeof data);
    size = muster__local_gangs__pack(m, data);
    assert_int_equal(pwrite(fd, data, size, 0), size);
    assert_int_equal(ftruncate(fd, (off_t)size), 0);
    close(fd);
    muster__local_gangs__free_unpacked(m, NULL);
}

static void set_text(char **at, const char *text)
{
    if (*at != protobuf_c_empty_string)
        free(*at);
    *at = strdup(text);
    assert_non_null(*at);
}

static void set_process(Muster__LocalGang *g, void *arg)
{
    set_text(&g->agents[0]->process, arg);
}

static void set_secret_file(Muster__LocalGang *g, void *arg)
{
    set_text(&g->secret_file, arg);
}

static void close_rig(struct local_rig *r)
{
    r->o->ops->destroy(r->o);
    r->o = NULL;
}

static void kill_agent(pid_t pid)
{
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static enum ms_phase phase_of(const struct local_rig *r, const char *key)
{
    const struct local *l = (const struct local *)r->o;

    return ms_inventory_piece(ms_inventory_find(&l->controller.inventory, key), 0)
        ->phase;
}

static void test_an_agent_that_ended_meanwhile(void **state)
{
    const struct ms_bundle two[] = {{.cpu_milli = 8000, .devices = 1},
                                    {.cpu_milli = 8000}};
    struct local_rig *r = rig_of(*state);
    pid_t pid;

    open_rig(*state, false);
    assert_int_equal(reserve(r, "kept", two, 2, "FAKE_AGENT=").rc, 0);
    pid = agent_pid(r->o, "kept", 0);
    close_rig(r);
    kill_agent(pid);
    open_rig(*state, true);
    assert_int_equal(agent_pid(r->o, "kept", 0), 0);
    assert_true(agent_pid(r->o, "kept", 1) > 0);
    assert_int_equal(phase_of(r, "kept"), MS_PHASE_ENDED);
    release(r, "kept");
}

/* Controllers come and go: an end that the first of them found is an end for all. */
static void test_an_end_is_written_down_again(void **state)
{
    const struct ms_bundle two[] = {{.cpu_milli = 8000, .devices = 1},
                                    {.cpu_milli = 8000}};
    const struct ms_bundle one = {.cpu_milli = 8000, .devices = 1};
    struct local_rig *r = rig_of(*state);
    pid_t pid;

    open_rig(*state, false);
    assert_int_equal(reserve(r, "kept", two, 2, "FAKE_AGENT=").rc, 0);
    pid = agent_pid(r->o, "kept", 0);
    close_rig(r);
    kill_agent(pid);
    open_rig(*state, true);
    release_some(r, "kept", (const uint32_t[]){0}, 1);
    assert_int_equal(reserve(r, "more", &one, 1, "FAKE_AGENT=").rc, 0);
    pid = agent_pid(r->o, "more", 0); /* of the same name */
    open_rig(*state, true);
    assert_int_equal(agent_pid(r->o, "kept", 0), 0);
    assert_int_equal(agent_pid(r->o, "more", 0), pid);
    release(r, "kept");
    release(r, "more");
}

/* As the file is when a controller is killed before it has written the agent's process. */
static pid_t forget_process(struct local_rig *r, const char *key)
{
    pid_t pid = agent_pid(r->o, key, 0);

    close_rig(r);
    change_file(r, set_process, (char[]){""});
    return pid;
}

static void test_an_agent_that_was_not_written_down(void **state)
{
    const struct ms_bundle one = {.cpu_milli = 1000};
    struct local_rig *r = rig_of(*state);
    pid_t pid;

    open_rig(*state, false);
    assert_int_equal(reserve(r, "kept", &one, 1, "FAKE_AGENT=").rc, 0);
    pid = forget_process(r, "kept");
    open_rig(*state, true);
    assert_int_equal(agent_pid(r->o, "kept", 0), pid);
    release(r, "kept");
}

/* One with this node's name, of our executable, whose head has another secret. */
static void test_an_agent_of_another_head(void **state)
{
    const struct ms_bundle one = {.cpu_milli = 1000};
    struct local_rig *r = rig_of(*state);
    pid_t pid;

    open_rig(*state, false);
    assert_int_equal(reserve(r, "kept", &one, 1, "FAKE_AGENT=").rc, 0);
    pid = forget_process(r, "kept");
    change_file(r, set_secret_file, (char[]){"/others/secret"});
    open_rig(*state, true);
    assert_int_equal(agent_pid(r->o, "kept", 0), 0);
    assert_int_equal(phase_of(r, "kept"), MS_PHASE_ENDED);
    kill_agent(pid);
    release(r, "kept");
}

/* Of an agent that is gone the file says that it is this process. */
static void is_none(struct ms_rig *rig, char *process)
{
    const struct ms_bundle one = {.cpu_milli = 1000};
    struct local_rig *r = rig_of(rig);
    pid_t pid;

    open_rig(rig, false);
    assert_int_equal(reserve(r, "kept", &one, 1, "FAKE_AGENT=").rc, 0);
    pid = agent_pid(r->o, "kept", 0);
    close_rig(r);
    kill_agent(pid);
    change_file(r, set_process, process);
    open_rig(rig, true);
    assert_int_equal(agent_pid(r->o, "kept", 0), 0);
    assert_int_equal(phase_of(r, "kept"), MS_PHASE_ENDED);
    release(r, "kept");
}

static void test_a_process_that_is_no_agent_of_ours(void **state)
{
    char process[MS_SUPERVISOR_NAME_MAX], other[MS_SUPERVISOR_NAME_MAX + 4];
    pid_t stranger = rig_of(*state)->anchor;

    assert_int_equal(ms_supervisor_name(stranger, process), 0);
    snprintf(other, sizeof other, "7%s", process); /* of another pid namespace */
    is_none(*state, other);
    snprintf(other, sizeof other, "%s7", process); /* started at another time */
    is_none(*state, other);
    snprintf(other, sizeof other, "%s-7", process); /* no name */
    is_none(*state, other);
    is_none(*state, (char[]){"7"});
}

static void test_a_file_that_is_damaged(void **state)
{
    struct local_rig *r = rig_of(*state);
    struct ms_error err = {0};
    struct ms_orchestrator *o;
    char path[64];
    int fd;

    snprintf(path, sizeof path, "%s/lent-", r->dir);
    fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    assert_int_equal(write(fd, "\xff\xff\xff", 3), 3);
    close(fd);
    o = ms_orchestrator_local(&(struct ms_local_options){.loop = r->loop,
                                                         .agent_path = self,
                                                         .state_dir = r->dir},
                              &err);
    assert_null(o);
    assert_int_equal(err.code, -EBADMSG);
    assert_non_null(strstr(err.text, "cannot be read"));
}

static int setup_durable(void **state)
{
    *state = make(self);
    return 0;
}

static int setup(void **state)
{
    *state = make(NULL);
    return 0;
}

static int teardown(void **state)
{
    destroy(*state);
    return 0;
}

#define TEST(name)    cmocka_unit_test_setup_teardown(name, setup, teardown)
#define DURABLE(name) cmocka_unit_test_setup_teardown(name, setup_durable, teardown)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(test_agents_lend_what_their_pieces_hold),
        TEST(test_prefix),
        TEST(test_agent_that_never_joins),
        TEST(test_stubborn_agent_is_killed),
        TEST(test_signal_is_told),
        DURABLE(test_an_agent_that_ended_meanwhile),
        DURABLE(test_an_end_is_written_down_again),
        DURABLE(test_an_agent_that_was_not_written_down),
        DURABLE(test_an_agent_of_another_head),
        DURABLE(test_a_process_that_is_no_agent_of_ours),
        DURABLE(test_a_file_that_is_damaged),
    };
    const struct ms_conformance all[] = {{"local", make, destroy, NULL},
                                         {"local, durable", make, destroy, self}};

    if (argc > 3)
        return agent_main(argv);
    if (readlink("/proc/self/exe", self, sizeof self - 1) < 0)
        return 1;
    return ms_conformance_run(all, MS_COUNT(all), tests, MS_COUNT(tests));
}
