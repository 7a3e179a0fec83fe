/* node.c - one machine: what it is asked, what it says, its end */
#include "head/nodes/node.h"
#include "base/cleanup.h"
#include "base/proto.h"
#include "head/clusters/clusters.h"
#include "head/clusters/ports.h"
#include "head/drivers/driver.h"
#include "head/head_impl.h"
#include "head/jobs/jobs.h"
#include "head/nodes/child_agent.h"
#include "head/ops/op.h"
#include "head/place/place.h"
#include "resource/shape.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static struct ms_ask *ask_of(struct ms_pending *p)
{
    return MS_CONTAINER(p, struct ms_ask, request);
}

struct ms_node *ms_node_create(struct ms_head *h, const char *name)
{
    struct ms_node *n = calloc(1, sizeof *n);

    if (!n)
        return NULL;
    n->head = h;
    snprintf(n->name, sizeof n->name, "%s", name);
    ms_requests_init(&n->requests);
    n->requests.last =
        h->last_ask; /* its agent may know the numbers of an earlier one */
    ms_map_init(&n->contexts);
    ms_list_add_tail(&h->nodes, &n->link);
    return n;
}

void ms_node_destroy(struct ms_node *n)
{
    if (!n)
        return;
    ms_list_each (p, &n->requests.open, struct ms_pending, link)
        ms_ask_destroy(ask_of(p));
    ms_list_remove(&n->link);
    ms_timer_finish(&n->grace);
    ms_link_destroy(n->wire);
    ms_child_agent_destroy(n->child);
    if (n->requests.last > n->head->last_ask)
        n->head->last_ask = n->requests.last;
    ms_requests_finish(&n->requests);
    ms_map_finish(&n->contexts);
    muster__agent_ready__free_unpacked(n->ready, NULL);
    free(n->gone);
    free(n);
}

struct ms_node *ms_node_find(const struct ms_head *h, const char *name)
{
    ms_list_each (n, &h->nodes, struct ms_node, link)
        if (strcmp(n->name, name) == 0)
            return n;
    return NULL;
}

struct ms_node *ms_head_find_node(const struct ms_head *h, const char *name)
{
    struct ms_node *first = NULL;

    if (name[0])
        return ms_node_find(h, name);
    ms_list_each (n, &h->nodes, struct ms_node, link)
        if (!first || first->state == MS_NODE_GONE)
            first = n;
    return first;
}

size_t ms_node_count(const struct ms_head *h)
{
    size_t count = 0;

    ms_list_each (n, &h->nodes, struct ms_node, link)
        count += n->state != MS_NODE_GONE;
    return count;
}

/* ---- questions ------------------------------------------------------------------- */

int ms_node_check(const struct ms_node *n, struct ms_error *err)
{
    if (n->state == MS_NODE_GONE)
        return ms_error_set(err, -EPIPE, "%s", n->gone ? n->gone : "out of memory");
    if (n->child && (n->closed || !n->wire))
        return ms_error_set(err, -EPIPE, "the agent on node %s is ending", n->name);
    return 0;
}

void ms_ask_destroy(struct ms_ask *a)
{
    ms_requests_remove(&a->node->requests, &a->request);
    ms_list_remove(&a->link);
    muster__head_to_agent__free_unpacked(a->message, NULL);
    free(a);
}

static struct ms_ask *
ask_create(struct ms_node *n, struct ms_head_op *op, Muster__HeadToAgent *m)
{
    struct ms_ask *a = calloc(1, sizeof *a);

    if (!a)
        return NULL;
    ms_list_init(&a->link);
    a->node = n;
    a->op = op;
    if (!n->child)
        a->message = (Muster__HeadToAgent *)ms_proto_copy(&m->base);
    if ((!n->child && !a->message) || ms_requests_add(&n->requests, &a->request) < 0) {
        ms_ask_destroy(a);
        return NULL;
    }
    ms_list_add_tail(&op->asks, &a->link);
    return a;
}

/* All bodies are pointers in a union. */
static void
message_init(Muster__HeadToAgent *m, Muster__HeadToAgent__BodyCase what, void *body)
{
    muster__head_to_agent__init(m);
    m->body_case = what;
    m->config = body;
}

/* Send `m`, which is what was asked, or its copy. */
static int ask_send(struct ms_ask *a, Muster__HeadToAgent *m)
{
    struct ms_requests *r = &a->node->requests;
    int rc;

    m->request = a->request.number;
    m->answered = ms_requests_watermark(r);
    m->n_arrived = r->arrived_count;
    m->arrived = r->arrived;
    rc = ms_link_send(a->node->wire, &m->base);
    m->answered = m->n_arrived = 0; /* what it says of this node goes to no other */
    m->arrived = NULL;
    if (rc == 0)
        ms_requests_told(r);
    return rc;
}

void ms_node_ask_again(struct ms_node *n)
{
    ms_list_each (p, &n->requests.open, struct ms_pending, link)
        ask_send(ask_of(p), ask_of(p)->message);
}

int ms_node_ask(struct ms_node *n,
                struct ms_head_op *op,
                Muster__HeadToAgent__BodyCase what,
                void *body,
                struct ms_error *err)
{
    int rc = ms_node_check(n, err);
    Muster__HeadToAgent m;
    struct ms_ask *a;

    if (rc < 0)
        return rc;
    message_init(&m, what, body);
    a = ask_create(n, op, &m);
    if (!a)
        return ms_error_sys(err, -ENOMEM, "cannot ask the agent on node %s", n->name);
    if (!n->wire)
        return 0; /* it is away: when it comes back */
    rc = ask_send(a, &m);
    if (rc == 0 || (!n->child && rc != -ENOMEM && rc != -ENOBUFS && rc != -EMSGSIZE))
        return 0; /* or its link has just broken: when it comes back */
    ms_ask_destroy(a);
    return ms_error_sys(err, rc, "cannot ask the agent on node %s", n->name);
}

void ms_nodes_ask(struct ms_head_op *op, Muster__HeadToAgent__BodyCase what, void *body)
{
    ms_list_each (n, &op->head->nodes, struct ms_node, link)
        ms_node_ask(n, op, what, body, NULL);
}

int ms_node_tell(struct ms_node *n, Muster__HeadToAgent__BodyCase what, void *body)
{
    int rc = ms_node_check(n, NULL);
    Muster__HeadToAgent m;

    message_init(&m, what, body);
    if (rc == 0 && !n->wire)
        rc = -EPIPE;
    return rc < 0 ? rc : ms_link_send(n->wire, &m.base);
}

int ms_node_tell_forget(struct ms_node *n, uint64_t driver)
{
    Muster__ForgetDriver forget = MUSTER__FORGET_DRIVER__INIT;

    forget.driver = driver;
    return ms_node_tell(n, MUSTER__HEAD_TO_AGENT__BODY_FORGET_DRIVER, &forget);
}

/* The head's own words for what an agent's failure means. */
static int failure_code(const Muster__Failure *f)
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

static void refuse(struct ms_ask *a, const struct ms_error *why)
{
    struct ms_head_op *op = a->op;
    struct ms_node *n = a->node;

    ms_ask_destroy(a);
    if (op->on_refused)
        op->on_refused(op, n, why);
    else
        ms_head_op_fail_with(op, why);
}

static void on_answer(struct ms_node *n, Muster__AgentToHead *m)
{
    struct ms_pending *p = ms_requests_find(&n->requests, m->request);
    struct ms_error why = {0};
    struct ms_head_op *op;
    struct ms_ask *a;

    if (!p) { /* nobody waits for it any more */
        ms_head_stop_unwanted(n, m);
        return;
    }
    a = ask_of(p);
    if (m->body_case == MUSTER__AGENT_TO_HEAD__BODY_FAILURE) {
        ms_error_set(&why,
                     failure_code(m->failure),
                     "the agent on node %s: %s",
                     n->name,
                     m->failure->message[0] ? m->failure->message
                                            : "failed and did not say why");
        refuse(a, &why);
        return;
    }
    op = a->op;
    ms_ask_destroy(a);
    if (op->on_answer)
        op->on_answer(op, n, m);
}

/* ---- what it says ---------------------------------------------------------------- */

void ms_node_is_ready(struct ms_node *n, Muster__AgentReady *ready)
{
    if (!ready->shape)
        ready->shape = ms_shape_create(n->name);
    muster__agent_ready__free_unpacked(n->ready, NULL);
    n->ready = ready;
    n->state = MS_NODE_READY;
    n->pid = ready->pid ? ready->pid : n->pid;
    n->cpus = ready->shape ? (uint32_t)ready->shape->cpus : 0;
    ms_place_node_came(n->head, n);
    ms_jobs_node_came(n->head->jobs, n->name);
}

/* An agent that has dialled knows its folder only when it was welcomed. */
static void swap_folder(Muster__AgentReady *known, Muster__AgentReady *said)
{
    char *folder = known->session_dir;

    known->session_dir = said->session_dir;
    said->session_dir = folder;
}

bool ms_node_read(struct ms_node *n, const uint8_t *body, size_t len)
{
    Muster__AgentToHead *m = muster__agent_to_head__unpack(NULL, len, body);

    if (!m)
        return false;
    switch (m->body_case) {
    case MUSTER__AGENT_TO_HEAD__BODY_READY:
        if (n->child)
            ms_child_agent_is_ready(n->child, MS_TAKE(m->ready));
        else if (n->ready)
            swap_folder(n->ready, m->ready);
        break;
    case MUSTER__AGENT_TO_HEAD__BODY_EXITED:
        ms_head_worker_exited(n->head, m->exited->uid, m->exited->exit);
        break;
    case MUSTER__AGENT_TO_HEAD__BODY_LOG:
        ms_head_logged(n->head, n->name, m->log);
        break;
    case MUSTER__AGENT_TO_HEAD__BODY_ASK_SUCCESSOR:
        ms_head_node_asks_successor(n, m->ask_successor->uid);
        break;
    default:
        on_answer(n, m);
    }
    muster__agent_to_head__free_unpacked(m, NULL);
    return true;
}

/* ---- its end --------------------------------------------------------------------- */

void ms_node_has_ended(struct ms_node *n, const char *why)
{
    n->state = MS_NODE_GONE;
    n->gone = strdup(why);
    ms_timer_finish(&n->grace);
    ms_link_destroy(MS_TAKE(n->wire));
    ms_head_workers_lost(n->head, n, why);
}

void ms_node_refuse_all(struct ms_node *n, const char *why)
{
    struct ms_error err = {0};

    ms_error_set(&err, -EPIPE, "%s", why);
    while (!ms_list_is_empty(&n->requests.open))
        /* the analyzer does not follow links. NOLINTNEXTLINE(clang-analyzer-unix.Malloc) */
        refuse(ask_of(ms_list_first(&n->requests.open, struct ms_pending, link)), &err);
    ms_head_ports_lost(n->head, n);
    ms_place_node_gone(n->head, n);
}

void ms_node_is_gone(struct ms_node *n, const char *why)
{
    if (n->state == MS_NODE_GONE)
        return;
    ms_node_has_ended(n, why);
    ms_node_refuse_all(n, why);
}
