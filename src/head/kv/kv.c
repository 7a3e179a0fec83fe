/* kv.c - entries by key, and the last changes of them */
#include "head/kv/kv.h"
#include "base/cleanup.h"
#include "base/limits.h"
#include "base/name.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NUMBER_MAX = 20 }; /* characters of a number of 64 bits */

/* ---- values ---------------------------------------------------------------------- */

static struct ms_kv_value *value_create(const uint8_t *data, size_t len, uint32_t codec)
{
    struct ms_kv_value *v = malloc(sizeof *v + len);

    if (!v)
        return NULL;
    *v = (struct ms_kv_value){.refs = 1, .len = len, .codec = codec};
    if (len)
        memcpy(v->data, data, len);
    return v;
}

static void value_unref(struct ms_kv_value *v)
{
    if (v && --v->refs == 0)
        free(v);
}

/* ---- changes --------------------------------------------------------------------- */

static size_t change_size(const struct ms_kv_entry *c)
{
    assert(c->key);
    return strlen(c->key) + (c->value ? c->value->len : 0);
}

static void forget_change(struct ms_kv *kv)
{
    struct ms_kv_entry *c = &kv->changes[kv->change_first];

    kv->change_bytes -= change_size(c);
    free(c->key);
    value_unref(c->value);
    kv->change_first = (kv->change_first + 1) % MS_KV_HISTORY_MAX;
    kv->change_count--;
}

/* Takes the key; `value` NULL: deleted. */
static void add_change(struct ms_kv *kv, char *key, struct ms_kv_value *value)
{
    struct ms_kv_entry *c;

    if (kv->change_count == MS_KV_HISTORY_MAX)
        forget_change(kv);
    c = &kv->changes[(kv->change_first + kv->change_count) % MS_KV_HISTORY_MAX];
    *c = (struct ms_kv_entry){.key = key, .value = value, .revision = ++kv->revision};
    if (value)
        value->refs++;
    kv->change_count++;
    kv->change_bytes += change_size(c);
    while (kv->change_count > 1 && kv->change_bytes > MS_KV_HISTORY_BYTES)
        forget_change(kv);
}

bool ms_kv_has_changes(const struct ms_kv *kv, uint64_t after)
{
    return after <= kv->revision && kv->revision - after <= kv->change_count;
}

const struct ms_kv_entry *
ms_kv_next_change(const struct ms_kv *kv, const char *prefix, uint64_t after)
{
    size_t len = strlen(prefix);
    uint64_t first = kv->revision - kv->change_count + 1;
    uint64_t revision = after + 1 > first ? after + 1 : first;

    for (; revision <= kv->revision; revision++) {
        size_t at = (kv->change_first + (size_t)(revision - first)) % MS_KV_HISTORY_MAX;

        if (strncmp(kv->changes[at].key, prefix, len) == 0)
            return &kv->changes[at];
    }
    return NULL;
}

/* ---- entries --------------------------------------------------------------------- */

void ms_kv_init(struct ms_kv *kv, uint64_t id)
{
    *kv = (struct ms_kv){.id = id ? id : 1};
}

static void entry_free(struct ms_kv_entry *e)
{
    free(e->key);
    value_unref(e->value);
    free(e);
}

void ms_kv_finish(struct ms_kv *kv)
{
    for (size_t i = 0; i < kv->count; i++)
        entry_free(kv->entries[i]);
    while (kv->change_count)
        forget_change(kv);
    free(kv->entries);
    free(kv->changes);
    *kv = (struct ms_kv){0};
}

/* The index of the first whose key is not below `key`. */
static size_t lower_bound(const struct ms_kv *kv, const char *key)
{
    size_t low = 0, high = kv->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (strcmp(kv->entries[middle]->key, key) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool is_at(const struct ms_kv *kv, size_t at, const char *key)
{
    return at < kv->count && strcmp(kv->entries[at]->key, key) == 0;
}

const struct ms_kv_entry *ms_kv_find(const struct ms_kv *kv, const char *key)
{
    size_t at = lower_bound(kv, key);

    return is_at(kv, at, key) ? kv->entries[at] : NULL;
}

size_t ms_kv_range(const struct ms_kv *kv, const char *prefix, size_t *first)
{
    size_t len = strlen(prefix), end;

    *first = lower_bound(kv, prefix);
    for (end = *first; end < kv->count; end++)
        if (strncmp(kv->entries[end]->key, prefix, len) != 0)
            break;
    return end - *first;
}

int ms_kv_check_key(const char *key, struct ms_error *err)
{
    size_t len = strnlen(key, MS_KV_KEY_MAX + 1);

    if (len > 0 && len <= MS_KV_KEY_MAX)
        return ms_title_check(key, len, MS_KV_KEY_MAX, "key", err);
    return ms_error_set(err,
                        -EINVAL,
                        len ? "the key '%.40s...' has more than %zu characters"
                            : "a key is empty%.0s; it has 1 to %zu characters",
                        key,
                        MS_KV_KEY_MAX);
}

static int
check(const struct ms_kv *kv, const struct ms_kv_put *put, struct ms_error *err)
{
    int rc = ms_kv_check_key(put->key, err);

    if (rc < 0)
        return rc;
    if (put->len > MS_KV_VALUE_MAX)
        return ms_error_set(err,
                            -E2BIG,
                            "the value of '%.64s' has %zu bytes; the store is for at "
                            "most %zu: pass bigger data from worker to worker",
                            put->key,
                            put->len,
                            MS_KV_VALUE_MAX);
    if (kv->count >= MS_KV_ENTRIES_MAX && !ms_kv_find(kv, put->key))
        return ms_error_set(err,
                            -ENOSPC,
                            "the store has %u entries, which is all that it can have",
                            MS_KV_ENTRIES_MAX);
    if (kv->bytes + strlen(put->key) + put->len > MS_KV_BYTES_MAX)
        return ms_error_set(err,
                            -ENOSPC,
                            "the store has %zu bytes; it can have %zu",
                            kv->bytes,
                            MS_KV_BYTES_MAX);
    return 0;
}

static int reserve(struct ms_kv *kv)
{
    size_t room = kv->room ? 2 * kv->room : 64;
    void *more;

    if (!kv->changes)
        kv->changes = calloc(MS_KV_HISTORY_MAX, sizeof *kv->changes);
    if (!kv->changes)
        return -ENOMEM;
    if (kv->count < kv->room)
        return 0;
    more = realloc(kv->entries, room * sizeof(struct ms_kv_entry *));
    if (!more)
        return -ENOMEM;
    kv->entries = more;
    kv->room = room;
    return 0;
}

/* A new one, at its place; its value comes later. */
static struct ms_kv_entry *insert(struct ms_kv *kv, size_t at, const char *key)
{
    struct ms_kv_entry *e = reserve(kv) < 0 ? NULL : calloc(1, sizeof *e);

    if (!e)
        return NULL;
    e->key = strdup(key);
    if (!e->key) {
        free(e);
        return NULL;
    }
    memmove(kv->entries + at + 1,
            kv->entries + at,
            (kv->count - at) * sizeof(struct ms_kv_entry *));
    kv->entries[at] = e;
    kv->count++;
    kv->bytes += strlen(key);
    return e;
}

int ms_kv_put(struct ms_kv *kv, const struct ms_kv_put *put, struct ms_error *err)
{
    size_t at = lower_bound(kv, put->key);
    struct ms_kv_entry *e = is_at(kv, at, put->key) ? kv->entries[at] : NULL;
    struct ms_kv_value *value;
    char *key;
    int rc;

    if (e && put->only_if_absent)
        return 0;
    rc = check(kv, put, err);
    if (rc < 0)
        return rc;
    value = value_create(put->value, put->len, put->codec);
    key = strdup(put->key);
    if (value && key && !e)
        e = insert(kv, at, put->key);
    if (!value || !key || !e) {
        value_unref(value);
        free(key);
        return ms_error_set(err, -ENOMEM, "out of memory");
    }
    kv->bytes += put->len - (e->value ? e->value->len : 0);
    value_unref(e->value);
    e->value = value;
    e->owner = put->owner;
    add_change(kv, key, value);
    e->revision = kv->revision;
    return 1;
}

static void remove_at(struct ms_kv *kv, size_t at)
{
    struct ms_kv_entry *e = kv->entries[at];

    memmove(kv->entries + at,
            kv->entries + at + 1,
            (kv->count - at - 1) * sizeof(struct ms_kv_entry *));
    kv->count--;
    kv->bytes -= strlen(e->key) + e->value->len;
    add_change(kv, MS_TAKE(e->key), NULL);
    entry_free(e);
}

int ms_kv_delete(struct ms_kv *kv, const char *key)
{
    size_t at = lower_bound(kv, key);

    if (!is_at(kv, at, key))
        return 0;
    remove_at(kv, at);
    return 1;
}

size_t ms_kv_drop(struct ms_kv *kv, struct ms_kv_owner owner)
{
    size_t gone = 0;

    for (size_t i = kv->count; i-- > 0;)
        if (kv->entries[i]->owner.kind == owner.kind &&
            kv->entries[i]->owner.id == owner.id) {
            remove_at(kv, i);
            gone++;
        }
    return gone;
}

/* ---- numbers, and changes of what is expected ------------------------------------ */

/* As it was written by ms_kv_add, or by hand: an optional sign and digits. */
static bool read_number(const struct ms_kv_value *v, int64_t *out)
{
    char text[NUMBER_MAX + 1] = {0}, *end;

    if (v->codec != 0 || v->len == 0 || v->len > NUMBER_MAX)
        return false;
    memcpy(text, v->data, v->len);
    if (text[0] != '-' && (text[0] < '0' || text[0] > '9'))
        return false;
    errno = 0;
    *out = strtoll(text, &end, 10);
    return errno == 0 && end == text + v->len && end[-1] >= '0' && end[-1] <= '9';
}

int ms_kv_add(struct ms_kv *kv,
              const char *key,
              int64_t amount,
              int64_t *value,
              struct ms_error *err)
{
    const struct ms_kv_entry *e = ms_kv_find(kv, key);
    struct ms_kv_put put = {.key = key, .owner = {.kind = MS_KV_NONE}};
    char text[NUMBER_MAX + 1];
    int64_t sum = 0;

    if (e && !read_number(e->value, &sum))
        return ms_error_set(
            err, -EINVAL, "the value of '%.64s' is no whole number in digits", key);
    if (__builtin_add_overflow(sum, amount, &sum))
        return ms_error_set(
            err, -ERANGE, "the value of '%.64s' would have more than 64 bits", key);
    if (e)
        put.owner = e->owner;
    put.len = (size_t)snprintf(text, sizeof text, "%" PRId64, sum);
    put.value = (const uint8_t *)text;
    *value = sum;
    return ms_kv_put(kv, &put, err);
}

int ms_kv_compare_set(struct ms_kv *kv,
                      const struct ms_kv_put *put,
                      const uint8_t *expected,
                      size_t len,
                      struct ms_error *err)
{
    const struct ms_kv_entry *e = ms_kv_find(kv, put->key);
    bool is_expected = e ? e->value->codec == 0 && e->value->len == len &&
                               (len == 0 || memcmp(e->value->data, expected, len) == 0)
                         : len == 0;

    return is_expected ? ms_kv_put(kv, put, err) : ms_kv_check_key(put->key, err);
}

size_t ms_kv_delete_below(struct ms_kv *kv, const char *prefix)
{
    size_t first, count = ms_kv_range(kv, prefix, &first), left = count;

    while (left-- > 0)
        remove_at(kv, first + left);
    return count;
}

/* ---- from what was kept ---------------------------------------------------------- */

/* More than one process of a head changes. */
#define RESTORED_GAP (UINT64_C(1) << 32)

int ms_kv_restore(struct ms_kv *kv, const struct ms_kv_put *put, uint64_t revision)
{
    int rc = ms_kv_put(kv, put, NULL);
    const struct ms_kv_entry *e = rc > 0 ? ms_kv_find(kv, put->key) : NULL;

    if (e)
        ((struct ms_kv_entry *)(uintptr_t)e)->revision = revision;
    return rc;
}

void ms_kv_restored(struct ms_kv *kv, uint64_t id)
{
    uint64_t last = 0;

    kv->id = id;
    while (kv->change_count > 0)
        forget_change(kv);
    for (size_t i = 0; i < kv->count; i++)
        if (kv->entries[i]->revision > last)
            last = kv->entries[i]->revision;
    kv->revision = last + RESTORED_GAP;
}
