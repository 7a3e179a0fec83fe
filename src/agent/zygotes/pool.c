/* pool.c - all zygotes of an agent: which are started, and which go */
#include "agent/zygotes/zygote_impl.h"
#include "base/clock.h"
#include "base/limits.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>

static void on_idle(void *arg);

int ms_zygotes_init(struct ms_zygotes *p,
                    struct ms_loop *loop,
                    const char *session_dir,
                    const struct rlimit *nofile,
                    const struct ms_zygote_ops *ops,
                    void *arg)
{
    *p = (struct ms_zygotes){
        .loop = loop, .nofile = *nofile, .ops = ops, .arg = arg, .log_fd = -1};
    ms_list_init(&p->list);
    p->room = malloc(MS_ZYGOTE_EVENT_MAX);
    if (asprintf(&p->log_path, "%s/logs/zygote.log", session_dir) < 0)
        p->log_path = NULL;
    if (!p->room || !p->log_path || ms_timer_init(&p->idle, loop, on_idle, p) < 0) {
        ms_zygotes_finish(p);
        return -ENOMEM;
    }
    /* without it they print nowhere: no reason to have none */
    p->log_fd = open(p->log_path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    return 0;
}

void ms_zygotes_finish(struct ms_zygotes *p)
{
    if (!p->loop)
        return;
    ms_list_each (z, &p->list, struct ms_zygote, link) {
        if (z->pid > 0)
            kill(z->pid, SIGKILL);
        ms_list_remove(&z->link);
        ms_zygote_destroy(z);
    }
    ms_timer_finish(&p->idle);
    ms_fd_close(&p->log_fd);
    free(p->room);
    free(p->log_path);
    *p = (struct ms_zygotes){.log_fd = -1};
}

/* Free the dead ones; not while the list is walked. */
static void purge(struct ms_zygotes *p)
{
    ms_list_each (z, &p->list, struct ms_zygote, link) {
        if (z->state != MS_ZYGOTE_DEAD)
            continue;
        ms_list_remove(&z->link);
        p->count--;
        ms_list_each (derived, &p->list, struct ms_zygote, link)
            if (derived->base == z)
                derived->base = NULL;
        ms_zygote_destroy(z);
    }
}

/* ---- those that go --------------------------------------------------------------- */

static void end_over(struct ms_zygotes *p)
{
    struct ms_zygote *z;

    while ((z = ms_zygote_find_over(&p->list, ms_now_ns())))
        ms_zygote_fail(z, "nobody needs it any more");
}

static void set_idle_timer(struct ms_zygotes *p)
{
    int64_t next = ms_zygote_next_end_ns(&p->list), left = next - ms_now_ns();

    if (next == MS_NEVER)
        ms_timer_cancel(&p->idle);
    else /* one that is due and not idle is looked at again */
        ms_timer_set(&p->idle, left > 0 ? left : MS_ZYGOTE_IDLE_NS);
}

static void on_idle(void *arg)
{
    struct ms_zygotes *p = arg;

    end_over(p);
    purge(p);
    set_idle_timer(p);
}

void ms_zygote_end_if_over(struct ms_zygote *z)
{
    if (z->is_stale && ms_zygote_is_idle(&z->pool->list, z))
        ms_zygote_fail(z, "its modules have changed");
}

/* Those that were forked from it have its modules too. */
static void set_stale(struct ms_zygote *z)
{
    z->is_stale = true;
    ms_list_each (derived, &z->pool->list, struct ms_zygote, link)
        if (derived->base == z && !derived->is_stale)
            set_stale(derived);
}

/* Files are looked at once in a round, when the zygote is asked for. */
static bool is_stale_now(struct ms_zygote *z)
{
    const char *changed;

    if (z->is_stale || z->round == z->pool->round)
        return z->is_stale;
    z->round = z->pool->round;
    changed = ms_zygote_files_changed(&z->files);
    if (changed) {
        dprintf(STDERR_FILENO, "zygote %d: '%s' has changed\n", (int)z->pid, changed);
        set_stale(z);
    }
    return z->is_stale;
}

/* False: there are too many, and none can go. */
static bool make_room(struct ms_zygotes *p)
{
    struct ms_zygote *spare;

    end_over(p);
    purge(p);
    if (p->count < MS_ZYGOTES_MAX)
        return true;
    spare = ms_zygote_find_replaceable(&p->list);
    if (!spare)
        return false;
    ms_zygote_fail(spare, "another took its place");
    purge(p);
    return true;
}

/* ---- one for a key --------------------------------------------------------------- */

typedef struct ms_zygote *finder(const struct ms_list *list,
                                 const Muster__DriverContext *key);

static struct ms_zygote *
find_fresh(struct ms_zygotes *p, finder *find, const Muster__DriverContext *key)
{
    struct ms_zygote *z;

    do
        z = find(&p->list, key);
    while (z && is_stale_now(z)); /* a stale one is not found again */
    return z;
}

/* Forked from `base`, or a fresh interpreter if there is none. Takes the key. */
static struct ms_zygote *start_from(struct ms_zygotes *p,
                                    struct ms_zygote *base,
                                    Muster__DriverContext *key,
                                    struct ms_error *err)
{
    struct ms_zygote *z = ms_zygote_create(p, key);
    int rc;

    if (!z) {
        ms_error_set(err, -ENOMEM, "out of memory");
        return NULL;
    }
    rc = base ? ms_zygote_derive(z, base, err) : ms_zygote_launch(z, err);
    if (rc < 0) {
        ms_zygote_destroy(z);
        return NULL;
    }
    ms_list_add_tail(&p->list, &z->link);
    p->count++;
    if (base)
        ms_zygote_flush(base);
    return z;
}

/* Takes the key. */
static struct ms_zygote *
start(struct ms_zygotes *p, Muster__DriverContext *key, struct ms_error *err)
{
    if (!make_room(p)) {
        ms_zygote_key_destroy(key);
        ms_error_set(
            err, -ENOSPC, "there are %u zygotes, and all are in use", MS_ZYGOTES_MAX);
        return NULL;
    }
    return start_from(p, find_fresh(p, ms_zygote_find_base, key), key, err);
}

static bool has_driver(const struct ms_zygote *z, uint64_t driver, size_t *at)
{
    for (*at = 0; *at < z->drivers.len; *at += sizeof driver)
        if (!memcmp(z->drivers.data + *at, &driver, sizeof driver))
            return true;
    return false;
}

static void note_use(struct ms_zygote *z, uint64_t driver)
{
    size_t at;

    z->used_ns = ms_now_ns();
    if (!has_driver(z, driver, &at)) /* without memory it ends sooner */
        ms_buf_append(&z->drivers, &driver, sizeof driver);
}

/* One that `find` finds, or else a new one. Takes the key. */
static struct ms_zygote *get(struct ms_zygotes *p,
                             finder *find,
                             Muster__DriverContext *key,
                             uint64_t driver,
                             struct ms_error *err)
{
    struct ms_zygote *z;

    purge(p);
    z = find_fresh(p, find, key);
    if (z)
        ms_zygote_key_destroy(key);
    else
        z = start(p, key, err);
    if (z)
        note_use(z, driver);
    return z;
}

/* One in the place of another. Nothing is purged: the list may be walked. */
static struct ms_zygote *start_again(struct ms_zygote *old)
{
    Muster__DriverContext *key = ms_zygote_key_copy(old->key);
    struct ms_zygote *z = key ? start_from(old->pool, NULL, key, NULL) : NULL;

    if (z) {
        z->is_again = true;
        z->used_ns = old->used_ns;
        z->drivers = old->drivers;
        ms_buf_init(&old->drivers);
    }
    return z;
}

void ms_zygotes_pass_on(struct ms_zygote *z, struct ms_list *unsent, const char *why)
{
    struct ms_zygote *next;

    if (ms_list_is_empty(unsent))
        return;
    next = ms_zygote_find(&z->pool->list, z->key);
    if (!next)
        next = start_again(z);
    ms_list_each (item, unsent, struct ms_zygote_item, link) {
        ms_list_remove(&item->link);
        if (next && item->is_derive)
            MS_CONTAINER(item, struct ms_zygote, derive)->base = next;
        if (next)
            ms_list_add_tail(&next->queue, &item->link);
        else
            ms_zygote_fail_item(z, item, why);
    }
    if (next)
        ms_zygote_flush(next);
}

/* ---- asked ----------------------------------------------------------------------- */

void ms_zygotes_begin_round(struct ms_zygotes *p)
{
    p->round++;
}

int ms_zygotes_prepare(struct ms_zygotes *p,
                       Muster__DriverContext *key,
                       uint64_t driver,
                       uint64_t token,
                       struct ms_error *err)
{
    struct ms_zygote *z = get(p, ms_zygote_find, key, driver, err);

    if (!z)
        return err->code;
    if (z->state != MS_ZYGOTE_STARTING)
        p->ops->on_prepared(p->arg, token, NULL);
    else if (ms_buf_append(&z->waiters, &token, sizeof token) < 0)
        return ms_error_set(err, -ENOMEM, "out of memory");
    return 0;
}

int ms_zygotes_warm_up(struct ms_zygotes *p,
                       Muster__DriverContext *key,
                       uint64_t driver,
                       struct ms_error *err)
{
    return get(p, ms_zygote_find_richer, key, driver, err) ? 0 : err->code;
}

static void on_unforkable_later(void *arg)
{
    struct ms_zygotes *p = arg;

    ms_list_each (z, &p->list, struct ms_zygote, link)
        if (z->state == MS_ZYGOTE_UNFORKABLE)
            ms_zygote_flush(z);
}

int ms_zygotes_spawn(struct ms_zygotes *p,
                     Muster__DriverContext *key,
                     uint64_t driver,
                     struct ms_zygote_item *item,
                     struct ms_error *err)
{
    struct ms_zygote *z = get(p, ms_zygote_find, key, driver, err);

    if (!z)
        return err->code;
    ms_list_add_tail(&z->queue, &item->link);
    if (z->state == MS_ZYGOTE_READY)
        ms_zygote_flush(z);
    else if (z->state == MS_ZYGOTE_UNFORKABLE)
        return ms_loop_post(p->loop, on_unforkable_later, p);
    return 0;
}

void ms_zygotes_forget(struct ms_zygotes *p, uint64_t driver)
{
    ms_list_each (z, &p->list, struct ms_zygote, link) {
        size_t at, last = z->drivers.len - sizeof driver;

        if (!has_driver(z, driver, &at))
            continue;
        memmove(z->drivers.data + at, z->drivers.data + last, sizeof driver);
        z->drivers.len = last;
        z->used_ns = ms_now_ns();
    }
    set_idle_timer(p);
}

bool ms_zygote_item_cancel(struct ms_zygote_item *item)
{
    if (ms_list_is_empty(&item->link) || !item->data.len)
        return false;
    ms_list_remove(&item->link);
    ms_buf_finish(&item->data);
    return true;
}

void ms_zygotes_poll(struct ms_zygotes *p)
{
    ms_list_each (z, &p->list, struct ms_zygote, link)
        if (z->fd >= 0)
            ms_zygote_read(z);
}

static struct ms_zygote *by_pid(const struct ms_zygotes *p, pid_t pid)
{
    ms_list_each (z, &p->list, struct ms_zygote, link)
        if (z->pid == pid)
            return z;
    return NULL;
}

bool ms_zygotes_reaped(struct ms_zygotes *p, pid_t pid, int status)
{
    struct ms_zygote *z = pid > 0 ? by_pid(p, pid) : NULL;

    if (z)
        ms_zygote_ended(z, status);
    return z != NULL;
}

bool ms_zygotes_has(const struct ms_zygotes *p, pid_t pid)
{
    return by_pid(p, pid) != NULL;
}
