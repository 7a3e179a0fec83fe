/* store.c - the objects of the node's store in which a worker's HTTP keeps tensors */
#include "worker/http/store.h"
#include "base/cleanup.h"
#include "base/limits.h"
#include "base/lock.h"
#include "base/name.h"
#include "plain/plain.h"
#include "store/path.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* No piece is more than a part of the store, so that others find room beside it, and none so
 * small that it would never be spilled. */
enum { PIECE_SHARE = 16 };
#define PIECE_LEAST ((MS_SPILL_MIN / MS_HTTP_PIECE_UNIT + 1) * MS_HTTP_PIECE_UNIT)

struct ms_http_store {
    const Muster__WorkerBoot *boot;
    struct ms_work *work;
    pthread_mutex_t lock; /* guards these */
    struct ms_store_client *client;
    struct ms_error why_none; /* its code is 0: it was not tried */
};

/* ---- pieces ---------------------------------------------------------------------- */

static void let_go(struct ms_held *held)
{
    ms_held_wake(held);
    ms_held_unref(held);
}

int ms_http_pieces_add(struct ms_http_pieces *p,
                       struct ms_held *held,
                       uint64_t offset,
                       uint64_t len)
{
    if (p->count == p->room) {
        size_t room = p->room ? 2 * p->room : 1;
        struct ms_http_piece *bigger = realloc(p->all, room * sizeof *bigger);

        if (!bigger) {
            ms_held_unref(held);
            return -ENOMEM;
        }
        p->all = bigger;
        p->room = room;
    }
    ms_held_rest(held);
    p->all[p->count++] = (struct ms_http_piece){held, offset, len};
    return 0;
}

void ms_http_pieces_finish(struct ms_http_pieces *p)
{
    for (size_t i = 0; i < p->count; i++)
        if (p->all[i].held)
            let_go(p->all[i].held);
    free(p->all);
    *p = (struct ms_http_pieces){0};
}

/* ---- the client ------------------------------------------------------------------ */

static struct ms_store_client *open_client(const struct ms_http_store *s,
                                           struct ms_error *err)
{
    const Muster__WorkerBoot *boot = s->boot;
    char path[MS_STORE_PATH_MAX], name[MS_NAME_MAX + 32];
    struct ms_store_client_options o = {
        .path = ms_store_path(boot->session_dir, boot->node_name, path),
        .secret = boot->secret.data,
        .holder = ms_random_id(),
        .name = name};

    snprintf(name, sizeof name, "%s/%u (HTTP)", boot->cluster, (unsigned)boot->rank);
    return ms_store_client_open(&o, err);
}

/* NULL: there is none. Any thread. */
static struct ms_store_client *get_client(struct ms_http_store *s, struct ms_error *err)
{
    MS_LOCK(&s->lock);

    if (!s->client && !s->why_none.code)
        s->client = open_client(s, &s->why_none);
    if (!s->client)
        ms_error_set(err,
                     s->why_none.code,
                     "there is no store here for tensors: %s",
                     s->why_none.text);
    return s->client;
}

static struct ms_held *attach(struct ms_store_client *c,
                              const struct ms_held *of,
                              bool bare,
                              struct ms_error *err)
{
    struct ms_stored_name name;
    struct ms_held *held;

    ms_held_name(of, &name);
    return ms_store_client_attach(c, &name, 1, bare, &held, err) < 0 ? NULL : held;
}

int ms_http_store_hold(struct ms_http_store *s,
                       const struct ms_held *of,
                       uint64_t offset,
                       uint64_t len,
                       struct ms_http_pieces *out,
                       struct ms_error *err)
{
    struct ms_store_client *c = get_client(s, err);
    struct ms_held *held = c ? attach(c, of, true, err) : NULL;

    if (!held)
        return err->code;
    return ms_http_pieces_add(out, held, offset, len) < 0
               ? ms_error_set(err, -ENOMEM, "out of memory")
               : 0;
}

/* ---- asking ---------------------------------------------------------------------- */

static void ask_free(struct ms_http_ask *a)
{
    ms_held_unref(a->held);
    ms_http_pieces_finish(&a->pieces);
    free(a);
}

static void ask_run(struct ms_work_job *job)
{
    struct ms_http_ask *a = MS_CONTAINER(job, struct ms_http_ask, job);
    struct ms_store_client *c = get_client(a->store, &a->err);

    if (c && a->run(a, c) < 0 && !a->err.code)
        ms_error_set(&a->err, -ENOMEM, "out of memory");
}

static void ask_done(struct ms_work_job *job, bool was_dropped)
{
    struct ms_http_ask *a = MS_CONTAINER(job, struct ms_http_ask, job);

    if (a->on_done && !was_dropped)
        a->on_done(a->arg, a);
    ask_free(a);
}

static struct ms_http_ask *ask_begin(struct ms_http_store *s,
                                     const struct ms_http_ask *with)
{
    struct ms_http_ask *a = malloc(sizeof *a);

    if (!a)
        return NULL;
    *a = *with;
    a->store = s;
    a->job = (struct ms_work_job){.run = ask_run, .done = ask_done};
    if (ms_work_add(s->work, &a->job) == 0)
        return a;
    free(a);
    return NULL;
}

void ms_http_ask_drop(struct ms_http_ask *a)
{
    if (a)
        a->on_done = NULL;
}

static struct ms_held *
make(struct ms_store_client *c, uint64_t len, struct ms_error *err)
{
    uint64_t most = ms_store_client_limit(c) / PIECE_SHARE / MS_HTTP_PIECE_UNIT *
                    MS_HTTP_PIECE_UNIT;

    if (most < PIECE_LEAST)
        most = PIECE_LEAST;
    return ms_store_client_make(c, len < most ? len : most, "PUT /data", err);
}

static int run_make(struct ms_http_ask *a, struct ms_store_client *c)
{
    a->held = make(c, a->len, &a->err);
    return a->err.code;
}

struct ms_http_ask *ms_http_ask_make(struct ms_http_store *s,
                                     uint64_t len,
                                     void (*on_done)(void *arg, struct ms_http_ask *a),
                                     void *arg)
{
    const struct ms_http_ask with = {
        .run = run_make, .on_done = on_done, .arg = arg, .len = len};

    return ask_begin(s, &with);
}

/* a->held is a reference without bytes until then. */
static int run_bring(struct ms_http_ask *a, struct ms_store_client *c)
{
    struct ms_held *bare = a->held;

    a->held = attach(c, bare, false, &a->err);
    ms_held_unref(bare);
    return a->err.code;
}

struct ms_http_ask *ms_http_ask_bring(struct ms_http_store *s,
                                      struct ms_held *held,
                                      void (*on_done)(void *arg, struct ms_http_ask *a),
                                      void *arg)
{
    const struct ms_http_ask with = {
        .run = run_bring, .on_done = on_done, .arg = arg, .held = ms_held_ref(held)};
    struct ms_http_ask *a = ask_begin(s, &with);

    if (!a)
        ms_held_unref(held);
    return a;
}

/* ---- bfloat16 -------------------------------------------------------------------- */

/* What is written: whole pieces, and the one that is being filled. */
struct narrowing {
    struct ms_store_client *client;
    struct ms_http_pieces done;
    struct ms_held *to;
    uint64_t filled, left; /* of `to`; to be written in all */
    struct ms_error *err;
};

static int next_piece(struct narrowing *n)
{
    struct ms_held *full = MS_TAKE(n->to);

    if (full && ms_http_pieces_add(&n->done, full, 0, n->filled) < 0)
        return -ENOMEM;
    n->filled = 0;
    if (!n->left)
        return 0;
    n->to = make(
        n->client, n->left < MS_HTTP_PIECE_MAX ? n->left : MS_HTTP_PIECE_MAX, n->err);
    return n->to ? 0 : n->err->code;
}

static int narrow_bytes(struct narrowing *n, const uint8_t *from, uint64_t len)
{
    while (len) {
        uint64_t some = n->to ? n->to->len - n->filled : 0;

        if (!some) {
            int rc = next_piece(n);

            if (rc < 0)
                return rc;
            assert(n->to); /* `left` is what all pieces have */
            some = n->to->len;
        }
        if (some > len / 2)
            some = len / 2;
        ms_bfloat16_narrow(from, some / 2, n->to->write + n->filled);
        n->filled += some;
        n->left -= some;
        from += 2 * some;
        len -= 2 * some;
    }
    return 0;
}

/* Each piece goes when it was read: no more memory is needed than for one. */
static int narrow_piece(struct narrowing *n, struct ms_http_piece *p)
{
    struct ms_held *held = attach(n->client, p->held, false, n->err);
    int rc;

    if (!held)
        return n->err->code;
    rc = narrow_bytes(n, held->read + p->offset, p->len);
    ms_held_unref(held);
    let_go(MS_TAKE(p->held));
    return rc;
}

static int run_narrow(struct ms_http_ask *a, struct ms_store_client *c)
{
    struct narrowing n = {.client = c, .err = &a->err};
    int rc = 0;

    for (size_t i = 0; i < a->pieces.count; i++)
        n.left += a->pieces.all[i].len / 2;
    for (size_t i = 0; i < a->pieces.count && rc == 0; i++)
        rc = narrow_piece(&n, &a->pieces.all[i]);
    if (rc == 0)
        rc = next_piece(&n);
    ms_held_unref(n.to);
    ms_http_pieces_finish(&a->pieces);
    a->pieces = n.done;
    return rc;
}

struct ms_http_ask *ms_http_ask_narrow(struct ms_http_store *s,
                                       struct ms_http_pieces *pieces,
                                       void (*on_done)(void *arg,
                                                       struct ms_http_ask *a),
                                       void *arg)
{
    const struct ms_http_ask with = {
        .run = run_narrow, .on_done = on_done, .arg = arg, .pieces = *pieces};
    struct ms_http_ask *a = ask_begin(s, &with);

    if (a)
        *pieces = (struct ms_http_pieces){0};
    return a;
}

/* ---- life ------------------------------------------------------------------------ */

struct ms_http_store *ms_http_store_create(struct ms_loop *loop,
                                           const Muster__WorkerBoot *boot)
{
    struct ms_http_store *s = calloc(1, sizeof *s);

    if (!s)
        return NULL;
    s->boot = boot;
    s->work = ms_work_create(loop, "muster-data");
    if (!s->work) {
        free(s);
        return NULL;
    }
    pthread_mutex_init(&s->lock, NULL);
    return s;
}

void ms_http_store_destroy(struct ms_http_store *s)
{
    if (!s)
        return;
    ms_work_destroy(s->work);
    ms_store_client_close(s->client);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

void ms_http_store_forget(struct ms_http_store *s)
{
    ms_store_client_forget(s->client);
}
