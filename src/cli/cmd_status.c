/* cmd_status.c - `muster status`: what runs, on about a screen */
#include "base/cleanup.h"
#include "cli/target.h"
#include "cli/view.h"

#include <string.h>

/* What fills a screen; beyond that the counts and what is not as it should be. */
enum { NODES_SHOWN = 24, WORKERS_SHOWN = 64 };

/* Another session of this machine that runs. */
static bool is_other(const struct ms_session *s, const char *shown)
{
    return s->alive && strcmp(s->name, shown) != 0;
}

static json_t *others_json(const struct ms_sessions *all, const char *shown)
{
    json_t *others = json_array();

    for (size_t i = 0; i < all->count; i++)
        if (is_other(&all->all[i], shown))
            json_array_append_new(others, json_string(all->all[i].name));
    return others;
}

static enum ms_exit print_json(const struct ms_target *t, const Muster__Status *s)
{
    json_t *out = ms_view_status(s);

    json_object_set_new(out, "other_sessions", others_json(&t->sessions, s->session));
    return ms_out_json(out);
}

static void print_session(const Muster__Status *s)
{
    char up[24];

    ms_out_style(MS_STYLE_BOLD);
    printf("session %s", s->session);
    ms_out_plain();
    printf("  up %s  %s %d  muster %s\n",
           ms_out_duration(s->uptime_ns, up),
           s->is_daemon ? "head" : "driver",
           (int)s->driver_pid,
           s->version);
    for (size_t i = 0; i < s->n_addresses; i++)
        printf("%s%s", i ? ", " : "listening on ", s->addresses[i]);
    if (s->n_addresses)
        putchar('\n');
    if (s->http_address && s->http_address[0])
        printf("http on %s\n", s->http_address);
}

static void print_others(const struct ms_sessions *all, const char *shown)
{
    bool first = true;

    for (size_t i = 0; i < all->count; i++) {
        if (!is_other(&all->all[i], shown))
            continue;
        printf(first ? "also running: %s" : ", %s", all->all[i].name);
        first = false;
    }
    if (!first)
        printf(" (--session NAME shows another)\n");
}

/* Clusters that wait for room, and have no workers yet. */
static void print_waiting(const Muster__Status *s)
{
    bool first = true;

    for (size_t i = 0; i < s->n_clusters; i++)
        if (s->clusters[i]->waits_for[0]) {
            printf("%s%s waits for room: %s\n",
                   first ? "\n" : "",
                   s->clusters[i]->name,
                   ms_out_clean(s->clusters[i]->waits_for));
            first = false;
        }
}

static enum ms_exit print_text(const struct ms_target *t, const Muster__Status *s)
{
    enum ms_exit code;

    print_session(s);
    print_others(&t->sessions, s->session);
    putchar('\n');
    code = ms_view_print(&ms_view_kinds[MS_VIEW_NODES], s, NODES_SHOWN);
    if (!code && s->is_daemon) {
        putchar('\n');
        code = ms_view_print(&ms_view_kinds[MS_VIEW_DRIVERS], s, 0);
    }
    if (!code && s->n_groups) {
        putchar('\n');
        code = ms_view_print(&ms_view_kinds[MS_VIEW_GROUPS], s, 0);
    }
    putchar('\n');
    if (!code)
        code = ms_view_print(&ms_view_kinds[MS_VIEW_WORKERS], s, WORKERS_SHOWN);
    print_waiting(s);
    return code;
}

enum ms_exit ms_cmd_status(const struct ms_cli *cli)
{
    MS_CLEANUP(ms_target_finish) struct ms_target t;
    MS_CLEANUP(ms_status_cleanup) Muster__Status *status = NULL;
    enum ms_exit code = ms_target_look(&t, cli, true, &status);

    if (code)
        return code;
    return ms_cli_has(cli, MS_OPT_JSON) ? print_json(&t, status)
                                        : print_text(&t, status);
}
