/* child_agent.c - agents that are children of this process: their start and their end */
#include "head/nodes/child_agent.h"
#include "base/cleanup.h"
#include "head/drivers/driver.h"
#include "head/head_impl.h"
#include "head/nodes/node.h"
#include "head/nodes/orphan.h"
#include "head/ops/op.h"
#include "head/stop.h"
#include "orchestrator/local/starter.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

/* Link and process end together; who waits longer for the other one than this decides
 * without it. */
#define VERDICT_NS (1 * MS_NS_PER_S)

/* How long workers have to end by themselves when their agent is gone. */
#define ORPHAN_NS (1 * MS_NS_PER_S)

/* What of the agent's log goes into an error's text. */
enum { TAIL_MAX = 240, NAMES_MAX = 96 };

struct ms_child_agent {
    struct ms_head *head;
    struct ms_node *node;
    struct ms_local_agent *agent;
    struct ms_agent_spec spec;
    struct ms_head_op *start_op; /* while STARTING */
    Muster__HeadToAgent *config; /* until it was sent */

    /* How it went: the process and the link, whichever is first. */
    bool ended, killed;
    struct ms_process_end end;
    struct ms_error closed_why;
    struct ms_timer verdict; /* the other one must follow soon */
};

/* ---- its log --------------------------------------------------------------------- */

enum { READ_MAX = 2048 };

static size_t read_end(const char *path, char *out)
{
    MS_CLEANUP(ms_cleanup_fd) int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    off_t size = fd < 0 ? 0 : lseek(fd, 0, SEEK_END);
    ssize_t n;

    if (size <= 0)
        return 0;
    n = pread(fd, out, READ_MAX, size > READ_MAX ? size - READ_MAX : 0);
    return n > 0 ? (size_t)n : 0;
}

/* In place: what does not print becomes a blank, line ends become bars. `out` has three
 * times the room. */
static size_t join_lines(const char *in, size_t len, char *out)
{
    size_t n = 0;

    while (len && isspace((unsigned char)in[len - 1]))
        len--;
    for (size_t i = 0; i < len; i++) {
        if (in[i] == '\n') {
            memcpy(out + n, " | ", 3);
            n += 3;
        } else {
            out[n++] = (unsigned char)in[i] < ' ' ? ' ' : in[i];
        }
    }
    return n;
}

/* The end of a log in one line of at most room - 1 bytes, " | " between its lines. Empty if
 * there is nothing. Returns `out`. */
static const char *read_tail(const char *path, char *out, size_t room)
{
    char raw[READ_MAX], line[3 * READ_MAX];
    size_t len = join_lines(raw, read_end(path, raw), line);
    size_t from = len < room ? 0 : len - (room - 1);

    memcpy(out, line + from, len - from);
    out[len - from] = 0;
    return out;
}

/* ---- the end of an agent --------------------------------------------------------- */

static void describe(const struct ms_child_agent *l, struct ms_error *out)
{
    const struct ms_node *n = l->node;
    char how[96];
    const char *what = how, *why = "";

    if (n->closed && l->closed_why.code != -EPIPE &&
        l->closed_why.code != -ECONNRESET) {
        what = "broke its link: ";
        why = l->closed_why.text;
    } else if (l->killed || !l->ended) {
        what = l->head->stop_op ? "did not end in time and was killed"
                                : "closed its link and was killed";
    } else {
        ms_process_end_print(&l->end, how, sizeof how);
    }
    ms_error_set(out,
                 -EPIPE,
                 "the agent on node %s (pid %d) %s%s",
                 n->name,
                 (int)n->pid,
                 what,
                 why);
}

/* One start is that of all. */
static void forget_start(struct ms_head *h)
{
    ms_list_each (n, &h->nodes, struct ms_node, link)
        if (n->child)
            n->child->start_op = NULL;
}

/* The start will not succeed: say why, with what the agent itself said last. */
static void fail_start(struct ms_child_agent *l, const struct ms_error *why)
{
    struct ms_head_op *op = l->start_op;
    const char *log_path = l->head->log_path;
    char tail[TAIL_MAX];

    if (!op)
        return;
    forget_start(l->head);
    if (read_tail(log_path, tail, sizeof tail)[0])
        ms_head_op_fail(
            op, why->code, "%.240s; %s ends: %s", why->text, log_path, tail);
    else
        ms_head_op_fail_with(op, why);
}

static void gone(struct ms_child_agent *l)
{
    struct ms_head *h = l->head;
    bool was_ready = l->node->state == MS_NODE_READY;
    struct ms_error why = {0};

    if (l->node->state == MS_NODE_GONE)
        return;
    ms_timer_cancel(&l->verdict);
    describe(l, &why);
    fail_start(l, &why);
    ms_node_has_ended(l->node, why.text);
    /* first of all: the thread whose request fails may call init */
    if (was_ready && !h->stop_op && h->on_agent_lost && ms_node_count(h) == 0)
        h->on_agent_lost(h->arg, why.text);
    ms_node_refuse_all(l->node, why.text);
    ms_orphans_kill_after(&h->orphans, ORPHAN_NS);
    if (was_ready)
        ms_drivers_tell_node(h, l->node);
    ms_head_stop_step(h);
}

/* Both signs are there, or one has been alone for too long. */
static void settle(struct ms_child_agent *l)
{
    if (l->ended && (l->node->closed || !l->node->wire))
        gone(l);
    else if (l->node->state != MS_NODE_GONE)
        ms_timer_set(&l->verdict, VERDICT_NS);
}

static void on_verdict(void *arg)
{
    struct ms_child_agent *l = arg;

    if (l->ended || l->killed) {
        gone(l);
        return;
    }
    ms_child_agent_kill(l);
    ms_timer_set(&l->verdict, VERDICT_NS);
}

void ms_child_agent_kill(struct ms_child_agent *l)
{
    if (!l->agent || l->ended || l->killed)
        return;
    l->killed = true;
    ms_local_agent_stop(l->agent);
}

void ms_child_agent_hang_up(struct ms_child_agent *l)
{
    ms_link_destroy(MS_TAKE(l->node->wire));
    settle(l);
}

/* ---- what it says ---------------------------------------------------------------- */

static bool is_starting(const struct ms_head *h)
{
    ms_list_each (n, &h->nodes, struct ms_node, link)
        if (n->child && n->child->start_op)
            return true;
    return false;
}

void ms_child_agent_is_ready(struct ms_child_agent *l, Muster__AgentReady *ready)
{
    struct ms_head_op *op = l->start_op;

    if (l->node->state != MS_NODE_STARTING) {
        muster__agent_ready__free_unpacked(ready, NULL);
        return;
    }
    ms_node_is_ready(l->node, ready);
    l->start_op = NULL;
    if (op && !is_starting(l->head))
        ms_head_op_succeed(op, NULL);
}

static void on_body(void *arg, const uint8_t *body, size_t len)
{
    struct ms_child_agent *l = arg;

    if (ms_node_read(l->node, body, len))
        return;
    ms_error_set(&l->closed_why, -EPROTO, "it sent what is no message");
    l->node->closed = true;
    ms_child_agent_kill(l);
}

static void on_closed(void *arg, const struct ms_error *why)
{
    struct ms_child_agent *l = arg;

    if (!l->node->closed)
        l->closed_why = *why;
    l->node->closed = true;
    settle(l);
}

/* ---- its start ------------------------------------------------------------------- */

/* There is no agent and there never was. */
static void not_started(struct ms_child_agent *l, const struct ms_error *why)
{
    fail_start(l, why);
    ms_node_is_gone(l->node, why->text);
    ms_head_stop_step(l->head);
}

static void
start_refused(struct ms_head_op *op, struct ms_node *n, const struct ms_error *why)
{
    (void)op;
    fail_start(n->child, why);
}

static void
on_started(void *arg, int rc, int link_fd, pid_t pid, const struct ms_error *why)
{
    static const struct ms_link_ops ops = {.on_body = on_body, .on_closed = on_closed};
    struct ms_child_agent *l = arg;
    struct ms_node *n = l->node;
    struct ms_error err = {0};

    if (rc < 0) {
        not_started(l, why);
        return;
    }
    n->pid = pid;
    n->wire = ms_link_create(l->head->loop, link_fd, &ops, l);
    rc = n->wire ? 0 : ms_error_sys(&err, -ENOMEM, "cannot talk to the agent");
    if (rc == 0 && l->start_op)
        rc = ms_node_ask(n,
                         l->start_op,
                         MUSTER__HEAD_TO_AGENT__BODY_CONFIG,
                         l->config->config,
                         &err);
    muster__head_to_agent__free_unpacked(MS_TAKE(l->config), NULL);
    if (rc == -EPIPE || rc == -ECONNRESET)
        return; /* it has ended already; on_ended says how */
    if (rc < 0) {
        fail_start(l, &err);
        ms_child_agent_kill(l);
    }
}

static void on_ended(void *arg, const struct ms_process_end *end)
{
    struct ms_child_agent *l = arg;

    l->ended = true;
    l->end = *end;
    settle(l);
}

/* "the agents of n1, n3 ('PATH agent') have not answered within 5 s; ..." */
static void on_late(void *arg)
{
    struct ms_head_op *op = arg;
    struct ms_head *h = op->head;
    struct ms_child_agent *any = NULL;
    char names[NAMES_MAX] = "", tail[TAIL_MAX];
    size_t len = 0, count = 0;

    ms_list_each (n, &h->nodes, struct ms_node, link) {
        if (!n->child || !n->child->start_op)
            continue;
        any = n->child;
        if (len + strlen(n->name) + 3 < sizeof names)
            len += (size_t)snprintf(
                names + len, sizeof names - len, "%s%s", count ? ", " : "", n->name);
        count++;
    }
    read_tail(h->log_path, tail, sizeof tail);
    forget_start(h);
    ms_head_op_fail(
        op,
        -ETIMEDOUT,
        "the agent%s of %s ('%.150s agent') %s not answered within %.3g s%s%s",
        count > 1 ? "s" : "",
        names,
        any ? any->spec.path : "muster",
        count > 1 ? "have" : "has",
        (double)h->start_ns / (double)MS_NS_PER_S,
        tail[0] ? "; the log ends: " : "",
        tail);
}

static void run_one(struct ms_child_agent *l)
{
    static const struct ms_agent_events events = {
        .on_started = on_started,
        .on_ended = on_ended,
    };

    l->agent = ms_local_agent_start(l->head->loop, &l->spec, &events, l);
    if (!l->agent)
        not_started(l, &(struct ms_error){-ENOMEM, "out of memory"});
}

int ms_child_agent_run(struct ms_head_op *op)
{
    struct ms_head *h = op->head;

    op->on_refused = start_refused;
    if (ms_head_op_set_deadline(op, on_late, h->start_ns) < 0)
        return -ENOMEM;
    ms_list_each (n, &h->nodes, struct ms_node, link)
        n->child->start_op = op;
    ms_list_each (n, &h->nodes, struct ms_node, link)
        if (n->child->start_op) /* else another one has failed */
            run_one(n->child);
    return 0;
}

int ms_child_agent_init(struct ms_head *h,
                        const struct ms_head_options *o,
                        Muster__HeadToAgent *config)
{
    struct ms_node *n = config ? ms_node_create(h, config->config->node_name) : NULL;
    struct ms_child_agent *l = n ? calloc(1, sizeof *l) : NULL;

    if (!l) {
        muster__head_to_agent__free_unpacked(config, NULL);
        return -ENOMEM;
    }
    n->child = l;
    l->head = h;
    l->node = n;
    l->config = config;
    l->spec = (struct ms_agent_spec){
        .path = o->agent_path,
        .env = o->env ? o->env : (const char *const *)environ,
        .log_path = h->log_path,
        .lock_fd = h->lock_fd,
    };
    return ms_timer_init(&l->verdict, h->loop, on_verdict, l);
}

void ms_child_agent_destroy(struct ms_child_agent *l)
{
    if (!l)
        return;
    ms_timer_finish(&l->verdict);
    ms_local_agent_release(MS_TAKE(l->agent));
    muster__head_to_agent__free_unpacked(l->config, NULL);
    free(l);
}
