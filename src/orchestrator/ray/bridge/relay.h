/* relay.h - lines that arrive once and in order, although connections break
 *
 * Both ends of a bridge's wire have one, made of the two sides of wire/link/requests.h: a
 * line is a request whose answer is only that it has arrived. Lines are kept until the other
 * side has said that it has them. When there is a new connection each side says how far it
 * has heard, and what is missing is sent again; what comes twice is dropped.
 *
 * An instance is one controller. Another one begins anew: nothing that was kept for the
 * one before is sent to it.
 *
 * Pure.
 */
#ifndef MS_ORCHESTRATOR_RAY_BRIDGE_RELAY_H
#define MS_ORCHESTRATOR_RAY_BRIDGE_RELAY_H

#include "wire/link/requests.h"

#define MS_RELAY_KEPT_MAX ((size_t)64 << 20) /* bytes that wait for the other side */

struct ms_relayed {
    struct ms_pending pending; /* its number */
    size_t len;
    char line[]; /* with a NUL behind it */
};

struct ms_relay {
    struct ms_requests sent; /* ms_relayed that were not acknowledged */
    struct ms_replies
        heard; /* asker: the instance, 0: none yet; watermark: the last line */
    size_t kept_bytes;
};

void ms_relay_init(struct ms_relay *r);
void ms_relay_finish(struct ms_relay *r);

/* Another instance: true, and everything begins anew; false: it is the one that we know. */
bool ms_relay_begin(struct ms_relay *r, uint64_t instance);

/* A line to send now, and again until it is acknowledged; borrowed until then. NULL: out
 * of memory, or too much waits. */
const struct ms_relayed *ms_relay_add(struct ms_relay *r, const char *line, size_t len);

/* The other side has everything up to this one. */
void ms_relay_acked(struct ms_relay *r, uint64_t number);

/* A line has come: true if it is the next one. Lines in between are never lost within a
 * connection, so any other was heard before. */
bool ms_relay_take(struct ms_relay *r, uint64_t number);

#endif
