/* join_send.c - messages to the head, held while the link is away */
#include "agent/join_impl.h"
#include "base/cleanup.h"

#include <string.h>

/* Lines that nobody reads now. logbatch.h stops at the limit, by ms_join_queued. */
static void hold(struct ms_join *j, const Muster__AgentToHead *m)
{
    uint32_t len = (uint32_t)muster__agent_to_head__get_packed_size(m);

    if (ms_buf_reserve(&j->held, sizeof len + len) < 0)
        return;
    ms_buf_append(&j->held, &len, sizeof len);
    muster__agent_to_head__pack(m, j->held.data + j->held.len);
    j->held.len += len;
}

void ms_join_send_held(struct ms_join *j)
{
    size_t at = 0;

    while (at < j->held.len) {
        uint32_t len;

        memcpy(&len, j->held.data + at, sizeof len);
        at += sizeof len;
        ms_link_send_packed(j->up->link, j->held.data + at, len);
        at += len;
    }
    ms_buf_finish(&j->held);
}

void ms_join_send(struct ms_join *j, uint64_t request, Muster__AgentToHead *m)
{
    const struct ms_reply *kept = NULL;
    bool can_send = j->up && !ms_link_is_suspect(j->up->link);

    if (request) {
        m->request = ms_replies_number(&j->replies, request);
        if (!m->request)
            return; /* who asked is gone */
        kept = ms_replies_keep(&j->replies, m->request, &m->base);
    } else if (m->body_case == MUSTER__AGENT_TO_HEAD__BODY_LOG && !can_send) {
        hold(j, m);
        return;
    }
    if (j->up && kept)
        ms_link_send_packed(j->up->link, kept->data, kept->len);
    else if (j->up)
        ms_link_send(j->up->link, &m->base);
}
