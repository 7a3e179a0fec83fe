/* barrier.c - barriers: the ranks of a cluster wait for each other */
#include "head/kv/barrier.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "head/drivers/driver.h"
#include "head/head_impl.h"
#include "head/ops/op.h"
#include "head/ops/waiting.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { NAMED_MAX = 16 }; /* ranks in a message */

struct ms_barrier {
    struct ms_list link; /* head->barriers */
    char cluster[MS_NAME_MAX + 1];
    char name[MS_BARRIER_NAME_MAX + 1];
    struct ms_list ops; /* who waits */
    size_t count;
    size_t size; /* ranks */
    bool came[]; /* by rank: also those that did not wait any longer */
};

static struct ms_slot *slot_of(const struct ms_head_op *op)
{
    return ms_registry_find_uid(&op->head->registry, ms_driver_worker(op->driver));
}

/* The last one has gone. */
static void release(struct ms_barrier *b)
{
    if (b->count > 0)
        return;
    ms_list_remove(&b->link);
    free(b);
}

static void on_failed(struct ms_head_op *op)
{
    struct ms_barrier *b = MS_TAKE(op->data);

    b->count--;
    ms_list_remove(&op->wait_link);
    release(b);
}

/* ---- who is missing -------------------------------------------------------------- */

static bool waits(const struct ms_barrier *b, uint32_t rank)
{
    ms_list_each (op, &b->ops, struct ms_head_op, wait_link) {
        const struct ms_slot *s = slot_of(op);

        if (s && s->rank == rank)
            return true;
    }
    return false;
}

/* "1, 3, ...", if there is memory for it; how many. */
static size_t print_missing(struct ms_buf *out, const struct ms_barrier *b)
{
    size_t missing = 0;

    for (size_t rank = 0; rank < b->size; rank++) {
        if (b->came[rank])
            continue;
        missing++;
        if (missing <= NAMED_MAX)
            (void)ms_buf_printf(out, "%s%zu", missing > 1 ? ", " : "", rank);
    }
    if (missing > NAMED_MAX)
        (void)ms_buf_printf(out, ", ...");
    return missing;
}

static void on_late(void *arg)
{
    struct ms_head_op *op = arg;
    const struct ms_barrier *b = op->data;
    struct ms_buf ranks;
    size_t missing;

    ms_buf_init(&ranks);
    missing = print_missing(&ranks, b);
    if (missing)
        ms_error_set(&op->error,
                     -ETIMEDOUT,
                     "barrier '%s' of %s: %zu of %zu ranks have not come in time: %.*s",
                     b->name,
                     b->cluster,
                     missing,
                     b->size,
                     (int)ranks.len,
                     ranks.len ? (const char *)ranks.data : "");
    else
        ms_error_set(&op->error,
                     -ETIMEDOUT,
                     "barrier '%s' of %s: all ranks have come, but some did not wait "
                     "long enough",
                     b->name,
                     b->cluster);
    ms_buf_finish(&ranks);
    ms_head_op_done(op);
}

/* ---- the end of the waiting ------------------------------------------------------ */

/* All who wait go on, or fail if there is a reason. */
static void end(struct ms_barrier *b, const struct ms_error *why)
{
    b->count++; /* so that it is there until the last one has gone */
    while (!ms_list_is_empty(&b->ops)) {
        struct ms_head_op *op = ms_list_first(&b->ops, struct ms_head_op, wait_link);

        op->data = NULL;
        op->on_failed = NULL;
        b->count--;
        if (why)
            op->error = *why;
        ms_head_op_done(op);
    }
    b->count--;
    release(b);
}

static void
describe_dead(struct ms_error *err, const char *name, const struct ms_slot *slot)
{
    ms_error_set(err,
                 -EPIPE,
                 "barrier '%s' of %s: rank %u (pid %d on node %s) has died",
                 name,
                 slot->cluster->name,
                 slot->rank,
                 (int)slot->now.pid,
                 slot->node);
}

void ms_head_barriers_lose(struct ms_head *h, const struct ms_slot *slot)
{
    struct ms_error why = {0};

    ms_list_each (b, &h->barriers, struct ms_barrier, link)
        if (strcmp(b->cluster, slot->cluster->name) == 0) {
            describe_dead(&why, b->name, slot);
            end(b, &why);
        }
}

/* ---- arriving -------------------------------------------------------------------- */

static int check(struct ms_head_op *op, const struct ms_slot *slot)
{
    const char *name = op->request->barrier->name;

    if (!slot)
        return ms_error_set(&op->error,
                            -EPERM,
                            "barrier '%.64s': only workers of a cluster meet there",
                            name);
    if (!name[0] || strlen(name) > MS_BARRIER_NAME_MAX)
        return ms_error_set(&op->error,
                            -EINVAL,
                            "a barrier's name has 1 to %zu characters",
                            MS_BARRIER_NAME_MAX);
    for (size_t i = 0; i < slot->cluster->count; i++)
        if (slot->cluster->slots[i].now.state == MUSTER__WORKER_STATE__WORKER_EXITED) {
            describe_dead(&op->error, name, &slot->cluster->slots[i]);
            return -EPIPE;
        }
    return 0;
}

static struct ms_barrier *
find_or_create(struct ms_head *h, const struct ms_cluster *c, const char *name)
{
    struct ms_barrier *b;

    ms_list_each (known, &h->barriers, struct ms_barrier, link)
        if (strcmp(known->name, name) == 0 && strcmp(known->cluster, c->name) == 0)
            return known;
    b = calloc(1, sizeof *b + c->count * sizeof b->came[0]);
    if (!b)
        return NULL;
    b->size = c->count;
    strcpy(b->cluster, c->name);
    strcpy(b->name, name);
    ms_list_init(&b->ops);
    ms_list_add_tail(&h->barriers, &b->link);
    return b;
}

int ms_head_barrier_run(struct ms_head_op *op)
{
    const Muster__Barrier *asked = op->request->barrier;
    const struct ms_slot *slot = slot_of(op);
    int64_t wait_ns = asked->wait_ns && asked->wait_ns < MS_BARRIER_WAIT_NS
                          ? (int64_t)asked->wait_ns
                          : MS_BARRIER_WAIT_NS;
    struct ms_barrier *b;
    int rc;

    if (!slot && ms_head_wait_for_nodes(op))
        return 0;
    rc = check(op, slot);
    if (rc < 0)
        return rc;
    assert(slot);
    b = find_or_create(op->head, slot->cluster, asked->name);
    if (!b)
        return -ENOMEM;
    if (waits(b, slot->rank))
        rc = ms_error_set(&op->error,
                          -EBUSY,
                          "barrier '%s' of %s: rank %u waits there already",
                          b->name,
                          b->cluster,
                          slot->rank);
    else
        rc = ms_head_op_set_deadline(op, on_late, wait_ns);
    if (rc < 0) {
        release(b);
        return rc;
    }
    op->data = b;
    op->on_failed = on_failed;
    ms_list_add_tail(&b->ops, &op->wait_link);
    b->count++;
    b->came[slot->rank] = true;
    if (b->count == b->size)
        end(b, NULL);
    return 0;
}

void ms_head_barriers_finish(struct ms_head *h)
{
    ms_list_each (b, &h->barriers, struct ms_barrier, link) {
        ms_list_remove(&b->link);
        free(b);
    }
}
