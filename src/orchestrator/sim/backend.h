/* backend.h - a cluster in one process, in virtual time, with faults by a seed
 *
 * It stands for what is on the other side of a network: Ray, Kubernetes, Slurm. It has
 * nodes, places gangs all or none, starts their pieces slowly, and tells what happens;
 * by its fault plan it refuses, loses, repeats and delays, its nodes die, and for a
 * while it does not answer at all. It goes on when its controller is gone: the next one
 * finds what the last one had.
 *
 * Time passes only in ms_sim_step. The same seed and the same requests give the same
 * history.
 */
#ifndef MS_ORCHESTRATOR_SIM_BACKEND_H
#define MS_ORCHESTRATOR_SIM_BACKEND_H

#include "orchestrator/orchestrator.h"
#include "orchestrator/sim/clock.h"

/* In thousandths where not said otherwise; all 0: nothing ever goes wrong. */
struct ms_sim_faults {
    uint32_t refuse;              /* a piece never starts */
    uint32_t lose, repeat, delay; /* of what is told */
    int64_t delay_ns;             /* up to this */
    int64_t start_ns;             /* a start takes up to this */
    int64_t node_life_ns;         /* on average; 0: for ever */
    int64_t outage_every_ns;      /* from one to the next; 0: none */
    int64_t outage_ns;            /* how long nothing is answered */
};

struct ms_sim_options {
    uint64_t seed;
    size_t nodes; /* "n0", "n1", ... */
    size_t racks; /* label "rack": "r0", ...; 0: none */
    uint64_t cpu_milli, memory;
    uint32_t devices; /* of each node */
    struct ms_stock
        *stock; /* these nodes instead, which are taken; NULL: those above */
    struct ms_sim_faults faults;
};

struct ms_sim;

/* NULL: out of memory. */
struct ms_sim *ms_sim_create(const struct ms_sim_options *o);
void ms_sim_destroy(struct ms_sim *s);

int64_t ms_sim_now_ns(const struct ms_sim *s);
/* Let the next thing happen, if that is before `until_ns`. False: nothing did. */
bool ms_sim_step(struct ms_sim *s, int64_t until_ns);
struct ms_sim_clock *ms_sim_clock(struct ms_sim *s);

/* ---- what can happen to it --------------------------------------------------------- */

int ms_sim_kill_node(struct ms_sim *s, const char *node);
/* The agent of a piece ends. */
int ms_sim_end_piece(
    struct ms_sim *s, const char *key, uint32_t number, enum ms_cause cause, int code);
/* It does not answer for this long, from now on. */
void ms_sim_silence(struct ms_sim *s, int64_t for_ns);
/* Pieces that hold something, or wait. */
size_t ms_sim_held(const struct ms_sim *s);

/* ---- its protocol, for the orchestrator -------------------------------------------- */

/* What one controller hears. A new one takes the place of the last. */
struct ms_sim_listener {
    /* To a request; not for those that were lost. `why` is set if rc < 0. */
    void (*on_reply)(void *arg, uint64_t request, int rc, const struct ms_error *why);
    void (*on_news)(void *arg, const char *key, const struct ms_lent_piece *piece);
    void *arg;
};

/* Returns a number that grows with every controller. */
uint32_t ms_sim_listen(struct ms_sim *s,
                       const struct ms_sim_listener *l); /* NULL: none */

/* Requests are answered later with that number, or never. They may be asked again: what
 * was done is not done twice. -ENOMEM: it was not even asked. */

/* Pieces `first` and on of the reservation. Answered when they are placed (0), when they
 * never can be (-ENOSPC), or when that is not possible now (-EBUSY, with the reason; it
 * is still tried). `mark` is kept with them. */
int ms_sim_launch(struct ms_sim *s,
                  uint64_t request,
                  const char *key,
                  uint32_t first,
                  const struct ms_place_request *pieces,
                  uint64_t mark);
/* With a count of 0: all of the reservation. */
int ms_sim_stop(struct ms_sim *s,
                uint64_t request,
                const char *key,
                const uint32_t *numbers,
                size_t count);
int ms_sim_ask_all(struct ms_sim *s, uint64_t request);
int ms_sim_cordon(struct ms_sim *s, uint64_t request, const char *node);

/* In the reply to ms_sim_ask_all: everything that there is. */
void ms_sim_each(const struct ms_sim *s,
                 void (*fn)(void *arg,
                            const char *key,
                            uint64_t mark,
                            const struct ms_lent_piece *piece),
                 void *arg);

#endif
