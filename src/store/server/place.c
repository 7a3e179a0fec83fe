/* place.c - room in the arena for objects, the memory behind it, and who waits for both */
#include "store/server/spill.h"
#include "store/server/state.h"

#include "base/clock.h"
#include "base/limits.h"

#include <errno.h>
#include <stdlib.h>

enum { RUNS_MAX = 64 };

const struct ms_error ms_store_no_memory = {-ENOMEM, "out of memory"};

/* An object that waits for room, and then for the memory behind it. */
struct placing {
    struct ms_list link; /* store->placings, while it waits for room */
    struct ms_store *store;
    uint64_t node, id;
    int64_t deadline_ns;
    bool is_listening; /* it waits for one turn of the loop alone */
    bool has_listened;
    uint64_t punches; /* store->punches, when memory was asked for */
    ms_object_fn *fn;
    void *arg;
};

/* ---- waiters --------------------------------------------------------------------- */

int ms_waiters_add(struct ms_list *waiting, bool bare, ms_object_fn *fn, void *arg)
{
    struct ms_waiter *w = malloc(sizeof *w);

    if (!w)
        return -ENOMEM;
    *w = (struct ms_waiter){.bare = bare, .fn = fn, .arg = arg};
    ms_list_add_tail(waiting, &w->link);
    return 0;
}

void ms_waiters_tell(struct ms_list *waiting,
                     struct ms_store *s,
                     struct ms_object *o,
                     const struct ms_error *why)
{
    struct ms_list all;

    ms_list_init(&all);
    ms_list_splice(&all, waiting);
    ms_list_each (w, &all, struct ms_waiter, link) {
        ms_list_remove(&w->link);
        w->fn(w->arg, s, o, why);
        free(w);
    }
}

/* ---- memory ---------------------------------------------------------------------- */

void ms_store_punch_idle(struct ms_store *s)
{
    struct ms_block_run run;
    uint64_t from = 0;

    while (ms_space_idle(s->table.space, from, &run)) {
        if (ms_arena_punch(&s->arena, &run) < 0)
            return;
        s->punches++;
        ms_space_set_memory(s->table.space, &run, false);
        from = run.at + run.len;
    }
}

/* Runs of blocks without memory that the object needs; their bytes. */
static uint64_t missing_runs(struct ms_store *s,
                             const struct ms_object *o,
                             struct ms_block_run *runs,
                             size_t *count)
{
    uint64_t at = o->at, end = o->at + (o->len ? o->len : 1), bytes = 0;

    *count = 0;
    while (at < end && ms_space_missing(s->table.space, at, end - at, &runs[*count])) {
        bytes += runs[*count].len;
        at = runs[*count].at + runs[*count].len;
        if (++*count == RUNS_MAX) { /* the last one covers all that is left */
            struct ms_block_run *last = &runs[RUNS_MAX - 1];
            uint64_t stop =
                (end + MS_SPACE_BLOCK - 1) / MS_SPACE_BLOCK * MS_SPACE_BLOCK;

            last->len = stop - last->at;
            break;
        }
    }
    return bytes;
}

/* It was waited for, or not: tell it once. */
static void finish(struct placing *p, int rc, const char *text)
{
    struct ms_store *s = p->store;
    struct ms_object *o = ms_table_find(&s->table, p->node, p->id);
    struct ms_error why = {0};

    ms_list_remove(&p->link);
    if (rc < 0)
        ms_error_set(&why, rc, "%s", text);
    p->fn(p->arg, s, o, rc < 0 ? &why : NULL);
    free(p);
}

static void
on_committed(void *arg, int rc, const struct ms_block_run *runs, size_t done)
{
    struct placing *p = arg;
    struct ms_store *s = p->store;

    if (p->punches != s->punches) {
        /* Memory was given back after this was asked for, perhaps some of this: of an
         * object that shares a block with others, which have gone. Make sure. */
        p->punches = s->punches;
        if (rc == 0 && ms_arena_commit(&s->arena, runs, done, on_committed, p) == 0)
            return;
        rc = rc < 0 ? rc : -ENOMEM;
        done = 0;
    }
    for (size_t i = 0; i < done; i++)
        ms_space_set_memory(s->table.space, &runs[i], true);
    finish(
        p,
        rc < 0 ? -ENOMEM : 0,
        "this machine, or the container that this node runs in, has no memory left for "
        "the store, although its limit is not reached");
}

/* It has room: memory for it. */
static void commit(struct placing *p, const struct ms_object *o)
{
    struct ms_store *s = p->store;
    struct ms_block_run runs[RUNS_MAX];
    size_t count;
    uint64_t bytes = missing_runs(s, o, runs, &count);

    ms_list_remove(&p->link);
    ms_timer_set(&s->idle_timer, MS_STORE_IDLE_NS);
    if (!count) {
        finish(p, 0, "");
        return;
    }
    if (s->table.space->committed + bytes > s->table.space->limit)
        ms_store_punch_idle(s);
    p->punches = s->punches;
    if (ms_arena_commit(&s->arena, runs, count, on_committed, p) < 0)
        finish(p, -ENOMEM, "out of memory");
}

/* ---- room ------------------------------------------------------------------------ */

static void fail_full(struct placing *p, uint64_t len)
{
    struct ms_store *s = p->store;
    struct ms_buf text = {0};

    if (s->table.space->limit == 0)
        ms_buf_printf(
            &text, "node %s has no store: its store_limit is 0", s->node_name);
    else
        ms_table_explain_full(&s->table, len, ms_spill_explain(s), &text);
    finish(p, -ENOSPC, ms_buf_str(&text) ? ms_buf_str(&text) : "the store is full");
    ms_buf_finish(&text);
}

/* How much more than is free it needs; 0: it does not fit for another reason. */
static uint64_t shortage(const struct ms_space *space, uint64_t len)
{
    uint64_t limit = space->limit, used = space->used;

    len = (len + MS_SPACE_ALIGN - 1) / MS_SPACE_ALIGN * MS_SPACE_ALIGN;
    return len > limit || used + len <= limit ? 0 : used + len - limit;
}

/* Others may have let go of enough before this was asked for, in messages that wait in
 * their sockets: all of them are read before it fails. */
static bool listen_first(struct placing *p, uint64_t len)
{
    if (p->has_listened || len > p->store->table.space->limit)
        return false;
    p->is_listening = p->has_listened = true;
    return true;
}

/* Try once; true: it waits. */
static bool step(struct placing *p)
{
    struct ms_store *s = p->store;
    struct ms_object *o = ms_table_find(&s->table, p->node, p->id);
    uint64_t need;
    int rc;

    p->is_listening = false;
    if (!o) {
        finish(p, -ENOENT, "an object is gone: it was let go of while it was made");
        return false;
    }
    rc = o->has_room ? 0 : ms_object_room(o);
    if (rc == 0) {
        commit(p, o);
        return false;
    }
    need = rc == -ENOSPC ? shortage(s->table.space, o->len) : 0;
    if (need && (ms_spill_some(s, need) || ms_spill_will(s, need)))
        return true;
    if (rc == -ENOSPC && listen_first(p, o->len))
        return true;
    if (rc == -ENOSPC)
        fail_full(p, o->len);
    else
        finish(p, rc, "out of memory");
    return false;
}

/* A timer of no time comes when all that can be read was read. */
static void try_again_in(struct placing *p, int64_t left_ns)
{
    ms_timer_set(&p->store->place_timer, p->is_listening ? 0 : left_ns);
}

void ms_store_place(struct ms_store *s,
                    const struct ms_object *o,
                    ms_object_fn *fn,
                    void *arg)
{
    struct placing *p = calloc(1, sizeof *p);

    if (!p) {
        fn(arg, s, ms_table_find(&s->table, o->node, o->id), &ms_store_no_memory);
        return;
    }
    *p = (struct placing){.store = s,
                          .node = o->node,
                          .id = o->id,
                          .deadline_ns = ms_now_ns() + MS_SPILL_WAIT_NS,
                          .fn = fn,
                          .arg = arg};
    ms_list_init(&p->link);
    if (!step(p))
        return;
    ms_list_add_tail(&s->placings, &p->link);
    try_again_in(p, MS_SPILL_WAIT_NS);
}

void ms_store_retry_places(struct ms_store *s)
{
    if (!ms_list_is_empty(&s->placings))
        ms_timer_set(&s->place_timer, 0); /* never from inside of the code that frees */
}

void ms_store_on_place_time(void *arg)
{
    struct ms_store *s = arg;

    while (!ms_list_is_empty(&s->placings)) {
        struct placing *p = ms_list_first(&s->placings, struct placing, link);
        /* the analyzer does not follow links. NOLINTNEXTLINE(clang-analyzer-unix.Malloc) */
        int64_t left_ns = p->deadline_ns - ms_now_ns();

        if (left_ns <= 0) {
            finish(p, -ENOSPC, "the store is full, and its spill folder is too slow");
        } else if (step(p)) {
            try_again_in(p, left_ns);
            return; /* those behind it wait in turn */
        }
    }
}

void ms_store_fail_places(struct ms_store *s)
{
    while (!ms_list_is_empty(&s->placings)) {
        struct placing *p = ms_list_first(&s->placings, struct placing, link);
        /* the analyzer does not follow links. NOLINTNEXTLINE(clang-analyzer-unix.Malloc) */
        struct ms_object *o = ms_table_find(&s->table, p->node, p->id);

        if (o && (o->has_room || ms_object_room(o) == 0))
            commit(p, o);
        else
            fail_full(p, o ? o->len : 0);
    }
}
