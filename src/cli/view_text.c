#include "base/cleanup.h"
#include "cli/selector.h"
#include "cli/view.h"
#include "resource/amount.h"
#include "resource/mapping.h"

#include <string.h>

struct ms_view_state ms_view_node_state(const Muster__NodeStatus *n)
{
    const char *style = !n->alive    ? MS_STYLE_BAD
                        : n->suspect ? MS_STYLE_WARN
                                     : MS_STYLE_GOOD;

    return (struct ms_view_state){ms_view_node_word(n), style};
}

bool ms_view_is_bad(const Muster__WorkerStatus *w)
{
    return w->exit && !w->exit->requested && (w->exit->signaled || w->exit->code != 0);
}

struct ms_view_state ms_view_worker_state(const Muster__WorkerStatus *w)
{
    struct ms_view_state state = {ms_view_worker_word(w->state), MS_STYLE_WARN};

    if (ms_view_is_bad(w))
        state.style = MS_STYLE_BAD;
    else if (w->state == MUSTER__WORKER_STATE__WORKER_RUNNING)
        state.style = MS_STYLE_GOOD;
    else if (w->state == MUSTER__WORKER_STATE__WORKER_EXITED)
        state.style = MS_STYLE_FAINT;
    return state;
}

struct ms_view_counts ms_view_count(const Muster__ClusterStatus *c)
{
    struct ms_view_counts n = {0};

    for (size_t i = 0; i < c->n_workers; i++) {
        const Muster__WorkerStatus *w = c->workers[i];

        n.running += w->state == MUSTER__WORKER_STATE__WORKER_RUNNING;
        n.ended += w->state == MUSTER__WORKER_STATE__WORKER_EXITED;
        n.bad += ms_view_is_bad(w);
    }
    n.starting = c->n_workers - n.running - n.ended;
    return n;
}

void ms_view_title(struct ms_grid *g, const char *const *names)
{
    for (size_t i = 0; i < g->columns; i++)
        ms_grid_add(g, MS_STYLE_BOLD, "%s", names[i]);
}

/* A table without rows is not printed. */
static enum ms_exit print_rows(struct ms_grid *g, size_t rows)
{
    if (rows)
        return ms_out_grid(g);
    ms_grid_finish(g);
    return MS_EXIT_OK;
}

/* ---- nodes ----------------------------------------------------------------------- */

static void add_node(struct ms_grid *g, const Muster__NodeStatus *n)
{
    struct ms_view_state state = ms_view_node_state(n);

    ms_grid_add(g, NULL, "%s", n->name);
    ms_grid_add(g, state.style, "%s", state.name);
    ms_grid_add(g, NULL, "%d", (int)n->agent_pid);
    ms_grid_add(g, NULL, "%u", n->cpus);
    ms_grid_add(g, NULL, "%s", ms_amount_bytes(n->memory).text);
    ms_grid_add(g, NULL, "%u", n->gpus);
    ms_grid_add(g, NULL, "%s", n->n_addresses ? n->addresses[0] : "");
    ms_grid_add(g, state.style, "%s", n->detail);
}

static void print_node_sum(const Muster__Status *s)
{
    size_t alive = 0, suspect = 0, gpus = 0;

    for (size_t i = 0; i < s->n_nodes; i++) {
        alive += s->nodes[i]->alive && !s->nodes[i]->suspect;
        suspect += s->nodes[i]->alive && s->nodes[i]->suspect;
        gpus += s->nodes[i]->alive ? s->nodes[i]->gpus : 0;
    }
    printf("%zu nodes: %zu alive, %zu suspect, %zu gone; %zu devices "
           "(`muster list nodes` shows them all)\n",
           s->n_nodes,
           alive,
           suspect,
           s->n_nodes - alive - suspect,
           gpus);
}

enum ms_exit ms_view_print_nodes(const Muster__Status *s, size_t most)
{
    static const char *const title[] = {
        "NODE", "STATE", "AGENT", "CPUS", "MEMORY", "GPUS", "ADDRESS", "WHY"};
    bool sum = most && s->n_nodes > most;
    struct ms_grid g;
    size_t rows = 0;

    ms_grid_init(&g, "llrrrrll");
    ms_view_title(&g, title);
    for (size_t i = 0; i < s->n_nodes; i++)
        if (!sum || !s->nodes[i]->alive || s->nodes[i]->suspect) {
            add_node(&g, s->nodes[i]);
            rows++;
        }
    if (s->n_nodes == 0)
        puts("no nodes");
    if (sum)
        print_node_sum(s);
    return print_rows(&g, rows);
}

/* ---- clusters and workers -------------------------------------------------------- */

void ms_view_add_devices(struct ms_grid *g, const uint32_t *devices, size_t count)
{
    struct ms_buf text = {0};

    if (count)
        ms_mapping_print(devices, count, 0, &text);
    ms_grid_add(g, NULL, "%s", text.len ? ms_buf_str(&text) : "");
    ms_buf_finish(&text);
}

static void add_worker(struct ms_grid *g,
                       const Muster__ClusterStatus *c,
                       const Muster__WorkerStatus *w)
{
    struct ms_view_state state = ms_view_worker_state(w);
    char why[256] = "";

    if (w->exit)
        ms_exit_text(w->exit, why, sizeof why);
    ms_grid_add(g, NULL, "%s/%u", c->name, w->rank);
    ms_grid_add(g, state.style, "%s", state.name);
    ms_grid_add(g, NULL, "%d", (int)w->pid);
    ms_grid_add(g, NULL, "%s", w->node);
    ms_view_add_devices(g, w->devices, w->n_devices);
    ms_grid_add(g, ms_view_is_bad(w) ? MS_STYLE_BAD : NULL, "%s", why);
}

enum ms_exit ms_view_print_workers(const Muster__Status *s, size_t most)
{
    static const char *const title[] = {
        "WORKER", "STATE", "PID", "NODE", "DEVICES", "WHY"};
    struct ms_grid g;
    size_t rows = 0, total = 0;
    enum ms_exit code = MS_EXIT_OK;

    for (size_t i = 0; i < s->n_clusters; i++)
        total += s->clusters[i]->n_workers;
    if (total == 0) {
        puts("no workers");
        return MS_EXIT_OK;
    }
    if (most && total > most)
        code = ms_view_print_clusters(s);
    ms_grid_init(&g, "llrlll");
    ms_view_title(&g, title);
    for (size_t i = 0; i < s->n_clusters; i++)
        for (size_t k = 0; k < s->clusters[i]->n_workers; k++)
            if (!most || total <= most || ms_view_is_bad(s->clusters[i]->workers[k])) {
                add_worker(&g, s->clusters[i], s->clusters[i]->workers[k]);
                rows++;
            }
    if (most && total > most)
        printf("%zu workers (`muster list workers` shows them all)\n%s",
               total,
               rows ? "\n" : "");
    return code ? code : print_rows(&g, rows);
}

enum ms_exit ms_view_print_clusters(const Muster__Status *s)
{
    static const char *const title[] = {
        "CLUSTER", "WORKERS", "RUNNING", "STARTING", "ENDED", "FAILED", "DETACHED"};
    struct ms_grid g;

    if (s->n_clusters == 0) {
        puts("no clusters");
        return MS_EXIT_OK;
    }
    ms_grid_init(&g, "lrrrrrl");
    ms_view_title(&g, title);
    for (size_t i = 0; i < s->n_clusters; i++) {
        const Muster__ClusterStatus *c = s->clusters[i];
        struct ms_view_counts n = ms_view_count(c);

        ms_grid_add(&g, NULL, "%s", c->name);
        ms_grid_add(&g, NULL, "%zu", c->n_workers);
        ms_grid_add(&g, n.running ? MS_STYLE_GOOD : NULL, "%zu", n.running);
        ms_grid_add(&g, n.starting ? MS_STYLE_WARN : NULL, "%zu", n.starting);
        ms_grid_add(&g, NULL, "%zu", n.ended);
        ms_grid_add(&g, n.bad ? MS_STYLE_BAD : NULL, "%zu", n.bad);
        ms_grid_add(&g, NULL, "%s", c->detached ? "yes" : "no");
    }
    return ms_out_grid(&g);
}

/* ---- drivers --------------------------------------------------------------------- */

enum ms_exit ms_view_print_drivers(const Muster__Status *s)
{
    static const char *const title[] = {"DRIVER", "STATE", "PID", "HOST", "SCRIPT"};
    struct ms_grid g;

    if (s->n_drivers == 0) {
        puts("no drivers");
        return MS_EXIT_OK;
    }
    ms_grid_init(&g, "llrll");
    ms_view_title(&g, title);
    for (size_t i = 0; i < s->n_drivers; i++) {
        const Muster__DriverStatus *d = s->drivers[i];

        ms_grid_add(&g, NULL, "%016llx", (unsigned long long)d->driver);
        ms_grid_add(&g,
                    d->suspect ? MS_STYLE_WARN : MS_STYLE_GOOD,
                    "%s",
                    d->suspect ? "suspect" : "alive");
        ms_grid_add(&g, NULL, "%d", (int)d->pid);
        ms_grid_add(&g, NULL, "%s", d->host);
        ms_grid_add(&g, NULL, "%s", d->script);
    }
    return ms_out_grid(&g);
}

/* ---- placement groups ------------------------------------------------------------ */

/* Its nodes, each once; bundles that stand side by side mostly share one. */
static void add_group_nodes(struct ms_grid *grid, const Muster__GroupStatus *g)
{
    struct ms_buf text = {0};

    for (size_t i = 0; i < g->n_pieces; i++) {
        size_t k = 0;

        while (k < i && strcmp(g->pieces[k]->node, g->pieces[i]->node) != 0)
            k++;
        if (k == i)
            ms_buf_printf(&text, "%s%s", i ? "," : "", g->pieces[i]->node);
    }
    ms_grid_add(grid, NULL, "%s", text.len ? ms_buf_str(&text) : "-");
    ms_buf_finish(&text);
}

static void add_group(struct ms_grid *grid, const Muster__GroupStatus *g)
{
    bool good = g->state == MUSTER__GROUP_STATE__GROUP_PLACED;
    struct ms_buf text = {0};

    ms_grid_add(grid, NULL, "%s", g->name);
    ms_grid_add(
        grid, good ? MS_STYLE_GOOD : MS_STYLE_WARN, "%s", ms_view_group_word(g->state));
    ms_grid_add(grid, NULL, "%s", g->strategy);
    ms_grid_add(grid, NULL, "%u", g->bundles);
    add_group_nodes(grid, g);
    for (size_t i = 0; i < g->n_clusters; i++)
        ms_buf_printf(&text, "%s%s", i ? "," : "", g->clusters[i]);
    ms_grid_add(grid, NULL, "%s", text.len ? ms_buf_str(&text) : "-");
    ms_buf_finish(&text);
}

enum ms_exit ms_view_print_groups(const Muster__Status *s)
{
    static const char *const title[] = {
        "GROUP", "STATE", "STRATEGY", "BUNDLES", "NODES", "CLUSTERS"};
    struct ms_grid g;

    if (s->n_groups == 0) {
        puts("no groups");
        return MS_EXIT_OK;
    }
    ms_grid_init(&g, "lllrll");
    ms_view_title(&g, title);
    for (size_t i = 0; i < s->n_groups; i++)
        add_group(&g, s->groups[i]);
    return ms_out_grid(&g);
}
