/* requests.c - numbered requests, their watermark, and the answers that are kept for it */
#include "wire/link/requests.h"
#include "base/proto.h"

#include <errno.h>

/* ---- asking ---------------------------------------------------------------------- */

void ms_requests_init(struct ms_requests *r)
{
    *r = (struct ms_requests){0};
    ms_list_init(&r->open);
}

void ms_requests_finish(struct ms_requests *r)
{
    ms_map_finish(&r->by_number);
    free(r->arrived);
}

int ms_requests_add(struct ms_requests *r, struct ms_pending *p)
{
    int rc = ms_map_add(&r->by_number, r->last + 1, p);

    if (rc < 0)
        return rc;
    p->number = ++r->last;
    ms_list_add_tail(&r->open, &p->link);
    return 0;
}

struct ms_pending *ms_requests_find(const struct ms_requests *r, uint64_t number)
{
    return ms_map_find(&r->by_number, number);
}

uint64_t ms_requests_watermark(const struct ms_requests *r)
{
    if (ms_list_is_empty(&r->open))
        return r->last;
    return ms_list_first(&r->open, struct ms_pending, link)->number - 1;
}

/* Without memory for it the answer stays until the watermark has passed it. */
static void add_arrived(struct ms_requests *r, uint64_t number)
{
    if (ms_array_reserve(
            &r->arrived, &r->arrived_room, r->arrived_count + 1, sizeof number) == 0)
        r->arrived[r->arrived_count++] = number;
}

void ms_requests_remove(struct ms_requests *r, struct ms_pending *p)
{
    if (!p->number || ms_map_find(&r->by_number, p->number) != p)
        return;
    ms_map_remove(&r->by_number, p->number);
    ms_list_remove(&p->link);
    if (p->number > ms_requests_watermark(r))
        add_arrived(r, p->number);
}

void ms_requests_told(struct ms_requests *r)
{
    r->arrived_count = 0;
}

/* ---- answering ------------------------------------------------------------------- */

void ms_replies_init(struct ms_replies *r)
{
    *r = (struct ms_replies){0};
    ms_list_init(&r->all);
}

static void reply_free(struct ms_replies *r, struct ms_reply *x)
{
    if (!x)
        return;
    ms_map_remove(&r->by_number, x->number);
    ms_list_remove(&x->link);
    free(x->data);
    free(x);
}

static void forget_upto(struct ms_replies *r, uint64_t number)
{
    ms_list_each (x, &r->all, struct ms_reply, link)
        if (x->number <= number)
            reply_free(r, x);
}

void ms_replies_finish(struct ms_replies *r)
{
    forget_upto(r, UINT64_MAX);
    ms_map_finish(&r->by_number);
}

void ms_replies_set_asker(struct ms_replies *r, uint64_t asker)
{
    if (r->asker == asker)
        return;
    forget_upto(r, UINT64_MAX);
    r->asker = asker;
    r->base += r->newest;
    r->newest = r->watermark = 0;
}

void ms_replies_settle(struct ms_replies *r,
                       uint64_t watermark,
                       const uint64_t *arrived,
                       size_t count)
{
    for (size_t i = 0; i < count; i++)
        ms_replies_forget(r, arrived[i]);
    if (watermark <= r->watermark)
        return;
    r->watermark = watermark;
    forget_upto(r, watermark);
}

int ms_replies_begin(struct ms_replies *r,
                     uint64_t number,
                     uint64_t *id,
                     const struct ms_reply **kept)
{
    struct ms_reply *x = ms_map_find(&r->by_number, number);

    *kept = x && x->data ? x : NULL;
    if (x || number <= r->watermark)
        return 0;
    x = calloc(1, sizeof *x);
    if (!x || ms_map_add(&r->by_number, number, x) < 0) {
        free(x);
        return -ENOMEM;
    }
    x->number = number;
    ms_list_add_tail(&r->all, &x->link);
    if (number > r->newest)
        r->newest = number;
    *id = r->base + number;
    return 1;
}

uint64_t ms_replies_number(const struct ms_replies *r, uint64_t id)
{
    return id > r->base ? id - r->base : 0;
}

const struct ms_reply *
ms_replies_keep(struct ms_replies *r, uint64_t number, const ProtobufCMessage *m)
{
    struct ms_reply *x = ms_map_find(&r->by_number, number);

    if (!x || x->data)
        return NULL;
    x->data = ms_proto_packed(m, &x->len);
    return x->data ? x : NULL;
}

void ms_replies_forget(struct ms_replies *r, uint64_t number)
{
    reply_free(r, ms_map_find(&r->by_number, number));
}
