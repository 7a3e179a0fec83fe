/* relay.c - lines that are kept until the other side has them */
#include "orchestrator/ray/bridge/relay.h"

#include <stdlib.h>
#include <string.h>

void ms_relay_init(struct ms_relay *r)
{
    *r = (struct ms_relay){0};
    ms_list_init(&r->kept);
}

static void drop(struct ms_relay *r, struct ms_relayed *one)
{
    r->kept_bytes -= one->len;
    ms_list_remove(&one->link);
    free(one);
}

void ms_relay_finish(struct ms_relay *r)
{
    ms_list_each (one, &r->kept, struct ms_relayed, link)
        drop(r, one);
}

bool ms_relay_begin(struct ms_relay *r, uint64_t instance)
{
    if (r->instance == instance)
        return false;
    ms_relay_finish(r);
    r->instance = instance;
    r->made = r->heard = 0;
    return true;
}

const struct ms_relayed *ms_relay_add(struct ms_relay *r, const char *line, size_t len)
{
    struct ms_relayed *one;

    if (len > MS_RELAY_KEPT_MAX - r->kept_bytes ||
        !(one = malloc(sizeof *one + len + 1)))
        return NULL;
    one->number = ++r->made;
    one->len = len;
    memcpy(one->line, line, len);
    one->line[len] = 0;
    r->kept_bytes += len;
    ms_list_add_tail(&r->kept, &one->link);
    return one;
}

void ms_relay_acked(struct ms_relay *r, uint64_t number)
{
    ms_list_each (one, &r->kept, struct ms_relayed, link)
        if (one->number <= number)
            drop(r, one);
}

bool ms_relay_take(struct ms_relay *r, uint64_t number)
{
    if (number != r->heard + 1)
        return false;
    r->heard = number;
    return true;
}
