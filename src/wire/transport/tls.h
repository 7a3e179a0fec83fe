/* tls.h - TLS 1.3 keyed by the job's secret
 *
 * No certificates: both sides know the 32 bytes of the secret, and TLS's external pre-shared
 * key is derived from it (HKDF-SHA-256), as is the name by which the key is called. Each
 * side refuses another that does not know it. Keys of a connection are fresh (ECDHE), so a
 * secret that is stolen later opens no recorded one. One suite, TLS_AES_128_GCM_SHA256; no tickets,
 * no early data, nothing older than 1.3.
 *
 * The handshake of handshake.h follows inside: it names version, lane, session and worker.
 */
#ifndef MS_WIRE_TRANSPORT_TLS_H
#define MS_WIRE_TRANSPORT_TLS_H

#include "base/error.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct sockaddr_storage;

/* As in the TlsMode of the messages. A server takes TLS in every mode; the mode says what it
 * takes besides, and what a client begins with. */
enum ms_tls_mode {
    MS_TLS_AUTO = 0, /* plain is for loopback only */
    MS_TLS_ON = 1,   /* TLS always */
    MS_TLS_OFF = 2   /* plain: a trusted network */
};

/* "auto", "on", "off": 0 or -EINVAL. */
int ms_tls_mode_parse(const char *text, enum ms_tls_mode *mode, struct ms_error *err);

/* Must a connection with this address be TLS? */
bool ms_tls_is_due(enum ms_tls_mode mode, const struct sockaddr_storage *other);

/* What all connections of one secret share; may be used by several threads. Costs some
 * 100 us and some memory: made when the first TLS connection is. NULL: out of memory, or
 * the TLS library cannot do what is needed. */
struct ms_tls;
struct ms_tls *ms_tls_create(const uint8_t secret[32]);
void ms_tls_unref(struct ms_tls *tls);

/* The secret and the mode of one client, server or link, with the TLS that is made when it
 * is needed. Any thread. */
struct ms_net {
    uint8_t secret[32];
    enum ms_tls_mode mode;
    pthread_mutex_t lock;
    struct ms_tls *tls;
};

void ms_net_init(struct ms_net *net, const uint8_t secret[32], enum ms_tls_mode mode);
void ms_net_finish(struct ms_net *net);
/* Borrowed until ms_net_finish; NULL as ms_tls_create. */
struct ms_tls *ms_net_tls(struct ms_net *net);

#endif
