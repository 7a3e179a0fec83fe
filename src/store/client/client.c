/* client.c - the life of a process's client, and its maps of the arena */
#include "store/client/state.h"

#include "base/cleanup.h"
#include "base/limits.h"
#include "store/pages.h"
#include "store/server/space.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

enum { RESTING_SHARE = 64 }; /* of the limit */

static void client_free(struct ms_store_client *c)
{
    assert(c->held.count == 0);
    ms_fd_close(&c->fd);
    ms_fd_close(&c->arena_fd);
    if (c->write_map)
        munmap(c->write_map, c->size);
    if (c->read_map)
        munmap((void *)(uintptr_t)c->read_map, c->size);
    ms_map_finish(&c->held);
    pthread_mutex_destroy(&c->lock);
    pthread_cond_destroy(&c->news);
    ms_outbox_finish(c);
    free(c->by_place);
    free(c->is_touched);
    free(c->address);
    free(c->warning);
    free(c->answer);
    free(c);
}

static int map_arena(struct ms_store_client *c, int fd, struct ms_error *err)
{
    c->write_map = ms_pages_map(fd, c->size, PROT_READ | PROT_WRITE);
    c->read_map = ms_pages_map(fd, c->size, PROT_READ);
    c->is_touched = calloc(c->size / MS_SPACE_BLOCK + 1, sizeof *c->is_touched);
    if (!c->write_map || !c->read_map || !c->is_touched)
        return ms_error_set(err,
                            -ENOMEM,
                            "cannot map %llu MiB of shared memory",
                            (unsigned long long)(c->size >> 20));
    return 0;
}

struct ms_store_client *ms_store_client_open(const struct ms_store_client_options *o,
                                             struct ms_error *err)
{
    struct ms_store_client *c = calloc(1, sizeof *c);
    Muster__StoreAnswer *m;
    int rc;

    if (!c) {
        ms_error_set(err, -ENOMEM, "out of memory");
        return NULL;
    }
    c->fd = c->arena_fd = -1;
    c->answer = malloc(2 * MS_STORE_MESSAGE_MAX);
    c->refs = 1;
    c->holder = o->holder;
    c->is_interrupted = o->is_interrupted;
    c->answer_ns = o->answer_ns ? o->answer_ns : MS_STORE_ANSWER_NS;
    c->next_request = 2;
    pthread_mutex_init(&c->lock, NULL);
    pthread_mutex_init(&c->out_lock, NULL);
    ms_list_init(&c->outbox);
    pthread_cond_init(&c->news, NULL);
    ms_map_init(&c->held);
    ms_list_init(&c->waiting);
    ms_list_init(&c->resting);
    ms_list_init(&c->private_maps);
    m = c->answer ? ms_store_rpc_open(c, o, &c->arena_fd, err) : NULL;
    if (!m) {
        client_free(c);
        return NULL;
    }
    c->node = m->welcome->node;
    c->limit = m->welcome->limit;
    c->spills = m->welcome->spills;
    c->resting_max = c->limit / RESTING_SHARE;
    if (c->resting_max > MS_STORE_RESTING_MAX)
        c->resting_max = MS_STORE_RESTING_MAX;
    c->size = m->welcome->arena_size;
    c->address = strdup(m->welcome->address);
    c->warning = strdup(m->welcome->warning);
    muster__store_answer__free_unpacked(m, NULL);
    rc = c->address && c->warning ? map_arena(c, c->arena_fd, err) : -ENOMEM;
    if (rc < 0) {
        client_free(c);
        return NULL;
    }
    return c;
}

void ms_store_client_unref(struct ms_store_client *c)
{
    bool last = --c->refs == 0;

    pthread_mutex_unlock(&c->lock);
    if (last)
        client_free(c);
}

void ms_store_client_close(struct ms_store_client *c)
{
    if (!c)
        return;
    pthread_mutex_lock(&c->lock);
    if (!c->is_read)
        ms_fd_close(&c->fd); /* else the reading thread holds it; it ends with us */
    c->is_forgotten = true;
    ms_store_client_unref(c);
}

void ms_store_client_forget(struct ms_store_client *c)
{
    if (!c)
        return;
    pthread_mutex_init(&c->lock,
                       NULL); /* the threads that had them are not in this process */
    pthread_mutex_init(&c->out_lock, NULL);
    ms_list_init(&c->outbox); /* the parent's to send */
    c->is_forgotten = true;
    ms_fd_close(&c->fd);
    ms_fd_close(&c->arena_fd);
}

uint64_t ms_store_client_node(const struct ms_store_client *c)
{
    return c->node;
}

uint64_t ms_store_client_holder(const struct ms_store_client *c)
{
    return c->holder;
}

uint64_t ms_store_client_limit(const struct ms_store_client *c)
{
    return c->limit;
}

const char *ms_store_client_warning(const struct ms_store_client *c)
{
    return c->warning;
}
