/* stream.c - the server's side of streams: items, windows, and what a broken connection
 * means.
 *
 * An item is kept until its client has consumed it, so that a client that comes back
 * is sent what it has missed. Meanwhile the stream is adrift: the handler goes on until
 * the window is closed. If more would have to be kept than MS_STREAM_KEPT_MAX nothing
 * is, and a break ends that stream. */
#include "wire/server/server_impl.h"

#include <errno.h>
#include <string.h>

struct kept_item {
    struct ms_list link;
    uint8_t codec;
    size_t len;
    uint8_t body[];
};

/* ---- keeping --------------------------------------------------------------------- */

/* Those before number `upto`: the last one that is kept is number made - 1. */
static void forget_items(struct ms_request *r, uint64_t upto)
{
    ms_list_each (i, &r->stream.items, struct kept_item, link) {
        if (r->stream.kept <= r->stream.made - upto)
            return;
        ms_list_remove(&i->link);
        r->stream.kept--;
        r->stream.bytes -= i->len;
        free(i);
    }
}

void ms_stream_forget(struct ms_request *r)
{
    forget_items(r, r->stream.made);
    r->stream.is_adrift = false;
}

/* It is the newest. */
static void
keep(struct ms_request *r, uint8_t codec, const struct iovec *iov, int count)
{
    size_t len = ms_iov_len(iov, count);
    struct kept_item *item;

    if (r->stream.made == r->stream.consumed)
        r->stream.is_unkept = false; /* what could not be kept has arrived */
    if (r->stream.is_unkept)
        return;
    item =
        len <= MS_STREAM_KEPT_MAX - r->stream.bytes ? malloc(sizeof *item + len) : NULL;
    if (!item) {
        r->stream.is_unkept = true;
        forget_items(r, r->stream.made);
        return;
    }
    item->codec = codec;
    item->len = len;
    ms_iov_copy(item->body, iov, count);
    ms_list_add_tail(&r->stream.items, &item->link);
    r->stream.kept++;
    r->stream.bytes += len;
}

/* ---- the handler's side ---------------------------------------------------------- */

static bool is_open(const struct ms_request *r)
{
    return r->stream.made - r->stream.consumed < MS_STREAM_WINDOW;
}

void ms_request_begin_stream(struct ms_request *r)
{
    r->streamed = true; /* the handler's own until it replies */
}

static int
send_item(struct ms_request *r, uint8_t codec, const struct iovec *iov, int n)
{
    struct ms_frame head = {
        .kind = MS_KIND_ITEM, .codec = codec, .call_id = r->call_id};

    r->stream.is_wired = true;
    return ms_server_conn_send(r->ledger->conn, &head, iov, n);
}

/* The window is open. */
static int add_item(struct ms_request *r, uint8_t codec, const struct iovec *iov, int n)
{
    int rc;

    if (ms_iov_len(iov, n) > MS_MESSAGE_MAX)
        return -EMSGSIZE;
    if (!r->ledger->conn)
        r->stream.is_adrift = true;
    keep(r, codec, iov, n);
    r->stream.made++;
    if (r->stream.is_unkept && r->stream.is_adrift) {
        ms_request_lose_stream(r);
        return -ECANCELED;
    }
    r->streamed = true;
    if (r->stream.is_adrift)
        return 0;
    rc = send_item(r, codec, iov, n);
    return r->stream.is_unkept ? rc : 0; /* what broke on the way is sent again */
}

int ms_request_item(struct ms_request *r,
                    uint8_t codec,
                    const struct iovec *iov,
                    int count)
{
    int rc = -ECANCELED;
    MS_LOCK(&r->server->lock);

    if (!r->ledger || r->ledger->is_left || r->on_done)
        r->cancelled = r->stream_lost = true; /* there is nobody to send them to */
    if (!r->cancelled)
        rc = is_open(r) ? add_item(r, codec, iov, count) : -EAGAIN;
    r->stream.is_held_up = rc == -EAGAIN;
    return rc;
}

int ms_request_item_wait(struct ms_request *r, int64_t until_ns)
{
    struct timespec at = ms_timespec(until_ns);
    int rc = 0;
    MS_LOCK(&r->server->lock);

    while (rc == 0 && !is_open(r) && !r->cancelled && r->ledger)
        rc = -pthread_cond_timedwait(&r->server->credit, &r->server->lock, &at);
    if (r->cancelled || !r->ledger)
        rc = -ECANCELED;
    else if (is_open(r))
        rc = 0;
    r->stream.is_held_up = rc == -ETIMEDOUT;
    return rc;
}

/* ---- the client's side ----------------------------------------------------------- */

static void set_consumed(struct ms_request *r, uint64_t consumed)
{
    r->stream.consumed = consumed;
    forget_items(r, consumed);
    pthread_cond_broadcast(&r->server->credit);
    if (r->stream.is_held_up)
        r->server->is_ready = true;
    r->stream.is_held_up = false;
}

static void credit(struct ms_request *r, uint64_t items)
{
    if (r->state != MS_SERVE_DONE && items <= r->stream.made - r->stream.consumed)
        set_consumed(r, r->stream.consumed + items);
}

/* What a client that has come back says: u64 how many have arrived, u64 how many of them it
 * has consumed. */
static int resume(struct ms_request *r, const struct ms_message *m)
{
    uint64_t arrived, consumed;

    if (m->len != 2 * sizeof arrived)
        return -EPROTO;
    if (!r->stream.is_adrift)
        return 0;
    arrived = ms_le64_at(m->body, 0);
    consumed = ms_le64_at(m->body, 1);
    if (consumed < r->stream.consumed || arrived < consumed || arrived > r->stream.made)
        return -EPROTO;
    if (r->stream.made - arrived > r->stream.kept)
        return 0; /* they are not there any more: lost when it is asked for */
    set_consumed(r, consumed);
    forget_items(r, arrived);
    r->stream.is_resumed = true;
    return 0;
}

int ms_stream_credit(struct ms_ledger *l, const struct ms_message *m)
{
    struct ms_request *r = ms_map_find(&l->requests, m->head.call_id);

    if (!r)
        return 0;
    if (m->head.flags & MS_FRAME_RESEND)
        return resume(r, m);
    credit(r, m->head.op);
    return 0;
}

void ms_stream_attach(struct ms_request *r)
{
    if (!r->stream.is_adrift)
        return;
    if (!r->stream.is_resumed && r->stream.is_wired) {
        ms_request_lose_stream(r);
        return;
    }
    r->stream.is_adrift = r->stream.is_resumed = false;
    ms_list_each (i, &r->stream.items, struct kept_item, link) {
        struct iovec iov = {i->body, i->len};

        if (send_item(r, i->codec, &iov, 1) < 0)
            return; /* and again, over another one */
    }
}

void ms_stream_detach(struct ms_request *r)
{
    if (r->stream.made == 0)
        return;
    if (r->stream.is_unkept && r->stream.made > r->stream.consumed)
        ms_request_lose_stream(r);
    else
        r->stream.is_adrift = true;
    r->stream.is_resumed = false;
}
