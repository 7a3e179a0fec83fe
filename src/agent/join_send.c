#include "agent/join_impl.h"
#include "base/cleanup.h"

#include <string.h>

static bool can_send(const struct ms_join *j)
{
    return j->up && !ms_link_is_suspect(j->up->link);
}

/* Lines that nobody reads now. logbatch.h stops at the limit, by ms_join_queued. */
static void hold(struct ms_join *j, const uint8_t *data, size_t len)
{
    uint32_t head = (uint32_t)len;
    size_t before = j->held.len;

    if (ms_buf_append(&j->held, &head, sizeof head) < 0 ||
        ms_buf_append(&j->held, data, len) < 0)
        j->held.len = before;
}

void ms_join_send_held(struct ms_join *j)
{
    size_t at = 0;

    while (at < j->held.len) {
        Muster__AgentToHead *m;
        uint32_t len;

        memcpy(&len, j->held.data + at, sizeof len);
        at += sizeof len;
        m = muster__agent_to_head__unpack(NULL, len, j->held.data + at);
        at += len;
        if (!m)
            continue;
        ms_link_send(j->up->link, &m->base);
        muster__agent_to_head__free_unpacked(m, NULL);
    }
    ms_buf_finish(&j->held);
}

void ms_join_send(struct ms_join *j, uint64_t request, Muster__AgentToHead *m)
{
    bool is_log = m->body_case == MUSTER__AGENT_TO_HEAD__BODY_LOG;
    bool is_kept = request || (is_log && !can_send(j));
    MS_CLEANUP(ms_cleanup_free) uint8_t *packed = NULL;
    size_t len;

    if (request) {
        m->request = ms_answers_request(&j->answers, request);
        if (!m->request)
            return; /* who asked is gone */
    }
    if (is_kept) {
        len = muster__agent_to_head__get_packed_size(m);
        packed = malloc(len ? len : 1);
        if (packed)
            muster__agent_to_head__pack(m, packed);
        if (packed && request)
            ms_answers_put(&j->answers, request, packed, len);
        else if (packed)
            hold(j, packed, len);
    }
    if (j->up && (!is_log || !is_kept))
        ms_link_send(j->up->link, &m->base);
}

size_t ms_join_queued(const struct ms_join *j)
{
    return j->held.len + (j->up ? ms_link_queued(j->up->link) : 0);
}

int64_t ms_join_link_grace(const struct ms_join *j)
{
    return j ? j->link_grace_ns : 0;
}

const char *ms_join_head(const struct ms_join *j)
{
    return j ? j->options->head : "";
}
