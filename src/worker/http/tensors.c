/* tensors.c - tensors that a worker keeps for others to fetch by HTTP */
#include "worker/http/tensors.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/lock.h"

#include <errno.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>

static int compare(const void *a, const void *b)
{
    return strcmp(((const struct ms_http_tensor *)a)->id,
                  ((const struct ms_http_tensor *)b)->id);
}

static void shard_free(struct ms_http_tensor *shard)
{
    ms_http_pieces_finish(&shard->pieces);
    free(shard->memory);
    free(shard->id);
    free(shard->type);
    free(shard->dtype);
    free(shard->shape);
    free(shard);
}

/* With the lock held; what is to be freed without it, or NULL. */
static struct ms_http_tensor *unref_locked(struct ms_http_tensors *s,
                                           struct ms_http_tensor *shard)
{
    if (--shard->refs > 0)
        return NULL;
    if (shard->memory)
        s->own_bytes -= shard->len;
    return shard;
}

void ms_http_tensor_unref(struct ms_http_tensors *s, struct ms_http_tensor *shard)
{
    pthread_mutex_lock(&s->lock);
    shard = unref_locked(s, shard);
    pthread_mutex_unlock(&s->lock);
    if (shard)
        shard_free(shard);
}

static struct ms_http_tensor *find_locked(struct ms_http_tensors *s, const char *id)
{
    struct ms_http_tensor key = {.id = (char *)(uintptr_t)id};
    void *found = tfind(&key, &s->by_id, compare);

    return found ? *(struct ms_http_tensor **)found : NULL;
}

/* Out of the table; as unref_locked. */
static struct ms_http_tensor *remove_locked(struct ms_http_tensors *s,
                                            struct ms_http_tensor *shard)
{
    tdelete(shard, &s->by_id, compare);
    ms_list_remove(&shard->link);
    s->count--;
    s->bytes -= shard->len;
    return unref_locked(s, shard);
}

void ms_http_tensors_init(struct ms_http_tensors *s)
{
    *s = (struct ms_http_tensors){0};
    pthread_mutex_init(&s->lock, NULL);
    ms_list_init(&s->by_use);
}

void ms_http_tensors_finish(struct ms_http_tensors *s)
{
    ms_list_each (shard, &s->by_use, struct ms_http_tensor, link) {
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

/* One that is replaced makes room, unless it is still being read. */
static uint64_t room_locked(const struct ms_http_tensors *s,
                            const struct ms_http_tensor *before)
{
    bool goes = before && before->memory && before->refs == 1;

    return MS_HTTP_TENSORS_OWN_MAX - s->own_bytes + (goes ? before->len : 0);
}

uint64_t ms_http_tensors_room(struct ms_http_tensors *s, const char *id)
{
    MS_LOCK(&s->lock);

    return room_locked(s, find_locked(s, id));
}

bool ms_http_tensor_is_widened(const struct ms_http_tensor *shard)
{
    return strcmp(shard->dtype, "torch.bfloat16") == 0;
}

static int check_words(const struct ms_http_tensor *with, struct ms_error *err)
{
    if (!is_word(with->id, MS_HTTP_TENSOR_ID_MAX))
        return ms_error_set(err,
                            -EINVAL,
                            "a shard's id has up to %u plain characters",
                            MS_HTTP_TENSOR_ID_MAX);
    if (!is_word(with->dtype, MS_NAME_MAX) ||
        !is_word(with->shape, MS_HTTP_TENSOR_ID_MAX))
        return ms_error_set(err, -EINVAL, "this dtype or shape is none");
    if (ms_http_tensor_is_widened(with) && with->len % 2)
        return ms_error_set(err, -EINVAL, "bfloat16 has an even number of bytes");
    return 0;
}

/* Whether there is room for it in place of `before`. */
static int check_room(const struct ms_http_tensors *s,
                      const struct ms_http_tensor *with,
                      const struct ms_http_tensor *before,
                      struct ms_error *err)
{
    if (!before && s->count >= MS_HTTP_TENSORS_MAX)
        return ms_error_set(
            err, -ENOSPC, "there are %u shards here: clear some", MS_HTTP_TENSORS_MAX);
    if (with->memory && with->len > room_locked(s, before))
        return ms_error_set(
            err,
            -ENOSPC,
            "this worker keeps %llu bytes of small tensors already: clear some",
            (unsigned long long)s->own_bytes);
    return 0;
}

static struct ms_http_tensor *shard_create(const struct ms_http_tensor *with,
                                           int64_t now_ns)
{
    struct ms_http_tensor *shard = malloc(sizeof *shard);

    if (!shard) {
        struct ms_http_pieces pieces = with->pieces;

        ms_http_pieces_finish(&pieces);
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
static int add_locked(struct ms_http_tensors *s,
                      struct ms_http_tensor *shard,
                      struct ms_http_tensor **old,
                      struct ms_error *err)
{
    struct ms_http_tensor *before = find_locked(s, shard->id);

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

int ms_http_tensors_add(struct ms_http_tensors *s,
                        const struct ms_http_tensor *with,
                        int64_t now_ns,
                        struct ms_error *err)
{
    struct ms_http_tensor *shard = shard_create(with, now_ns), *old = NULL;
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

struct ms_http_tensor *
ms_http_tensors_find(struct ms_http_tensors *s, const char *id, int64_t now_ns)
{
    MS_LOCK(&s->lock);
    struct ms_http_tensor *shard = find_locked(s, id);

    if (!shard)
        return NULL;
    shard->refs++;
    shard->used_ns = now_ns;
    ms_list_remove(&shard->link);
    ms_list_add_tail(&s->by_use, &shard->link);
    return shard;
}

bool ms_http_tensors_remove(struct ms_http_tensors *s, const char *id)
{
    struct ms_http_tensor *shard, *last = NULL;

    pthread_mutex_lock(&s->lock);
    shard = find_locked(s, id);
    if (shard)
        last = remove_locked(s, shard);
    pthread_mutex_unlock(&s->lock);
    if (last)
        shard_free(last);
    return shard != NULL;
}

void ms_http_tensors_stats(struct ms_http_tensors *s, size_t *count, uint64_t *bytes)
{
    MS_LOCK(&s->lock);

    *count = s->count;
    *bytes = s->bytes;
}

/* The one whose lease ends first, if it has ended; *next_ns: when it ends. */
static struct ms_http_tensor *
take_expired(struct ms_http_tensors *s, int64_t now_ns, int64_t *next_ns)
{
    MS_LOCK(&s->lock);
    struct ms_http_tensor *first;

    *next_ns = MS_NEVER;
    s->is_watched = !ms_list_is_empty(&s->by_use);
    if (!s->is_watched)
        return NULL;
    first = ms_list_first(&s->by_use, struct ms_http_tensor, link);
    *next_ns = first->used_ns + MS_HTTP_TENSOR_LEASE_NS;
    if (*next_ns > now_ns)
        return NULL;
    first->refs++; /* the caller's */
    remove_locked(s, first);
    return first;
}

int64_t ms_http_tensors_expire(struct ms_http_tensors *s, int64_t now_ns)
{
    struct ms_http_tensor *shard;
    int64_t next_ns;

    while ((shard = take_expired(s, now_ns, &next_ns)))
        ms_http_tensor_unref(s, shard);
    return next_ns;
}
