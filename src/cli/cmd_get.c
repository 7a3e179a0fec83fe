#include "base/cleanup.h"
#include "base/nearest.h"
#include "cli/selector.h"
#include "cli/target.h"
#include "cli/view.h"
#include "resource/amount.h"

#include <string.h>

/* One run of the command. */
struct job {
    const struct ms_target *target;
    const Muster__Status *status;
    const char *name; /* behind "node/", "cluster/", ... */
    struct ms_nearest near;
};

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
    } else if (json_is_integer(value) && strcmp(key, "memory") == 0) {
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
    printf("%-12s ", key);
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

/* ---- what there is --------------------------------------------------------------- */

static bool is_named(struct job *j, const char *name)
{
    if (strcmp(name, j->name) == 0)
        return true;
    ms_nearest_consider(&j->near, name);
    return false;
}

/* Takes `object`. */
static enum ms_exit show(const struct job *j, json_t *object)
{
    if (ms_cli_has(j->target->cli, MS_OPT_JSON))
        return ms_out_json(object);
    print_fields(object);
    json_decref(object);
    return MS_EXIT_OK;
}

static enum ms_exit get_node(struct job *j, bool *found)
{
    for (size_t i = 0; i < j->status->n_nodes && !*found; i++)
        if (is_named(j, j->status->nodes[i]->name)) {
            *found = true;
            return show(j, ms_view_node(j->status->nodes[i]));
        }
    return MS_EXIT_OK;
}

static enum ms_exit show_cluster(const struct job *j, Muster__ClusterStatus *c)
{
    Muster__Status only = *j->status; /* with this cluster alone */
    enum ms_exit code = show(j, ms_view_cluster(c));

    if (code || ms_cli_has(j->target->cli, MS_OPT_JSON))
        return code;
    only.n_clusters = 1;
    only.clusters = &c;
    putchar('\n');
    return ms_view_print_workers(&only, 0);
}

static enum ms_exit get_cluster(struct job *j, bool *found)
{
    for (size_t i = 0; i < j->status->n_clusters; i++)
        if (is_named(j, j->status->clusters[i]->name)) {
            *found = true;
            return show_cluster(j, j->status->clusters[i]);
        }
    return MS_EXIT_OK;
}

static enum ms_exit show_worker(const struct job *j,
                                const Muster__ClusterStatus *c,
                                const Muster__WorkerStatus *w)
{
    enum ms_exit code = show(j, ms_view_worker(c->name, w));

    if (w->exit && !ms_cli_has(j->target->cli, MS_OPT_JSON))
        print_end(w->exit);
    return code;
}

static enum ms_exit get_worker(struct job *j, bool *found)
{
    struct ms_cli_selector s;
    enum ms_exit code = ms_cli_selector_parse(j->target->cli, j->name, &s);

    *found = code != MS_EXIT_OK; /* it is wrong, not missing */
    for (size_t i = 0; !code && i < j->status->n_clusters; i++) {
        const Muster__ClusterStatus *c = j->status->clusters[i];

        for (size_t k = 0; k < c->n_workers; k++)
            if (s.has_rank &&
                ms_cli_selector_matches(&s, c->name, c->workers[k]->rank)) {
                *found = true;
                return show_worker(j, c, c->workers[k]);
            }
    }
    return code;
}

static enum ms_exit get_driver(struct job *j, bool *found)
{
    for (size_t i = 0; i < j->status->n_drivers; i++) {
        char id[17];

        snprintf(id,
                 sizeof id,
                 "%016llx",
                 (unsigned long long)j->status->drivers[i]->driver);
        if (strcmp(id, j->name) == 0) {
            *found = true;
            return show(j, ms_view_driver(j->status->drivers[i]));
        }
    }
    return MS_EXIT_OK;
}

/* A line for each bundle that has a place. */
static enum ms_exit show_group(const struct job *j, const Muster__GroupStatus *group)
{
    static const char *const title[] = {"BUNDLE", "NODE", "DEVICES"};
    enum ms_exit code = show(j, ms_view_group(group));
    struct ms_grid g;

    if (code || !group->n_pieces || ms_cli_has(j->target->cli, MS_OPT_JSON))
        return code;
    putchar('\n');
    ms_grid_init(&g, "rll");
    ms_view_title(&g, title);
    for (size_t i = 0; i < group->n_pieces; i++) {
        ms_grid_add(&g, NULL, "%zu", i);
        ms_grid_add(&g, NULL, "%s", group->pieces[i]->node);
        ms_view_add_devices(&g, group->pieces[i]->devices, group->pieces[i]->n_devices);
    }
    return ms_out_grid(&g);
}

static enum ms_exit get_group(struct job *j, bool *found)
{
    for (size_t i = 0; i < j->status->n_groups; i++)
        if (is_named(j, j->status->groups[i]->name)) {
            *found = true;
            return show_group(j, j->status->groups[i]);
        }
    return MS_EXIT_OK;
}

static const struct kind {
    const char *name, *plural;
    enum ms_exit (*get)(struct job *j, bool *found);
} kinds[] = {
    {"node", "nodes", get_node},
    {"cluster", "clusters", get_cluster},
    {"worker", "workers", get_worker},
    {"driver", "drivers", get_driver},
    {"group", "groups", get_group},
};

static const struct kind *find_kind(const char *text, const char **name)
{
    size_t len = strcspn(text, "/");

    for (size_t i = 0; i < MS_COUNT(kinds); i++)
        if (strlen(kinds[i].name) == len && strncmp(kinds[i].name, text, len) == 0 &&
            text[len] == '/' && text[len + 1]) {
            *name = text + len + 1;
            return &kinds[i];
        }
    return NULL;
}

static enum ms_exit
ask(const struct ms_cli *cli, const struct kind *k, const char *name)
{
    MS_CLEANUP(ms_target_finish) struct ms_target t;
    struct job j = {.target = &t, .name = name, .near = {.word = name}};
    Muster__Status *status = NULL;
    enum ms_exit code = ms_target_look(&t, cli, &status);
    bool found = false;

    if (code)
        return code;
    j.status = status;
    code = k->get(&j, &found);
    if (!found)
        code = ms_out_fail(cli,
                           MS_EXIT_NOT_FOUND,
                           "there is no %s '%s'%s%s%s; `muster list %s` shows what "
                           "there is",
                           k->name,
                           name,
                           j.near.best ? "; did you mean '" : "",
                           j.near.best ? j.near.best : "",
                           j.near.best ? "'?" : "",
                           k->plural);
    muster__status__free_unpacked(status, NULL);
    return code;
}

enum ms_exit ms_cmd_get(const struct ms_cli *cli)
{
    const char *name = NULL;
    const struct kind *k =
        cli->operand_count ? find_kind(cli->operands[0], &name) : NULL;

    if (!k)
        return ms_out_fail(cli, MS_EXIT_USAGE, "say what: " MS_CLI_THINGS);
    return ask(cli, k, name);
}
