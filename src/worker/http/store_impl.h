/* store_impl.h - what store.c, ask.c and narrow.c share */
#ifndef MS_WORKER_HTTP_STORE_IMPL_H
#define MS_WORKER_HTTP_STORE_IMPL_H

#include "worker/http/store.h"

#include <pthread.h>
#include <stdatomic.h>

struct ms_http_store {
    const Muster__WorkerBoot *boot;
    struct ms_work *work;
    pthread_mutex_t lock; /* guards `client` */
    struct ms_store_client *client;
    _Atomic unsigned busy_max; /* pieces; 1 until there is a client */

    /* the loop's */
    unsigned busy, asked;   /* pieces that are, and that will be */
    struct ms_list waiting; /* asks, by job.link */
    struct ms_timer timer;  /* for the first of them */
};

/* store.c */
/* NULL: there is none. Any thread. */
struct ms_store_client *ms_http_store_client(struct ms_http_store *s,
                                             struct ms_error *err);
/* A new object of `len` bytes, or of as many as one piece may have. */
struct ms_held *
ms_http_piece_make(struct ms_store_client *c, uint64_t len, struct ms_error *err);
/* A reference of this client's own. */
struct ms_held *ms_http_piece_attach(struct ms_store_client *c,
                                     const struct ms_held *of,
                                     bool bare,
                                     struct ms_error *err);
/* Of one that rests. */
void ms_http_piece_let_go(struct ms_held *held);

/* ask.c */
struct ms_http_ask *ms_http_ask_begin(struct ms_http_store *s,
                                      const struct ms_http_ask *with);
/* Of `timer`; `arg` is the store. */
void ms_http_store_on_time(void *arg);

#endif
