/* explain.h - why a request is where it is
 *
 * Computed when it is asked for, from the scheduler's state and from two bytes that each
 * request keeps: how it was placed last and why it left its replica last. Asking changes
 * nothing. It walks the queue once, so it is for people, not for each event.
 */
#ifndef MS_GENERATE_EXPLAIN_H
#define MS_GENERATE_EXPLAIN_H

#include "generate/scheduler.h"

enum ms_explain_state {
    MS_EXPLAIN_HELD = 1, /* its group is not admitted yet: the staleness bound */
    MS_EXPLAIN_QUEUED,   /* waits for a place on any replica */
    MS_EXPLAIN_PARKED,   /* waits for `replica`, which has its prefix */
    MS_EXPLAIN_RUNNING,  /* on `replica` */
    MS_EXPLAIN_ABORTING, /* on `replica`, told to stop because of `why` */
    MS_EXPLAIN_DONE,     /* ended; its group has not */
};

enum ms_explain_placed {
    MS_PLACED_NOT,     /* never sent */
    MS_PLACED_LOAD,    /* the fewest requests among those with room */
    MS_PLACED_WARM,    /* its prefix was there */
    MS_PLACED_PLANNED, /* by a plan: of the tail, or as the target of a move */
};

/* Counts of tokens are those of the answer, without the prompt. */
struct ms_explanation {
    uint64_t id, group, key;
    uint32_t seq, state, placed; /* enum ms_explain_state, ms_explain_placed */
    uint32_t why;     /* enum ms_generate_why: why it is being aborted, or left its
                                    replica last; MS_WHY_NONE: it never did */
    uint32_t attempt; /* sends so far */
    uint32_t replica, epoch; /* where it is, or was last; MS_NOWHERE */
    uint32_t target;         /* where it is to go next, or MS_NOWHERE */
    uint32_t failures;       /* replicas that failed it */
    uint32_t prompt, generated, max_new;
    uint32_t oldest; /* version of its oldest token, if it has any */
    /* what is expected of it */
    double expected, high;   /* tokens in all: the mean, and what 9 of 10 stay below */
    double history;          /* samples of its prompt in earlier steps, as they count */
    uint32_t siblings_ended; /* of its group: what they were */
    uint32_t siblings_live;  /* and what they are at least */
    uint32_t hint;           /* the caller's; 0: none */
    double correlation;      /* how much prompts say of lengths, 0 to 1 */
    /* the queue */
    uint64_t queued, ahead;     /* requests in it, and of them before this one */
    float rank;                 /* the smallest goes first */
    int64_t since_ns;           /* queued then, or heard of last */
    const char *policy, *order; /* names; the order that applies now */
};

/* A request by the id of its MS_SEND, or (id 0) by its group's id and `seq`. 0, or -ENOENT:
 * there is no such request, or its group is over. */
int ms_scheduler_explain(const struct ms_scheduler *s,
                         uint64_t id,
                         uint64_t group,
                         uint32_t seq,
                         struct ms_explanation *out);

const char *ms_explain_state_name(uint32_t state);   /* "running" */
const char *ms_explain_placed_name(uint32_t placed); /* "by load" */
const char *ms_generate_why_name(uint32_t why);      /* "moved" */

/* One sentence for a person, cut to `size`; returns `text`. */
const char *
ms_explanation_print(const struct ms_explanation *x, char *text, size_t size);

#endif
