#include "head/state.h"

#include <errno.h>

/* From now to the end, when it is asked to take `grace`:
 *
 *   0            workers get SIGTERM, and SIGKILL from the agent at `grace` (at once:
 * 0) all gone, or grace+SLACK  the agent is told to end KILL before  the end: it is
 * killed, and what it leaves behind too grace+MS_STOP_GRACE_NS  the end, whatever is
 * left
 */
#define SLACK_NS       (500 * MS_NS_PER_MS)
#define KILL_NS        (1 * MS_NS_PER_S)
#define LAST_NS        (100 * MS_NS_PER_MS)
#define ORPHAN_STOP_NS (200 * MS_NS_PER_MS)

static void done(struct ms_head *h)
{
    if (h->stop_done)
        return;
    h->stop_done = true;
    ms_timer_cancel(&h->stop_timer);
    ms_head_op_succeed(h->stop_op, NULL);
}

static void tell_agent(struct ms_head *h)
{
    Muster__AgentStop stop = MUSTER__AGENT_STOP__INIT;
    Muster__HeadToAgent m = MUSTER__HEAD_TO_AGENT__INIT;

    m.body_case = MUSTER__HEAD_TO_AGENT__BODY_SHUTDOWN;
    m.shutdown = &stop;
    h->stop_sent = true;
    if (ms_head_agent_tell(h, &m) == -ENOMEM)
        ms_head_agent_hang_up(h); /* which means the same to it */
}

/* Workers that are not there yet cannot be stopped; telling the agent ends that. */
static bool is_creating(const struct ms_head *h)
{
    ms_list_each (c, &h->registry.clusters, struct ms_cluster, link)
        if (c->state == MS_CLUSTER_STARTING)
            return true;
    return false;
}

/* Go on at `at_ns`, if nothing happens before. */
static void look_again(struct ms_head *h, int64_t at_ns)
{
    ms_timer_set(&h->stop_timer, at_ns - ms_now_ns());
}

static void step_without_agent(struct ms_head *h, int64_t now_ns)
{
    int64_t last_ns = h->stop_deadline_ns - LAST_NS;

    if (ms_orphans_is_empty(&h->orphans) || now_ns >= last_ns) {
        done(h);
        return;
    }
    ms_orphans_kill_after(&h->orphans, ORPHAN_STOP_NS);
    look_again(h, last_ns);
}

static void step_with_agent(struct ms_head *h, int64_t now_ns)
{
    int64_t grace_end_ns = h->stop_deadline_ns - MS_STOP_GRACE_NS;
    int64_t kill_ns = h->stop_deadline_ns - KILL_NS;
    bool unready = h->agent.state == MS_AGENT_STARTING;

    if (now_ns >= h->stop_deadline_ns - LAST_NS) {
        done(h);
        return;
    }
    if (!h->stop_sent && (h->registry.live == 0 || now_ns >= grace_end_ns + SLACK_NS))
        tell_agent(h);
    if (unready || now_ns >= kill_ns) {
        ms_head_agent_kill(h);
        look_again(h, h->stop_deadline_ns - LAST_NS);
    } else {
        look_again(h, h->stop_sent ? kill_ns : grace_end_ns + SLACK_NS);
    }
}

void ms_head_stop_step(struct ms_head *h)
{
    int64_t now_ns = ms_now_ns();

    if (!h->stop_op || h->stop_done)
        return;
    if (h->agent.state == MS_AGENT_NONE || h->agent.state == MS_AGENT_GONE)
        step_without_agent(h, now_ns);
    else
        step_with_agent(h, now_ns);
}

void ms_head_stop_run(struct ms_head_op *op)
{
    struct ms_head *h = op->head;

    h->stop_op = op;
    h->stop_deadline_ns = ms_deadline_ns(ms_now_ns() + MS_STOP_GRACE_NS, op->grace_ns);
    if (h->agent.state == MS_AGENT_READY &&
        (ms_head_stop_all_workers(h, op->grace_ns) < 0 || is_creating(h)))
        tell_agent(h);
    ms_head_stop_step(h);
}
