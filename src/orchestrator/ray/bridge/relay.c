/* relay.c - lines that are kept until the other side has them */
#include "orchestrator/ray/bridge/relay.h"

#include <stdlib.h>
#include <string.h>

void ms_relay_init(struct ms_relay *r)
{
    *r = (struct ms_relay){0};
    ms_requests_init(&r->sent);
    ms_replies_init(&r->heard);
}

void ms_relay_acked(struct ms_relay *r, uint64_t number)
{
    ms_list_each (one, &r->sent.open, struct ms_relayed, pending.link)
        if (one->pending.number <= number) {
            r->kept_bytes -= one->len;
            ms_requests_remove(&r->sent, &one->pending);
            free(one);
        }
}

void ms_relay_finish(struct ms_relay *r)
{
    ms_relay_acked(r, UINT64_MAX);
    ms_requests_finish(&r->sent);
    ms_replies_finish(&r->heard);
}

bool ms_relay_begin(struct ms_relay *r, uint64_t instance)
{
    if (r->heard.asker == instance)
        return false;
    ms_relay_finish(r);
    ms_relay_init(r);
    ms_replies_set_asker(&r->heard, instance);
    return true;
}

const struct ms_relayed *ms_relay_add(struct ms_relay *r, const char *line, size_t len)
{
    struct ms_relayed *one =
        len > MS_RELAY_KEPT_MAX - r->kept_bytes ? NULL : malloc(sizeof *one + len + 1);

    if (!one || ms_requests_add(&r->sent, &one->pending) < 0) {
        free(one);
        return NULL;
    }
    one->len = len;
    memcpy(one->line, line, len);
    one->line[len] = 0;
    r->kept_bytes += len;
    return one;
}

bool ms_relay_take(struct ms_relay *r, uint64_t number)
{
    bool is_next = number == r->heard.watermark + 1;

    if (is_next)
        ms_replies_settle(&r->heard, number, NULL, 0);
    return is_next;
}
