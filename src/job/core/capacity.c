/* capacity.c - the reservation, the node check, nodes that are avoided */
#include "job/core/core_impl.h"

#include <stdio.h>
#include <string.h>

/* Ranks that end so soon after each other were lost together. */
#define SAME_LOSS_NS (10 * MS_NS_PER_S)
/* A node that did nothing wrong for so long starts anew. */
#define STRIKES_KEPT_NS (3600 * MS_NS_PER_S)

/* ---- the reservation --------------------------------------------------------------- */

static void ask(struct ms_job_core *c, uint32_t what, uint8_t held)
{
    c->held = held;
    c->held_op = ms_act(c, what)->id;
    c->check_op = 0;
}

/* True: nothing is held. */
static bool release(struct ms_job_core *c)
{
    if (c->held == MS_CORE_NOT_HELD)
        return true;
    if (c->cannot_ask || (c->held == MS_CORE_RELEASING &&
                          (c->held_op != 0 || c->now_ns < c->held_retry_ns)))
        return false;
    if (c->held != MS_CORE_RELEASING)
        c->held_tries = 0;
    ask(c, MS_JOB_DO_RELEASE, MS_CORE_RELEASING);
    return false;
}

bool ms_capacity_down(struct ms_job_core *c)
{
    c->pending_ns = MS_NEVER;
    return release(c);
}

static void reserve(struct ms_job_core *c)
{
    if (c->held == MS_CORE_RELEASING && !release(c))
        return;
    if (c->pending_ns == MS_NEVER)
        c->pending_ns = c->now_ns;
    if (c->held_op == 0 && !c->cannot_ask && c->now_ns >= c->held_retry_ns)
        ask(c, MS_JOB_DO_RESERVE, MS_CORE_ASKED);
}

bool ms_capacity_is_up(const struct ms_job_core *c)
{
    return c->held == MS_CORE_HELD && (!c->spec.check_nodes || c->is_checked);
}

bool ms_capacity_up(struct ms_job_core *c)
{
    if (c->held != MS_CORE_HELD) {
        reserve(c);
        return false;
    }
    if (ms_capacity_is_up(c))
        return true;
    if (c->check_op == 0 && !c->cannot_ask && c->now_ns >= c->check_retry_ns)
        c->check_op = ms_act(c, MS_JOB_DO_CHECK_NODES)->id;
    return false;
}

static void later(struct ms_job_core *c, const char *text)
{
    if (c->held_tries < UINT8_MAX)
        c->held_tries++;
    c->held_retry_ns = c->now_ns + ms_backoff_ns(c, c->held_tries);
    ms_text_keep(c->text, sizeof c->text, text);
}

static void not_reserved(struct ms_job_core *c, const struct ms_job_event *e)
{
    const char *text = e->text ? e->text : "no reason given";

    c->is_held_unsure |= e->failure == MS_JOB_NOT_ASKED;
    if (!c->is_held_unsure)
        c->held = MS_CORE_NOT_HELD;
    if (e->failure == MS_JOB_REFUSED) {
        ms_job_end(
            c, MS_JOB_STAGE_FAILED, MS_JOB_NO_CAPACITY, 1, "not reserved: %s", text);
        return;
    }
    if (c->held_tries == 0)
        ms_say(c,
               MS_JOB_WARNING,
               MS_JOB_NO_ROLE,
               0,
               MS_JOB_NO_CAPACITY,
               "waits for machines: %s",
               text);
    later(c, text);
}

static void not_released(struct ms_job_core *c, const struct ms_job_event *e)
{
    const char *text = e->text ? e->text : "no reason given";
    int64_t backoff_ns;

    if (e->failure != MS_JOB_NOT_ASKED)
        c->held_tries++;
    backoff_ns = ms_backoff_ns(c, c->held_tries + 1u);
    c->held_retry_ns = c->now_ns + backoff_ns;
    if (e->failure == MS_JOB_NOT_ASKED || c->held_tries < MS_CORE_TRIES_MAX)
        return;
    ms_say(c,
           MS_JOB_ERROR,
           MS_JOB_NO_ROLE,
           0,
           MS_JOB_CAUSE_NONE,
           "the machines could not be given back, tried %u times: %s",
           MS_CORE_TRIES_MAX,
           text);
    c->held = MS_CORE_NOT_HELD;
    c->is_held_unsure = false;
    c->held_retry_ns = 0;
}

static void answer_held(struct ms_job_core *c, const struct ms_job_event *e)
{
    bool is_done = e->what == MS_JOB_DONE;

    c->held_op = 0;
    if (is_done) {
        c->held = c->held == MS_CORE_ASKED ? MS_CORE_HELD : MS_CORE_NOT_HELD;
        c->is_held_unsure = false;
        c->held_tries = 0;
        c->held_retry_ns = 0;
        if (c->held == MS_CORE_HELD)
            c->pending_ns = MS_NEVER;
    } else if (c->held == MS_CORE_ASKED) {
        not_reserved(c, e);
    } else {
        not_released(c, e);
    }
}

/* ---- the node check ---------------------------------------------------------------- */

static struct ms_core_node *find_node(struct ms_job_core *c, const char *name)
{
    struct ms_core_node *n;

    if (!name || !name[0] || strlen(name) > MS_NAME_MAX)
        return NULL;
    for (size_t i = 0; i < c->node_count; i++)
        if (strcmp(c->nodes[i].name, name) == 0)
            return &c->nodes[i];
    if (c->node_count == MS_CORE_NODES_MAX)
        return NULL; /* what is not remembered is not avoided */
    n = &c->nodes[c->node_count++];
    *n = (struct ms_core_node){0};
    memcpy(n->name, name, strlen(name) + 1);
    return n;
}

static void avoid(struct ms_job_core *c, const char *name, enum ms_job_cause cause)
{
    struct ms_core_node *n = find_node(c, name);

    if (n && n->avoid == MS_CORE_TRUSTED) {
        n->avoid = MS_CORE_TO_AVOID;
        n->cause = (uint8_t)cause;
    }
}

/* Something of the job runs, or is being started. */
static bool has_live(const struct ms_job_core *c)
{
    for (uint32_t i = 0; i < c->spec.role_count; i++)
        if (c->roles[i].counts[MS_JOB_SLOT_STARTING] ||
            c->roles[i].counts[MS_JOB_SLOT_RUNNING] ||
            c->roles[i].counts[MS_JOB_SLOT_UNKNOWN])
            return true;
    return c->driver.state != MS_CORE_DRIVER_IDLE &&
           c->driver.state != MS_CORE_DRIVER_DONE;
}

static void take_good(struct ms_job_core *c)
{
    c->is_checked = true;
    c->check_rounds = c->check_tries = 0;
}

/* One more check has found faulty nodes: is that one too many? */
static bool has_spent_checks(struct ms_job_core *c)
{
    uint16_t budget = c->spec.driver_budget[MS_JOB_CHECK_FAILED];

    if (c->check_rounds < UINT8_MAX)
        c->check_rounds++;
    return budget != MS_JOB_UNLIMITED && c->check_rounds > budget;
}

/* Faulty nodes are given back with all the others, and are not lent again. Beside roles that
 * run only the faulty ones are avoided: what starts next is placed on the others. */
static void take_faulty(struct ms_job_core *c, size_t faulty, const char *names)
{
    ms_say(c,
           MS_JOB_WARNING,
           MS_JOB_NO_ROLE,
           0,
           MS_JOB_CHECK_FAILED,
           "%zu node%s failed the check: %s",
           faulty,
           faulty == 1 ? "" : "s",
           names);
    if (has_live(c))
        take_good(c);
    else if (has_spent_checks(c))
        ms_job_end(c,
                   MS_JOB_STAGE_FAILED,
                   MS_JOB_CHECK_FAILED,
                   1,
                   "nodes failed the check %u times; the last were %s",
                   c->check_rounds,
                   names);
    else
        release(c);
}

static void take_check(struct ms_job_core *c, const struct ms_job_event *e)
{
    char names[256] = "";
    size_t faulty = 0, len = 0;

    for (size_t i = 0; i < e->report_count; i++) {
        const struct ms_job_report *p = &e->reports[i];
        const char *node = p->node ? p->node : "?";

        if (p->cause == MS_JOB_CAUSE_NONE) {
            ms_say(c,
                   MS_JOB_WARNING,
                   MS_JOB_NO_ROLE,
                   0,
                   MS_JOB_CAUSE_NONE,
                   "node %s is slow: its check took far more than the median",
                   node);
            continue;
        }
        faulty++;
        avoid(c, p->node, MS_JOB_CHECK_FAILED);
        if (len + strlen(node) + 3 < sizeof names)
            len += (size_t)snprintf(
                names + len, sizeof names - len, "%s%s", len ? ", " : "", node);
    }
    if (e->text)
        ms_say(c, MS_JOB_INFO, MS_JOB_NO_ROLE, 0, MS_JOB_CAUSE_NONE, "%s", e->text);
    if (faulty == 0)
        take_good(c);
    else
        take_faulty(c, faulty, names);
}

/* What runs already goes on without it. */
static void no_check(struct ms_job_core *c, const char *text)
{
    if (!has_live(c)) {
        ms_job_end(c,
                   MS_JOB_STAGE_FAILED,
                   MS_JOB_CHECK_FAILED,
                   1,
                   "the node check could not be made: %s",
                   text);
        return;
    }
    ms_say(c,
           MS_JOB_WARNING,
           MS_JOB_NO_ROLE,
           0,
           MS_JOB_CHECK_FAILED,
           "the nodes are not checked: %s",
           text);
    take_good(c);
}

static void not_checked(struct ms_job_core *c, const struct ms_job_event *e)
{
    c->check_retry_ns = c->now_ns + ms_backoff_ns(c, c->check_tries + 1u);
    if (e->failure == MS_JOB_NOT_ASKED)
        return;
    if (++c->check_tries >= MS_CORE_CHECKS_MAX || e->failure == MS_JOB_REFUSED)
        no_check(c, e->text ? e->text : "no reason given");
}

static void answer_check(struct ms_job_core *c, const struct ms_job_event *e)
{
    c->check_op = 0;
    if (!ms_core_goes_up(c))
        return;
    if (e->what == MS_JOB_DONE) {
        c->check_tries = 0;
        take_check(c, e);
    } else {
        not_checked(c, e);
    }
}

/* ---- nodes ------------------------------------------------------------------------- */

/* All ranks of a node end with it: it was lost once. */
static bool is_same_loss(const struct ms_job_core *c,
                         const struct ms_core_node *n,
                         enum ms_job_cause cause)
{
    return n->strikes > 0 && cause == MS_JOB_NODE_LOST && n->struck_by == cause &&
           c->now_ns - n->struck_ns < SAME_LOSS_NS;
}

/* The machine may be the reason: it is checked before anything is started again. */
static void check_after(struct ms_job_core *c, enum ms_job_cause cause)
{
    if (!c->spec.check_nodes || !c->is_checked ||
        (cause != MS_JOB_HARDWARE && cause != MS_JOB_NODE_LOST &&
         cause != MS_JOB_NO_HEARTBEAT && cause != MS_JOB_HANG))
        return;
    c->is_checked = false;
    ms_say(c,
           MS_JOB_INFO,
           MS_JOB_NO_ROLE,
           0,
           cause,
           "the nodes are checked before anything is started again: %s",
           ms_job_cause_name(cause));
}

void ms_capacity_strike(struct ms_job_core *c,
                        const char *node,
                        enum ms_job_cause cause)
{
    struct ms_core_node *n;

    check_after(c, cause);
    if (cause == MS_JOB_HARDWARE || cause == MS_JOB_CHECK_FAILED) {
        avoid(c, node, cause);
        return;
    }
    if (cause != MS_JOB_NODE_LOST && cause != MS_JOB_NO_HEARTBEAT &&
        cause != MS_JOB_START_FAILED && cause != MS_JOB_HANG)
        return;
    n = find_node(c, node);
    if (!n || is_same_loss(c, n, cause))
        return;
    if (c->now_ns - n->struck_ns > STRIKES_KEPT_NS)
        n->strikes = 0;
    n->struck_ns = c->now_ns;
    n->struck_by = (uint8_t)cause;
    if (n->strikes < UINT16_MAX && ++n->strikes == c->spec.node_strikes_max)
        avoid(c, node, cause);
}

bool ms_job_core_avoids(const struct ms_job_core *c, const char *node)
{
    for (size_t i = 0; i < c->node_count; i++)
        if (strcmp(c->nodes[i].name, node) == 0)
            return c->nodes[i].avoid != MS_CORE_TRUSTED;
    return false;
}

void ms_capacity_avoid(struct ms_job_core *c)
{
    if (c->cannot_ask)
        return;
    for (size_t i = 0; i < c->node_count; i++) {
        struct ms_core_node *n = &c->nodes[i];
        struct ms_job_action *a;

        if (n->avoid != MS_CORE_TO_AVOID)
            continue;
        n->avoid = MS_CORE_AVOIDING;
        a = ms_act(c, MS_JOB_DO_AVOID);
        n->op = a->id;
        a->node = n->name;
        a->cause = n->cause;
        a->text = ms_job_cause_name(n->cause);
        ms_say(c,
               MS_JOB_WARNING,
               MS_JOB_NO_ROLE,
               0,
               n->cause,
               "node %s is avoided: %s",
               n->name,
               a->text);
    }
}

/* One that cannot avoid nodes says so, and that is that. */
static bool answer_avoid(struct ms_job_core *c, const struct ms_job_event *e)
{
    for (size_t i = 0; i < c->node_count; i++)
        if (c->nodes[i].op == e->id) {
            c->nodes[i].op = 0;
            c->nodes[i].avoid =
                e->what == MS_JOB_NOT_DONE && e->failure == MS_JOB_NOT_ASKED
                    ? MS_CORE_TO_AVOID
                    : MS_CORE_AVOIDED;
            return true;
        }
    return false;
}

bool ms_capacity_answer(struct ms_job_core *c, const struct ms_job_event *e)
{
    if (c->held_op == e->id)
        answer_held(c, e);
    else if (c->check_op == e->id)
        answer_check(c, e);
    else
        return answer_avoid(c, e);
    return true;
}
