#include "cluster/status.h"
#include "base/cleanup.h"
#include "base/limits.h"
#include "head/clusters/clusters.h"
#include "head/clusters/place.h"
#include "head/drivers/driver.h"
#include "head/head_impl.h"
#include "head/nodes/node.h"
#include "head/op.h"
#include "head/rest/rest.h"
#include "head/status.h"
#include "head/version.h"
#include "head/waiting.h"
#include "resource/shape.h"

#include <errno.h>
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

static bool copy_texts(char ***out, size_t *count, char *const *texts, size_t n)
{
    *out = n ? calloc(n, sizeof(char *)) : NULL;
    if (n && !*out)
        return false;
    for (; *count < n; (*count)++) {
        (*out)[*count] = strdup(texts[*count]);
        if (!(*out)[*count])
            return false;
    }
    return true;
}

/* What its agent has said of it. */
static bool add_ready(Muster__NodeStatus *s, const Muster__AgentReady *r)
{
    static const Muster__NodeShape unknown = MUSTER__NODE_SHAPE__INIT;
    const Muster__NodeShape *has = r->shape ? r->shape : &unknown;

    s->memory = has->memory;
    s->gpus = (uint32_t)has->n_devices;
    s->shape = ms_shape_copy(has);
    return s->shape && set_text(&s->host_id, r->host_id) &&
           set_text(&s->session_dir, r->session_dir) &&
           copy_texts(&s->labels, &s->n_labels, has->labels, has->n_labels) &&
           copy_texts(&s->addresses, &s->n_addresses, r->addresses, r->n_addresses);
}

Muster__NodeStatus *ms_node_status(const struct ms_node *n)
{
    MS_CLEANUP(cleanup_node) Muster__NodeStatus *s = malloc(sizeof *s);

    if (!s)
        return NULL;
    muster__node_status__init(s);
    s->agent_pid = n->pid;
    s->cpus = n->cpus;
    s->alive = n->state == MS_NODE_READY || n->state == MS_NODE_AWAY;
    s->suspect = n->suspect;
    if (!set_text(&s->name, n->name) || (n->ready && !add_ready(s, n->ready)) ||
        (n->gone && !set_text(&s->detail, n->gone)))
        return NULL;
    return MS_TAKE(s);
}

static size_t list_count(const struct ms_list *l)
{
    size_t count = 0;

    for (const struct ms_list *at = l->next; at != l; at = at->next)
        count++;
    return count;
}

static bool add_nodes(Muster__Status *s, const struct ms_head *h)
{
    s->nodes = calloc(list_count(&h->nodes) + 1, sizeof(Muster__NodeStatus *));
    if (!s->nodes)
        return false;
    ms_list_each (n, &h->nodes, struct ms_node, link) {
        s->nodes[s->n_nodes] = ms_node_status(n);
        if (!s->nodes[s->n_nodes])
            return false;
        s->n_nodes++;
    }
    return true;
}

static Muster__DriverStatus *driver_status(const struct ms_driver *d)
{
    Muster__DriverStatus *s = malloc(sizeof *s);

    if (!s)
        return NULL;
    muster__driver_status__init(s);
    s->driver = d->id;
    s->suspect = d->suspect || d->state == MS_DRIVER_EXPECTED;
    if (!d->hello)
        return s;
    s->pid = d->hello->pid;
    if (set_text(&s->host, d->hello->host) && set_text(&s->script, d->hello->script))
        return s;
    muster__driver_status__free_unpacked(s, NULL);
    return NULL;
}

static bool add_drivers(Muster__Status *s, const struct ms_head *h)
{
    const struct ms_driver *d;
    size_t at = 0;

    s->drivers = calloc(h->drivers.count + 1, sizeof(Muster__DriverStatus *));
    if (!s->drivers)
        return false;
    while ((d = ms_map_next(&h->drivers, &at))) {
        if (ms_driver_worker(d))
            continue;
        s->drivers[s->n_drivers] = driver_status(d);
        if (!s->drivers[s->n_drivers])
            return false;
        s->n_drivers++;
    }
    return true;
}

static bool add_clusters(Muster__Status *s, const struct ms_head *h)
{
    s->clusters =
        calloc(list_count(&h->registry.clusters) + 1, sizeof(Muster__ClusterStatus *));
    if (!s->clusters)
        return false;
    ms_list_each (c, &h->registry.clusters, struct ms_cluster, link) {
        s->clusters[s->n_clusters] = ms_cluster_status(c);
        if (!s->clusters[s->n_clusters])
            return false;
        s->n_clusters++;
    }
    return ms_creations_add_status(h, s);
}

static bool add_addresses(Muster__Status *s, const struct ms_head *h)
{
    size_t count = 0;

    while (h->addresses && h->addresses[count])
        count++;
    return copy_texts(&s->addresses, &s->n_addresses, h->addresses, count);
}

Muster__Status *ms_head_status_message(struct ms_head *h)
{
    MS_CLEANUP(cleanup_status) Muster__Status *s = malloc(sizeof *s);

    if (!s)
        return NULL;
    muster__status__init(s);
    s->driver_pid = h->session.driver_pid;
    s->is_daemon = h->is_daemon;
    s->change = h->status.change;
    s->uptime_ns = (uint64_t)(ms_now_ns() - h->started_ns);
    if (!set_text(&s->session, h->session.name) ||
        !set_text(&s->session_dir, h->session.dir) ||
        !set_text(&s->version, MS_VERSION) ||
        !set_text(&s->http_address, ms_rest_address(h->rest)) || !add_nodes(s, h) ||
        !add_clusters(s, h) || !ms_place_add_groups(h, s) || !add_drivers(s, h) ||
        !add_addresses(s, h))
        return NULL;
    return MS_TAKE(s);
}

/* ---- who asks, and waits for another one ------------------------------------------- */

static void answer(struct ms_head_op *op)
{
    Muster__Status *s = ms_head_status_message(op->head);

    if (s)
        ms_head_op_succeed(op, &s->base);
    else
        ms_head_op_fail(op, -ENOMEM, "out of memory");
}

static void on_late(void *arg)
{
    answer(arg);
}

/* Nothing has changed: it waits until something has. False: it does not. */
static bool hold(struct ms_head_op *op)
{
    const Muster__StatusRequest *asked = op->wanted->status;
    struct ms_head *h = op->head;

    if (asked->wait_ns == 0 || asked->seen != h->status.change ||
        ms_timer_init(&op->deadline, h->loop, on_late, op) < 0)
        return false;
    ms_list_add_tail(&h->status.watching, &op->wait_link);
    ms_timer_set(&op->deadline,
                 asked->wait_ns < MS_HOLD_MAX_NS ? (int64_t)asked->wait_ns
                                                 : MS_HOLD_MAX_NS);
    return true;
}

void ms_head_status_run(struct ms_head_op *op)
{
    if (op->driver && ms_head_wait_for_nodes(op))
        return; /* it would plan with nodes that are not all of them */
    if (!hold(op))
        answer(op);
}

void ms_head_changed(struct ms_head *h)
{
    h->status.change++;
    ms_list_each (op, &h->status.watching, struct ms_head_op, wait_link)
        answer(op);
}
