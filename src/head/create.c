#include "base/cleanup.h"
#include "base/name.h"
#include "cluster/copy.h"
#include "cluster/status.h"
#include "head/state.h"

#include <errno.h>
#include <string.h>

static void create_failed(struct ms_head_op *op)
{
    struct ms_cluster *c = MS_TAKE(op->cluster);

    if (c)
        ms_head_cluster_forget(op->head, c);
}

/* They run, but we cannot keep them. */
static void give_up_create(struct ms_head_op *op, int code, const char *why)
{
    ms_head_cluster_stop(op->head, op->cluster, 0);
    ms_head_op_fail(op, code, "cannot create cluster '%s': %s", op->name, why);
}

static void create_answered(struct ms_head_op *op, Muster__AgentToHead *answer)
{
    struct ms_head *h = op->head;
    struct ms_cluster *c = op->cluster;
    Muster__WorkersStarted *s = answer->body_case == MUSTER__AGENT_TO_HEAD__BODY_STARTED
                                    ? answer->started
                                    : NULL;
    Muster__ClusterStatus *status;
    int rc = 0;

    for (size_t i = 0; s && i < s->n_workers && rc != -ENOMEM; i++)
        rc = ms_registry_started(&h->registry, s->workers[i], ms_now_ns());
    if (c->unconfirmed > 0) {
        give_up_create(op,
                       rc == -ENOMEM ? rc : -EPROTO,
                       rc == -ENOMEM ? "out of memory"
                                     : "the agent did not answer for every worker");
        return;
    }
    status = ms_cluster_status(c, h->node);
    if (!status) {
        give_up_create(op, -ENOMEM, "out of memory");
        return;
    }
    ms_head_op_succeed(op, &status->base);
    for (size_t i = 0; i < c->count; i++)
        if (!ms_slot_is_live(&c->slots[i]))
            ms_head_tell_exit(h, &c->slots[i]);
    ms_head_begin_destroys(h, c);
}

static void run_create(struct ms_head_op *op)
{
    struct ms_head *h = op->head;
    struct ms_error err = {0};
    int rc = ms_head_agent_check(h, &err);

    if (rc == 0)
        rc = ms_registry_add(&h->registry,
                             op->name,
                             op->slots,
                             op->slot_count,
                             ms_now_ns(),
                             &op->cluster,
                             &err);
    if (rc == 0)
        rc = ms_head_agent_ask(h, op, &err);
    if (rc < 0)
        ms_head_op_fail_with(op, &err);
}

static int
copy_slots(struct ms_head_op *op, const struct ms_head_rank *ranks, size_t count)
{
    size_t devices = 0;

    for (size_t i = 0; i < count; i++)
        devices += ranks[i].device_count;
    op->slots = calloc(count, sizeof *op->slots);
    op->devices = calloc(devices + 1, sizeof *op->devices);
    if (!op->slots || !op->devices)
        return -ENOMEM;
    devices = 0;
    for (size_t i = 0; i < count; i++) {
        size_t n = ranks[i].device_count;

        op->slots[i] = (struct ms_slot_spec){ms_random_id(), op->devices + devices, n};
        if (n)
            memcpy(op->devices + devices, ranks[i].devices, n * sizeof *op->devices);
        devices += n;
    }
    op->slot_count = count;
    return 0;
}

/* The request to the agent, as a copy of our own. */
static int copy_specs(struct ms_head_op *op,
                      const struct ms_head_rank *ranks,
                      struct ms_error *err)
{
    size_t count = op->slot_count, size;
    MS_CLEANUP(ms_cleanup_free)
    Muster__WorkerSpec *specs = calloc(count, sizeof *specs);
    MS_CLEANUP(ms_cleanup_free)
    Muster__WorkerSpec **pointers = calloc(count, sizeof(Muster__WorkerSpec *));
    Muster__StartWorkers start = MUSTER__START_WORKERS__INIT;
    Muster__HeadToAgent m = MUSTER__HEAD_TO_AGENT__INIT;

    if (!specs || !pointers)
        return ms_error_sys(err, -ENOMEM, "cannot ask for %zu workers", count);
    for (size_t i = 0; i < count; i++) {
        specs[i] = ranks[i].spec;
        specs[i].uid = op->slots[i].uid;
        specs[i].cluster = op->name;
        specs[i].rank = (uint32_t)i;
        specs[i].incarnation = 1;
        pointers[i] = &specs[i];
    }
    start.n_workers = count;
    start.workers = pointers;
    m.body_case = MUSTER__HEAD_TO_AGENT__BODY_START;
    m.start = &start;
    size = muster__head_to_agent__get_packed_size(&m);
    if (size > MS_CONTROL_MAX)
        return ms_error_set(
            err,
            -E2BIG,
            "the environments and commands of %zu workers take %zu bytes, "
            "at most %zu are possible",
            count,
            size,
            (size_t)MS_CONTROL_MAX);
    op->to_agent = (Muster__HeadToAgent *)ms_proto_copy(&m.base);
    return op->to_agent ? 0 : ms_error_sys(err, -ENOMEM, "%zu workers", count);
}

static int prepare_create(struct ms_head_op *op,
                          const char *name,
                          const struct ms_head_rank *ranks,
                          size_t count,
                          struct ms_error *err)
{
    int rc = ms_name_check(name, "cluster", err);

    if (rc < 0)
        return rc;
    strcpy(op->name, name);
    if (count == 0 || count > MS_WORKERS_MAX)
        return ms_error_set(err,
                            count ? -ENOSPC : -EINVAL,
                            "cluster '%s': %zu workers; from 1 to %u are possible",
                            name,
                            count,
                            MS_WORKERS_MAX);
    for (size_t i = 0; i < count; i++)
        if (ranks[i].spec.base.descriptor != &muster__worker_spec__descriptor)
            return ms_error_set(err, -EINVAL, "rank %zu has no specification", i);
    rc = copy_slots(op, ranks, count);
    if (rc < 0)
        return ms_error_sys(err, rc, "cluster '%s'", name);
    return copy_specs(op, ranks, err);
}

struct ms_head_op *ms_head_create_cluster(struct ms_head *h,
                                          const char *name,
                                          const struct ms_head_rank *ranks,
                                          size_t count)
{
    struct ms_head_op *op = ms_head_op_create(h);
    struct ms_error err = {0};

    if (!op)
        return ms_head_op_refused(h);
    op->run = run_create;
    op->on_answer = create_answered;
    op->on_failed = create_failed;
    if (prepare_create(op, name, ranks, count, &err) < 0) {
        ms_head_op_fail_with(op, &err);
        return op;
    }
    return ms_head_op_submit(op);
}
