/* zygote_impl.h - one zygote, inside zygote*.c only */
#ifndef MS_AGENT_ZYGOTES_ZYGOTE_IMPL_H
#define MS_AGENT_ZYGOTES_ZYGOTE_IMPL_H

#include "agent/zygotes/files.h"
#include "agent/zygotes/zygote.h"

enum ms_zygote_state {
    MS_ZYGOTE_STARTING,
    MS_ZYGOTE_READY,
    MS_ZYGOTE_UNFORKABLE, /* remembered so that nobody tries again; no process */
    MS_ZYGOTE_DEAD        /* removed when nobody walks the list */
};

struct ms_zygote {
    struct ms_list link;
    struct ms_zygotes *pool;
    struct ms_zygote_key *key; /* owned */
    struct ms_zygote_key
        *after;             /* with the variables that its imports have changed: what
                                    its workers ask for. Owned; NULL: none were */
    struct ms_zygote *base; /* that it was forked from and ends with; NULL: none */
    enum ms_zygote_state state;
    bool is_stale;         /* a file of its modules has changed: it serves nobody new */
    bool is_again;         /* it has the requests of one that was lost or stale */
    uint64_t round;        /* in which its files were looked at */
    int64_t used_ns;       /* when it was asked for, or when its last driver went */
    struct ms_buf drivers; /* ids of the living ones that have asked for it */
    struct ms_zygote_files files;
    pid_t pid;      /* 0: not known yet, or gone */
    int fd;         /* its socket */
    int problem_fd; /* of its launch; -1: derived */
    struct ms_watch watch;
    struct ms_timer timer;        /* until it is ready, and until it answers */
    bool is_late;                 /* it has not answered in time, once */
    struct ms_zygote_item derive; /* in its base's queue or sent list */
    struct ms_list queue, sent;   /* items */
    struct ms_buf waiters;        /* tokens */
    off_t log_from;               /* where its lines begin */
    char *problem;                /* what it said, or what we say of it */
};

/* Takes the key, also on failure. */
struct ms_zygote *ms_zygote_create(struct ms_zygotes *p, struct ms_zygote_key *key);
void ms_zygote_destroy(struct ms_zygote *z);

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

#endif
