/* conn.h - a connection: messages over a transport
 *
 * Handshake first, then messages both ways, cut into frames; a small message overtakes
 * a big one that is under way (but items and reply of one call, and control messages,
 * stay in order). Nothing here blocks and nothing here locks: sending is guarded by the
 * owner's lock, reading by the owner's rule of one reader at a time.
 * Sending and reading may run on two threads at once, except during the handshake
 * (ms_conn_is_ready is false), when both need the owner's lock.
 */
#ifndef MS_WIRE_CONN_H
#define MS_WIRE_CONN_H

#include "base/error.h"
#include "wire/conn_send.h"
#include "wire/frame.h"
#include "wire/handshake.h"
#include "wire/transport/transport.h"

#include <stdbool.h>
#include <sys/uio.h>

struct ms_conn;

/* A whole message. `body` is borrowed until the callback returns; a big one can be kept
 * by ms_message_take. */
struct ms_message {
    struct ms_frame head; /* length and total both are the whole body */
    const uint8_t *body;
    size_t len;
    uint8_t *owned; /* malloc'd memory behind body, or NULL when it is borrowed */
};

/* The body as malloc'd memory of the caller's (NULL: out of memory); copies only what
 * was borrowed. An empty body gives a pointer too. */
uint8_t *ms_message_take(struct ms_message *m);

/* Takes the transport, also on failure. The handshake runs inside read and flush; messages
 * sent before it is done wait. `h` (copied) NULL: no proof is needed, as on an inherited
 * socket pair. NULL: out of memory. */
struct ms_conn *ms_conn_create(struct ms_transport *t, const struct ms_handshake *h);
/* The client's side with a fresh nonce. `session` NULL: a random one; `identity` 0: any
 * server's. Takes the transport; NULL: no memory, or no random bytes. */
struct ms_conn *ms_conn_dial(struct ms_transport *t,
                             const uint8_t *secret,
                             const uint8_t *session,
                             enum ms_lane lane,
                             uint64_t identity);
void ms_conn_destroy(struct ms_conn *c);

/* It is idle most of the time, and there are thousands: no memory to read into is kept. */
void ms_conn_set_lazy(struct ms_conn *c);

int ms_conn_fd(const struct ms_conn *c);

/* May the socket have something to read? For pollers: asking TCP so takes no lock of the
 * socket, while reads that find nothing keep the kernel from filling it. A unix socket is
 * as well read. */
bool ms_conn_is_readable(const struct ms_conn *c);
bool ms_conn_is_network(const struct ms_conn *c);
/* Network: when bytes last came, and were last given to the socket; 0: never. Any thread. */
int64_t ms_conn_heard_ns(const struct ms_conn *c);
int64_t ms_conn_sent_ns(const struct ms_conn *c);
bool ms_conn_is_ready(const struct ms_conn *c);
/* What was agreed; valid once ready. */
const struct ms_handshake *ms_conn_handshake(const struct ms_conn *c);

/* Send a message: written at once as far as the socket takes it, the rest is copied and
 * queued. 0 or a negative errno. -EMSGSIZE (beyond the limit of its kind), -ENOMEM and
 * -ENOBUFS (MS_SEND_QUEUE_MAX) leave the connection as it was; after any other error it
 * is of no more use for sending. */
int ms_conn_send(struct ms_conn *c,
                 const struct ms_frame *head,
                 const struct iovec *iov,
                 int count);

/* Send a DATA message without copying it; `loan->len` is 1 to MS_DATA_MAX. As ms_conn_send.
 * on_sent may come before this returns; after -ENOMEM and -ENOBUFS it does not come, after
 * another failure when the connection is destroyed. */
int ms_conn_send_loan(struct ms_conn *c,
                      const struct ms_frame *head,
                      const struct ms_loan *loan);

/* Whether the other side may have seen anything of any message. */
bool ms_conn_has_sent(const struct ms_conn *c);

/* True while queued bytes wait for room in the socket: watch for writing and flush. */
bool ms_conn_wants_write(const struct ms_conn *c);
int ms_conn_flush(struct ms_conn *c);
/* Bytes queued and not yet written. */
size_t ms_conn_queued(const struct ms_conn *c);

struct ms_conn_sink {
    /* DATA comes: where its body goes (head->total bytes), or NULL: nowhere, it is read and
     * dropped. The place must be good until all of it has come, or the connection was
     * destroyed. NULL: nobody here asks for DATA, and it breaks the protocol. */
    uint8_t *(*on_data)(void *arg, const struct ms_frame *head);
    /* `len` more bytes of it are there, and `rest` are missing; also if they are dropped. 0,
     * or a negative errno to stop reading with it. */
    int (*on_part)(void *arg, const struct ms_frame *head, size_t len, size_t rest);
    /* The first piece of a CALL that will take several has arrived: its place in the
     * order is here. May be NULL. */
    int (*on_begin)(void *arg, const struct ms_frame *head);
    /* A whole message. 0, or a negative errno to stop reading with it. */
    int (*on_message)(void *arg, struct ms_message *m);
};

/* Read what is there (at most a bounded amount, so that nobody starves) and hand out
 * whole messages. Returns 1 if anything was read, -EAGAIN if nothing was there, -EPIPE
 * at the end of file, another negative errno when the network broke it or the peer broke
 * the protocol (`err` says how). */
int ms_conn_read(struct ms_conn *c,
                 const struct ms_conn_sink *sink,
                 void *arg,
                 struct ms_error *err);

/* A server's connection of the link lane stops reading behind the handshake, so that it can
 * be given to another owner. This hands out what has come since, and lets it go on. 0, or
 * as ms_conn_read. */
int ms_conn_release(struct ms_conn *c,
                    const struct ms_conn_sink *sink,
                    void *arg,
                    struct ms_error *err);

#endif
