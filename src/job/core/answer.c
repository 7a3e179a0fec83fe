/* answer.c - what becomes of a role's action */
#include "job/core/core_impl.h"

#include <string.h>

static const char *reason(const struct ms_job_event *e)
{
    return e->text ? e->text : "no reason given";
}

/* ---- done -------------------------------------------------------------------------- */

static void runs(struct ms_job_core *c, struct ms_core_role *r, struct ms_core_slot *s)
{
    s->started_ns = s->work_ns = c->now_ns;
    s->flags = 0;
    ms_core_slot_set(r, s, MS_JOB_SLOT_RUNNING);
}

/* The last ranks are gone. */
static void shrunk(struct ms_core_role *r)
{
    for (uint32_t i = r->op_count; i < r->size; i++)
        ms_core_slot_set(r, &r->slots[i], MS_JOB_SLOT_ABSENT);
    r->size = r->op_count;
    r->next_size = 0;
    r->is_drained = false;
    r->drain_op = 0;
    ms_core_role_look_for_retry(r);
}

static void say_done(struct ms_job_core *c, const struct ms_core_role *r, uint8_t doing)
{
    static const char *const words[MS_JOB_ACTION_WHATS] = {
        [MS_JOB_DO_CREATE] = "started",
        [MS_JOB_DO_REPLACE] = "complete again",
        [MS_JOB_DO_RESTART] = "restarted",
        [MS_JOB_DO_RESIZE] = "resized",
    };

    ms_say(c,
           MS_JOB_INFO,
           ms_core_role_index(c, r),
           MS_JOB_ALL_RANKS,
           MS_JOB_CAUSE_NONE,
           "role %s %s: %u of %u processes run",
           r->spec->name,
           doing == MS_JOB_DO_REPLACE && r->counts[MS_JOB_SLOT_RUNNING] < r->size
               ? "partly replaced"
               : words[doing],
           r->counts[MS_JOB_SLOT_RUNNING],
           r->size);
}

static void done(struct ms_job_core *c, struct ms_core_role *r, uint8_t doing)
{
    MS_EACH_BUSY(r, i)
    if (r->slots[i].state == MS_JOB_SLOT_STARTING)
        runs(c, r, &r->slots[i]);
    if (doing == MS_JOB_DO_RESIZE && r->op_count < r->size)
        shrunk(r);
    if (doing == MS_JOB_DO_CREATE || doing == MS_JOB_DO_RESTART) {
        r->is_up = true;
        r->up_ns = c->now_ns;
    }
    if (doing != MS_JOB_DO_REPLACE)
        r->is_unsure = false;
    r->waits = r->scale_tries = 0;
    if (r->size < r->wanted) /* there was no room for more */
        r->scale_retry_ns = c->now_ns + c->spec.backoff_max_ns;
    r->room = 0;
    say_done(c, r, doing);
}

/* ---- not done ---------------------------------------------------------------------- */

static void wait_free(struct ms_core_role *r, struct ms_core_slot *s, int64_t retry_ns)
{
    s->flags |= MS_CORE_FREE;
    s->retry_ns = retry_ns;
    if (retry_ns < r->slot_retry_ns)
        r->slot_retry_ns = retry_ns;
    ms_core_slot_set(r, s, MS_JOB_SLOT_WAITING);
}

/* What it would have started is not there; nobody is to blame. */
static void undo(struct ms_core_role *r, uint8_t doing, int64_t retry_ns)
{
    if (doing == MS_JOB_DO_RESIZE && r->op_count > r->op_size) {
        for (uint32_t i = r->op_size; i < r->size; i++)
            ms_core_slot_set(r, &r->slots[i], MS_JOB_SLOT_ABSENT);
        r->size = r->op_size;
    }
    MS_EACH_BUSY(r, i)
    {
        struct ms_core_slot *s = &r->slots[i];

        if (doing == MS_JOB_DO_CREATE)
            ms_core_slot_set(r, s, MS_JOB_SLOT_ABSENT);
        else if (s->state == MS_JOB_SLOT_STARTING)
            wait_free(r, s, retry_ns);
    }
    if (doing == MS_JOB_DO_RESTART)
        r->is_restart_due = true;
}

static int64_t wait_more(const struct ms_job_core *c, struct ms_core_role *r)
{
    if (r->waits < UINT8_MAX)
        r->waits++;
    return c->now_ns + ms_backoff_ns(c, r->waits);
}

static void later(struct ms_core_role *r, uint8_t doing, int64_t retry_ns)
{
    undo(r, doing, retry_ns);
    if (doing == MS_JOB_DO_RESIZE)
        r->scale_retry_ns = retry_ns;
    else if (doing != MS_JOB_DO_REPLACE)
        r->retry_ns = retry_ns;
}

/* Less can be had, and is enough: it is asked for at once. */
static bool fits_some(const struct ms_core_role *r, uint8_t doing, uint32_t fits)
{
    uint32_t asked = doing == MS_JOB_DO_RESIZE ? r->op_count - r->op_size : r->op_count;

    if (doing == MS_JOB_DO_REPLACE)
        return fits > 0 && fits < r->counts[MS_JOB_SLOT_STARTING];
    fits -= fits % r->spec->unit;
    if (doing == MS_JOB_DO_RESIZE)
        return r->op_count > r->op_size && fits > 0 && fits < asked;
    return fits >= r->spec->min && fits < asked;
}

static void no_room(struct ms_job_core *c,
                    struct ms_core_role *r,
                    uint8_t doing,
                    const struct ms_job_event *e)
{
    bool is_enough = fits_some(r, doing, e->fits);

    r->has_failed = true;
    ms_text_keep(r->text, sizeof r->text, reason(e));
    if (r->waits == 0)
        ms_say(c,
               MS_JOB_WARNING,
               ms_core_role_index(c, r),
               MS_JOB_ALL_RANKS,
               MS_JOB_NO_CAPACITY,
               "role %s waits for room, there is some for %u more: %s",
               r->spec->name,
               e->fits,
               reason(e));
    later(r, doing, is_enough ? c->now_ns : wait_more(c, r));
    r->room = is_enough ? e->fits : 0;
}

/* Another size is not worth an end: what there is goes on. But ranks that may have ended,
 * because the answer was lost, are not taken to run: then it is tried until it is done. */
static void
not_resized(struct ms_job_core *c, struct ms_core_role *r, const struct ms_job_event *e)
{
    ms_text_keep(r->text, sizeof r->text, reason(e));
    later(r, MS_JOB_DO_RESIZE, wait_more(c, r));
    if (r->op_count < r->op_size && r->is_unsure)
        return;
    if (e->failure != MS_JOB_REFUSED && ++r->scale_tries < MS_CORE_TRIES_MAX)
        return;
    r->scale_tries = 0;
    r->wanted = r->size;
    r->next_size = 0;
    r->is_drained = false;
    ms_core_role_look_for_retry(r);
    ms_say(c,
           MS_JOB_ERROR,
           ms_core_role_index(c, r),
           MS_JOB_ALL_RANKS,
           MS_JOB_START_FAILED,
           "role %s stays at %u processes: %s",
           r->spec->name,
           r->size,
           reason(e));
}

static void
reports_end(struct ms_job_core *c, struct ms_core_role *r, const struct ms_job_event *e)
{
    const char *text = e->text;

    for (size_t i = 0; i < e->report_count; i++) {
        const struct ms_job_report *p = &e->reports[i];

        if (p->role != ms_core_role_index(c, r) || p->seen != MS_JOB_SEEN_ENDED ||
            p->cause == MS_JOB_SUCCEEDED)
            continue;
        ms_core_slot_ended(c, r, p, text);
        text = NULL;
    }
}

/* Who is to blame is told by the reports; if nobody is, all are. */
static void blame_all(struct ms_job_core *c, struct ms_core_role *r)
{
    if (r->counts[MS_JOB_SLOT_DEAD])
        return;
    MS_EACH_BUSY(r, i)
    {
        struct ms_core_slot *s = &r->slots[i];

        if (s->state != MS_JOB_SLOT_STARTING)
            continue;
        s->cause = MS_JOB_START_FAILED;
        s->code = 0;
        s->signaled = 0;
        s->ended_ns = c->now_ns;
        ms_core_slot_set(r, s, MS_JOB_SLOT_DEAD);
    }
}

/* spec->max: nobody, all have succeeded already. */
static uint32_t first_dead(const struct ms_core_role *r)
{
    MS_EACH_BUSY(r, i)
    if (r->slots[i].state == MS_JOB_SLOT_DEAD)
        return i;
    return r->spec->max;
}

static void failed(struct ms_job_core *c,
                   struct ms_core_role *r,
                   uint8_t doing,
                   const struct ms_job_event *e)
{
    uint32_t rank;

    ms_text_keep(r->text, sizeof r->text, e->text);
    reports_end(c, r, e);
    blame_all(c, r);
    rank = first_dead(r);
    undo(r, doing, c->now_ns);
    if (doing != MS_JOB_DO_CREATE)
        r->is_restart_due = false; /* it is decided anew */
    else if (rank < r->spec->max)
        ms_core_role_failed(c, r, rank, r->slots[rank].cause, e->report_count > 0);
}

static void not_done(struct ms_job_core *c,
                     struct ms_core_role *r,
                     uint8_t doing,
                     const struct ms_job_event *e)
{
    if (e->failure == MS_JOB_NOT_ASKED &&
        (doing == MS_JOB_DO_CREATE || doing == MS_JOB_DO_RESIZE))
        r->is_unsure = true;
    if (!ms_core_goes_up(c))
        undo(r, doing, c->now_ns);
    else if (e->failure == MS_JOB_NOT_ASKED)
        later(r, doing, wait_more(c, r));
    else if (e->failure == MS_JOB_NO_ROOM)
        no_room(c, r, doing, e);
    else if (doing == MS_JOB_DO_RESIZE)
        not_resized(c, r, e);
    else if (e->failure == MS_JOB_FAILED)
        failed(c, r, doing, e);
    else {
        ms_text_keep(r->text, sizeof r->text, e->text);
        undo(r, doing, MS_NEVER);
        ms_core_role_give_up(
            c, r, MS_JOB_ALL_RANKS, MS_JOB_START_FAILED, "it was refused");
    }
}

/* ---- destroyed --------------------------------------------------------------------- */

static void
destroyed(struct ms_job_core *c, struct ms_core_role *r, const struct ms_job_event *e)
{
    if (e->what == MS_JOB_NOT_DONE && e->failure != MS_JOB_NOT_ASKED)
        r->tries++;
    if (e->what == MS_JOB_NOT_DONE && r->tries < MS_CORE_TRIES_MAX) {
        r->doing = MS_JOB_DO_DESTROY; /* it still is, and is asked for again */
        r->retry_ns = wait_more(c, r);
        return;
    }
    if (e->what == MS_JOB_NOT_DONE)
        ms_say(c,
               MS_JOB_ERROR,
               ms_core_role_index(c, r),
               MS_JOB_ALL_RANKS,
               MS_JOB_CAUSE_NONE,
               "role %s did not end, tried %u times: %s",
               r->spec->name,
               MS_CORE_TRIES_MAX,
               reason(e));
    ms_core_role_clear(c, r);
    r->waits = 0;
    if (!ms_core_goes_down(c) || c->stage != MS_JOB_STAGE_RESTARTING)
        r->retry_ns = 0;
}

/* One that cannot drain has nothing to drain. */
static void drained(struct ms_core_role *r)
{
    r->drain_op = 0;
    r->is_drained = true;
}

void ms_core_role_answer(struct ms_job_core *c,
                         struct ms_core_role *r,
                         const struct ms_job_event *e)
{
    uint8_t doing = r->doing;

    if (e->id == r->dump_op) {
        ms_hang_dumped(c, r, e);
        return;
    }
    if (e->id == r->stray_op) {
        r->stray_op = 0;
        r->has_strays |= e->what == MS_JOB_NOT_DONE;
        r->stray_retry_ns = c->now_ns + c->spec.backoff_max_ns;
        return;
    }
    if (e->id == r->drain_op) {
        drained(r);
        return;
    }
    r->doing = 0;
    r->op = 0;
    if (doing == MS_JOB_DO_DESTROY)
        destroyed(c, r, e);
    else if (e->what == MS_JOB_DONE)
        done(c, r, doing);
    else
        not_done(c, r, doing, e);
}
