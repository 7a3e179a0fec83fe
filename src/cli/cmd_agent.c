/* cmd_agent.c - `muster agent`: lend this machine to a head */
#include "agent/agent.h"
#include "agent/supervisor.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "cli/args.h"
#include "cli/out.h"
#include "cli/target.h"
#include "io/tree.h"
#include "resource/shape.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

enum { SHAPE_MAX = 4 << 20 };

/* "license=4" */
static int add_resource(Muster__NodeShape *s, const char *text, struct ms_error *err)
{
    const char *equals = strchr(text, '=');
    MS_CLEANUP(ms_cleanup_free)
    char *name = equals ? strndup(text, (size_t)(equals - text)) : NULL;
    size_t digits = equals ? strspn(equals + 1, "0123456789") : 0;

    if (!digits || digits > 18 || equals[1 + digits])
        return ms_error_set(err, -EINVAL, "--resource wants NAME=N, not '%s'", text);
    if (!name)
        return ms_error_set(err, -ENOMEM, "out of memory");
    return ms_shape_add_resource(s, name, strtoull(equals + 1, NULL, 10), err);
}

static int
add_devices(const struct ms_cli *cli, Muster__NodeShape *s, struct ms_error *err)
{
    static const enum ms_opt details[] = {
        MS_OPT_GPU_MEMORY, MS_OPT_GPUS_PER_DOMAIN, MS_OPT_DEVICE_KIND};
    const struct ms_shape_devices devices = {
        .kind = cli->values[MS_OPT_DEVICE_KIND],
        .count = (uint32_t)ms_cli_number(cli, MS_OPT_NUM_GPUS, 0),
        .per_domain = (uint32_t)ms_cli_number(cli, MS_OPT_GPUS_PER_DOMAIN, 0),
        .memory = (uint64_t)ms_cli_number(cli, MS_OPT_GPU_MEMORY, 0)};

    for (size_t i = 0; i < MS_COUNT(details); i++)
        if (ms_cli_has(cli, details[i]) && s->look_for_devices)
            return ms_error_set(
                err,
                -EINVAL,
                "--%s describes the devices of --num-gpus: give that too",
                ms_cli_options[details[i]].name);
    return ms_shape_add_devices(s, &devices, err);
}

/* What the command line says of this machine. */
static int
describe(const struct ms_cli *cli, Muster__NodeShape *s, struct ms_error *err)
{
    const char *label, *resource;
    size_t pos = 0;
    int rc = 0;

    while (rc == 0 && (label = ms_cli_next(cli, MS_OPT_LABEL, &pos)))
        rc = ms_shape_add_label_text(s, label, err);
    pos = 0;
    while (rc == 0 && (resource = ms_cli_next(cli, MS_OPT_RESOURCE, &pos)))
        rc = add_resource(s, resource, err);
    s->cpus = (int32_t)ms_cli_number(cli, MS_OPT_NUM_CPUS, -1);
    s->look_for_devices = !ms_cli_has(cli, MS_OPT_NUM_GPUS);
    return rc < 0 ? rc : add_devices(cli, s, err);
}

/* What an orchestrator says of it, packed. */
static int read_shape(int fd, Muster__NodeShape **out, struct ms_error *err)
{
    MS_CLEANUP(ms_cleanup_free) uint8_t *data = malloc(SHAPE_MAX);
    ssize_t len = data ? ms_fd_read_all(fd, data, SHAPE_MAX) : -ENOMEM;

    if (len < 0)
        return ms_error_sys(err, (int)len, "cannot read --shape-fd %d", fd);
    *out = len < SHAPE_MAX ? muster__node_shape__unpack(NULL, (size_t)len, data) : NULL;
    return *out ? 0 : ms_error_set(err, -EINVAL, "--shape-fd %d has no shape", fd);
}

static int
make_shape(const struct ms_cli *cli, Muster__NodeShape **out, struct ms_error *err)
{
    if (ms_cli_has(cli, MS_OPT_SHAPE_FD))
        return read_shape((int)ms_cli_number(cli, MS_OPT_SHAPE_FD, -1), out, err);
    *out = ms_shape_create("");
    return *out ? describe(cli, *out, err)
                : ms_error_set(err, -ENOMEM, "out of memory");
}

static enum ms_exit join(const struct ms_cli *cli, const struct ms_target *target)
{
    MS_CLEANUP(ms_shape_cleanup) Muster__NodeShape *shape = NULL;
    Muster__StoreConfig store;
    const char *bind[MS_CLI_MANY_MAX], *address;
    size_t pos = 0;
    struct ms_error err = {0};
    struct ms_join_options o = {
        .head = target->address,
        .secret = target->secret,
        .node_name = cli->values[MS_OPT_NODE_NAME],
        .bind = bind,
        .store = &store,
        .join_within_ns = ms_cli_number(cli, MS_OPT_JOIN_WITHIN, 0) * MS_NS_PER_S,
        .end_with_pid = (pid_t)ms_cli_number(cli, MS_OPT_END_WITH, 0),
        .ready_fd = (int)ms_cli_number(cli, MS_OPT_READY_FD, 0),
        .json = ms_cli_has(cli, MS_OPT_JSON)};

    if (make_shape(cli, &shape, &err) < 0 || ms_args_store(cli, &store, &err) < 0 ||
        (ms_cli_has(cli, MS_OPT_TLS) &&
         ms_tls_mode_parse(cli->values[MS_OPT_TLS], &o.tls, &err) < 0))
        return ms_out_fail(cli, MS_EXIT_USAGE, "%s", err.text);
    while ((address = ms_cli_next(cli, MS_OPT_BIND, &pos)))
        bind[o.bind_count++] = address;
    o.shape = shape;
    o.supervisor_pid = ms_supervise(o.end_with_pid);
    return ms_agent_join(&o) == 0 ? MS_EXIT_OK : MS_EXIT_FAILED;
}

static enum ms_exit find_and_join(const struct ms_cli *cli)
{
    const char *env = getenv("MUSTER_ADDRESS");
    struct ms_target target;
    enum ms_exit code;

    if (!ms_cli_has(cli, MS_OPT_HEAD) && (!env || !*env))
        return ms_out_fail(
            cli,
            MS_EXIT_USAGE,
            "which head? Give --head HOST:PORT, as `muster head` says it");
    code = ms_target_init(&target, cli);
    if (!code)
        code = join(cli, &target);
    ms_target_finish(&target);
    return code;
}

/* For a head that holds the other end of this socket and ends with its process. */
static enum ms_exit run(int link_fd)
{
    struct ucred head = {0};
    socklen_t len = sizeof head;

    if (getsockopt(link_fd, SOL_SOCKET, SO_PEERCRED, &head, &len) < 0)
        head.pid = 0;
    return ms_agent_run(link_fd, link_fd + 1, ms_supervise(head.pid)) == 0
               ? MS_EXIT_OK
               : MS_EXIT_FAILED;
}

enum ms_exit ms_cmd_agent(const struct ms_cli *cli)
{
    if (ms_cli_has(cli, MS_OPT_FD))
        return run((int)ms_cli_number(cli, MS_OPT_FD, -1));
    return find_and_join(cli);
}
