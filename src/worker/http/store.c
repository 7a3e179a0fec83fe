/* store.c - the objects of the node's store in which a worker's HTTP keeps tensors */
#include "base/cleanup.h"
#include "base/limits.h"
#include "base/lock.h"
#include "base/name.h"
#include "store/path.h"
#include "worker/http/store_impl.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* No piece is more than a part of the store, so that others find room beside it, and none so
 * small that it would never be spilled. */
enum { PIECE_SHARE = 16 };
/* Those that are busy have a part of it too. */
enum { BUSY_SHARE = 4, BUSY_LEAST = PIECE_SHARE / BUSY_SHARE };
#define PIECE_LEAST ((MS_SPILL_MIN / MS_HTTP_PIECE_UNIT + 1) * MS_HTTP_PIECE_UNIT)

/* ---- pieces ---------------------------------------------------------------------- */

void ms_http_piece_let_go(struct ms_held *held)
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
            ms_http_piece_let_go(p->all[i].held);
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

static unsigned busy_max(const struct ms_store_client *c)
{
    uint64_t most = ms_store_client_limit(c) / BUSY_SHARE / MS_HTTP_PIECE_MAX;

    return most < BUSY_LEAST ? BUSY_LEAST : (unsigned)most;
}

/* NULL: there is none. Any thread. */
struct ms_store_client *ms_http_store_client(struct ms_http_store *s,
                                             struct ms_error *err)
{
    MS_LOCK(&s->lock);
    struct ms_error why = {0};

    if (!s->client) {
        s->client = open_client(s, &why);
        s->busy_max = s->client ? busy_max(s->client) : 1;
    }
    if (!s->client)
        ms_error_set(err, why.code, "there is no store here for tensors: %s", why.text);
    return s->client;
}

struct ms_held *ms_http_piece_attach(struct ms_store_client *c,
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
    struct ms_store_client *c = ms_http_store_client(s, err);
    struct ms_held *held = c ? ms_http_piece_attach(c, of, true, err) : NULL;

    if (!held)
        return err->code;
    return ms_http_pieces_add(out, held, offset, len) < 0
               ? ms_error_set(err, -ENOMEM, "out of memory")
               : 0;
}

struct ms_held *
ms_http_piece_make(struct ms_store_client *c, uint64_t len, struct ms_error *err)
{
    uint64_t most = ms_store_client_limit(c) / PIECE_SHARE / MS_HTTP_PIECE_UNIT *
                    MS_HTTP_PIECE_UNIT;

    if (most < PIECE_LEAST)
        most = PIECE_LEAST;
    return ms_store_client_make(c, len < most ? len : most, "PUT /data", err);
}

/* ---- life ------------------------------------------------------------------------ */

struct ms_http_store *ms_http_store_create(struct ms_loop *loop,
                                           const Muster__WorkerBoot *boot)
{
    struct ms_http_store *s = calloc(1, sizeof *s);

    if (!s)
        return NULL;
    s->boot = boot;
    s->busy_max = 1;
    ms_list_init(&s->waiting);
    pthread_mutex_init(&s->lock, NULL);
    s->work = ms_work_create(loop, "muster-data");
    if (s->work && ms_timer_init(&s->timer, loop, ms_http_store_on_time, s) == 0)
        return s;
    ms_http_store_destroy(s);
    return NULL;
}

void ms_http_store_destroy(struct ms_http_store *s)
{
    if (!s)
        return;
    assert(ms_list_is_empty(&s->waiting)); /* who asked has gone, and dropped it */
    ms_timer_finish(&s->timer);
    ms_work_destroy(s->work);
    ms_store_client_close(s->client);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

void ms_http_store_forget(struct ms_http_store *s)
{
    ms_store_client_forget(s->client);
}
