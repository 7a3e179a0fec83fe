/* stop.c - the orderly end: workers, agents, what is lent */
#include "head/stop.h"
#include "head/clusters/clusters.h"
#include "head/drivers/driver.h"
#include "head/fleet/fleet.h"
#include "head/head_impl.h"
#include "head/jobs/jobs.h"
#include "head/nodes/child_agent.h"
#include "head/nodes/node.h"
#include "head/nodes/orphan.h"
#include "head/ops/op.h"

#include <errno.h>

/* When the end is asked for with a grace:
 *
 *  - at once workers get SIGTERM, and after the grace SIGKILL from their agents;
 *  - when all are gone, or SLACK_NS after the grace, the agents are told to end;
 *  - KILL_NS before the deadline they are killed, and what they leave behind too;
 *  - the deadline is MS_STOP_GRACE_NS after the grace, whatever is left then.
 */
#define SLACK_NS       (500 * MS_NS_PER_MS)
#define KILL_NS        (1 * MS_NS_PER_S)
#define LAST_NS        (100 * MS_NS_PER_MS)
#define ORPHAN_STOP_NS (200 * MS_NS_PER_MS)

static void done(struct ms_head *h)
{
    if (h->stopping.done)
        return;
    h->stopping.done = true;
    ms_timer_cancel(&h->stopping.timer);
    ms_head_op_succeed(h->stop_op, NULL);
}

static void tell_agents(struct ms_head *h)
{
    Muster__AgentStop stop = MUSTER__AGENT_STOP__INIT;

    h->stopping.sent = true;
    stop.failed = h->has_failed;
    ms_list_each (n, &h->nodes, struct ms_node, link)
        if (ms_node_tell(n, MUSTER__HEAD_TO_AGENT__BODY_SHUTDOWN, &stop) == -ENOMEM &&
            n->child)
            ms_child_agent_hang_up(n->child); /* which means the same to it */
}

static void kill_agents(struct ms_head *h, bool only_unready)
{
    ms_list_each (n, &h->nodes, struct ms_node, link)
        if (n->child && (!only_unready || n->state == MS_NODE_STARTING))
            ms_child_agent_kill(n->child);
}

/* One that is away is not waited for: it ends itself when nobody answers. */
static bool has_agents(const struct ms_head *h, bool unready)
{
    ms_list_each (n, &h->nodes, struct ms_node, link)
        if (unready ? n->state == MS_NODE_STARTING
                    : n->state == MS_NODE_STARTING || n->state == MS_NODE_READY)
            return true;
    return false;
}

/* Workers that are not there yet cannot be stopped; telling the agent ends that. */
static bool is_creating(const struct ms_head *h)
{
    ms_list_each (c, &h->registry.clusters, struct ms_cluster, link)
        if (c->state == MS_CLUSTER_STARTING || c->is_busy)
            return true;
    return false;
}

/* Go on at `at_ns`, if nothing happens before. */
static void look_again(struct ms_head *h, int64_t at_ns)
{
    ms_timer_set(&h->stopping.timer, at_ns - ms_now_ns());
}

static void step_without_agents(struct ms_head *h, int64_t now_ns)
{
    int64_t last_ns = h->stopping.deadline_ns - LAST_NS;
    int64_t lent_ns = h->stopping.deadline_ns + MS_FLEET_END_NS;

    bool is_given_back = !h->fleet || ms_fleet_end(h->fleet);

    if (!ms_jobs_end(h->jobs))
        is_given_back = false;
    if (!is_given_back && now_ns < lent_ns) {
        look_again(h, lent_ns);
        return;
    }
    if (ms_list_is_empty(&h->orphans.list) || now_ns >= last_ns) {
        done(h);
        return;
    }
    ms_orphans_kill_after(&h->orphans, ORPHAN_STOP_NS);
    look_again(h, last_ns);
}

static void step_with_agents(struct ms_head *h, int64_t now_ns)
{
    int64_t grace_end_ns = h->stopping.deadline_ns - MS_STOP_GRACE_NS;
    int64_t kill_ns = h->stopping.deadline_ns - KILL_NS;
    bool unready = has_agents(h, true);

    if (now_ns >= h->stopping.deadline_ns - LAST_NS) {
        step_without_agents(h, now_ns);
        return;
    }
    if (!h->stopping.sent &&
        (h->registry.live == 0 || now_ns >= grace_end_ns + SLACK_NS))
        tell_agents(h);
    if (unready || now_ns >= kill_ns) {
        kill_agents(h, now_ns < kill_ns);
        look_again(h, now_ns < kill_ns ? kill_ns : h->stopping.deadline_ns - LAST_NS);
    } else {
        look_again(h, h->stopping.sent ? kill_ns : grace_end_ns + SLACK_NS);
    }
}

void ms_head_stop_step(struct ms_head *h)
{
    int64_t now_ns = ms_now_ns();

    if (!h->stop_op || h->stopping.done)
        return;
    if (has_agents(h, false))
        step_with_agents(h, now_ns);
    else
        step_without_agents(h, now_ns);
}

/* False if one of them could not be told. */
static bool stop_workers(struct ms_head *h, int64_t grace_ns)
{
    bool told = true;

    ms_list_each (n, &h->nodes, struct ms_node, link)
        if (n->state == MS_NODE_READY && ms_head_stop_workers_of(h, n, grace_ns) < 0)
            told = false;
    return told;
}

int ms_head_stop_run(struct ms_head_op *op)
{
    struct ms_head *h = op->head;

    h->stop_op = op;
    ms_jobs_quit(h->jobs);
    h->stopping.deadline_ns =
        ms_deadline_ns(ms_now_ns() + MS_STOP_GRACE_NS, op->grace_ns);
    ms_drivers_say_goodbye(h, "the head was stopped");
    if (!stop_workers(h, op->grace_ns) || is_creating(h))
        tell_agents(h);
    ms_head_stop_step(h);
    return 0;
}
