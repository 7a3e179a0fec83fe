/* clock.h - virtual time: what happens next, and when
 *
 * Events are run in the order of their times, and those of one time in the order in
 * which they were added. Nothing waits: time jumps. Pure.
 */
#ifndef MS_ORCHESTRATOR_SIM_CLOCK_H
#define MS_ORCHESTRATOR_SIM_CLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef void ms_sim_fn(void *arg);

struct ms_sim_event {
    int64_t at_ns;
    uint64_t order; /* also its name; never 0 */
    ms_sim_fn *fn;  /* NULL: cancelled */
    void *arg;
};

struct ms_sim_clock {
    struct ms_sim_event *heap;
    size_t count, capacity;
    uint64_t made;
    int64_t now_ns;
};

void ms_sim_clock_init(struct ms_sim_clock *c);
void ms_sim_clock_finish(struct ms_sim_clock *c);

/* Its name, for ms_sim_clock_cancel; 0: out of memory. */
uint64_t
ms_sim_clock_add(struct ms_sim_clock *c, int64_t delay_ns, ms_sim_fn *fn, void *arg);

/* All events of this arg will not happen. */
void ms_sim_clock_cancel(struct ms_sim_clock *c, const void *arg);

/* Run the next event, if it is due by `until_ns`; otherwise false, and it is `until_ns`
 * (if that is later than now and not MS_NEVER). */
bool ms_sim_clock_step(struct ms_sim_clock *c, int64_t until_ns);

#endif
