/* cmd_head.c - `muster head`: the head of several machines, as a daemon */
#include "cli/args.h"
#include "cli/head_events.h"
#include "cli/out.h"
#include "head/head.h"
#include "io/proc.h"
#include "io/session/secret.h"

#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Takes `event`. */
static void print_line(json_t *event)
{
    if (event && json_dumpf(event, stdout, JSON_COMPACT) == 0)
        putchar('\n');
    fflush(stdout);
    json_decref(event);
}

/* One object a line. */
static void announce_json(const struct ms_head *h)
{
    const struct ms_session *s = ms_head_session(h);
    json_t *at = json_array();

    for (const char *const *a = ms_head_addresses(h); *a; a++)
        json_array_append_new(at, json_string(*a));
    print_line(MS_JSON({"event", json_string("listening")},
                       {"session", json_string(s->name)},
                       {"addresses", at},
                       {"http", json_string(ms_head_http_address(h))},
                       {"secret_file", json_sprintf("%s/secret", s->dir)}));
}

static void announce(const struct ms_head *h)
{
    const struct ms_session *s = ms_head_session(h);
    const char *const *at = ms_head_addresses(h);

    printf("muster head: session %s, listening on ", s->name);
    for (size_t i = 0; at[i]; i++)
        printf("%s%s", i ? ", " : "", at[i]);
    if (*ms_head_http_address(h))
        printf("\nmuster head: HTTP on %s", ms_head_http_address(h));
    printf(
        "\nmuster head: the secret is in %s/secret; copy that file (mode 0600) to the "
        "other machines\n",
        s->dir);
    fflush(stdout);
}

/* By `muster stop session`: ends as if a service manager had stopped it. */
static void on_stop_asked(void *arg)
{
    (void)arg;
    kill(getpid(), SIGTERM);
}

static void block_signals(sigset_t *awaited)
{
    sigemptyset(awaited);
    sigaddset(awaited, SIGINT);
    sigaddset(awaited, SIGTERM);
    sigaddset(awaited, SIGALRM);
    sigprocmask(SIG_BLOCK, awaited, NULL);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a file that may not grow is an error of its write */
}

static int wait_for_end(const sigset_t *awaited, struct ms_head_events *events)
{
    int number = 0;

    while (sigwait(awaited, &number) != 0 || number == SIGALRM)
        ms_head_events_end_period(events);
    return number;
}

enum ms_exit ms_cmd_head(const struct ms_cli *cli)
{
    const char *const listen[] = {cli->values[MS_OPT_LISTEN], NULL};
    const char *secret_file = cli->values[MS_OPT_SECRET_FILE];
    const char *tls = cli->values[MS_OPT_TLS];
    char muster[PATH_MAX] = "";
    struct ms_head_serve_options o = {
        .name = cli->values[MS_OPT_NAME],
        .secret_file = secret_file ? secret_file : getenv(MS_SECRET_FILE_ENV),
        .listen = listen,
        .http = cli->values[MS_OPT_HTTP],
        .http_open_metrics = ms_cli_has(cli, MS_OPT_OPEN_METRICS),
        .link_grace_ns = ms_cli_number(cli, MS_OPT_LINK_GRACE, 0) * MS_NS_PER_S,
        .head_grace_ns = ms_cli_number(cli, MS_OPT_HEAD_GRACE, 0) * MS_NS_PER_S,
        .on_stop_asked = on_stop_asked,
        .agent_path = muster,
    };
    bool json = ms_cli_has(cli, MS_OPT_JSON);
    struct ms_head_events events;
    Muster__StoreConfig store;
    struct ms_error err = {0};
    struct ms_head *h;
    struct rlimit files;
    sigset_t awaited;
    int end;

    if (readlink("/proc/self/exe", muster, sizeof muster - 1) < 0)
        return ms_out_fail(cli, MS_EXIT_FAILED, "cannot find this program");
    if (ms_tls_mode_parse(tls ? tls : "auto", &o.tls, &err) < 0 ||
        ms_args_store(cli, &store, &err) < 0)
        return ms_out_fail(cli, MS_EXIT_USAGE, "%s", err.text);
    o.store = &store;
    if (ms_head_events_init(&events) < 0)
        return ms_out_fail(cli, MS_EXIT_FAILED, "out of memory");
    o.arg = &events;
    if (!json) {
        o.on_node = ms_head_events_on_node;
        o.on_driver = ms_head_events_on_driver;
    }
    block_signals(&awaited);
    ms_nofile_raise(&files); /* a connection is a descriptor; there may be thousands */
    h = ms_head_serve(&o, &err);
    if (!h) {
        ms_head_events_finish(&events);
        return ms_out_fail(cli, MS_EXIT_FAILED, "%s", err.text);
    }
    if (json)
        announce_json(h);
    else
        announce(h);
    end = wait_for_end(&awaited, &events);
    if (json)
        print_line(json_pack("{s:s}", "event", "ending"));
    else
        printf("muster head: ending (SIG%s)\n", sigabbrev_np(end));
    fflush(stdout);
    ms_head_stop(h, MS_STOP_GRACE_NS);
    ms_head_events_finish(&events);
    return MS_EXIT_OK;
}
