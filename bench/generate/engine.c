/* engine.c - a simulated engine: its batch, its cache and its queue */
#include "engine.h"

#include <assert.h>
#include <math.h>
#include <string.h>

double engine_step_s(const struct sim_case *c, uint32_t batch)
{
    return c->a + c->beta * batch;
}

double job_end(const struct job *j)
{
    return j->hangs ? FOREVER : j->began + (j->until - j->had);
}

static void heap_up(struct engine *e, uint32_t at)
{
    struct job j = e->active[at];

    while (at > 0 && job_end(&j) < job_end(&e->active[(at - 1) / 2])) {
        e->active[at] = e->active[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    e->active[at] = j;
}

static void heap_down(struct engine *e, uint32_t at)
{
    struct job j = e->active[at];

    for (;;) {
        uint32_t child = 2 * at + 1;

        if (child + 1 < e->count &&
            job_end(&e->active[child + 1]) < job_end(&e->active[child]))
            child++;
        if (child >= e->count || job_end(&e->active[child]) >= job_end(&j))
            break;
        e->active[at] = e->active[child];
        at = child;
    }
    e->active[at] = j;
}

uint32_t engine_tokens(const struct engine *e, const struct job *j)
{
    double made = j->hangs ? 0 : e->clock - j->began;

    return j->had + (uint32_t)fmin(floor(made + 1e-6), j->until - j->had);
}

/* Let the engine's clock come up to the time. */
void engine_advance(struct sim *m, struct engine *e, double now)
{
    double from = fmax(fmax(e->now, e->stalled), e->busy_until);

    if (now > from && e->count > 0)
        e->clock += (now - from) / engine_step_s(m->c, e->count);
    e->now = now;
}

struct job engine_remove(struct sim *m, struct engine *e, uint32_t at)
{
    struct job j = e->active[at];
    uint32_t made = engine_tokens(e, &j);

    e->kv_base -= m->c->requests[j.request].prompt + j.had - j.began;
    e->active[at] = e->active[--e->count];
    if (at < e->count) {
        uint32_t request = e->active[at].request;

        heap_up(e, at);
        if (e->active[at].request == request)
            heap_down(e, at);
    }
    j.had = made;
    m->had[j.request] = made;
    return j;
}

double engine_kv(const struct engine *e)
{
    return e->kv_base + e->count * e->clock;
}

static bool
engine_fits(const struct sim *m, const struct engine *e, const struct job *j)
{
    double more = m->c->requests[j->request].prompt + j->had;

    if (e->count >= m->c->slots)
        return false;
    return m->c->kv == 0 || e->count == 0 ||
           engine_kv(e) + more + 0.01 * (double)m->c->kv <= (double)m->c->kv;
}

/* What of a request's tokens the engine need not compute again. */
static double
engine_cached(const struct sim *m, const struct engine *e, const struct job *j)
{
    uint32_t group = j->request / m->c->samples;
    const struct kept *k = &m->kept[j->request];

    if (k->at == e && k->version == e->version)
        return m->c->requests[j->request].prompt + j->had;
    return m->c->turns ? e->cached[group / m->c->turns] : 0;
}

void engine_fill(struct sim *m, struct engine *e)
{
    while (e->waiting_count > 0 &&
           engine_fits(m, e, &e->waiting[e->waiting_count - 1])) {
        struct job j = e->waiting[--e->waiting_count];
        double tokens = m->c->requests[j.request].prompt + j.had;
        double compute = fmax(tokens - engine_cached(m, e, &j), 0);

        m->out.reprefill += j.had > 0 ? compute * m->c->prefill : 0;
        e->stalled = fmax(e->stalled, m->now) + compute * m->c->prefill;
        if (m->c->turns)
            e->cached[j.request / m->c->samples / m->c->turns] = tokens;
        m->kept[j.request] = (struct kept){0};
        j.began = e->clock;
        j.order = m->order++;
        e->kv_base += tokens - j.began;
        e->active[e->count++] = j;
        heap_up(e, e->count - 1);
    }
}

void engine_preempt(struct sim *m, struct engine *e)
{
    uint32_t last = 0;

    for (uint32_t i = 1; i < e->count; i++)
        if (e->active[i].order > e->active[last].order)
            last = i;
    e->waiting[e->waiting_count++] = engine_remove(m, e, last);
    m->out.preempted++;
}

/* When something happens there by itself. */
double engine_next(const struct sim *m, const struct engine *e)
{
    double tokens, room, from = fmax(fmax(e->now, e->stalled), e->busy_until);

    if (e->count == 0)
        return FOREVER;
    tokens = job_end(&e->active[0]) - e->clock;
    if (m->c->kv > 0 && e->count > 1) {
        room = ((double)m->c->kv - engine_kv(e)) / e->count;
        tokens = fmin(tokens, fmax(room, 0) + 1);
    }
    return tokens >= FOREVER / 2
               ? FOREVER
               : from + fmax(tokens, 0) * engine_step_s(m->c, e->count);
}
