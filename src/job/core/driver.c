/* driver.c - the driver: its attempts, budget and end */
#include "job/core/core_impl.h"

#include <stdio.h>

static void idle(struct ms_job_core *c, int64_t wait_ns)
{
    c->driver.state = MS_CORE_DRIVER_IDLE;
    c->driver.hang = MS_CORE_WORKS;
    c->driver.dump_op = 0;
    c->driver.op = 0;
    c->driver.retry_ns = wait_ns > 0 ? c->now_ns + wait_ns : 0;
}

static void ask(struct ms_job_core *c, uint32_t what, uint8_t state)
{
    struct ms_job_action *a = ms_act(c, what);

    a->role = MS_JOB_DRIVER;
    a->incarnation = c->driver.attempt;
    c->driver.op = a->id;
    c->driver.state = state;
}

static void start(struct ms_job_core *c)
{
    c->driver.attempt++;
    c->driver.is_restart_due = false;
    c->driver.started_ns = 0;
    ask(c, MS_JOB_DO_START_DRIVER, MS_CORE_DRIVER_STARTING);
    ms_say(c,
           MS_JOB_INFO,
           MS_JOB_DRIVER,
           0,
           MS_JOB_CAUSE_NONE,
           "the driver starts%s, attempt %u",
           c->driver.attempt == 1 ? "" : " from its last checkpoint",
           c->driver.attempt);
}

static void stop(struct ms_job_core *c)
{
    c->driver.hang = MS_CORE_WORKS;
    c->driver.dump_op = 0;
    if (c->driver.state != MS_CORE_DRIVER_STOPPING)
        c->driver.tries = 0;
    ask(c, MS_JOB_DO_STOP_DRIVER, MS_CORE_DRIVER_STOPPING);
}

static bool is_stop_due(const struct ms_job_core *c)
{
    return c->driver.state != MS_CORE_DRIVER_STOPPING ||
           (c->driver.op == 0 && c->now_ns >= c->driver.retry_ns);
}

void ms_core_driver_up(struct ms_job_core *c, bool is_ready)
{
    uint8_t state = c->driver.state;

    if (state == MS_CORE_DRIVER_IDLE) {
        if (is_ready && !c->cannot_ask && c->now_ns >= c->driver.retry_ns)
            start(c);
    } else if (state != MS_CORE_DRIVER_DONE &&
               (c->driver.is_restart_due || state == MS_CORE_DRIVER_STOPPING)) {
        if (is_stop_due(c))
            stop(c);
    }
}

bool ms_core_driver_down(struct ms_job_core *c)
{
    uint8_t state = c->driver.state;

    if ((state == MS_CORE_DRIVER_DONE || state == MS_CORE_DRIVER_IDLE) &&
        !c->driver.is_unsure)
        return true;
    if (is_stop_due(c))
        stop(c);
    return false;
}

/* ---- its end ----------------------------------------------------------------------- */

static void fail_job(struct ms_job_core *c,
                     const struct ms_job_report *p,
                     const char *why,
                     const char *text)
{
    int32_t code = p->signaled ? 128 + p->code : p->code;

    ms_job_end(c,
               MS_JOB_STAGE_FAILED,
               p->cause,
               code ? code : 1,
               "the driver: %s: %s%s%s",
               ms_job_cause_name(p->cause),
               why,
               text ? ": " : "",
               text ? text : "");
}

static int64_t backoff(struct ms_job_core *c)
{
    struct ms_core_driver *d = &c->driver;
    int64_t ns;

    if (d->started_ns && c->now_ns - d->started_ns >= c->spec.stable_ns)
        d->quick = 0;
    ns = ms_backoff_ns(c, d->quick);
    if (d->quick < UINT8_MAX)
        d->quick++;
    return ns;
}

static bool is_same_too_often(struct ms_job_core *c,
                              const struct ms_job_report *p,
                              const char *text)
{
    struct ms_core_driver *d = &c->driver;
    uint32_t mark = ms_error_mark(text, p->code);
    bool was_stable = d->started_ns && c->now_ns - d->started_ns >= c->spec.stable_ns;

    if (p->cause != MS_JOB_APPLICATION)
        return false;
    if (mark != d->error_mark || was_stable)
        d->error_count = 0;
    d->error_mark = mark;
    if (d->error_count < UINT16_MAX)
        d->error_count++;
    return c->spec.same_error_max && d->error_count >= c->spec.same_error_max;
}

/* True: it has to do with itself, and its budget is spent. */
static bool
is_the_end(struct ms_job_core *c, const struct ms_job_report *p, const char *text)
{
    uint16_t budget = c->spec.driver_budget[p->cause];
    uint16_t *spent = &c->driver.spent[p->cause];
    char why[80];

    if (is_same_too_often(c, p, text)) {
        snprintf(
            why, sizeof why, "the same error came %u times", c->driver.error_count);
    } else if (budget != MS_JOB_UNLIMITED && *spent >= budget) {
        snprintf(why, sizeof why, "its budget of %u restarts for it is spent", budget);
    } else {
        if (*spent < UINT16_MAX)
            ++*spent;
        return false;
    }
    fail_job(c, p, why, text);
    return true;
}

/* Nobody saw its process end. */
static bool may_be_there(uint8_t cause)
{
    return cause == MS_JOB_NODE_LOST || cause == MS_JOB_NO_HEARTBEAT;
}

static void
failed(struct ms_job_core *c, const struct ms_job_report *p, const char *text)
{
    bool is_pardoned = p->cause == MS_JOB_APPLICATION && c->driver.pardoned_ns &&
                       c->now_ns <= c->driver.pardoned_ns;
    int64_t wait_ns;
    char when[32];

    c->driver.is_unsure |= may_be_there(p->cause);
    if (!is_pardoned && is_the_end(c, p, text)) {
        idle(c, 0);
        return;
    }
    c->driver.pardoned_ns = 0;
    wait_ns = backoff(c);
    idle(c, wait_ns);
    ms_say(c,
           MS_JOB_WARNING,
           MS_JOB_DRIVER,
           0,
           p->cause,
           "the driver ended: %s, %s %d; it starts again %s%s%s%s",
           ms_job_cause_name(p->cause),
           p->signaled ? "signal" : "exit code",
           p->code,
           ms_text_after(when, wait_ns),
           is_pardoned ? ", not counted: a role failed just before" : "",
           text && text[0] ? ". Its last lines:\n" : "",
           text ? text : "");
}

void ms_core_driver_ended(struct ms_job_core *c,
                          const struct ms_job_report *p,
                          const char *text)
{
    uint8_t state = c->driver.state;

    if (p->incarnation != c->driver.attempt || state == MS_CORE_DRIVER_IDLE ||
        state == MS_CORE_DRIVER_DONE)
        return;
    /* its start, asked for twice, may be under way still */
    c->driver.is_unsure |= state == MS_CORE_DRIVER_STARTING;
    if (p->cause == MS_JOB_SUCCEEDED) {
        c->driver.state = MS_CORE_DRIVER_DONE;
        c->driver.op = 0;
        ms_job_end(
            c, MS_JOB_STAGE_SUCCEEDED, MS_JOB_SUCCEEDED, 0, "the driver has succeeded");
    } else if (state == MS_CORE_DRIVER_STOPPING || !ms_core_goes_up(c)) {
        c->driver.is_unsure |= may_be_there(p->cause);
        idle(c, 0);
    } else {
        failed(c, p, text);
    }
}

/* Its process is still there: it is ended before the next one, or with the job. */
void ms_core_driver_hung(struct ms_job_core *c)
{
    struct ms_job_report p = {
        .role = MS_JOB_DRIVER, .incarnation = c->driver.attempt, .cause = MS_JOB_HANG};

    c->driver.is_unsure = true;
    failed(c, &p, NULL);
}

/* ---- answers ----------------------------------------------------------------------- */

static void not_started(struct ms_job_core *c, const struct ms_job_event *e)
{
    struct ms_job_report p = {.role = MS_JOB_DRIVER,
                              .incarnation = c->driver.attempt,
                              .cause = MS_JOB_START_FAILED};

    c->driver.is_unsure |= e->failure == MS_JOB_NOT_ASKED;
    if (!ms_core_goes_up(c)) {
        idle(c, 0);
    } else if (e->failure == MS_JOB_REFUSED) {
        idle(c, 0);
        fail_job(c, &p, "it was refused", e->text);
    } else if (e->failure == MS_JOB_FAILED) {
        failed(c, &p, e->text);
    } else { /* nobody is to blame */
        idle(c, backoff(c));
    }
}

static void not_stopped(struct ms_job_core *c, const struct ms_job_event *e)
{
    struct ms_core_driver *d = &c->driver;

    if (e->failure != MS_JOB_NOT_ASKED)
        d->tries++;
    if (d->tries < MS_CORE_TRIES_MAX) {
        d->retry_ns = c->now_ns + ms_backoff_ns(c, d->tries + 1u);
        return;
    }
    ms_say(c,
           MS_JOB_ERROR,
           MS_JOB_DRIVER,
           0,
           MS_JOB_CAUSE_NONE,
           "the driver did not end, tried %u times: %s",
           MS_CORE_TRIES_MAX,
           e->text ? e->text : "no reason given");
    d->is_unsure = false;
    idle(c, 0);
}

void ms_core_driver_answer(struct ms_job_core *c, const struct ms_job_event *e)
{
    struct ms_core_driver *d = &c->driver;
    bool is_done = e->what == MS_JOB_DONE;

    if (e->id == d->dump_op) {
        ms_hang_driver_dumped(c, e);
        return;
    }
    d->op = 0;
    if (d->state == MS_CORE_DRIVER_STARTING) {
        if (!is_done) {
            not_started(c, e);
            return;
        }
        d->is_unsure = false;
        d->state = MS_CORE_DRIVER_RUNNING;
        d->started_ns = d->work_ns = c->now_ns;
    } else if (d->state == MS_CORE_DRIVER_STOPPING) {
        if (!is_done) {
            not_stopped(c, e);
            return;
        }
        d->is_unsure = false;
        idle(c, 0);
    }
}
