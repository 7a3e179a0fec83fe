/* debug.c - `muster debug`: who waits at a breakpoint, and attaching to one */
#include "cli/debug/debug.h"
#include "base/cleanup.h"
#include "cli/out.h"
#include "cli/selector.h"
#include "wire/client/blocking_call.h"
#include "wire/frame.h"

#include <string.h>

/* Where it waits, and who debugs it; NULL: it could not be asked. */
static Muster__DebugState *look(struct ms_target *t, const Muster__WorkerStatus *w)
{
    MS_CLEANUP(ms_cleanup_free) uint8_t *reply = NULL;
    size_t len;

    /* an empty Debug only looks */
    if (ms_blocking_call(w->address,
                         t->secret,
                         MS_OP_DEBUG,
                         NULL,
                         0,
                         t->timeout_ns,
                         &reply,
                         &len,
                         NULL) < 0)
        return NULL;
    return muster__debug_state__unpack(NULL, len, reply);
}

struct waiting {
    json_t *list; /* with --json */
    size_t count;
};

static void show(struct waiting *all,
                 const Muster__ClusterStatus *c,
                 const Muster__WorkerStatus *w,
                 const Muster__DebugState *m)
{
    all->count++;
    if (all->list)
        json_array_append_new(
            all->list,
            MS_JSON({"cluster", ms_json_string(c->name)},
                    {"rank", json_integer(w->rank)},
                    {"node", ms_json_string(w->node)},
                    {"where", ms_json_string(m->where)},
                    {"client", ms_json_string(m->client[0] ? m->client : NULL)}));
    else
        printf("%s/%u@%s waits at %s%s%s\n",
               c->name,
               w->rank,
               w->node,
               m->where,
               m->client[0] ? "; debugged by " : "",
               m->client);
}

static enum ms_exit list(struct ms_target *t, const Muster__Status *s)
{
    struct waiting all = {.list =
                              ms_cli_has(t->cli, MS_OPT_JSON) ? json_array() : NULL};

    for (size_t i = 0; i < s->n_clusters; i++)
        for (size_t k = 0; k < s->clusters[i]->n_workers; k++) {
            const Muster__WorkerStatus *w = s->clusters[i]->workers[k];
            Muster__DebugState *m =
                w->state == MUSTER__WORKER_STATE__WORKER_EXITED ? NULL : look(t, w);

            if (m && m->is_open)
                show(&all, s->clusters[i], w, m);
            muster__debug_state__free_unpacked(m, NULL);
        }
    if (all.list)
        return ms_out_json(MS_JSON({"workers", all.list}));
    if (!all.count)
        puts("no worker is at a breakpoint()");
    return MS_EXIT_OK;
}

static enum ms_exit attach(struct ms_target *t,
                           const struct ms_cli_selector *which,
                           const Muster__Status *s)
{
    char why[256];

    for (size_t i = 0; i < s->n_clusters; i++)
        for (size_t k = 0; k < s->clusters[i]->n_workers; k++) {
            const Muster__WorkerStatus *w = s->clusters[i]->workers[k];

            if (!ms_cli_selector_matches(which, s->clusters[i]->name, w->rank))
                continue;
            if (w->state != MUSTER__WORKER_STATE__WORKER_EXITED)
                return ms_debug_attach(t, s->clusters[i], w);
            return ms_out_fail(t->cli,
                               MS_EXIT_FAILED,
                               "%s/%u has ended: %s",
                               which->cluster,
                               which->rank,
                               w->exit ? ms_exit_text(w->exit, why, sizeof why)
                                       : "exited");
        }
    return ms_out_fail(t->cli,
                       MS_EXIT_NOT_FOUND,
                       "there is no worker '%s/%u'; `muster debug` shows who waits",
                       which->cluster,
                       which->rank);
}

enum ms_exit ms_cmd_debug(const struct ms_cli *cli)
{
    MS_CLEANUP(ms_target_finish) struct ms_target t = {0};
    MS_CLEANUP(ms_status_cleanup) Muster__Status *status = NULL;
    struct ms_cli_selector which = {0};
    enum ms_exit code = MS_EXIT_OK;

    if (cli->operand_count)
        code = ms_cli_selector_parse(cli, cli->operands[0], &which);
    if (!code && cli->operand_count && !which.has_rank)
        return ms_out_fail(
            cli, MS_EXIT_USAGE, "say which worker: %s/0, for example", which.cluster);
    if (!code)
        code = ms_target_look(&t, cli, false, &status);
    if (code)
        return code;
    return cli->operand_count ? attach(&t, &which, status) : list(&t, status);
}
