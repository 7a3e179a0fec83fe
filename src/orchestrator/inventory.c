/* inventory.c - the reservations that a backend has told of, and the log of their changes */
#include "orchestrator/inventory.h"

#include "base/buf.h"
#include "base/cleanup.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- what is shared ---------------------------------------------------------------- */

struct ms_inventory_key {
    unsigned refs;
    char text[];
};

/* With all that it points to behind it: the devices, then the texts. */
struct ms_snapshot {
    unsigned refs;
    struct ms_lent_piece piece;
    uint32_t tail[];
};

static struct ms_inventory_key *key_create(const char *text)
{
    size_t size = strlen(text) + 1;
    struct ms_inventory_key *k = malloc(sizeof *k + size);

    if (!k)
        return NULL;
    k->refs = 1;
    memcpy(k->text, text, size);
    return k;
}

static void key_unref(struct ms_inventory_key *k)
{
    if (k && --k->refs == 0)
        free(k);
}

static const char *text_put(char **at, const char *text)
{
    char *put = *at;

    if (!text)
        return NULL;
    *at = stpcpy(put, text) + 1;
    return put;
}

static struct ms_snapshot *snapshot_create(const struct ms_lent_piece *from)
{
    size_t devices = from->device_count * sizeof *from->devices;
    size_t texts = (from->node ? strlen(from->node) + 1 : 0) +
                   (from->agent ? strlen(from->agent) + 1 : 0) +
                   (from->detail ? strlen(from->detail) + 1 : 0);
    struct ms_snapshot *s = malloc(sizeof *s + devices + texts);
    char *at;

    if (!s)
        return NULL;
    s->refs = 1;
    s->piece = *from;
    s->piece.devices = s->tail;
    if (devices > 0)
        memcpy(s->tail, from->devices, devices);
    at = (char *)s->tail + devices;
    s->piece.node = text_put(&at, from->node);
    s->piece.agent = text_put(&at, from->agent);
    s->piece.detail = text_put(&at, from->detail);
    return s;
}

static void snapshot_unref(struct ms_snapshot *s)
{
    if (s && --s->refs == 0)
        free(s);
}

/* ---- the log ----------------------------------------------------------------------- */

static void change_drop(struct ms_inventory_change *c)
{
    key_unref(c->key);
    snapshot_unref(c->piece);
}

static struct ms_inventory_change *log_at(const struct ms_inventory *m, size_t i)
{
    assert(m->log_capacity > 0);
    return &m->log[(m->log_first + i) % m->log_capacity];
}

/* Room for one more; the oldest goes when there are too many. */
static int log_reserve(struct ms_inventory *m)
{
    size_t capacity = m->log_capacity ? 2 * m->log_capacity : 64;
    struct ms_inventory_change *grown;

    if (m->log_count < m->log_capacity)
        return 0;
    if (m->log_count == MS_INVENTORY_LOG_MAX) {
        change_drop(log_at(m, 0));
        m->log_first = (m->log_first + 1) % m->log_capacity;
        m->log_count--;
        return 0;
    }
    grown = calloc(capacity, sizeof *grown);
    if (!grown)
        return -ENOMEM;
    for (size_t i = 0; i < m->log_count; i++)
        grown[i] = *log_at(m, i);
    free(m->log);
    m->log = grown;
    m->log_capacity = capacity;
    m->log_first = 0;
    return 0;
}

/* With log_reserve done: it cannot fail. */
static void log_add(struct ms_inventory *m,
                    struct ms_inventory_entry *r,
                    struct ms_snapshot *piece,
                    bool gone)
{
    r->key->refs++;
    piece->refs++;
    *log_at(m, m->log_count++) =
        (struct ms_inventory_change){.key = r->key, .piece = piece, .gone = gone};
    m->cursor++;
}

int ms_inventory_next(const struct ms_inventory *m,
                      uint64_t cursor,
                      struct ms_orch_event *out)
{
    uint64_t oldest = m->cursor - m->log_count; /* a watch from here misses nothing */
    const struct ms_inventory_change *c;

    if (cursor > m->cursor || cursor < oldest)
        return -ESTALE;
    if (cursor == m->cursor)
        return 0;
    c = log_at(m, (size_t)(cursor - oldest));
    *out = (struct ms_orch_event){.cursor = cursor + 1,
                                  .key = c->key->text,
                                  .piece = &c->piece->piece,
                                  .gone = c->gone};
    return 1;
}

/* ---- reservations ------------------------------------------------------------------ */

void ms_inventory_init(struct ms_inventory *m, uint64_t cursor)
{
    *m = (struct ms_inventory){.cursor = cursor};
    ms_list_init(&m->all);
}

static void entry_free(struct ms_inventory_entry *r)
{
    ms_list_remove(&r->link);
    for (size_t i = 0; i < r->count; i++)
        snapshot_unref(r->pieces[i]);
    free(r->pieces);
    key_unref(r->key);
    free(r);
}

void ms_inventory_finish(struct ms_inventory *m)
{
    ms_list_each (r, &m->all, struct ms_inventory_entry, link)
        entry_free(r);
    for (size_t i = 0; i < m->log_count; i++)
        change_drop(log_at(m, i));
    free(m->log);
    ms_inventory_init(m, m->cursor);
}

struct ms_inventory_entry *ms_inventory_find(const struct ms_inventory *m,
                                             const char *key)
{
    ms_list_each (r, &m->all, struct ms_inventory_entry, link)
        if (strcmp(r->key->text, key) == 0)
            return r;
    return NULL;
}

struct ms_inventory_entry *ms_inventory_add(struct ms_inventory *m, const char *key)
{
    struct ms_inventory_entry *r = calloc(1, sizeof *r);

    if (r)
        r->key = key_create(key);
    if (!r || !r->key) {
        free(r);
        return NULL;
    }
    ms_list_add_tail(&m->all, &r->link);
    m->count++;
    return r;
}

void ms_inventory_remove(struct ms_inventory *m, struct ms_inventory_entry *r)
{
    for (size_t i = 0; i < r->count; i++)
        if (log_reserve(m) == 0)
            log_add(m, r, r->pieces[i], true);
    m->count--;
    entry_free(r);
}

/* ---- pieces ------------------------------------------------------------------------ */

static int pieces_reserve(struct ms_inventory_entry *r, size_t count)
{
    if (count > MS_ORCH_PIECES_MAX - r->count)
        return -E2BIG;
    return ms_array_reserve(
        &r->pieces, &r->capacity, r->count + count, sizeof(struct ms_snapshot *));
}

int64_t ms_inventory_add_pieces(struct ms_inventory_entry *r, size_t count)
{
    uint32_t first = r->next;
    int rc = pieces_reserve(r, count);

    for (size_t i = 0; i < count && rc == 0; i++)
        rc = ms_inventory_adopt_piece(r, first + (uint32_t)i);
    if (rc == 0)
        return first;
    for (; r->next > first; r->next--) { /* those that were added are the last ones */
        snapshot_unref(r->pieces[--r->count]);
        r->in_phase[MS_PHASE_PENDING]--;
    }
    return rc;
}

/* Where it is, or would be. */
static size_t piece_place(const struct ms_inventory_entry *r, uint32_t number)
{
    size_t low = 0, high = r->count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (r->pieces[middle]->piece.number < number)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Its place; r->count: there is none. */
static size_t piece_index(const struct ms_inventory_entry *r, uint32_t number)
{
    size_t i = piece_place(r, number);

    return i < r->count && r->pieces[i]->piece.number == number ? i : r->count;
}

int ms_inventory_adopt_piece(struct ms_inventory_entry *r, uint32_t number)
{
    const struct ms_lent_piece piece = {.number = number, .incarnation = 1};
    size_t i = piece_place(r, number);
    struct ms_snapshot *s;
    int rc = pieces_reserve(r, 1);

    if (rc < 0 || piece_index(r, number) < r->count)
        return rc;
    s = snapshot_create(&piece);
    if (!s)
        return -ENOMEM;
    memmove(&r->pieces[i + 1], &r->pieces[i], (r->count - i) * sizeof *r->pieces);
    r->pieces[i] = s;
    r->count++;
    r->in_phase[MS_PHASE_PENDING]++;
    if (number >= r->next)
        r->next = number + 1;
    return 0;
}

const struct ms_lent_piece *ms_inventory_piece(const struct ms_inventory_entry *r,
                                               uint32_t number)
{
    size_t i = piece_index(r, number);

    return i < r->count ? &r->pieces[i]->piece : NULL;
}

const struct ms_lent_piece *ms_inventory_piece_at(const struct ms_inventory_entry *r,
                                                  size_t index)
{
    assert(index < r->count);
    return &r->pieces[index]->piece;
}

int ms_inventory_remove_piece(struct ms_inventory *m,
                              struct ms_inventory_entry *r,
                              uint32_t number)
{
    size_t i = piece_index(r, number);

    if (i == r->count)
        return 0;
    if (log_reserve(m) < 0)
        return -ENOMEM;
    log_add(m, r, r->pieces[i], true);
    r->in_phase[r->pieces[i]->piece.phase]--;
    snapshot_unref(r->pieces[i]);
    r->count--;
    memmove(&r->pieces[i], &r->pieces[i + 1], (r->count - i) * sizeof *r->pieces);
    return 0;
}

/* ---- news -------------------------------------------------------------------------- */

static bool text_is_equal(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

static bool is_known(const struct ms_lent_piece *a, const struct ms_lent_piece *b)
{
    return a->incarnation == b->incarnation && a->phase == b->phase &&
           a->cause == b->cause && a->code == b->code &&
           text_is_equal(a->node, b->node) && text_is_equal(a->agent, b->agent) &&
           text_is_equal(a->detail, b->detail) && a->device_count == b->device_count &&
           (a->device_count == 0 ||
            memcmp(a->devices, b->devices, a->device_count * sizeof *a->devices) == 0);
}

/* Of an older incarnation, or of an earlier phase of this one; and what has ended has
 * ended: its cause is told once. */
static bool is_old(const struct ms_lent_piece *now, const struct ms_lent_piece *said)
{
    if (said->incarnation != now->incarnation)
        return said->incarnation < now->incarnation;
    return said->phase < now->phase || now->phase == MS_PHASE_ENDED;
}

int ms_inventory_update(struct ms_inventory *m,
                        struct ms_inventory_entry *r,
                        const struct ms_lent_piece *said)
{
    size_t i = piece_index(r, said->number);
    struct ms_snapshot *s;

    if (i == r->count || is_old(&r->pieces[i]->piece, said) ||
        is_known(&r->pieces[i]->piece, said))
        return 0;
    s = log_reserve(m) == 0 ? snapshot_create(said) : NULL;
    if (!s)
        return -ENOMEM;
    r->in_phase[r->pieces[i]->piece.phase]--;
    r->in_phase[said->phase]++;
    snapshot_unref(r->pieces[i]);
    r->pieces[i] = s;
    log_add(m, r, s, false);
    return 1;
}

/* ---- answers ----------------------------------------------------------------------- */

static int view_init(const struct ms_inventory_entry *r, struct ms_reservation *out)
{
    const struct ms_lent_piece **pieces = calloc(r->count + 1, sizeof *pieces);

    if (!pieces)
        return -ENOMEM;
    for (size_t i = 0; i < r->count; i++)
        pieces[i] = &r->pieces[i]->piece;
    *out = (struct ms_reservation){
        .key = r->key->text, .pieces = pieces, .count = r->count};
    return 0;
}

int ms_inventory_answer(const struct ms_inventory *m,
                        const char *key,
                        struct ms_orch_answer *out)
{
    struct ms_orch_answer a = {.cursor = m->cursor};
    struct ms_reservation *views = calloc(m->count + 1, sizeof *views);
    int rc = views ? 0 : -ENOMEM;

    a.reservations = views;
    ms_list_each (r, &m->all, struct ms_inventory_entry, link) {
        if (rc < 0 || (key && strcmp(key, r->key->text) != 0))
            continue;
        rc = view_init(r, &views[a.count]);
        a.count += rc == 0;
    }
    if (rc == 0 && key && a.count == 0)
        rc = -ENOENT;
    if (rc < 0)
        ms_inventory_answer_finish(&a);
    else
        *out = a;
    return rc;
}

void ms_inventory_answer_finish(struct ms_orch_answer *a)
{
    for (size_t i = 0; i < a->count; i++)
        free((void *)(uintptr_t)a->reservations[i].pieces);
    free((void *)(uintptr_t)a->reservations);
    *a = (struct ms_orch_answer){0};
}
