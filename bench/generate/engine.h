/* engine.h - simulated engines, and the state of the simulation that they are in */
#ifndef BENCH_GENERATE_ENGINE_H
#define BENCH_GENERATE_ENGINE_H

#include "sim.h"

#define FOREVER 1e18

/* A request on an engine. */
struct job {
    uint32_t request; /* of the case */
    uint64_t id;
    uint32_t attempt;
    uint32_t had, until; /* tokens at the start of this stay and at its end */
    double began;        /* the engine's clock of tokens then */
    bool hangs;
    uint64_t order;
};

struct engine {
    bool up;
    uint32_t epoch, version, count, waiting_count;
    struct job *active;  /* heap by end */
    struct job *waiting; /* ring would do; the first is at the end */
    double clock;        /* tokens decoded by each that runs */
    double now, stalled; /* s: the clock is right at `now`; prefill until `stalled` */
    double kv_base;      /* tokens of cache = kv_base + count * clock */
    double busy_until;   /* of an update of weights */
    double *cached;      /* tokens of each session's prefix */
};

struct ack {
    double at;
    struct ms_generate_event e;
};

struct sim {
    const struct sim_case *c;
    const struct sim_setup *setup;
    struct ms_scheduler *s;
    struct engine *engines;
    double now;
    uint32_t *had; /* tokens of each request, as engines have made them */
    struct kept {
        const struct engine *at; /* where its chunk ended, and with which weights */
        uint32_t version;
    } * kept;
    bool *hung, *done;
    uint32_t *left; /* of each group */
    double *began;
    struct ended {
        uint32_t replica, epoch, version;
    } * ended; /* where each group's last token was made */
    struct ack *acks;
    size_t ack_first, ack_count, ack_room;
    uint32_t to_arrive, groups_done;
    double *arrives; /* of each group; FOREVER: not known yet */
    uint64_t order, seed;
    struct sim_result out;
    uint32_t version;
    double next_poll, next_weights, lose_at;
};

/* Seconds of a step that decodes a batch of that many. */
double engine_step_s(const struct sim_case *c, uint32_t batch);
/* Where on the engine's clock of tokens it ends. */
double job_end(const struct job *j);
/* Tokens of a request that runs there, so far. */
uint32_t engine_tokens(const struct engine *e, const struct job *j);
/* Tokens of cache in use. */
double engine_kv(const struct engine *e);

/* Let it decode until `now`. */
void engine_advance(struct sim *m, struct engine *e, double now);
/* Take the request at `at` of its heap out. */
struct job engine_remove(struct sim *m, struct engine *e, uint32_t at);
/* Begin what waits, as far as it fits. */
void engine_fill(struct sim *m, struct engine *e);
/* At overflow of the cache the one that came last waits again. */
void engine_preempt(struct sim *m, struct engine *e);
/* When something happens there by itself. */
double engine_next(const struct sim *m, const struct engine *e);

#endif
