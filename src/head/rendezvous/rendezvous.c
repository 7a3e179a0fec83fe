/* rendezvous.c - operations that join a rendezvous, leave it, ask about it and close it */
#include "head/rendezvous/rendezvous.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/name.h"
#include "base/proto.h"
#include "head/drivers/driver.h"
#include "head/head_impl.h"
#include "head/kv/kv_ask.h"
#include "head/ops/op.h"
#include "head/state/journal.h"
#include "head/state/persist.h"
#include "job/rendezvous.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PREFIX_MAX = MS_NAME_MAX + 16 };

struct meeting {
    struct ms_list link; /* head->rendezvous */
    struct ms_head *head;
    char name[MS_NAME_MAX + 1];
    struct ms_rendezvous r;
    struct ms_list joins;  /* operations that wait for a rank */
    struct ms_list asks;   /* operations that wait for a change */
    struct ms_timer timer; /* the next step, or the end of one that is over */
    struct ms_error why;   /* of the last round that failed */
};

/* ---- one of them ----------------------------------------------------------------- */

static struct meeting *find(const struct ms_head *h, const char *name)
{
    ms_list_each (m, &h->rendezvous, struct meeting, link)
        if (strcmp(m->name, name) == 0)
            return m;
    return NULL;
}

static size_t count(const struct ms_head *h)
{
    size_t n = 0;

    ms_list_each (m, &h->rendezvous, struct meeting, link)
        n++;
    return n;
}

static void meeting_destroy(struct meeting *m)
{
    ms_list_remove(&m->link);
    ms_timer_finish(&m->timer);
    ms_rendezvous_finish(&m->r);
    free(m);
}

/* What its members tell each other in the key-value store. */
static int print_prefix(const struct meeting *m, char *out, size_t size)
{
    return snprintf(out, size, "rendezvous/%s/", m->name);
}

/* Of rounds before the one that there is. */
static void drop_old_keys(const struct meeting *m)
{
    struct ms_kv *kv = &m->head->kv.store;
    char prefix[PREFIX_MAX];
    int len = print_prefix(m, prefix, sizeof prefix);
    size_t dropped = 0, first;

    for (size_t at = ms_kv_range(kv, prefix, &first); at-- > 0;) {
        const char *key = kv->entries[first + at]->key;

        if (strtoull(key + len, NULL, 10) < m->r.round)
            dropped += (size_t)ms_kv_delete(kv, key);
    }
    if (dropped)
        ms_head_kv_changed(m->head);
}

static void drop_keys(const struct meeting *m)
{
    char prefix[PREFIX_MAX];

    print_prefix(m, prefix, sizeof prefix);
    if (ms_kv_delete_below(&m->head->kv.store, prefix) > 0)
        ms_head_kv_changed(m->head);
}

static void keep(const struct meeting *m, struct ms_journal *j)
{
    Muster__KeptRendezvous *kept = j ? ms_rendezvous_encode(&m->r) : NULL;

    if (kept)
        ms_persist_put(j, MS_PERSIST_RENDEZVOUS, m->name, &kept->base);
    muster__kept_rendezvous__free_unpacked(kept, NULL);
}

/* ---- answers --------------------------------------------------------------------- */

/* Whose members end with it: a worker, or a driver. */
static uint64_t owner_of(const struct ms_head_op *op)
{
    uint64_t uid = ms_driver_worker(op->driver);

    return uid ? uid : ms_driver_id(op->driver);
}

static void
answer_world(struct ms_head_op *op, const struct ms_rendezvous *r, int64_t rank)
{
    Muster__World *w = (Muster__World *)ms_proto_create(&muster__world__descriptor);
    bool ok = w != NULL;

    for (size_t i = 0; ok && i < r->world_count; i++) {
        Muster__WorldMember member = MUSTER__WORLD_MEMBER__INIT;

        member.key = r->world[i].key;
        member.data = (ProtobufCBinaryData){r->world[i].len, r->world[i].data};
        ok = ms_proto_append(&w->members, &w->n_members, ms_proto_copy(&member.base));
    }
    if (!ok) {
        muster__world__free_unpacked(w, NULL);
        ms_head_op_fail(op, -ENOMEM, "out of memory");
        return;
    }
    w->round = r->round;
    w->rank = (uint32_t)rank;
    ms_head_op_succeed(op, &w->base);
}

static void
answer_status(struct ms_head_op *op, const char *name, const struct meeting *m)
{
    Muster__RendezvousStatus s = MUSTER__RENDEZVOUS_STATUS__INIT;

    s.name = ms_field_text(name);
    if (m) {
        s.round = m->r.round;
        s.world = (uint32_t)m->r.world_count;
        s.waiting = (uint32_t)m->r.waiting_count;
        s.lost = (uint32_t)ms_rendezvous_lost(&m->r);
        s.wanted = ms_rendezvous_is_wanted(&m->r);
        s.closed = m->r.is_closed;
    }
    ms_head_op_succeed_copy(op, &s.base);
}

/* Nobody is in it and nobody waits for a rank; who waits for news hears that it is gone. */
static void forget(struct meeting *m)
{
    ms_list_each (op, &m->asks, struct ms_head_op, wait_link)
        answer_status(op, m->name, NULL);
    assert(ms_list_is_empty(&m->joins) && ms_list_is_empty(&m->asks));
    drop_keys(m);
    ms_journal_delete(m->head->persist.journal, MS_PERSIST_RENDEZVOUS, m->name);
    meeting_destroy(m);
}

/* One that joined: it has a rank, or it never will. */
static bool retry_join(struct ms_head_op *op, bool is_last)
{
    const Muster__JoinRendezvous *asked = op->request->join_rendezvous;
    struct meeting *m = op->data;
    uint64_t owner = owner_of(op);
    int64_t rank = ms_rendezvous_rank(&m->r, asked->key, owner);

    (void)is_last; /* the round has a deadline of its own */
    if (ms_rendezvous_waits(&m->r, asked->key, owner))
        return false;
    if (rank >= 0)
        answer_world(op, &m->r, rank);
    else if (m->r.is_closed)
        ms_head_op_fail(op, -ECANCELED, "rendezvous '%s' is closed", m->name);
    else if (m->why.code)
        ms_head_op_fail(op, m->why.code, "rendezvous '%s': %s", m->name, m->why.text);
    else
        ms_head_op_fail(op,
                        -ESTALE,
                        "rendezvous '%s': '%.64s' has left, or another process has "
                        "joined in its place",
                        m->name,
                        asked->key);
    return true;
}

static bool retry_ask(struct ms_head_op *op, bool is_last)
{
    const Muster__AskRendezvous *asked = op->request->rendezvous;
    const struct meeting *m = find(op->head, asked->name);
    bool has_news = !m || m->r.is_closed || m->r.round != asked->round ||
                    ms_rendezvous_is_wanted(&m->r);

    if (!has_news && !is_last)
        return false;
    answer_status(op, asked->name, m);
    return true;
}

/* ---- what follows from a change -------------------------------------------------- */

/* How many ranks there are that could come; 0: not known. */
static uint32_t count_present(const struct meeting *m)
{
    const struct ms_cluster *c =
        m->r.is_of_cluster ? ms_registry_find(&m->head->registry, m->name) : NULL;

    return c ? (uint32_t)c->count : 0;
}

/* Go on as far as possible. `m` may be gone after it. */
static void settle(struct meeting *m)
{
    enum ms_rendezvous_event event;
    int64_t now_ns = ms_now_ns(), next_ns;

    m->why.code = 0;
    m->r.present = count_present(m);
    while ((event = ms_rendezvous_step(&m->r, now_ns, &m->why)) ==
           MS_RENDEZVOUS_COMPLETED)
        drop_old_keys(m);
    ms_head_op_retry_all(&m->joins);
    ms_head_op_retry_all(&m->asks);
    if (ms_rendezvous_is_empty(&m->r) && !m->r.is_closed) {
        forget(m);
        return;
    }
    keep(m, m->head->persist.journal);
    next_ns = ms_rendezvous_next_ns(&m->r);
    if (ms_rendezvous_is_empty(&m->r))
        next_ns = now_ns + MS_RENDEZVOUS_CLOSED_NS;
    if (event == MS_RENDEZVOUS_NO_MEMORY)
        next_ns = now_ns + MS_NS_PER_S;
    if (next_ns == MS_NEVER)
        ms_timer_cancel(&m->timer);
    else
        ms_timer_set(&m->timer, next_ns > now_ns ? next_ns - now_ns : 0);
}

static void on_time(void *arg)
{
    struct meeting *m = arg;

    if (m->r.is_closed && ms_rendezvous_is_empty(&m->r))
        forget(m);
    else
        settle(m);
}

/* ---- joining --------------------------------------------------------------------- */

static struct meeting *
meeting_create(struct ms_head *h, const char *name, struct ms_error *err)
{
    struct meeting *m = calloc(1, sizeof *m);

    if (!m || ms_timer_init(&m->timer, h->loop, on_time, m) < 0) {
        free(m);
        ms_error_set(err, -ENOMEM, "out of memory");
        return NULL;
    }
    m->head = h;
    strcpy(m->name, name);
    ms_list_init(&m->joins);
    ms_list_init(&m->asks);
    ms_list_add_tail(&h->rendezvous, &m->link);
    return m;
}

static bool are_equal(const struct ms_rendezvous_limits *a,
                      const struct ms_rendezvous_limits *b)
{
    return a->min == b->min && a->max == b->max && a->unit == b->unit &&
           a->last_call_ns == b->last_call_ns && a->join_ns == b->join_ns;
}

/* The one that is meant; NULL: why is in op->error. */
static struct meeting *find_or_create(struct ms_head_op *op,
                                      const struct ms_rendezvous_limits *limits)
{
    struct ms_head *h = op->head;
    const char *name = op->request->join_rendezvous->name;
    struct meeting *m = find(h, name);

    if (m) {
        if (are_equal(&m->r.limits, limits))
            return m;
        ms_error_set(
            &op->error,
            -EINVAL,
            "rendezvous '%s' was begun with %u to %u members in units of %u, a "
            "last call of %.1f s and %.1f s to join; this one asks for others",
            name,
            m->r.limits.min,
            m->r.limits.max,
            m->r.limits.unit,
            (double)m->r.limits.last_call_ns / (double)MS_NS_PER_S,
            (double)m->r.limits.join_ns / (double)MS_NS_PER_S);
        return NULL;
    }
    if (count(h) >= MS_RENDEZVOUS_MAX) {
        ms_error_set(
            &op->error, -ENOSPC, "the head has %u rendezvous", MS_RENDEZVOUS_MAX);
        return NULL;
    }
    m = meeting_create(h, name, &op->error);
    if (!m)
        return NULL;
    ms_rendezvous_init(&m->r, limits);
    m->r.is_of_cluster = op->request->join_rendezvous->of_cluster;
    return m;
}

static int read_limits(struct ms_head_op *op, struct ms_rendezvous_limits *out)
{
    const Muster__JoinRendezvous *asked = op->request->join_rendezvous;
    int rc = ms_name_check(asked->name, "rendezvous", &op->error);

    if (rc < 0)
        return rc;
    *out = (struct ms_rendezvous_limits){
        .min = asked->min,
        .max = asked->max,
        .unit = asked->unit ? asked->unit : 1,
        .last_call_ns = (int64_t)asked->last_call_ns,
        .join_ns = (int64_t)asked->join_ns,
    };
    return ms_rendezvous_check(out, &op->error);
}

int ms_head_rendezvous_join_run(struct ms_head_op *op)
{
    const Muster__JoinRendezvous *asked = op->request->join_rendezvous;
    struct ms_rendezvous_join join = {.key = asked->key,
                                      .owner = owner_of(op),
                                      .data = asked->data.data,
                                      .len = asked->data.len,
                                      .place = asked->place};
    struct ms_rendezvous_limits limits;
    struct meeting *m;
    int rc = read_limits(op, &limits);

    if (rc < 0)
        return rc;
    m = find_or_create(op, &limits);
    if (!m)
        return op->error.code;
    rc = ms_rendezvous_join(&m->r, &join, ms_now_ns(), &op->error);
    if (rc < 0) {
        if (ms_rendezvous_is_empty(&m->r) && !m->r.is_closed)
            meeting_destroy(m);
        return rc;
    }
    op->data = m;
    op->retry = retry_join;
    ms_list_add_tail(&m->joins, &op->wait_link);
    settle(m);
    return 0;
}

/* ---- the other verbs ------------------------------------------------------------- */

int ms_head_rendezvous_ask_run(struct ms_head_op *op)
{
    const Muster__AskRendezvous *asked = op->request->rendezvous;
    struct meeting *m = find(op->head, asked->name);
    uint64_t wait_ns = asked->wait_ns < MS_KV_WAIT_NS ? asked->wait_ns : MS_KV_WAIT_NS;

    if (!m) {
        answer_status(op, asked->name, NULL);
        return 0;
    }
    return ms_head_op_wait_in(op, &m->asks, retry_ask, (int64_t)wait_ns);
}

int ms_head_rendezvous_leave_run(struct ms_head_op *op)
{
    const Muster__LeaveRendezvous *asked = op->request->leave_rendezvous;
    struct meeting *m = find(op->head, asked->name);

    if (m)
        ms_rendezvous_leave(&m->r, asked->key, owner_of(op), ms_now_ns());
    answer_status(op, asked->name, m);
    if (m)
        settle(m);
    return 0;
}

int ms_head_rendezvous_close_run(struct ms_head_op *op)
{
    const char *name = op->request->close_rendezvous->name;
    struct meeting *m = find(op->head, name);

    if (m)
        ms_rendezvous_close(&m->r);
    answer_status(op, name, m);
    if (m)
        settle(m);
    return 0;
}

/* ---- ends ------------------------------------------------------------------------ */

void ms_head_rendezvous_lose(struct ms_head *h, uint64_t owner)
{
    ms_list_each (m, &h->rendezvous, struct meeting, link)
        if (ms_rendezvous_drop(&m->r, owner, ms_now_ns()) > 0)
            settle(m);
}

void ms_head_rendezvous_finish(struct ms_head *h)
{
    ms_list_each (m, &h->rendezvous, struct meeting, link)
        meeting_destroy(m);
}

/* ---- kept ------------------------------------------------------------------------ */

void ms_head_rendezvous_take(struct ms_head *h,
                             const char *name,
                             const uint8_t *data,
                             size_t len)
{
    Muster__KeptRendezvous *kept =
        data ? muster__kept_rendezvous__unpack(NULL, len, data) : NULL;
    struct meeting *m = find(h, name);
    struct ms_rendezvous r;

    if (m)
        meeting_destroy(m);
    if (!kept || ms_name_check(name, "rendezvous", NULL) < 0 ||
        ms_rendezvous_decode(&r, kept, ms_now_ns()) < 0) {
        muster__kept_rendezvous__free_unpacked(kept, NULL);
        return;
    }
    muster__kept_rendezvous__free_unpacked(kept, NULL);
    m = meeting_create(h, name, NULL);
    if (m)
        m->r = r;
    else
        ms_rendezvous_finish(&r);
}

void ms_head_rendezvous_put_all(struct ms_head *h, struct ms_journal *j)
{
    ms_list_each (m, &h->rendezvous, struct meeting, link)
        keep(m, j);
}

static bool is_known(const struct ms_head *h, uint64_t owner)
{
    const struct ms_slot *slot = ms_registry_find_uid(&h->registry, owner);

    return ms_driver_find(h, owner) || (slot && ms_slot_is_live(slot));
}

static uint64_t
find_lost(const struct ms_head *h, const struct ms_rendezvous_member *all, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!all[i].is_gone && !is_known(h, all[i].owner))
            return all[i].owner;
    return 0;
}

void ms_head_rendezvous_recover(struct ms_head *h)
{
    ms_list_each (m, &h->rendezvous, struct meeting, link) {
        uint64_t lost;

        while ((lost = find_lost(h, m->r.world, m->r.world_count)) ||
               (lost = find_lost(h, m->r.waiting, m->r.waiting_count)))
            ms_rendezvous_drop(&m->r, lost, ms_now_ns());
        settle(m);
    }
}
