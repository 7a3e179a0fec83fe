/* look.c - `list jobs`, `get job/NAME`, `wait` and `events` */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/proto.h"
#include "cli/jobs/jobs.h"
#include "cli/out.h"
#include "cli/view.h"
#include "head/rest/message_json.h"
#include "job/core/spec.h"

#include <errno.h>
#include <string.h>
#include <time.h>

/* One question; the head answers earlier when there is something. */
#define ASK_NS (10 * MS_NS_PER_S)
/* For each job in a list whose head is elsewhere. */
#define ELSEWHERE_NS (3 * MS_NS_PER_S)

static void status_cleanup(Muster__JobStatus **s)
{
    muster__job_status__free_unpacked(*s, NULL);
}

json_t *ms_jobs_json(const Muster__JobStatus *s)
{
    return ms_message_print(&s->base);
}

static const char *style_of(const Muster__JobStatus *s)
{
    if (!s->is_over)
        return strcmp(s->stage, "running") == 0 ? MS_STYLE_GOOD : MS_STYLE_WARN;
    return s->code ? MS_STYLE_BAD : NULL;
}

/* ---- list -------------------------------------------------------------------------- */

static void add_row(struct ms_grid *g, const Muster__JobStatus *s)
{
    uint64_t end_ns = s->ended_ns ? s->ended_ns : (uint64_t)ms_wall_ns();
    unsigned running = 0, wanted = 0;
    char age[24];

    for (size_t i = 0; i < s->n_roles; i++) {
        running += s->roles[i]->running;
        wanted += s->roles[i]->wanted;
    }
    ms_grid_add(g, NULL, "%s", s->name);
    ms_grid_add(g, style_of(s), "%s", s->stage);
    ms_grid_add(g, NULL, "%u/%u", running, wanted);
    ms_grid_add(g, NULL, "%s", s->driver_runs ? "runs" : "-");
    ms_grid_add(g, NULL, "%u", s->attempt);
    ms_grid_add(g, NULL, "%d", s->priority);
    ms_grid_add(
        g,
        NULL,
        "%s",
        ms_out_duration(end_ns > s->submitted_ns ? end_ns - s->submitted_ns : 0, age));
    ms_grid_add(g, NULL, "%.60s", s->text[0] ? s->text : "-");
}

/* One whose head is elsewhere; what does not answer is said. NULL: out of memory. */
static Muster__JobStatus *look_elsewhere(const struct ms_cli *cli,
                                         const struct ms_job_elsewhere *e)
{
    MS_CLEANUP(ms_target_finish) struct ms_target t = {0};
    Muster__JobRef want = MUSTER__JOB_REF__INIT;
    Muster__JobStatus gone = MUSTER__JOB_STATUS__INIT;
    ProtobufCMessage *answer = NULL;
    struct ms_error why = {0};
    char stage[] = "not reached";

    ms_target_init_jobs(&t, cli, &e->head);
    t.timeout_ns = ELSEWHERE_NS;
    want.name = (char *)(uintptr_t)e->job;
    if (ms_target_try(&t,
                      MUSTER__DRIVER_TO_HEAD__BODY_GET_JOB,
                      &want.base,
                      ELSEWHERE_NS,
                      &answer,
                      &why) == 0)
        return (Muster__JobStatus *)answer;
    gone.name = (char *)(uintptr_t)e->job;
    gone.stage = stage;
    gone.text = why.text;
    gone.submitted_ns = (uint64_t)ms_wall_ns();
    return (Muster__JobStatus *)ms_proto_copy(&gone.base);
}

static enum ms_exit add_elsewhere(const struct ms_cli *cli,
                                  const struct ms_job_elsewhere *list,
                                  int count,
                                  Muster__Jobs *all)
{
    for (int i = 0; i < count; i++)
        if (!ms_proto_append(&all->jobs, &all->n_jobs, look_elsewhere(cli, &list[i])))
            return ms_out_fail(cli, MS_EXIT_FAILED, "out of memory");
    return MS_EXIT_OK;
}

/* Those of the head here, unless there is none and others are elsewhere. */
static enum ms_exit
ask_here(const struct ms_cli *cli, bool may_lack, ProtobufCMessage **answer)
{
    MS_CLEANUP(ms_target_finish) struct ms_target t = {0};
    Muster__ListJobs want = MUSTER__LIST_JOBS__INIT;
    struct ms_jobs_absent absent = {0};
    struct ms_jobs_head here;
    enum ms_exit code;

    if (may_lack && ms_jobs_head_find(NULL, &here, &absent, NULL) == -ENOENT) {
        *answer = (ProtobufCMessage *)ms_proto_create(&muster__jobs__descriptor);
        return *answer ? MS_EXIT_OK : ms_out_fail(cli, MS_EXIT_FAILED, "out of memory");
    }
    code = ms_jobs_target(&t, cli, NULL, false);
    return code ? code
                : ms_jobs_ask(
                      &t, MUSTER__DRIVER_TO_HEAD__BODY_LIST_JOBS, &want.base, answer);
}

enum ms_exit ms_jobs_list(const struct ms_cli *cli)
{
    MS_CLEANUP(ms_cleanup_free) struct ms_job_elsewhere *elsewhere = NULL;
    ProtobufCMessage *answer = NULL;
    Muster__Jobs *all;
    bool is_named = ms_target_is_remote(cli) || ms_cli_has(cli, MS_OPT_SESSION);
    int count = is_named ? 0 : ms_jobs_elsewhere_list(&elsewhere, NULL);
    enum ms_exit code = ask_here(cli, count > 0, &answer);
    struct ms_grid g;

    all = (Muster__Jobs *)answer;
    if (!code)
        code = add_elsewhere(cli, elsewhere, count, all);
    if (elsewhere)
        explicit_bzero(elsewhere, (size_t)(count > 0 ? count : 0) * sizeof *elsewhere);
    if (code)
        return code;
    if (ms_cli_has(cli, MS_OPT_JSON)) {
        json_t *list = json_array();

        for (size_t i = 0; i < all->n_jobs; i++)
            json_array_append_new(list, ms_jobs_json(all->jobs[i]));
        code = ms_out_json(list);
    } else {
        ms_view_grid(&g, "lllrrrll", "JOB|STAGE|RANKS|DRIVER|ATTEMPT|PRIORITY|AGE|WHY");
        for (size_t i = 0; i < all->n_jobs; i++)
            add_row(&g, all->jobs[i]);
        code = ms_out_grid(&g);
    }
    protobuf_c_message_free_unpacked(answer, NULL);
    return code;
}

/* ---- get --------------------------------------------------------------------------- */

static enum ms_exit print_roles(const Muster__JobStatus *s)
{
    struct ms_grid g;

    if (!s->n_roles)
        return MS_EXIT_OK;
    putchar('\n');
    ms_view_grid(&g, "lrrrrll", "ROLE|RUNNING|SIZE|WANTED|RESTARTS|DOING|LAST FAILURE");
    for (size_t i = 0; i < s->n_roles; i++) {
        const Muster__JobRoleStatus *r = s->roles[i];
        const char *what;
        int len;

        ms_grid_add(&g, NULL, "%s", r->name);
        ms_grid_add(&g, NULL, "%u", r->running);
        ms_grid_add(&g, NULL, "%u", r->size);
        ms_grid_add(&g, NULL, "%u", r->wanted);
        ms_grid_add(&g, NULL, "%u", r->restarts);
        ms_grid_add(&g, NULL, "%s", r->doing[0] ? r->doing : "-");
        what = ms_job_last_line(r->text, &len);
        ms_grid_add(&g, NULL, "%.*s", len, what);
    }
    return ms_out_grid(&g);
}

static enum ms_exit print_job(const Muster__JobStatus *s)
{
    printf("job       %s\n", s->name);
    printf("stage     %s", s->stage);
    if (s->is_over)
        printf(" (exit code %d)", s->code);
    printf("\n");
    if (s->cause[0])
        printf("cause     %s\n", s->cause);
    if (s->text[0])
        printf("why       %s\n", s->text);
    if (s->journal[0])
        printf("journal   %s\n", s->journal);
    printf("driver    %s, attempt %u\n",
           s->driver_runs ? "runs" : "does not run",
           s->attempt);
    printf("on        %s", s->on);
    for (size_t i = 0; i < s->n_nodes; i++)
        printf("%s%s", i ? ", " : ": ", s->nodes[i]);
    printf("\nfolder    %s\n", s->folder);
    return print_roles(s);
}

enum ms_exit ms_jobs_get(const struct ms_cli *cli, const char *name)
{
    MS_CLEANUP(ms_target_finish) struct ms_target t = {0};
    MS_CLEANUP(status_cleanup) Muster__JobStatus *s = NULL;
    Muster__JobRef want = MUSTER__JOB_REF__INIT;
    ProtobufCMessage *answer = NULL;
    enum ms_exit code = ms_jobs_target(&t, cli, name, false);

    want.name = (char *)(uintptr_t)name;
    if (!code)
        code =
            ms_jobs_ask(&t, MUSTER__DRIVER_TO_HEAD__BODY_GET_JOB, &want.base, &answer);
    if (code)
        return code;
    s = (Muster__JobStatus *)answer;
    return ms_cli_has(cli, MS_OPT_JSON) ? ms_out_json(ms_jobs_json(s)) : print_job(s);
}

/* ---- wait -------------------------------------------------------------------------- */

/* A head that is away is waited for: its watchdog starts it again. */
static enum ms_exit ask_wait(struct ms_target *t,
                             const char *name,
                             int64_t until_ns,
                             Muster__JobStatus **out)
{
    Muster__WaitJob want = MUSTER__WAIT_JOB__INIT;
    ProtobufCMessage *answer = NULL;
    enum ms_exit code;

    want.name = (char *)(uintptr_t)name;
    for (;;) {
        int64_t left_ns = until_ns - ms_now_ns();

        want.wait_ns = (uint64_t)(left_ns < 1        ? 1
                                  : left_ns < ASK_NS ? left_ns
                                                     : ASK_NS);
        muster__job_status__free_unpacked(*out, NULL);
        *out = NULL;
        code =
            ms_jobs_ask(t, MUSTER__DRIVER_TO_HEAD__BODY_WAIT_JOB, &want.base, &answer);
        if (code)
            return code;
        *out = (Muster__JobStatus *)answer;
        if ((*out)->is_over || left_ns <= 0)
            return MS_EXIT_OK;
    }
}

enum ms_exit ms_cmd_wait(const struct ms_cli *cli)
{
    MS_CLEANUP(ms_target_finish) struct ms_target t = {0};
    MS_CLEANUP(status_cleanup) Muster__JobStatus *s = NULL;
    int64_t seconds = ms_cli_number(cli, MS_OPT_TIMEOUT, 0);
    int64_t until_ns = seconds ? ms_now_ns() + seconds * MS_NS_PER_S : MS_NEVER;
    struct ms_cli patient = *cli;
    enum ms_exit code;

    if (cli->operand_count != 1)
        return ms_out_fail(cli, MS_EXIT_USAGE, "which job? muster wait NAME");
    patient.values[MS_OPT_TIMEOUT] = NULL; /* of all questions together */
    code = ms_jobs_target(&t, &patient, cli->operands[0], false);
    t.timeout_ns = 2 * ASK_NS;
    if (!code)
        code = ask_wait(&t, cli->operands[0], until_ns, &s);
    if (code)
        return code;
    if (!s->is_over)
        return ms_out_fail(cli,
                           MS_EXIT_FAILED,
                           "job '%s' is %s after %lld s",
                           s->name,
                           s->stage,
                           (long long)seconds);
    if (ms_cli_has(cli, MS_OPT_JSON))
        ms_out_json(ms_jobs_json(s));
    else if (s->code)
        fprintf(
            stderr, "muster wait: job '%s' has %s: %s\n", s->name, s->stage, s->text);
    return (enum ms_exit)s->code;
}

/* ---- events ------------------------------------------------------------------------ */

static void print_event(const Muster__JobEvent *e)
{
    time_t seconds = (time_t)(e->time_ns / (uint64_t)MS_NS_PER_S);
    const char *style = strcmp(e->level, "error") == 0     ? MS_STYLE_BAD
                        : strcmp(e->level, "warning") == 0 ? MS_STYLE_WARN
                                                           : NULL;
    char when[32], who[2 * MS_NAME_MAX] = "";
    struct tm tm;

    localtime_r(&seconds, &tm);
    strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S", &tm);
    if (e->role[0] && e->rank >= 0)
        snprintf(who, sizeof who, "%s/%d: ", e->role, e->rank);
    else if (e->role[0])
        snprintf(who, sizeof who, "%s: ", e->role);
    printf("%s.%03u  ", when, (unsigned)(e->time_ns / 1000000 % 1000));
    if (style)
        ms_out_style(style);
    if (!strstr(e->text, e->role)) /* the text names it as a rule */
        fputs(who, stdout);
    for (const char *c = e->text; *c; c++) {
        putchar(*c == '\n' || (unsigned char)*c >= ' ' ? *c : '?');
        if (*c == '\n')
            fputs("                           ", stdout);
    }
    if (style)
        ms_out_plain();
    putchar('\n');
}

static enum ms_exit print_events(const struct ms_cli *cli, const Muster__JobEvents *all)
{
    for (size_t i = 0; i < all->n_events; i++) {
        json_t *o;

        if (!ms_cli_has(cli, MS_OPT_JSON)) {
            print_event(all->events[i]);
            continue;
        }
        o = ms_message_print(&all->events[i]->base);
        if (o && json_dumpf(o, stdout, JSON_COMPACT) == 0)
            putchar('\n');
        json_decref(o);
    }
    fflush(stdout);
    return MS_EXIT_OK;
}

enum ms_exit ms_cmd_events(const struct ms_cli *cli)
{
    MS_CLEANUP(ms_target_finish) struct ms_target t = {0};
    Muster__AskJobEvents want = MUSTER__ASK_JOB_EVENTS__INIT;
    bool follow = ms_cli_has(cli, MS_OPT_FOLLOW), is_over = false;
    enum ms_exit code;

    if (cli->operand_count != 1)
        return ms_out_fail(cli, MS_EXIT_USAGE, "which job? muster events NAME");
    code = ms_jobs_target(&t, cli, cli->operands[0], false);
    t.timeout_ns = 2 * ASK_NS;
    want.name = (char *)(uintptr_t)cli->operands[0];
    want.wait_ns = follow ? (uint64_t)ASK_NS : 0;
    while (!code && !is_over) {
        ProtobufCMessage *answer = NULL;
        const Muster__JobEvents *all;

        code = ms_jobs_ask(
            &t, MUSTER__DRIVER_TO_HEAD__BODY_JOB_EVENTS, &want.base, &answer);
        if (code)
            break;
        all = (const Muster__JobEvents *)answer;
        code = print_events(cli, all);
        if (all->n_events)
            want.after = all->events[all->n_events - 1]->number;
        is_over = all->is_over || (!follow && all->n_events == 0);
        protobuf_c_message_free_unpacked(answer, NULL);
    }
    return code;
}
