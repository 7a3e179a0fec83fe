/* tls_impl.h - what the files of TLS over TCP share
 *
 * tls.c            keys, and what all connections share
 * tls_transport.c  life, sending and receiving
 * tls_library.c    the TLS library: handshake, records, keys, and the buffers below it
 */
#ifndef MS_WIRE_TRANSPORT_TLS_IMPL_H
#define MS_WIRE_TRANSPORT_TLS_IMPL_H

#include "base/buf.h"
#include "base/lock.h"
#include "wire/transport/tls.h"
#include "wire/transport/transport.h"

#include <openssl/bio.h>
#include <openssl/ssl.h>
#include <pthread.h>
#include <stdatomic.h>

enum {
    MS_TLS_RECORD_MAX = SSL3_RT_MAX_PLAIN_LENGTH, /* bytes in one record */
    MS_TLS_RECORD_MORE = 512 /* what a record and a renewed key take besides, at most */
};

struct ms_tls {
    _Atomic unsigned refs; /* the owner, and each connection */
    SSL_CTX *ctx;
    BIO_METHOD *method;
    uint8_t key[32];
    char identity[33];    /* by which the key is called: hex, tells nothing of it */
    uint64_t records_max; /* under one key of a connection; MS_TLS_RECORDS_MAX */
};

struct ms_tls *ms_tls_ref(struct ms_tls *tls);

/* tls_library.c: a BIO over the buffers of a transport. NULL: out of memory. */
BIO_METHOD *ms_tls_bio_method(void);

/* Received bytes that the library has not yet taken. */
struct ms_tls_feed {
    const uint8_t *data;
    size_t len;
};

struct transport_tls {
    struct ms_transport base;
    struct ms_tls *tls;

    /* An SSL is for one thread at a time: `lock` is held while the library runs and while
     * `out` is sent, neither of which blocks. */
    pthread_mutex_t lock;
    SSL *ssl;
    struct ms_tls_feed *feed; /* what it may read just now; NULL: nothing */
    struct ms_buf out;        /* what it has written, unsent */
    uint64_t sealed;          /* records under the key for sending */
    bool is_lazy;

    _Atomic size_t out_len; /* of out */
    _Atomic bool is_open;
    _Atomic int broken; /* the kernel tells a failure once, and perhaps to the writer */
    _Atomic int failed; /* why it cannot go on */
    char reason[160];

    /* the reader's */
    struct ms_buf in; /* received, for which a reader had no room */
    bool has_opened;  /* the library has opened a record, and not given all of it */
    bool has_ended;   /* by the other side's word */
};

static inline struct transport_tls *ms_tls_of(struct ms_transport *t)
{
    return MS_CONTAINER(t, struct transport_tls, base);
}

/* tls_library.c; the lock is held */
/* It cannot go on, for this reason; returns `code`. */
int ms_tls_break_off(struct transport_tls *t, int code, const char *reason);
/* The library over the transport's buffers. 0 or -ENOMEM. */
int ms_tls_start(struct transport_tls *t, bool is_server);
/* One step of the handshake. 0: it is open; -EAGAIN; or it failed. */
int ms_tls_shake(struct transport_tls *t);
/* A record of 1 to MS_TLS_RECORD_MAX bytes, to `out`, which has room for it. 0, -EAGAIN, or
 * it failed. */
int ms_tls_seal(struct transport_tls *t, const uint8_t *data, size_t len);
/* Of what was fed: the count of bytes, 0 at the end, -EAGAIN when all is taken, or it
 * failed. */
ssize_t ms_tls_open(struct transport_tls *t, uint8_t *at, size_t room);

#endif
