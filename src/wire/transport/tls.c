/* tls.c - keys and the library's context of TLS */
#include "wire/transport/tls.h"
#include "base/cleanup.h"
#include "base/limits.h"
#include "base/name.h"
#include "io/tcp.h"
#include "wire/transport/tls_impl.h"

#include <errno.h>
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/kdf.h>
#include <openssl/params.h>
#include <string.h>

/* The suite that every TLS 1.3 has; the hash of the key is its own. */
#define SUITES "TLS_AES_128_GCM_SHA256"

static const uint8_t suite_aes_128_gcm[2] = {0x13, 0x01};

/* ---- modes ------------------------------------------------------------------------ */

static const char *const mode_names[] = {"auto", "on", "off"};

int ms_tls_mode_parse(const char *text, enum ms_tls_mode *mode, struct ms_error *err)
{
    for (size_t i = 0; i < MS_COUNT(mode_names); i++) {
        if (strcmp(text, mode_names[i]) == 0) {
            *mode = (enum ms_tls_mode)i;
            return 0;
        }
    }
    return ms_error_set(err, -EINVAL, "tls is auto, on or off, not '%.40s'", text);
}

bool ms_tls_is_due(enum ms_tls_mode mode, const struct sockaddr_storage *other)
{
    if (mode == MS_TLS_AUTO)
        return !ms_sockaddr_is_loopback(other);
    return mode == MS_TLS_ON;
}

/* ---- keys ------------------------------------------------------------------------- */

static int derive(const uint8_t secret[32], const char *label, uint8_t *out, size_t len)
{
    EVP_KDF *kdf = EVP_KDF_fetch(NULL, "HKDF", NULL);
    EVP_KDF_CTX *ctx = kdf ? EVP_KDF_CTX_new(kdf) : NULL;
    OSSL_PARAM params[] = {
        OSSL_PARAM_construct_utf8_string(
            OSSL_KDF_PARAM_DIGEST, (char *)(uintptr_t) "SHA256", 0),
        OSSL_PARAM_construct_octet_string(
            OSSL_KDF_PARAM_KEY, (void *)(uintptr_t)secret, 32),
        OSSL_PARAM_construct_octet_string(
            OSSL_KDF_PARAM_INFO, (void *)(uintptr_t)label, strlen(label)),
        OSSL_PARAM_construct_end(),
    };
    int ok = ctx && EVP_KDF_derive(ctx, out, len, params) > 0;

    EVP_KDF_CTX_free(ctx);
    EVP_KDF_free(kdf);
    return ok ? 0 : -ENOMEM;
}

/* A fresh session that stands for the key; the library takes it. */
static SSL_SESSION *session_of(struct ms_tls *tls, SSL *ssl)
{
    const SSL_CIPHER *suite = SSL_CIPHER_find(ssl, suite_aes_128_gcm);
    SSL_SESSION *s = suite ? SSL_SESSION_new() : NULL;

    if (s && SSL_SESSION_set1_master_key(s, tls->key, sizeof tls->key) &&
        SSL_SESSION_set_cipher(s, suite) &&
        SSL_SESSION_set_protocol_version(s, TLS1_3_VERSION))
        return s;
    SSL_SESSION_free(s);
    return NULL;
}

/* Client: which key. `md` is set when the server chose another hash: we have no other. */
static int on_use(SSL *ssl,
                  const EVP_MD *md,
                  const unsigned char **id,
                  size_t *id_len,
                  SSL_SESSION **session)
{
    struct ms_tls *tls = SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl));

    *session = NULL;
    if (md && EVP_MD_get_type(md) != NID_sha256)
        return 0;
    *id = (const unsigned char *)tls->identity;
    *id_len = strlen(tls->identity);
    *session = session_of(tls, ssl);
    return *session != NULL;
}

/* Server: is it ours? A name that we do not know leaves no way to go on. */
static int
on_find(SSL *ssl, const unsigned char *id, size_t id_len, SSL_SESSION **session)
{
    struct ms_tls *tls = SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl));

    *session = NULL;
    if (id_len != strlen(tls->identity) ||
        CRYPTO_memcmp(id, tls->identity, id_len) != 0)
        return 1;
    *session = session_of(tls, ssl);
    return *session != NULL;
}

/* ---- life ------------------------------------------------------------------------- */

static SSL_CTX *context(struct ms_tls *tls)
{
    SSL_CTX *ctx = SSL_CTX_new(TLS_method());

    if (!ctx)
        return NULL;
    if (!SSL_CTX_set_min_proto_version(ctx, TLS1_3_VERSION) ||
        !SSL_CTX_set_ciphersuites(ctx, SUITES) || !SSL_CTX_set_num_tickets(ctx, 0)) {
        SSL_CTX_free(ctx);
        return NULL;
    }
    SSL_CTX_set_options(
        ctx, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION | SSL_OP_IGNORE_UNEXPECTED_EOF);
    SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_max_early_data(ctx, 0);
    SSL_CTX_set_mode(
        ctx, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_read_ahead(ctx, 0); /* what it reads is in memory already */
    SSL_CTX_set_psk_use_session_callback(ctx, on_use);
    SSL_CTX_set_psk_find_session_callback(ctx, on_find);
    SSL_CTX_set_app_data(ctx, tls);
    return ctx;
}

struct ms_tls *ms_tls_create(const uint8_t secret[32])
{
    struct ms_tls *tls = calloc(1, sizeof *tls);
    uint8_t name[16];

    if (!tls)
        return NULL;
    tls->refs = 1;
    tls->records_max = MS_TLS_RECORDS_MAX;
    if (derive(secret, "muster tls psk", tls->key, sizeof tls->key) < 0 ||
        derive(secret, "muster tls identity", name, sizeof name) < 0 ||
        !(tls->method = ms_tls_bio_method()) || !(tls->ctx = context(tls))) {
        ms_tls_unref(tls);
        return NULL;
    }
    ms_hex(name, sizeof name, tls->identity);
    return tls;
}

struct ms_tls *ms_tls_ref(struct ms_tls *tls)
{
    atomic_fetch_add(&tls->refs, 1);
    return tls;
}

void ms_tls_unref(struct ms_tls *tls)
{
    if (!tls || atomic_fetch_sub(&tls->refs, 1) != 1)
        return;
    SSL_CTX_free(tls->ctx);
    BIO_meth_free(tls->method);
    OPENSSL_cleanse(tls->key, sizeof tls->key);
    free(tls);
}

void ms_net_init(struct ms_net *net, const uint8_t secret[32], enum ms_tls_mode mode)
{
    *net = (struct ms_net){.mode = mode};
    memcpy(net->secret, secret, sizeof net->secret);
    pthread_mutex_init(&net->lock, NULL);
}

void ms_net_finish(struct ms_net *net)
{
    ms_tls_unref(net->tls);
    pthread_mutex_destroy(&net->lock);
    OPENSSL_cleanse(net->secret, sizeof net->secret);
    net->tls = NULL;
}

struct ms_tls *ms_net_tls(struct ms_net *net)
{
    MS_LOCK(&net->lock);

    if (!net->tls)
        net->tls = ms_tls_create(net->secret);
    return net->tls;
}
