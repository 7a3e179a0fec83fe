/* conn_impl.h - what conn.c (life, sending), conn_read.c and partial.c share */
#ifndef MS_WIRE_CONN_IMPL_H
#define MS_WIRE_CONN_IMPL_H

#include "base/buf.h"
#include "base/clock.h"
#include "base/list.h"
#include "wire/conn.h"

#include <stdatomic.h>

/* A big message that is arriving. Its memory grows with what has come of it: an
 * announced length alone allocates nothing. */
struct partial {
    struct ms_list link;
    struct ms_frame head;
    size_t have; /* bytes that have come */
    size_t room; /* of data, at most head.total */
    uint8_t *data;
};

struct ms_conn {
    struct ms_transport *transport;
    struct ms_handshake handshake;
    bool ready;
    struct ms_buf raw; /* handshake bytes to send */

    struct ms_sender sender;

    bool is_network;
    bool is_lazy; /* no memory to read into while nothing is there */
    bool held;    /* the handshake is over, and what came behind it waits in `in` */
    _Atomic int64_t heard_ns, sent_ns; /* network: when bytes last came and went */

    size_t in_at, in_len; /* unread bytes are in[in_at..in_len) */
    struct ms_list partials;
    unsigned partial_count;
    struct partial *filling; /* the piece whose body is being read */
    size_t filling_rest;
    struct ms_frame data; /* DATA that is being read */
    uint8_t *data_at;     /* where its next bytes go; NULL: nowhere */
    size_t data_rest;     /* 0: there is none */
    uint8_t *in;          /* in_size bytes, or NULL */
    size_t in_size;
};

/* In the connection's list; NULL: out of memory. */
struct partial *ms_partial_create(struct ms_conn *c, const struct ms_frame *first);
/* The message that `f` is a piece of, or NULL. */
struct partial *ms_partial_find(struct ms_conn *c, const struct ms_frame *f);
/* Room for `more` bytes behind those that have come. At least doubles what is there, up to
 * the length of the message, which `more` must not exceed. 0 or -ENOMEM. */
int ms_partial_reserve(struct partial *p, size_t more);
void ms_partial_destroy(struct ms_conn *c, struct partial *p);

static inline void ms_conn_note_time(const struct ms_conn *c, _Atomic int64_t *at)
{
    if (c->is_network)
        atomic_store_explicit(at, ms_now_ns(), memory_order_relaxed);
}

#endif
