/* group.c - placement groups: asked for, found, removed, restored */
#include "base/cleanup.h"
#include "head/drivers/driver.h"
#include "head/head_impl.h"
#include "head/nodes/node.h"
#include "head/ops/op.h"
#include "head/ops/request.h"
#include "head/place/group_request.h"
#include "head/place/place_impl.h"
#include "head/state/persist.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct ms_group *find(const struct ms_books *b, const Muster__GroupRef *ref)
{
    return ref->id ? ms_place_find(b, ref->id) : ms_books_find_group(b, ref->name);
}

static int not_found(struct ms_head_op *op, const Muster__GroupRef *ref)
{
    return ms_error_set(&op->error,
                        -ENOENT,
                        ref->name[0] ? "there is no placement group '%s'"
                                     : "the placement group was removed%s",
                        ref->name);
}

/* ---- requests -------------------------------------------------------------------- */

static int ask(struct ms_head_op *op, Muster__GroupStatus **out)
{
    const Muster__PlaceGroup *m = op->request->place_group;
    struct ms_books *b = &op->head->place.books;
    MS_CLEANUP(ms_group_request_finish) struct ms_group_request w = {0};
    int64_t now_ns = m->timeout_ns ? ms_now_ns() : 0;
    struct ms_group *g = NULL;
    int rc = ms_group_request_read(&w, &b->stock, m, &op->error);

    if (rc == 0)
        rc = ms_books_ask(b,
                          &w.request,
                          ms_driver_id(op->driver),
                          now_ns,
                          ms_deadline_ns(now_ns, ms_head_grace(m->timeout_ns)),
                          &g,
                          &op->table,
                          &op->error);
    if (rc < 0)
        return rc;
    assert(g);
    g->detached = m->detached;
    g->ends_with_cluster = m->ends_with_cluster;
    *out = ms_place_group_message(b, g);
    if (*out)
        return 0;
    ms_books_remove(b, g, NULL);
    return ms_error_set(&op->error, -ENOMEM, "group '%s': out of memory", m->name);
}

int ms_place_group_run(struct ms_head_op *op)
{
    struct ms_place *desk = &op->head->place;
    Muster__GroupStatus *status = NULL;
    int rc;

    pthread_mutex_lock(&desk->lock);
    rc = ask(op, &status);
    pthread_mutex_unlock(&desk->lock);
    if (rc < 0)
        return rc;
    ms_persist_group(op->head, op->request->place_group, status);
    if (status->state == MUSTER__GROUP_STATE__GROUP_WAITING)
        ms_place_kick(op->head);
    ms_head_op_succeed(op, &status->base);
    return 0;
}

/* May a group or an operation that waits go on after a change? Under the lock. */
static bool has_news(const struct ms_books *b)
{
    return !ms_list_is_empty(&b->groups.news) || !ms_list_is_empty(&b->groups.waiting);
}

int ms_place_remove_run(struct ms_head_op *op)
{
    struct ms_place *desk = &op->head->place;
    const Muster__GroupRef *ref = op->request->remove_group;
    struct ms_group *g;
    bool was_waiting, news;
    uint64_t id;
    int rc;

    pthread_mutex_lock(&desk->lock);
    g = find(&desk->books, ref);
    id = g ? g->id : 0;
    was_waiting = g && g->state == MS_PLACEMENT_WAITING;
    rc = g ? ms_books_remove(&desk->books, g, &op->error) : not_found(op, ref);
    news = has_news(&desk->books);
    pthread_mutex_unlock(&desk->lock);
    if (was_waiting || news)
        ms_place_kick(op->head);
    if (rc < 0)
        return rc;
    if (op->head->persist.journal)
        ms_persist_forget_group(op->head, id);
    ms_head_op_succeed(op, NULL);
    return 0;
}

int ms_place_find_run(struct ms_head_op *op)
{
    struct ms_place *desk = &op->head->place;
    Muster__GroupStatus *status = NULL;
    const struct ms_group *g;

    pthread_mutex_lock(&desk->lock);
    g = find(&desk->books, op->request->find_group);
    if (g)
        status = ms_place_group_message(&desk->books, g);
    pthread_mutex_unlock(&desk->lock);
    if (!g)
        return not_found(op, op->request->find_group);
    ms_head_op_answer(op, status ? &status->base : NULL);
    return 0;
}

/* ---- after a restart ------------------------------------------------------------- */

/* Where it was; -ENOENT: a node of it has not come back. */
static int read_pieces(const struct ms_books *b,
                       const struct ms_place_request *r,
                       const Muster__GroupStatus *m,
                       struct ms_placement *p)
{
    size_t devices = 0;

    for (size_t i = 0; i < m->n_pieces; i++)
        devices += m->pieces[i]->n_devices;
    *p = (struct ms_placement){.count = m->n_pieces};
    p->nodes = calloc(p->count + 1, sizeof *p->nodes);
    p->first = calloc(p->count + 1, sizeof *p->first);
    p->devices = calloc(devices + 1, sizeof *p->devices);
    if (!p->nodes || !p->first || !p->devices)
        return -ENOMEM;
    for (size_t i = 0; i < m->n_pieces; i++) {
        const Muster__Piece *piece = m->pieces[i];
        const struct ms_stock_node *n = ms_stock_find(&b->stock, piece->node);

        if (!n || piece->n_devices != ms_bundle_width(&r->bundles[i]))
            return -ENOENT;
        p->nodes[i] = (uint32_t)(n - b->stock.nodes);
        p->first[i + 1] = p->first[i] + (uint32_t)piece->n_devices;
        for (size_t k = 0; k < piece->n_devices; k++) {
            if (piece->devices[k] >= n->device_count)
                return -ENOENT;
            p->devices[p->first[i] + k] = piece->devices[k];
        }
    }
    return 0;
}

static int restore_placed(struct ms_books *b,
                          const struct ms_place_request *r,
                          const Muster__GroupStatus *m,
                          struct ms_group **out,
                          struct ms_error *err)
{
    MS_CLEANUP(ms_placement_finish) struct ms_placement p = {0};
    int rc;

    if (m->n_pieces != r->count)
        return ms_error_set(err, -EINVAL, "group '%s' has other bundles", r->name);
    rc = read_pieces(b, r, m, &p);
    if (rc < 0)
        return ms_error_set(err,
                            rc,
                            rc == -ENOENT ? "group '%s': a node of it is gone"
                                          : "group '%s': out of memory",
                            r->name);
    return ms_books_restore(b, r, &p, out, err);
}

/* One that waited waits anew. */
int ms_place_restore(struct ms_head *h,
                     const Muster__RestoreGroup *m,
                     uint64_t owner,
                     struct ms_error *err)
{
    MS_CLEANUP(ms_place_unlock) struct ms_place *desk = ms_place_lock(h);
    struct ms_books *b = &desk->books;
    MS_CLEANUP(ms_group_request_finish) struct ms_group_request w = {0};
    int64_t now_ns = ms_now_ns();
    struct ms_group *g = NULL;
    int rc = ms_group_request_read(&w, &b->stock, m->group, err);

    w.request.name = m->status->name;
    if (rc == 0 && m->status->n_pieces == 0)
        rc = ms_books_ask(b,
                          &w.request,
                          0,
                          now_ns,
                          ms_deadline_ns(now_ns, ms_head_grace(m->group->timeout_ns)),
                          &g,
                          NULL,
                          err);
    else if (rc == 0)
        rc = restore_placed(b, &w.request, m->status, &g, err);
    if (rc < 0)
        return rc;
    assert(g);
    g->id = m->status->id;
    g->owner = owner;
    g->detached = m->group->detached;
    g->ends_with_cluster = m->group->ends_with_cluster;
    if (g->id > b->last_id)
        b->last_id = g->id;
    return 0;
}

int ms_place_restore_run(struct ms_head_op *op)
{
    const Muster__RestoreGroup *m = op->request->restore_group;

    if (!m->group || !m->status)
        return ms_error_set(&op->error, -EINVAL, "there is no group to restore");
    ms_place_restore(op->head, m, ms_driver_id(op->driver), &op->error);
    ms_head_op_done(op);
    return 0;
}
