#include "store/client_impl.h"

#include "base/cleanup.h"
#include "base/limits.h"
#include "store/space.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

static uint64_t key_of(uint64_t node, uint64_t id)
{
    uint64_t key = node ^ (id * UINT64_C(0x9E3779B97F4A7C15));

    return key ? key : 1;
}

/* ---- life ------------------------------------------------------------------------ */

static void client_free(struct ms_store_client *c)
{
    assert(c->held.count == 0);
    ms_fd_close(&c->fd);
    if (c->write_map)
        munmap(c->write_map, c->size);
    if (c->read_map)
        munmap((void *)(uintptr_t)c->read_map, c->size);
    ms_map_finish(&c->held);
    pthread_mutex_destroy(&c->lock);
    pthread_cond_destroy(&c->news);
    free(c->by_place);
    free(c->is_touched);
    free(c->address);
    free(c);
}

static void *map(int fd, uint64_t size, int prot)
{
    void *at = mmap(NULL, size, prot, MAP_SHARED | MAP_NORESERVE, fd, 0);

    if (at == MAP_FAILED)
        return NULL;
    madvise(at, size, MADV_HUGEPAGE); /* where it is allowed */
    madvise(at, size, MADV_DONTDUMP);
    return at;
}

static int map_arena(struct ms_store_client *c, int fd, struct ms_error *err)
{
    c->write_map = map(fd, c->size, PROT_READ | PROT_WRITE);
    c->read_map = map(fd, c->size, PROT_READ);
    c->is_touched = calloc(c->size / MS_SPACE_BLOCK + 1, sizeof *c->is_touched);
    if (!c->write_map || !c->read_map || !c->is_touched)
        return ms_error_set(err,
                            -ENOMEM,
                            "cannot map %llu MiB of shared memory",
                            (unsigned long long)(c->size >> 20));
    return 0;
}

struct ms_store_client *ms_store_open(const struct ms_store_client_options *o,
                                      struct ms_error *err)
{
    struct ms_store_client *c = calloc(1, sizeof *c);
    MS_CLEANUP(ms_cleanup_fd) int arena = -1;
    Muster__StoreAnswer *m;
    int rc;

    if (!c) {
        ms_error_set(err, -ENOMEM, "out of memory");
        return NULL;
    }
    c->fd = -1;
    c->refs = 1;
    c->holder = o->holder;
    c->is_interrupted = o->is_interrupted;
    c->next_request = 2;
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->news, NULL);
    ms_map_init(&c->held);
    ms_list_init(&c->waiting);
    m = ms_talk_open(c, o, &arena, err);
    if (!m) {
        client_free(c);
        return NULL;
    }
    c->node = m->welcome->node;
    c->limit = m->welcome->limit;
    c->size = m->welcome->arena_size;
    c->address = strdup(m->welcome->address);
    muster__store_answer__free_unpacked(m, NULL);
    rc = c->address ? map_arena(c, arena, err) : -ENOMEM;
    if (rc < 0) {
        client_free(c);
        return NULL;
    }
    return c;
}

/* Unlocks. */
static void client_unref_locked(struct ms_store_client *c)
{
    bool last = --c->refs == 0;

    pthread_mutex_unlock(&c->lock);
    if (last)
        client_free(c);
}

void ms_store_close(struct ms_store_client *c)
{
    if (!c)
        return;
    pthread_mutex_lock(&c->lock);
    if (!c->is_read)
        ms_fd_close(&c->fd); /* else whoever reads holds it; it ends with us */
    c->is_forgotten = true;
    client_unref_locked(c);
}

void ms_store_forget(struct ms_store_client *c)
{
    if (!c)
        return;
    pthread_mutex_init(&c->lock, NULL); /* whoever had it is not here */
    c->is_forgotten = true;
    ms_fd_close(&c->fd);
}

uint64_t ms_store_node(const struct ms_store_client *c)
{
    return c->node;
}

uint64_t ms_store_holder(const struct ms_store_client *c)
{
    return c->holder;
}

uint64_t ms_store_limit(const struct ms_store_client *c)
{
    return c->limit;
}

/* ---- what is held ---------------------------------------------------------------- */

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

/* Locked. It can be read from now on. */
static int set_bytes(struct ms_store_client *c, struct ms_held *h, uint64_t at)
{
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

/* Locked. NULL: out of memory. */
static struct ms_held *held_get(struct ms_store_client *c,
                                uint64_t node,
                                uint64_t id,
                                uint64_t len,
                                const char *address,
                                size_t address_len)
{
    uint64_t key = key_of(node, id);
    struct ms_held *h = ms_map_find(&c->held, key);

    if (h) {
        h->refs++;
        return h;
    }
    h = calloc(1, sizeof *h);
    if (!h)
        return NULL;
    h->node = node;
    h->id = id;
    h->len = len;
    h->key = key;
    h->client = c;
    h->refs = 1;
    h->address = strndup(address, address_len);
    if (!h->address || ms_map_add(&c->held, key, h) < 0) {
        free((void *)(uintptr_t)h->address);
        free(h);
        return NULL;
    }
    c->refs++;
    return h;
}

static int tell_count(struct ms_store_client *c, uint64_t node, uint64_t id, int64_t by)
{
    Muster__StoreAsk m = MUSTER__STORE_ASK__INIT;
    Muster__StoreCount count = MUSTER__STORE_COUNT__INIT;

    count.node = node;
    count.id = id;
    count.by = by;
    m.body_case = MUSTER__STORE_ASK__BODY_COUNT;
    m.count = &count;
    return ms_talk_send(c, &m);
}

struct ms_held *ms_held_ref(struct ms_held *h)
{
    pthread_mutex_lock(&h->client->lock);
    h->refs++;
    pthread_mutex_unlock(&h->client->lock);
    return h;
}

void ms_held_unref(struct ms_held *h)
{
    struct ms_store_client *c = h ? h->client : NULL;

    if (!h)
        return;
    pthread_mutex_lock(&c->lock);
    if (--h->refs > 0) {
        pthread_mutex_unlock(&c->lock);
        return;
    }
    ms_map_remove(&c->held, h->key);
    if (h->read)
        place_remove(c, h);
    pthread_mutex_unlock(&c->lock);
    if (h->counts)
        tell_count(c, h->node, h->id, -h->counts);
    free((void *)(uintptr_t)h->address);
    free(h);
    pthread_mutex_lock(&c->lock);
    client_unref_locked(c);
}

void ms_held_name(const struct ms_held *h, struct ms_stored_name *name)
{
    *name = (struct ms_stored_name){.node = h->node,
                                    .id = h->id,
                                    .len = h->len,
                                    .at = h->at,
                                    .address = h->address,
                                    .address_len = (uint32_t)strlen(h->address)};
}

struct ms_held *ms_store_find(struct ms_store_client *c, uint64_t node, uint64_t id)
{
    struct ms_held *h;

    pthread_mutex_lock(&c->lock);
    h = ms_map_find(&c->held, key_of(node, id));
    if (h)
        h->refs++;
    pthread_mutex_unlock(&c->lock);
    return h;
}

static bool is_in(const uint8_t *map, uint64_t size, const uint8_t *at, size_t len)
{
    return at >= map && at <= map + size && len <= (size_t)(map + size - at);
}

struct ms_held *ms_store_find_memory(struct ms_store_client *c,
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
        return NULL;
    pthread_mutex_lock(&c->lock);
    i = places_before(c, place);
    if (i > 0) {
        h = c->by_place[i - 1];
        if (place + len > h->at + h->len || !h->counts)
            h = NULL;
        else
            h->refs++;
    }
    pthread_mutex_unlock(&c->lock);
    if (h)
        *offset = place - h->at;
    return h;
}

/* ---- making ---------------------------------------------------------------------- */

/* Pages that were never written by us are mapped at once rather than fault by fault. */
static void touch(struct ms_store_client *c, uint64_t at, uint64_t len)
{
    uint64_t first = at / MS_SPACE_BLOCK, last = (at + len) / MS_SPACE_BLOCK;
    uint64_t from = first;

    if (len < MS_SPACE_BLOCK)
        return;
    for (uint64_t b = first; b <= last + 1; b++) {
        if (b <= last && !c->is_touched[b]) {
            c->is_touched[b] = true;
            continue;
        }
        if (b > from && from * MS_SPACE_BLOCK < c->size) {
            uint64_t end = b * MS_SPACE_BLOCK;

            if (end > c->size)
                end = c->size;
            madvise(c->write_map + from * MS_SPACE_BLOCK,
                    end - from * MS_SPACE_BLOCK,
                    MADV_POPULATE_WRITE);
        }
        from = b + 1;
    }
}

struct ms_held *ms_store_make(struct ms_store_client *c,
                              uint64_t len,
                              const char *site,
                              struct ms_error *err)
{
    Muster__StoreAsk m = MUSTER__STORE_ASK__INIT;
    Muster__StoreMake make = MUSTER__STORE_MAKE__INIT;
    Muster__StoreAnswer *answer;
    struct ms_held *h;
    int rc = -ENOMEM;

    make.len = len;
    make.site = (char *)(uintptr_t)site;
    m.body_case = MUSTER__STORE_ASK__BODY_MAKE;
    m.make = &make;
    answer = ms_talk_ask(c, &m, err);
    if (!answer)
        return NULL;
    if (answer->body_case != MUSTER__STORE_ANSWER__BODY_MADE) {
        muster__store_answer__free_unpacked(answer, NULL);
        ms_error_set(err, -EPROTO, "the store answers something else");
        return NULL;
    }
    pthread_mutex_lock(&c->lock);
    h = held_get(c, c->node, answer->made->id, len, c->address, strlen(c->address));
    if (h) {
        h->counts++;
        rc = set_bytes(c, h, answer->made->at);
    }
    pthread_mutex_unlock(&c->lock);
    if (rc < 0 && !h)
        tell_count(c, c->node, answer->made->id, -1);
    muster__store_answer__free_unpacked(answer, NULL);
    if (rc < 0) {
        ms_held_unref(h);
        ms_error_set(err, rc, "no memory to hold an object");
        return NULL;
    }
    touch(c, h->at, len);
    h->write = c->write_map + h->at;
    return h;
}

/* ---- attaching ------------------------------------------------------------------- */

void ms_store_refuse_answer(struct ms_store_client *c, const Muster__StoreAnswer *m)
{
    if (m->body_case == MUSTER__STORE_ANSWER__BODY_MADE)
        tell_count(c, m->made->node, m->made->id, -1);
    if (m->body_case == MUSTER__STORE_ANSWER__BODY_ATTACHED)
        for (size_t i = 0; i < m->attached->n_names; i++)
            tell_count(c, m->attached->names[i]->node, m->attached->names[i]->id, -1);
}

/* Which of them the agent must be asked for. */
struct asking {
    size_t count;
    size_t *index;
    Muster__StoredName *names;
    Muster__StoredName **pointers;
};

static int asking_init(struct asking *a, size_t count)
{
    *a = (struct asking){.index = calloc(count + 1, sizeof *a->index),
                         .names = calloc(count + 1, sizeof *a->names),
                         .pointers = calloc(count + 1, sizeof(*a->pointers))};
    return a->index && a->names && a->pointers ? 0 : -ENOMEM;
}

static void asking_finish(struct asking *a)
{
    free(a->index);
    free(a->names);
    free(a->pointers);
}

static void asking_add(struct asking *a, size_t i, const struct ms_held *h)
{
    Muster__StoredName *n = &a->names[a->count];

    muster__stored_name__init(n);
    n->node = h->node;
    n->id = h->id;
    n->len = h->len;
    n->address = (char *)(uintptr_t)h->address;
    a->index[a->count] = i;
    a->pointers[a->count++] = n;
}

/* Of the names in one question: the rest of it is small. */
#define ATTACH_MAX (MS_STORE_MESSAGE_MAX - 1024)

/* Ask for at most MS_STORE_NAMES_MAX of them, from `first` on. */
static int ask_some(struct ms_store_client *c,
                    struct asking *a,
                    size_t first,
                    bool bare,
                    struct ms_held **out,
                    struct ms_error *err)
{
    Muster__StoreAsk m = MUSTER__STORE_ASK__INIT;
    Muster__StoreAttach attach = MUSTER__STORE_ATTACH__INIT;
    Muster__StoreAnswer *answer;
    int rc = 0;

    attach.names = a->pointers + first;
    attach.n_names = a->count - first;
    if (attach.n_names > MS_STORE_NAMES_MAX)
        attach.n_names = MS_STORE_NAMES_MAX;
    while (attach.n_names > 1 &&
           muster__store_attach__get_packed_size(&attach) > ATTACH_MAX)
        attach.n_names /= 2; /* long addresses */
    attach.bare = bare;
    m.body_case = MUSTER__STORE_ASK__BODY_ATTACH;
    m.attach = &attach;
    answer = ms_talk_ask(c, &m, err);
    if (!answer)
        return err->code;
    if (answer->body_case != MUSTER__STORE_ANSWER__BODY_ATTACHED ||
        answer->attached->n_names != attach.n_names) {
        muster__store_answer__free_unpacked(answer, NULL);
        return ms_error_set(err, -EPROTO, "the store answers something else");
    }
    pthread_mutex_lock(&c->lock);
    for (size_t i = 0; i < attach.n_names; i++) {
        struct ms_held *h = out[a->index[first + i]];

        h->counts++;
        if (rc == 0 && answer->attached->names[i]->is_here)
            rc = set_bytes(c, h, answer->attached->names[i]->at);
    }
    pthread_mutex_unlock(&c->lock);
    muster__store_answer__free_unpacked(answer, NULL);
    return rc < 0 ? ms_error_set(err, rc, "the object does not fit the arena") : 0;
}

int ms_store_attach(struct ms_store_client *c,
                    const struct ms_stored_name *names,
                    size_t count,
                    bool bare,
                    struct ms_held **out,
                    struct ms_error *err)
{
    struct ms_error own = {0};
    struct asking a;
    size_t held = 0;
    int rc = asking_init(&a, count);

    err = err ? err : &own;
    pthread_mutex_lock(&c->lock);
    for (; rc == 0 && held < count; held++) {
        const struct ms_stored_name *n = &names[held];

        out[held] = held_get(c, n->node, n->id, n->len, n->address, n->address_len);
        if (!out[held]) {
            rc = -ENOMEM;
            break;
        }
        if (!out[held]->counts || (!bare && !out[held]->read))
            asking_add(&a, held, out[held]);
    }
    pthread_mutex_unlock(&c->lock);
    if (rc < 0)
        ms_error_set(err, rc, "out of memory");
    for (size_t i = 0; rc == 0 && i < a.count; i += MS_STORE_NAMES_MAX)
        rc = ask_some(c, &a, i, bare, out, err);
    for (size_t i = 0; rc < 0 && i < held; i++)
        ms_held_unref(out[i]);
    asking_finish(&a);
    return rc;
}

struct ms_held *ms_store_adopt(struct ms_store_client *c,
                               const struct ms_stored_name *name,
                               uint64_t from)
{
    Muster__StoreAsk m = MUSTER__STORE_ASK__INIT;
    Muster__StoreConfirm confirm = MUSTER__STORE_CONFIRM__INIT;
    Muster__StoredName n = MUSTER__STORED_NAME__INIT;
    struct ms_held *h;
    int rc = 0;

    pthread_mutex_lock(&c->lock);
    h = held_get(c, name->node, name->id, name->len, name->address, name->address_len);
    if (h) {
        h->counts++;
        if (name->node == c->node)
            rc = set_bytes(c, h, name->at);
    }
    pthread_mutex_unlock(&c->lock);
    if (!h)
        return NULL; /* the grant lapses */
    n.node = h->node;
    n.id = h->id;
    n.len = h->len;
    n.address = (char *)(uintptr_t)h->address;
    confirm.name = &n;
    confirm.from = from;
    m.body_case = MUSTER__STORE_ASK__BODY_CONFIRM;
    m.confirm = &confirm;
    if (ms_talk_send(c, &m) < 0 || rc < 0) {
        ms_held_unref(h);
        return NULL;
    }
    return h;
}

int ms_store_grant(struct ms_held *h, uint64_t node, uint64_t holder)
{
    Muster__StoreAsk m = MUSTER__STORE_ASK__INIT;
    Muster__StoreGrant grant = MUSTER__STORE_GRANT__INIT;
    Muster__StoredName n = MUSTER__STORED_NAME__INIT;

    n.node = h->node;
    n.id = h->id;
    n.len = h->len;
    n.address = (char *)(uintptr_t)h->address;
    grant.name = &n;
    grant.node = node;
    grant.holder = holder;
    m.body_case = MUSTER__STORE_ASK__BODY_GRANT;
    m.grant = &grant;
    return ms_talk_send(h->client, &m);
}

Muster__StoreStats *
ms_store_client_stats(struct ms_store_client *c, bool objects, struct ms_error *err)
{
    Muster__StoreAsk m = MUSTER__STORE_ASK__INIT;
    Muster__StoreStatsAsk ask = MUSTER__STORE_STATS_ASK__INIT;
    Muster__StoreStats *stats = NULL;
    Muster__StoreAnswer *answer;

    ask.objects = objects;
    m.body_case = MUSTER__STORE_ASK__BODY_STATS;
    m.stats = &ask;
    answer = ms_talk_ask(c, &m, err);
    if (!answer)
        return NULL;
    if (answer->body_case == MUSTER__STORE_ANSWER__BODY_STATS) {
        stats = MS_TAKE(answer->stats);
        answer->body_case = MUSTER__STORE_ANSWER__BODY__NOT_SET;
    } else {
        ms_error_set(err, -EPROTO, "the store answers something else");
    }
    muster__store_answer__free_unpacked(answer, NULL);
    return stats;
}
