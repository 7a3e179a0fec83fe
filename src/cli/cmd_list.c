/* cmd_list.c - `muster list KIND`: all nodes, clusters, ..., objects or sessions */
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/nearest.h"
#include "cli/jobs/jobs.h"
#include "cli/target.h"
#include "cli/view.h"
#include "head/rest/view.h"
#include "resource/amount.h"

#include <string.h>

/* ---- sessions -------------------------------------------------------------------- */

static enum ms_exit sessions_json(const struct ms_sessions *all)
{
    json_t *list = json_array();

    for (size_t i = 0; i < all->count; i++) {
        const struct ms_session *s = &all->all[i];

        json_array_append_new(list,
                              MS_JSON({"name", json_string(s->name)},
                                      {"alive", json_boolean(s->alive)},
                                      {"is_daemon", json_boolean(s->is_daemon)},
                                      {"driver_pid", json_integer(s->driver_pid)},
                                      {"session_dir", ms_json_string(s->dir)}));
    }
    return ms_out_json(list);
}

static enum ms_exit sessions_text(const struct ms_sessions *all)
{
    struct ms_grid g;

    if (all->count == 0) {
        puts("no sessions");
        return MS_EXIT_OK;
    }
    ms_view_grid(&g, "lllrl", "SESSION|STATE|HEAD|PID|FOLDER");
    for (size_t i = 0; i < all->count; i++) {
        const struct ms_session *s = &all->all[i];
        const char *style = s->alive ? MS_STYLE_GOOD : MS_STYLE_FAINT;

        ms_grid_add(&g, NULL, "%s", s->name);
        ms_grid_add(&g, style, "%s", s->alive ? "alive" : "ended");
        ms_grid_add(&g, NULL, "%s", s->is_daemon ? "daemon" : "driver");
        if (s->alive)
            ms_grid_add(&g, NULL, "%d", (int)s->driver_pid);
        else
            ms_grid_add(&g, NULL, "%s", "");
        ms_grid_add(&g, NULL, "%s", s->dir);
    }
    return ms_out_grid(&g);
}

/* Those of this machine; no head is asked. */
static enum ms_exit list_sessions(const struct ms_cli *cli)
{
    MS_CLEANUP(ms_sessions_finish) struct ms_sessions all = {0};
    enum ms_exit code = ms_sessions_init(&all, cli);

    if (code)
        return code;
    return ms_cli_has(cli, MS_OPT_JSON) ? sessions_json(&all) : sessions_text(&all);
}

/* ---- objects --------------------------------------------------------------------- */

enum { HOLDERS_SHOWN = 3 };

static void print_age(struct ms_buf *out, uint64_t ns)
{
    unsigned long long s = ns / MS_NS_PER_S;

    if (s < 120)
        ms_buf_printf(out, "%llus", s);
    else if (s < 7200)
        ms_buf_printf(out, "%llum", s / 60);
    else
        ms_buf_printf(out, "%lluh", s / 3600);
}

static void print_holders(struct ms_buf *out, const Muster__StoredStatus *o)
{
    size_t shown = o->n_holders < HOLDERS_SHOWN ? o->n_holders : HOLDERS_SHOWN;

    if (o->n_holders == 0)
        ms_buf_printf(out, "nobody");
    for (size_t i = 0; i < shown; i++) {
        ms_buf_printf(out, "%s%s (", i ? ", " : "", o->holders[i]->name);
        print_age(out, o->holders[i]->since_ns);
        ms_buf_printf(out, ")");
    }
    if (o->n_holders > shown)
        ms_buf_printf(out, ", and %zu more", o->n_holders - shown);
}

static void add_object(struct ms_grid *g, const struct ms_view_object *v)
{
    const Muster__StoredStatus *o = v->object;
    MS_CLEANUP(ms_buf_finish) struct ms_buf age = {0};
    MS_CLEANUP(ms_buf_finish) struct ms_buf holders = {0};

    print_age(&age, o->age_ns);
    print_holders(&holders, o);
    ms_grid_add(g, NULL, "%s", v->at->node_name);
    if (o->is_copy)
        ms_grid_add(g,
                    NULL,
                    "%s:%llu",
                    v->origin[0] ? v->origin : "?",
                    (unsigned long long)o->id);
    else
        ms_grid_add(g, NULL, "%llu", (unsigned long long)o->id);
    ms_grid_add(g, NULL, "%s", ms_amount_bytes(o->len).text);
    ms_grid_add(g, o->is_spilled ? MS_STYLE_WARN : NULL, "%s", ms_view_object_where(o));
    ms_grid_add(g, NULL, "%s", ms_buf_str(&age));
    ms_grid_add(g, NULL, "%s", v->site);
    ms_grid_add(g, NULL, "%s", ms_buf_str(&holders));
}

/* Nodes that did not answer, and those with more than is shown. */
static void print_rest(const Muster__Objects *all)
{
    for (size_t i = 0; i < all->n_nodes; i++) {
        const Muster__StoreStats *s = all->nodes[i];

        if (s->why[0])
            printf("node %s: %s\n", s->node_name, s->why);
        else if (s->object_count > s->n_objects)
            printf("node %s has %llu more\n",
                   s->node_name,
                   (unsigned long long)(s->object_count - s->n_objects));
    }
}

static enum ms_exit print_objects(const Muster__Objects *all)
{
    MS_CLEANUP(ms_cleanup_free) struct ms_view_object *list = NULL;
    enum ms_exit code = MS_EXIT_OK;
    struct ms_grid g;
    size_t count = 0;

    list = ms_view_sort_objects(all, &count);
    if (!list)
        return MS_EXIT_FAILED;
    if (count) {
        ms_view_grid(&g, "llrlrll", "NODE|OBJECT|SIZE|WHERE|AGE|FROM|HELD BY");
        for (size_t i = 0; i < count; i++)
            add_object(&g, &list[i]);
        code = ms_out_grid(&g);
    } else {
        puts("no objects");
    }
    print_rest(all);
    return code;
}

static enum ms_exit list_objects(const struct ms_cli *cli)
{
    MS_CLEANUP(ms_target_finish) struct ms_target t;
    Muster__ListObjects want = MUSTER__LIST_OBJECTS__INIT;
    ProtobufCMessage *answer = NULL;
    Muster__Objects *all;
    enum ms_exit code = ms_target_init(&t, cli);

    if (!code)
        code = ms_target_ask(&t,
                             MUSTER__DRIVER_TO_HEAD__BODY_OBJECTS,
                             &want.base,
                             t.timeout_ns,
                             &answer);
    if (code)
        return code;
    all = (Muster__Objects *)answer;
    code = ms_cli_has(cli, MS_OPT_JSON) ? ms_out_json(ms_view_objects(all))
                                        : print_objects(all);
    muster__objects__free_unpacked(all, NULL);
    return code;
}

/* ---- what is in a status --------------------------------------------------------- */

static enum ms_exit list_kind(const struct ms_cli *cli, const struct ms_view_kind *k)
{
    MS_CLEANUP(ms_target_finish) struct ms_target t;
    MS_CLEANUP(ms_status_cleanup) Muster__Status *status = NULL;
    enum ms_exit code = ms_target_look(&t, cli, true, &status);

    if (code)
        return code;
    return ms_cli_has(cli, MS_OPT_JSON) ? ms_out_json(ms_view_json(k, status))
                                        : ms_view_print(k, status, 0);
}

enum ms_exit ms_cmd_list(const struct ms_cli *cli)
{
    const char *word = cli->operands[0];
    struct ms_nearest near = {.word = word};

    if (!word)
        return ms_out_fail(cli, MS_EXIT_USAGE, "say what to list: " MS_CLI_KINDS);
    if (strcmp(word, "sessions") == 0)
        return list_sessions(cli);
    if (strcmp(word, "objects") == 0)
        return list_objects(cli);
    if (strcmp(word, "jobs") == 0)
        return ms_jobs_list(cli);
    ms_nearest_consider(&near, "jobs");
    ms_nearest_consider(&near, "sessions");
    ms_nearest_consider(&near, "objects");
    for (size_t i = 0; i < MS_VIEW_KINDS; i++) {
        if (strcmp(word, ms_view_kinds[i].plural) == 0)
            return list_kind(cli, &ms_view_kinds[i]);
        ms_nearest_consider(&near, ms_view_kinds[i].plural);
    }
    return ms_out_fail(cli,
                       MS_EXIT_USAGE,
                       "'%s' cannot be listed%s%s%s: " MS_CLI_KINDS,
                       word,
                       near.best ? "; did you mean '" : "",
                       near.best ? near.best : "",
                       near.best ? "'? There are" : "; there are");
}
