/* weights.c - new weights for the replicas, and standing still */
#include "rollout/rollout_impl.h"

#include <errno.h>
#include <stdio.h>

static struct replica *replica_at(const struct ms_rollout *r, size_t i)
{
    return r->replicas[i];
}

/* ---- an update --------------------------------------------------------------------- */

int ms_rollout_weights_begin(struct ms_rollout *r,
                             uint32_t version,
                             enum ms_weights_mode mode,
                             bool rolling,
                             int64_t deadline_ns)
{
    const struct ms_generate_event e = {.what = MS_WEIGHTS,
                                        .version = version,
                                        .mode = (uint8_t)mode,
                                        .rolling = rolling,
                                        .deadline_ns =
                                            deadline_ns == MS_NEVER ? 0 : deadline_ns};
    int rc;
    MS_ROLLOUT_ENTER(r, -ECHILD);

    rc = ms_rollout_check(r);
    if (rc < 0)
        return rc;
    if (r->is_updating)
        return -EBUSY;
    ms_rollout_replicas_check(r);
    if (version <= r->version)
        return -EINVAL;
    r->is_updating = true;
    r->is_rolling = rolling;
    r->update_version = version;
    for (size_t i = 0; i < r->replica_count; i++)
        if (replica_at(r, i) && r->replicas[i]->state == MS_ROLLOUT_WAITING)
            r->replicas[i]->update = UPDATE_TOLD; /* it runs nothing */
    rc = ms_rollout_step(r, &e);
    r->is_updating = rc == 0 && r->is_updating;
    return rc;
}

/* False: its engine cannot, or could not be asked. */
static bool stand_still(struct ms_rollout *r, struct replica *rep)
{
    if (rep->no_pause || !ms_rollout_call_start(r, rep, CALL_PAUSE, NULL))
        return false;
    rep->is_standing = true;
    rep->has_refused = false;
    return true;
}

/* The answer to a pause, or to the question behind it, is on its way: a resume now could
 * overtake it. */
static bool is_pause_open(const struct replica *rep)
{
    ms_list_each (c, &rep->calls, struct open_call, link)
        if (c->kind == CALL_PAUSE || c->kind == CALL_FLUSH)
            return true;
    return false;
}

void ms_rollout_weights_go_on(struct ms_rollout *r, struct replica *rep)
{
    bool is_paused = r->is_paused && r->pause_mode == MS_WEIGHTS_KEEP;

    if (!rep->is_standing || rep->update != UPDATE_NONE || is_paused ||
        is_pause_open(rep))
        return;
    rep->is_standing = rep->has_refused = false;
    if (!rep->no_pause)
        ms_rollout_call_start(r, rep, CALL_RESUME, NULL);
}

static void all_go_on(struct ms_rollout *r)
{
    for (size_t i = 0; i < r->replica_count; i++)
        if (replica_at(r, i) && r->replicas[i]->state == MS_ROLLOUT_UP)
            ms_rollout_weights_go_on(r, r->replicas[i]);
}

void ms_rollout_weights_refused(struct ms_rollout *r,
                                struct replica *rep,
                                enum call_kind asked,
                                const char *why)
{
    bool is_wanted = rep->update != UPDATE_NONE || rep->is_pausing;

    rep->is_standing = true; /* for all that we know */
    if (asked == CALL_PAUSE && is_wanted) {
        rep->has_refused = true;
        snprintf(rep->failure, sizeof rep->failure, "%s", why);
        ms_rollout_news(r);
    } else if (asked == CALL_RESUME && ++rep->resumes >= MS_ROLLOUT_RESUMES) {
        rep->resumes = 0;
        ms_rollout_replica_down(r, rep, why);
    } else {
        ms_rollout_weights_go_on(r, rep);
    }
}

static bool has_some_refused(const struct ms_rollout *r)
{
    for (size_t i = 0; i < r->replica_count; i++) {
        const struct replica *rep = replica_at(r, i);

        if (rep && rep->state == MS_ROLLOUT_UP && rep->has_refused)
            return true;
    }
    return false;
}

void ms_rollout_weights_tell(struct ms_rollout *r, struct replica *rep)
{
    rep->update = UPDATE_PAUSING;
    if (!stand_still(r, rep))
        ms_rollout_weights_paused(r, rep);
}

void ms_rollout_weights_paused(struct ms_rollout *r, struct replica *rep)
{
    if (rep->update == UPDATE_PAUSING)
        rep->update = UPDATE_TOLD;
    rep->is_pausing = false;
    ms_rollout_weights_go_on(r, rep); /* the update may have been given up meanwhile */
    ms_rollout_news(r);
}

/* The scheduler has ended the update: also when no replica was left for it. */
void ms_rollout_weights_updated(struct ms_rollout *r, uint32_t version)
{
    r->update_done = true;
    r->version = version;
    ms_rollout_partials_expire(r);
    ms_rollout_later(
        r, (struct ms_generate_event){.what = MS_ADVANCE, .version = version});
    ms_rollout_news(r);
}

/* Those that wait for weights and have the present ones are used. */
static void end(struct ms_rollout *r)
{
    r->is_updating = r->update_done = false;
    for (size_t i = 0; i < r->replica_count; i++) {
        struct replica *rep = replica_at(r, i);

        if (rep && rep->state == MS_ROLLOUT_WAITING && rep->version == r->version)
            ms_rollout_replica_up(r, rep);
    }
    ms_rollout_news(r);
    ms_rollout_step(r, NULL);
}

/* Of those that are to get it: some are not told yet? Which is told and not given? */
static struct replica *look(const struct ms_rollout *r, bool *is_some_untold)
{
    struct replica *told = NULL;

    *is_some_untold = false;
    for (size_t i = 0; i < r->replica_count; i++) {
        struct replica *rep = replica_at(r, i);

        if (!rep || rep->version == r->update_version)
            continue;
        if (rep->update == UPDATE_TOLD && !told)
            told = rep;
        else if ((rep->state == MS_ROLLOUT_UP && rep->update < UPDATE_TOLD) ||
                 rep->is_behind)
            *is_some_untold = true;
    }
    return told;
}

static bool is_some_given(const struct ms_rollout *r)
{
    for (size_t i = 0; i < r->replica_count; i++)
        if (replica_at(r, i) && r->replicas[i]->update == UPDATE_GIVEN)
            return true;
    return false;
}

int ms_rollout_weights_next(struct ms_rollout *r, uint32_t *replica)
{
    struct replica *told;
    bool is_some_untold;
    int rc;
    MS_ROLLOUT_ENTER(r, -ECHILD);

    rc = ms_rollout_check(r);
    if (rc < 0)
        return rc;
    if (!r->is_updating)
        return 0; /* it ended with the last one that was ready */
    if (has_some_refused(r))
        return -EREMOTEIO;
    told = look(r, &is_some_untold);
    if (told && (r->is_rolling || !is_some_untold)) {
        told->update = UPDATE_GIVEN;
        *replica = told->number;
        return 1;
    }
    if (is_some_untold)
        return -EAGAIN;
    if (r->update_done && !is_some_given(r))
        end(r);
    return 0;
}

static int
ready(struct ms_rollout *r, struct replica *rep, const struct ms_generate_event *e)
{
    ms_list_each (c, &rep->calls, struct open_call, link)
        ms_rollout_call_take_items(r, c); /* what came before is of the old weights */
    rep->version = e->version;
    rep->update = UPDATE_NONE;
    if (rep->state != MS_ROLLOUT_UP)
        return 0; /* it is used from the end on */
    ms_rollout_weights_go_on(r, rep);
    return ms_rollout_step(r, e);
}

int ms_rollout_weights_ready(struct ms_rollout *r, uint32_t number)
{
    struct ms_generate_event e = {.what = MS_WEIGHTS_READY, .replica = number};
    struct replica *rep;
    int rc;
    MS_ROLLOUT_ENTER(r, -ECHILD);

    rc = ms_rollout_check(r);
    if (rc < 0)
        return rc;
    ms_rollout_replicas_check(r);
    rep = ms_rollout_replica_find(r, number);
    if (!r->is_updating || !rep || rep->update != UPDATE_GIVEN) {
        rc = -ENOENT; /* it was lost meanwhile */
    } else {
        e.epoch = rep->epoch;
        e.version = r->update_version;
        rc = ready(r, rep, &e);
    }
    if (r->is_updating && r->update_done && !is_some_given(r))
        end(r);
    return rc;
}

int ms_rollout_weights_failed(struct ms_rollout *r)
{
    const struct ms_generate_event e = {.what = MS_WEIGHTS_FAILED};
    int rc;
    MS_ROLLOUT_ENTER(r, -ECHILD);

    rc = ms_rollout_check(r);
    if (rc < 0)
        return rc;
    if (!r->is_updating)
        return -EINVAL;
    for (size_t i = 0; i < r->replica_count; i++)
        if (replica_at(r, i))
            r->replicas[i]->update = UPDATE_NONE;
    all_go_on(r);
    ms_rollout_step(r, &e); /* it has ended already if all had them */
    end(r);
    return 0;
}

int ms_rollout_restored(struct ms_rollout *r, uint32_t rank)
{
    struct replica *rep;
    uint32_t number = 0;
    int rc;
    MS_ROLLOUT_ENTER(r, -ECHILD);

    rc = ms_rollout_check(r);
    if (rc == 0)
        rc = ms_rollout_number(r, rank, &number);
    if (rc < 0)
        return rc;
    ms_rollout_replicas_check(r); /* it may be another worker by now */
    rep = ms_rollout_replica_find(r, number);
    if (rep && rep->state == MS_ROLLOUT_UP)
        return -EALREADY;
    if (!rep || rep->state != MS_ROLLOUT_WAITING)
        return -EAGAIN;
    if (r->is_updating)
        return -EBUSY;
    rep->version = r->version;
    ms_rollout_replica_up(r, rep);
    return ms_rollout_step(r, NULL);
}

uint32_t ms_rollout_version(struct ms_rollout *r)
{
    MS_ROLLOUT_ENTER(r, 0);

    return r->version;
}

/* ---- what engines say -------------------------------------------------------------- */

void ms_rollout_weights_fell_back(struct ms_rollout *r,
                                  struct open_call *c,
                                  uint32_t version)
{
    struct replica *rep = c->replica;

    ms_rollout_later(r,
                     (struct ms_generate_event){.what = MS_FELL_BACK,
                                                .id = c->id,
                                                .attempt = c->attempt,
                                                .replica = rep->number,
                                                .epoch = rep->epoch,
                                                .version = version});
    c->version = version;
    if (version >= rep->version)
        return;
    snprintf(rep->failure,
             sizeof rep->failure,
             "its engine says that it has the weights of version %u, not %u",
             version,
             rep->version);
    rep->version = version;
    if (rep->state != MS_ROLLOUT_UP)
        return;
    rep->state = MS_ROLLOUT_DRAINING;
    rep->is_behind = true;
    rep->update = UPDATE_NONE;
    ms_rollout_news(r);
}

void ms_rollout_weights_wait(struct ms_rollout *r, struct replica *rep)
{
    rep->is_behind = rep->is_pausing = false;
    rep->state = MS_ROLLOUT_WAITING;
    if (r->is_updating)
        rep->update = UPDATE_TOLD; /* it runs nothing, and was waited for */
    ms_rollout_news(r);
}

/* ---- standing still ---------------------------------------------------------------- */

int ms_rollout_pause(struct ms_rollout *r, enum ms_weights_mode mode)
{
    const struct ms_generate_event e = {.what = MS_PAUSE, .mode = (uint8_t)mode};
    int rc;
    MS_ROLLOUT_ENTER(r, -ECHILD);

    rc = ms_rollout_check(r);
    if (rc == 0)
        rc = ms_rollout_step(r, &e);
    if (rc < 0)
        return rc;
    r->is_paused = true;
    r->pause_mode = mode;
    all_go_on(r); /* after a pause that kept them */
    for (size_t i = 0; mode == MS_WEIGHTS_KEEP && i < r->replica_count; i++) {
        struct replica *rep = replica_at(r, i);

        if (rep && rep->state == MS_ROLLOUT_UP)
            rep->is_pausing = stand_still(r, rep);
    }
    return 0;
}

int ms_rollout_is_paused(struct ms_rollout *r)
{
    struct ms_scheduler_stats s;
    MS_ROLLOUT_ENTER(r, -ECHILD);

    if (ms_rollout_check(r) < 0)
        return ms_rollout_check(r);
    if (!r->is_paused)
        return -EINVAL;
    s = ms_scheduler_stats(r->core);
    if (r->pause_mode == MS_WEIGHTS_KEEP && has_some_refused(r))
        return -EREMOTEIO;
    if (r->pause_mode != MS_WEIGHTS_KEEP)
        return s.running + s.aborting == 0 ? 0 : -EAGAIN;
    for (size_t i = 0; i < r->replica_count; i++)
        if (replica_at(r, i) && r->replicas[i]->is_pausing)
            return -EAGAIN;
    return 0;
}

int ms_rollout_resume(struct ms_rollout *r)
{
    const struct ms_generate_event e = {.what = MS_RESUME};
    int rc;
    MS_ROLLOUT_ENTER(r, -ECHILD);

    rc = ms_rollout_check(r);
    if (rc < 0)
        return rc;
    if (!r->is_paused)
        return -EINVAL;
    r->is_paused = false;
    all_go_on(r);
    return ms_rollout_step(r, &e);
}
