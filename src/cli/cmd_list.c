/* cmd_list.c - `muster list KIND`: all nodes, clusters, ..., objects or sessions */
#include "base/cleanup.h"
#include "base/nearest.h"
#include "cli/target.h"
#include "cli/view.h"

#include <string.h>

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

static enum ms_exit list_kind(const struct ms_cli *cli, const struct ms_view_kind *k)
{
    MS_CLEANUP(ms_target_finish) struct ms_target t;
    MS_CLEANUP(ms_status_cleanup) Muster__Status *status = NULL;
    enum ms_exit code = ms_target_look(&t, cli, &status);

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
        return ms_list_objects(cli);
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
