/* peer_attach.c - a new connection of a peer: open calls are attached or sent again */
#include "base/clock.h"
#include "wire/client/client_impl.h"

#include <endian.h>
#include <errno.h>

enum { ATTACH_IDS = 4096 }; /* in one message */

static int compare_ids(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

/* The ids of the calls whose ends have not come, in order; NULL: out of memory. */
static uint64_t *call_ids(struct ms_peer *p)
{
    uint64_t *ids = malloc((p->calls.count + 1) * sizeof *ids);
    size_t at = 0, n = 0;
    struct ms_call *c;

    if (!ids)
        return NULL;
    while ((c = ms_map_next(&p->calls, &at)))
        ids[n++] = c->id;
    qsort(ids, n, sizeof *ids, compare_ids);
    return ids;
}

/* Tell which calls we still wait for: what else the worker remembers is of no use. */
static int send_attach(struct ms_peer *p, const uint64_t *ids, size_t count)
{
    uint64_t body[ATTACH_IDS + 1], after = 0;
    size_t at = 0;
    int rc = 0;

    do {
        size_t n = count - at < ATTACH_IDS ? count - at : ATTACH_IDS;
        bool is_last = at + n == count;
        struct ms_frame head = {.kind = MS_KIND_ATTACH,
                                .call_id = is_last ? p->next_call : ids[at + n - 1]};
        struct iovec iov = {body, (n + 1) * sizeof *body};

        body[0] = htole64(after);
        for (size_t i = 0; i < n; i++)
            body[i + 1] = htole64(ids[at + i]);
        rc = ms_peer_send(p, &head, &iov, 1);
        after = head.call_id;
        at += n;
    } while (rc == 0 && p->conn && at < count);
    return rc;
}

/* How many items of its stream have arrived, and how many of them were taken: the worker
 * sends what is missing. Of a call that was given up, all that have arrived. */
static int send_resume(struct ms_peer *p, struct ms_call *c)
{
    struct ms_frame head = {
        .kind = MS_KIND_CREDIT, .flags = MS_FRAME_RESEND, .call_id = c->id};
    uint64_t body[2] = {htole64(c->arrived),
                        htole64(c->given_up ? c->arrived : c->taken)};
    struct iovec iov = {body, sizeof body};

    c->consumed = 0;
    return ms_peer_send(p, &head, &iov, 1);
}

/* Of a call that was given up: let the worker send what has not arrived. */
static int send_cancel_again(struct ms_peer *p, struct ms_call *c)
{
    struct ms_frame head = {
        .kind = MS_KIND_CANCEL, .flags = MS_FRAME_RESEND, .call_id = c->id};
    int rc = c->flags & MS_FRAME_STREAM ? send_resume(p, c) : 0;

    return rc < 0 || !p->conn ? rc : ms_peer_send(p, &head, NULL, 0);
}

static int send_again(struct ms_peer *p, struct ms_call *c, int64_t now_ns)
{
    struct ms_frame head = ms_call_frame(c, now_ns);
    struct iovec iov = {c->request, c->request_len};
    int rc;

    if (c->sent && c->flags & MS_FRAME_STREAM) {
        rc = send_resume(p, c);
        if (rc < 0 || !p->conn)
            return rc;
    }
    if (c->sent)
        head.flags |= MS_FRAME_RESEND;
    if (!c->request)
        head.flags |= MS_FRAME_RESEND | MS_FRAME_BARE;
    rc = ms_peer_send(p, &head, &iov, c->request ? 1 : 0);
    if (rc != -EMSGSIZE)
        return rc;
    ms_peer_drop_call(p, ms_peer_take_call(p, c->id));
    ms_call_fail(
        c, MUSTER__FAILURE__KIND__REFUSED, "the arguments are too big to be sent");
    return 0;
}

int ms_peer_attach(struct ms_peer *p)
{
    int64_t now_ns = ms_now_ns();
    size_t count = p->calls.count;
    uint64_t *ids = call_ids(p);
    int rc = 0;

    if (!ids)
        return -ENOMEM;
    p->ack_count = 0; /* what is not in `ids` needs no other word */
    if (p->was_known)
        rc = send_attach(p, ids, count);
    for (size_t i = 0; i < p->method_count && p->conn && rc == 0; i++)
        rc = ms_peer_send_method(p, i);
    for (size_t i = 0; i < count && p->conn && rc == 0; i++) {
        struct ms_call *c = ms_map_find(&p->calls, ids[i]);

        if (c)
            rc = c->given_up ? send_cancel_again(p, c) : send_again(p, c, now_ns);
    }
    free(ids);
    return rc;
}
