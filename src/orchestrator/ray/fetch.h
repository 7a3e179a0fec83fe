/* fetch.h - HTTP as a client, on the loop
 *
 * A fetch is one request. It completes exactly once, on the loop, never from inside of a
 * call, with an answer or with the reason why there is none. An answer of any status is
 * an answer. Redirections are not followed, and proxies of the environment are used as
 * curl uses them.
 */
#ifndef MS_ORCHESTRATOR_RAY_FETCH_H
#define MS_ORCHESTRATOR_RAY_FETCH_H

#include "base/error.h"
#include "io/loop.h"

#include <stddef.h>
#include <stdint.h>

#define MS_FETCH_ANSWER_MAX ((size_t)256 << 20)

struct ms_fetcher;
struct ms_fetch;

/* NULL: with the reason. The loop outlives it. */
struct ms_fetcher *ms_fetcher_create(struct ms_loop *loop, struct ms_error *err);
/* What is under way is dropped without a word. NULL is nothing. */
void ms_fetcher_destroy(struct ms_fetcher *f);

struct ms_fetch_spec {
    const char *method, *url;
    const char *token; /* sent as "Authorization: Bearer"; NULL: none */
    const char *type;  /* of the body; NULL: there is none */
    const void *body;  /* copied unless is_borrowed */
    size_t len;
    bool is_borrowed;   /* valid until it has completed, or was dropped */
    int64_t timeout_ns; /* for all of it */
    int64_t stall_ns;   /* 0, or: give up when next to nothing moves for so long */
};

/* Borrowed while the completion runs. */
struct ms_fetch_answer {
    int rc;              /* 0, or why there is none: -ECONNREFUSED, -ETIMEDOUT, ... */
    struct ms_error why; /* if rc < 0 */
    int status;
    const char *type; /* Content-Type; "" if there is none */
    const char *body; /* with a NUL behind it */
    size_t len;
    const char *local; /* the address here, as the connection had it; "" if unknown */
};

typedef void ms_fetched(void *arg, const struct ms_fetch_answer *a);

/* NULL: out of memory, and nothing completes. */
struct ms_fetch *ms_fetch(struct ms_fetcher *f,
                          const struct ms_fetch_spec *spec,
                          ms_fetched *done,
                          void *arg);
/* It does not complete any more. NULL is nothing. */
void ms_fetch_drop(struct ms_fetch *one);

#endif
