/* shards.c - tensors that a worker keeps for others to fetch by HTTP */
#include "worker/http/shards.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/lock.h"

#include <errno.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>

static int compare(const void *a, const void *b)
{
    return strcmp(((const struct ms_shard *)a)->id, ((const struct ms_shard *)b)->id);
}

static void shard_free(struct ms_shard *shard)
{
    ms_held_unref(shard->held);
    free(shard->memory);
    free(shard->id);
    free(shard->type);
    free(shard->dtype);
    free(shard->shape);
    free(shard);
}

/* With the lock held; what is to be freed without it, or NULL. */
static struct ms_shard *unref_locked(struct ms_shards *s, struct ms_shard *shard)
{
    if (--shard->refs > 0)
        return NULL;
    if (shard->memory)
        s->own_bytes -= shard->len;
    return shard;
}

void ms_shard_unref(struct ms_shards *s, struct ms_shard *shard)
{
    pthread_mutex_lock(&s->lock);
    shard = unref_locked(s, shard);
    pthread_mutex_unlock(&s->lock);
    if (shard)
        shard_free(shard);
}

static struct ms_shard *find_locked(struct ms_shards *s, const char *id)
{
    struct ms_shard key = {.id = (char *)(uintptr_t)id};
    void *found = tfind(&key, &s->by_id, compare);

    return found ? *(struct ms_shard **)found : NULL;
}

/* Out of the table; as unref_locked. */
static struct ms_shard *remove_locked(struct ms_shards *s, struct ms_shard *shard)
{
    tdelete(shard, &s->by_id, compare);
    ms_list_remove(&shard->link);
    s->count--;
    s->bytes -= shard->len;
    return unref_locked(s, shard);
}

void ms_shards_init(struct ms_shards *s)
{
    *s = (struct ms_shards){0};
    pthread_mutex_init(&s->lock, NULL);
    ms_list_init(&s->by_use);
}

void ms_shards_finish(struct ms_shards *s)
{
    ms_list_each (shard, &s->by_use, struct ms_shard, link) {
        remove_locked(s, shard);
        shard_free(shard);
    }
    pthread_mutex_destroy(&s->lock);
}

/* Visible, and nothing that JSON would have to escape. */
static bool is_word(const char *text, size_t max)
{
    size_t len = strspn(text,
                        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                        "0123456789-_.:<>|=/+%~@,[] ");

    return len > 0 && len <= max && !text[len];
}

/* One that is replaced makes room, unless somebody reads it still. */
static uint64_t room_locked(const struct ms_shards *s, const struct ms_shard *before)
{
    bool goes = before && before->memory && before->refs == 1;

    return MS_SHARDS_OWN_MAX - s->own_bytes + (goes ? before->len : 0);
}

uint64_t ms_shards_room(struct ms_shards *s, const char *id)
{
    MS_LOCK(&s->lock);

    return room_locked(s, find_locked(s, id));
}

bool ms_shard_is_widened(const struct ms_shard *shard)
{
    return strcmp(shard->dtype, "torch.bfloat16") == 0;
}

static int check_words(const struct ms_shard *with, struct ms_error *err)
{
    if (!is_word(with->id, MS_SHARD_ID_MAX))
        return ms_error_set(err,
                            -EINVAL,
                            "a shard's id has up to %u plain characters",
                            MS_SHARD_ID_MAX);
    if (!is_word(with->dtype, MS_NAME_MAX) || !is_word(with->shape, MS_SHARD_ID_MAX))
        return ms_error_set(err, -EINVAL, "this dtype or shape is none");
    if (ms_shard_is_widened(with) && with->len % 2)
        return ms_error_set(err, -EINVAL, "bfloat16 has an even number of bytes");
    return 0;
}

/* Whether there is room for it in place of `before`. */
static int check_room(const struct ms_shards *s,
                      const struct ms_shard *with,
                      const struct ms_shard *before,
                      struct ms_error *err)
{
    if (!before && s->count >= MS_SHARDS_MAX)
        return ms_error_set(
            err, -ENOSPC, "there are %u shards here: clear some", MS_SHARDS_MAX);
    if (with->memory && with->len > room_locked(s, before))
        return ms_error_set(
            err,
            -ENOSPC,
            "this worker keeps %llu bytes of others already: clear some",
            (unsigned long long)s->own_bytes);
    return 0;
}

static struct ms_shard *shard_create(const struct ms_shard *with, int64_t now_ns)
{
    struct ms_shard *shard = malloc(sizeof *shard);

    if (!shard) {
        ms_held_unref(with->held);
        free(with->memory);
        return NULL;
    }
    *shard = *with;
    shard->refs = 1;
    shard->used_ns = now_ns;
    ms_list_init(&shard->link);
    shard->id = strdup(with->id);
    shard->type = strdup(with->type);
    shard->dtype = strdup(with->dtype);
    shard->shape = strdup(with->shape);
    if (shard->id && shard->type && shard->dtype && shard->shape)
        return shard;
    shard_free(shard);
    return NULL;
}

/* With the lock held; *old is to be freed without it. */
static int add_locked(struct ms_shards *s,
                      struct ms_shard *shard,
                      struct ms_shard **old,
                      struct ms_error *err)
{
    struct ms_shard *before = find_locked(s, shard->id);

    if (before)
        *old = remove_locked(s, before);
    if (!tsearch(shard, &s->by_id, compare))
        return ms_error_set(err, -ENOMEM, "out of memory");
    ms_list_add_tail(&s->by_use, &shard->link);
    s->count++;
    s->bytes += shard->len;
    if (shard->memory)
        s->own_bytes += shard->len;
    return 0;
}

int ms_shards_add(struct ms_shards *s,
                  const struct ms_shard *with,
                  int64_t now_ns,
                  struct ms_error *err)
{
    struct ms_shard *shard = shard_create(with, now_ns), *old = NULL;
    int rc;

    if (!shard)
        return ms_error_set(err, -ENOMEM, "out of memory");
    pthread_mutex_lock(&s->lock);
    rc = check_words(shard, err);
    if (rc == 0)
        rc = check_room(s, shard, find_locked(s, shard->id), err);
    if (rc == 0)
        rc = add_locked(s, shard, &old, err);
    if (rc == 0 && !s->is_watched) {
        s->is_watched = true;
        rc = 1;
    }
    pthread_mutex_unlock(&s->lock);
    if (old)
        shard_free(old);
    if (rc < 0)
        shard_free(shard);
    return rc;
}

struct ms_shard *ms_shards_find(struct ms_shards *s, const char *id, int64_t now_ns)
{
    MS_LOCK(&s->lock);
    struct ms_shard *shard = find_locked(s, id);

    if (!shard)
        return NULL;
    shard->refs++;
    shard->used_ns = now_ns;
    ms_list_remove(&shard->link);
    ms_list_add_tail(&s->by_use, &shard->link);
    return shard;
}

bool ms_shards_remove(struct ms_shards *s, const char *id)
{
    struct ms_shard *shard, *last = NULL;

    pthread_mutex_lock(&s->lock);
    shard = find_locked(s, id);
    if (shard)
        last = remove_locked(s, shard);
    pthread_mutex_unlock(&s->lock);
    if (last)
        shard_free(last);
    return shard != NULL;
}

void ms_shards_stats(struct ms_shards *s, size_t *count, uint64_t *bytes)
{
    MS_LOCK(&s->lock);

    *count = s->count;
    *bytes = s->bytes;
}

/* The one whose lease ends first, if it has ended; *next_ns: when it ends. */
static struct ms_shard *
take_expired(struct ms_shards *s, int64_t now_ns, int64_t *next_ns)
{
    MS_LOCK(&s->lock);
    struct ms_shard *first;

    *next_ns = MS_NEVER;
    s->is_watched = !ms_list_is_empty(&s->by_use);
    if (!s->is_watched)
        return NULL;
    first = ms_list_first(&s->by_use, struct ms_shard, link);
    *next_ns = first->used_ns + MS_SHARD_LEASE_NS;
    if (*next_ns > now_ns)
        return NULL;
    first->refs++; /* the caller's */
    remove_locked(s, first);
    return first;
}

int64_t ms_shards_expire(struct ms_shards *s, int64_t now_ns)
{
    struct ms_shard *shard;
    int64_t next_ns;

    while ((shard = take_expired(s, now_ns, &next_ns)))
        ms_shard_unref(s, shard);
    return next_ns;
}
