/* transport_tls_impl.h - what the files of TLS over TCP share
 *
 * transport_tls.c       life, sealing and sending
 * transport_tls_read.c  receiving and opening
 * tls_shake.c           the handshake, which is the library's
 */
#ifndef MS_WIRE_TRANSPORT_TLS_IMPL_H
#define MS_WIRE_TRANSPORT_TLS_IMPL_H

#include "base/buf.h"
#include "base/cleanup.h"
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

enum { MS_TLS_KEY_UPDATE = 24 }; /* a message after the handshake */

static inline struct transport_tls *ms_tls_of(struct ms_transport *t)
{
    return MS_CONTAINER(t, struct transport_tls, base);
}

/* transport_tls.c */
/* With the lock held: send what is in `out`. 0 (perhaps not all), or a negative errno. */
int ms_tls_send_out(struct transport_tls *t);
/* With the lock held: say that what follows is under the next key. */
int ms_tls_renew_seal(struct transport_tls *t);
/* It cannot go on, for this reason; -EPROTO. */
int ms_tls_break_off(struct transport_tls *t, const char *reason);

/* transport_tls_read.c: operations of the transport */
ssize_t ms_tls_read(struct ms_transport *base, void *at, size_t room);
bool ms_tls_has_more(struct ms_transport *base);

/* tls_shake.c; the lock is held */
/* One step of the handshake. 0: open, and the library is gone; -EAGAIN; or it failed. */
int ms_tls_shake(struct transport_tls *t);
void ms_tls_drop_library(struct transport_tls *t);

#endif
