#include "base/cleanup.h"
#include "cli/target.h"
#include "cli/view.h"

#include <string.h>

/* What fills a screen; beyond that the counts and what is not as it should be. */
enum { NODES_SHOWN = 24, WORKERS_SHOWN = 64 };

static json_t *others_json(const struct ms_sessions *all, const char *shown)
{
    json_t *others = json_array();

    for (size_t i = 0; i < all->count; i++)
        if (all->all[i].alive && strcmp(all->all[i].name, shown) != 0)
            json_array_append_new(others, json_string(all->all[i].name));
    return others;
}

static enum ms_exit print_json(const struct ms_target *t, const Muster__Status *s)
{
    return ms_out_json(
        json_pack("{s:o, s:o, s:b, s:i, s:o, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o}",
                  "session",
                  ms_json_string(s->session),
                  "session_dir",
                  ms_json_string(s->session_dir),
                  "is_daemon",
                  (int)s->is_daemon,
                  "driver_pid",
                  (int)s->driver_pid,
                  "version",
                  ms_json_string(s->version),
                  "uptime_ns",
                  (json_int_t)s->uptime_ns,
                  "addresses",
                  ms_json_strings(s->addresses, s->n_addresses),
                  "http_address",
                  ms_json_string(s->http_address),
                  "other_sessions",
                  others_json(&t->sessions, s->session),
                  "nodes",
                  ms_view_nodes(s),
                  "drivers",
                  ms_view_drivers(s),
                  "groups",
                  ms_view_groups(s),
                  "clusters",
                  ms_view_clusters(s)));
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
        if (!all->all[i].alive || strcmp(all->all[i].name, shown) == 0)
            continue;
        printf(first ? "also running: %s" : ", %s", all->all[i].name);
        first = false;
    }
    if (!first)
        printf(" (--session NAME shows another)\n");
}

static enum ms_exit print_text(const struct ms_target *t, const Muster__Status *s)
{
    enum ms_exit code;

    print_session(s);
    print_others(&t->sessions, s->session);
    putchar('\n');
    code = ms_view_print_nodes(s, NODES_SHOWN);
    if (!code && s->is_daemon) {
        putchar('\n');
        code = ms_view_print_drivers(s);
    }
    if (!code && s->n_groups) {
        putchar('\n');
        code = ms_view_print_groups(s);
    }
    putchar('\n');
    return code ? code : ms_view_print_workers(s, WORKERS_SHOWN);
}

enum ms_exit ms_cmd_status(const struct ms_cli *cli)
{
    MS_CLEANUP(ms_target_finish) struct ms_target t;
    Muster__Status *status = NULL;
    enum ms_exit code = ms_target_look(&t, cli, &status);

    if (code)
        return code;
    code =
        ms_cli_has(cli, MS_OPT_JSON) ? print_json(&t, status) : print_text(&t, status);
    muster__status__free_unpacked(status, NULL);
    return code;
}
