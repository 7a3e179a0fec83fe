/* sim.c - the loop of the simulation: messages between engines and the scheduler, and faults */
#include "engine.h"

#include "base/cleanup.h"
#include "base/clock.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define POLL 1.0   /* s between reports of progress */
#define ACK  0.005 /* s until an abort is acknowledged */

const struct sim_case *sim_now;
FILE *sim_trace;
bool sim_is_led;

static void trace(const struct sim *m, char what, uint32_t request, uint32_t replica)
{
    if (sim_trace)
        fprintf(sim_trace,
                "%c %u %u\n",
                what,
                m->c->turns ? request / m->c->turns : request,
                replica);
}

static double unit(uint64_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return (double)(*seed >> 11) / 9007199254740992.0;
}

/* ---- between engines and the scheduler --------------------------------------------- */

static void
carry_out(struct sim *m, const struct ms_generate_decision *d, size_t count);

static int64_t ns(double s)
{
    return (int64_t)(s * 1e9);
}

static void tell(struct sim *m, const struct ms_generate_event *e)
{
    const struct ms_generate_decision *d;
    struct timespec from, to;
    size_t count;
    int rc;

    clock_gettime(CLOCK_MONOTONIC, &from);
    rc = ms_scheduler_step(m->s, e, ns(m->now), &d, &count);
    clock_gettime(CLOCK_MONOTONIC, &to);
    assert(rc == 0);
    m->out.scheduler +=
        (double)(to.tv_sec - from.tv_sec) + (double)(to.tv_nsec - from.tv_nsec) * 1e-9;
    m->out.events++;
    carry_out(m, d, count);
}

static void tick(struct sim *m)
{
    tell(m, &(struct ms_generate_event){.what = MS_TICK});
}

static void ack_later(struct sim *m, const struct ms_generate_event *e)
{
    int rc = ms_array_reserve(
        &m->acks, &m->ack_room, m->ack_first + m->ack_count + 1, sizeof *m->acks);

    assert(rc == 0);
    m->acks[m->ack_first + m->ack_count++] = (struct ack){m->now + ACK, *e};
}

static void send(struct sim *m, const struct ms_generate_decision *d)
{
    struct engine *e = &m->engines[d->replica];
    uint32_t i = (uint32_t)(d->group - 1) * m->c->samples + d->seq;
    uint32_t length = m->c->requests[i].length;
    struct job j = {.request = i, .id = d->id, .attempt = d->attempt, .had = d->tokens};

    assert(e->up && !m->done[i]);
    engine_advance(m, e, m->now);
    j.until = length < d->tokens + d->max_tokens ? length : d->tokens + d->max_tokens;
    if (m->hung[i]) {
        j.hangs = true;
        m->hung[i] = false;
    }
    m->out.sent++;
    trace(m, '+', i, d->replica);
    memmove(e->waiting + 1, e->waiting, e->waiting_count * sizeof *e->waiting);
    e->waiting[0] = j;
    e->waiting_count++;
    engine_fill(m, e);
}

static void group_done(struct sim *m, uint32_t group, uint32_t replica)
{
    m->groups_done++;
    m->out.makespan = fmax(m->out.makespan, m->now);
    m->ended[group] = (struct ended){.replica = replica};
    if (replica < m->c->replicas) {
        m->ended[group].epoch = m->engines[replica].epoch;
        m->ended[group].version = m->engines[replica].version;
    }
    m->began[group] = m->now - m->began[group]; /* how long it took */
    if (m->c->turns && (group + 1) % m->c->turns > 0)
        m->arrives[group + 1] = m->now + m->c->tool;
}

/* The scheduler gave it up: no more is waited for, and it is counted. */
static void group_dropped(struct sim *m, uint32_t group)
{
    m->out.dropped++;
    m->left[group] = 0;
    group_done(m, group, MS_NOWHERE);
}

/* A request has all its tokens. */
static void request_done(struct sim *m, uint32_t request, uint32_t replica)
{
    uint32_t group = request / m->c->samples;

    assert(!m->done[request]);
    m->done[request] = true;
    trace(m, '-', request, replica);
    if (m->left[group] > 0 && --m->left[group] == 0)
        group_done(m, group, replica);
}

static void abort_one(struct sim *m, const struct ms_generate_decision *d)
{
    struct engine *e = &m->engines[d->replica];
    struct ms_generate_event ack = {
        .what = MS_ABORTED, .id = d->id, .attempt = d->attempt};
    uint32_t i;

    if (!e->up)
        return;
    engine_advance(m, e, m->now);
    for (i = 0; i < e->count && e->active[i].id != d->id; i++)
        ;
    if (i < e->count) {
        struct job j = engine_remove(m, e, i);

        ack.tokens = j.had;
        if (m->c->turns) /* its cache stays warm */
            e->cached[j.request / m->c->samples / m->c->turns] =
                m->c->requests[j.request].prompt + j.had;
        if (j.had >= m->c->requests[j.request].length) { /* it was quicker */
            ack.what = MS_FINISHED;
            request_done(m, j.request, d->replica);
        }
    } else {
        for (i = 0; i < e->waiting_count && e->waiting[i].id != d->id; i++)
            ;
        if (i == e->waiting_count)
            return;
        ack.tokens = e->waiting[i].had;
        memmove(e->waiting + i,
                e->waiting + i + 1,
                (--e->waiting_count - i) * sizeof *e->waiting);
    }
    ack_later(m, &ack);
    engine_fill(m, e);
}

static void update(struct sim *m, const struct ms_generate_decision *d)
{
    struct engine *e = &m->engines[d->replica];

    engine_advance(m, e, m->now);
    e->busy_until = m->now + m->c->weights_take;
    e->version = d->version;
    if (m->c->turns)
        memset(e->cached, 0, m->c->groups / m->c->turns * sizeof *e->cached);
    ack_later(m,
              &(struct ms_generate_event){.what = MS_WEIGHTS_READY,
                                          .replica = d->replica,
                                          .epoch = d->epoch,
                                          .version = d->version});
    m->acks[m->ack_first + m->ack_count - 1].at = e->busy_until;
}

static void
carry_out(struct sim *m, const struct ms_generate_decision *decisions, size_t count)
{
    MS_CLEANUP(ms_cleanup_free)
    struct ms_generate_decision *d = calloc(count + 1, sizeof *d);

    assert(d);
    memcpy(d, decisions, count * sizeof *d); /* what follows may decide anew */
    for (size_t i = 0; i < count; i++) {
        if (d[i].what == MS_SEND)
            send(m, &d[i]);
        else if (d[i].what == MS_ABORT)
            abort_one(m, &d[i]);
        else if (d[i].what == MS_UPDATE)
            update(m, &d[i]);
        else if (d[i].what == MS_DROP)
            group_dropped(m, (uint32_t)(d[i].group - 1));
        else if (d[i].what == MS_PROBE && m->engines[d[i].replica].up)
            ack_later(m,
                      &(struct ms_generate_event){.what = MS_ALIVE,
                                                  .replica = d[i].replica,
                                                  .epoch = d[i].epoch});
    }
}

/* ---- what happens ------------------------------------------------------------------ */

static void submit(struct sim *m, uint32_t group)
{
    struct ms_generate_event e = {.what = MS_SUBMIT,
                                  .id = group + 1,
                                  .key = m->c->keys[group],
                                  .samples = m->c->samples,
                                  .prompt =
                                      m->c->requests[group * m->c->samples].prompt,
                                  .max_new = m->c->max_new,
                                  .replica = MS_NOWHERE};

    m->began[group] = m->now;
    if (m->c->turns && group % m->c->turns > 0) { /* where the last turn was */
        e.replica = m->ended[group - 1].replica;
        e.epoch = m->ended[group - 1].epoch;
        e.version = m->ended[group - 1].version;
    }
    if (m->c->turns)
        e.turn = (uint8_t)(group % m->c->turns);
    tell(m, &e);
}

static void job_ended(struct sim *m, struct engine *e)
{
    struct job j = engine_remove(m, e, 0);
    bool whole = j.had >= m->c->requests[j.request].length;
    struct ms_generate_event report = {.what = whole ? MS_FINISHED : MS_CHUNK,
                                       .id = j.id,
                                       .attempt = j.attempt,
                                       .tokens = j.had};

    if (whole)
        request_done(m, j.request, (uint32_t)(e - m->engines));
    else
        m->kept[j.request] = (struct kept){e, e->version};
    if (m->c->turns) /* its cache stays warm */
        e->cached[j.request / m->c->samples / m->c->turns] =
            m->c->requests[j.request].prompt + j.had;
    tell(m, &report);
}

static void engine_event(struct sim *m, struct engine *e)
{
    engine_advance(m, e, m->now);
    if (e->count > 0 && job_end(&e->active[0]) <= e->clock + 1e-6)
        job_ended(m, e);
    else if (m->c->kv > 0 && e->count > 1 && engine_kv(e) > (double)m->c->kv)
        engine_preempt(m, e);
    engine_advance(m, e, m->now);
    engine_fill(m, e);
}

static void poll_one(struct sim *m, uint32_t i)
{
    struct engine *e = &m->engines[i];

    engine_advance(m, e, m->now);
    if (e->count == 0 || e->busy_until > m->now)
        return;
    if (e->stalled <= m->now)
        tell(m,
             &(struct ms_generate_event){.what = MS_LOAD,
                                         .replica = i,
                                         .epoch = e->epoch,
                                         .samples = e->count,
                                         .step_ns = ns(engine_step_s(m->c, e->count))});
    for (uint32_t k = 0; m->setup->progress && k < e->count; k++)
        if (!e->active[k].hangs)
            tell(
                m,
                &(struct ms_generate_event){.what = MS_PROGRESS,
                                            .id = e->active[k].id,
                                            .attempt = e->active[k].attempt,
                                            .tokens = engine_tokens(e, &e->active[k])});
}

static void poll(struct sim *m)
{
    for (uint32_t i = 0; i < m->c->replicas; i++)
        if (m->engines[i].up)
            poll_one(m, i);
    m->next_poll = m->now + POLL;
}

static void lose(struct sim *m)
{
    struct engine *e = &m->engines[0];

    m->lose_at = FOREVER;
    e->up = false;
    e->count = e->waiting_count = 0;
    tell(m, &(struct ms_generate_event){.what = MS_REPLICA_DOWN, .epoch = e->epoch});
}

static void weights(struct sim *m)
{
    m->next_weights = m->now + fmax(m->c->weights_every, 2 * m->c->weights_take);
    tell(m,
         &(struct ms_generate_event){
             .what = MS_WEIGHTS, .version = ++m->version, .mode = MS_WEIGHTS_ABORT});
}

static void arrive(struct sim *m)
{
    bool any = false;

    for (uint32_t g = 0; g < m->c->groups; g++)
        if (m->arrives[g] <= m->now) {
            m->arrives[g] = FOREVER;
            submit(m, g);
            any = true;
        }
    if (any)
        tick(m);
}

/* ---- the loop ---------------------------------------------------------------------- */

static double next_arrival(const struct sim *m)
{
    double at = FOREVER;

    for (uint32_t g = 0; g < m->c->groups; g++)
        at = fmin(at, m->arrives[g]);
    return at;
}

/* When the scheduler wants its tick: rounded up, or it would come too early. */
static double wake(const struct sim *m)
{
    int64_t wake_ns = ms_scheduler_wake_ns(m->s);

    return wake_ns == MS_NEVER ? FOREVER : (double)(wake_ns + 1) * 1e-9;
}

static void run(struct sim *m)
{
    double arrival = next_arrival(m);

    while (m->groups_done < m->c->groups) {
        double wake_at = wake(m);
        double at = fmin(fmin(fmin(m->next_poll, m->next_weights), m->lose_at),
                         fmin(arrival, wake_at));
        uint32_t done = m->groups_done;
        struct engine *first = NULL;

        if (m->ack_count > 0)
            at = fmin(at, m->acks[m->ack_first].at);
        for (uint32_t i = 0; i < m->c->replicas; i++) {
            double next = engine_next(m, &m->engines[i]);

            if (next < at) {
                at = next;
                first = &m->engines[i];
            }
        }
        assert(at < 1e7);
        m->now = fmax(m->now, at);
        if (first) {
            engine_event(m, first);
        } else if (m->ack_count > 0 && m->acks[m->ack_first].at <= m->now) {
            struct ms_generate_event e = m->acks[m->ack_first].e;

            m->ack_first++;
            if (--m->ack_count == 0)
                m->ack_first = 0;
            tell(m, &e);
        } else if (arrival <= m->now) {
            arrive(m);
            arrival = next_arrival(m);
        } else if (m->lose_at <= m->now) {
            lose(m);
        } else if (m->next_weights <= m->now) {
            weights(m);
        } else if (m->next_poll <= m->now) {
            poll(m);
        } else {
            tick(m);
        }
        if (m->groups_done != done && m->c->turns)
            arrival = next_arrival(m);
    }
}

static void start(struct sim *m)
{
    const struct sim_case *c = m->c;

    for (uint32_t i = 0; i < c->replicas; i++) {
        struct engine *e = &m->engines[i];

        *e = (struct engine){.up = true, .epoch = 1};
        e->active = calloc(c->slots + 1, sizeof *e->active);
        e->waiting = calloc((size_t)c->groups * c->samples + 1, sizeof *e->waiting);
        e->cached = calloc(c->groups + 1, sizeof *e->cached);
        assert(e->active && e->waiting && e->cached);
        tell(m,
             &(struct ms_generate_event){
                 .what = MS_REPLICA_UP,
                 .replica = i,
                 .epoch = 1,
                 .samples = m->setup->engine_queue
                                ? (m->setup->limit > 0 ? m->setup->limit : 1 << 20)
                                : c->slots,
                 .tokens = m->setup->engine_queue ? 0 : (uint32_t)c->kv});
    }
    for (uint32_t batch = 1; m->setup->warm && batch <= c->slots; batch *= 2)
        for (uint32_t i = 0; i < c->replicas; i++)
            tell(m,
                 &(struct ms_generate_event){.what = MS_LOAD,
                                             .replica = i,
                                             .epoch = 1,
                                             .samples = batch,
                                             .step_ns = ns(engine_step_s(c, batch))});
    for (uint32_t g = 0; g < c->groups; g++) {
        m->left[g] = c->samples;
        m->arrives[g] = c->turns && g % c->turns > 0
                            ? FOREVER
                            : c->requests[(size_t)g * c->samples].arrives;
    }
    for (uint32_t i = 0; i < c->groups * c->samples; i++)
        m->hung[i] = unit(&m->seed) < c->hang;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

static void finish(struct sim *m)
{
    uint32_t n = m->c->groups;

    qsort(m->began, n, sizeof *m->began, by_value);
    for (uint32_t g = 0; g < n; g++)
        m->out.mean += m->began[g] / n;
    m->out.p99 = m->began[(uint32_t)(0.99 * (n - 1))];
    m->out.missed = ms_scheduler_stats(m->s).missed;
    m->out.moved = ms_scheduler_stats(m->s).moved + ms_scheduler_stats(m->s).yielded;
    for (uint32_t i = 0; i < m->c->replicas; i++) {
        free(m->engines[i].active);
        free(m->engines[i].waiting);
        free(m->engines[i].cached);
    }
}

static void release(struct sim *m)
{
    if (m->s)
        ms_scheduler_destroy(m->s);
    free(m->engines);
    free(m->had);
    free(m->kept);
    free(m->hung);
    free(m->done);
    free(m->left);
    free(m->began);
    free(m->ended);
    free(m->arrives);
    free(m->acks);
}

int sim_run(const struct sim_case *c,
            const struct sim_setup *setup,
            struct sim_result *out)
{
    struct ms_scheduler_options o = {.policy = setup->policy,
                                     .seed = setup->seed,
                                     .chunk = setup->chunk,
                                     .silence_ns = c->hang > 0 ? ns(30) : 0,
                                     .rebalance_ns = ns(setup->rebalance),
                                     .prefill_ns = c->prefill * 1e9};
    size_t n = (size_t)c->groups * c->samples;
    struct sim m = {.c = c,
                    .setup = setup,
                    .s = ms_scheduler_create(&o, setup->lengths, NULL),
                    .engines = calloc(c->replicas, sizeof *m.engines),
                    .had = calloc(n, sizeof *m.had),
                    .kept = calloc(n, sizeof *m.kept),
                    .hung = calloc(n, 1),
                    .done = calloc(n, 1),
                    .left = calloc(c->groups, sizeof *m.left),
                    .began = calloc(c->groups, sizeof *m.began),
                    .ended = calloc(c->groups, sizeof *m.ended),
                    .arrives = calloc(c->groups, sizeof *m.arrives),
                    .seed = setup->seed * 77 + 1,
                    .next_poll = POLL,
                    .next_weights = c->weights_every > 0 ? c->weights_every : FOREVER,
                    .lose_at = c->lose_at > 0 ? c->lose_at : FOREVER};

    if (!m.s || !m.engines || !m.had || !m.kept || !m.hung || !m.done || !m.left ||
        !m.began || !m.ended || !m.arrives) {
        release(&m);
        return -1;
    }
    sim_now = c;
    start(&m);
    run(&m);
    finish(&m);
    *out = m.out;
    release(&m);
    return 0;
}
