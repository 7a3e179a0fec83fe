/* spill.c - objects that no process reads, written to files and read back */
#include "store/server/spill.h"
#include "store/server/work.h"

#include "base/cleanup.h"
#include "base/limits.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

/* Where the bytes of an object are, and who wants them back. */
struct ms_spilled {
    int fd;
    bool is_coming;
    struct ms_list waiting;
};

/* One object that is written or read. */
struct moving {
    struct ms_work_job job;
    struct ms_store *store;
    uint64_t node, id, len;
    uint8_t *memory; /* in the arena */
    int fd, rc;
    struct ms_error why;
};

static struct moving *moving_create(struct ms_store *s,
                                    const struct ms_object *o,
                                    const struct ms_work_job *job)
{
    struct moving *m = calloc(1, sizeof *m);

    if (!m)
        return NULL;
    m->job = *job;
    m->store = s;
    m->node = o->node;
    m->id = o->id;
    m->len = o->len;
    m->memory = s->arena.memory + o->at;
    m->fd = -1;
    return m;
}

static struct moving *moving_of(struct ms_work_job *job)
{
    return MS_CONTAINER(job, struct moving, job);
}

/* The object, which was pinned, without the pin. NULL: it went with it. */
static struct ms_object *release(const struct moving *m)
{
    struct ms_table *t = &m->store->table;
    struct ms_object *o = ms_table_find(t, m->node, m->id);

    assert(o);
    ms_object_unpin(o);
    return ms_table_find(t, m->node, m->id);
}

/* ---- out ------------------------------------------------------------------------- */

static void write_run(struct ms_work_job *job)
{
    struct moving *m = moving_of(job);
    struct ms_spill *sp = &m->store->spill;

    m->fd = m->rc = ms_spill_open(sp->dir, m->len, &m->why);
    if (m->fd < 0)
        return;
    m->rc = ms_spill_move(m->fd, m->memory, m->len, true, sp->work);
    if (m->rc < 0)
        ms_error_sys(&m->why, m->rc, "cannot spill to %s", sp->dir);
}

/* It is in the file. Is it still not read? */
static void settle(struct moving *m, struct ms_object *o)
{
    struct ms_spill *sp = &m->store->spill;
    struct ms_spilled *spilled =
        o && ms_object_is_idle(o) ? calloc(1, sizeof *spilled) : NULL;

    if (!spilled)
        return;
    spilled->fd = MS_TAKE_FD(m->fd);
    ms_list_init(&spilled->waiting);
    sp->used += m->len;
    ms_object_unroom(o);
    o->spilled = spilled;
}

static void write_done(struct ms_work_job *job, bool was_dropped)
{
    struct moving *m = moving_of(job);
    struct ms_store *s = m->store;
    struct ms_object *o = release(m);

    s->spill.writing -= m->len;
    s->spill.why = m->why;
    if (m->rc >= 0 && !was_dropped)
        settle(m, o);
    ms_fd_close(&m->fd);
    if (m->rc < 0 && !was_dropped)
        ms_store_fail_places(s);
    else if (!was_dropped)
        ms_store_retry_places(s);
    free(m);
}

static const struct ms_work_job write_job = {.run = write_run, .done = write_done};

static int write_out(struct ms_store *s, struct ms_object *o)
{
    struct moving *m = moving_create(s, o, &write_job);

    if (!m || ms_work_add(s->spill.work, &m->job) < 0) {
        free(m);
        return -ENOMEM;
    }
    ms_object_pin(o); /* also: it is not idle any more, and not chosen twice */
    s->spill.writing += o->len;
    return 0;
}

bool ms_spill_some(struct ms_store *s, uint64_t need)
{
    struct ms_spill *sp = &s->spill;
    struct ms_object *o;
    uint64_t idle, promised, room;

    if (!sp->dir)
        return false;
    sp->was_limited = false;
    if (!sp->writing)
        sp->why = (struct ms_error){0};
    ms_table_find_idle(&s->table, MS_SPILL_MIN, &idle, &promised);
    if (sp->writing + idle < need)
        return false;
    room = sp->limit - sp->used; /* what is written now has a part of it */
    if (room < need) {
        sp->was_limited = true;
        return false;
    }
    while (sp->writing < need) {
        o = ms_table_find_idle(&s->table, MS_SPILL_MIN, &idle, &promised);
        if (!o || o->len > room - sp->writing) {
            sp->was_limited = o != NULL;
            break;
        }
        if (write_out(s, o) < 0)
            break;
    }
    return sp->writing > 0;
}

bool ms_spill_will(const struct ms_store *s, uint64_t need)
{
    const struct ms_spill *sp = &s->spill;
    uint64_t idle, promised;

    if (!sp->dir || sp->why.code || sp->was_limited)
        return false;
    ms_table_find_idle(&s->table, MS_SPILL_MIN, &idle, &promised);
    return promised && sp->writing + idle + promised >= need;
}

/* ---- back ------------------------------------------------------------------------ */

static void spilled_free(struct ms_store *s, struct ms_object *o)
{
    s->spill.used -= o->len;
    ms_fd_close(&o->spilled->fd);
    free(o->spilled);
    o->spilled = NULL;
}

/* It could not be read; it stays where it is. */
static void give_up(struct ms_store *s, struct ms_object *o, const struct ms_error *why)
{
    uint64_t node = o->node, id = o->id;

    o->spilled->is_coming = false;
    ms_waiters_tell(&o->spilled->waiting, s, o, why);
    ms_object_unpin(o);
    o = ms_table_find(&s->table, node, id);
    if (o && o->has_room)
        ms_object_unroom(o);
}

static void read_run(struct ms_work_job *job)
{
    struct moving *m = moving_of(job);

    m->rc = ms_spill_move(m->fd, m->memory, m->len, false, m->store->spill.work);
}

static void read_done(struct ms_work_job *job, bool was_dropped)
{
    struct moving *m = moving_of(job);
    struct ms_store *s = m->store;
    struct ms_object *o = ms_table_find(&s->table, m->node, m->id);

    assert(o && o->spilled);
    if (was_dropped)
        m->rc = -ECANCELED;
    if (m->rc < 0) {
        ms_error_sys(&m->why, m->rc, "an object cannot be read back from disk");
        give_up(s, o, &m->why);
    } else {
        struct ms_list waiting;

        ms_list_init(&waiting);
        ms_list_splice(&waiting, &o->spilled->waiting);
        spilled_free(s, o);
        o->is_ready = true;
        ms_waiters_tell(&waiting, s, o, NULL);
        release(m);
    }
    free(m);
}

static const struct ms_work_job read_job = {.run = read_run, .done = read_done};

static void on_placed(void *arg,
                      struct ms_store *s,
                      struct ms_object *o,
                      const struct ms_error *why)
{
    struct moving *m;

    (void)arg;
    assert(o); /* it is pinned */
    if (why) {
        give_up(s, o, why);
        return;
    }
    m = moving_create(s, o, &read_job);
    if (m)
        m->fd = o->spilled->fd;
    if (!m || ms_work_add(s->spill.work, &m->job) < 0) {
        free(m);
        give_up(s, o, &ms_store_no_memory);
    }
}

void ms_spill_want(struct ms_store *s, struct ms_object *o, ms_object_fn *fn, void *arg)
{
    if (ms_waiters_add(&o->spilled->waiting, false, fn, arg) < 0) {
        fn(arg, s, o, &ms_store_no_memory);
        return;
    }
    if (o->spilled->is_coming)
        return;
    o->spilled->is_coming = true;
    ms_object_pin(o);
    ms_store_place(s, o, on_placed, NULL);
}

void ms_spill_drop(struct ms_store *s, struct ms_object *o)
{
    assert(ms_list_is_empty(&o->spilled->waiting)); /* they pin it */
    spilled_free(s, o);
}

/* ---- life ------------------------------------------------------------------------ */

/* A folder that is not there says so when it is needed. */
static uint64_t half_of_free(const char *dir)
{
    struct statvfs v;

    return statvfs(dir, &v) < 0 ? UINT64_MAX / 2
                                : (uint64_t)v.f_bavail * v.f_frsize / 2;
}

int ms_spill_start(struct ms_store *s,
                   const char *dir,
                   uint64_t limit,
                   struct ms_error *err)
{
    s->spill.limit = limit ? limit : half_of_free(dir);
    s->spill.dir = strdup(dir);
    s->spill.work = ms_work_create(s->loop, "muster-spill");
    ms_spill_clean(dir);
    return s->spill.dir && s->spill.work ? 0
                                         : ms_error_set(err, -ENOMEM, "out of memory");
}

void ms_spill_stop(struct ms_store *s)
{
    ms_work_destroy(s->spill.work); /* whose jobs look at it until they end */
    s->spill.work = NULL;
}

const char *ms_spill_explain(const struct ms_store *s)
{
    const struct ms_spill *sp = &s->spill;

    if (!sp->dir)
        return NULL;
    return sp->why.code      ? sp->why.text
           : sp->was_limited ? "the spill limit is reached"
                             : "and all of it is in use";
}
