#include "store/client/state.h"

#include "base/cleanup.h"
#include "base/limits.h"
#include "store/server/space.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

enum { MAKES_MAX = 32 }; /* under way at once */

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

static void ask_make(struct ms_store_client *c,
                     uint64_t len,
                     const char *site,
                     struct ms_store_rpc *w)
{
    Muster__StoreAsk m = MUSTER__STORE_ASK__INIT;
    Muster__StoreMake make = MUSTER__STORE_MAKE__INIT;

    make.len = len;
    make.site = (char *)(uintptr_t)site;
    m.body_case = MUSTER__STORE_ASK__BODY_MAKE;
    m.make = &make;
    (void)ms_store_rpc_start(c, &m, w); /* the end tells */
}

static struct ms_held *hold_made(struct ms_store_client *c,
                                 const Muster__StoredName *made,
                                 uint64_t len,
                                 struct ms_error *err)
{
    struct ms_held *h;
    int rc = -ENOMEM;

    pthread_mutex_lock(&c->lock);
    h = ms_held_get(c, c->node, made->id, len, c->address, strlen(c->address));
    if (h) {
        h->counts++;
        rc = ms_held_set_bytes(c, h, made->at);
    }
    pthread_mutex_unlock(&c->lock);
    if (rc < 0 && !h)
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

static struct ms_held *take_made(struct ms_store_client *c,
                                 uint64_t len,
                                 struct ms_store_rpc *w,
                                 struct ms_error *err)
{
    Muster__StoreAnswer *answer = ms_store_rpc_end(c, w, err);
    struct ms_held *h = NULL;

    if (!answer)
        return NULL;
    if (answer->body_case == MUSTER__STORE_ANSWER__BODY_MADE)
        h = hold_made(c, answer->made, len, err);
    else
        ms_error_set(err, -EPROTO, "the store answers something else");
    muster__store_answer__free_unpacked(answer, NULL);
    return h;
}

struct ms_held *ms_store_client_make(struct ms_store_client *c,
                                     uint64_t len,
                                     const char *site,
                                     struct ms_error *err)
{
    struct ms_store_rpc w;

    ask_make(c, len, site, &w);
    return take_made(c, len, &w, err);
}

/* At most MAKES_MAX; all answers are taken, whatever they are. */
static int make_some(struct ms_store_client *c,
                     const uint64_t *lens,
                     size_t count,
                     const char *site,
                     struct ms_held **out,
                     struct ms_error *err)
{
    struct ms_store_rpc waits[MAKES_MAX];
    struct ms_error later;
    int rc = 0;

    for (size_t i = 0; i < count; i++)
        ask_make(c, lens[i], site, &waits[i]);
    for (size_t i = 0; i < count; i++) {
        later = (struct ms_error){0};
        out[i] = take_made(c, lens[i], &waits[i], rc < 0 ? &later : err);
        if (!out[i] && rc == 0)
            rc = err->code;
    }
    return rc;
}

int ms_store_client_make_many(struct ms_store_client *c,
                              const uint64_t *lens,
                              size_t count,
                              const char *site,
                              struct ms_held **out,
                              struct ms_error *err)
{
    int rc = 0;

    for (size_t i = 0; i < count; i++)
        out[i] = NULL;
    for (size_t i = 0; i < count && rc == 0; i += MAKES_MAX)
        rc = make_some(c,
                       lens + i,
                       count - i < MAKES_MAX ? count - i : MAKES_MAX,
                       site,
                       out + i,
                       err);
    if (rc == 0)
        return 0;
    for (size_t i = 0; i < count; i++) {
        ms_held_unref(out[i]);
        out[i] = NULL;
    }
    return rc;
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
    n->of = h->of;
    n->offset = h->offset;
    n->address = (char *)(uintptr_t)h->address;
    a->index[a->count] = i;
    a->pointers[a->count++] = n;
}

/* Of the names in one question: the rest of it is small. */
#define ATTACH_MAX (MS_STORE_MESSAGE_MAX - 1024)

/* Ask for some of them, from `first` on: as many as fit, at least one. Returns how many. */
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
    answer = ms_store_rpc_call(c, &m, err);
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
            rc = ms_held_set_bytes(c, h, answer->attached->names[i]->at);
    }
    pthread_mutex_unlock(&c->lock);
    muster__store_answer__free_unpacked(answer, NULL);
    return rc < 0 ? ms_error_set(err, rc, "the object does not fit the arena")
                  : (int)attach.n_names;
}

int ms_store_client_attach(struct ms_store_client *c,
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

        out[held] = ms_held_get(c, n->node, n->id, n->len, n->address, n->address_len);
        if (!out[held]) {
            rc = -ENOMEM;
            break;
        }
        if (n->of) {
            out[held]->of = n->of;
            out[held]->offset = n->offset;
        }
        if (!out[held]->counts || (!bare && !out[held]->read))
            asking_add(&a, held, out[held]);
    }
    pthread_mutex_unlock(&c->lock);
    if (rc < 0)
        ms_error_set(err, rc, "out of memory");
    for (size_t i = 0; rc >= 0 && i < a.count; i += (size_t)rc)
        rc = ask_some(c, &a, i, bare, out, err);
    for (size_t i = 0; rc < 0 && i < held; i++)
        ms_held_unref(out[i]);
    asking_finish(&a);
    return rc < 0 ? rc : 0;
}

struct ms_held *ms_store_client_adopt(struct ms_store_client *c,
                                      const struct ms_stored_name *name,
                                      uint64_t from)
{
    Muster__StoreAsk m = MUSTER__STORE_ASK__INIT;
    Muster__StoreConfirm confirm = MUSTER__STORE_CONFIRM__INIT;
    Muster__StoredName n = MUSTER__STORED_NAME__INIT;
    struct ms_held *h;
    int rc = 0;

    pthread_mutex_lock(&c->lock);
    h = ms_held_get(
        c, name->node, name->id, name->len, name->address, name->address_len);
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
    n.node = h->node;
    n.id = h->id;
    n.len = h->len;
    n.address = (char *)(uintptr_t)h->address;
    confirm.name = &n;
    confirm.from = from;
    m.body_case = MUSTER__STORE_ASK__BODY_CONFIRM;
    m.confirm = &confirm;
    if (ms_store_rpc_send(c, &m) < 0 || rc < 0) {
        ms_held_unref(h);
        return NULL;
    }
    return h;
}

static int tell_grant(struct ms_store_client *c,
                      Muster__StoredName *n,
                      uint64_t node,
                      uint64_t holder,
                      bool is_taken_back)
{
    Muster__StoreAsk m = MUSTER__STORE_ASK__INIT;
    Muster__StoreGrant grant = MUSTER__STORE_GRANT__INIT;

    grant.name = n;
    grant.node = node;
    grant.holder = holder;
    grant.is_taken_back = is_taken_back;
    m.body_case = MUSTER__STORE_ASK__BODY_GRANT;
    m.grant = &grant;
    return ms_store_rpc_send(c, &m);
}

int ms_store_client_grant(struct ms_held *h, uint64_t node, uint64_t holder)
{
    Muster__StoredName n = MUSTER__STORED_NAME__INIT;

    n.node = h->node;
    n.id = h->id;
    n.len = h->len;
    n.address = (char *)(uintptr_t)h->address;
    return tell_grant(h->client, &n, node, holder, false);
}

int ms_store_client_take_back(struct ms_store_client *c,
                              const struct ms_stored_name *name,
                              uint64_t node,
                              uint64_t holder)
{
    Muster__StoredName n = MUSTER__STORED_NAME__INIT;

    n.node = name->node;
    n.id = name->id;
    n.len = name->len;
    return tell_grant(c, &n, node, holder, true);
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
    answer = ms_store_rpc_call(c, &m, err);
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
