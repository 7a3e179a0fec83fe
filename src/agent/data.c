/* data.c - the store of this node: how much memory it may have, and where it spills */
#include "agent/agent_impl.h"
#include "agent/machine/listen.h"
#include "agent/machine/machine.h"
#include "store/path.h"
#include "store/server/server.h"

#include <linux/magic.h>
#include <stdlib.h>
#include <sys/vfs.h>

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
    ms_agent_say("%s", warning);
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
        ms_agent_say("the store will not be able to spill: %s", err.text);
    return told->spill_dir;
}

static void on_note(void *arg, const char *text)
{
    (void)arg;
    ms_agent_say("the store: %s", text);
}

void ms_agent_open_store(struct ms_agent *a)
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
        ms_agent_say("no store: %s", err.text);
    free(addresses);
}
