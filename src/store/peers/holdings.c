/* holdings.c - what a node holds of another's objects, stated when a link between them opens
 *
 * Counts, holds and confirmations that were sent before a link broke may have arrived or
 * not. So nothing is inferred from them: the dialler states all that it holds, as it is now,
 * and the origin makes it so. What is granted and not confirmed counts besides: it is on its
 * way in an answer, or lapses. */
#include "store/peers/peers.h"

#include "base/clock.h"

#include <errno.h>
#include <stdlib.h>

enum { IDS_MAX = 4096 }; /* in one message */

/* ---- the node that holds ---------------------------------------------------------- */

struct statement {
    Muster__PeerHoldings part;
    uint64_t ids[IDS_MAX], counts[IDS_MAX];
};

static void send_part(struct ms_store_peer *p, struct statement *t, bool is_last)
{
    t->part.ids = t->ids;
    t->part.counts = t->counts;
    t->part.n_counts = t->part.n_ids;
    t->part.is_last = is_last;
    ms_store_peer_tell(p, MUSTER__STORE_PEER__BODY_HOLDINGS, &t->part);
    t->part.n_ids = 0;
    t->part.is_first = false;
}

int ms_holdings_send(struct ms_store_peer *p)
{
    struct statement *t = malloc(sizeof *t);

    if (!t)
        return -ENOMEM;
    muster__peer_holdings__init(&t->part);
    t->part.is_first = true;
    ms_list_each (o, &p->store->table.all, struct ms_object, link) {
        const struct ms_remote_copy *m = o->is_copy ? o->user : NULL;

        if (!m || m->origin != p || m->counts <= 0)
            continue;
        if (t->part.n_ids == IDS_MAX)
            send_part(p, t, false);
        t->ids[t->part.n_ids] = o->id;
        t->counts[t->part.n_ids++] = (uint64_t)m->counts;
    }
    send_part(p, t, true);
    free(t);
    return 0;
}

/* ---- the origin ------------------------------------------------------------------- */

static void note(struct ms_store *s, const struct ms_holder *h, uint64_t differences)
{
    char text[MS_ERROR_TEXT_MAX];

    if (!differences || !s->on_note)
        return;
    snprintf(text,
             sizeof text,
             "%s has come back: it was counted wrongly for %llu objects, which is "
             "repaired (what was said of them was lost with the link)",
             h->name,
             (unsigned long long)differences);
    s->on_note(s->note_arg, text);
}

void ms_holdings_take(struct ms_store *s,
                      struct ms_holder *h,
                      const Muster__PeerHoldings *m,
                      struct ms_link *link)
{
    struct ms_table *t = &s->table;

    if (m->is_first)
        ms_holder_state_begin(h);
    for (size_t i = 0; i < m->n_ids && i < m->n_counts; i++) {
        struct ms_object *o = ms_table_find(t, t->node, m->ids[i]);

        if (!o)
            ms_store_message_gone(link, t->node, m->ids[i]);
        else if (m->counts[i] <= INT64_MAX / 2)
            ms_holder_state(h, o, (int64_t)m->counts[i], ms_now_ns());
    }
    if (m->is_last)
        note(s, h, ms_holder_state_end(h));
}
