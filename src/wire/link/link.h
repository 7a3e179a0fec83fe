/* link.h - control messages between two of our processes, on a loop
 *
 * CONTROL frames whose bodies are packed protobuf messages, over an inherited socket pair
 * (ms_link_create), over a connection that was dialled (ms_link_dial), or over one that a
 * server's on_link has given out (ms_link_accept). Used on the loop's thread only.
 *
 * Silence. On a network link each side says every MS_LINK_BEAT_NS that it is here, unless
 * it has just said something else; both notice when nothing has come for MS_SUSPECT_NS:
 * on_suspect(true), and (false) when something comes again. The link stays open; how long it may be silent is its owner's to decide. A link that was cut for longer
 * may take long to find out that it is healed: the side that dialled should dial anew while it is
 * suspect, and keep the one that opens.
 */
#ifndef MS_WIRE_LINK_LINK_H
#define MS_WIRE_LINK_LINK_H

#include "base/error.h"
#include "io/loop.h"
#include "wire/conn_send.h"
#include "wire/transport/tls.h"

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ms_conn;
struct ms_link;
struct ms_heartbeat;

struct ms_link_ops {
    /* One packed message; borrowed. */
    void (*on_body)(void *arg, const uint8_t *body, size_t len);
    /* The other side is gone or broke the protocol, the network broke, or dialling came to
     * nothing; called once, never from inside send; the link may be destroyed here. See
     * ms_link_has_ended. */
    void (*on_closed)(void *arg, const struct ms_error *why);
    /* A dialled link is connected, and both sides have proven the secret. May be NULL. */
    void (*on_open)(void *arg);
    /* Network: nothing has come for MS_SUSPECT_NS, or something has again. May be NULL; the
     * link may be destroyed here. */
    void (*on_suspect)(void *arg, bool is_suspect);
    /* Data with this id comes, `len` bytes: where they go, or NULL: they are dropped. The
     * place must be good until all have come, or the link was destroyed. NULL: data breaks
     * the protocol. */
    uint8_t *(*on_data)(void *arg, uint64_t id, size_t len);
    /* `len` more bytes of it are there, `rest` are missing; also of what is dropped. The
     * link may be destroyed here. */
    void (*on_part)(void *arg, uint64_t id, size_t len, size_t rest);
};

/* Of on_closed: did the other side end it, or its process end (true), or did the network
 * break it, so that the other may well live on (false)? */
bool ms_link_has_ended(const struct ms_error *why);

/* Takes over the (non-blocking, stream) socket, also on failure. */
struct ms_link *
ms_link_create(struct ms_loop *loop, int fd, const struct ms_link_ops *ops, void *arg);
/* To the other side this is our end (ms_link_has_ended), unless the network broke it. */
void ms_link_destroy(struct ms_link *l);
/* The same, and the other side shall not take it for our end: another link follows. */
void ms_link_abandon(struct ms_link *l);

struct ms_link_dial {
    const char *addresses; /* a list; copied */
    const uint8_t *secret; /* 32 bytes; copied */
    enum ms_tls_mode tls;
    int64_t deadline_ns; /* until it must be open, absolute */
    bool is_patient;     /* keep trying addresses that refuse connections */
};

/* Dial; on_open or on_closed follows, never before this has returned. A wrong secret and
 * another version end it at once, and so does a round in which nobody listened, unless it is
 * patient; silence never does before the deadline. NULL and the reason: the list cannot be
 * read, or no memory. */
struct ms_link *ms_link_dial(struct ms_loop *loop,
                             const struct ms_link_dial *d,
                             const struct ms_link_ops *ops,
                             void *arg,
                             struct ms_error *err);

/* For a server: a proven connection becomes a link; taken, also on failure (NULL). *heartbeat
 * is of all links of the server, and made for the first. */
struct ms_link *ms_link_from_conn(struct ms_loop *loop,
                                  struct ms_conn *conn,
                                  struct ms_heartbeat **heartbeat);
/* In a server's on_link: from now on it is ours; its messages come when on_link has
 * returned. Or destroy it there. */
void ms_link_accept(struct ms_link *l, const struct ms_link_ops *ops, void *arg);
/* Give it to another owner; legal in a callback. */
void ms_link_set_ops(struct ms_link *l, const struct ms_link_ops *ops, void *arg);

/* 0 or a negative errno: -EMSGSIZE beyond MS_CONTROL_MAX, -ENOTCONN before on_open, -EPIPE
 * once nobody reads at the other end (on_closed follows when all that came from there was
 * read). Never blocks; what does not fit is queued. Messages arrive in order. */
int ms_link_send(struct ms_link *l, const ProtobufCMessage *m);
/* The same with a message that is packed already; copied. */
int ms_link_send_packed(struct ms_link *l, const uint8_t *body, size_t len);

/* Bytes for an on_data at the other end, named by `id`; they are not copied, and on_sent comes as
 * said there. 1 to MS_DATA_MAX at a time. As ms_link_send; data and messages arrive in the
 * order of sending. */
int ms_link_send_data(struct ms_link *l, uint64_t id, const struct ms_loan *loan);
/* The socket, to tune it; borrowed. -1: there is none yet. */
int ms_link_fd(const struct ms_link *l);

/* Bytes that wait for the other side to read: callers that can drop (logs) look. */
size_t ms_link_queued(const struct ms_link *l);

bool ms_link_is_open(const struct ms_link *l);
bool ms_link_is_suspect(const struct ms_link *l);
/* Network: when something last came. */
int64_t ms_link_heard_ns(const struct ms_link *l);
/* Who is at the other end: "10.0.0.7:41234", "[::1]:41234" or "unix". */
void ms_link_peer(const struct ms_link *l, char *out, size_t room);

/* Write what is queued, blocking until `deadline_ns` at most: before an exit. */
void ms_link_drain(struct ms_link *l, int64_t deadline_ns);

#endif
