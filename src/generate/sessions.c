/* sessions.c - conversations: where their prefix is warm, until they end or are idle too long */
#include "generate/sessions.h"

#include "base/list.h"
#include "base/map.h"
#include "generate/scheduler.h"

#include <errno.h>
#include <stdlib.h>

struct ms_gen_session {
    struct ms_list link; /* idle: the one whose last turn ended first is first */
    uint64_t id;
    struct ms_gen_turn next;
    uint32_t open; /* turns under way */
    int64_t idle_ns;
};

struct ms_gen_sessions {
    struct ms_map by_id;
    struct ms_list idle;
    uint64_t last;
    int64_t ttl_ns;
};

struct ms_gen_sessions *ms_gen_sessions_create(int64_t ttl_ns)
{
    struct ms_gen_sessions *s = calloc(1, sizeof *s);

    if (!s)
        return NULL;
    ms_map_init(&s->by_id);
    ms_list_init(&s->idle);
    s->ttl_ns = ttl_ns > 0 ? ttl_ns : MS_GEN_SESSION_TTL_NS;
    return s;
}

void ms_gen_sessions_destroy(struct ms_gen_sessions *s)
{
    struct ms_gen_session *one;
    size_t at = 0;

    if (!s)
        return;
    while ((one = ms_map_next(&s->by_id, &at)))
        free(one);
    ms_map_finish(&s->by_id);
    free(s);
}

static void rest(struct ms_gen_sessions *s, struct ms_gen_session *one, int64_t now_ns)
{
    one->idle_ns = now_ns;
    ms_list_add_tail(&s->idle, &one->link);
}

static void forget(struct ms_gen_sessions *s, struct ms_gen_session *one)
{
    ms_list_remove(&one->link);
    ms_map_remove(&s->by_id, one->id);
    free(one);
}

int ms_gen_sessions_open(struct ms_gen_sessions *s,
                         uint64_t key,
                         uint32_t turn,
                         int64_t now_ns,
                         uint64_t *id)
{
    struct ms_gen_session *one = calloc(1, sizeof *one);

    if (!one)
        return -ENOMEM;
    ms_list_init(&one->link);
    one->id = s->last + 1;
    one->next = (struct ms_gen_turn){.key = key, .turn = turn, .replica = MS_NOWHERE};
    if (ms_map_add(&s->by_id, one->id, one) < 0) {
        free(one);
        return -ENOMEM;
    }
    rest(s, one, now_ns);
    *id = s->last = one->id;
    return 0;
}

int ms_gen_sessions_finish(struct ms_gen_sessions *s, uint64_t id)
{
    struct ms_gen_session *one = ms_map_find(&s->by_id, id);

    if (!one)
        return -ENOENT;
    forget(s, one);
    return 0;
}

int ms_gen_sessions_look(struct ms_gen_sessions *s,
                         uint64_t id,
                         int64_t now_ns,
                         struct ms_gen_turn *out)
{
    const struct ms_gen_session *one;

    ms_gen_sessions_expire(s, now_ns);
    one = ms_map_find(&s->by_id, id);
    if (!one)
        return -ENOENT;
    *out = one->next;
    return 0;
}

int ms_gen_sessions_begin(struct ms_gen_sessions *s, uint64_t id)
{
    struct ms_gen_session *one = ms_map_find(&s->by_id, id);

    if (!one)
        return -ENOENT;
    ms_list_remove(&one->link);
    one->open++;
    one->next.turn++;
    return 0;
}

int ms_gen_sessions_end(struct ms_gen_sessions *s,
                        uint64_t id,
                        uint32_t replica,
                        uint32_t epoch,
                        uint32_t weights,
                        int64_t now_ns)
{
    struct ms_gen_session *one = ms_map_find(&s->by_id, id);

    if (!one || one->open == 0)
        return -ENOENT;
    if (replica != MS_NOWHERE) {
        one->next.replica = replica;
        one->next.epoch = epoch;
        one->next.weights = weights;
    }
    if (--one->open == 0)
        rest(s, one, now_ns);
    return 0;
}

int64_t ms_gen_sessions_expire(struct ms_gen_sessions *s, int64_t now_ns)
{
    while (!ms_list_is_empty(&s->idle)) {
        struct ms_gen_session *one =
            ms_list_first(&s->idle, struct ms_gen_session, link);

        if (now_ns - one->idle_ns < s->ttl_ns)
            return one->idle_ns + s->ttl_ns;
        forget(s, one);
    }
    return MS_NEVER;
}

size_t ms_gen_sessions_count(const struct ms_gen_sessions *s)
{
    return s->by_id.count;
}
