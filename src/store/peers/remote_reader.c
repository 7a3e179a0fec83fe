/* remote_reader.c - a store of another node that reads what we have, on a bulk link of its own
 *
 * What it reads is pinned until it says that it is done: the kernel sends it from the arena's
 * own pages, and may still do so when we have long forgotten it. */
#include "store/peers/pace.h"
#include "store/peers/peers.h"
#include "store/server/spill.h"

#include "base/limits.h"
#include "io/tcp.h"
#include "io/tcp_path.h"

#include <errno.h>
#include <stdlib.h>

struct ms_remote_reader {
    struct ms_store *store;
    struct ms_list link_in; /* store->remote_readers */
    struct ms_link *link;
    uint64_t node;
    struct ms_list lendings;
    struct ms_list wants;
    bool is_paced; /* calls share its network path: not loopback */
    struct ms_pace pace;
    struct ms_timer pace_timer;
    unsigned unpaced; /* looks since something was sent */
};

/* A piece that cannot be sent yet: it has not come here, or its object is in a file. */
struct want {
    struct ms_list link; /* reader->wants */
    Muster__PeerWant ask;
};

/* An object that is read. */
struct lending {
    struct ms_list link;
    struct ms_store *store;
    struct ms_object *object; /* pinned */
    bool is_over;
    unsigned unsent; /* pieces that the link still has */
};

/* ---- lendings -------------------------------------------------------------------- */

static void settle(struct lending *l)
{
    if (!l->is_over || l->unsent)
        return;
    ms_object_unpin(l->object);
    free(l);
}

static void on_sent(void *arg)
{
    struct lending *l = arg;

    l->unsent--;
    settle(l);
}

static void end(struct lending *l)
{
    ms_list_remove(&l->link);
    l->is_over = true;
    settle(l);
}

static struct lending *find(struct ms_remote_reader *r, uint64_t node, uint64_t id)
{
    ms_list_each (l, &r->lendings, struct lending, link)
        if (l->object->node == node && l->object->id == id)
            return l;
    return NULL;
}

static struct lending *get(struct ms_remote_reader *r, struct ms_object *o)
{
    struct lending *l = find(r, o->node, o->id);

    if (l)
        return l;
    l = malloc(sizeof *l);
    if (!l)
        return NULL;
    *l = (struct lending){.store = r->store, .object = o};
    ms_list_add_tail(&r->lendings, &l->link);
    ms_object_pin(o);
    return l;
}

/* ---- pace ------------------------------------------------------------------------ */

static bool is_loopback(int fd)
{
    struct sockaddr_storage sa = {0};
    socklen_t len = sizeof sa;

    return getpeername(fd, (struct sockaddr *)&sa, &len) == 0 &&
           ms_sockaddr_is_loopback(&sa);
}

static void on_pace(void *arg)
{
    struct ms_remote_reader *r = arg;
    uint64_t before = r->pace.rate, now;
    struct ms_tcp_path path;

    if (ms_tcp_path(ms_link_fd(r->link), &path) < 0)
        return;
    now = ms_pace_step(&r->pace, path.rtt_us, path.min_rtt_us, path.bytes_per_s);
    if (now != before)
        ms_tcp_set_rate(ms_link_fd(r->link), now);
    if (++r->unpaced < MS_PACE_IDLE_LOOKS)
        ms_timer_set(&r->pace_timer, MS_PACE_LOOK_NS);
}

/* Something is sent. */
static void keep_pace(struct ms_remote_reader *r)
{
    if (!r->is_paced)
        return;
    if (r->unpaced >= MS_PACE_IDLE_LOOKS)
        ms_timer_set(&r->pace_timer, MS_PACE_LOOK_NS);
    r->unpaced = 0;
}

/* ---- life ------------------------------------------------------------------------ */

static void want_free(struct want *w)
{
    ms_list_remove(&w->link);
    free(w);
}

static void reader_destroy(struct ms_remote_reader *r)
{
    ms_list_each (l, &r->lendings, struct lending, link)
        end(l);
    ms_list_each (w, &r->wants, struct want, link)
        want_free(w);
    ms_timer_finish(&r->pace_timer);
    ms_link_destroy(r->link);
    ms_list_remove(&r->link_in);
    free(r);
}

void ms_remote_readers_finish(struct ms_store *s)
{
    ms_list_each (r, &s->remote_readers, struct ms_remote_reader, link_in)
        reader_destroy(r);
}

/* ---- pieces ---------------------------------------------------------------------- */

static bool has_piece(const struct ms_object *o, const Muster__PeerWant *m)
{
    const struct ms_remote_copy *copy = o->is_copy ? o->user : NULL;

    if (!copy || o->spilled)
        return o->is_ready && !o->spilled;
    return o->is_whole || m->offset + m->len <= copy->received;
}

static void
send_piece(struct ms_remote_reader *r, struct ms_object *o, const Muster__PeerWant *m)
{
    const struct ms_arena *arena = &r->store->arena;
    struct lending *l = get(r, o);
    uint64_t at = o->at + m->offset;
    struct ms_loan loan = {.data = arena->memory + at,
                           .len = m->len,
                           .fd = arena->fd,
                           .at = at,
                           .on_sent = on_sent,
                           .arg = l};

    if (l)
        l->unsent++;
    if (l && ms_link_send_data(r->link, m->request, &loan) == 0) {
        r->store->sent += m->len;
        keep_pace(r);
        return;
    }
    if (l)
        l->unsent--;
    ms_store_message_gone(r->link, o->node, o->id);
}

static bool is_of(const struct want *w, uint64_t node, uint64_t id)
{
    return w->ask.node == node && w->ask.id == id;
}

void ms_remote_readers_answer(struct ms_store *s, struct ms_object *o, bool is_lost)
{
    ms_list_each (r, &s->remote_readers, struct ms_remote_reader, link_in)
        ms_list_each (w, &r->wants, struct want, link) {
            if (!is_of(w, o->node, o->id) || (!is_lost && !has_piece(o, &w->ask)))
                continue;
            if (is_lost)
                ms_store_message_gone(r->link, o->node, o->id);
            else
                send_piece(r, o, &w->ask);
            want_free(w);
        }
}

/* ---- what it asks ---------------------------------------------------------------- */

static void
on_back(void *arg, struct ms_store *s, struct ms_object *o, const struct ms_error *why)
{
    (void)arg;
    ms_remote_readers_answer(s, o, why);
}

/* Will it be here, if it is not? */
static bool is_coming(const struct ms_object *o)
{
    return o->spilled ||
           (o->is_copy && ((struct ms_remote_copy *)o->user)->wants_bytes);
}

static void
wait_for(struct ms_remote_reader *r, struct ms_object *o, const Muster__PeerWant *m)
{
    struct want *w = malloc(sizeof *w);

    if (!w) {
        ms_store_message_gone(r->link, m->node, m->id);
        return;
    }
    w->ask = *m;
    ms_list_add_tail(&r->wants, &w->link);
    if (o->spilled)
        ms_spill_want(r->store, o, on_back, NULL);
}

static void on_want(struct ms_remote_reader *r, const Muster__PeerWant *m)
{
    struct ms_object *o = ms_table_find(&r->store->table, m->node, m->id);

    if (!o || !m->len || m->len > MS_STORE_PIECE_MAX || m->offset > o->len ||
        m->len > o->len - m->offset || !(has_piece(o, m) || is_coming(o))) {
        ms_store_message_gone(r->link, m->node, m->id);
        return;
    }
    ms_store_expect_pieces(r->store);
    if (has_piece(o, m))
        send_piece(r, o, m);
    else
        wait_for(r, o, m);
}

static void on_done(struct ms_remote_reader *r, const Muster__PeerDone *m)
{
    struct lending *l = find(r, m->node, m->id);

    ms_list_each (w, &r->wants, struct want, link)
        if (is_of(w, m->node, m->id))
            want_free(w);
    if (l)
        end(l);
}

static void on_body(void *arg, const uint8_t *body, size_t len)
{
    struct ms_remote_reader *r = arg;
    Muster__StorePeer *m = muster__store_peer__unpack(NULL, len, body);

    if (!m) {
        reader_destroy(r);
        return;
    }
    if (m->body_case == MUSTER__STORE_PEER__BODY_WANT)
        on_want(r, m->want);
    else if (m->body_case == MUSTER__STORE_PEER__BODY_DONE)
        on_done(r, m->done);
    muster__store_peer__free_unpacked(m, NULL);
}

static void on_closed(void *arg, const struct ms_error *why)
{
    (void)why;
    reader_destroy(arg); /* it comes again if it wants more */
}

/* What it reads is not kept for it: it comes again. */
static void on_suspect(void *arg, bool is_suspect)
{
    if (is_suspect)
        reader_destroy(arg);
}

static const struct ms_link_ops link_ops = {
    .on_body = on_body, .on_closed = on_closed, .on_suspect = on_suspect};

int ms_remote_reader_create(struct ms_store *s, struct ms_link *link, uint64_t node)
{
    struct ms_remote_reader *r = calloc(1, sizeof *r);

    if (!r || ms_timer_init(&r->pace_timer, s->loop, on_pace, r) < 0) {
        free(r);
        return -ENOMEM;
    }
    ms_list_each (old, &s->remote_readers, struct ms_remote_reader, link_in)
        if (old->node == node)
            reader_destroy(old); /* it has dialled anew */
    r->store = s;
    r->link = link;
    r->node = node;
    ms_pace_init(&r->pace);
    r->is_paced = !is_loopback(ms_link_fd(link));
    r->unpaced = MS_PACE_IDLE_LOOKS;
    ms_list_init(&r->lendings);
    ms_list_init(&r->wants);
    ms_list_add_tail(&s->remote_readers, &r->link_in);
    ms_link_set_ops(link, &link_ops, r);
    return 0;
}
