#include "base/cleanup.h"
#include "head/state.h"
#include "head/tail.h"
#include "orchestrator/local/local.h"

#include <errno.h>
#include <stdio.h>

/* Link and process end together; who waits longer for the other one than this decides
 * without it. */
#define VERDICT_NS (1 * MS_NS_PER_S)

/* How long workers have to end by themselves when their agent is gone. */
#define ORPHAN_NS (1 * MS_NS_PER_S)

/* What of the agent's log goes into an error's text. */
enum { TAIL_MAX = 240 };

/* ---- the end of an agent --------------------------------------------------------- */

static void describe(const struct ms_head *h, struct ms_error *out)
{
    const struct ms_head_agent *a = &h->agent;
    char how[96];

    if (a->closed && a->closed_why.code != -EPIPE && a->closed_why.code != -ECONNRESET)
        ms_error_set(out,
                     -EPIPE,
                     "the agent on node %s (pid %d) broke its link: %s",
                     h->node,
                     (int)a->pid,
                     a->closed_why.text);
    else if (a->killed || !a->ended)
        ms_error_set(out,
                     -EPIPE,
                     "the agent on node %s (pid %d) %s",
                     h->node,
                     (int)a->pid,
                     h->stop_op ? "did not end in time and was killed"
                                : "closed its link and was killed");
    else
        ms_error_set(out,
                     -EPIPE,
                     "the agent on node %s (pid %d) %s",
                     h->node,
                     (int)a->pid,
                     ms_process_end_print(&a->end, how, sizeof how));
}

/* The start will not succeed: say why, with what the agent itself said last. */
static void fail_start(struct ms_head *h, const struct ms_error *why)
{
    struct ms_head_op *op = MS_TAKE(h->agent.start_op);
    char tail[TAIL_MAX];

    if (!op)
        return;
    if (ms_tail_read(h->log_path, tail, sizeof tail)[0])
        ms_head_op_fail(
            op, why->code, "%.240s; %s ends: %s", why->text, h->log_path, tail);
    else
        ms_head_op_fail_with(op, why);
}

static void fail_pending(struct ms_head *h)
{
    size_t at = 0;
    struct ms_head_op *op;

    while ((op = ms_map_next(&h->agent.pending, &at))) {
        ms_head_op_fail_with(op, &h->agent.gone);
        at = 0; /* the map has changed */
    }
}

static void gone(struct ms_head *h)
{
    struct ms_head_agent *a = &h->agent;
    bool was_ready = a->state == MS_AGENT_READY;

    if (a->state == MS_AGENT_GONE)
        return;
    ms_timer_cancel(&a->verdict);
    describe(h, &a->gone);
    a->state = MS_AGENT_GONE;
    ms_link_destroy(MS_TAKE(a->link));
    fail_start(h, &a->gone);
    fail_pending(h);
    ms_head_workers_lost(h, a->gone.text);
    ms_orphans_kill_after(&h->orphans, ORPHAN_NS);
    if (was_ready && !h->stop_op && h->on_agent_lost)
        h->on_agent_lost(h->arg, a->gone.text);
    ms_head_stop_step(h);
}

/* Both signs are there, or one has been alone for too long. */
static void settle(struct ms_head *h)
{
    struct ms_head_agent *a = &h->agent;

    if (a->ended && (a->closed || !a->link))
        gone(h);
    else if (a->state != MS_AGENT_GONE)
        ms_timer_set(&a->verdict, VERDICT_NS);
}

static void on_verdict(void *arg)
{
    struct ms_head *h = arg;

    if (h->agent.ended || h->agent.killed) {
        gone(h);
        return;
    }
    ms_head_agent_kill(h);
    ms_timer_set(&h->agent.verdict, VERDICT_NS);
}

void ms_head_agent_kill(struct ms_head *h)
{
    struct ms_head_agent *a = &h->agent;

    if (!a->lent || a->ended || a->killed)
        return;
    a->killed = true;
    a->orchestrator->ops->stop(a->lent);
}

void ms_head_agent_hang_up(struct ms_head *h)
{
    struct ms_head_agent *a = &h->agent;

    ms_link_destroy(MS_TAKE(a->link));
    settle(h);
}

/* ---- what it says ---------------------------------------------------------------- */

static void on_ready(struct ms_head *h, const Muster__AgentReady *ready)
{
    struct ms_head_agent *a = &h->agent;

    if (a->state != MS_AGENT_STARTING)
        return;
    a->state = MS_AGENT_READY;
    a->cpus = h->num_cpus >= 0 ? (uint32_t)h->num_cpus : ready->cpus;
    a->memory = ready->memory;
    a->gpus = ready->gpus;
    if (a->start_op)
        ms_head_op_succeed(MS_TAKE(a->start_op), NULL);
}

static int code_of(const Muster__Failure *f)
{
    switch (f->kind) {
    case MUSTER__FAILURE__KIND__NO_MEMORY:
        return -ENOMEM;
    case MUSTER__FAILURE__KIND__BAD_ARGUMENT:
        return -EINVAL;
    case MUSTER__FAILURE__KIND__REFUSED:
        return -EPERM;
    default:
        return -EIO;
    }
}

static void
on_failure(struct ms_head *h, struct ms_head_op *op, const Muster__Failure *f)
{
    struct ms_error why = {0};

    ms_error_set(&why,
                 code_of(f),
                 "the agent on node %s: %s",
                 h->node,
                 f->message[0] ? f->message : "failed and did not say why");
    if (op == h->agent.start_op)
        fail_start(h, &why);
    else
        ms_head_op_fail_with(op, &why);
}

static void on_answer(struct ms_head *h, Muster__AgentToHead *m)
{
    struct ms_head_op *op = ms_map_find(&h->agent.pending, m->request);

    if (!op)
        return; /* nobody waits for it any more */
    if (m->body_case == MUSTER__AGENT_TO_HEAD__BODY_FAILURE)
        on_failure(h, op, m->failure);
    else if (op->on_answer)
        op->on_answer(op, m);
}

static void on_body(void *arg, const uint8_t *body, size_t len)
{
    struct ms_head *h = arg;
    Muster__AgentToHead *m = muster__agent_to_head__unpack(NULL, len, body);

    if (!m) {
        ms_error_set(&h->agent.closed_why, -EPROTO, "it sent what is no message");
        h->agent.closed = true;
        ms_head_agent_kill(h);
        return;
    }
    switch (m->body_case) {
    case MUSTER__AGENT_TO_HEAD__BODY_READY:
        on_ready(h, m->ready);
        break;
    case MUSTER__AGENT_TO_HEAD__BODY_EXITED:
        ms_head_worker_exited(h, m->exited->uid, m->exited->exit);
        break;
    case MUSTER__AGENT_TO_HEAD__BODY_LOG:
        if (h->on_log)
            h->on_log(h->arg, m->log);
        break;
    default:
        on_answer(h, m);
    }
    muster__agent_to_head__free_unpacked(m, NULL);
}

static void on_closed(void *arg, const struct ms_error *why)
{
    struct ms_head *h = arg;

    if (!h->agent.closed)
        h->agent.closed_why = *why;
    h->agent.closed = true;
    settle(h);
}

/* ---- asking it ------------------------------------------------------------------- */

int ms_head_agent_check(const struct ms_head *h, struct ms_error *err)
{
    if (h->agent.state == MS_AGENT_GONE) {
        if (err)
            *err = h->agent.gone;
        return -EPIPE;
    }
    if (h->agent.closed || !h->agent.link)
        return ms_error_set(err, -EPIPE, "the agent on node %s is ending", h->node);
    return 0;
}

int ms_head_agent_ask(struct ms_head *h, struct ms_head_op *op, struct ms_error *err)
{
    uint64_t request = h->agent.last_request + 1;
    int rc = ms_head_agent_check(h, err);

    if (rc < 0)
        return rc;
    rc = ms_map_add(&h->agent.pending, request, op);
    if (rc < 0)
        return ms_error_sys(err, rc, "cannot ask the agent");
    op->to_agent->request = request;
    rc = ms_link_send(h->agent.link, &op->to_agent->base);
    if (rc < 0) {
        ms_map_remove(&h->agent.pending, request);
        return ms_error_sys(err, rc, "cannot ask the agent on node %s", h->node);
    }
    h->agent.last_request = op->request = request;
    muster__head_to_agent__free_unpacked(MS_TAKE(op->to_agent), NULL);
    return 0;
}

int ms_head_agent_tell(struct ms_head *h, Muster__HeadToAgent *m)
{
    int rc = ms_head_agent_check(h, NULL);

    m->request = 0;
    return rc < 0 ? rc : ms_link_send(h->agent.link, &m->base);
}

/* ---- its start ------------------------------------------------------------------- */

/* There is no agent and there never was. */
static void not_started(struct ms_head *h, const struct ms_error *why)
{
    h->agent.state = MS_AGENT_GONE;
    h->agent.gone = *why;
    fail_start(h, why);
    ms_head_stop_step(h);
}

static void
on_started(void *arg, int rc, int link_fd, pid_t pid, const struct ms_error *why)
{
    static const struct ms_link_ops ops = {.on_body = on_body, .on_closed = on_closed};
    struct ms_head *h = arg;
    struct ms_head_agent *a = &h->agent;
    struct ms_error err = {0};

    if (rc < 0) {
        not_started(h, why);
        return;
    }
    a->pid = pid;
    a->link = ms_link_create(h->loop, link_fd, &ops, h);
    rc = a->link ? 0 : ms_error_sys(&err, -ENOMEM, "cannot talk to the agent");
    if (rc == 0 && a->start_op)
        rc = ms_head_agent_ask(h, a->start_op, &err);
    if (rc == -EPIPE || rc == -ECONNRESET)
        return; /* it has ended already; on_ended says how */
    if (rc < 0) {
        fail_start(h, &err);
        ms_head_agent_kill(h);
    }
}

static void on_ended(void *arg, const struct ms_process_end *end)
{
    struct ms_head *h = arg;

    h->agent.ended = true;
    h->agent.end = *end;
    settle(h);
}

void ms_head_agent_run(struct ms_head_op *op)
{
    static const struct ms_agent_events events = {
        .on_started = on_started,
        .on_ended = on_ended,
    };
    struct ms_head *h = op->head;
    struct ms_head_agent *a = &h->agent;

    a->state = MS_AGENT_STARTING;
    a->start_op = op;
    a->lent = a->orchestrator->ops->start(a->orchestrator, &a->spec, &events, h);
    if (!a->lent)
        not_started(h, &(struct ms_error){-ENOMEM, "out of memory"});
}

int ms_head_agent_init(struct ms_head *h, const struct ms_head_options *o)
{
    struct ms_head_agent *a = &h->agent;

    ms_map_init(&a->pending);
    a->spec = (struct ms_agent_spec){
        .path = o->agent_path,
        .env = o->env ? o->env : (const char *const *)environ,
        .log_path = h->log_path,
        .lock_fd = h->lock_fd,
    };
    a->orchestrator = ms_orchestrator_local(h->loop);
    if (!a->orchestrator)
        return -ENOMEM;
    return ms_timer_init(&a->verdict, h->loop, on_verdict, h);
}

void ms_head_agent_finish(struct ms_head *h)
{
    struct ms_head_agent *a = &h->agent;

    ms_timer_finish(&a->verdict);
    ms_link_destroy(MS_TAKE(a->link));
    if (a->orchestrator) {
        a->orchestrator->ops->release(MS_TAKE(a->lent));
        a->orchestrator->ops->destroy(MS_TAKE(a->orchestrator));
    }
    ms_map_finish(&a->pending);
}
