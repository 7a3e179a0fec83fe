/* held.c - the objects that this process holds, by name and by their place in the arena */
#include "store/client/state.h"

#include "base/limits.h"
#include "store/payload.h"
#include "store/slice.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Locked. */
static void leave_resting(struct ms_store_client *c, struct ms_held *h)
{
    if (ms_list_is_empty(&h->resting))
        return;
    ms_list_remove(&h->resting);
    c->resting_bytes -= h->len;
}

/* Locked. One reference more that reads. */
static void read_more(struct ms_held *h)
{
    h->reading++;
    leave_resting(h->client, h);
}

struct ms_held *ms_held_ref_locked(struct ms_held *h)
{
    h->refs++;
    read_more(h);
    return h;
}

/* The number of those that begin at or before `at`. */
static size_t places_before(const struct ms_store_client *c, uint64_t at)
{
    size_t low = 0, high = c->place_count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (c->by_place[middle]->at <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static int place_add(struct ms_store_client *c, struct ms_held *h)
{
    size_t i = places_before(c, h->at);

    if (c->place_count == c->place_room) {
        size_t room = c->place_room ? 2 * c->place_room : 64;
        struct ms_held **bigger = realloc(c->by_place, room * sizeof(*bigger));

        if (!bigger)
            return -ENOMEM;
        c->by_place = bigger;
        c->place_room = room;
    }
    memmove(c->by_place + i + 1,
            c->by_place + i,
            (c->place_count - i) * sizeof(*c->by_place));
    c->by_place[i] = h;
    c->place_count++;
    return 0;
}

static void place_remove(struct ms_store_client *c, struct ms_held *h)
{
    size_t i = places_before(c, h->at);

    while (i > 0 && c->by_place[i - 1] != h)
        i--;
    if (i == 0)
        return;
    memmove(c->by_place + i - 1,
            c->by_place + i,
            (c->place_count - i) * sizeof(*c->by_place));
    c->place_count--;
}

int ms_held_set_bytes(struct ms_store_client *c, struct ms_held *h, uint64_t at)
{
    h->reads++;
    if (h->read)
        return 0;
    if (at > c->size || h->len > c->size - at)
        return -EPROTO;
    h->at = at;
    if (place_add(c, h) < 0)
        return -ENOMEM;
    h->read = c->read_map + at;
    return 0;
}

struct ms_held *ms_held_get(struct ms_store_client *c, const struct ms_stored_name *n)
{
    uint64_t key = ms_object_key(n->node, n->id);
    struct ms_held *h = ms_map_find(&c->held, key);

    if (h)
        return ms_held_ref_locked(h);
    h = calloc(1, sizeof *h);
    if (!h)
        return NULL;
    h->node = n->node;
    h->id = n->id;
    h->len = n->len;
    h->key = key;
    h->client = c;
    h->refs = h->reading = 1;
    ms_list_init(&h->resting);
    h->address = strndup(n->address, n->address_len);
    if (!h->address || ms_map_add(&c->held, key, h) < 0) {
        free((void *)(uintptr_t)h->address);
        free(h);
        return NULL;
    }
    c->refs++;
    return h;
}

int ms_store_client_count(
    struct ms_store_client *c, uint64_t node, uint64_t id, int64_t by, int64_t reads)
{
    Muster__StoreCount count = MUSTER__STORE_COUNT__INIT;

    count.node = node;
    count.id = id;
    count.by = by;
    count.reads = reads;
    return ms_store_rpc_send(c, MUSTER__STORE_ASK__BODY_COUNT, &count);
}

struct ms_held *ms_held_ref(struct ms_held *h)
{
    pthread_mutex_lock(&h->client->lock);
    ms_held_ref_locked(h);
    pthread_mutex_unlock(&h->client->lock);
    return h;
}

struct ms_held *ms_held_read(struct ms_held *h)
{
    struct ms_held *read = NULL;

    pthread_mutex_lock(&h->client->lock);
    if (h->read)
        read = ms_held_ref_locked(h);
    pthread_mutex_unlock(&h->client->lock);
    return read;
}

/* Locked. Its bytes are not ours to read any more: how often the agent thinks that we do. */
static int64_t give_back(struct ms_store_client *c, struct ms_held *h)
{
    int64_t reads = h->reads;

    leave_resting(c, h);
    if (h->read)
        place_remove(c, h);
    h->read = NULL;
    h->write = NULL;
    h->reads = 0;
    return reads;
}

/* Locked; unlocks. One reference less that reads. After the last one the agent is told, but
 * not at once: a little may rest unsaid, and is read again without asking. */
static void read_no_more(struct ms_store_client *c, struct ms_held *h)
{
    if (--h->reading > 0 || !c->spills || !h->reads || h->len < MS_SPILL_MIN) {
        pthread_mutex_unlock(&c->lock);
        return;
    }
    ms_list_add_tail(&c->resting, &h->resting);
    c->resting_bytes += h->len;
    c->refs++; /* others may let go of `h`, and of the client with it */
    while (c->resting_bytes > c->resting_max) {
        struct ms_held *old = ms_list_first(&c->resting, struct ms_held, resting);
        uint64_t node = old->node, id = old->id;
        int64_t reads = give_back(c, old);

        pthread_mutex_unlock(&c->lock);
        ms_store_client_count(c, node, id, 0, -reads);
        pthread_mutex_lock(&c->lock);
    }
    ms_store_client_unref(c);
}

void ms_held_rest(struct ms_held *h)
{
    pthread_mutex_lock(&h->client->lock);
    read_no_more(h->client, h);
}

void ms_held_wake(struct ms_held *h)
{
    pthread_mutex_lock(&h->client->lock);
    read_more(h);
    pthread_mutex_unlock(&h->client->lock);
}

void ms_held_unref(struct ms_held *h)
{
    struct ms_store_client *c = h ? h->client : NULL;

    if (!h)
        return;
    pthread_mutex_lock(&c->lock);
    if (--h->refs > 0) {
        read_no_more(c, h);
        return;
    }
    leave_resting(c, h);
    ms_map_remove(&c->held, h->key);
    if (h->read)
        place_remove(c, h);
    pthread_mutex_unlock(&c->lock);
    if (h->counts)
        ms_store_client_count(c, h->node, h->id, -h->counts, -h->reads);
    free((void *)(uintptr_t)h->address);
    free(h);
    pthread_mutex_lock(&c->lock);
    ms_store_client_unref(c);
}

void ms_held_name(const struct ms_held *h, struct ms_stored_name *name)
{
    *name = (struct ms_stored_name){.node = h->node,
                                    .id = h->id,
                                    .len = h->len,
                                    .at = MS_PLACE_UNKNOWN,
                                    .address = h->address,
                                    .address_len = (uint32_t)strlen(h->address)};
    pthread_mutex_lock(&h->client->lock);
    if (h->read && h->reading) /* it stays there while the caller reads it */
        name->at = h->at;
    pthread_mutex_unlock(&h->client->lock);
}

bool ms_held_name_range(const struct ms_held *h,
                        uint64_t offset,
                        uint64_t len,
                        struct ms_stored_name *name)
{
    ms_held_name(h, name);
    if (h->node == h->client->node || name->at != MS_PLACE_UNKNOWN || !len ||
        offset > h->len || len > h->len - offset ||
        h->len - len < MS_PAYLOAD_SLICE_MIN || len > h->len / 4 * 3)
        return false;
    name->of = h->id;
    name->offset = offset;
    name->id = ms_slice_id(h->id, offset, len);
    name->len = len;
    return true;
}

static bool is_in(const uint8_t *map, uint64_t size, const uint8_t *at, size_t len)
{
    return at >= map && at <= map + size && len <= (size_t)(map + size - at);
}

struct ms_held *ms_store_client_find_memory(struct ms_store_client *c,
                                            const void *at,
                                            size_t len,
                                            uint64_t *offset)
{
    struct ms_held *h = NULL;
    uint64_t place;
    size_t i;

    if (is_in(c->read_map, c->size, at, len))
        place = (uint64_t)((const uint8_t *)at - c->read_map);
    else if (is_in(c->write_map, c->size, at, len))
        place = (uint64_t)((const uint8_t *)at - c->write_map);
    else
        return ms_private_map_find(c, at, len, offset);
    pthread_mutex_lock(&c->lock);
    for (i = places_before(c, place); i > 0; i--) {
        h = c->by_place[i - 1];
        if (place + len <= h->at + h->len && h->counts)
            break;
        i = ms_slice_is(h->id) ? i : 1; /* one before it may be the whole one */
        h = NULL;
    }
    if (h)
        *offset = place - ms_held_ref_locked(h)->at;
    pthread_mutex_unlock(&c->lock);
    return h;
}
