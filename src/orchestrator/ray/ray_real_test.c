/* The suite on a real Ray of several raylets, which t/ray_cluster.py starts on this machine.
 * MUSTER_RAY_CLUSTER is the command for that; without it nothing is tested. This program is
 * also what the package has as bin/muster: the bridge, and small agents. */
#include "base/cleanup.h"
#include "io/spawn.h"
#include "io/tree.h"
#include "orchestrator/ray/bridge/bridge.h"
#include "orchestrator/ray/ray_impl.h"
#include "orchestrator/test_conformance.h"

#include <fcntl.h>
#include <limits.h>
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

enum { SILENCE_SHARE = 15 }; /* of the time that the suite wants: this is real time */

/* short: sockets are in there */
static char self[PATH_MAX], state_dir[] = "/tmp/mr-XXXXXX";

/* ---- the cluster, one for all tests -------------------------------------------------- */

static struct {
    FILE *to, *from;
    pid_t pid;
    char address[128];
    char lost[64]; /* a node that was killed, and has to come back */
} cluster;

static json_t *order(const char *line)
{
    char *answer = NULL;
    size_t room = 0;
    json_t *o;

    fprintf(cluster.to, "%s\n", line);
    fflush(cluster.to);
    assert_true(getline(&answer, &room, cluster.from) > 0);
    o = json_loads(answer, 0, NULL);
    if (!o || json_object_get(o, "failed"))
        fail_msg("%s: %s", line, answer);
    free(answer);
    return o;
}

static void order_done(const char *line)
{
    json_decref(order(line));
}

static void add_node(const char *name)
{
    char line[256];

    snprintf(line,
             sizeof line,
             "{\"do\":\"add\",\"nodes\":[{\"node_name\":\"%s\",\"num_cpus\":%d,"
             "\"num_gpus\":4}]}",
             name,
             MS_RIG_CPUS);
    order_done(line);
}

/* Ray's own limits are too short for a machine that does other things too. */
static void set_ray_env(void)
{
    static const char *const env[][2] = {
        {"RAY_USAGE_STATS_ENABLED", "0"},
        {"RAY_raylet_start_wait_time_s", "120"},
        {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0"}, /* else 127.0.0.1 is replaced */
        {"RAY_DASHBOARD_STARTUP_TIMEOUT_S", "300"},
        {"RAY_DASHBOARD_SUBPROCESS_MODULE_WAIT_READY_TIMEOUT", "300"},
        {"RAY_TMPDIR", state_dir},
    };

    for (size_t i = 0; i < MS_COUNT(env); i++)
        setenv(env[i][0], env[i][1], 1);
    unsetenv("RAY_ADDRESS");
}

static void start_cluster(void)
{
    int to[2], from[2];
    json_t *o;

    if (cluster.pid)
        return;
    assert_int_equal(pipe2(to, O_CLOEXEC), 0);
    assert_int_equal(pipe2(from, O_CLOEXEC), 0);
    cluster.pid = fork();
    if (cluster.pid == 0) {
        set_ray_env();
        dup2(to[0], 0);
        dup2(from[1], 1);
        execl("/bin/sh", "sh", "-c", getenv("MUSTER_RAY_CLUSTER"), NULL);
        _exit(127);
    }
    close(to[0]);
    close(from[1]);
    cluster.to = fdopen(to[1], "w");
    cluster.from = fdopen(from[0], "r");
    o = order("{\"do\":\"start\",\"dashboard\":true,\"config\":{"
              "\"health_check_initial_delay_ms\":1000,\"health_check_period_ms\":1000,"
              "\"health_check_failure_threshold\":3}}");
    snprintf(cluster.address,
             sizeof cluster.address,
             "http://%s",
             json_string_value(json_object_get(o, "url")));
    json_decref(o);
    for (int i = 0; i < MS_RIG_NODES; i++) {
        char name[8];

        snprintf(name, sizeof name, "n%d", i);
        add_node(name);
    }
}

static void stop_cluster(void)
{
    if (!cluster.pid)
        return;
    fclose(cluster.to);
    while (getc(cluster.from) != EOF) /* it ends with everything that it started */
        ;
    fclose(cluster.from);
    waitpid(cluster.pid, NULL, 0);
}

/* ---- the rig ------------------------------------------------------------------------- */

struct ray_rig {
    struct ms_rig base;
    const char *name;
    struct ms_loop *loop;
    struct ms_timer wake;
    bool is_durable;
    pid_t silenced;
    struct ms_orchestrator *o;
};

static struct ray_rig *rig_of(struct ms_rig *rig)
{
    return (struct ray_rig *)rig;
}

static void on_wake(void *arg)
{
    struct ray_rig *r = arg;

    if (r->silenced)
        kill(r->silenced, SIGCONT);
    r->silenced = 0;
}

static bool run(struct ms_rig *rig, const bool *until, int64_t timeout_ns)
{
    return ms_rig_run_loop(rig_of(rig)->loop, until, timeout_ns, NULL, NULL);
}

static void show_log(void *arg, const char *text, size_t len)
{
    (void)arg;
    if (getenv("MUSTER_TEST_VERBOSE"))
        fprintf(stderr, "%.*s", (int)len, text);
}

static struct ms_orchestrator *open_one(struct ms_rig *rig, bool killed)
{
    struct ray_rig *r = rig_of(rig);
    struct ms_error err = {0};

    if (r->o && killed)
        ms_ray_abandon(r->o);
    else if (r->o)
        r->o->ops->destroy(r->o);
    r->o = ms_ray_create(
        &(struct ms_ray_options){.loop = r->loop,
                                 .site = {.address = cluster.address,
                                          .muster = self,
                                          .python_dir = getenv("MUSTER_PYTHON_DIR"),
                                          .cache_dir = state_dir},
                                 .name = r->name,
                                 .grace_ns = r->is_durable ? 30 * MS_NS_PER_S : 0,
                                 .state_dir = state_dir,
                                 .on_log = show_log},
        &err);
    if (!r->o)
        fail_msg("%s", err.text);
    return r->o;
}

/* A process with both of these words, one after the other. */
static pid_t find_process(const char *first, const char *second)
{
    DIR *dir = opendir("/proc");
    const struct dirent *d;
    pid_t found = 0;

    while (!found && (d = readdir(dir))) {
        char path[288], words[16 << 10];
        FILE *f;
        size_t len;

        snprintf(path, sizeof path, "/proc/%s/cmdline", d->d_name);
        f = d->d_name[0] >= '0' && d->d_name[0] <= '9' ? fopen(path, "r") : NULL;
        if (!f)
            continue;
        len = fread(words, 1, sizeof words - 1, f);
        words[len] = 0;
        fclose(f);
        for (size_t at = 0; at < len && !found; at += strlen(words + at) + 1)
            if (strcmp(words + at, first) == 0 &&
                strcmp(words + at + strlen(first) + 1, second) == 0)
                found = (pid_t)strtol(d->d_name, NULL, 10);
    }
    closedir(dir);
    return found;
}

static void end_piece(struct ms_rig *rig, const char *key, uint32_t number, int code)
{
    struct ray *ray = (struct ray *)rig_of(rig)->o;
    const struct ms_lent_piece *p =
        ms_inventory_piece(ms_inventory_find(&ray->controller.inventory, key), number);
    pid_t pid = find_process("--node-name", p->node);

    assert_true(pid > 0);
    assert_int_equal(sigqueue(pid, SIGUSR1, (union sigval){.sival_int = code}), 0);
}

static void kill_node(struct ms_rig *rig, const char *node)
{
    char line[128];

    (void)rig;
    snprintf(line,
             sizeof line,
             "{\"do\":\"kill\",\"what\":\"raylet\",\"node\":\"%s\"}",
             node);
    order_done(line);
    snprintf(cluster.lost, sizeof cluster.lost, "%s", node);
}

static void silence(struct ms_rig *rig, int64_t for_ns)
{
    struct ray_rig *r = rig_of(rig);

    r->silenced = find_process("--name", r->name);
    assert_true(r->silenced > 0);
    kill(r->silenced, SIGSTOP);
    ms_timer_set(&r->wake, for_ns / SILENCE_SHARE);
}

/* By Ray's own word, whether it has anything; how many pieces, by the controller's. */
static size_t held(struct ms_rig *rig)
{
    struct ray *ray = (struct ray *)rig_of(rig)->o;
    json_t *o = order("{\"do\":\"held\"}");
    const json_t *actors = json_object_get(o, "actors");
    size_t groups = json_array_size(json_object_get(o, "groups")), living = 0,
           count = 0;

    for (size_t i = 0; i < json_array_size(actors); i++)
        living += strstr(json_string_value(
                             json_object_get(json_array_get(actors, i), "class")),
                         "MusterBundle") != NULL;
    json_decref(o);
    ms_list_each (m, &ray->controller.inventory.all, struct ms_inventory_entry, link)
        count += m->count - m->in_phase[MS_PHASE_ENDED];
    assert_true(count == 0 || (groups > 0 && living > 0));
    return count ? count : groups + living;
}

static struct ms_rig *make(void *arg)
{
    static const struct ms_rig_ops ops = {.open = open_one,
                                          .run = run,
                                          .end_piece = end_piece,
                                          .kill_node = kill_node,
                                          .silence = silence,
                                          .held = held,
                                          .patience_ns = 120 * MS_NS_PER_S};
    struct ray_rig *r = calloc(1, sizeof *r);

    start_cluster();
    r->base.ops = &ops;
    r->name = arg ? "durable" : "plain";
    r->is_durable = arg != NULL;
    r->loop = ms_loop_create();
    assert_int_equal(ms_timer_init(&r->wake, r->loop, on_wake, r), 0);
    return &r->base;
}

static void destroy(struct ms_rig *rig)
{
    struct ray_rig *r = rig_of(rig);
    char line[128];

    on_wake(r);
    if (r->o) {
        ms_ray_leave_bridge((struct ray *)r->o, false);
        r->o->ops->destroy(r->o);
    }
    ms_timer_finish(&r->wake);
    ms_loop_destroy(r->loop);
    if (cluster.lost[0]) {
        snprintf(
            line, sizeof line, "{\"do\":\"forget\",\"node\":\"%s\"}", cluster.lost);
        order_done(line);
        add_node(cluster.lost);
        cluster.lost[0] = 0;
    }
    free(r);
}

/* ---- this program as an agent -------------------------------------------------------- */

static void on_usr1(int sig, siginfo_t *info, void *context)
{
    (void)sig;
    (void)context;
    _exit(info->si_value.sival_int);
}

static int option(char **argv, const char *name)
{
    for (size_t i = 0; argv[i]; i++)
        if (strcmp(argv[i], name) == 0)
            return (int)strtol(argv[i + 1], NULL, 10);
    return -1;
}

static int agent_main(char **argv)
{
    struct sigaction usr1 = {.sa_sigaction = on_usr1, .sa_flags = SA_SIGINFO};
    struct pollfd end = {.events = POLLIN};

    end.fd = ms_process_open((pid_t)option(argv, "--end-with"));
    sigaction(SIGUSR1, &usr1, NULL);
    if (end.fd < 0 || write(option(argv, "--ready-fd"), "1", 1) != 1)
        return 91;
    while (poll(&end, 1, -1) < 0)
        ;
    return 92;
}

int main(int argc, char **argv)
{
    const struct ms_conformance all[] = {
        {"ray", make, destroy, NULL},
        {"ray, with a grace", make, destroy, self},
    };
    int failed;

    if (argc > 1 && strcmp(argv[1], "agent") == 0)
        return agent_main(argv);
    if (argc > 1 && strcmp(argv[1], "bridge") == 0)
        return ms_bridge_run_by_env(stdout);
    if (!getenv("MUSTER_RAY_CLUSTER")) {
        fprintf(stderr, "MUSTER_RAY_CLUSTER is not set: nothing is tested\n");
        return 77;
    }
    signal(SIGPIPE, SIG_IGN);
    if (readlink("/proc/self/exe", self, sizeof self - 1) < 0 || !mkdtemp(state_dir))
        return 1;
    if (getenv("MUSTER_TEST_FILTER"))
        cmocka_set_test_filter(getenv("MUSTER_TEST_FILTER"));
    failed = ms_conformance_run(all, MS_COUNT(all), NULL, 0);
    stop_cluster();
    ms_tree_remove(AT_FDCWD, state_dir);
    return failed;
}
