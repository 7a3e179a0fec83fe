/* ports.c - which nodes hold which ports, and for which clusters */
#include "head/clusters/ports.h"
#include "base/cleanup.h"
#include "base/name.h"
#include "head/drivers/driver.h"
#include "head/head_impl.h"
#include "head/nodes/node.h"
#include "head/ops/op.h"

#include <errno.h>
#include <string.h>

/* One that a node holds. The owner is what the driver calls it: the cluster's name, a
 * colon, and what makes it unique. */
struct port {
    struct ms_list link; /* head->ports */
    char *owner;
    uint64_t driver;
    char node[MS_NAME_MAX + 1];
};

static void port_destroy(struct port *p)
{
    ms_list_remove(&p->link);
    free(p->owner);
    free(p);
}

int ms_head_port_add(struct ms_head *h,
                     const char *owner,
                     uint64_t driver,
                     const struct ms_node *n)
{
    struct port *p = calloc(1, sizeof *p);

    if (!p)
        return -ENOMEM;
    ms_list_add_tail(&h->ports, &p->link);
    p->owner = strdup(owner);
    p->driver = driver;
    strcpy(p->node, n->name);
    if (!p->owner) {
        port_destroy(p);
        return -ENOMEM;
    }
    return 0;
}

void ms_head_ports_finish(struct ms_head *h)
{
    ms_list_each (p, &h->ports, struct port, link)
        port_destroy(p);
}

void ms_head_ports_lost(struct ms_head *h, const struct ms_node *n)
{
    ms_list_each (p, &h->ports, struct port, link)
        if (strcmp(p->node, n->name) == 0)
            port_destroy(p);
}

/* Without waiting for it; a node that is away forgets nothing, but there it is only a
 * number that nobody else gets. */
static void tell_drop(struct ms_head *h, struct port *p)
{
    struct ms_node *n = ms_node_find(h, p->node);
    Muster__DropPort drop = MUSTER__DROP_PORT__INIT;

    drop.owner = p->owner;
    if (n)
        ms_node_tell(n, MUSTER__HEAD_TO_AGENT__BODY_DROP_PORT, &drop);
    port_destroy(p);
}

static bool is_of(const struct port *p, const char *cluster, uint64_t driver)
{
    size_t len = strlen(cluster);

    return p->driver == driver && strncmp(p->owner, cluster, len) == 0 &&
           p->owner[len] == ':';
}

/* Its own, and what a driver that is gone has held for it: one that is there drops its own,
 * and waits for that. */
void ms_head_ports_drop(struct ms_head *h, const struct ms_cluster *c)
{
    const struct ms_driver *d = ms_driver_find(h, c->driver);
    bool has_driver = c->driver == 0 || (d && d->state != MS_DRIVER_ENDING);

    ms_list_each (p, &h->ports, struct port, link)
        if ((c->port_owner && strcmp(p->owner, c->port_owner) == 0) ||
            (!has_driver && is_of(p, c->name, c->driver)))
            tell_drop(h, p);
}

uint64_t ms_head_port_driver(const struct ms_head *h, const char *owner)
{
    char name[MS_NAME_MAX + 1];
    size_t len = strcspn(owner, ":");
    const struct ms_cluster *c;

    if (len >= sizeof name)
        return 0;
    memcpy(name, owner, len);
    name[len] = 0;
    c = ms_registry_find(&h->registry, name);
    return c ? c->driver : 0;
}

void ms_head_ports_drop_driver(struct ms_head *h, uint64_t driver)
{
    ms_list_each (p, &h->ports, struct port, link) {
        bool used = false;

        ms_list_each (c, &h->registry.clusters, struct ms_cluster, link)
            used = used || is_of(p, c->name, c->driver);
        if (p->driver == driver && !used)
            tell_drop(h, p);
    }
}

/* ---- of a cluster ----------------------------------------------------------------- */

int ms_head_cluster_port_ask(struct ms_head_op *op)
{
    struct ms_cluster *c = op->cluster;
    struct ms_node *n = ms_node_find(op->head, c->slots[0].node);
    Muster__HoldPort hold = MUSTER__HOLD_PORT__INIT;
    char *owner = NULL;

    if (asprintf(&owner, "%s:%08x", c->name, (unsigned)ms_random_id()) < 0)
        return -ENOMEM;
    free(c->port_owner);
    c->port_owner = owner;
    if (!n)
        return ms_error_set(
            &op->error, -ENODEV, "there is no node %s", c->slots[0].node);
    hold.owner = owner;
    return ms_node_ask(n, op, MUSTER__HEAD_TO_AGENT__BODY_HOLD_PORT, &hold, &op->error);
}

int ms_head_cluster_port_take(struct ms_head_op *op,
                              struct ms_node *n,
                              Muster__AgentToHead *answer)
{
    struct ms_cluster *c = op->cluster;

    if (answer->body_case != MUSTER__AGENT_TO_HEAD__BODY_PORT)
        return ms_error_set(&op->error,
                            -EPROTO,
                            "the agent on node %s answered without a port",
                            n->name);
    muster__port_held__free_unpacked(c->master, NULL);
    c->master = MS_TAKE(answer->port);
    if (ms_head_port_add(n->head, c->port_owner, c->driver, n) < 0)
        return ms_error_set(&op->error, -ENOMEM, "out of memory");
    return 0;
}

/* ---- requests -------------------------------------------------------------------- */

static void held(struct ms_head_op *op, struct ms_node *n, Muster__AgentToHead *answer)
{
    const char *owner = op->request->hold_port->owner;

    if (answer->body_case != MUSTER__AGENT_TO_HEAD__BODY_PORT)
        ms_head_op_fail(op, -EPROTO, "the agent answered without a port");
    else if (ms_head_port_add(op->head, owner, ms_driver_id(op->driver), n) < 0)
        ms_head_op_fail(op, -ENOMEM, "out of memory");
    else
        ms_head_op_succeed(op, &MS_TAKE(answer->port)->base);
}

int ms_head_hold_port_run(struct ms_head_op *op)
{
    Muster__HoldPort *hold = op->request->hold_port;
    struct ms_node *n = ms_head_find_node(op->head, hold->node);

    op->on_answer = held;
    if (!n)
        return ms_error_set(&op->error,
                            -ENODEV,
                            hold->node[0] ? "there is no node %s"
                                          : "there is no node%s",
                            hold->node);
    return ms_node_ask(n, op, MUSTER__HEAD_TO_AGENT__BODY_HOLD_PORT, hold, &op->error);
}

void ms_head_ports_ask_drop(struct ms_head_op *op, const char *owner, uint64_t driver)
{
    ms_list_each (p, &op->head->ports, struct port, link) {
        struct ms_node *n = ms_node_find(op->head, p->node);
        Muster__DropPort drop = MUSTER__DROP_PORT__INIT;

        if (strcmp(p->owner, owner) != 0 || p->driver != driver)
            continue;
        drop.owner = p->owner;
        if (n)
            ms_node_ask(n, op, MUSTER__HEAD_TO_AGENT__BODY_DROP_PORT, &drop, NULL);
        port_destroy(p);
    }
}

int ms_head_drop_port_run(struct ms_head_op *op)
{
    ms_head_op_gather(op, ms_head_op_done);
    ms_head_ports_ask_drop(op, op->request->drop_port->owner, ms_driver_id(op->driver));
    ms_head_op_gather_end(op);
    return 0;
}
