#include "base/cleanup.h"
#include "base/nearest.h"
#include "cli/list_objects.h"
#include "cli/target.h"
#include "cli/view.h"

#include <string.h>

/* ---- sessions: nobody is asked --------------------------------------------------- */

static enum ms_exit sessions_json(const struct ms_sessions *all)
{
    json_t *list = json_array();

    for (size_t i = 0; i < all->count; i++)
        json_array_append_new(list,
                              json_pack("{s:s, s:b, s:b, s:i, s:o}",
                                        "name",
                                        all->all[i].name,
                                        "alive",
                                        (int)all->all[i].alive,
                                        "is_daemon",
                                        (int)all->all[i].is_daemon,
                                        "driver_pid",
                                        (int)all->all[i].driver_pid,
                                        "session_dir",
                                        ms_json_string(all->all[i].dir)));
    return ms_out_json(list);
}

static enum ms_exit sessions_text(const struct ms_sessions *all)
{
    static const char *const title[] = {"SESSION", "STATE", "HEAD", "PID", "FOLDER"};
    struct ms_grid g;

    if (all->count == 0) {
        puts("no sessions");
        return MS_EXIT_OK;
    }
    ms_grid_init(&g, "lllrl");
    ms_view_title(&g, title);
    for (size_t i = 0; i < all->count; i++) {
        const struct ms_session *s = &all->all[i];

        ms_grid_add(&g, NULL, "%s", s->name);
        ms_grid_add(&g,
                    s->alive ? MS_STYLE_GOOD : MS_STYLE_FAINT,
                    "%s",
                    s->alive ? "alive" : "ended");
        ms_grid_add(&g, NULL, "%s", s->is_daemon ? "daemon" : "driver");
        if (s->alive)
            ms_grid_add(&g, NULL, "%d", (int)s->driver_pid);
        else
            ms_grid_add(&g, NULL, "%s", "");
        ms_grid_add(&g, NULL, "%s", s->dir);
    }
    return ms_out_grid(&g);
}

static enum ms_exit list_sessions(const struct ms_cli *cli)
{
    MS_CLEANUP(ms_sessions_finish) struct ms_sessions all = {0};
    enum ms_exit code = ms_sessions_init(&all, cli);

    if (code)
        return code;
    return ms_cli_has(cli, MS_OPT_JSON) ? sessions_json(&all) : sessions_text(&all);
}

/* ---- what a head knows ----------------------------------------------------------- */

static enum ms_exit print_all_nodes(const Muster__Status *s)
{
    return ms_view_print_nodes(s, 0);
}

static enum ms_exit print_all_workers(const Muster__Status *s)
{
    return ms_view_print_workers(s, 0);
}

static const struct kind {
    const char *name;
    json_t *(*json)(const Muster__Status *s);
    enum ms_exit (*text)(const Muster__Status *s);
} kinds[] = {
    {"nodes", ms_view_nodes, print_all_nodes},
    {"clusters", ms_view_clusters, ms_view_print_clusters},
    {"workers", ms_view_workers, print_all_workers},
    {"drivers", ms_view_drivers, ms_view_print_drivers},
    {"groups", ms_view_groups, ms_view_print_groups},
};

static enum ms_exit list_kind(const struct ms_cli *cli, const struct kind *k)
{
    MS_CLEANUP(ms_target_finish) struct ms_target t;
    Muster__Status *status = NULL;
    enum ms_exit code = ms_target_look(&t, cli, &status);

    if (code)
        return code;
    code =
        ms_cli_has(cli, MS_OPT_JSON) ? ms_out_json(k->json(status)) : k->text(status);
    muster__status__free_unpacked(status, NULL);
    return code;
}

static enum ms_exit fail_kind(const struct ms_cli *cli, const char *word)
{
    struct ms_nearest near = {.word = word};

    ms_nearest_consider(&near, "sessions");
    ms_nearest_consider(&near, "objects");
    for (size_t i = 0; i < MS_COUNT(kinds); i++)
        ms_nearest_consider(&near, kinds[i].name);
    return ms_out_fail(cli,
                       MS_EXIT_USAGE,
                       "'%s' cannot be listed%s%s%s: " MS_CLI_KINDS,
                       word,
                       near.best ? "; did you mean '" : "",
                       near.best ? near.best : "",
                       near.best ? "'? There are" : "; there are");
}

enum ms_exit ms_cmd_list(const struct ms_cli *cli)
{
    if (cli->operand_count == 0)
        return ms_out_fail(cli, MS_EXIT_USAGE, "say what to list: " MS_CLI_KINDS);
    if (strcmp(cli->operands[0], "sessions") == 0)
        return list_sessions(cli);
    if (strcmp(cli->operands[0], "objects") == 0)
        return ms_list_objects(cli);
    for (size_t i = 0; i < MS_COUNT(kinds); i++)
        if (strcmp(cli->operands[0], kinds[i].name) == 0)
            return list_kind(cli, &kinds[i]);
    return fail_kind(cli, cli->operands[0]);
}
