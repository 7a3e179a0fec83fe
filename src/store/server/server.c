/* server.c - the life of a node's store, and what its timers do */
#include "store/peers/peers.h"
#include "store/server/spill.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/heap.h"
#include "base/limits.h"
#include "base/name.h"
#include "io/sock.h"

#include <errno.h>
#include <malloc.h>
#include <stddef.h>
#include <string.h>

/* Address space is no memory: with room to spare, fragments do no harm. */
enum { SPREAD = 4 };

/* ---- memory ---------------------------------------------------------------------- */

void ms_store_expect_pieces(struct ms_store *s)
{
    if (s->has_pieces)
        return;
    s->has_pieces = true;
    /* Messages of a MiB come and go: that the C library takes memory for each from the
     * kernel, and gives it back at once, costs four fifths of the time. */
    ms_heap_keep();
}

/* Nothing was asked for in a while. */
static void on_idle(void *arg)
{
    struct ms_store *s = arg;

    while (!ms_list_is_empty(&s->table.unheld))
        ms_object_forget(ms_list_first(&s->table.unheld, struct ms_object, link));
    ms_store_punch_idle(s);
    if (s->has_pieces)
        malloc_trim(0);
}

/* ---- the table ------------------------------------------------------------------- */

static void on_free(void *arg, struct ms_object *o)
{
    struct ms_store *s = arg;

    if (o->is_copy)
        ms_remote_copy_free(s, o);
    else if (!o->is_slice)
        ms_receivers_tell(s, o);
    free(o->user);
    o->user = NULL;
    if (o->spilled)
        ms_spill_drop(s, o);
    ms_store_retry_places(s);
    ms_timer_set(&s->idle_timer, MS_STORE_IDLE_NS);
}

static const struct ms_table_ops table_ops = {.on_free = on_free,
                                              .on_unheld = ms_remote_copy_unheld};

void ms_store_watch_leases(struct ms_store *s)
{
    int64_t now_ns = ms_now_ns(), next_ns = ms_table_expire(&s->table, now_ns);

    if (next_ns != MS_NEVER)
        ms_timer_set(&s->lease_timer, next_ns - now_ns);
}

static void on_lease(void *arg)
{
    ms_store_watch_leases(arg);
    ms_store_retry_places(arg); /* that was promised, and may be spilled now */
}

/* ---- life ------------------------------------------------------------------------ */

static const struct {
    size_t at;
    void (*on_time)(void *store);
} timers[] = {{offsetof(struct ms_store, lease_timer), on_lease},
              {offsetof(struct ms_store, idle_timer), on_idle},
              {offsetof(struct ms_store, waiters_timer), ms_remote_copies_tell_waiters},
              {offsetof(struct ms_store, pace_timer), ms_remote_copies_look},
              {offsetof(struct ms_store, place_timer), ms_store_on_place_time}};

enum { TIMERS = sizeof timers / sizeof timers[0] };

static struct ms_timer *timer_at(struct ms_store *s, size_t i)
{
    return (struct ms_timer *)((char *)s + timers[i].at);
}

/* Takes the descriptor. */
static int start(struct ms_store *s, uint64_t limit, int tcp_fd, struct ms_error *err)
{
    MS_CLEANUP(ms_cleanup_fd) int fd = tcp_fd;
    uint64_t size = limit > UINT64_MAX / SPREAD ? limit : limit * SPREAD;
    uint64_t node = ms_random_id();
    int rc;

    if (!node || !s->path || !s->node_name || !s->address || !s->warning ||
        ms_table_init(&s->table, node, size, limit, &table_ops, s) < 0)
        return ms_error_set(err, -ENOMEM, "no memory for a store");
    s->arena.size = s->table.space->size;
    rc = ms_arena_open(&s->arena, s->loop, err);
    if (rc < 0)
        return rc;
    s->listen_fd = ms_unix_listen(s->path, SOCK_SEQPACKET, err);
    if (s->listen_fd < 0)
        return s->listen_fd;
    rc = ms_watch_init(
        &s->watch, s->loop, s->listen_fd, MS_READ, ms_store_conn_accept, s);
    for (size_t i = 0; rc == 0 && i < TIMERS; i++)
        rc = ms_timer_init(timer_at(s, i), s->loop, timers[i].on_time, s);
    if (rc == 0 && fd >= 0)
        rc = ms_remote_holders_listen(s, MS_TAKE_FD(fd), s->tls);
    return rc < 0 ? ms_error_sys(err, rc, "cannot watch the store's socket") : 0;
}

struct ms_store *ms_store_create(const struct ms_store_options *o, struct ms_error *err)
{
    struct ms_store *s = calloc(1, sizeof *s);
    struct ms_error own;

    if (!s) {
        if (o->listen_fd >= 0)
            close(o->listen_fd);
        ms_error_set(err, -ENOMEM, "no memory for a store");
        return NULL;
    }
    s->loop = o->loop;
    s->path = strdup(o->path);
    s->node_name = strdup(o->node_name);
    s->address = strdup(o->address ? o->address : "");
    s->warning = strdup(o->warning ? o->warning : "");
    s->arena = (struct ms_arena){.fd = -1, .memory_left = o->memory_left};
    s->tls = o->tls;
    s->on_note = o->on_note;
    s->note_arg = o->note_arg;
    memcpy(s->secret, o->secret, sizeof s->secret);
    s->listen_fd = -1;
    ms_list_init(&s->conns);
    ms_list_init(&s->remote_holders);
    ms_list_init(&s->remote_readers);
    ms_list_init(&s->peers);
    ms_list_init(&s->lost_waiters);
    ms_list_init(&s->placings);
    err = err ? err : &own;
    if (start(s, o->limit, o->listen_fd, err) < 0 ||
        (o->spill_dir && ms_spill_start(s, o->spill_dir, o->spill_limit, err) < 0)) {
        ms_store_destroy(s);
        return NULL;
    }
    return s;
}

/* What the table's objects have of ours. */
static void drop_objects(struct ms_store *s)
{
    if (!s->table.space)
        return;
    ms_list_splice(&s->table.all, &s->table.unheld);
    ms_list_each (o, &s->table.all, struct ms_object, link) {
        if (o->is_copy)
            ms_remote_copy_free(s, o);
        free(o->user);
        if (o->spilled)
            ms_spill_drop(s, o);
    }
}

void ms_store_destroy(struct ms_store *s)
{
    if (!s)
        return;
    ms_watch_finish(&s->watch);
    ms_list_each (g, &s->conns, struct ms_store_conn, link)
        ms_store_conn_destroy(g);
    ms_remote_readers_finish(s);
    ms_store_fail_places(s);
    ms_spill_stop(s);
    ms_arena_close(&s->arena); /* all that waits for it ends now */
    ms_remote_holders_finish(s);
    ms_store_peers_finish(s);
    if (s->listen_fd >= 0)
        unlink(s->path);
    ms_fd_close(&s->listen_fd);
    drop_objects(s);
    ms_remote_copies_tell_waiters(s);   /* no process is there: they only end */
    for (size_t i = 0; i < TIMERS; i++) /* what goes sets timers: they go last */
        ms_timer_finish(timer_at(s, i));
    ms_table_finish(&s->table);
    free(s->spill.dir);
    explicit_bzero(s->secret, sizeof s->secret);
    free(s->path);
    free(s->node_name);
    free(s->address);
    free(s->warning);
    free(s);
}
