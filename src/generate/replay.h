/* replay.h - which prompts may begin and which are handed out: ROLL's replay buffer
 *
 * Knows prompts by number; what they generate stays with the caller. A prompt is polled
 * (has a number), admitted (has a place in the budget), begun (bound to the step that is
 * current then), and committed with a count of samples, or aborted, which gives its
 * place back: a prompt that was filtered out is so replaced by another.
 *
 *  - The budget is cumulative: each step adds its batch, the first also ceil(batch *
 *    ratio). A prompt is admitted while running + completed is below it, or as an
 *    additional one while running + additional is below `additional_max`.
 *  - A batch is taken oldest step first, from current - ceil(ratio) on. It waits for
 *    older steps' prompts that still run even if newer samples are ready. Under a
 *    fractional ratio the oldest step gives at most int(samples * fraction). Prompts
 *    are not divided: with unequal counts a batch may have more samples than wanted.
 *  - gc ends the steps up to current - ceil(ratio): running prompts are aborted.
 * So nothing that is handed out began earlier than current - ceil(ratio).
 *
 * Nothing waits in here: what cannot be had yet is -EAGAIN, to be tried again after the
 * next advance, commit or abort. Pure.
 */
#ifndef MS_GENERATE_REPLAY_H
#define MS_GENERATE_REPLAY_H

#include "base/buf.h"
#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MS_REPLAY_RATIO_MAX 1e6 /* steps; far above any use */

struct ms_replay;

struct ms_replay_options {
    double ratio;           /* ROLL's async_generation_ratio; 0: synchronous */
    bool additional;        /* prompts beyond the budget */
    int64_t additional_max; /* bounds all that run while one is admitted so */
};

/* Prompts by number, in order. Zeroed, it is empty. */
struct ms_replay_list {
    uint64_t *at;
    size_t count, room;
};
void ms_replay_list_finish(struct ms_replay_list *l);

struct ms_replay_counts {
    int64_t budget, running, additional, completed;
    uint64_t used; /* numbers given out */
};

/* NULL with the reason, or for want of memory. */
struct ms_replay *ms_replay_create(const struct ms_replay_options *o,
                                   struct ms_error *err);
void ms_replay_destroy(struct ms_replay *r); /* NULL is fine */

/* The next step and its batch, in prompts. -EINVAL if it is not after the last one. */
int ms_replay_advance(struct ms_replay *r, int64_t step, int64_t batch);

/* A number for the next prompt, which waits for its place until it is admitted or aborted.
 * 0 or -ENOMEM. */
int ms_replay_poll(struct ms_replay *r, uint64_t *id);

/* 0, -EAGAIN, or -EINVAL for a number that does not wait for its place: it was never polled,
 * or was admitted or aborted before. */
int ms_replay_admit(struct ms_replay *r, uint64_t id);

/* 0 and the step that it is bound to; -EAGAIN if the current step was collected and the
 * next has not come; -ECANCELED if the prompt was aborted; -EINVAL if it has no place or has
 * begun. */
int ms_replay_begin(struct ms_replay *r, uint64_t id, int64_t *step);

/* 0; -ECANCELED if it was committed, aborted or collected before; -EINVAL if it has not
 * begun. */
int ms_replay_commit(struct ms_replay *r, uint64_t id, int64_t samples);

/* Give the place back, or wait for none any more; nothing if that is done already. */
void ms_replay_abort(struct ms_replay *r, uint64_t id);

/* Want a batch of so many samples of the current step; -EINVAL if one is wanted already
 * or no step has begun. Then ms_replay_take until it is whole. */
int ms_replay_want(struct ms_replay *r, int64_t samples);

/* Move what can be handed out to the end of `taken`. 0: the batch is whole, and no longer
 * wanted; -EAGAIN: more is to come; -EINVAL: none is wanted; -ENOMEM: try again. */
int ms_replay_take(struct ms_replay *r, struct ms_replay_list *taken);

/* Want no batch any more; what was taken of it is the caller's. */
void ms_replay_unwant(struct ms_replay *r);

/* End old steps: prompts that ran are appended to `aborted`, finished ones that nobody
 * took (additional prompts leave such) to `dropped`. 0, or -ENOMEM and nothing changed. */
int ms_replay_gc(struct ms_replay *r,
                 struct ms_replay_list *aborted,
                 struct ms_replay_list *dropped);

struct ms_replay_counts ms_replay_counts(const struct ms_replay *r);

#endif
