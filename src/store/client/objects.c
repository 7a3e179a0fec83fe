/* objects.c - what a process asks its agent for: making, attaching, adopting, granting */
#include "store/client/state.h"

#include "base/cleanup.h"
#include "base/copy.h"
#include "base/limits.h"
#include "store/payload.h"
#include "store/server/space.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

enum { MAKES_MAX = 32, PART_ALIGN = 64 }; /* under way at once; in a common object */

static void name_held(const struct ms_held *h, Muster__StoredName *n)
{
    muster__stored_name__init(n);
    n->node = h->node;
    n->id = h->id;
    n->len = h->len;
    n->of = h->of;
    n->offset = h->offset;
    n->address = (char *)(uintptr_t)h->address;
}

/* ---- making ---------------------------------------------------------------------- */

/* Pages that were never written by us are mapped at once rather than fault by fault. */
static void touch(struct ms_store_client *c, uint64_t at, uint64_t len)
{
    uint64_t first = at / MS_SPACE_BLOCK, from = first, last;

    if (len < MS_SPACE_BLOCK)
        return;
    last = (at + len - 1) / MS_SPACE_BLOCK; /* those behind it may have no memory */
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

static void make_start(struct ms_store_client *c,
                       uint64_t len,
                       const char *site,
                       struct ms_store_rpc *w)
{
    Muster__StoreMake make = MUSTER__STORE_MAKE__INIT;

    make.len = len;
    make.site = (char *)(uintptr_t)site;
    ms_store_rpc_start(c, MUSTER__STORE_ASK__BODY_MAKE, &make, w);
}

static struct ms_held *hold_made(struct ms_store_client *c,
                                 const Muster__StoredName *made,
                                 uint64_t len,
                                 struct ms_error *err)
{
    struct ms_stored_name name = {.node = c->node,
                                  .id = made->id,
                                  .len = len,
                                  .address = c->address,
                                  .address_len = (uint32_t)strlen(c->address)};
    struct ms_held *h;
    int rc = -ENOMEM;

    pthread_mutex_lock(&c->lock);
    h = ms_held_get(c, &name);
    if (h) {
        h->counts++;
        rc = ms_held_set_bytes(c, h, made->at);
    }
    pthread_mutex_unlock(&c->lock);
    if (!h)
        ms_store_client_count(c, c->node, made->id, -1, -1);
    if (rc < 0) {
        ms_held_unref(h);
        ms_error_set(err, rc, "no memory to hold an object");
        return NULL;
    }
    touch(c, h->at, len);
    h->write = c->write_map + h->at;
    return h;
}

static struct ms_held *make_end(struct ms_store_client *c,
                                uint64_t len,
                                struct ms_store_rpc *w,
                                struct ms_error *err)
{
    Muster__StoreAnswer *answer =
        ms_store_rpc_end(c, w, MUSTER__STORE_ANSWER__BODY_MADE, err);
    struct ms_held *h = answer ? hold_made(c, answer->made, len, err) : NULL;

    muster__store_answer__free_unpacked(answer, NULL);
    return h;
}

struct ms_held *ms_store_client_make(struct ms_store_client *c,
                                     uint64_t len,
                                     const char *site,
                                     struct ms_error *err)
{
    struct ms_store_rpc w;

    make_start(c, len, site, &w);
    return make_end(c, len, &w, err);
}

/* All or none, MAKES_MAX at a time; the answers are taken, whatever they are. */
static int make_all(struct ms_store_client *c,
                    const uint64_t *lens,
                    size_t count,
                    const char *site,
                    struct ms_held **out,
                    struct ms_error *err)
{
    struct ms_store_rpc rpcs[MAKES_MAX];
    struct ms_error later;
    int rc = 0;

    for (size_t from = 0; from < count && rc == 0; from += MAKES_MAX) {
        size_t n = count - from < MAKES_MAX ? count - from : MAKES_MAX;

        for (size_t i = 0; i < n; i++)
            make_start(c, lens[from + i], site, &rpcs[i]);
        for (size_t i = 0; i < n; i++) {
            out[from + i] =
                make_end(c, lens[from + i], &rpcs[i], rc < 0 ? &later : err);
            if (!out[from + i] && rc == 0)
                rc = err->code;
        }
    }
    for (size_t i = 0; i < count && rc < 0; i++)
        ms_held_unref(out[i]);
    return rc;
}

/* ---- writing --------------------------------------------------------------------- */

static uint64_t padded(uint64_t len)
{
    return (len + PART_ALIGN - 1) / PART_ALIGN * PART_ALIGN;
}

uint64_t ms_store_client_find_all(struct ms_store_client *c,
                                  struct ms_store_bytes *all,
                                  size_t count)
{
    uint64_t missing = 0;

    for (size_t i = 0; i < count; i++) {
        struct ms_store_bytes *b = &all[i];

        b->held =
            b->len ? ms_store_client_find_memory(c, b->data, b->len, &b->offset) : NULL;
        if (!b->held)
            missing += padded(b->len);
    }
    return missing;
}

static void copy_bytes(struct ms_store_bytes *b, bool is_big)
{
    if (is_big)
        ms_copy_past_cache(b->held->write + b->offset, b->data, b->len);
    else if (b->len)
        memcpy(b->held->write + b->offset, b->data, b->len);
}

int ms_store_client_write(struct ms_store_client *c,
                          struct ms_store_bytes *all,
                          size_t count,
                          bool together,
                          const char *site,
                          struct ms_error *err)
{
    MS_CLEANUP(ms_cleanup_free) uint64_t *lens = calloc(count + 1, sizeof *lens);
    MS_CLEANUP(ms_cleanup_free)
    struct ms_held **made = calloc(count + 1, sizeof(*made));
    uint64_t total = 0;
    size_t n = 0;
    int rc;

    if (!lens || !made)
        return ms_error_set(err, -ENOMEM, "out of memory");
    for (size_t i = 0; i < count; i++)
        if (!all[i].held) {
            all[i].offset = together ? total : 0;
            total += padded(all[i].len);
            lens[together ? 0 : n++] = together ? total : all[i].len;
        }
    rc = make_all(c, lens, together ? 1 : n, site, made, err);
    if (rc < 0)
        return rc;
    n = 0;
    for (size_t i = 0; i < count; i++)
        if (!all[i].held) {
            all[i].held = together ? ms_held_ref(made[0]) : made[n++];
            copy_bytes(&all[i], total >= MS_PAYLOAD_COPY_BIG);
        }
    if (together)
        ms_held_unref(made[0]);
    return 0;
}

/* ---- attaching ------------------------------------------------------------------- */

void ms_store_client_refuse_answer(struct ms_store_client *c,
                                   const Muster__StoreAnswer *m)
{
    if (m->body_case == MUSTER__STORE_ANSWER__BODY_MADE)
        ms_store_client_count(c, m->made->node, m->made->id, -1, -1);
    if (m->body_case == MUSTER__STORE_ANSWER__BODY_ATTACHED)
        for (size_t i = 0; i < m->attached->n_names; i++) {
            const Muster__StoredName *n = m->attached->names[i];

            ms_store_client_count(c, n->node, n->id, -1, n->is_here ? -1 : 0);
        }
}

/* Of the names in one question: the rest of it is small. */
#define ATTACH_MAX (MS_STORE_MESSAGE_MAX - 1024)

/* Ask for as many of them as fit into one question, at least one. Returns how many. */
static int ask_some(struct ms_store_client *c,
                    struct ms_held **held,
                    Muster__StoredName **names,
                    size_t count,
                    bool bare,
                    struct ms_error *err)
{
    Muster__StoreAttach attach = MUSTER__STORE_ATTACH__INIT;
    Muster__StoreAnswer *answer;
    struct ms_store_rpc w;
    int rc = 0;

    attach.names = names;
    attach.n_names = count < MS_STORE_NAMES_MAX ? count : MS_STORE_NAMES_MAX;
    while (attach.n_names > 1 &&
           muster__store_attach__get_packed_size(&attach) > ATTACH_MAX)
        attach.n_names /= 2; /* long addresses */
    attach.bare = bare;
    ms_store_rpc_start(c, MUSTER__STORE_ASK__BODY_ATTACH, &attach, &w);
    answer = ms_store_rpc_end(c, &w, MUSTER__STORE_ANSWER__BODY_ATTACHED, err);
    if (!answer)
        return err->code;
    if (answer->attached->n_names != attach.n_names) {
        muster__store_answer__free_unpacked(answer, NULL);
        return ms_error_set(err, -EPROTO, "the store answers something else");
    }
    pthread_mutex_lock(&c->lock);
    for (size_t i = 0; i < attach.n_names; i++) {
        assert(held[i]);
        held[i]->counts++;
        if (rc == 0 && answer->attached->names[i]->is_here)
            rc = ms_held_set_bytes(c, held[i], answer->attached->names[i]->at);
    }
    pthread_mutex_unlock(&c->lock);
    muster__store_answer__free_unpacked(answer, NULL);
    return rc < 0 ? ms_error_set(err, rc, "the object does not fit the arena")
                  : (int)attach.n_names;
}

/* Hold all of these; those of `asked` are not known to the agent, or have no bytes here. How
 * many were held, all or fewer. */
static size_t hold_all(struct ms_store_client *c,
                       const struct ms_stored_name *names,
                       size_t count,
                       bool bare,
                       struct ms_held **out,
                       struct ms_held **asked,
                       size_t *asked_count)
{
    size_t i;

    pthread_mutex_lock(&c->lock);
    for (i = 0; i < count; i++) {
        const struct ms_stored_name *n = &names[i];
        struct ms_held *h = ms_held_get(c, n);

        if (!h)
            break;
        out[i] = h;
        if (n->of) {
            h->of = n->of;
            h->offset = n->offset;
        }
        if (!h->counts || (!bare && !h->read))
            asked[(*asked_count)++] = h;
    }
    pthread_mutex_unlock(&c->lock);
    return i;
}

int ms_store_client_attach(struct ms_store_client *c,
                           const struct ms_stored_name *names,
                           size_t count,
                           bool bare,
                           struct ms_held **out,
                           struct ms_error *err)
{
    MS_CLEANUP(ms_cleanup_free)
    struct ms_held **asked = calloc(count + 1, sizeof(*asked));
    MS_CLEANUP(ms_cleanup_free)
    Muster__StoredName *ask = calloc(count + 1, sizeof *ask);
    MS_CLEANUP(ms_cleanup_free)
    Muster__StoredName **asks = calloc(count + 1, sizeof(*asks));
    struct ms_error unused = {0};
    size_t held = 0, n = 0;
    int rc = asked && ask && asks ? 0 : -ENOMEM;

    err = err ? err : &unused;
    if (rc == 0)
        held = hold_all(c, names, count, bare, out, asked, &n);
    if (held < count)
        rc = ms_error_set(err, -ENOMEM, "out of memory");
    for (size_t i = 0; i < n; i++)
        name_held(asked[i], asks[i] = &ask[i]);
    for (size_t i = 0; rc >= 0 && i < n; i += (size_t)rc)
        rc = ask_some(c, asked + i, asks + i, n - i, bare, err);
    for (size_t i = 0; rc < 0 && i < held; i++)
        ms_held_unref(out[i]);
    return rc < 0 ? rc : 0;
}

/* ---- with an answer -------------------------------------------------------------- */

struct ms_held *ms_store_client_adopt(struct ms_store_client *c,
                                      const struct ms_stored_name *name,
                                      uint64_t from)
{
    Muster__StoreConfirm confirm = MUSTER__STORE_CONFIRM__INIT;
    Muster__StoredName n;
    struct ms_held *h;
    int rc = 0;

    pthread_mutex_lock(&c->lock);
    h = ms_held_get(c, name);
    if (h) {
        int64_t reads = h->reads;

        h->counts++;
        if (name->node == c->node && name->at != MS_PLACE_UNKNOWN)
            rc = ms_held_set_bytes(c, h, name->at);
        confirm.reads = h->reads > reads;
    }
    pthread_mutex_unlock(&c->lock);
    if (!h)
        return NULL; /* the grant lapses */
    name_held(h, &n);
    confirm.name = &n;
    confirm.from = from;
    if (ms_store_rpc_send(c, MUSTER__STORE_ASK__BODY_CONFIRM, &confirm) < 0 || rc < 0) {
        ms_held_unref(h);
        return NULL;
    }
    return h;
}

int ms_store_client_grant(struct ms_store_client *c,
                          const struct ms_stored_name *name,
                          uint64_t node,
                          uint64_t holder,
                          bool is_taken_back)
{
    Muster__StoreGrant grant = MUSTER__STORE_GRANT__INIT;
    Muster__StoredName n = MUSTER__STORED_NAME__INIT;

    n.node = name->node;
    n.id = name->id;
    n.len = name->len;
    grant.name = &n;
    grant.node = node;
    grant.holder = holder;
    grant.is_taken_back = is_taken_back;
    return ms_store_rpc_send(c, MUSTER__STORE_ASK__BODY_GRANT, &grant);
}

Muster__StoreStats *
ms_store_client_stats(struct ms_store_client *c, bool objects, struct ms_error *err)
{
    Muster__StoreStatsAsk ask = MUSTER__STORE_STATS_ASK__INIT;
    Muster__StoreStats *stats = NULL;
    Muster__StoreAnswer *answer;
    struct ms_store_rpc w;

    ask.objects = objects;
    ms_store_rpc_start(c, MUSTER__STORE_ASK__BODY_STATS, &ask, &w);
    answer = ms_store_rpc_end(c, &w, MUSTER__STORE_ANSWER__BODY_STATS, err);
    if (answer) {
        stats = MS_TAKE(answer->stats);
        answer->body_case = MUSTER__STORE_ANSWER__BODY__NOT_SET;
    }
    muster__store_answer__free_unpacked(answer, NULL);
    return stats;
}
