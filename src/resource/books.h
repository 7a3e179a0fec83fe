/* books.h - the stock, and who holds what of it
 *
 * The one place that knows: nodes that come and go, placement groups, and claims: what each
 * cluster holds. A claim is made before its cluster and lasts until the cluster
 * has ended, so that whatever is given to one is not given to another. Clusters stand on
 * devices that they name (layout.h) or in the bundles of groups; several may stand in one
 * bundle: its devices are theirs together, of its CPUs and memory each takes what it asks
 * for, and they cannot take more than the bundle has.
 *
 * Nodes are kept in the order of their names. One that is gone keeps its place, and what is
 * held of it stays held until those who hold it end.
 *
 * A group is asked for under a name. It is placed at once; or refused at once, with the
 * reason, if it could not be placed even if nothing else were held; or it waits until its
 * deadline. Waiting groups are tried in the order of their coming whenever something was
 * given back or a node has come; one that fits may pass one that does not.
 *
 * Pure: time comes in as now_ns. After each call that changes something ms_books_next tells
 * which groups have changed with it. Owners are numbers that mean nothing here. The books own
 * copies of all that they were asked with.
 */
#ifndef MS_RESOURCE_BOOKS_H
#define MS_RESOURCE_BOOKS_H

#include "base/list.h"
#include "resource/layout.h"
#include "resource/place.h"
#include "resource/shape.h"

#define MS_GROUPS_MAX ((size_t)1 << 20)

enum ms_placement_state {
    MS_PLACEMENT_WAITING,
    MS_PLACEMENT_PLACED,
    MS_PLACEMENT_BROKEN, /* placed, and one of its nodes is gone */
    MS_PLACEMENT_FAILED  /* its deadline came; `why` says why it could not be placed */
};

/* What clusters have taken of one bundle's own. */
struct ms_bundle_use {
    uint64_t cpu_milli, memory, device_memory;
};

struct ms_group {
    struct ms_list link;    /* all, in the order of their coming */
    struct ms_list waiting; /* those that wait */
    struct ms_list news;    /* those whose state has changed */
    char *name;
    enum ms_placement_state state;
    struct ms_place_request request; /* with bundles of its own */
    struct ms_placement placement;   /* once PLACED */
    int64_t deadline_ns;
    struct ms_error why;
    uint64_t id, owner;
    bool detached;              /* outlives its owner */
    bool ends_with_cluster;     /* that stands in it, however that ends */
    bool is_ending;             /* removed when nobody uses it any more */
    bool is_of_clusters;        /* they have brought it along (ms_books_seat) */
    size_t least;               /* bundles of such a one, while it is there */
    size_t users;               /* clusters that stand in it */
    struct ms_bundle_use *uses; /* [count]; NULL: nothing of it */
};

struct ms_groups {
    struct ms_list all, waiting, news;
    size_t count;
};

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

/* Ask for a group; one without a name gets one. With a deadline that has come (0), it is now
 * or never. 0 with *out PLACED or WAITING. -EEXIST (the name), -EINVAL, -ENOSPC and -EAGAIN
 * (see ms_place), -EBUSY (what it needs is held by others, and it may not wait), -E2BIG,
 * -ENOMEM. `table` (may be NULL) gets the reason as a table. */
int ms_books_ask(struct ms_books *b,
                 const struct ms_place_request *r,
                 uint64_t owner,
                 int64_t now_ns,
                 int64_t deadline_ns,
                 struct ms_group **out,
                 struct ms_buf *table,
                 struct ms_error *err);
/* A group that is placed already, at `p`, which is taken over: it is held whether it is free
 * or not. -EEXIST, -E2BIG, -ENOMEM. */
int ms_books_restore(struct ms_books *b,
                     const struct ms_place_request *r,
                     struct ms_placement *p,
                     struct ms_group **out,
                     struct ms_error *err);
/* Could it be placed if nobody held anything? 0, or why not. */
int ms_books_check_group(const struct ms_books *b,
                         const struct ms_place_request *r,
                         struct ms_error *err);
/* NULL if there is none; one that is ending is none. */
struct ms_group *ms_books_find_group(const struct ms_books *b, const char *name);
/* Give back what it holds, or stop waiting, and forget it; others are tried then. -EBUSY: a
 * cluster stands in it, and the text names it. */
int ms_books_remove(struct ms_books *b, struct ms_group *group, struct ms_error *err);
/* Nodes have come, or have more than before: try the groups that wait. */
void ms_books_retry(struct ms_books *b);
/* Waiting groups whose deadline has come become FAILED. */
void ms_books_expire(struct ms_books *b, int64_t now_ns);
/* When the next deadline comes; MS_NEVER. */
int64_t ms_books_deadline(const struct ms_books *b);
/* The next group whose state changed by itself (not within ask); NULL: none is left. */
struct ms_group *ms_books_next(struct ms_books *b);

/* ---- groups that clusters bring along ---------------------------------------------
 *
 * A cluster may say of which bundles its ranks need one each: rank i stands in bundle i of a
 * group that is placed with the first cluster which names it, has as many bundles as the
 * ranks that stand in it need, and is gone with the last of them. Its strategy and `same`
 * hold for all its bundles, whenever they were placed.
 */

/* Where a rank is already. */
struct ms_known_seat {
    const char *node;
    const uint32_t *devices;
    uint32_t device_count;
};

struct ms_seats_request {
    /* Its name is the group's; bundles[0] is each of its bundles; count: how many it has at
     * least; scope: where those of these ranks may be (NULL: anywhere). */
    const struct ms_place_request *like;
    uint64_t owner;
    uint32_t first, count;
    /* Of each of these ranks: held there, whether it is free or not, unless the group has its
     * bundle already. NULL, or a node that is not known: it is placed. */
    const struct ms_known_seat *known;
};

/* Seats for ranks. Bundles that are missing are placed; those of these ranks that are on a node
 * which is gone or not in the scope move, and one with another amount of memory stays on its
 * node if there is room. Clusters in a bundle that moves go with it. 0, or as ms_place,
 * without -EAGAIN, and -EEXIST: another group has the name; nothing has changed then. A group
 * in which nobody sits is gone with the next ms_books_settle, so claim the seats. */
int ms_books_seat(struct ms_books *b,
                  const struct ms_seats_request *r,
                  struct ms_seat *seats,
                  struct ms_buf *table,
                  struct ms_error *err);
/* All that the cluster holds is the first `count` bundles of that group. -ENOENT: there is no
 * such group, or it has fewer; -ENOMEM. */
int ms_books_reseat(struct ms_books *b,
                    const char *cluster,
                    uint64_t owner,
                    const char *group,
                    uint32_t count,
                    struct ms_error *err);

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
/* Give back all that the cluster holds, and groups that end with it. */
void ms_books_drop_cluster(struct ms_books *b, const char *cluster);
/* Give back its last claim. */
void ms_books_drop_newest(struct ms_books *b, const char *cluster);
/* Groups that are ending, or were brought along, and in which nobody stands are removed; those
 * that wait are tried. All that gives something back does so by itself. */
void ms_books_settle(struct ms_books *b);
/* The owner is gone: so are its groups that are not detached, when nobody stands in them
 * any more. Claims go with their clusters. */
void ms_books_drop_owner(struct ms_books *b, uint64_t owner);

#endif
