/* hang.c - roles without signs of work: first their stacks, then the policy
 *
 * PROGRESS is not journalled, so nothing is decided by it here. ms_job_core_suspect turns
 * silence into an event that names processes by their incarnations; that is journalled.
 */
#include "job/core/core_impl.h"

#include <assert.h>
#include <string.h>

static int64_t silent_since_ns(const struct ms_core_slot *s)
{
    return s->work_ns > s->started_ns ? s->work_ns : s->started_ns;
}

void ms_take_progress(struct ms_job_core *c,
                      const struct ms_job_event *e,
                      int64_t now_ns)
{
    for (size_t i = 0; i < e->report_count; i++) {
        const struct ms_job_report *p = &e->reports[i];
        struct ms_core_slot *s;

        if (p->role == MS_JOB_DRIVER) {
            if (p->incarnation == c->driver.attempt && now_ns > c->driver.work_ns)
                c->driver.work_ns = now_ns;
            continue;
        }
        s = &c->roles[p->role].slots[p->rank];
        if (p->incarnation == s->incarnation && now_ns > s->work_ns)
            s->work_ns = now_ns;
    }
}

/* ---- is somebody silent? ----------------------------------------------------------- */

static bool is_looked_at(const struct ms_job_core *c, const struct ms_core_role *r)
{
    return r->spec->hang_ns > 0 && r->is_up && !r->doing && !c->cannot_ask &&
           c->stage == MS_JOB_STAGE_RUNNING && r->hang != MS_CORE_DUMPING;
}

/* Fills c->suspects, and finds out when to look again. */
static size_t find_silent(struct ms_job_core *c, struct ms_core_role *r, int64_t now_ns)
{
    size_t count = 0;

    if (ms_array_reserve(&c->suspects, &c->suspect_room, r->size, sizeof *c->suspects) <
        0)
        return 0; /* the next time, then */
    r->hang_look_ns = MS_NEVER;
    for (uint32_t i = 0; i < r->size; i++) {
        const struct ms_core_slot *s = &r->slots[i];
        int64_t at_ns = ms_deadline_ns(silent_since_ns(s), r->spec->hang_ns);

        if (s->state != MS_JOB_SLOT_RUNNING)
            continue;
        if (at_ns < r->hang_look_ns)
            r->hang_look_ns = at_ns;
        if (at_ns <= now_ns)
            c->suspects[count++] = (struct ms_job_report){.role = ms_role_index(c, r),
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

static int64_t driver_look_ns(const struct ms_job_core *c)
{
    const struct ms_core_driver *d = &c->driver;

    return ms_deadline_ns(d->work_ns > d->started_ns ? d->work_ns : d->started_ns,
                          c->spec.driver_hang_ns);
}

static bool
suspect_driver(struct ms_job_core *c, int64_t now_ns, struct ms_job_event *e)
{
    bool is_known = c->driver.hang == MS_CORE_DUMPED;
    bool is_silent = driver_look_ns(c) <= now_ns;

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

bool ms_job_core_suspect(struct ms_job_core *c, int64_t now_ns, struct ms_job_event *e)
{
    if (now_ns < c->now_ns)
        now_ns = c->now_ns;
    for (uint32_t i = 0; i < c->spec.role_count; i++) {
        struct ms_core_role *r = &c->roles[i];
        bool is_known = r->hang == MS_CORE_DUMPED;
        size_t count;

        if (!is_looked_at(c, r) || (!is_known && now_ns < r->hang_look_ns))
            continue;
        count = find_silent(c, r, now_ns);
        if (count == 0 && !is_known)
            continue;
        *e = (struct ms_job_event){.what = is_known ? MS_JOB_HUNG : MS_JOB_SUSPECTED,
                                   .role = i,
                                   .reports = c->suspects,
                                   .report_count = count};
        return true;
    }
    return suspect_driver(c, now_ns, e);
}

int64_t ms_hang_wake_ns(const struct ms_job_core *c)
{
    int64_t wake_ns = MS_NEVER;

    for (uint32_t i = 0; i < c->spec.role_count; i++) {
        const struct ms_core_role *r = &c->roles[i];
        int64_t at_ns = r->hang == MS_CORE_DUMPED ? c->now_ns : r->hang_look_ns;

        if (is_looked_at(c, r) && at_ns < wake_ns)
            wake_ns = at_ns;
    }
    if (is_driver_looked_at(c)) {
        int64_t at_ns =
            c->driver.hang == MS_CORE_DUMPED ? c->now_ns : driver_look_ns(c);

        if (at_ns < wake_ns)
            wake_ns = at_ns;
    }
    return wake_ns;
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
        ms_driver_hung(c);
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
           ms_role_index(c, r),
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
           ms_role_index(c, r),
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
            ms_slot_ended(c, r, &p, NULL);
    }
}
