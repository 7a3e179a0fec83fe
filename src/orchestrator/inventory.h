/* inventory.h - what a backend has told of its reservations, put in order
 *
 * Backends tell late, twice, in any order, or only when asked. The inventory takes whatever
 * comes and keeps the truth: news of an older incarnation change nothing, phases of one
 * incarnation only go forward, and what is already known is no news. What did change is
 * numbered, kept for a while, and told to watches in order.
 *
 * Pure: it is told, and it answers; nothing here waits.
 */
#ifndef MS_ORCHESTRATOR_INVENTORY_H
#define MS_ORCHESTRATOR_INVENTORY_H

#include "base/list.h"
#include "orchestrator/orchestrator.h"

#define MS_INVENTORY_LOG_MAX                                                           \
    ((size_t)1 << 16) /* changes that are kept for late watches */

struct ms_inventory_key; /* shared by a reservation and the changes of its pieces */
struct ms_snapshot;      /* a piece as it was; shared in the same way */

struct ms_inventory_change {
    struct ms_inventory_key *key;
    struct ms_snapshot *piece;
    bool gone;
};

struct ms_inventory_entry {
    struct ms_list link;
    struct ms_inventory_key *key;
    struct ms_snapshot **pieces; /* in the order of their numbers */
    size_t count, capacity;
    size_t in_phase[MS_PHASE_ENDED + 1];
    uint32_t next; /* the number of the next piece */
    void *owner;   /* the backend's own; never looked at here */
};

struct ms_inventory {
    struct ms_list all; /* ms_inventory_entry */
    size_t count;
    struct ms_inventory_change *log; /* a ring; the last one has the number `cursor` */
    size_t log_capacity, log_count, log_first;
    uint64_t cursor;
};

/* `cursor` is where numbering starts. */
void ms_inventory_init(struct ms_inventory *m, uint64_t cursor);
void ms_inventory_finish(struct ms_inventory *m);

struct ms_inventory_entry *ms_inventory_find(const struct ms_inventory *m,
                                             const char *key);
/* A new one without pieces. NULL: out of memory. */
struct ms_inventory_entry *ms_inventory_add(struct ms_inventory *m, const char *key);
/* Its pieces are told as gone, and it is forgotten. */
void ms_inventory_remove(struct ms_inventory *m, struct ms_inventory_entry *r);

/* More pieces, PENDING, incarnation 1; the number of the first. A negative errno. */
int64_t ms_inventory_add_pieces(struct ms_inventory_entry *r, size_t count);
/* The piece of this number, PENDING, incarnation 1, where there is none: of a reservation
 * that others have made. 0, or a negative errno. */
int ms_inventory_adopt_piece(struct ms_inventory_entry *r, uint32_t number);
const struct ms_lent_piece *ms_inventory_piece(const struct ms_inventory_entry *r,
                                               uint32_t number);
const struct ms_lent_piece *ms_inventory_piece_at(const struct ms_inventory_entry *r,
                                                  size_t index);
/* It is told as gone and forgotten; one that is not there is nothing. -ENOMEM. */
int ms_inventory_remove_piece(struct ms_inventory *m,
                              struct ms_inventory_entry *r,
                              uint32_t number);

/* What a backend says of a piece; the texts are copied. Returns 1 if that was news, 0 if
 * it was not (known, older, or of a piece that is gone); -ENOMEM. */
int ms_inventory_update(struct ms_inventory *m,
                        struct ms_inventory_entry *r,
                        const struct ms_lent_piece *said);

/* The first change after `cursor`: 1, and borrowed until the inventory is told more; 0: there
 * is none yet; -ESTALE: it is kept no more. */
int ms_inventory_next(const struct ms_inventory *m,
                      uint64_t cursor,
                      struct ms_orch_event *out);

/* All, or of one key, as an answer; ms_inventory_answer_finish. -ENOENT, -ENOMEM. */
int ms_inventory_answer(const struct ms_inventory *m,
                        const char *key,
                        struct ms_orch_answer *out);
void ms_inventory_answer_finish(struct ms_orch_answer *a);

#endif
