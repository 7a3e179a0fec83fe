/* replay.c - ROLL's replay buffer: budget, prompts by step, batches, collection */
#include "generate/replay.h"

#include "base/list.h"
#include "base/map.h"

#include <assert.h>
#include <errno.h>
#include <math.h>

/* What began at one step. */
struct replay_step {
    struct ms_list in_steps; /* oldest first */
    int64_t number;
    struct ms_list running, finished; /* of prompts; finished in order of commit */
    int64_t samples;                  /* of those finished */
};

struct replay_prompt {
    struct ms_list in_step;
    uint64_t id;
    bool has_place;           /* admitted */
    struct replay_step *step; /* NULL: not begun */
    int64_t samples;
};

struct ms_replay {
    struct ms_replay_options o;
    struct ms_list steps;
    struct ms_map prompts; /* id + 1: polled, not yet committed or aborted */
    struct ms_replay_counts counts;
    int64_t current;
    bool has_current, wants;
    int64_t wanted, collected;
    int64_t passed; /* steps up to this one have given what they had */
};

void ms_replay_list_finish(struct ms_replay_list *l)
{
    free(l->at);
    *l = (struct ms_replay_list){0};
}

static int list_reserve(struct ms_replay_list *l, size_t more)
{
    return ms_array_reserve(&l->at, &l->room, l->count + more, sizeof *l->at);
}

static struct replay_step *step_of(struct ms_list *link)
{
    return MS_CONTAINER(link, struct replay_step, in_steps);
}

static struct replay_prompt *prompt_of(struct ms_list *link)
{
    return MS_CONTAINER(link, struct replay_prompt, in_step);
}

/* ---- life -------------------------------------------------------------------------- */

struct ms_replay *ms_replay_create(const struct ms_replay_options *o,
                                   struct ms_error *err)
{
    struct ms_replay *r;

    if (!(o->ratio >= 0 && o->ratio <= MS_REPLAY_RATIO_MAX)) {
        ms_error_set(err, -EINVAL, "the async ratio is %g: not 0 or more", o->ratio);
        return NULL;
    }
    if (o->additional && o->additional_max <= 0) {
        ms_error_set(err, -EINVAL, "additional prompts need a maximum above 0");
        return NULL;
    }
    r = calloc(1, sizeof *r);
    if (!r) {
        ms_error_set(err, -ENOMEM, "no memory for a replay buffer");
        return NULL;
    }
    r->o = *o;
    ms_list_init(&r->steps);
    ms_map_init(&r->prompts);
    return r;
}

static void prompts_free(struct ms_list *list)
{
    struct ms_list *link;

    while ((link = ms_list_pop(list)))
        free(prompt_of(link));
}

static void step_free(struct replay_step *s)
{
    prompts_free(&s->finished);
    ms_list_remove(&s->in_steps);
    free(s);
}

void ms_replay_destroy(struct ms_replay *r)
{
    struct replay_prompt *p;
    struct ms_list *link;
    size_t at = 0;

    if (!r)
        return;
    while ((p = ms_map_next(&r->prompts, &at)))
        free(p);
    ms_map_finish(&r->prompts);
    while ((link = r->steps.next) != &r->steps)
        /* the analyzer does not follow links. NOLINTNEXTLINE(clang-analyzer-unix.Malloc) */
        step_free(step_of(link));
    free(r);
}

/* ---- the budget -------------------------------------------------------------------- */

int ms_replay_advance(struct ms_replay *r, int64_t step, int64_t batch)
{
    struct replay_step *s;

    if (batch < 0 || r->wants || (r->has_current && step <= r->current))
        return -EINVAL;
    s = calloc(1, sizeof *s);
    if (!s)
        return -ENOMEM;
    s->number = step;
    ms_list_init(&s->running);
    ms_list_init(&s->finished);
    ms_list_add_tail(&r->steps, &s->in_steps);
    if (r->counts.budget == 0)
        r->counts.budget = (int64_t)ceil((double)batch * r->o.ratio);
    r->counts.budget += batch;
    r->current = step;
    r->has_current = true;
    return 0;
}

int ms_replay_poll(struct ms_replay *r, uint64_t *id)
{
    struct replay_prompt *p = calloc(1, sizeof *p);

    if (!p || ms_map_add(&r->prompts, r->counts.used + 1, p) < 0) {
        free(p);
        return -ENOMEM;
    }
    ms_list_init(&p->in_step);
    *id = p->id = r->counts.used++;
    return 0;
}

/* Which count a new prompt goes to; NULL: there is no place. */
static int64_t *place(struct ms_replay *r)
{
    struct ms_replay_counts *c = &r->counts;

    if (c->running + c->completed < c->budget)
        return &c->running;
    if (r->o.additional && c->budget > 0 &&
        c->running + c->additional < r->o.additional_max)
        return &c->additional;
    return NULL;
}

int ms_replay_admit(struct ms_replay *r, uint64_t id)
{
    struct replay_prompt *p = ms_map_find(&r->prompts, id + 1);
    int64_t *count = place(r);

    if (!p || p->has_place)
        return -EINVAL;
    if (!count)
        return -EAGAIN;
    p->has_place = true;
    ++*count;
    return 0;
}

/* ---- prompts ----------------------------------------------------------------------- */

int ms_replay_begin(struct ms_replay *r, uint64_t id, int64_t *step)
{
    struct replay_prompt *p = ms_map_find(&r->prompts, id + 1);

    if (!p)
        return -ECANCELED;
    if (!p->has_place || p->step)
        return -EINVAL;
    if (ms_list_is_empty(&r->steps) || step_of(r->steps.prev)->number != r->current)
        return -EAGAIN;
    p->step = step_of(r->steps.prev);
    ms_list_add_tail(&p->step->running, &p->in_step);
    *step = p->step->number;
    return 0;
}

/* One that ran does no longer: which of the two counts it was in is not remembered. */
static bool leave(struct ms_replay_counts *c)
{
    assert(c->running + c->additional > 0);
    if (c->running > 0) {
        c->running--;
        return true;
    }
    c->additional--;
    return false;
}

int ms_replay_commit(struct ms_replay *r, uint64_t id, int64_t samples)
{
    struct replay_prompt *p = ms_map_find(&r->prompts, id + 1);

    if (!p)
        return -ECANCELED;
    if (!p->step || samples < 0)
        return -EINVAL;
    ms_map_remove(&r->prompts, id + 1);
    if (leave(&r->counts))
        r->counts.completed++;
    ms_list_remove(&p->in_step);
    ms_list_add_tail(&p->step->finished, &p->in_step);
    p->samples = samples;
    p->step->samples += samples;
    return 0;
}

void ms_replay_abort(struct ms_replay *r, uint64_t id)
{
    struct replay_prompt *p = ms_map_remove(&r->prompts, id + 1);

    if (!p)
        return;
    if (p->has_place)
        leave(&r->counts);
    ms_list_remove(&p->in_step);
    free(p);
}

/* ---- batches ----------------------------------------------------------------------- */

/* The oldest step that a batch may have samples of. */
static int64_t oldest(const struct ms_replay *r)
{
    return r->current - (int64_t)ceil(r->o.ratio);
}

int ms_replay_want(struct ms_replay *r, int64_t samples)
{
    if (r->wants || !r->has_current || samples < 0)
        return -EINVAL;
    r->wants = true;
    r->wanted = samples;
    r->collected = 0;
    r->passed = oldest(r) - 1;
    return 0;
}

void ms_replay_unwant(struct ms_replay *r)
{
    r->wants = false;
}

static int64_t share_of(const struct ms_replay *r, const struct replay_step *s)
{
    double fraction = fmod(r->o.ratio, 1);

    if (s->number == oldest(r) && s->number != r->current && fraction != 0)
        return (int64_t)((double)r->wanted * fraction);
    return r->wanted - r->collected;
}

/* Whole prompts until there are `share` samples or no more prompts. */
static int take_from(struct ms_replay *r,
                     struct replay_step *s,
                     int64_t share,
                     struct ms_replay_list *taken)
{
    while (share > 0 && !ms_list_is_empty(&s->finished)) {
        /* the analyzer does not follow links. NOLINTNEXTLINE(clang-analyzer-unix.Malloc) */
        struct replay_prompt *p = prompt_of(s->finished.next);

        if (list_reserve(taken, 1) < 0)
            return -ENOMEM;
        taken->at[taken->count++] = p->id;
        share -= p->samples;
        r->collected += p->samples;
        s->samples -= p->samples;
        ms_list_remove(&p->in_step);
        free(p);
    }
    return 0;
}

/* One step's part. 0: it has given what it gives; -EAGAIN: not all of it is there. */
static int
take_step(struct ms_replay *r, struct replay_step *s, struct ms_replay_list *taken)
{
    int64_t share = share_of(r, s);
    bool enough = s->samples >= share;
    int rc;

    if (!enough && !ms_list_is_empty(&s->running))
        return -EAGAIN;
    rc = take_from(r, s, share, taken);
    if (rc < 0 || s->number != r->current)
        return rc;
    return enough ? 0 : -EAGAIN; /* more may begin at the current step */
}

int ms_replay_take(struct ms_replay *r, struct ms_replay_list *taken)
{
    if (!r->wants)
        return -EINVAL;
    for (struct ms_list *l = r->steps.next; l != &r->steps; l = l->next) {
        struct replay_step *s = step_of(l);
        int rc;

        if (s->number <= r->passed || r->collected >= r->wanted)
            continue;
        rc = take_step(r, s, taken);
        if (rc < 0)
            return rc;
        r->passed = s->number;
    }
    if (r->collected < r->wanted)
        return -EAGAIN;
    r->wants = false;
    return 0;
}

/* ---- collection -------------------------------------------------------------------- */

static size_t length(const struct ms_list *list)
{
    size_t n = 0;

    for (const struct ms_list *l = list->next; l != list; l = l->next)
        n++;
    return n;
}

static int gc_reserve(struct ms_replay *r,
                      struct ms_replay_list *aborted,
                      struct ms_replay_list *dropped)
{
    size_t running = 0, finished = 0;

    for (struct ms_list *l = r->steps.next; l != &r->steps; l = l->next) {
        running += length(&step_of(l)->running);
        finished += length(&step_of(l)->finished);
    }
    if (list_reserve(aborted, running) < 0 || list_reserve(dropped, finished) < 0)
        return -ENOMEM;
    return 0;
}

int ms_replay_gc(struct ms_replay *r,
                 struct ms_replay_list *aborted,
                 struct ms_replay_list *dropped)
{
    if (gc_reserve(r, aborted, dropped) < 0)
        return -ENOMEM;
    while (
        !ms_list_is_empty(&r->steps) &&
        /* the analyzer does not follow links. NOLINTNEXTLINE(clang-analyzer-unix.Malloc) */
        step_of(r->steps.next)->number <= oldest(r)) {
        struct replay_step *s = step_of(r->steps.next);
        struct ms_list *f;

        while (!ms_list_is_empty(&s->running)) {
            aborted->at[aborted->count++] = prompt_of(s->running.next)->id;
            ms_replay_abort(r, prompt_of(s->running.next)->id);
        }
        for (f = s->finished.next; f != &s->finished; f = f->next)
            dropped->at[dropped->count++] = prompt_of(f)->id;
        step_free(s);
    }
    return 0;
}

struct ms_replay_counts ms_replay_counts(const struct ms_replay *r)
{
    return r->counts;
}
