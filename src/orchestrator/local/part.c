/* part.c - the agent of a gang on one node: its start, what it lends, and its end */
#include "base/cleanup.h"
#include "base/proto.h"
#include "orchestrator/local/local_impl.h"
#include "resource/shape.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_ROOM = 4096 };

/* ---- how it ended ------------------------------------------------------------------ */

static enum ms_cause cause_of(struct part *p, const struct ms_process_end *end)
{
    bool is_kill = end->known && end->signaled && end->code == SIGKILL;

    if (p->is_stopping)
        return MS_CAUSE_RELEASED;
    if (is_kill && ms_cgroups_killed_here(&p->gang->local->cgroups))
        return MS_CAUSE_OUT_OF_MEMORY;
    if (!p->is_ready)
        return MS_CAUSE_REFUSED;
    if (!end->known)
        return MS_CAUSE_UNKNOWN;
    return end->signaled ? MS_CAUSE_SIGNALED : MS_CAUSE_EXITED;
}

/* What it holds is given back. */
static void give_back(struct part *p)
{
    struct gang *g = p->gang;

    for (size_t i = 0; i < g->pieces.count; i++)
        if (g->placement.nodes[i] == p->node)
            ms_bundle_give(&g->pieces.bundles[i],
                           &g->local->nodes.stock.nodes[p->node],
                           g->placement.devices + g->placement.first[i]);
    p->is_alive = false;
    p->is_over = true;
    g->local->has_room = true;
}

static void has_ended(struct part *p, enum ms_cause cause, int code, const char *detail)
{
    give_back(p);
    ms_gang_tell(p->gang,
                 p->node,
                 &(struct ms_lent_piece){.phase = MS_PHASE_ENDED,
                                         .cause = cause,
                                         .code = code,
                                         .agent = p->name,
                                         .detail = detail});
    ms_controller_wake(&p->gang->local->controller);
}

static void on_ended(void *arg, const struct ms_process_end *end)
{
    struct part *p = arg;
    const char *log_dir = p->gang->local->log_dir;
    char how[64], detail[MS_ORCH_DETAIL_MAX];

    snprintf(detail,
             sizeof detail,
             "the agent %s%s%s%.120s%s%.60s%s",
             ms_process_end_print(end, how, sizeof how),
             p->is_ready ? "" : " before it had joined",
             log_dir && !p->is_stopping ? ": see " : "",
             log_dir && !p->is_stopping ? log_dir : "",
             log_dir && !p->is_stopping ? "/agent-" : "",
             log_dir && !p->is_stopping ? p->name : "",
             log_dir && !p->is_stopping ? ".log" : "");
    has_ended(p, cause_of(p, end), end->code, detail);
    ms_gang_file_write(p->gang->local, NULL);
}

static void on_ready(void *arg)
{
    struct part *p = arg;

    p->is_ready = true;
    ms_gang_tell(p->gang,
                 p->node,
                 &(struct ms_lent_piece){.phase = MS_PHASE_RUNNING, .agent = p->name});
    ms_controller_wake(&p->gang->local->controller);
}

/* ---- what it is to lend ------------------------------------------------------------- */

/* Devices that nobody has marked go; the order stays. */
static void keep_devices(Muster__NodeShape *s, const bool *is_held)
{
    size_t kept = 0;

    for (size_t i = 0; i < s->n_devices; i++)
        if (is_held[i])
            s->devices[kept++] = s->devices[i];
        else
            muster__device__free_unpacked(s->devices[i], NULL);
    s->n_devices = kept;
}

static void keep_resources(Muster__NodeShape *s, const uint64_t *held)
{
    size_t kept = 0;

    for (size_t i = 0; i < s->n_resources; i++)
        if (held[i] > 0) {
            s->resources[i]->amount = held[i];
            s->resources[kept++] = s->resources[i];
        } else {
            muster__named_amount__free_unpacked(s->resources[i], NULL);
        }
    s->n_resources = kept;
}

static void
add_resources(const Muster__NodeShape *s, const struct ms_bundle *b, uint64_t *held)
{
    for (size_t i = 0; i < b->extra_count; i++)
        for (size_t k = 0; k < s->n_resources; k++)
            if (strcmp(s->resources[k]->name, b->extras[i].name) == 0)
                held[k] += b->extras[i].amount;
}

/* Of its node only what the pieces of this part hold. 0, -ENOMEM. */
static int cut(Muster__NodeShape *s, const struct part *p)
{
    const struct gang *g = p->gang;
    MS_CLEANUP(ms_cleanup_free) bool *is_held = calloc(s->n_devices + 1, sizeof(bool));
    MS_CLEANUP(ms_cleanup_free)
    uint64_t *held = calloc(s->n_resources + 1, sizeof *held);
    uint64_t cpu_milli = 0, memory = 0;

    if (!is_held || !held)
        return -ENOMEM;
    for (size_t i = 0; i < g->pieces.count; i++) {
        const struct ms_bundle *b = &g->pieces.bundles[i];

        if (g->placement.nodes[i] != p->node)
            continue;
        cpu_milli += b->cpu_milli;
        memory += b->memory;
        for (uint32_t k = g->placement.first[i]; k < g->placement.first[i + 1]; k++)
            is_held[g->placement.devices[k]] = true;
        add_resources(s, b, held);
    }
    if (cpu_milli > 0)
        s->cpus = (int32_t)((cpu_milli + MS_WHOLE_MILLI - 1) / MS_WHOLE_MILLI);
    if (memory > 0)
        s->memory = memory;
    keep_devices(s, is_held);
    keep_resources(s, held);
    return 0;
}

/* malloc'd; NULL: out of memory. */
static uint8_t *pack_shape(const struct part *p, size_t *len)
{
    MS_CLEANUP(ms_shape_cleanup)
    Muster__NodeShape *s = ms_shape_copy(p->gang->local->nodes.shapes[p->node]);

    if (!s || ms_shape_set_name(s, p->name) < 0 || cut(s, p) < 0)
        return NULL;
    return ms_proto_packed(&s->base, len);
}

/* ---- starting ---------------------------------------------------------------------- */

static bool is_taken(const struct local *l, const char *name)
{
    ms_list_each (g, &l->gangs, struct gang, link)
        ms_list_each (p, &g->parts, struct part, link)
            if (p->is_alive && strcmp(p->name, name) == 0)
                return true;
    return false;
}

/* Its node's, or that with a number if others are there. */
static void make_name(struct part *p)
{
    const struct local *l = p->gang->local;
    const char *node = l->nodes.stock.nodes[p->node].name;

    if (snprintf(p->name, sizeof p->name, "%s%s", l->agent_prefix, node) >=
        (int)sizeof p->name)
        p->name[sizeof p->name - 1] = 0;
    for (unsigned i = 2; is_taken(l, p->name); i++)
        snprintf(p->name, sizeof p->name, "%.20s%.30s.%u", l->agent_prefix, node, i);
}

static const struct ms_agent_process_events events = {on_ready, on_ended};

static int start(struct part *p, struct ms_error *err)
{
    const struct local *l = p->gang->local;
    const struct ms_agent_start *s = &p->gang->start;
    char log_path[PATH_ROOM];
    size_t len = 0;
    MS_CLEANUP(ms_cleanup_free) uint8_t *shape = pack_shape(p, &len);

    if (!shape)
        return ms_error_set(err, -ENOMEM, "out of memory");
    if (l->log_dir)
        snprintf(log_path, sizeof log_path, "%s/agent-%s.log", l->log_dir, p->name);
    return ms_agent_process_start(
        &p->agent,
        l->loop,
        &(struct ms_agent_process_spec){.prefix =
                                            (const char *const *)l->prefixes[p->node],
                                        .path = l->agent_path,
                                        .head = s->head,
                                        .secret_file = s->secret_file,
                                        .name = p->name,
                                        .shape = shape,
                                        .shape_len = len,
                                        .env = s->env,
                                        .log_path = l->log_dir ? log_path : NULL,
                                        .end_with = l->end_with},
        &events,
        p,
        err);
}

int ms_part_create(struct gang *g, uint32_t node)
{
    struct part *p = calloc(1, sizeof *p);

    if (!p)
        return -ENOMEM;
    p->gang = g;
    p->node = node;
    p->agent.process.pidfd = -1;
    make_name(p);
    for (size_t i = 0; i < g->pieces.count; i++)
        p->left += g->placement.nodes[i] == node && !g->is_released[i];
    ms_list_add_tail(&g->parts, &p->link);
    return 0;
}

void ms_part_start(struct part *p, const struct ms_error *why_not)
{
    struct ms_error why = why_not ? *why_not : (struct ms_error){0};

    p->is_alive = true;
    ms_gang_tell(p->gang,
                 p->node,
                 &(struct ms_lent_piece){.phase = MS_PHASE_STARTING, .agent = p->name});
    if (why_not || start(p, &why) < 0)
        has_ended(p, MS_CAUSE_REFUSED, 0, why.text);
    else
        ms_supervisor_name(p->agent.process.pid, p->process);
}

void ms_part_adopt(struct part *p, pid_t pid)
{
    p->is_alive = p->is_ready = true;
    if (pid > 0 &&
        ms_agent_process_adopt(&p->agent, p->gang->local->loop, pid, &events, p) == 0) {
        ms_supervisor_name(pid, p->process);
        ms_gang_tell(
            p->gang,
            p->node,
            &(struct ms_lent_piece){.phase = MS_PHASE_RUNNING, .agent = p->name});
        if (p->left == 0)
            ms_part_stop(p);
        return;
    }
    p->agent.process.pidfd = -1;
    has_ended(p, MS_CAUSE_UNKNOWN, 0, "the agent ended while no controller was there");
}

void ms_part_stop(struct part *p)
{
    if (!p->is_alive || p->is_stopping)
        return;
    p->is_stopping = true;
    ms_agent_process_stop(&p->agent, p->gang->local->grace_ns);
}

void ms_part_destroy(struct part *p)
{
    ms_agent_process_finish(&p->agent, ms_now_ns() + p->gang->local->grace_ns);
    ms_list_remove(&p->link);
    free(p);
}
