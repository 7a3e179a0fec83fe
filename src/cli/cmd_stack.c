/* cmd_stack.c - `muster stack`: where the threads of workers are */
#include "base/cleanup.h"
#include "cli/out.h"
#include "cli/progress.h"
#include "cli/selector.h"
#include "cli/target.h"
#include "wire/client/blocking_call.h"
#include "wire/frame.h"

#include <string.h>

/* The workers that are asked, and what they answered. */
struct stacks {
    const struct ms_cli *cli;
    const struct ms_target *target;
    const Muster__Status *status;
    struct ms_cli_selector selector;
    json_t *answers; /* with --json */
    size_t asked;
    enum ms_exit code; /* of the last that failed */
};

static void print_indented(const char *title, const char *text)
{
    ms_out_style(MS_STYLE_FAINT);
    printf("%s\n", title);
    ms_out_plain();
    if (!text || !text[0])
        puts("  (none)");
    while (text && *text) {
        size_t len = strcspn(text, "\n");

        printf(len ? "  %.*s\n" : "\n", (int)len, text);
        text += len + (text[len] == '\n');
    }
}

static void print_text(const struct stacks *j,
                       const Muster__ClusterStatus *c,
                       const Muster__WorkerStatus *w,
                       const Muster__Stack *stack)
{
    if (j->asked > 1)
        putchar('\n');
    ms_out_style(MS_STYLE_BOLD);
    printf("%s/%u@%s", c->name, w->rank, w->node);
    ms_out_plain();
    printf("  pid %d\n", (int)w->pid);
    print_indented("Python", stack->python);
    print_indented("C", stack->native);
}

/* Its stacks, or (`stack` is NULL) the problem with it. */
static void answer(struct stacks *j,
                   const Muster__ClusterStatus *c,
                   const Muster__WorkerStatus *w,
                   const Muster__Stack *stack,
                   const char *problem)
{
    if (j->answers)
        json_array_append_new(
            j->answers,
            MS_JSON({"cluster", ms_json_string(c->name)},
                    {"rank", json_integer(w->rank)},
                    {"pid", json_integer(w->pid)},
                    {"node", ms_json_string(w->node)},
                    {"python", ms_json_string(stack ? stack->python : NULL)},
                    {"native", ms_json_string(stack ? stack->native : NULL)},
                    {"error", ms_json_string(stack ? NULL : problem)}));
    else if (stack)
        print_text(j, c, w, stack);
    if (stack)
        return;
    j->code = MS_EXIT_UNREACHABLE;
    fflush(stdout);
    fprintf(stderr, "muster stack: %s/%u %s\n", c->name, w->rank, problem);
}

static void ask_worker(struct stacks *j,
                       const Muster__ClusterStatus *c,
                       const Muster__WorkerStatus *w)
{
    MS_CLEANUP(ms_cleanup_free) uint8_t *reply = NULL;
    char problem[sizeof(struct ms_error) + 64] = "";
    struct ms_error err = {0};
    Muster__Stack *stack = NULL;
    struct ms_progress *progress;
    char waiting[MS_NAME_MAX + 48];
    size_t len;
    int rc;

    snprintf(waiting, sizeof waiting, "waiting for %s/%u", c->name, w->rank);
    progress = ms_progress_start(j->cli, waiting);
    rc = ms_blocking_call(w->address,
                          j->target->secret,
                          MS_OP_STACK,
                          NULL,
                          0,
                          j->target->timeout_ns,
                          &reply,
                          &len,
                          &err);
    ms_progress_stop(progress);
    if (rc < 0)
        snprintf(problem,
                 sizeof problem,
                 "does not answer: %s",
                 err.text[0] ? err.text : strerror(-rc));
    else if (!(stack = muster__stack__unpack(NULL, len, reply)))
        snprintf(problem, sizeof problem, "gave an answer that cannot be read");
    answer(j, c, w, stack, problem);
    muster__stack__free_unpacked(stack, NULL);
}

/* A worker that has ended is only worth a word if it was asked for by its rank. */
static void
look_at(struct stacks *j, const Muster__ClusterStatus *c, const Muster__WorkerStatus *w)
{
    char why[256], problem[320];

    if (w->state != MUSTER__WORKER_STATE__WORKER_EXITED) {
        j->asked++;
        ask_worker(j, c, w);
    } else if (j->selector.has_rank) {
        j->asked++;
        snprintf(problem,
                 sizeof problem,
                 "has ended: %s; `muster logs %s/%u` shows what it printed",
                 w->exit ? ms_exit_text(w->exit, why, sizeof why) : "exited",
                 c->name,
                 w->rank);
        answer(j, c, w, NULL, problem);
    }
}

static bool has_cluster(const struct stacks *j, const char *name)
{
    for (size_t i = 0; i < j->status->n_clusters; i++)
        if (strcmp(j->status->clusters[i]->name, name) == 0)
            return true;
    return false;
}

static enum ms_exit fail_nobody(const struct stacks *j)
{
    const struct ms_cli_selector *s = &j->selector;

    if (!s->cluster[0])
        return ms_out_fail(j->cli, MS_EXIT_NOT_FOUND, "no workers run");
    if (!has_cluster(j, s->cluster))
        return ms_out_fail(
            j->cli,
            MS_EXIT_NOT_FOUND,
            "there is no cluster '%s'; `muster status` shows what there is",
            s->cluster);
    if (s->has_rank)
        return ms_out_fail(
            j->cli,
            MS_EXIT_NOT_FOUND,
            "cluster '%s' has no rank %u; `muster status` shows its workers",
            s->cluster,
            s->rank);
    return ms_out_fail(j->cli,
                       MS_EXIT_NOT_FOUND,
                       "no worker of cluster '%s' runs any more",
                       s->cluster);
}

static enum ms_exit ask_all(struct stacks *j)
{
    enum ms_exit code = MS_EXIT_OK;

    for (size_t i = 0; i < j->status->n_clusters; i++) {
        const Muster__ClusterStatus *c = j->status->clusters[i];

        for (size_t k = 0; k < c->n_workers; k++)
            if (ms_cli_selector_matches(&j->selector, c->name, c->workers[k]->rank))
                look_at(j, c, c->workers[k]);
    }
    if (!j->asked)
        return fail_nobody(j);
    if (j->answers)
        code = ms_out_json(MS_JSON({"workers", json_incref(j->answers)}));
    return j->code ? j->code : code;
}

static enum ms_exit parse(struct stacks *j)
{
    bool all = ms_cli_has(j->cli, MS_OPT_ALL);

    if (all == (j->cli->operand_count == 1))
        return ms_out_fail(j->cli,
                           MS_EXIT_USAGE,
                           "say which workers: a cluster, CLUSTER/RANK, or --all%s",
                           all ? ", not both" : "");
    if (all)
        return MS_EXIT_OK;
    return ms_cli_selector_parse(j->cli, j->cli->operands[0], &j->selector);
}

enum ms_exit ms_cmd_stack(const struct ms_cli *cli)
{
    MS_CLEANUP(ms_target_finish) struct ms_target t = {0};
    struct stacks j = {.cli = cli, .target = &t};
    MS_CLEANUP(ms_status_cleanup) Muster__Status *status = NULL;
    enum ms_exit code = parse(&j);

    if (!code)
        code = ms_target_look(&t, cli, false, &status);
    if (code)
        return code;
    j.status = status;
    j.answers = ms_cli_has(cli, MS_OPT_JSON) ? json_array() : NULL;
    code = ask_all(&j);
    json_decref(j.answers);
    return code;
}
