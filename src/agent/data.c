#include "agent/agent_impl.h"
#include "agent/listen.h"
#include "store/path.h"
#include "store/server.h"

#include <stdlib.h>

/* Of the node's memory, unless told: in hundredths. */
enum { SHARE = 30 };

static uint64_t limit_of(const struct ms_agent *a)
{
    const Muster__StoreConfig *told = a->config->store;

    uint32_t nodes = a->config->nodes_here ? a->config->nodes_here : 1;

    return told && told->is_told ? told->limit : a->shape->memory / 100 * SHARE / nodes;
}

void ms_agent_open_store(struct ms_agent *a)
{
    struct ms_store_options o = {.loop = a->loop,
                                 .node_name = a->node,
                                 .secret = a->config->secret.data,
                                 .limit = limit_of(a)};
    char path[MS_STORE_PATH_MAX];
    struct ms_error err = {0};
    uint16_t port = 0;
    char *addresses;

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
