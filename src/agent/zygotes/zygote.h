/* zygote.h - the agent's zygotes: preloaded interpreters that fork workers
 *
 * A pool of them by key (zygote_key.h), for all drivers and workers of the agent. One that
 * only needs more imports than another is forked from it ("derived"), else a fresh
 * interpreter is executed. Requests are sent as soon as a zygote is ready, many at once;
 * what a ready one has not read before it died goes to another of its kind.
 *
 * A zygote whose modules were loaded from files of the user that have changed since is
 * stale: no worker is forked from it any more, and it ends when nothing is under way there.
 * One that no living driver has asked for ends after MS_ZYGOTE_IDLE_NS without a request.
 * There are at most MS_ZYGOTES_MAX: for another one the least recently used of those with
 * nothing under way goes, first of those without a living driver; if none can go, there is
 * no zygote (-ENOSPC) and the worker is to be executed.
 *
 * Only the reaper says that a zygote is dead: the agent's own, or (of a derived
 * one) the zygote that it came from. Its workers live on and become the agent's
 * children.
 *
 * Every item that was given to ms_zygotes_spawn gets exactly one of on_spawned,
 * on_failed and on_unforkable, unless it is cancelled; never from inside
 * ms_zygotes_spawn.
 */
#ifndef MS_AGENT_ZYGOTES_ZYGOTE_H
#define MS_AGENT_ZYGOTES_ZYGOTE_H

#include "agent/zygotes/key.h"
#include "base/buf.h"
#include "base/error.h"
#include "base/list.h"
#include "io/loop.h"
#include "proto/muster.pb-c.h"

#include <stdbool.h>
#include <sys/resource.h>
#include <sys/types.h>

enum { MS_ZYGOTE_ITEM_FDS = 6 };

/* A request on its way. Embedded in its owner; the descriptors stay the owner's. */
struct ms_zygote_item {
    struct ms_list link;
    uint64_t uid;
    struct ms_buf data; /* a packed ZygoteRequest; freed once it is sent */
    int fds[MS_ZYGOTE_ITEM_FDS];
    size_t fd_count;
    bool is_derive; /* the pool's own */
};

struct ms_zygote_ops {
    /* The kernel has the descriptors: close yours. */
    void (*on_sent)(void *arg, struct ms_zygote_item *item);
    /* It was sent, but its zygote has died without reading it and another gets it: these are
     * its descriptors, yours again and in item->fds. */
    void (*on_returned)(void *arg, struct ms_zygote_item *item);
    void (*on_spawned)(void *arg, struct ms_zygote_item *item, pid_t pid, pid_t zygote);
    void (*on_failed)(void *arg, struct ms_zygote_item *item, const char *why);
    /* It must not be forked, so execute the worker. The descriptors were not sent. */
    void (*on_unforkable)(void *arg, struct ms_zygote_item *item, const char *why);
    /* A child of a zygote has ended: a worker, a derived zygote, or something unknown.
     * `status` is waitpid's. */
    void (*on_reaped)(void *arg, pid_t pid, int status);
    /* Answers ms_zygotes_prepare; `why` is NULL when it is ready. */
    void (*on_prepared)(void *arg, uint64_t token, const char *why);
};

struct ms_zygotes {
    struct ms_loop *loop;
    struct rlimit nofile; /* for the children */
    const struct ms_zygote_ops *ops;
    void *arg;
    struct ms_list list; /* also dead ones, until it is not walked */
    unsigned count;
    uint64_t round;       /* counts what is asked: files are looked at once in each */
    struct ms_timer idle; /* until the next one has waited long enough */
    char *log_path;
    int log_fd;    /* stdout and stderr of all of them */
    uint8_t *room; /* for one event */
};

/* `ops` is borrowed until finish. What they print goes to <session_dir>/logs/zygote.log. */
int ms_zygotes_init(struct ms_zygotes *p,
                    struct ms_loop *loop,
                    const char *session_dir,
                    const struct rlimit *nofile,
                    const struct ms_zygote_ops *ops,
                    void *arg);
/* Kills them; who waits hears nothing more. Reaping is the caller's. */
void ms_zygotes_finish(struct ms_zygotes *p);

/* Another request of the head begins: files may have changed since the last one. */
void ms_zygotes_begin_round(struct ms_zygotes *p);

/* In all that follows `err` is not NULL. */

/* Start the zygote of a key for this driver unless it is there. Takes the key, also on
 * failure. */
int ms_zygotes_prepare(struct ms_zygotes *p,
                       Muster__DriverContext *key,
                       uint64_t driver,
                       uint64_t token,
                       struct ms_error *err);

/* The same ahead of time, without an answer: nothing is started where a zygote has that
 * key with more modules. */
int ms_zygotes_warm_up(struct ms_zygotes *p,
                       Muster__DriverContext *key,
                       uint64_t driver,
                       struct ms_error *err);

/* Queue a request at the zygote of its key, which is started if need be. Takes the key,
 * also on failure. -ENOSPC: there are too many, execute the worker. */
int ms_zygotes_spawn(struct ms_zygotes *p,
                     Muster__DriverContext *key,
                     uint64_t driver,
                     struct ms_zygote_item *item,
                     struct ms_error *err);

/* This driver is gone. */
void ms_zygotes_forget(struct ms_zygotes *p, uint64_t driver);

/* Take back a request that was not sent. False: it was (or is nowhere). */
bool ms_zygote_item_cancel(struct ms_zygote_item *item);

/* Read what zygotes have said: before the agent reaps, so that no child is unknown. */
void ms_zygotes_poll(struct ms_zygotes *p);

/* The reaper says that this process has ended. False: it is no zygote. */
bool ms_zygotes_reaped(struct ms_zygotes *p, pid_t pid, int status);

bool ms_zygotes_has(const struct ms_zygotes *p, pid_t pid);

#endif
