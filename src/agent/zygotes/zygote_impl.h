/* zygote_impl.h - one zygote, for the files of this folder
 *
 * zygote.c  its making: executed, or forked from another
 * talk.c    what is sent to it, what it says, how it ends
 * pool.c    all of them: which are started, and which go
 * spares.c  in the zygote's process: what it has forked ahead
 * choice.c  which one serves a key, and which ones go. Pure
 * files.c   the user's files that its modules came from
 */
#ifndef MS_AGENT_ZYGOTES_ZYGOTE_IMPL_H
#define MS_AGENT_ZYGOTES_ZYGOTE_IMPL_H

#include "agent/zygotes/spares.h"
#include "agent/zygotes/zygote.h"

enum { MS_ZYGOTE_EVENT_MAX = 32 << 10 };

/* The user's files that a zygote has loaded modules from, as they were when they were
 * loaded. One that has another size or time now, or is gone, means that a fresh interpreter
 * would not be what this zygote is. */
struct ms_zygote_files {
    struct ms_buf list; /* of Muster__LoadedFile pointers */
};

void ms_zygote_files_finish(struct ms_zygote_files *files);
/* Adds a copy. 0 or -ENOMEM. */
int ms_zygote_files_add(struct ms_zygote_files *files, const Muster__LoadedFile *file);
/* The path of one that has changed, borrowed; NULL: none has. One stat for each. */
const char *ms_zygote_files_changed(const struct ms_zygote_files *files);

enum ms_zygote_state {
    MS_ZYGOTE_STARTING,
    MS_ZYGOTE_READY,
    MS_ZYGOTE_UNFORKABLE, /* remembered so that it is not tried again; no process */
    MS_ZYGOTE_DEAD        /* removed when the list is not walked */
};

struct ms_zygote {
    struct ms_list link;
    struct ms_zygotes *pool;
    Muster__DriverContext *key; /* owned */
    Muster__DriverContext
        *after;             /* with the variables that its imports have changed: what
                                    its workers ask for. Owned; NULL: none were */
    struct ms_zygote *base; /* that it was forked from and ends with; NULL: none */
    enum ms_zygote_state state;
    bool is_stale;   /* a file of its modules has changed: it serves no new worker */
    bool is_again;   /* it has the requests of one that was lost or stale */
    uint64_t round;  /* in which its files were looked at */
    int64_t used_ns; /* when it was asked for, or when its last driver went */
    struct ms_buf drivers; /* ids of the living ones that have asked for it */
    struct ms_zygote_files files;
    pid_t pid; /* 0: not known yet, or gone */
    int fd;    /* its socket */
    int unread; /* the other end: what it has not read when it dies is taken from there */
    int problem_fd; /* of its launch; -1: derived */
    struct ms_watch watch;
    struct ms_timer timer;       /* until it is ready, and until it answers */
    bool is_late;                /* it has not answered in time, once */
    pid_t spares[MS_SPARES_MAX]; /* processes of it that wait for a request */
    unsigned spare_count;
    struct ms_zygote_item derive; /* in its base's queue or sent list */
    struct ms_list queue, sent;   /* items */
    struct ms_buf waiters;        /* tokens */
    off_t log_from;               /* where its lines begin */
    char *problem;                /* what it said, or what we say of it */
};

/* Takes the key, also on failure. */
struct ms_zygote *ms_zygote_create(struct ms_zygotes *p, Muster__DriverContext *key);
void ms_zygote_destroy(struct ms_zygote *z);
void ms_zygote_close_socket(struct ms_zygote *z);

/* Execute a fresh interpreter. */
int ms_zygote_launch(struct ms_zygote *z, struct ms_error *err);
/* Queue at `base` a request to fork this one. */
int ms_zygote_derive(struct ms_zygote *z, struct ms_zygote *base, struct ms_error *err);

/* Send what is queued, as far as the socket takes it. */
void ms_zygote_flush(struct ms_zygote *z);
/* Read and handle all that is there. */
void ms_zygote_read(struct ms_zygote *z);

/* What it was never sent, and never will be, goes to another one of its kind, which is
 * started if need be; or fails, with `why`. */
void ms_zygotes_pass_on(struct ms_zygote *z, struct ms_list *unsent, const char *why);
/* One that waits, or was sent. */
void ms_zygote_fail_item(struct ms_zygote *z,
                         struct ms_zygote_item *item,
                         const char *why);

/* It is of no more use: kill it, fail all that wait, close. */
void ms_zygote_fail(struct ms_zygote *z, const char *why);
/* The same when the reaper has said how it ended. */
void ms_zygote_ended(struct ms_zygote *z, int status);
/* It does not answer: a fork takes milliseconds. Once may be our own fault (we were stopped
 * as well), then it is killed. */
void ms_zygote_late(struct ms_zygote *z);
/* Something that it was sent is done: it ends if it is stale and that was the last. */
void ms_zygote_end_if_over(struct ms_zygote *z);

/* ---- choice.c: all look at a list of zygotes and change nothing ------------------- */

/* A zygote is idle when it has nothing to do and no other that was derived from it lives:
 * those end with it.
 *
 * Keys are compared with what a zygote was made with, and with that and the variables that
 * its imports have changed: a worker that was forked from it has those. */

/* The one of this key; it may be starting, or not forkable. Neither dead nor stale. */
struct ms_zygote *ms_zygote_find(const struct ms_list *list,
                                 const Muster__DriverContext *key);

/* The one that has most of what is asked for, and nothing else. */
struct ms_zygote *ms_zygote_find_base(const struct ms_list *list,
                                      const Muster__DriverContext *key);

/* One that has all of what is asked for, and maybe more. */
struct ms_zygote *ms_zygote_find_richer(const struct ms_list *list,
                                        const Muster__DriverContext *key);

bool ms_zygote_is_idle(const struct ms_list *list, const struct ms_zygote *z);

/* An idle one whose time is over; NULL: none. */
struct ms_zygote *ms_zygote_find_over(const struct ms_list *list, int64_t now_ns);

/* The idle one that gives its place to another; NULL: none is. */
struct ms_zygote *ms_zygote_find_replaceable(const struct ms_list *list);

/* When to look for one that is over; MS_NEVER: not by time. */
int64_t ms_zygote_next_end_ns(const struct ms_list *list);

#endif
