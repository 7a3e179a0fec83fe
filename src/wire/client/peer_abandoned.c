/* peer_abandoned.c - calls that were given up: cancelled, or past their deadline. Their
 * answers may still come, and what those grant is ours until it is given back. So the
 * connection is read until each of them has ended, one that broke is made again, and the
 * worker is asked for what it has. The peer is kept meanwhile. */
#include "wire/client/client_impl.h"

#include <errno.h>

struct abandoned {
    uint64_t id;
    bool is_stream;
    uint64_t arrived; /* items */
};

/* The thread that holds the lock has a reference of its own: this is never the last. */
static void abandoned_free(struct ms_peer *p, struct abandoned *l)
{
    free(l);
    ms_peer_unref(p);
}

void ms_abandoned_add(struct ms_peer *p, const struct ms_call *c)
{
    struct abandoned *l = malloc(sizeof *l);

    if (!l)
        return; /* what it grants lapses */
    *l = (struct abandoned){
        .id = c->id, .is_stream = c->flags & MS_FRAME_STREAM, .arrived = c->arrived};
    if (ms_map_add(&p->abandoned, c->id, l) < 0)
        free(l);
    else
        ms_peer_ref(p);
}

void ms_abandoned_forget(struct ms_peer *p)
{
    struct abandoned *l;
    size_t at = 0;

    while ((l = ms_map_next(&p->abandoned, &at)))
        abandoned_free(p, l);
    ms_map_finish(&p->abandoned);
    ms_map_init(&p->abandoned);
}

size_t ms_abandoned_ids(const struct ms_peer *p, uint64_t *ids)
{
    const struct abandoned *l;
    size_t at = 0, n = 0;

    while ((l = ms_map_next(&p->abandoned, &at)))
        ids[n++] = l->id;
    return n;
}

/* ---- what comes ------------------------------------------------------------------ */

void ms_peer_refuse(struct ms_peer *p, const struct ms_message *m)
{
    struct ms_client *c = p->client;
    void *stored = m->head.codec == MS_CODEC_STORED && c->on_stored
                       ? c->on_stored(c->arg, m->body, m->len)
                       : NULL;

    if (stored)
        c->on_stored_drop(stored);
}

void ms_abandoned_item(struct ms_peer *p, const struct ms_message *m)
{
    struct abandoned *l = ms_map_find(&p->abandoned, m->head.call_id);

    if (!l)
        return;
    l->arrived++;
    ms_peer_refuse(p, m);
}

void ms_abandoned_end(struct ms_peer *p, const struct ms_message *m)
{
    struct abandoned *l = ms_map_remove(&p->abandoned, m->head.call_id);

    if (!l)
        return;
    if (m->head.kind == MS_KIND_REPLY)
        ms_peer_refuse(p, m);
    abandoned_free(p, l);
}

/* ---- a new connection ------------------------------------------------------------ */

int ms_abandoned_ask(struct ms_peer *p, uint64_t id)
{
    struct ms_frame head = {
        .kind = MS_KIND_CANCEL, .flags = MS_FRAME_RESEND, .call_id = id};
    const struct abandoned *l = ms_map_find(&p->abandoned, id);
    int rc = 0;

    if (l && l->is_stream)
        rc = ms_peer_send_resume(p, id, l->arrived, l->arrived);
    return rc < 0 || !p->conn ? rc : ms_peer_send(p, &head, NULL, 0);
}
