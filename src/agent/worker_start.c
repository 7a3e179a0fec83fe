/* worker_start.c - a worker begins: told who it is, then executed, or forked by a zygote
 *
 * All three ways (fork, exec, command) have the same endpoints, the same first message on
 * the control socket and the same environment; they differ in which process makes the
 * child, and in how its failure is heard of.
 */
#include "agent/exec.h"
#include "agent/join_impl.h"
#include "agent/worker.h"
#include "base/cleanup.h"
#include "base/env.h"
#include "base/proto.h"
#include "io/addr.h"
#include "io/session/root.h"
#include "io/session/secret.h"
#include "io/supervised.h"
#include "io/tree.h"
#include "resource/shape.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <string.h>

/* ---- what it is told ------------------------------------------------------------- */

static int send_boot(struct ms_worker *w)
{
    char spin_path[PATH_MAX];
    const char *variables[MS_DEVICE_VARIABLES_MAX];
    Muster__WorkerBoot boot = MUSTER__WORKER_BOOT__INIT;
    const Muster__AgentConfig *config = w->agent->config;

    snprintf(spin_path, sizeof spin_path, "%s/spin", config->session_dir);
    boot.uid = w->uid;
    boot.secret = config->secret;
    boot.cluster = w->spec->cluster;
    boot.rank = w->spec->rank;
    boot.agent_pid = getpid();
    boot.session_dir = config->session_dir;
    boot.n_sys_path = w->context->message->n_sys_path;
    boot.sys_path = w->context->message->sys_path;
    boot.n_preload = w->context->message->n_preload;
    boot.preload = w->context->message->preload;
    boot.node_name = (char *)(uintptr_t)w->agent->node;
    boot.host = (char *)(uintptr_t)ms_worker_listen(w)->hosts[0];
    boot.spin_path = spin_path;
    boot.tls = config->tls;
    if (w->agent->join) {
        boot.link_grace_ns = (uint64_t)w->agent->join->link_grace_ns;
        boot.head = ms_field_text(w->agent->join->options->head);
    }
    boot.host_id = (char *)(uintptr_t)ms_host_id();
    boot.http_open = w->spec->http_open;
    boot.world_size = w->spec->world_size;
    boot.n_device_variables = ms_shape_variables(w->agent->shape, variables);
    boot.device_variables = (char **)(uintptr_t)variables;
    return ms_worker_send(w, MUSTER__AGENT_TO_WORKER__BODY_BOOT, &boot);
}

static int set_identity(const struct ms_worker *w, struct ms_env *env)
{
    int rc = ms_env_printf(env, "MUSTER_WORKER_UID=%016" PRIx64, w->uid);

    if (rc == 0)
        rc = ms_env_inherit(env, MS_SUPERVISOR_VARIABLE);
    return rc == 0 ? ms_env_printf(env, "MUSTER_INCARNATION=%u", w->spec->incarnation)
                   : rc;
}

/* Collectives use the interface by which others reach this node, unless told; of a worker that
 * was told where to listen nothing is known. */
static int set_interface(const struct ms_worker *w, struct ms_env *env)
{
    const char *name = w->own_listen ? "" : w->agent->listen.interface;
    int rc = *name ? ms_env_printf(env, "GLOO_SOCKET_IFNAME=%s", name) : 0;

    return *name && rc == 0 ? ms_env_printf(env, "NCCL_SOCKET_IFNAME==%s", name) : rc;
}

/* The driver's environment with its own on top. */
static int set_env(const struct ms_worker *w, struct ms_env *env)
{
    const Muster__DriverContext *context = w->context->message;
    int rc = set_interface(w, env);

    if (rc == 0)
        rc = ms_env_set_all(env, context->env, context->n_env);
    return rc == 0 ? ms_env_set_all(env, w->spec->env, w->spec->n_env) : rc;
}

/* ---- the secret of its head -------------------------------------------------------- */

static const char *told_secret(const struct ms_env *env)
{
    static const char name[] = MS_SECRET_FILE_ENV "=";
    const char *found = NULL;

    for (size_t i = 0; i < env->count; i++)
        if (strncmp(env->entries[i], name, sizeof name - 1) == 0)
            found = env->entries[i] + sizeof name - 1;
    return found;
}

/* As a session's folder has it; that of this node goes with the agent. */
static int write_secret(const Muster__AgentConfig *config)
{
    MS_CLEANUP(ms_cleanup_fd) int dir = ms_tree_open(AT_FDCWD, config->session_dir);
    int rc = dir;

    if (dir >= 0 && config->secret.len == MS_SESSION_SECRET_SIZE)
        rc = ms_session_write_secret(dir, config->secret.data);
    return rc == -EEXIST || rc > 0 ? 0 : rc;
}

/* This node's file of that name is the head's: on another machine it may be another head's. */
static bool has_secret(const char *path, const Muster__AgentConfig *config)
{
    uint8_t found[MS_SECRET_FILE_SIZE];
    bool is_same;

    if (config->secret.len != sizeof found)
        return access(path, F_OK) == 0; /* there is nothing else to give */
    is_same = ms_secret_read(path, found, NULL) == 0 &&
              memcmp(found, config->secret.data, sizeof found) == 0;
    explicit_bzero(found, sizeof found);
    return is_same;
}

/* A program may join the head as a driver: a job's driver does. The file that it is told of
 * is on the head's machine; on another one it gets a copy. */
static int set_secret(const struct ms_worker *w, struct ms_env *env)
{
    const Muster__AgentConfig *config = w->agent->config;
    const char *told = told_secret(env);
    int rc;

    if (!told || w->spec->start != MUSTER__START_KIND__START_COMMAND ||
        has_secret(told, config))
        return 0;
    rc = write_secret(config);
    return rc < 0 ? rc
                  : ms_env_printf(
                        env, MS_SECRET_FILE_ENV "=%s/secret", config->session_dir);
}

/* ---- by exec --------------------------------------------------------------------- */

static int make_env(struct ms_env *env, const struct ms_worker *w)
{
    static char fds[][32] = {
        "MUSTER_CONTROL_FD=3", "MUSTER_LISTEN_FD=4", "MUSTER_LISTEN_TCP_FD=5"};
    int rc = set_env(w, env);

    if (rc == 0)
        rc = set_secret(w, env);
    for (size_t i = 0; i < MS_COUNT(fds) && rc == 0; i++)
        rc = ms_env_set(env, fds[i]);
    return rc == 0 ? set_identity(w, env) : rc;
}

/* This program, as it was started. */
static char *own_path(void)
{
    static char path[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);

    path[n > 0 ? n : 0] = '\0';
    return path;
}

/* A command that begins with "-m": the interpreter goes before it. */
static bool is_module(const struct ms_worker *w)
{
    return w->spec->n_command && !strcmp(w->spec->command[0], "-m");
}

/* `command`, or the interpreter (or this program) with what makes it a host. Borrowed
 * strings. */
static char **make_argv(const struct ms_worker *w)
{
    static char dash_c[] = "-c",
                code[] = "from muster._worker.main import main_exec; main_exec()",
                worker[] = "worker";
    char *host[] = {dash_c, code}, *native[] = {own_path(), worker};
    bool is_native = w->spec->start == MUSTER__START_KIND__START_NATIVE;
    char **rest = w->is_command ? w->spec->command : is_native ? native : host;
    size_t rest_count = w->is_command ? w->spec->n_command : 2;
    const Muster__DriverContext *context = w->context->message;
    const Muster__ZygoteKey *key = w->spec->zygote;
    bool has_python = key && key->n_python;
    char **from = has_python ? key->python : context->python;
    size_t count = has_python ? key->n_python : context->n_python;
    char **argv;

    if (is_native || (w->is_command && !is_module(w)))
        count = 0;
    argv = calloc(count + rest_count + 1, sizeof *argv);
    if (!argv)
        return NULL;
    if (count)
        memcpy(argv, from, count * sizeof *argv);
    memcpy(argv + count, rest, rest_count * sizeof *argv);
    return argv;
}

static void on_problem(void *arg, unsigned events)
{
    (void)events;
    ms_worker_check_problem(arg);
}

static int launch(struct ms_worker *w, char **argv, char **env, struct ms_error *err)
{
    const int *fds = w->child_fds;
    struct ms_exec x = {
        .argv = argv,
        .env = env,
        .working_dir = w->spec->working_dir,
        .fds = {-1,
                fds[MS_SPAWN_STDOUT],
                fds[MS_SPAWN_STDERR],
                fds[MS_SPAWN_CONTROL],
                fds[MS_SPAWN_LISTEN],
                fds[MS_SPAWN_LISTEN_TCP]},
        /* a host ends itself and its children when we go; a plain command knows nothing
         */
        .death_signal = w->is_command ? SIGTERM : 0,
        .cgroup_fd = fds[MS_SPAWN_CGROUP],
        .nofile = &w->agent->nofile,
    };
    pid_t pid = ms_exec_start(&x, &w->problem_fd, err);

    if (pid < 0)
        return pid;
    ms_worker_close_child_fds(w);
    w->is_pending = true;
    if (ms_worker_set_pid(w, pid, 0) < 0 ||
        ms_watch_init(
            &w->problem, w->agent->loop, w->problem_fd, MS_READ, on_problem, w) < 0) {
        kill(pid, SIGKILL); /* reaped as a stranger */
        ms_map_remove(&w->agent->by_pid, (uint64_t)pid);
        w->is_pending = false;
        w->pid = 0;
        return ms_error_set(err, -ENOMEM, "out of memory");
    }
    return 0;
}

static int execute(struct ms_worker *w, struct ms_error *err)
{
    MS_CLEANUP(ms_env_finish) struct ms_env env = {0};
    MS_CLEANUP(ms_cleanup_free) char **argv = make_argv(w);

    if (!argv || make_env(&env, w) < 0)
        return ms_error_set(err, -ENOMEM, "out of memory");
    if (!argv[0])
        return ms_error_set(err, -EINVAL, "no interpreter is named");
    return launch(w, argv, env.entries, err);
}

void ms_worker_check_problem(struct ms_worker *w)
{
    struct ms_error err = {0};
    int rc;

    if (!w->is_pending || w->problem_fd < 0)
        return;
    rc = ms_exec_result(w->problem_fd, &err);
    if (rc == -EAGAIN && !err.code)
        return;
    ms_watch_finish(&w->problem);
    ms_fd_close(&w->problem_fd);
    w->is_pending = false;
    ms_start_result(w->start, w, rc < 0 ? err.text : NULL);
}

/* ---- by fork --------------------------------------------------------------------- */

static Muster__DriverContext *make_key(const struct ms_worker *w,
                                       const struct ms_env *env)
{
    struct ms_zygote_need need = {.context = w->context->message,
                                  .asked = w->spec->zygote,
                                  .env = env->entries,
                                  .n_env = env->count,
                                  .working_dir = w->spec->working_dir,
                                  .shape = w->agent->shape};

    return ms_zygote_key_create(&need);
}

/* What the zygote of `key` does not have of `all`. */
static int leave_own(struct ms_env *own,
                     const struct ms_env *all,
                     const Muster__DriverContext *key)
{
    int rc = 0;

    for (size_t i = 0; i < all->count && rc == 0; i++)
        if (!ms_zygote_key_has_env(key, all->entries[i]))
            rc = ms_env_set(own, all->entries[i]);
    /* a driver may itself be a worker of another session */
    ms_env_drop(own, "MUSTER_CONTROL_FD");
    ms_env_drop(own, "MUSTER_LISTEN_FD");
    ms_env_drop(own, "MUSTER_LISTEN_TCP_FD");
    return rc;
}

/* The key of its zygote, and the request to it. NULL: out of memory. */
static Muster__DriverContext *make_request(struct ms_worker *w)
{
    MS_CLEANUP(ms_env_finish) struct ms_env all = {0};
    MS_CLEANUP(ms_env_finish) struct ms_env own = {0};
    MS_CLEANUP(ms_zygote_key_cleanup) Muster__DriverContext *key = NULL;
    Muster__ZygoteRequest request = MUSTER__ZYGOTE_REQUEST__INIT;
    Muster__Spawn spawn = MUSTER__SPAWN__INIT;

    if (set_env(w, &all) < 0)
        return NULL;
    key = make_key(w, &all);
    if (!key || leave_own(&own, &all, key) < 0 || set_identity(w, &own) < 0)
        return NULL;
    spawn.uid = w->uid;
    spawn.cluster = w->spec->cluster;
    spawn.rank = w->spec->rank;
    spawn.working_dir = w->spec->working_dir;
    spawn.n_env = own.count;
    spawn.env = own.entries;
    request.body_case = MUSTER__ZYGOTE_REQUEST__BODY_SPAWN;
    request.spawn = &spawn;
    return ms_proto_pack(&request.base, &w->item.data) < 0 ? NULL : MS_TAKE(key);
}

static int execute_instead(struct ms_worker *w, const char *why, struct ms_error *err)
{
    ms_buf_finish(&w->item.data);
    ms_log_note(w->log, "[muster] this worker is a fresh interpreter: %s", why);
    return execute(w, err);
}

static int fork_from_zygote(struct ms_worker *w, struct ms_error *err)
{
    Muster__DriverContext *key = make_request(w);
    struct ms_error why = {0};
    int rc;

    if (!key)
        return ms_error_set(err, -ENOMEM, "out of memory");
    for (size_t i = 0; i < MS_SPAWN_FDS && w->child_fds[i] >= 0; i++)
        w->item.fds[w->item.fd_count++] = w->child_fds[i];
    w->is_pending = true;
    rc = ms_zygotes_spawn(&w->agent->zygotes, key, w->context->driver, &w->item, &why);
    if (rc == 0)
        return 0;
    w->is_pending = false;
    return rc == -ENOSPC ? execute_instead(w, why.text, err)
                         : ms_error_set(err, rc, "%s", why.text);
}

static struct ms_worker *worker_of(struct ms_zygote_item *item)
{
    return MS_CONTAINER(item, struct ms_worker, item);
}

static void on_sent(void *arg, struct ms_zygote_item *item)
{
    (void)arg;
    ms_worker_close_child_fds(worker_of(item));
}

static void on_returned(void *arg, struct ms_zygote_item *item)
{
    struct ms_worker *w = worker_of(item);

    (void)arg;
    for (size_t i = 0; i < item->fd_count; i++)
        w->child_fds[i] = item->fds[i];
}

static void on_failed(void *arg, struct ms_zygote_item *item, const char *why)
{
    struct ms_worker *w = worker_of(item);

    (void)arg;
    w->is_pending = false;
    ms_start_result(w->start, w, why);
}

static void on_spawned(void *arg, struct ms_zygote_item *item, pid_t pid, pid_t zygote)
{
    struct ms_worker *w = worker_of(item);
    bool is_known = ms_worker_set_pid(w, pid, zygote) == 0;

    if (!is_known) {
        kill(pid, SIGKILL);
        w->pid = 0;
    }
    on_failed(arg, item, is_known ? NULL : "out of memory");
}

static void on_unforkable(void *arg, struct ms_zygote_item *item, const char *why)
{
    struct ms_worker *w = worker_of(item);
    struct ms_error err = {0}, text = {0};

    (void)arg;
    w->is_pending = false;
    ms_error_set(&text, -ENOTSUP, "its zygote cannot be forked (%s)", why);
    if (execute_instead(w, text.text, &err) < 0)
        ms_start_result(w->start, w, err.text);
}

static void on_reaped(void *arg, pid_t pid, int status)
{
    ms_reap_one(arg, pid, status);
}

static void on_prepared(void *arg, uint64_t token, const char *why)
{
    struct ms_agent *a = arg;

    if (why)
        ms_agent_refuse(a, token, MUSTER__FAILURE__KIND__REFUSED, why);
    else
        ms_agent_done(a, token);
}

const struct ms_zygote_ops ms_worker_zygote_ops = {
    .on_sent = on_sent,
    .on_returned = on_returned,
    .on_spawned = on_spawned,
    .on_failed = on_failed,
    .on_unforkable = on_unforkable,
    .on_reaped = on_reaped,
    .on_prepared = on_prepared,
};

int ms_worker_begin(struct ms_worker *w, struct ms_error *err)
{
    int rc = send_boot(w);

    if (rc == 0 && w->spec->steps)
        rc = ms_worker_send(w, MUSTER__AGENT_TO_WORKER__BODY_STEPS, w->spec->steps);
    if (rc < 0)
        return ms_error_sys(err, rc, "cannot write to its control socket");
    return w->spec->start == MUSTER__START_KIND__START_FORK ? fork_from_zygote(w, err)
                                                            : execute(w, err);
}
