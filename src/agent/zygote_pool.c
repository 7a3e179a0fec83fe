#include "agent/zygote_impl.h"
#include "agent/zygote_key.h"
#include "base/limits.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>

enum { EVENT_MAX = 32 << 10 };

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
    p->room = malloc(EVENT_MAX);
    if (asprintf(&p->log_path, "%s/logs/zygote.log", session_dir) < 0)
        p->log_path = NULL;
    if (!p->room || !p->log_path) {
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
    ms_fd_close(&p->log_fd);
    free(p->room);
    free(p->log_path);
    *p = (struct ms_zygotes){.log_fd = -1};
}

/* Nobody walks the list now. */
static void purge(struct ms_zygotes *p)
{
    ms_list_each (z, &p->list, struct ms_zygote, link) {
        if (z->state != MS_ZYGOTE_DEAD)
            continue;
        ms_list_remove(&z->link);
        p->count--;
        ms_zygote_destroy(z);
    }
}

static struct ms_zygote *find(struct ms_zygotes *p,
                              const Muster__DriverContext *context,
                              const Muster__ZygoteKey *key)
{
    ms_list_each (z, &p->list, struct ms_zygote, link)
        if (z->state != MS_ZYGOTE_DEAD && z->context == context &&
            ms_zygote_key_equal(z->key, key))
            return z;
    return NULL;
}

/* The one that has most of what is asked for. */
static struct ms_zygote *find_base(struct ms_zygotes *p,
                                   const Muster__DriverContext *context,
                                   const Muster__ZygoteKey *key)
{
    struct ms_zygote *best = NULL;

    ms_list_each (z, &p->list, struct ms_zygote, link) {
        if (z->state != MS_ZYGOTE_STARTING && z->state != MS_ZYGOTE_READY)
            continue;
        if (z->context == context && ms_zygote_key_extends(key, z->key) &&
            (!best || z->key->n_preload > best->key->n_preload))
            best = z;
    }
    return best;
}

/* Too many kinds: the oldest that nobody waits for goes (its workers stay). The first
 * is the default one. */
static void make_room(struct ms_zygotes *p)
{
    bool is_first = true;

    if (p->count < MS_ZYGOTES_MAX)
        return;
    ms_list_each (z, &p->list, struct ms_zygote, link) {
        if (!is_first && ms_list_is_empty(&z->queue) && ms_list_is_empty(&z->sent) &&
            z->waiters.len == 0) {
            ms_zygote_fail(z, "another took its place");
            break;
        }
        is_first = false;
    }
    purge(p);
}

/* Forked from `base`, or a fresh interpreter if there is none. Takes the key. */
static struct ms_zygote *start_from(struct ms_zygotes *p,
                                    struct ms_zygote *base,
                                    const Muster__DriverContext *context,
                                    Muster__ZygoteKey *key,
                                    struct ms_error *err)
{
    struct ms_zygote *z = ms_zygote_create(p, context, key);
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

static struct ms_zygote *start(struct ms_zygotes *p,
                               const Muster__DriverContext *context,
                               Muster__ZygoteKey *key,
                               struct ms_error *err)
{
    make_room(p);
    return start_from(p, find_base(p, context, key), context, key, err);
}

static struct ms_zygote *get(struct ms_zygotes *p,
                             const Muster__DriverContext *context,
                             const Muster__ZygoteKey *key,
                             struct ms_error *err)
{
    Muster__ZygoteKey *normal = ms_zygote_key_normal(key, context);
    struct ms_zygote *z;

    if (!normal) {
        ms_error_set(err, -ENOMEM, "out of memory");
        return NULL;
    }
    purge(p);
    z = find(p, context, normal);
    if (!z)
        return start(p, context, normal, err);
    muster__zygote_key__free_unpacked(normal, NULL);
    return z;
}

/* One in the place of another. Nothing is purged: the list may be walked. */
static struct ms_zygote *start_again(const struct ms_zygote *old)
{
    Muster__ZygoteKey *key = ms_zygote_key_normal(old->key, old->context);

    return key ? start_from(old->pool, NULL, old->context, key, NULL) : NULL;
}

void ms_zygotes_pass_on(struct ms_zygote *z, struct ms_list *unsent, const char *why)
{
    struct ms_zygote *next;

    if (ms_list_is_empty(unsent))
        return;
    next = find(z->pool, z->context, z->key);
    if (!next)
        next = start_again(z);
    ms_list_each (item, unsent, struct ms_zygote_item, link) {
        ms_list_remove(&item->link);
        if (next)
            ms_list_add_tail(&next->queue, &item->link);
        else
            ms_zygote_fail_item(z, item, why);
    }
    if (next)
        ms_zygote_flush(next);
}

int ms_zygotes_prepare(struct ms_zygotes *p,
                       const Muster__DriverContext *context,
                       const Muster__ZygoteKey *key,
                       uint64_t token,
                       struct ms_error *err)
{
    struct ms_error why = {.code = -EIO};
    struct ms_zygote *z = get(p, context, key, &why);

    if (!z)
        return ms_error_set(err, why.code, "%s", why.text);
    if (!token)
        return 0;
    if (z->state != MS_ZYGOTE_STARTING) {
        p->ops->on_prepared(p->arg, token, NULL);
        return 0;
    }
    return ms_buf_append(&z->waiters, &token, sizeof token);
}

static void on_unforkable_later(void *arg)
{
    struct ms_zygotes *p = arg;

    ms_list_each (z, &p->list, struct ms_zygote, link)
        if (z->state == MS_ZYGOTE_UNFORKABLE)
            ms_zygote_flush(z);
}

int ms_zygotes_spawn(struct ms_zygotes *p,
                     const Muster__DriverContext *context,
                     const Muster__ZygoteKey *key,
                     struct ms_zygote_item *item,
                     struct ms_error *err)
{
    struct ms_error why = {.code = -EIO};
    struct ms_zygote *z = get(p, context, key, &why);

    if (!z)
        return ms_error_set(err, why.code, "%s", why.text);
    ms_list_add_tail(&z->queue, &item->link);
    if (z->state == MS_ZYGOTE_READY)
        ms_zygote_flush(z);
    else if (z->state == MS_ZYGOTE_UNFORKABLE)
        return ms_loop_post(p->loop, on_unforkable_later, p);
    return 0;
}

void ms_zygotes_forget(struct ms_zygotes *p, const Muster__DriverContext *context)
{
    ms_list_each (z, &p->list, struct ms_zygote, link)
        if (z->context == context)
            ms_zygote_fail(z, "its driver is gone");
    purge(p);
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
