/* tls_impl.h - what tls.c and the transport share */
#ifndef MS_WIRE_TRANSPORT_TLS_IMPL_H
#define MS_WIRE_TRANSPORT_TLS_IMPL_H

#include "wire/transport/tls.h"

#include <openssl/bio.h>
#include <openssl/ssl.h>
#include <stdatomic.h>

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

#endif
