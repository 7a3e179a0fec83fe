/* view.h - nodes, clusters, workers, drivers and placement groups, for people and for programs
 *
 * The JSON is that of head/rest/view.h. Tables have one line for each. `status` sums up what
 * would fill more than a screen.
 */
#ifndef MS_CLI_VIEW_H
#define MS_CLI_VIEW_H

#include "cli/out.h"
#include "head/rest/view.h"
#include "proto/muster.pb-c.h"

json_t *ms_view_nodes(const Muster__Status *s);
json_t *ms_view_workers(const Muster__Status *s);
json_t *ms_view_clusters(const Muster__Status *s);
json_t *ms_view_drivers(const Muster__Status *s);
json_t *ms_view_groups(const Muster__Status *s);

/* A word, and the colour for it. */
struct ms_view_state {
    const char *name, *style;
};

struct ms_view_state ms_view_node_state(const Muster__NodeStatus *n);
struct ms_view_state ms_view_worker_state(const Muster__WorkerStatus *w);

/* Ended though nobody asked it to, or badly. */
bool ms_view_is_bad(const Muster__WorkerStatus *w);

/* How many workers of a cluster are in which state. */
struct ms_view_counts {
    size_t running, starting, ended, bad;
};

struct ms_view_counts ms_view_count(const Muster__ClusterStatus *c);

/* The first row of a table. */
void ms_view_title(struct ms_grid *g, const char *const *names);

/* A cell such as "0-3,7". */
void ms_view_add_devices(struct ms_grid *g, const uint32_t *devices, size_t count);

/* Tables; `most` rows at most are worth showing (0: all): beyond that only what is not
 * as it should be, with a line that says how many there are. */
enum ms_exit ms_view_print_nodes(const Muster__Status *s, size_t most);
enum ms_exit ms_view_print_workers(const Muster__Status *s, size_t most);
enum ms_exit ms_view_print_clusters(const Muster__Status *s);
enum ms_exit ms_view_print_drivers(const Muster__Status *s);
enum ms_exit ms_view_print_groups(const Muster__Status *s);

#endif
