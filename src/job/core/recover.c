/* recover.c - after a restart of the controller: what still runs, what does not */
#include "job/core/core_impl.h"

#include <string.h>

static void lost(struct ms_job_core *c, struct ms_core_role *r, uint32_t rank)
{
    struct ms_job_report p = {.role = ms_core_role_index(c, r),
                              .rank = rank,
                              .incarnation = r->slots[rank].incarnation,
                              .cause = MS_JOB_NODE_LOST};

    ms_core_slot_ended(c, r, &p, NULL);
}

static void driver_lost(struct ms_job_core *c)
{
    struct ms_job_report p = {.role = MS_JOB_DRIVER,
                              .incarnation = c->driver.attempt,
                              .cause = MS_JOB_NODE_LOST};

    ms_core_driver_ended(c, &p, NULL);
}

static bool has_unknown(const struct ms_job_core *c)
{
    if (c->driver.state == MS_CORE_DRIVER_UNKNOWN)
        return true;
    for (uint32_t i = 0; i < c->spec.role_count; i++)
        if (c->roles[i].counts[MS_JOB_SLOT_UNKNOWN])
            return true;
    return false;
}

void ms_unknown_lost(struct ms_job_core *c)
{
    c->unknown_ns = MS_NEVER;
    if (has_unknown(c))
        ms_say(c,
               MS_JOB_WARNING,
               MS_JOB_NO_ROLE,
               0,
               MS_JOB_NODE_LOST,
               "what nobody has reported since the controller was restarted is lost");
    for (uint32_t i = 0; i < c->spec.role_count; i++) {
        struct ms_core_role *r = &c->roles[i];

        MS_EACH_BUSY(r, rank)
        if (r->slots[rank].state == MS_JOB_SLOT_UNKNOWN)
            lost(c, r, rank);
    }
    if (c->driver.state == MS_CORE_DRIVER_UNKNOWN)
        driver_lost(c);
}

/* ---- what was found ---------------------------------------------------------------- */

static void
found_driver(struct ms_job_core *c, const struct ms_job_report *p, const char *text)
{
    if (p->seen == MS_JOB_SEEN_ENDED) {
        ms_core_driver_ended(c, p, text);
    } else if (c->driver.state == MS_CORE_DRIVER_UNKNOWN &&
               p->incarnation == c->driver.attempt) {
        if (p->seen == MS_JOB_SEEN_RUNNING)
            c->driver.state = MS_CORE_DRIVER_RUNNING;
        else
            driver_lost(c);
    }
}

/* True: nobody wants it. */
static bool is_stray(const struct ms_job_core *c, const struct ms_job_report *p)
{
    const struct ms_core_slot *s;

    if (p->seen != MS_JOB_SEEN_RUNNING || p->role == MS_JOB_DRIVER)
        return false;
    if (p->role >= c->spec.role_count || p->rank >= c->spec.roles[p->role].max)
        return true;
    s = &c->roles[p->role].slots[p->rank];
    return p->incarnation != s->incarnation || !ms_core_slot_is_live(s);
}

static void
found_slot(struct ms_job_core *c, const struct ms_job_report *p, const char *text)
{
    struct ms_core_role *r;
    struct ms_core_slot *s;

    if (p->role >= c->spec.role_count || p->rank >= c->spec.roles[p->role].max)
        return;
    r = &c->roles[p->role];
    s = &r->slots[p->rank];
    if (p->seen == MS_JOB_SEEN_ENDED)
        ms_core_slot_ended(c, r, p, text);
    else if (p->incarnation != s->incarnation || s->state != MS_JOB_SLOT_UNKNOWN)
        return;
    else if (p->seen == MS_JOB_SEEN_MISSING)
        lost(c, r, p->rank);
    else {
        s->work_ns = c->now_ns;
        ms_core_slot_set(r, s, MS_JOB_SLOT_RUNNING);
    }
}

/* One action for all strays of a role. */
static void end_strays(struct ms_job_core *c, const struct ms_job_event *e)
{
    struct ms_job_action *a = NULL;

    for (size_t i = 0; i < e->report_count; i++) {
        const struct ms_job_report *p = &e->reports[i];
        struct ms_job_action_rank rank = {.rank = p->rank,
                                          .incarnation = p->incarnation};

        if (!is_stray(c, p))
            continue;
        if (!a || a->role != p->role) {
            if (c->action_count > c->action_room / 2) /* left: they are found again */
                return;
            a = ms_act(c, MS_JOB_DO_END_STRAYS);
            a->role = p->role;
        }
        ms_act_rank(c, a, &rank);
    }
}

static void take_found(struct ms_job_core *c, const struct ms_job_event *e)
{
    const char *text = e->text;

    end_strays(c, e);
    for (size_t i = 0; i < e->report_count; i++) {
        if (e->reports[i].role == MS_JOB_DRIVER)
            found_driver(c, &e->reports[i], text);
        else
            found_slot(c, &e->reports[i], text);
        text = NULL;
    }
    if (!has_unknown(c))
        c->unknown_ns = MS_NEVER;
}

void ms_take_found(struct ms_job_core *c, const struct ms_job_event *e)
{
    take_found(c, e);
}

/* ---- recovered --------------------------------------------------------------------- */

static void forget_runs(struct ms_job_core *c)
{
    for (uint32_t i = 0; i < c->spec.role_count; i++) {
        struct ms_core_role *r = &c->roles[i];

        for (uint32_t rank = 0; rank < r->size; rank++) {
            r->slots[rank].work_ns = c->now_ns;
            if (r->slots[rank].state == MS_JOB_SLOT_RUNNING)
                ms_core_slot_set(r, &r->slots[rank], MS_JOB_SLOT_UNKNOWN);
        }
    }
    c->driver.work_ns = c->now_ns;
    if (c->driver.state == MS_CORE_DRIVER_RUNNING)
        c->driver.state = MS_CORE_DRIVER_UNKNOWN;
}

static void driver_again(struct ms_job_core *c)
{
    bool is_start = c->driver.state == MS_CORE_DRIVER_STARTING;
    struct ms_job_action *a;

    if (c->driver.dump_op) {
        a = ms_act_again(c, MS_JOB_DO_DUMP_STACKS, c->driver.dump_op);
        a->role = MS_JOB_DRIVER;
        a->count = 1;
    }
    if (c->driver.op == 0)
        return;
    c->driver.is_unsure = true; /* it may have been done before */
    a = ms_act_again(
        c, is_start ? MS_JOB_DO_START_DRIVER : MS_JOB_DO_STOP_DRIVER, c->driver.op);
    a->role = MS_JOB_DRIVER;
    a->incarnation = c->driver.attempt;
}

static void capacity_again(struct ms_job_core *c)
{
    c->is_held_unsure |= c->held_op != 0;
    if (c->held_op)
        ms_act_again(c,
                     c->held == MS_CORE_ASKED ? MS_JOB_DO_RESERVE : MS_JOB_DO_RELEASE,
                     c->held_op);
    if (c->check_op)
        ms_act_again(c, MS_JOB_DO_CHECK_NODES, c->check_op);
    for (size_t i = 0; i < c->node_count; i++)
        if (c->nodes[i].op) {
            struct ms_job_action *a = ms_act_again(c, MS_JOB_DO_AVOID, c->nodes[i].op);

            a->node = c->nodes[i].name;
            a->cause = c->nodes[i].cause;
            a->text = ms_job_cause_name(c->nodes[i].cause);
        }
}

/* What was under way comes again; what it has begun is its own. A job that was over says so
 * again, because nobody may have heard it. */
void ms_take_recovered(struct ms_job_core *c, const struct ms_job_event *e)
{
    if (!ms_job_stage_is_over(c->stage))
        ms_say(c,
               MS_JOB_INFO,
               MS_JOB_NO_ROLE,
               0,
               MS_JOB_CAUSE_NONE,
               "the controller was restarted; the job was %s",
               ms_job_stage_name(c->stage));
    forget_runs(c);
    capacity_again(c);
    driver_again(c);
    for (uint32_t i = 0; i < c->spec.role_count; i++)
        ms_core_role_act_again(c, &c->roles[i]);
    take_found(c, e);
    if (e->flags & MS_JOB_COMPLETE)
        ms_unknown_lost(c);
    else if (has_unknown(c))
        c->unknown_ns = ms_deadline_ns(c->now_ns, c->spec.unknown_ns);
    ms_finish_again(c);
}
