/* fetch.h - HTTP as a client, one request at a time, on a thread that may block
 *
 * An answer of any status is an answer. Redirections are not followed, and proxies of the
 * environment are used as curl uses them.
 */
#ifndef MS_ORCHESTRATOR_RAY_JOB_FETCH_H
#define MS_ORCHESTRATOR_RAY_JOB_FETCH_H

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

#define MS_FETCH_ANSWER_MAX ((size_t)256 << 20)

struct ms_fetcher; /* its connections are used again */

/* NULL: with the reason. */
struct ms_fetcher *ms_fetcher_create(struct ms_error *err);
void ms_fetcher_destroy(struct ms_fetcher *f); /* NULL is nothing */
/* Whatever is under way then, and all that follows, ends with -ECANCELED. Any thread. */
void ms_fetcher_end_by(struct ms_fetcher *f, int64_t until_ns);

struct ms_fetch_spec {
    const char *method, *url;
    const char *token; /* sent as "Authorization: Bearer"; NULL: none */
    const char *type;  /* of the body; NULL: there is none */
    const void *body;
    size_t len;
    int64_t timeout_ns; /* for all of it */
    int64_t stall_ns;   /* 0, or: give up when next to nothing moves for so long */
};

/* Borrowed until the next fetch. */
struct ms_fetch_answer {
    int rc;              /* 0, or why there is none: -ECONNREFUSED, -ETIMEDOUT, ... */
    struct ms_error why; /* if rc < 0 */
    int status;
    const char *type; /* Content-Type; "" if there is none */
    const char *body; /* with a NUL behind it */
    size_t len;
    const char *local; /* the address here, as the connection had it; "" if unknown */
};

void ms_fetch(struct ms_fetcher *f,
              const struct ms_fetch_spec *spec,
              struct ms_fetch_answer *a);

#endif
