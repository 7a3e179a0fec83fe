/* groups.h - placement groups that are held, and those that wait for room
 *
 * A group is asked for under a name. It is placed at once; or refused at once, with the
 * reason, if it could not be placed even if nothing else were held; or it waits until
 * its deadline. Waiting groups are tried in the order of their coming whenever something
 * was given back or a node has come; one that fits may pass one that does not.
 *
 * Pure: time comes in as now_ns, and what was decided is read with ms_groups_next. The
 * groups own copies of all that they were asked with; the stock is borrowed, and must
 * be told about (ms_groups_retry, ms_groups_node_gone) when its nodes change.
 */
#ifndef MS_RESOURCE_GROUPS_H
#define MS_RESOURCE_GROUPS_H

#include "base/list.h"
#include "resource/place.h"

#define MS_GROUPS_MAX ((size_t)1 << 20)

enum ms_group_state {
    MS_GROUP_WAITING,
    MS_GROUP_PLACED,
    MS_GROUP_BROKEN, /* placed, and one of its nodes is gone */
    MS_GROUP_FAILED  /* its deadline came; `why` says why it could not be placed */
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
    enum ms_group_state state;
    struct ms_place_request request; /* with bundles of its own */
    struct ms_placement placement;   /* once PLACED */
    int64_t deadline_ns;
    struct ms_error why;

    /* Of whoever keeps the groups. */
    uint64_t id, owner;
    bool detached;              /* outlives its owner */
    bool is_ending;             /* removed when nobody uses it any more */
    size_t users;               /* clusters that stand in it */
    struct ms_bundle_use *uses; /* [count]; NULL: nothing of it */
};

struct ms_groups {
    struct ms_stock *stock;
    struct ms_list all, waiting, news;
    size_t count;
};

void ms_groups_init(struct ms_groups *g, struct ms_stock *stock);
void ms_groups_finish(struct ms_groups *g); /* gives nothing back */

/* Ask for a group. With a deadline that has come (0), it is now or never. 0 with *out
 * PLACED or WAITING. -EEXIST (the name), -EINVAL, -ENOSPC and -EAGAIN (see ms_place),
 * -EBUSY (what it needs is held by others, and it may not wait), -E2BIG, -ENOMEM. */
int ms_groups_ask(struct ms_groups *g,
                  const struct ms_place_request *r,
                  int64_t now_ns,
                  int64_t deadline_ns,
                  struct ms_group **out,
                  struct ms_error *err);

/* A group that is placed already, at `p`, which is taken over: it is held whether it is free
 * or not. -EEXIST, -E2BIG, -ENOMEM. */
int ms_groups_restore(struct ms_groups *g,
                      const struct ms_place_request *r,
                      struct ms_placement *p,
                      struct ms_group **out,
                      struct ms_error *err);

/* Give back what it holds, or stop waiting, and forget it; others are tried then. */
void ms_groups_remove(struct ms_groups *g, struct ms_group *group);

struct ms_group *ms_groups_find(const struct ms_groups *g, const char *name);

/* Nodes have come, or have more than before. */
void ms_groups_retry(struct ms_groups *g);

/* The node is marked as gone: groups on it are BROKEN. They hold what they hold until
 * they are removed. */
void ms_groups_node_gone(struct ms_groups *g, uint32_t node);

/* Waiting groups whose deadline has come become FAILED. */
void ms_groups_expire(struct ms_groups *g, int64_t now_ns);

/* When the next deadline comes; MS_NEVER. */
int64_t ms_groups_deadline(const struct ms_groups *g);

/* The next group whose state changed by itself (not within ask); NULL: none is left. */
struct ms_group *ms_groups_next(struct ms_groups *g);

#endif
