/* test_local_rig.c - this host as four nodes with small agents, for tests of `local` */
#include "orchestrator/local/test_local_rig.h"

#include "io/proc.h"
#include "io/tree.h"
#include "orchestrator/local/local.h"

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

enum { DEVICES = 4 };

char local_rig_self[TEXT_MAX];

size_t count_children(void)
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

bool run_rig(struct ms_rig *rig, const bool *until, int64_t timeout_ns)
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

struct ms_orchestrator *open_with(struct local_rig *r, const char *path)
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
struct ms_orchestrator *open_rig(struct ms_rig *rig, bool killed)
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
    return open_with(r, local_rig_self);
}

pid_t agent_pid(const struct ms_orchestrator *o, const char *key, uint32_t number)
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
static size_t count_held(const struct ms_orchestrator *o)
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

size_t held_pieces(struct ms_rig *rig)
{
    size_t pieces = count_held(rig_of(rig)->o);

    if (pieces == 0)
        assert_int_equal(count_children(), 1); /* the anchor alone */
    return pieces;
}

struct ms_rig *local_rig_make(void *durable)
{
    static const struct ms_rig_ops ops = {.open = open_rig,
                                          .run = run_rig,
                                          .end_piece = end_piece,
                                          .held = held_pieces,
                                          .patience_ns = PATIENCE_NS};
    struct local_rig *r = calloc(1, sizeof *r);

    assert_non_null(r);
    r->is_durable = durable != NULL;
    r->base.ops = &ops;
    strcpy(r->dir, "/tmp/ms-test-XXXXXX");
    assert_non_null(mkdtemp(r->dir));
    r->loop = ms_loop_create();
    assert_non_null(r->loop);
    start_anchor(r);
    return &r->base;
}

void local_rig_destroy(struct ms_rig *rig)
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

int local_rig_teardown(void **state)
{
    local_rig_destroy(*state);
    return 0;
}

/* ---- what tests ask of it ------------------------------------------------------------ */

static void on_done(void *arg,
                    int rc,
                    const struct ms_error *why,
                    const struct ms_orch_answer *answer)
{
    struct outcome *t = arg;

    (void)answer;
    t->done = true;
    t->rc = rc;
    if (rc < 0)
        t->why = *why;
}

struct outcome reserve(struct local_rig *r,
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
    struct outcome t = {0};

    assert_non_null(r->o->ops->reserve(r->o, &request, on_done, &t));
    run_rig(&r->base, &t.done, PATIENCE_NS);
    assert_true(t.done);
    return t;
}

void release_some(struct local_rig *r,
                  const char *key,
                  const uint32_t *numbers,
                  size_t count)
{
    struct outcome t = {0};

    assert_non_null(r->o->ops->release(r->o, key, numbers, count, on_done, &t));
    run_rig(&r->base, &t.done, PATIENCE_NS);
    assert_int_equal(t.rc, 0);
    assert_true(t.done);
}

void release(struct local_rig *r, const char *key)
{
    release_some(r, key, NULL, 0);
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

bool local_rig_is_agent(int argc, char **argv, int *code)
{
    if (argc > 3) {
        *code = agent_main(argv);
        return true;
    }
    *code = 1;
    return readlink("/proc/self/exe", local_rig_self, sizeof local_rig_self - 1) < 0;
}
