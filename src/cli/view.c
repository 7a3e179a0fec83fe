/* view.c - the table of kinds, and the tables that people see of each */
#include "cli/view.h"
#include "base/cleanup.h"
#include "cli/activity.h"
#include "resource/amount.h"
#include "resource/mapping.h"

#include <string.h>

void ms_view_grid(struct ms_grid *g, const char *align, const char *titles)
{
    ms_grid_init(g, align);
    while (*titles) {
        size_t len = strcspn(titles, "|");

        ms_grid_add(g, MS_STYLE_BOLD, "%.*s", (int)len, titles);
        titles += len + (titles[len] == '|');
    }
}

/* ---- nodes ----------------------------------------------------------------------- */

static bool node_is_well(struct ms_view_item i)
{
    const Muster__NodeStatus *n = i.at;

    return n->alive && !n->suspect;
}

static void add_node(struct ms_grid *g, struct ms_view_item i)
{
    const Muster__NodeStatus *n = i.at;
    const char *style = !n->alive    ? MS_STYLE_BAD
                        : n->suspect ? MS_STYLE_WARN
                                     : MS_STYLE_GOOD;

    ms_grid_add(g, NULL, "%s", n->name);
    ms_grid_add(g, style, "%s", ms_view_node_word(n));
    ms_grid_add(g, NULL, "%d", (int)n->agent_pid);
    ms_grid_add(g, NULL, "%u", n->cpus);
    ms_grid_add(g, NULL, "%s", ms_amount_bytes(n->memory).text);
    ms_grid_add(g, NULL, "%u", n->gpus);
    ms_grid_add(g, NULL, "%s", n->n_addresses ? n->addresses[0] : "");
    ms_grid_add(g, style, "%s", n->detail);
}

static json_t *node_json(struct ms_view_item i)
{
    return ms_view_node(i.at);
}

static enum ms_exit print_node_sum(const Muster__Status *s, size_t count, size_t shown)
{
    size_t alive = 0, suspect = 0, gpus = 0;

    (void)shown;
    for (size_t i = 0; i < count; i++) {
        alive += s->nodes[i]->alive && !s->nodes[i]->suspect;
        suspect += s->nodes[i]->alive && s->nodes[i]->suspect;
        gpus += s->nodes[i]->alive ? s->nodes[i]->gpus : 0;
    }
    printf("%zu nodes: %zu alive, %zu suspect, %zu gone; %zu devices "
           "(`muster list nodes` shows them all)\n",
           count,
           alive,
           suspect,
           count - alive - suspect,
           gpus);
    return MS_EXIT_OK;
}

/* ---- workers --------------------------------------------------------------------- */

static bool worker_is_well(struct ms_view_item i)
{
    const Muster__WorkerStatus *w = i.at;

    return !ms_worker_has_failed(w) &&
           (!w->activity || w->activity->doing < MUSTER__DOING__DOING_SILENT);
}

void ms_view_add_devices(struct ms_grid *g, const uint32_t *devices, size_t count)
{
    MS_CLEANUP(ms_buf_finish) struct ms_buf text = {0};

    if (count)
        ms_mapping_print(devices, count, 0, &text);
    ms_grid_add(g, NULL, "%s", text.len ? ms_buf_str(&text) : "");
}

static void add_worker(struct ms_grid *g, struct ms_view_item i)
{
    const Muster__WorkerStatus *w = i.at;
    char why[256];

    g->hides_empty = true;
    ms_grid_add(g, NULL, "%s/%u", i.cluster->name, w->rank);
    ms_worker_add_state(g, w);
    ms_worker_add_doing(g, w);
    ms_worker_add_calls(g, w);
    ms_worker_add_memory(g, w);
    ms_grid_add(g, NULL, "%d", (int)w->pid);
    ms_grid_add(g, NULL, "%s", w->node);
    ms_view_add_devices(g, w->devices, w->n_devices);
    ms_worker_why(w, why, sizeof why);
    ms_grid_add(g, ms_worker_has_failed(w) ? MS_STYLE_BAD : NULL, "%s", why);
}

static json_t *worker_json(struct ms_view_item i)
{
    return ms_view_worker(i.cluster->name, i.at);
}

static enum ms_exit
print_worker_sum(const Muster__Status *s, size_t count, size_t shown)
{
    enum ms_exit code = ms_view_print(&ms_view_kinds[MS_VIEW_CLUSTERS], s, 0);

    printf("%zu workers (`muster list workers` shows them all)\n%s",
           count,
           shown ? "\n" : "");
    return code;
}

/* ---- clusters -------------------------------------------------------------------- */

struct ms_view_workers ms_view_count_workers(const Muster__ClusterStatus *c)
{
    struct ms_view_workers n = {0};

    for (size_t i = 0; i < c->n_workers; i++) {
        const Muster__WorkerStatus *w = c->workers[i];

        n.running += w->state == MUSTER__WORKER_STATE__WORKER_RUNNING;
        n.ended += w->state == MUSTER__WORKER_STATE__WORKER_EXITED;
        n.failed += ms_worker_has_failed(w);
        if (!w->activity)
            continue;
        n.busy += w->activity->doing == MUSTER__DOING__DOING_CALL;
        n.queued += w->activity->calls_queued;
        n.memory += w->activity->memory;
    }
    n.starting = c->n_workers - n.running - n.ended;
    return n;
}

static void add_cluster(struct ms_grid *g, struct ms_view_item i)
{
    const Muster__ClusterStatus *c = i.at;
    struct ms_view_workers n = ms_view_count_workers(c);

    ms_grid_add(g, NULL, "%s", c->name);
    ms_grid_add(g, NULL, "%zu", c->n_workers);
    ms_grid_add(g, n.running ? MS_STYLE_GOOD : NULL, "%zu", n.running);
    ms_grid_add(g, n.starting ? MS_STYLE_WARN : NULL, "%zu", n.starting);
    ms_grid_add(g, NULL, "%zu", n.ended);
    ms_grid_add(g, n.failed ? MS_STYLE_BAD : NULL, "%zu", n.failed);
    ms_grid_add(g, NULL, "%zu", n.busy);
    ms_grid_add(g, NULL, "%llu", (unsigned long long)n.queued);
    ms_grid_add(g, NULL, "%s", n.memory ? ms_amount_bytes(n.memory).text : "");
    ms_grid_add(g, NULL, "%s", c->detached ? "yes" : "no");
}

static json_t *cluster_json(struct ms_view_item i)
{
    return ms_view_cluster(i.at);
}

/* ---- drivers --------------------------------------------------------------------- */

static void add_driver(struct ms_grid *g, struct ms_view_item i)
{
    const Muster__DriverStatus *d = i.at;

    ms_grid_add(g, NULL, "%016llx", (unsigned long long)d->driver);
    ms_grid_add(g,
                d->suspect ? MS_STYLE_WARN : MS_STYLE_GOOD,
                "%s",
                d->suspect ? "suspect" : "alive");
    ms_grid_add(g, NULL, "%d", (int)d->pid);
    ms_grid_add(g, NULL, "%s", d->host);
    ms_grid_add(g, NULL, "%s", d->script);
}

static json_t *driver_json(struct ms_view_item i)
{
    return ms_view_driver(i.at);
}

/* ---- placement groups ------------------------------------------------------------ */

/* Each node once; neighbouring bundles mostly share one. */
static void print_group_nodes(const Muster__GroupStatus *g, struct ms_buf *out)
{
    for (size_t i = 0; i < g->n_pieces; i++) {
        size_t k = 0;

        while (k < i && strcmp(g->pieces[k]->node, g->pieces[i]->node) != 0)
            k++;
        if (k == i)
            ms_buf_printf(out, "%s%s", i ? "," : "", g->pieces[i]->node);
    }
}

static void add_group(struct ms_grid *grid, struct ms_view_item i)
{
    const Muster__GroupStatus *g = i.at;
    bool good = g->state == MUSTER__GROUP_STATE__GROUP_PLACED;
    MS_CLEANUP(ms_buf_finish) struct ms_buf nodes = {0};
    MS_CLEANUP(ms_buf_finish) struct ms_buf clusters = {0};

    print_group_nodes(g, &nodes);
    for (size_t k = 0; k < g->n_clusters; k++)
        ms_buf_printf(&clusters, "%s%s", k ? "," : "", g->clusters[k]);
    ms_grid_add(grid, NULL, "%s", g->name);
    ms_grid_add(
        grid, good ? MS_STYLE_GOOD : MS_STYLE_WARN, "%s", ms_view_group_word(g->state));
    ms_grid_add(grid, NULL, "%s", g->strategy);
    ms_grid_add(grid, NULL, "%u", g->bundles);
    ms_grid_add(grid, NULL, "%s", nodes.len ? ms_buf_str(&nodes) : "-");
    ms_grid_add(grid, NULL, "%s", clusters.len ? ms_buf_str(&clusters) : "-");
}

static json_t *group_json(struct ms_view_item i)
{
    return ms_view_group(i.at);
}

/* ---- all kinds ------------------------------------------------------------------- */

#define IN_STATUS(field)                                                               \
    .count_at = offsetof(Muster__Status, n_##field),                                   \
    .items_at = offsetof(Muster__Status, field)

const struct ms_view_kind ms_view_kinds[MS_VIEW_KINDS] = {
    [MS_VIEW_NODES] = {.name = "node",
                       .plural = "nodes",
                       .align = "llrrrrll",
                       .titles = "NODE|STATE|AGENT|CPUS|MEMORY|GPUS|ADDRESS|WHY",
                       IN_STATUS(nodes),
                       .name_at = offsetof(Muster__NodeStatus, name),
                       .add_row = add_node,
                       .json = node_json,
                       .is_well = node_is_well,
                       .print_sum = print_node_sum},
    [MS_VIEW_CLUSTERS] = {.name = "cluster",
                          .plural = "clusters",
                          .align = "lrrrrrrrrl",
                          .titles = "CLUSTER|WORKERS|RUNNING|STARTING|ENDED|FAILED|"
                                    "BUSY|QUEUED|MEMORY|DETACHED",
                          IN_STATUS(clusters),
                          .name_at = offsetof(Muster__ClusterStatus, name),
                          .add_row = add_cluster,
                          .json = cluster_json},
    [MS_VIEW_WORKERS] = {.name = "worker",
                         .plural = "workers",
                         .align = "llrlrrrrrrlll",
                         .titles = "WORKER|STATE|FOR|METHOD|QUEUED|CALLS|FAILED|MEMORY|"
                                   "DEV MEM|PID|NODE|DEVICES|WHY",
                         .hint_at = offsetof(Muster__WorkerStatus, node),
                         .add_row = add_worker,
                         .json = worker_json,
                         .is_well = worker_is_well,
                         .print_sum = print_worker_sum},
    [MS_VIEW_DRIVERS] = {.name = "driver",
                         .plural = "drivers",
                         .align = "llrll",
                         .titles = "DRIVER|STATE|PID|HOST|SCRIPT",
                         IN_STATUS(drivers),
                         .hint_at = offsetof(Muster__DriverStatus, host),
                         .add_row = add_driver,
                         .json = driver_json},
    [MS_VIEW_GROUPS] = {.name = "group",
                        .plural = "groups",
                        .align = "lllrll",
                        .titles = "GROUP|STATE|STRATEGY|BUNDLES|NODES|CLUSTERS",
                        IN_STATUS(groups),
                        .name_at = offsetof(Muster__GroupStatus, name),
                        .add_row = add_group,
                        .json = group_json},
};

static const void *field(const void *message, size_t at)
{
    return (const char *)message + at;
}

size_t ms_view_count(const struct ms_view_kind *k, const Muster__Status *s)
{
    size_t count = 0;

    if (k->count_at)
        return *(const size_t *)field(s, k->count_at);
    for (size_t i = 0; i < s->n_clusters; i++)
        count += s->clusters[i]->n_workers;
    return count;
}

struct ms_view_item
ms_view_at(const struct ms_view_kind *k, const Muster__Status *s, size_t index)
{
    Muster__ClusterStatus *const *c = s->clusters;

    if (k->items_at)
        return (struct ms_view_item){
            (*(void *const *const *)field(s, k->items_at))[index], NULL};
    for (; index >= (*c)->n_workers; c++)
        index -= (*c)->n_workers;
    return (struct ms_view_item){(*c)->workers[index], *c};
}

const char *ms_view_name(const struct ms_view_kind *k,
                         struct ms_view_item i,
                         char out[MS_VIEW_NAME_MAX])
{
    if (k->name_at)
        return *(char *const *)field(i.at, k->name_at);
    if (i.cluster)
        snprintf(out,
                 MS_VIEW_NAME_MAX,
                 "%s/%u",
                 i.cluster->name,
                 ((const Muster__WorkerStatus *)i.at)->rank);
    else
        snprintf(out,
                 MS_VIEW_NAME_MAX,
                 "%016llx",
                 (unsigned long long)((const Muster__DriverStatus *)i.at)->driver);
    return out;
}

const char *ms_view_hint(const struct ms_view_kind *k, struct ms_view_item i)
{
    return k->hint_at ? *(char *const *)field(i.at, k->hint_at) : k->name;
}

json_t *ms_view_json(const struct ms_view_kind *k, const Muster__Status *s)
{
    size_t count = ms_view_count(k, s);
    json_t *list = json_array();

    for (size_t i = 0; i < count; i++)
        json_array_append_new(list, k->json(ms_view_at(k, s, i)));
    return list;
}

enum ms_exit
ms_view_print(const struct ms_view_kind *k, const Muster__Status *s, size_t most)
{
    size_t count = ms_view_count(k, s), shown = 0;
    bool sum = most && count > most;
    enum ms_exit code = MS_EXIT_OK;
    struct ms_grid g;

    if (count == 0) {
        printf("no %s\n", k->plural);
        return code;
    }
    ms_view_grid(&g, k->align, k->titles);
    for (size_t i = 0; i < count; i++) {
        struct ms_view_item item = ms_view_at(k, s, i);

        if (!sum || !k->is_well(item)) {
            k->add_row(&g, item);
            shown++;
        }
    }
    if (sum)
        code = k->print_sum(s, count, shown);
    if (!code && shown)
        return ms_out_grid(&g);
    ms_grid_finish(&g);
    return code;
}
