/* cmd_get.c - `muster get KIND/NAME`: everything that is known of one thing */
#include "base/cleanup.h"
#include "base/nearest.h"
#include "cli/jobs/jobs.h"
#include "cli/selector.h"
#include "cli/target.h"
#include "cli/view.h"
#include "resource/amount.h"

#include <string.h>

/* ---- text ------------------------------------------------------------------------ */

/* What came from elsewhere, for a terminal. */
static void print_clean(const char *text)
{
    char *copy = strdup(text);

    if (copy)
        fputs(ms_out_clean(copy), stdout);
    free(copy);
}

static void print_value(const char *key, const json_t *value)
{
    char *text;

    if (json_is_string(value)) {
        print_clean(json_string_value(value));
    } else if (json_is_integer(value) && strstr(key, "memory")) {
        fputs(ms_amount_bytes((uint64_t)json_integer_value(value)).text, stdout);
    } else if (json_is_boolean(value)) {
        fputs(json_is_true(value) ? "yes" : "no", stdout);
    } else if (!json_is_null(value)) {
        text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
        fputs(text ? text : "", stdout);
        free(text);
    }
}

static void print_field(const char *key, const json_t *value)
{
    size_t count = json_array_size(value);

    ms_out_style(MS_STYLE_FAINT);
    printf("%-13s ", key);
    ms_out_plain();
    if (!json_is_array(value))
        print_value(key, value);
    for (size_t i = 0; i < count; i++) {
        if (i)
            fputs(", ", stdout);
        print_value(key, json_array_get(value, i));
    }
    putchar('\n');
}

/* All fields that are texts, numbers or lists of them, in their order. */
static void print_fields(json_t *object)
{
    const char *key;
    json_t *value;

    json_object_foreach(
        object, key, value) if (!json_is_object(value) &&
                                !json_is_object(json_array_get(value, 0)))
        print_field(key, value);
}

static void print_end(const Muster__Exit *e)
{
    char why[512];

    print_field("ended", json_null());
    ms_exit_text(e, why, sizeof why);
    printf("  %s\n", ms_out_clean(why));
    if (e->n_last_lines)
        puts("  its last lines:");
    for (size_t i = 0; i < e->n_last_lines; i++) {
        fputs("    ", stdout);
        print_clean(e->last_lines[i]);
        putchar('\n');
    }
}

/* ---- what text has beyond the fields ---------------------------------------------- */

static enum ms_exit print_workers(const Muster__ClusterStatus *c)
{
    Muster__ClusterStatus *only = (Muster__ClusterStatus *)(uintptr_t)c;
    Muster__Status s = MUSTER__STATUS__INIT;

    s.n_clusters = 1;
    s.clusters = &only;
    putchar('\n');
    return ms_view_print(&ms_view_kinds[MS_VIEW_WORKERS], &s, 0);
}

/* Its methods, the most called first. */
static enum ms_exit print_methods(const Muster__Activity *a)
{
    char mean[24], total[24];
    struct ms_grid g;

    if (!a || !a->n_methods)
        return MS_EXIT_OK;
    putchar('\n');
    ms_view_grid(&g, "lrrrr", "METHOD|CALLS|FAILED|MEAN|TOTAL");
    for (size_t i = 0; i < a->n_methods; i++) {
        const Muster__MethodCalls *m = a->methods[i];

        ms_grid_add(&g, NULL, "%s", m->method);
        ms_grid_add(&g, NULL, "%llu", (unsigned long long)m->calls);
        ms_grid_add(&g, NULL, "%llu", (unsigned long long)m->failed);
        ms_out_moment(m->total_ns / (m->calls ? m->calls : 1), mean);
        ms_grid_add(&g, NULL, "%s", mean);
        ms_grid_add(&g, NULL, "%s", ms_out_moment(m->total_ns, total));
    }
    return ms_out_grid(&g);
}

/* A line for each bundle that has a place. */
static enum ms_exit print_pieces(const Muster__GroupStatus *group)
{
    struct ms_grid g;

    if (!group->n_pieces)
        return MS_EXIT_OK;
    putchar('\n');
    ms_view_grid(&g, "rll", "BUNDLE|NODE|DEVICES");
    for (size_t i = 0; i < group->n_pieces; i++) {
        ms_grid_add(&g, NULL, "%zu", i);
        ms_grid_add(&g, NULL, "%s", group->pieces[i]->node);
        ms_view_add_devices(&g, group->pieces[i]->devices, group->pieces[i]->n_devices);
    }
    return ms_out_grid(&g);
}

static enum ms_exit
show(const struct ms_cli *cli, size_t kind, struct ms_view_item item)
{
    const Muster__WorkerStatus *w = item.at;
    json_t *object = ms_view_kinds[kind].json(item);

    if (ms_cli_has(cli, MS_OPT_JSON))
        return ms_out_json(object);
    print_fields(object);
    print_fields(json_object_get(object, "activity"));
    json_decref(object);
    if (kind == MS_VIEW_WORKERS && w->exit)
        print_end(w->exit);
    if (kind == MS_VIEW_WORKERS)
        return print_methods(w->activity);
    if (kind == MS_VIEW_CLUSTERS)
        return print_workers(item.at);
    return kind == MS_VIEW_GROUPS ? print_pieces(item.at) : MS_EXIT_OK;
}

/* ---- which ----------------------------------------------------------------------- */

static enum ms_exit
find(const struct ms_cli *cli, size_t kind, const char *name, const Muster__Status *s)
{
    const struct ms_view_kind *k = &ms_view_kinds[kind];
    struct ms_nearest near = {.word = name};

    for (size_t i = 0; i < ms_view_count(k, s); i++) {
        struct ms_view_item item = ms_view_at(k, s, i);
        char text[MS_VIEW_NAME_MAX];
        const char *its = ms_view_name(k, item, text);

        if (strcmp(its, name) == 0)
            return show(cli, kind, item);
        if (its != text)
            ms_nearest_consider(&near, its);
    }
    return ms_out_fail(
        cli,
        MS_EXIT_NOT_FOUND,
        "there is no %s '%s'%s%s%s; `muster list %s` shows what there is",
        k->name,
        name,
        near.best ? "; did you mean '" : "",
        near.best ? near.best : "",
        near.best ? "'?" : "",
        k->plural);
}

static size_t find_kind(const char *text)
{
    size_t len = strcspn(text, "/"), i = 0;

    while (i < MS_VIEW_KINDS && (strlen(ms_view_kinds[i].name) != len ||
                                 strncmp(ms_view_kinds[i].name, text, len) != 0))
        i++;
    return text[len] && text[len + 1] ? i : MS_VIEW_KINDS;
}

enum ms_exit ms_cmd_get(const struct ms_cli *cli)
{
    MS_CLEANUP(ms_target_finish) struct ms_target t = {0};
    const char *what = cli->operand_count ? cli->operands[0] : "";
    const char *name;
    size_t kind = find_kind(what);
    struct ms_cli_selector worker;
    char text[MS_VIEW_NAME_MAX];
    MS_CLEANUP(ms_status_cleanup) Muster__Status *status = NULL;
    enum ms_exit code;

    if (strncmp(what, "job/", 4) == 0 && what[4])
        return ms_jobs_get(cli, what + 4);
    if (kind == MS_VIEW_KINDS)
        return ms_out_fail(cli, MS_EXIT_USAGE, "say what: " MS_CLI_THINGS);
    name = strchr(what, '/') + 1;
    code = ms_target_look(&t, cli, true, &status);
    if (!code && kind == MS_VIEW_WORKERS) { /* "actor/0@node", as in logs, is actor/0 */
        code = ms_cli_selector_parse(cli, name, &worker);
        if (!code && worker.has_rank) {
            snprintf(text, sizeof text, "%s/%u", worker.cluster, worker.rank);
            name = text;
        }
    }
    return code ? code : find(cli, kind, name, status);
}
