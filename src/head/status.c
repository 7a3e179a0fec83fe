#include "cluster/status.h"
#include "base/cleanup.h"
#include "head/state.h"
#include "head/version.h"

#include <string.h>

static void cleanup_status(Muster__Status **s)
{
    muster__status__free_unpacked(*s, NULL);
}

static void cleanup_node(Muster__NodeStatus **n)
{
    muster__node_status__free_unpacked(*n, NULL);
}

/* On failure the field keeps the message's own empty text. */
static bool set_text(char **field, const char *text)
{
    char *copy = strdup(text);

    if (copy)
        *field = copy;
    return copy;
}

static Muster__NodeStatus *node_status(const struct ms_head *h)
{
    MS_CLEANUP(cleanup_node) Muster__NodeStatus *n = malloc(sizeof *n);

    if (!n)
        return NULL;
    muster__node_status__init(n);
    n->agent_pid = h->agent.pid;
    n->cpus = h->agent.cpus;
    n->memory = h->agent.memory;
    n->gpus = h->agent.gpus;
    n->alive = h->agent.state == MS_AGENT_READY;
    return set_text(&n->name, h->node) ? MS_TAKE(n) : NULL;
}

static bool add_nodes(Muster__Status *s, const struct ms_head *h)
{
    s->nodes = calloc(1, sizeof(Muster__NodeStatus *));
    if (!s->nodes)
        return false;
    s->nodes[0] = node_status(h);
    s->n_nodes = s->nodes[0] ? 1 : 0;
    return s->nodes[0];
}

static bool add_clusters(Muster__Status *s, const struct ms_head *h)
{
    size_t count = 0;

    ms_list_each (c, &h->registry.clusters, struct ms_cluster, link) {
        (void)c;
        count++;
    }
    s->clusters = calloc(count + 1, sizeof(Muster__ClusterStatus *));
    if (!s->clusters)
        return false;
    ms_list_each (c, &h->registry.clusters, struct ms_cluster, link) {
        s->clusters[s->n_clusters] = ms_cluster_status(c, h->node);
        if (!s->clusters[s->n_clusters])
            return false;
        s->n_clusters++;
    }
    return true;
}

Muster__Status *ms_head_status_message(const struct ms_head *h)
{
    MS_CLEANUP(cleanup_status) Muster__Status *s = malloc(sizeof *s);

    if (!s)
        return NULL;
    muster__status__init(s);
    s->driver_pid = h->session.driver_pid;
    s->uptime_ns = (uint64_t)(ms_now_ns() - h->started_ns);
    if (!set_text(&s->session, h->session.name) ||
        !set_text(&s->session_dir, h->session.dir) ||
        !set_text(&s->version, MS_VERSION) || !add_nodes(s, h) || !add_clusters(s, h))
        return NULL;
    return MS_TAKE(s);
}
