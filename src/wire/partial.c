/* partial.c - big messages that are arriving piece by piece */
#include "base/limits.h"
#include "wire/conn_impl.h"

#include <assert.h>
#include <errno.h>

struct partial *ms_partial_create(struct ms_conn *c, const struct ms_frame *first)
{
    struct partial *p = calloc(1, sizeof *p);

    if (!p)
        return NULL;
    p->head = *first;
    ms_list_add_tail(&c->partials, &p->link);
    c->partial_count++;
    return p;
}

void ms_partial_destroy(struct ms_conn *c, struct partial *p)
{
    ms_list_remove(&p->link);
    c->partial_count--;
    free(p->data);
    free(p);
}

struct partial *ms_partial_find(struct ms_conn *c, const struct ms_frame *f)
{
    ms_list_each (p, &c->partials, struct partial, link)
        if (p->head.call_id == f->call_id && p->head.kind == f->kind)
            return p;
    return NULL;
}

int ms_partial_reserve(struct partial *p, size_t more)
{
    size_t want = p->room ? 2 * p->room : MS_MESSAGE_ROOM_MIN;
    uint8_t *data;

    assert(more <= p->head.total - p->have);
    if (more <= p->room - p->have)
        return 0;
    if (want < p->have + more)
        want = p->have + more;
    if (want > p->head.total)
        want = p->head.total;
    data = realloc(p->data, want);
    if (!data)
        return -ENOMEM;
    p->data = data;
    p->room = want;
    return 0;
}
