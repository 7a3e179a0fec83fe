/* view.h - nodes, clusters, workers, drivers and placement groups, for people and for programs
 *
 * A kind says how the things of one sort in a status are listed. The JSON is that of
 * head/rest/view.h. Tables have one line for each thing; `status` sums up what would fill
 * more than a screen.
 */
#ifndef MS_CLI_VIEW_H
#define MS_CLI_VIEW_H

#include "cli/out.h"
#include "head/rest/view.h"
#include "proto/muster.pb-c.h"

enum { MS_VIEW_NAME_MAX = 96 };

/* One thing. */
struct ms_view_item {
    const void *at;                       /* its message in the status */
    const Muster__ClusterStatus *cluster; /* of a worker */
};

struct ms_view_kind {
    const char *name, *plural;  /* "node", "nodes" */
    const char *align, *titles; /* of its table; see ms_view_grid */
    size_t count_at, items_at;  /* in Muster__Status; 0: the workers of all clusters */
    size_t name_at;             /* in its message; 0: CLUSTER/RANK, or an id */
    size_t hint_at;             /* text beside it in completions; 0: what kind it is */
    void (*add_row)(struct ms_grid *g, struct ms_view_item i);
    json_t *(*json)(struct ms_view_item i);
    bool (*is_well)(struct ms_view_item i); /* NULL: all are always shown */
    /* Print, instead of those that are well, a sum of `count`; `shown` others follow. */
    enum ms_exit (*print_sum)(const Muster__Status *s, size_t count, size_t shown);
};

enum ms_view_kind_id {
    MS_VIEW_NODES,
    MS_VIEW_CLUSTERS,
    MS_VIEW_WORKERS,
    MS_VIEW_DRIVERS,
    MS_VIEW_GROUPS,
    MS_VIEW_KINDS
};

extern const struct ms_view_kind ms_view_kinds[MS_VIEW_KINDS];

size_t ms_view_count(const struct ms_view_kind *k, const Muster__Status *s);
struct ms_view_item
ms_view_at(const struct ms_view_kind *k, const Muster__Status *s, size_t index);

/* By what `get` finds it; returns `out`. */
const char *ms_view_name(const struct ms_view_kind *k,
                         struct ms_view_item i,
                         char out[MS_VIEW_NAME_MAX]);
/* What stands beside it in completions. */
const char *ms_view_hint(const struct ms_view_kind *k, struct ms_view_item i);

/* All of them: an array; a table. Of more than `most` (0: any number), only those that are
 * not well, below a sum. */
json_t *ms_view_json(const struct ms_view_kind *k, const Muster__Status *s);
enum ms_exit
ms_view_print(const struct ms_view_kind *k, const Muster__Status *s, size_t most);

/* How many workers of a cluster are in which state. */
struct ms_view_workers {
    size_t running, starting, ended, failed;
    size_t busy;
    uint64_t queued, memory; /* of all together */
};

struct ms_view_workers ms_view_count_workers(const Muster__ClusterStatus *c);

/* A table with its first row: "NODE|STATE". */
void ms_view_grid(struct ms_grid *g, const char *align, const char *titles);

/* A cell such as "0-3,7". */
void ms_view_add_devices(struct ms_grid *g, const uint32_t *devices, size_t count);

#endif
