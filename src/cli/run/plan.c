/* plan.c - `muster plan`: where the ranks of a job would go */
#include "job/plan.h"
#include "agent/machine/machine.h"
#include "base/cleanup.h"
#include "cli/out.h"
#include "cli/run/run.h"
#include "cli/target.h"
#include "resource/shape.h"
#include "session/job_file.h"

#include <errno.h>

/* Which nodes it is over, said above the map. */
struct nodes {
    size_t count;
    char whose[MS_TARGET_ADDRESS_MAX + 64];
};

static enum ms_exit fail(const struct ms_cli *cli, const struct ms_error *err)
{
    return ms_out_fail(cli, MS_EXIT_FAILED, "%s", err->text);
}

/* ---- nodes ----------------------------------------------------------------------- */

static enum ms_exit
add_described(const struct ms_cli *cli, struct ms_job_plan *p, const struct ms_job *job)
{
    struct ms_error err = {0};
    int32_t cpus = job->node_count ? (int32_t)ms_machine_cpus() : 0;
    uint64_t memory = job->node_count ? ms_machine_memory() : 0;

    for (size_t i = 0; i < job->node_count; i++) {
        Muster__NodeShape *s = job->nodes[i];

        if (s->cpus < 0)
            s->cpus = cpus;
        if (s->memory == 0)
            s->memory = memory;
        if (ms_books_node_came(&p->books, s, &err) < 0)
            return fail(cli, &err);
    }
    return MS_EXIT_OK;
}

/* Those that live, and what is held of them. */
static enum ms_exit add_running(const struct ms_cli *cli,
                                struct ms_job_plan *p,
                                const Muster__Status *s,
                                size_t *count)
{
    struct ms_error err = {0};

    for (size_t i = 0; i < s->n_nodes; i++)
        if (s->nodes[i]->alive && s->nodes[i]->shape) {
            if (ms_books_node_came(&p->books, s->nodes[i]->shape, &err) < 0)
                return fail(cli, &err);
            (*count)++;
        }
    for (size_t i = 0; i < s->n_clusters; i++)
        for (size_t k = 0; k < s->clusters[i]->n_workers; k++) {
            const Muster__WorkerStatus *w = s->clusters[i]->workers[k];

            if (w->state != MUSTER__WORKER_STATE__WORKER_EXITED &&
                ms_job_plan_add_worker(p, s->clusters[i]->name, w) == -ENOMEM)
                return ms_out_fail(cli, MS_EXIT_FAILED, "out of memory");
        }
    return MS_EXIT_OK;
}

static enum ms_exit
ask_head(const struct ms_cli *cli, struct ms_job_plan *p, struct nodes *n)
{
    MS_CLEANUP(ms_target_finish) struct ms_target t;
    MS_CLEANUP(ms_status_cleanup) Muster__Status *status = NULL;
    enum ms_exit code = ms_target_look(&t, cli, false, &status);

    snprintf(n->whose, sizeof n->whose, "%s", t.who);
    return code ? code : add_running(cli, p, status, &n->count);
}

static enum ms_exit
look_here(const struct ms_cli *cli, struct ms_job_plan *p, struct nodes *n)
{
    MS_CLEANUP(ms_shape_cleanup) Muster__NodeShape *s = NULL;
    struct ms_error err = {0};

    s = ms_machine_shape("localhost", NULL, &err);
    if (!s || ms_books_node_came(&p->books, s, &err) < 0)
        return fail(cli, &err);
    n->count = 1;
    snprintf(n->whose, sizeof n->whose, "this machine");
    return MS_EXIT_OK;
}

/* Is there a head to ask: one that was named, or one that runs here? */
static bool is_head_here(const struct ms_cli *cli)
{
    MS_CLEANUP(ms_sessions_finish) struct ms_sessions all = {0};

    if (ms_target_is_remote(cli) || ms_cli_has(cli, MS_OPT_SESSION))
        return true; /* it was named: if it does not run, that is an error */
    if (ms_sessions_init(&all, cli))
        return false;
    for (size_t i = 0; i < all.count; i++)
        if (all.all[i].alive)
            return true;
    return false;
}

static enum ms_exit add_nodes(const struct ms_cli *cli,
                              struct ms_job_plan *p,
                              const struct ms_job *job,
                              struct nodes *n)
{
    if (job->has_nodes) {
        n->count = job->node_count;
        snprintf(n->whose, sizeof n->whose, "%s", cli->operands[0]);
        return add_described(cli, p, job);
    }
    return is_head_here(cli) ? ask_head(cli, p, n) : look_here(cli, p, n);
}

/* ---- the answer ------------------------------------------------------------------ */

static enum ms_exit
print_plan(const struct ms_cli *cli, const struct ms_job_plan *p, const struct nodes *n)
{
    struct ms_buf text = {0};
    int rc;

    if (ms_cli_has(cli, MS_OPT_JSON))
        return ms_out_json(ms_job_plan_json(p));
    rc = ms_job_plan_print(p, &text);
    if (rc == 0)
        printf("%zu node%s of %s, %u device%s\n\n%s",
               n->count,
               n->count == 1 ? "" : "s",
               n->whose,
               ms_scope_devices(&p->scope),
               ms_scope_devices(&p->scope) == 1 ? "" : "s",
               ms_buf_str(&text));
    ms_buf_finish(&text);
    return rc == 0 ? MS_EXIT_OK : ms_out_fail(cli, MS_EXIT_FAILED, "out of memory");
}

/* The sentence, and the table that a PlacementError has. */
static enum ms_exit
print_misfit(const struct ms_cli *cli, struct ms_buf *table, const struct ms_error *err)
{
    if (err->code != -ENOSPC && err->code != -EINVAL && err->code != -EAGAIN &&
        err->code != -EBUSY)
        return fail(cli, err);
    if (ms_cli_has(cli, MS_OPT_JSON)) {
        fprintf(stderr, "muster %s: %s\n", cli->command->name, err->text);
        ms_out_json(MS_JSON(
            {"error",
             MS_JSON({"exit_code", json_integer(MS_EXIT_NO_ROOM)},
                     {"message", ms_json_string(err->text)},
                     {"table", ms_json_string(table->len ? ms_buf_str(table) : "")})}));
        return MS_EXIT_NO_ROOM;
    }
    ms_out_fail(cli, MS_EXIT_NO_ROOM, "%s", err->text);
    if (table->len)
        fprintf(stderr, "%s", ms_buf_str(table));
    return MS_EXIT_NO_ROOM;
}

enum ms_exit ms_plan_answer(const struct ms_cli *cli,
                            int rc,
                            struct ms_buf *table,
                            const struct ms_error *err)
{
    if (rc == 0)
        return MS_EXIT_OK;
    return rc == -EINVAL && table->len == 0
               ? ms_out_fail(cli, MS_EXIT_USAGE, "%s", err->text)
               : print_misfit(cli, table, err);
}

enum ms_exit ms_plan_check(const struct ms_cli *cli,
                           const struct ms_job *job,
                           const Muster__NodeShape *const *nodes,
                           size_t count)
{
    MS_CLEANUP(ms_job_plan_finish) struct ms_job_plan plan;
    MS_CLEANUP(ms_buf_finish) struct ms_buf table = {0};
    struct ms_error err = {0};

    ms_job_plan_init(&plan);
    for (size_t i = 0; i < count; i++)
        if (ms_books_node_came(&plan.books, nodes[i], &err) < 0)
            return fail(cli, &err);
    if (ms_job_plan_make(&plan, job, &table, &err) < 0)
        return print_misfit(cli, &table, &err);
    return MS_EXIT_OK;
}

enum ms_exit ms_cmd_plan(const struct ms_cli *cli)
{
    MS_CLEANUP(ms_job_finish) struct ms_job job = {0};
    MS_CLEANUP(ms_job_plan_finish) struct ms_job_plan plan;
    struct ms_error err = {0};
    MS_CLEANUP(ms_buf_finish) struct ms_buf table = {0};
    struct nodes nodes = {0};
    enum ms_exit code;

    ms_job_plan_init(&plan);
    if (cli->operand_count != 1)
        return ms_out_fail(
            cli, MS_EXIT_USAGE, "which FILE? `muster help plan` has one");
    if (ms_job_file_read(&job, cli->operands[0], &err) < 0)
        return ms_out_fail(cli, MS_EXIT_USAGE, "%s", err.text);
    code = add_nodes(cli, &plan, &job, &nodes);
    if (code)
        return code;
    if (ms_job_plan_make(&plan, &job, &table, &err) < 0)
        return print_misfit(cli, &table, &err);
    return print_plan(cli, &plan, &nodes);
}
