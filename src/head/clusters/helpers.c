/* Workers that are wider than a node: their helpers on the further nodes.
 *
 * The helpers of a worker are a cluster of their own, in which every slot says whom it
 * helps. They end with it, and it ends when one of them does.
 */
#include "base/cleanup.h"
#include "head/clusters/clusters_impl.h"
#include "head/head_impl.h"
#include "head/nodes/node.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static bool helps(const struct ms_cluster *c, uint64_t uid)
{
    return c->slots[0].helps && c->slots[0].helps == uid;
}

int ms_helpers_check(struct ms_head *h,
                     const Muster__CreateCluster *create,
                     struct ms_error *err)
{
    uint64_t uid = create->ranks[0]->spec->helps;
    const struct ms_slot *worker = uid ? ms_registry_find_uid(&h->registry, uid) : NULL;

    for (size_t i = 1; i < create->n_ranks; i++)
        if (create->ranks[i]->spec->helps != uid)
            return ms_error_set(
                err, -EINVAL, "cluster '%s': all help one worker", create->name);
    if (uid && (!worker || !ms_slot_is_live(worker)))
        return ms_error_set(err,
                            -ESRCH,
                            "cluster '%s': the worker that it is to help has ended",
                            create->name);
    return 0;
}

static void
tell_stop(struct ms_head *h, const char *node, uint64_t uid, int64_t grace_ns)
{
    struct ms_node *n = ms_node_find(h, node);
    Muster__StopWorkers stop = MUSTER__STOP_WORKERS__INIT;
    Muster__HeadToAgent m = MUSTER__HEAD_TO_AGENT__INIT;

    stop.uids = &uid;
    stop.n_uids = 1;
    stop.grace_ns = (uint64_t)grace_ns;
    m.body_case = MUSTER__HEAD_TO_AGENT__BODY_STOP;
    m.stop = &stop;
    if (n)
        ms_node_tell(n, &m);
}

static void stop_all(struct ms_head *h, const struct ms_cluster *c, int64_t grace_ns)
{
    for (size_t i = 0; i < c->count; i++)
        if (ms_slot_is_live(&c->slots[i]) && c->slots[i].now.address)
            tell_stop(h, c->slots[i].node, c->slots[i].now.uid, grace_ns);
}

void ms_helpers_created(struct ms_head *h, const struct ms_cluster *c)
{
    const struct ms_slot *worker =
        c->slots[0].helps ? ms_registry_find_uid(&h->registry, c->slots[0].helps)
                          : NULL;

    if (c->slots[0].helps && (!worker || !ms_slot_is_live(worker)))
        stop_all(h, c, 0);
}

/* The worker cannot go on without it. */
static void
doom(struct ms_head *h, const struct ms_slot *helper, const Muster__Exit *exit)
{
    struct ms_slot *worker = ms_registry_find_uid(&h->registry, helper->helps);
    char how[64] = "is lost";

    if (!worker || !ms_slot_is_live(worker) || worker->now.why ||
        worker->cluster->state != MS_CLUSTER_RUNNING)
        return;
    if (exit->code >= 0)
        snprintf(how,
                 sizeof how,
                 "%s %d",
                 exit->signaled ? "was killed by signal" : "ended with exit code",
                 (int)exit->code);
    if (asprintf(&worker->now.why,
                 "its helper %u on node %s (pid %d) %s%s%s, and it with its helper",
                 helper->rank + 1,
                 helper->node,
                 (int)exit->pid,
                 how,
                 exit->detail[0] ? ": " : "",
                 exit->detail) < 0)
        worker->now.why = NULL;
    tell_stop(h, worker->node, worker->now.uid, 0);
}

void ms_helpers_exited(struct ms_head *h,
                       const struct ms_slot *slot,
                       const Muster__Exit *exit)
{
    int64_t grace_ns = exit->requested ? MS_STOP_GRACE_NS : 0;

    ms_list_each (c, &h->registry.clusters, struct ms_cluster, link)
        if (helps(c, slot->now.uid))
            stop_all(h, c, grace_ns);
    if (slot->helps && !exit->requested && !h->stop_op &&
        slot->cluster->state == MS_CLUSTER_RUNNING)
        doom(h, slot, exit);
}

bool ms_helpers_are_over(const struct ms_cluster *c)
{
    return c->slots[0].helps && c->live == 0 && c->state == MS_CLUSTER_RUNNING;
}
