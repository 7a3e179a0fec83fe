/* rest.h - the head by HTTP: /api/v1 and /metrics
 *
 * A port of its own on the head's loop, for people's scripts, dashboards and Prometheus.
 * doc/openapi.json says what is there; it is served too. All of it needs the token
 * (io/http/token.h) but /api/v1/health and, if that is asked for, /metrics. Errors are
 * application/problem+json.
 */
#ifndef MS_HEAD_REST_REST_H
#define MS_HEAD_REST_REST_H

#include "base/error.h"

#include <stdbool.h>

struct ms_head;
struct ms_rest;

/* h->rest, listening at "HOST:PORT" (port 0: any). Before the head's thread runs, or on it.
 * 0, or why not; it is to be closed then too. */
int ms_rest_open(struct ms_head *h,
                 const char *at,
                 bool open_metrics,
                 struct ms_error *err);
/* When the loop does not run, or on its thread; no operation is open. NULL is nothing. */
void ms_rest_close(struct ms_rest *rest);

/* Where it listens: "127.0.0.1:8080". Empty: there is none. */
const char *ms_rest_address(const struct ms_rest *rest);

#endif
