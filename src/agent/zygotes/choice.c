/* choice.c - which zygote serves a key, and which ones go. Pure */
#include "agent/zygotes/zygote_impl.h"
#include "base/clock.h"
#include "base/limits.h"

static bool can_serve(const struct ms_zygote *z)
{
    return z->state != MS_ZYGOTE_DEAD && !z->is_stale;
}

static bool can_fork(const struct ms_zygote *z)
{
    return can_serve(z) && z->state != MS_ZYGOTE_UNFORKABLE;
}

typedef bool relation(const Muster__DriverContext *a, const Muster__DriverContext *b);

/* For it as it was made, or as it is for workers that were forked from it. */
static bool
is_so(relation *is, const Muster__DriverContext *key, const struct ms_zygote *z)
{
    return is(key, z->key) || (z->after && is(key, z->after));
}

static bool is_within(const Muster__DriverContext *key, const Muster__DriverContext *of)
{
    return ms_zygote_key_extends(of, key);
}

struct ms_zygote *ms_zygote_find(const struct ms_list *list,
                                 const Muster__DriverContext *key)
{
    ms_list_each (z, list, struct ms_zygote, link)
        if (can_serve(z) && is_so(ms_zygote_key_equal, key, z))
            return z;
    return NULL;
}

struct ms_zygote *ms_zygote_find_base(const struct ms_list *list,
                                      const Muster__DriverContext *key)
{
    struct ms_zygote *best = NULL;

    ms_list_each (z, list, struct ms_zygote, link)
        if (can_fork(z) && is_so(ms_zygote_key_extends, key, z) &&
            (!best || z->key->n_preload > best->key->n_preload))
            best = z;
    return best;
}

struct ms_zygote *ms_zygote_find_richer(const struct ms_list *list,
                                        const Muster__DriverContext *key)
{
    ms_list_each (z, list, struct ms_zygote, link)
        if (can_serve(z) && is_so(is_within, key, z))
            return z;
    return NULL;
}

static bool is_base(const struct ms_list *list, const struct ms_zygote *base)
{
    ms_list_each (z, list, struct ms_zygote, link)
        if (z->base == base && z->state != MS_ZYGOTE_DEAD)
            return true;
    return false;
}

bool ms_zygote_is_idle(const struct ms_list *list, const struct ms_zygote *z)
{
    return z->state != MS_ZYGOTE_DEAD && ms_list_is_empty(&z->queue) &&
           ms_list_is_empty(&z->sent) && !z->waiters.len && !is_base(list, z);
}

/* When one that is idle ends; MS_NEVER: a living driver has asked for it. */
static int64_t expires_ns(const struct ms_zygote *z)
{
    return z->drivers.len ? MS_NEVER : ms_deadline_ns(z->used_ns, MS_ZYGOTE_IDLE_NS);
}

struct ms_zygote *ms_zygote_find_over(const struct ms_list *list, int64_t now_ns)
{
    ms_list_each (z, list, struct ms_zygote, link)
        if ((z->is_stale || expires_ns(z) <= now_ns) && ms_zygote_is_idle(list, z))
            return z;
    return NULL;
}

/* `a` goes before `b`. */
static bool goes_first(const struct ms_zygote *a, const struct ms_zygote *b)
{
    if (!a->drivers.len != !b->drivers.len)
        return !a->drivers.len;
    return a->used_ns < b->used_ns;
}

struct ms_zygote *ms_zygote_find_replaceable(const struct ms_list *list)
{
    struct ms_zygote *best = NULL;

    ms_list_each (z, list, struct ms_zygote, link)
        if (ms_zygote_is_idle(list, z) && (!best || goes_first(z, best)))
            best = z;
    return best;
}

int64_t ms_zygote_next_end_ns(const struct ms_list *list)
{
    int64_t next = MS_NEVER;

    ms_list_each (z, list, struct ms_zygote, link) {
        int64_t at = expires_ns(z);

        if (z->state != MS_ZYGOTE_DEAD && at < next)
            next = at;
    }
    return next;
}
