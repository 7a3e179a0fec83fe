/* place.c - nodes that come and go, deadlines of groups, operations that wait for one */
#include "base/cleanup.h"
#include "base/proto.h"
#include "head/clusters/clusters.h"
#include "head/drivers/driver.h"
#include "head/head_impl.h"
#include "head/nodes/node.h"
#include "head/ops/op.h"
#include "head/place/place_impl.h"
#include "head/state/persist.h"

#include <errno.h>
#include <string.h>

struct ms_place *ms_place_lock(struct ms_head *h)
{
    pthread_mutex_lock(&h->place.lock);
    return &h->place;
}

void ms_place_unlock(struct ms_place **place)
{
    pthread_mutex_unlock(&(*place)->lock);
}

/* ---- who waits ------------------------------------------------------------------- */

struct ms_group *ms_place_find(const struct ms_books *b, uint64_t id)
{
    ms_list_each (g, &b->groups.all, struct ms_group, link)
        if (g->id == id && !g->is_ending)
            return g;
    return NULL;
}

/* True if it has completed; otherwise its group waits on. */
static bool answer(struct ms_head_op *op)
{
    struct ms_place *place = &op->head->place;
    Muster__GroupStatus *status = NULL;
    const struct ms_group *g;
    bool is_waiting;

    pthread_mutex_lock(&place->lock);
    g = ms_place_find(&place->books, op->request->wait_group->id);
    is_waiting = g && g->state == MS_PLACEMENT_WAITING;
    if (!g)
        ms_error_set(&op->error, -ENOENT, "the group was removed");
    else if (!is_waiting && !(status = ms_place_group_message(&place->books, g)))
        ms_error_set(&op->error, -ENOMEM, "out of memory");
    pthread_mutex_unlock(&place->lock);
    if (!is_waiting)
        ms_head_op_complete(op, status ? &status->base : NULL);
    return !is_waiting;
}

/* Under the lock. */
static void keep(struct ms_head *h, const struct ms_group *g)
{
    Muster__GroupStatus *status =
        h->persist.journal ? ms_place_group_message(&h->place.books, g) : NULL;

    if (!status)
        return;
    ms_persist_group(h, NULL, status);
    muster__group_status__free_unpacked(status, NULL);
}

/* Deadlines that have come, and the next one; -1: none. */
static int64_t pass_time(struct ms_head *h)
{
    struct ms_books *b = &h->place.books;
    int64_t now_ns = ms_now_ns(), next_ns;
    const struct ms_group *news;

    pthread_mutex_lock(&h->place.lock);
    ms_books_expire(b, now_ns);
    while ((news = ms_books_next(b))) /* those who want to know wait below */
        keep(h, news);
    next_ns = ms_books_deadline(b);
    pthread_mutex_unlock(&h->place.lock);
    if (next_ns == MS_NEVER)
        return -1;
    return next_ns > now_ns ? next_ns - now_ns : 0;
}

/* An answer may end others. */
static bool answer_one(struct ms_head *h)
{
    ms_list_each (op, &h->place.waits, struct ms_head_op, wait_link)
        if (answer(op))
            return true;
    return false;
}

static void look(void *arg)
{
    struct ms_head *h = arg;
    int64_t delay_ns = pass_time(h);

    if (delay_ns >= 0)
        ms_timer_set(&h->place.timer, delay_ns);
    ms_creations_step(h);
    while (answer_one(h))
        ;
}

void ms_place_kick(struct ms_head *h)
{
    ms_loop_post(h->loop, look, h); /* without memory: at the next change */
}

static bool is_unknown(struct ms_head *h, const struct ms_head_op *op)
{
    MS_CLEANUP(ms_place_unlock) struct ms_place *place = ms_place_lock(h);

    return !ms_place_find(&place->books, op->request->wait_group->id);
}

int ms_place_wait_run(struct ms_head_op *op)
{
    struct ms_head *h = op->head;

    if (is_unknown(h, op))
        return ms_error_set(&op->error, -ENOENT, "the group was removed");
    if (answer(op))
        return 0;
    ms_list_add_tail(&h->place.waits, &op->wait_link);
    look(h);
    return 0;
}

/* ---- life ------------------------------------------------------------------------ */

int ms_place_init(struct ms_head *h)
{
    /* Drivers bring their groups back to a head that was started again: its own numbers
     * begin behind those of the one before. */
    if (h->is_daemon)
        h->place.books.last_id = (uint64_t)(ms_wall_ns() / MS_NS_PER_MS);
    return ms_timer_init(&h->place.timer, h->loop, look, h);
}

void ms_place_finish(struct ms_head *h)
{
    ms_timer_finish(&h->place.timer);
    ms_books_finish(&h->place.books);
    pthread_mutex_destroy(&h->place.lock);
}

/* ---- nodes ----------------------------------------------------------------------- */

void ms_place_node_came(struct ms_head *h, const struct ms_node *n)
{
    Muster__NodeShape s;

    if (!n->ready->shape) /* there was no memory for it */
        return;
    s = *n->ready->shape;
    s.name = ms_field_text(n->name);
    pthread_mutex_lock(&h->place.lock);
    ms_books_node_came(&h->place.books, &s, NULL);
    pthread_mutex_unlock(&h->place.lock);
    ms_place_kick(h);
}

void ms_place_node_gone(struct ms_head *h, const struct ms_node *n)
{
    pthread_mutex_lock(&h->place.lock);
    ms_books_node_gone(&h->place.books, n->name);
    pthread_mutex_unlock(&h->place.lock);
    ms_place_kick(h);
}

void ms_place_driver_gone(struct ms_head *h, uint64_t driver)
{
    pthread_mutex_lock(&h->place.lock);
    ms_books_drop_owner(&h->place.books, driver);
    pthread_mutex_unlock(&h->place.lock);
    ms_place_kick(h);
}
