/* transport_tls_impl.h - what transport_tls.c and tls_shake.c share */
#ifndef MS_WIRE_TRANSPORT_TLS_IMPL_H
#define MS_WIRE_TRANSPORT_TLS_IMPL_H

#include "base/buf.h"
#include "wire/record.h"
#include "wire/tls_internal.h"
#include "wire/transport.h"

#include <pthread.h>
#include <stdatomic.h>

/* What the library tells while it shakes hands. */
struct ms_tls_secrets {
    uint8_t client[MS_RECORD_SECRET], server[MS_RECORD_SECRET];
    bool has_client, has_server;
};

struct transport_tls {
    struct ms_transport base;
    struct ms_tls *tls;
    pthread_mutex_t lock;
    SSL *ssl; /* NULL once it is open */
    bool is_server;
    struct ms_tls_secrets *secrets; /* until it is open */
    _Atomic bool is_open;
    bool is_lazy;
    struct ms_record_key seal;
    _Atomic size_t out_len; /* of out */
    struct ms_buf out;
    _Atomic int broken; /* the kernel tells a failure once, and perhaps to the writer */
    _Atomic int failed; /* why it cannot go on */
    char reason[160];

    /* the reader's */
    struct ms_record_key open;
    const uint8_t *feed; /* handshake: received, not yet taken by the library */
    size_t feed_len;
    struct ms_buf in;     /* received, not opened: a piece of a record, or more */
    struct ms_buf opened; /* of a record that was too long for who read it */
    bool has_ended;       /* by the other side's word */
};

/* tls_shake.c; the lock is held */
/* One step of the handshake. 0: open, and the library is gone; -EAGAIN; or it failed. */
int ms_tls_shake(struct transport_tls *t);
void ms_tls_drop_library(struct transport_tls *t);

#endif
