/* books.h - the stock, and who holds what of it
 *
 * The one place that knows: nodes that come and go, placement groups (groups.h), and claims:
 * what each cluster holds. A claim is made before its cluster and lasts until the cluster
 * has ended, so that whatever is given to one is not given to another. Clusters stand on
 * devices that they name (layout.h) or in the bundles of groups; several may stand in one
 * bundle: its devices are theirs together, of its CPUs and memory each takes what it asks
 * for, and they cannot take more than the bundle has.
 *
 * Nodes are kept in the order of their names. One that is gone keeps its place, and what is
 * held of it stays held until those who hold it end.
 *
 * Pure: time comes in as now_ns. After each call that changes something ms_groups_next
 * (&b->groups) tells which groups have changed with it. Owners are numbers that mean nothing
 * here.
 */
#ifndef MS_RESOURCE_BOOKS_H
#define MS_RESOURCE_BOOKS_H

#include "resource/groups.h"
#include "resource/layout.h"
#include "resource/shape.h"

#define MS_CLAIM_WHOLE UINT32_MAX

/* A bundle of a group, by its number. */
struct ms_seat {
    struct ms_group *group;
    uint32_t bundle;
};

struct ms_claim {
    struct ms_list link;
    char *cluster;
    uint64_t owner;
    /* Of a worker that was found running; MS_CLAIM_WHOLE: all of a cluster */
    uint32_t rank;
    struct ms_layout layout;
    struct ms_seat *seats; /* [world_size] if it stands in bundles; else NULL */
};

struct ms_books {
    struct ms_stock stock;
    struct ms_groups groups;
    struct ms_list claims;
    uint64_t last_id; /* of a group */
};

void ms_books_init(struct ms_books *b);
void ms_books_finish(struct ms_books *b);

/* For the tables: the clusters and groups on a node's devices, by name. As long as `b`. */
struct ms_holders ms_books_holders(struct ms_books *b);

/* What the nodes of a scope have and who holds it, as a table. 0 or -ENOMEM. */
int ms_books_print(struct ms_books *b,
                   const struct ms_scope *scope,
                   struct ms_buf *out);

/* ---- nodes ----------------------------------------------------------------------- */

/* It has come, or come back; labels of it that are none are passed over. One that is known and of which something is held keeps the
 * devices that it had; its amounts are new. 0; -EINVAL, -E2BIG, -ENOMEM. */
int ms_books_node_came(struct ms_books *b,
                       const Muster__NodeShape *s,
                       struct ms_error *err);
void ms_books_node_gone(struct ms_books *b, const char *name);

/* ---- groups ---------------------------------------------------------------------- */

/* As ms_groups_ask, with the reason as a table too. A request without a name gets one. */
int ms_books_ask(struct ms_books *b,
                 const struct ms_place_request *r,
                 uint64_t owner,
                 int64_t now_ns,
                 int64_t deadline_ns,
                 struct ms_group **out,
                 struct ms_buf *table,
                 struct ms_error *err);
/* NULL if there is none; one that is ending is none. */
struct ms_group *ms_books_find_group(const struct ms_books *b, const char *name);
/* -EBUSY: a cluster stands in it, and the text names it. */
int ms_books_remove(struct ms_books *b, struct ms_group *group, struct ms_error *err);

/* ---- claims ---------------------------------------------------------------------- */

struct ms_claim_request {
    uint64_t owner;
    bool is_more; /* the cluster has a claim already, and this is beside it */
    struct ms_scope_request scope; /* for request.scope, which means nothing here */
    struct ms_layout_request request;
    const struct ms_seat *seats; /* of rank 0, 1, ...; NULL: not in bundles */
    uint32_t seat_count;
};

/* Claim for a cluster. As ms_layout_make, and -EEXIST: the name is taken. */
int ms_books_claim(struct ms_books *b,
                   const struct ms_claim_request *r,
                   struct ms_claim **out,
                   struct ms_buf *table,
                   struct ms_error *err);

/* Would there be room for it if nobody held anything? */
bool ms_books_is_possible(struct ms_books *b, const struct ms_claim_request *r);

/* A worker that runs already holds this, whether it is free or not. A second one of the
 * same rank is none. -ENOENT: no such node; -ENOMEM. Devices that the node has not are
 * passed over. */
int ms_books_adopt(struct ms_books *b,
                   const char *cluster,
                   uint32_t rank,
                   uint64_t owner,
                   const char *node,
                   const struct ms_layout *what);

/* The claim of a whole cluster, or NULL. */
struct ms_claim *ms_books_find_claim(const struct ms_books *b, const char *cluster);
/* Give back all that the cluster holds. */
void ms_books_drop_cluster(struct ms_books *b, const char *cluster);
/* Give back its last claim. */
void ms_books_drop_newest(struct ms_books *b, const char *cluster);
/* The owner is gone: so are its groups that are not detached, when nobody stands in them
 * any more. Claims go with their clusters. */
void ms_books_drop_owner(struct ms_books *b, uint64_t owner);

#endif
