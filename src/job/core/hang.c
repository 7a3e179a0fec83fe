/* hang.c - roles without signs of work: first their stacks, then the policy
 *
 * A process is silent for as long as it was seen to be: from its last sign of work until the
 * last look at which it showed none. While nothing can be seen of it, as on a node that
 * answers late, its silence does not grow.
 *
 * PROGRESS is not journalled, so nothing is decided by it here. ms_job_core_suspect turns
 * silence into an event that names processes by their incarnations; that is journalled.
 */
#include "job/core/core_impl.h"

#include <string.h>

/* ---- looks ------------------------------------------------------------------------- */

static int64_t later_ns(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static bool is_slot_silent(const struct ms_core_role *r, const struct ms_core_slot *s)
{
    return s->silent_ns >=
           ms_deadline_ns(later_ns(s->work_ns, s->started_ns), r->spec->hang_ns);
}

static bool is_driver_silent(const struct ms_job_core *c)
{
    const struct ms_core_driver *d = &c->driver;

    return d->silent_ns >=
           ms_deadline_ns(later_ns(d->work_ns, d->started_ns), c->spec.driver_hang_ns);
}

static void look(int64_t *work_ns, int64_t *silent_ns, uint8_t seen, int64_t at_ns)
{
    int64_t *to = seen == MS_JOB_SEEN_SILENT ? silent_ns : work_ns;

    *to = later_ns(*to, at_ns);
}

void ms_take_progress(struct ms_job_core *c,
                      const struct ms_job_event *e,
                      int64_t now_ns)
{
    for (size_t i = 0; i < e->report_count; i++) {
        const struct ms_job_report *p = &e->reports[i];
        int64_t at_ns =
            now_ns - (p->seen == MS_JOB_SEEN_SILENT ? e->count * MS_NS_PER_MS : 0);
        struct ms_core_role *r;
        struct ms_core_slot *s;

        if (p->role == MS_JOB_DRIVER) {
            if (p->incarnation == c->driver.attempt)
                look(&c->driver.work_ns, &c->driver.silent_ns, p->seen, at_ns);
            continue;
        }
        r = &c->roles[p->role];
        s = &r->slots[p->rank];
        if (p->incarnation != s->incarnation)
            continue;
        look(&s->work_ns, &s->silent_ns, p->seen, at_ns);
        if (r->spec->hang_ns && is_slot_silent(r, s))
            r->may_hang = true;
    }
}

/* ---- is a process silent? ----------------------------------------------------------- */

static bool is_looked_at(const struct ms_job_core *c, const struct ms_core_role *r)
{
    return r->spec->hang_ns > 0 && r->is_up && !r->doing && !c->cannot_ask &&
           c->stage == MS_JOB_STAGE_RUNNING && r->hang != MS_CORE_DUMPING;
}

/* Fills c->suspects. */
static size_t find_silent(struct ms_job_core *c, struct ms_core_role *r)
{
    size_t count = 0;

    if (ms_array_reserve(&c->suspects, &c->suspect_room, r->size, sizeof *c->suspects) <
        0)
        return 0; /* the next time, then */
    r->may_hang = false;
    for (uint32_t i = 0; i < r->size; i++) {
        const struct ms_core_slot *s = &r->slots[i];

        if (s->state == MS_JOB_SLOT_RUNNING && is_slot_silent(r, s))
            c->suspects[count++] =
                (struct ms_job_report){.role = ms_core_role_index(c, r),
                                       .rank = i,
                                       .incarnation = s->incarnation,
                                       .seen = MS_JOB_SEEN_RUNNING};
    }
    return count;
}

static bool is_driver_looked_at(const struct ms_job_core *c)
{
    return c->spec.driver_hang_ns > 0 && !c->cannot_ask &&
           c->stage == MS_JOB_STAGE_RUNNING &&
           c->driver.state == MS_CORE_DRIVER_RUNNING &&
           c->driver.hang != MS_CORE_DUMPING;
}

static bool suspect_driver(struct ms_job_core *c, struct ms_job_event *e)
{
    bool is_known = c->driver.hang == MS_CORE_DUMPED;
    bool is_silent = is_driver_silent(c);

    if (!is_driver_looked_at(c) || (!is_known && !is_silent) ||
        ms_array_reserve(&c->suspects, &c->suspect_room, 1, sizeof *c->suspects) < 0)
        return false;
    c->suspects[0] = (struct ms_job_report){.role = MS_JOB_DRIVER,
                                            .incarnation = c->driver.attempt,
                                            .seen = MS_JOB_SEEN_RUNNING};
    *e = (struct ms_job_event){.what = is_known ? MS_JOB_HUNG : MS_JOB_SUSPECTED,
                               .role = MS_JOB_DRIVER,
                               .reports = c->suspects,
                               .report_count = is_silent};
    return true;
}

bool ms_job_core_suspect(struct ms_job_core *c, struct ms_job_event *e)
{
    for (uint32_t i = 0; i < c->spec.role_count; i++) {
        struct ms_core_role *r = &c->roles[i];
        bool is_known = r->hang == MS_CORE_DUMPED;
        size_t count;

        if (!is_looked_at(c, r) || (!is_known && !r->may_hang))
            continue;
        count = find_silent(c, r);
        if (count == 0 && !is_known)
            continue;
        *e = (struct ms_job_event){.what = is_known ? MS_JOB_HUNG : MS_JOB_SUSPECTED,
                                   .role = i,
                                   .reports = c->suspects,
                                   .report_count = count};
        return true;
    }
    return suspect_driver(c, e);
}

int64_t ms_hang_wake_ns(const struct ms_job_core *c)
{
    for (uint32_t i = 0; i < c->spec.role_count; i++) {
        const struct ms_core_role *r = &c->roles[i];

        if (is_looked_at(c, r) && (r->hang == MS_CORE_DUMPED || r->may_hang))
            return c->now_ns;
    }
    if (is_driver_looked_at(c) &&
        (c->driver.hang == MS_CORE_DUMPED || is_driver_silent(c)))
        return c->now_ns;
    return MS_NEVER;
}

/* ---- the driver -------------------------------------------------------------------- */

static bool is_driver_current(const struct ms_job_core *c, const struct ms_job_event *e)
{
    return e->report_count == 1 && e->reports[0].role == MS_JOB_DRIVER &&
           e->reports[0].incarnation == c->driver.attempt &&
           c->driver.state == MS_CORE_DRIVER_RUNNING;
}

static void driver_suspected(struct ms_job_core *c, const struct ms_job_event *e)
{
    struct ms_job_action *a;

    if (c->driver.hang != MS_CORE_WORKS || !is_driver_current(c, e))
        return;
    c->driver.hang = MS_CORE_DUMPING;
    a = ms_act(c, MS_JOB_DO_DUMP_STACKS);
    a->role = MS_JOB_DRIVER;
    a->count = 1;
    c->driver.dump_op = a->id;
    ms_say(c,
           MS_JOB_WARNING,
           MS_JOB_DRIVER,
           0,
           MS_JOB_HANG,
           "the driver and all workers show no sign of work for %lld s; its stack is "
           "taken",
           (long long)(c->spec.driver_hang_ns / MS_NS_PER_S));
}

void ms_hang_driver_dumped(struct ms_job_core *c, const struct ms_job_event *e)
{
    c->driver.dump_op = 0;
    c->driver.hang = MS_CORE_DUMPED;
    ms_say(c,
           MS_JOB_WARNING,
           MS_JOB_DRIVER,
           0,
           MS_JOB_HANG,
           "%s of the driver: %s",
           e->what == MS_JOB_DONE ? "stacks" : "no stacks",
           e->text ? e->text : "nothing was said");
}

static void driver_hung(struct ms_job_core *c, const struct ms_job_event *e)
{
    if (c->driver.hang != MS_CORE_DUMPED)
        return;
    c->driver.hang = MS_CORE_WORKS;
    if (is_driver_current(c, e))
        ms_core_driver_hung(c);
    else
        ms_say(
            c, MS_JOB_WARNING, MS_JOB_DRIVER, 0, MS_JOB_HANG, "the driver works again");
}

/* ---- events ------------------------------------------------------------------------ */

static bool is_current(const struct ms_core_role *r, const struct ms_job_report *p)
{
    const struct ms_core_slot *s = &r->slots[p->rank];

    return p->rank < r->size && p->incarnation == s->incarnation &&
           s->state == MS_JOB_SLOT_RUNNING;
}

static uint32_t count_current(const struct ms_job_core *c, const struct ms_job_event *e)
{
    uint32_t count = 0;

    for (size_t i = 0; i < e->report_count; i++)
        count += e->reports[i].role == e->role &&
                 is_current(&c->roles[e->role], &e->reports[i]);
    return count;
}

void ms_take_suspected(struct ms_job_core *c, const struct ms_job_event *e)
{
    struct ms_core_role *r;
    struct ms_job_action *a;
    uint32_t count;

    if (e->role == MS_JOB_DRIVER) {
        driver_suspected(c, e);
        return;
    }
    r = &c->roles[e->role];
    count = count_current(c, e);
    if (count == 0 || r->hang != MS_CORE_WORKS || r->doing || !r->is_up)
        return;
    r->hang = MS_CORE_DUMPING;
    a = ms_act(c, MS_JOB_DO_DUMP_STACKS);
    a->role = e->role;
    a->count = r->size;
    r->dump_op = a->id;
    ms_say(c,
           MS_JOB_WARNING,
           e->role,
           e->reports[0].rank,
           MS_JOB_HANG,
           "%u of %u processes of %s, the first is %s/%u, show no sign of work for "
           "%lld s; "
           "the stacks of all are taken",
           count,
           r->size,
           r->spec->name,
           r->spec->name,
           e->reports[0].rank,
           (long long)(r->spec->hang_ns / MS_NS_PER_S));
}

void ms_hang_dumped(struct ms_job_core *c,
                    struct ms_core_role *r,
                    const struct ms_job_event *e)
{
    r->dump_op = 0;
    r->hang = MS_CORE_DUMPED;
    ms_say(c,
           MS_JOB_WARNING,
           ms_core_role_index(c, r),
           MS_JOB_ALL_RANKS,
           MS_JOB_HANG,
           "%s of %s: %s",
           e->what == MS_JOB_DONE ? "stacks" : "no stacks",
           r->spec->name,
           e->text ? e->text : "nothing was said");
}

static void
say_hang(struct ms_job_core *c, const struct ms_core_role *r, const char *what)
{
    ms_say(c,
           MS_JOB_WARNING,
           ms_core_role_index(c, r),
           MS_JOB_ALL_RANKS,
           MS_JOB_HANG,
           "role %s %s",
           r->spec->name,
           what);
}

void ms_take_hung(struct ms_job_core *c, const struct ms_job_event *e)
{
    struct ms_core_role *r;
    uint32_t count;

    if (e->role == MS_JOB_DRIVER) {
        driver_hung(c, e);
        return;
    }
    r = &c->roles[e->role];
    count = count_current(c, e);
    if (r->hang != MS_CORE_DUMPED)
        return;
    r->hang = MS_CORE_WORKS;
    if (count == 0) {
        say_hang(c, r, "works again");
        return;
    }
    if (r->spec->on_hang == MS_JOB_HANG_SAY)
        say_hang(c, r, "hangs; its policy is to say so and no more");
    for (size_t i = 0; i < e->report_count; i++) {
        struct ms_job_report p = e->reports[i];

        if (p.role != e->role || !is_current(r, &p))
            continue;
        r->slots[p.rank].work_ns = c->now_ns; /* not again before its time */
        p.seen = MS_JOB_SEEN_ENDED;
        p.cause = MS_JOB_HANG;
        p.code = 0;
        if (r->spec->on_hang == MS_JOB_HANG_RESTART)
            ms_core_slot_ended(c, r, &p, NULL);
    }
}
