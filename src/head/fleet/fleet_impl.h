/* fleet_impl.h - what the files of fleet.h share
 *
 * fleet.c       leases, what happens to them, and which orchestrator
 * fleet_ask.c   requests
 * fleet_whole.c whole nodes of a job
 */
#ifndef MS_HEAD_FLEET_FLEET_IMPL_H
#define MS_HEAD_FLEET_FLEET_IMPL_H

#include "base/limits.h"
#include "base/list.h"
#include "head/fleet/fleet.h"
#include "io/loop.h"
#include "orchestrator/orchestrator.h"
#include "orchestrator/whole_nodes.h"
#include "proto/muster.pb-c.h"

#include <limits.h>

#define MS_FLEET_PROBE_NS (1 * MS_NS_PER_S) /* to ask again one that cannot be asked */
#define MS_FLEET_AGAIN_NS (5 * MS_NS_PER_S) /* to give back what could not be */

#define MS_FLEET_NO_NODE UINT32_MAX

struct ms_lease_piece {
    uint32_t number;
    bool is_over;
    char *node;      /* NULL: not known yet */
    uint32_t is_for; /* the described node that it stands for; MS_FLEET_NO_NODE: none */
};

struct ms_lease {
    struct ms_list link; /* fleet->leases */
    struct ms_fleet *fleet;
    char key[MS_ORCH_KEY_MAX + 1];
    uint64_t driver;
    bool is_held;   /* the orchestrator has it */
    bool is_ending; /* nobody wants it any more */
    bool was_begun; /* agents of what is being reserved were started */
    size_t asks;    /* that are under way */
    struct ms_lease_piece *pieces;
    size_t count, capacity;
};

struct ms_fleet {
    struct ms_head *head;
    struct ms_orchestrator *o;
    struct ms_orch_watch *watch; /* NULL: it is not known what there is */
    bool is_listing, is_probing;
    enum { MS_FLEET_UNKNOWN, MS_FLEET_ANSWERS, MS_FLEET_SILENT } hearing;
    bool is_here; /* its nodes are on this machine, and have the names described */
    struct ms_list leases;
    struct ms_list asks; /* fleet_ask.c */
    struct ms_timer again, probe;
    struct ms_whole_nodes whole;  /* the nodes that were described */
    struct ms_fleet_piece *known; /* ms_fleet_know */
    size_t known_count;
    char *address;                      /* what agents dial */
    char agent_prefix[MS_NAME_MAX + 2]; /* before the names of nodes; empty: nothing */
    char secret_file[PATH_MAX];
    void (*on_piece)(void *arg, const char *key, const struct ms_lent_piece *piece);
    void (*on_silence)(void *arg, const char *why);
    void *arg;
};

/* ---- fleet.c ----------------------------------------------------------------------- */

/* NULL: there is none. */
struct ms_lease *ms_lease_find(const struct ms_fleet *f, const char *key);
/* NULL: out of memory. */
struct ms_lease *ms_lease_create(struct ms_fleet *f, const char *key, uint64_t driver);
/* Forget it if there is nothing of it. */
void ms_lease_settle(struct ms_lease *l);
/* The name of its node here; NULL: not known yet. */
const char *ms_fleet_node(const struct ms_lent_piece *p);
/* These pieces (none: all) have been given back; so have their nodes, before who asked for
 * it hears of that. */
void ms_lease_given_back(struct ms_lease *l, const uint32_t *numbers, size_t count);
/* What the orchestrator has said of a piece. */
void ms_lease_note(struct ms_lease *l, const struct ms_lent_piece *p);

/* See that the orchestrator is watched; then ms_fleet_asks_go. */
void ms_fleet_listen(struct ms_fleet *f);

/* ---- fleet_ask.c ------------------------------------------------------------------- */

/* The watch is there: ask what waits. With an error: that is the answer to all of it. */
void ms_fleet_asks_go(struct ms_fleet *f, const struct ms_error *why);
/* Give it back without being asked to; what it is reserving is cancelled. */
void ms_fleet_give_back(struct ms_lease *l);
void ms_fleet_asks_finish(struct ms_fleet *f);
/* Something is asked of it, and was not answered. */
bool ms_lease_is_asked(const struct ms_lease *l);

/* ---- fleet_whole.c ----------------------------------------------------------------- */

/* What pieces from `first` on stand for: these described nodes, or with a count of 0 all, in
 * order. On this machine a piece stands for the node whose name it has. */
void ms_lease_assign(struct ms_lease *l,
                     uint32_t first,
                     const uint32_t *nodes,
                     size_t count);
/* What the head before said that it stands for; MS_FLEET_NO_NODE: nothing. */
uint32_t ms_fleet_known(const struct ms_fleet *f, uint32_t number);

#endif
