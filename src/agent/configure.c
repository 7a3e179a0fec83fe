/* configure.c - what an agent needs before it can start workers: by its first message, or by a
 * head's welcome */
#include "agent/join_impl.h"
#include "agent/machine/machine.h"
#include "agent/worker.h"
#include "base/proto.h"
#include "io/addr.h"
#include "io/session/session.h"
#include "store/path.h"
#include "store/server/server.h"
#include "wire/frame.h"
#include "wire/handshake.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/file.h>
#include <sys/vfs.h>

/* ---- lines to the head ----------------------------------------------------------- */

static size_t on_queued(void *arg)
{
    const struct ms_agent *a = arg;

    return (a->join ? a->join->held.len : 0) + (a->link ? ms_link_queued(a->link) : 0);
}

static void on_lines(void *arg, const Muster__LogLines *lines)
{
    ms_agent_send(arg, 0, MUSTER__AGENT_TO_HEAD__BODY_LOG, lines);
}

static const struct ms_log_batch_ops batch_ops = {.queued = on_queued,
                                                  .send = on_lines};

static void on_log_piece(void *arg, uint64_t request, const Muster__LogPiece *piece)
{
    ms_agent_send(arg, request, MUSTER__AGENT_TO_HEAD__BODY_PIECE, piece);
}

static void on_log_refused(void *arg, uint64_t request, const char *why)
{
    ms_agent_refuse(arg, request, MUSTER__FAILURE__KIND__REFUSED, why);
}

static const struct ms_log_readers_ops reader_ops = {on_log_piece, on_log_refused};

/* ---- the store of this node ------------------------------------------------------- */

/* Of the node's memory, unless told; and at most, if more was asked for than there is: in
 * hundredths. */
enum { SHARE = 30, SHARE_MAX = 75, WARNING_MAX = 256 };

/* More than the container may use, or the machine has, cannot be had: `warning` says so. */
static uint64_t limit_of(const struct ms_agent *a, char warning[WARNING_MAX])
{
    const Muster__StoreConfig *told = a->config->store;
    uint32_t nodes = a->config->nodes_here ? a->config->nodes_here : 1;
    uint64_t memory = ms_machine_memory(), limit = memory / 100 * SHARE_MAX;

    warning[0] = 0;
    if (!told || !told->is_told)
        return a->shape->memory / 100 * SHARE / nodes;
    if (!memory || told->limit <= memory)
        return told->limit;
    snprintf(
        warning,
        WARNING_MAX,
        "store_limit is %llu MiB, but node %s may use %llu MiB (its container, or the "
        "machine): %llu MiB are used",
        (unsigned long long)(told->limit >> 20),
        a->node,
        (unsigned long long)(memory >> 20),
        (unsigned long long)(limit >> 20));
    ms_agent_log("%s", warning);
    return limit;
}

/* Files in memory free none. */
static bool is_in_memory(const char *dir)
{
    struct statfs fs;

    return statfs(dir, &fs) == 0 &&
           (fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC);
}

/* Where objects go that do not fit; NULL: nowhere. */
static const char *spill_dir(const struct ms_agent *a)
{
    const Muster__StoreConfig *told = a->config->store;
    struct ms_error err = {0};

    if (told && told->no_spill)
        return NULL;
    if (!told || !told->spill_dir[0])
        return is_in_memory(a->config->session_dir) ? NULL : a->config->session_dir;
    if (ms_store_check_spill(told->spill_dir, &err) < 0)
        ms_agent_log("the store will not be able to spill: %s", err.text);
    return told->spill_dir;
}

static void on_note(void *arg, const char *text)
{
    (void)arg;
    ms_agent_log("the store: %s", text);
}

static void open_store(struct ms_agent *a)
{
    const Muster__StoreConfig *told = a->config->store;
    char warning[WARNING_MAX];
    struct ms_store_options o = {.loop = a->loop,
                                 .node_name = a->node,
                                 .secret = a->config->secret.data,
                                 .on_note = on_note,
                                 .limit = limit_of(a, warning),
                                 .memory_left = ms_machine_memory_left,
                                 .spill_dir = spill_dir(a),
                                 .spill_limit = told ? told->spill_limit : 0};
    char path[MS_STORE_PATH_MAX];
    struct ms_error err = {0};
    uint16_t port = 0;
    char *addresses;

    o.warning = warning;
    o.listen_fd = ms_listen_open(&a->listen, &port, &err);
    addresses = ms_listen_print(&a->listen, "", "", port);
    o.address = addresses && addresses[0] ? addresses + 1 : NULL; /* behind the comma */
    o.tls = (enum ms_tls_mode)a->config->tls;
    o.path = ms_store_path(a->config->session_dir, a->node, path);
    a->store = ms_store_create(&o, &err);
    if (!a->store)
        ms_agent_log("no store: %s", err.text);
    free(addresses);
}

/* ---- the first message ----------------------------------------------------------- */

static int is_session_alive(const char *name)
{
    struct ms_session *sessions = NULL;
    int count = ms_session_list(&sessions, NULL), alive = -1;

    for (int i = 0; i < count; i++)
        if (!strcmp(sessions[i].name, name))
            alive = sessions[i].alive;
    free(sessions);
    return alive;
}

static void sweep_cgroups(void *arg)
{
    struct ms_agent *a = arg;

    ms_cgroups_sweep(&a->cgroups, is_session_alive);
}

/* stdin from nowhere, stdout and stderr to our own log. */
static void redirect(const char *logs)
{
    MS_CLEANUP(ms_cleanup_fd) int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    MS_CLEANUP(ms_cleanup_fd) int log = -1;
    char path[PATH_MAX];

    snprintf(path, sizeof path, "%s/agent.log", logs);
    log = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    dup2(null, STDIN_FILENO);
    dup2(log >= 0 ? log : null, STDOUT_FILENO);
    dup2(log >= 0 ? log : null, STDERR_FILENO);
}

void ms_agent_describe(struct ms_agent *a, Muster__AgentReady *ready, char **hosts)
{
    assert(a->shape);
    muster__agent_ready__init(ready);
    ready->pid = getpid();
    ready->shape = a->shape;
    ready->node_name = (char *)(uintptr_t)a->node;
    ready->cgroups = a->cgroups.base[0] != 0;
    ready->host_id = (char *)(uintptr_t)ms_host_id();
    if (a->config)
        ready->session_dir = a->config->session_dir;
    for (size_t i = 0; i < a->listen.host_count; i++)
        hosts[i] = a->listen.hosts[i];
    ready->n_addresses = a->listen.host_count;
    ready->addresses = hosts;
}

void ms_agent_send_ready(struct ms_agent *a, uint64_t request)
{
    Muster__AgentReady ready;
    char *hosts[MS_LISTEN_HOSTS_MAX];

    ms_agent_describe(a, &ready, hosts);
    ms_agent_send(a, request, MUSTER__AGENT_TO_HEAD__BODY_READY, &ready);
}

static int check_version(const Muster__AgentConfig *config, struct ms_error *err)
{
    if (!config->protocol_version || config->protocol_version == MS_FRAME_VERSION)
        return 0;
    return ms_error_set(err,
                        -EPROTONOSUPPORT,
                        "this agent speaks version %d, the head %u: install the same "
                        "Muster on both",
                        MS_FRAME_VERSION,
                        config->protocol_version);
}

/* Several agents of a head use its session's folder; the last one to end removes it. */
static int share_folder(struct ms_agent *a)
{
    if (a->join)
        return 0; /* it has a folder of its own */
    a->folder_fd = open(a->config->session_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (a->folder_fd < 0 || flock(a->folder_fd, LOCK_SH | LOCK_NB) < 0)
        return -errno;
    return 0;
}

/* With a->config, a->node, a->shape and a->listen there: all that is below. */
static int set_up(struct ms_agent *a, struct ms_error *err)
{
    const Muster__AgentConfig *config = a->config;
    char logs[PATH_MAX - 16];
    int rc = share_folder(a);

    snprintf(logs, sizeof logs, "%s/logs", config->session_dir);
    if (rc < 0)
        return ms_error_sys(err, rc, "cannot lock '%s'", config->session_dir);
    if (!a->join) /* else stderr is a terminal's, or a service manager's */
        redirect(logs);
    /* its folder's name tells an agent that has joined apart from others of its session */
    ms_cgroups_init(&a->cgroups,
                    a->join ? strrchr(config->session_dir, '/') + 1 : config->session);
    a->logs = ms_logs_create(a->loop, logs, a->node, &batch_ops, a);
    if (!a->logs || !ms_contexts_add_own(&a->contexts, config))
        return ms_error_set(err, -ENOMEM, "out of memory");
    ms_log_readers_init(&a->log_readers, a->loop, config->session_dir, &reader_ops, a);
    rc = ms_zygotes_init(&a->zygotes,
                         a->loop,
                         config->session_dir,
                         &a->nofile,
                         &ms_worker_zygote_ops,
                         a);
    if (rc < 0)
        return ms_error_sys(err, rc, "cannot prepare zygotes");
    open_store(a);
    ms_loop_post(a->loop, sweep_cgroups, a);
    rc = ms_agent_watch_process(a, config->driver_pid);
    return rc < 0 ? ms_error_sys(err, rc, "cannot watch driver %d", config->driver_pid)
                  : 0;
}

/* Takes the configuration out of the message. */
static int configure(struct ms_agent *a, Muster__HeadToAgent *m, struct ms_error *err)
{
    const Muster__AgentConfig *config = m->config;
    int rc = check_version(config, err);

    if (rc < 0)
        return rc;
    if (config->session_dir[0] != '/')
        return ms_error_set(err, -EINVAL, "the session's folder must be absolute");
    a->config = MS_TAKE(m->config);
    a->node = config->node_name;
    if (config->nodes_here > 1)
        ms_agent_log_as(a->node);
    a->shape = ms_machine_shape(a->node, config->shape, err);
    if (!a->shape)
        return err->code;
    rc = ms_listen_init(
        &a->listen, (const char *const *)config->bind, config->n_bind, err);
    return rc < 0 ? rc : set_up(a, err);
}

void ms_agent_configure(struct ms_agent *a, Muster__HeadToAgent *m)
{
    struct ms_error err = {0};

    if (configure(a, m, &err) < 0) {
        ms_agent_refuse(a, m->request, MUSTER__FAILURE__KIND__REFUSED, err.text);
        ms_agent_end(a, 0, err.text);
        return;
    }
    ms_agent_send_ready(a, m->request);
    ms_agent_warm_up(a, ms_contexts_find(&a->contexts, 0));
}

/* ---- by a welcome ---------------------------------------------------------------- */

/* Instead of what it has. */
static bool set_text(char **field, const char *text)
{
    if (*field != protobuf_c_empty_string)
        free(*field);
    *field = (char *)(uintptr_t)protobuf_c_empty_string;
    return ms_proto_set_text(field, text);
}

/* What was said here wins over what the head says. */
static bool set_store(Muster__AgentConfig *config, const Muster__StoreConfig *ours)
{
    Muster__StoreConfig *s = config->store;

    if (!ours)
        return true;
    if (!s)
        config->store = s =
            (Muster__StoreConfig *)ms_proto_create(&muster__store_config__descriptor);
    if (!s)
        return false;
    if (ours->is_told) {
        s->is_told = true;
        s->limit = ours->limit;
    }
    if (ours->spill_limit)
        s->spill_limit = ours->spill_limit;
    if (!ours->no_spill && !ours->spill_dir[0])
        return true;
    s->no_spill = ours->no_spill;
    return set_text(&s->spill_dir, ours->spill_dir);
}

/* What both sides have proven (the secret) need not travel. */
static bool
complete(Muster__AgentConfig *config, const struct ms_join *j, const char *session)
{
    free(config->secret.data);
    config->secret.data = ms_bytes_copy(j->options->secret, MS_SECRET_SIZE);
    config->secret.len = config->secret.data ? MS_SECRET_SIZE : 0;
    config->driver_pid = 0;
    return config->secret.data && set_text(&config->session, session) &&
           set_text(&config->session_dir, j->dir.dir) &&
           set_text(&config->node_name, j->node) &&
           set_store(config, j->options->store);
}

int ms_join_configure(struct ms_join *j,
                      Muster__LinkWelcome *welcome,
                      struct ms_error *err)
{
    struct ms_agent *a = j->agent;
    Muster__AgentConfig *config = welcome->config;
    int rc;

    if (!config)
        return ms_error_set(err, -EPROTO, "the head gave no configuration");
    rc = check_version(config, err);
    if (rc == 0 && !j->options->bind_count && config->n_bind)
        rc = ms_listen_init(
            &a->listen, (const char *const *)config->bind, config->n_bind, err);
    if (rc == 0)
        rc = ms_node_dir_open(&j->dir, welcome->session, j->node, err);
    if (rc < 0)
        return rc;
    a->config = MS_TAKE(welcome->config);
    return complete(config, j, welcome->session)
               ? set_up(a, err)
               : ms_error_set(err, -ENOMEM, "out of memory");
}
