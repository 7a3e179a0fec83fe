/* backend_impl.h - what the files of the simulated backend share
 *
 * backend.c    the whole, and what happens to it
 * gang.c      pieces and gangs
 * message.c   what is told to the controller, and what it asks
 */
#ifndef MS_ORCHESTRATOR_SIM_BACKEND_IMPL_H
#define MS_ORCHESTRATOR_SIM_BACKEND_IMPL_H

#include "base/clock.h"
#include "base/list.h"
#include "orchestrator/sim/backend.h"

/* One way through the network. */
#define MS_SIM_LATENCY_NS (2 * MS_NS_PER_MS)
/* From the death of a node until it is noticed. */
#define MS_SIM_NOTICE_NS (15 * MS_NS_PER_S)

struct gang;

struct instance {
    struct ms_list on_node; /* while it holds something */
    bool is_released;       /* nobody sees it any more */
    struct gang *gang;
    uint32_t node;
    struct ms_lent_piece piece;
};

/* Pieces that were asked for together. */
struct gang {
    struct ms_list link;
    struct ms_sim *sim;
    size_t refs; /* one while it is in the list, and one for each start under way */
    char key[MS_ORCH_KEY_MAX + 1];
    uint64_t mark, request;
    uint32_t first;
    struct ms_place_request pieces; /* a copy */
    struct ms_placement placement;
    struct instance *instances; /* once it is placed */
    size_t left;                /* not yet released */
};

struct node {
    struct ms_list instances;
    struct ms_sim *sim;
    uint32_t index;
};

struct ms_sim {
    struct ms_sim_clock clock;
    struct ms_sim_faults faults;
    struct ms_sim_listener listener;
    struct ms_stock stock;
    struct node *nodes;
    struct ms_list gangs; /* in the order of their coming */
    size_t held;
    uint64_t random;
    uint32_t listeners;
    int64_t silent_until_ns;
};

/* backend.c */
bool ms_sim_chance(struct ms_sim *s, uint32_t milli);
int64_t ms_sim_up_to(struct ms_sim *s, int64_t ns);

/* gang.c */
struct gang *ms_sim_gang_create(struct ms_sim *s,
                                const char *key,
                                const struct ms_place_request *pieces); /* in no list */
struct gang *ms_sim_gang_find(const struct ms_sim *s, const char *key, uint32_t number);
/* Its pieces end; it is forgotten. */
void ms_sim_gang_remove(struct gang *g);
void ms_sim_gang_unref(struct gang *g);
/* 0: its pieces start now. */
int ms_sim_gang_place(struct gang *g, struct ms_error *err);
void ms_sim_retry_waiting(struct ms_sim *s);
void ms_sim_piece_end(struct instance *i, enum ms_cause cause, int code);
void ms_sim_piece_started(void *arg);

/* message.c */
void ms_sim_reply(struct ms_sim *s,
                  uint64_t request,
                  int rc,
                  const struct ms_error *why);
/* News of a piece, by the fault plan. */
void ms_sim_tell(struct ms_sim *s, const struct instance *i);
/* Events of the clock: their arguments are freed with it. */
void ms_sim_deliver(void *message);
void ms_sim_arrive(void *request);
struct request;
void ms_sim_request_free(struct request *r);

#endif
