#include "base/cleanup.h"
#include "cli/out.h"
#include "cli/target.h"
#include "resource/amount.h"
#include "resource/mapping.h"

#include <string.h>

static const struct {
    const char *name, *style;
} states[] = {
    [MUSTER__WORKER_STATE__WORKER_UNKNOWN] = {"unknown", MS_STYLE_WARN},
    [MUSTER__WORKER_STATE__WORKER_STARTING] = {"starting", MS_STYLE_WARN},
    [MUSTER__WORKER_STATE__WORKER_RUNNING] = {"running", MS_STYLE_GOOD},
    [MUSTER__WORKER_STATE__WORKER_EXITED] = {"exited", MS_STYLE_FAINT},
};

static size_t state_of(const Muster__WorkerStatus *w)
{
    return (size_t)w->state < MS_COUNT(states) ? (size_t)w->state : 0;
}

/* A worker that ended though nobody asked it to, or badly. */
static bool is_bad(const Muster__WorkerStatus *w)
{
    return w->exit && !w->exit->requested && (w->exit->signaled || w->exit->code != 0);
}

/* ---- JSON ------------------------------------------------------------------------ */

static json_t *text(const char *s)
{
    return ms_out_text(s, s ? strlen(s) : 0);
}

static json_t *exit_json(const Muster__Exit *e)
{
    json_t *lines;

    if (!e)
        return json_null();
    lines = json_array();
    for (size_t i = 0; i < e->n_last_lines; i++)
        json_array_append_new(lines, text(e->last_lines[i]));
    return json_pack("{s:b, s:i, s:b, s:b, s:o, s:o}",
                     "signaled",
                     (int)e->signaled,
                     "code",
                     (int)e->code,
                     "out_of_memory",
                     (int)e->out_of_memory,
                     "requested",
                     (int)e->requested,
                     "detail",
                     text(e->detail),
                     "last_lines",
                     lines);
}

static json_t *worker_json(const Muster__WorkerStatus *w)
{
    json_t *devices = json_array();
    char uid[17];

    snprintf(uid, sizeof uid, "%016llx", (unsigned long long)w->uid);
    for (size_t i = 0; i < w->n_devices; i++)
        json_array_append_new(devices, json_integer(w->devices[i]));
    return json_pack("{s:i, s:s, s:s, s:i, s:o, s:o, s:o, s:o, s:o}",
                     "rank",
                     (int)w->rank,
                     "uid",
                     uid,
                     "state",
                     states[state_of(w)].name,
                     "pid",
                     (int)w->pid,
                     "node",
                     text(w->node),
                     "address",
                     text(w->address),
                     "devices",
                     devices,
                     "log_path",
                     text(w->log_path),
                     "exit",
                     exit_json(w->exit));
}

static json_t *clusters_json(const Muster__Status *s)
{
    json_t *clusters = json_array();

    for (size_t i = 0; i < s->n_clusters; i++) {
        const Muster__ClusterStatus *c = s->clusters[i];
        json_t *workers = json_array();

        for (size_t k = 0; k < c->n_workers; k++)
            json_array_append_new(workers, worker_json(c->workers[k]));
        json_array_append_new(
            clusters,
            json_pack("{s:o, s:o}", "name", text(c->name), "workers", workers));
    }
    return clusters;
}

static json_t *nodes_json(const Muster__Status *s)
{
    json_t *nodes = json_array();

    for (size_t i = 0; i < s->n_nodes; i++) {
        const Muster__NodeStatus *n = s->nodes[i];

        json_array_append_new(nodes,
                              json_pack("{s:o, s:b, s:i, s:i, s:I, s:i}",
                                        "name",
                                        text(n->name),
                                        "alive",
                                        (int)n->alive,
                                        "agent_pid",
                                        (int)n->agent_pid,
                                        "cpus",
                                        (int)n->cpus,
                                        "memory",
                                        (json_int_t)n->memory,
                                        "gpus",
                                        (int)n->gpus));
    }
    return nodes;
}

static json_t *others_json(const struct ms_sessions *all, const char *shown)
{
    json_t *others = json_array();

    for (size_t i = 0; i < all->count; i++)
        if (all->all[i].alive && strcmp(all->all[i].name, shown) != 0)
            json_array_append_new(others, json_string(all->all[i].name));
    return others;
}

static enum ms_exit print_json(const Muster__Status *s, const struct ms_sessions *all)
{
    return ms_out_json(json_pack("{s:o, s:o, s:i, s:o, s:I, s:o, s:o, s:o}",
                                 "session",
                                 text(s->session),
                                 "session_dir",
                                 text(s->session_dir),
                                 "driver_pid",
                                 (int)s->driver_pid,
                                 "version",
                                 text(s->version),
                                 "uptime_ns",
                                 (json_int_t)s->uptime_ns,
                                 "other_sessions",
                                 others_json(all, s->session),
                                 "nodes",
                                 nodes_json(s),
                                 "clusters",
                                 clusters_json(s)));
}

/* ---- text ------------------------------------------------------------------------ */

static void add_head(struct ms_grid *g, const char *const *names)
{
    for (size_t i = 0; i < g->columns; i++)
        ms_grid_add(g, MS_STYLE_BOLD, "%s", names[i]);
}

static void print_session(const Muster__Status *s, const struct ms_sessions *all)
{
    char up[24];
    bool first = true;

    ms_out_style(MS_STYLE_BOLD);
    printf("session %s", s->session);
    ms_out_plain();
    printf("  up %s  driver %d  muster %s\n",
           ms_out_duration(s->uptime_ns, up),
           (int)s->driver_pid,
           s->version);
    for (size_t i = 0; i < all->count; i++) {
        if (!all->all[i].alive || strcmp(all->all[i].name, s->session) == 0)
            continue;
        printf(first ? "also running: %s" : ", %s", all->all[i].name);
        first = false;
    }
    if (!first)
        printf(" (--session NAME shows another)\n");
    putchar('\n');
}

static enum ms_exit print_nodes(const Muster__Status *s)
{
    static const char *const head[] = {
        "NODE", "STATE", "AGENT", "CPUS", "MEMORY", "GPUS"};
    struct ms_buf memory = {0};
    struct ms_grid g;

    ms_grid_init(&g, "llrrrr");
    add_head(&g, head);
    for (size_t i = 0; i < s->n_nodes; i++) {
        const Muster__NodeStatus *n = s->nodes[i];

        memory.len = 0;
        ms_amount_print_bytes(n->memory, &memory);
        ms_grid_add(&g, NULL, "%s", n->name);
        ms_grid_add(&g,
                    n->alive ? MS_STYLE_GOOD : MS_STYLE_BAD,
                    "%s",
                    n->alive ? "alive" : "lost");
        ms_grid_add(&g, NULL, "%d", (int)n->agent_pid);
        ms_grid_add(&g, NULL, "%u", n->cpus);
        ms_grid_add(&g, NULL, "%.*s", (int)memory.len, (const char *)memory.data);
        ms_grid_add(&g, NULL, "%u", n->gpus);
    }
    ms_buf_finish(&memory);
    return ms_out_grid(&g);
}

static void add_worker(struct ms_grid *g,
                       const Muster__ClusterStatus *c,
                       const Muster__WorkerStatus *w)
{
    struct ms_buf devices = {0};
    char why[256] = "";

    if (w->n_devices)
        ms_mapping_print(w->devices, w->n_devices, 0, &devices);
    if (w->exit)
        ms_target_exit(w->exit, why, sizeof why);
    ms_grid_add(g, NULL, "%s/%u", c->name, w->rank);
    ms_grid_add(g,
                is_bad(w) ? MS_STYLE_BAD : states[state_of(w)].style,
                "%s",
                states[state_of(w)].name);
    ms_grid_add(g, NULL, "%d", (int)w->pid);
    ms_grid_add(g, NULL, "%s", w->node);
    ms_grid_add(g,
                NULL,
                "%.*s",
                (int)devices.len,
                devices.len ? (const char *)devices.data : "");
    ms_grid_add(g, is_bad(w) ? MS_STYLE_BAD : NULL, "%s", why);
    ms_buf_finish(&devices);
}

static enum ms_exit print_workers(const Muster__Status *s)
{
    static const char *const head[] = {
        "WORKER", "STATE", "PID", "NODE", "DEVICES", "WHY"};
    struct ms_grid g;
    size_t workers = 0;

    ms_grid_init(&g, "llrlll");
    add_head(&g, head);
    for (size_t i = 0; i < s->n_clusters; i++)
        for (size_t k = 0; k < s->clusters[i]->n_workers; k++, workers++)
            add_worker(&g, s->clusters[i], s->clusters[i]->workers[k]);
    putchar('\n');
    if (workers)
        return ms_out_grid(&g);
    ms_grid_finish(&g);
    puts("no workers");
    return MS_EXIT_OK;
}

enum ms_exit ms_cmd_status(const struct ms_cli *cli)
{
    MS_CLEANUP(ms_sessions_finish) struct ms_sessions all = {0};
    const struct ms_session *session = NULL;
    Muster__Status *status = NULL;
    int64_t timeout_ns;
    enum ms_exit code = ms_target_timeout(cli, &timeout_ns);

    if (!code)
        code = ms_sessions_init(&all, cli);
    if (!code)
        code = ms_target_session(cli, &all, true, &session);
    if (!code)
        code = ms_target_status(cli, session, timeout_ns, &status);
    if (code)
        return code;
    if (ms_cli_has(cli, MS_OPT_JSON)) {
        code = print_json(status, &all);
    } else {
        print_session(status, &all);
        code = print_nodes(status);
        code = code ? code : print_workers(status);
    }
    muster__status__free_unpacked(status, NULL);
    return code;
}
