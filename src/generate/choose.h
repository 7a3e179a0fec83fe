/* choose.h - which order the next step goes in, by simulating it
 *
 * When a step begins and more waits than there are places, `auto` can go in several ways:
 * as submitted, the longest expected first, or in slices, where running requests make way
 * for those that could take longer still. Which one is best depends on how much is known
 * of lengths, on how steps grow with the batch and on what a prefix costs to compute. So
 * each is simulated on draws of what lengths could be, and the one with the least mean
 * makespan is taken. The simulation is deterministic: its draws come from the seed.
 *
 * A flow of requests has no steps: there the choice is made again, from what runs and waits
 * then, when a good part of it is new or the last choice has had its time.
 */
#ifndef MS_GENERATE_CHOOSE_H
#define MS_GENERATE_CHOOSE_H

#include "generate/state.h"

/* What one choice may cost: replicas and requests that its simulations look at, of 2 to 3 ns
 * each. Counted, not timed, so that a replay chooses the same. Of a step that would take more
 * a part is simulated that stands for it. */
#define MS_CHOOSE_WORK_MAX UINT64_C(40000000)

/* Simulate the candidates for what is queued and runs now and set `s->choice`. Does nothing while
 * it is not known how long steps and answers take, where nothing would wait, or where even a part of the
 * step takes too much work. */
void ms_choose(struct ms_scheduler *s);

/* While some run: is it time to choose again? */
bool ms_choose_is_due(const struct ms_scheduler *s);

/* Nothing is left: how far off was what was expected? */
void ms_choice_ended(struct ms_scheduler *s);

/* It was made for this step: not long after the step should have ended. */
bool ms_choice_holds(const struct ms_scheduler *s);

/* Tokens that a request may still need at worst: by it slices are ordered. */
double ms_choice_worst(const struct ms_scheduler *s, const struct ms_gen_request *q);

/* Running requests make way for waiting ones that could need more, by more than the slice
 * of the choice, which has one and holds. */
void ms_choice_slice(struct ms_scheduler *s);

#endif
