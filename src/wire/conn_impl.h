/* conn_impl.h - what conn.c (life, sending) and conn_read.c share */
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
    bool is_full; /* the socket took nothing more: who sends waits for a flush */
    bool held;    /* the handshake is over, and what came behind it waits in `in` */
    _Atomic int64_t heard_ns, sent_ns; /* network: when bytes last came and went */

    size_t in_at, in_len; /* unread bytes are in[in_at..in_len) */
    struct ms_list partials;
    unsigned partial_count;
    size_t body_rest;        /* of the piece or data that is being read; 0: none is */
    struct partial *filling; /* the message of that piece; NULL: it is data */
    struct ms_frame data;
    uint8_t *data_at; /* where its next bytes go; NULL: nowhere */
    uint8_t *in;      /* in_size bytes, or NULL */
    size_t in_size;
    const struct ms_conn_sink *sink; /* of the read that is under way */
    void *sink_arg;
    struct ms_error *err;
};

void ms_conn_drop_partials(struct ms_conn *c);

static inline void ms_conn_note_time(const struct ms_conn *c, _Atomic int64_t *at)
{
    if (c->is_network)
        atomic_store_explicit(at, ms_now_ns(), memory_order_relaxed);
}

#endif
