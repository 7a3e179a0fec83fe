/* link.h - control messages between two of our processes, on a loop
 *
 * Wraps a connection over an inherited socket pair: CONTROL frames whose bodies are
 * packed protobuf messages. Used on the loop's thread only.
 */
#ifndef MS_WIRE_LINK_H
#define MS_WIRE_LINK_H

#include "base/error.h"
#include "io/loop.h"

#include <protobuf-c/protobuf-c.h>
#include <stddef.h>
#include <stdint.h>

struct ms_link;

struct ms_link_ops {
    /* One packed message; borrowed. */
    void (*on_body)(void *arg, const uint8_t *body, size_t len);
    /* The other side is gone or broke the protocol; called once, never from inside
     * send; the link may be destroyed here. */
    void (*on_closed)(void *arg, const struct ms_error *why);
};

/* Takes over the (non-blocking, stream) socket, also on failure. */
struct ms_link *
ms_link_create(struct ms_loop *loop, int fd, const struct ms_link_ops *ops, void *arg);
void ms_link_destroy(struct ms_link *l);

/* 0 or a negative errno: -EMSGSIZE beyond MS_CONTROL_MAX, -EPIPE once nobody reads at
 * the other end (on_closed follows when all that came from there was read). Never
 * blocks; what does not fit is queued. Messages arrive in order. */
int ms_link_send(struct ms_link *l, const ProtobufCMessage *m);

/* Bytes that wait for the other side to read: callers that can drop (logs) look. */
size_t ms_link_queued(const struct ms_link *l);

/* Write what is queued, blocking until `deadline_ns` at most: before an exit. */
void ms_link_drain(struct ms_link *l, int64_t deadline_ns);

#endif
