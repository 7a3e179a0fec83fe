#include "wire/record.h"
#include "base/cleanup.h"

#include <assert.h>
#include <errno.h>
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/kdf.h>
#include <openssl/params.h>
#include <string.h>

enum { TAG = 16, KEY = 16, IV = 12, TYPE = 1 };

/* ---- keys ------------------------------------------------------------------------- */

/* HKDF-Expand-Label with an empty context (RFC 8446, 7.1). */
static int expand(const uint8_t secret[MS_RECORD_SECRET],
                  const char *label,
                  uint8_t *out,
                  size_t len)
{
    EVP_KDF *kdf = EVP_KDF_fetch(NULL, "HKDF", NULL);
    EVP_KDF_CTX *ctx = kdf ? EVP_KDF_CTX_new(kdf) : NULL;
    int mode = EVP_KDF_HKDF_MODE_EXPAND_ONLY;
    size_t label_len = strlen(label);
    uint8_t info[32] = {(uint8_t)(len >> 8), (uint8_t)len, (uint8_t)label_len};
    OSSL_PARAM params[] = {
        OSSL_PARAM_construct_int(OSSL_KDF_PARAM_MODE, &mode),
        OSSL_PARAM_construct_utf8_string(
            OSSL_KDF_PARAM_DIGEST, (char *)(uintptr_t) "SHA256", 0),
        OSSL_PARAM_construct_octet_string(
            OSSL_KDF_PARAM_KEY, (void *)(uintptr_t)secret, MS_RECORD_SECRET),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_INFO, info, label_len + 4),
        OSSL_PARAM_construct_end(),
    };
    int ok;

    assert(label_len + 4 <= sizeof info);
    memcpy(info + 3, label, label_len);
    ok = ctx && EVP_KDF_derive(ctx, out, len, params) > 0;
    EVP_KDF_CTX_free(ctx);
    EVP_KDF_free(kdf);
    return ok ? 0 : -ENOMEM;
}

static int set_key(struct ms_record_key *k)
{
    uint8_t key[KEY];
    int rc = expand(k->secret, "tls13 key", key, sizeof key);

    if (rc == 0)
        rc = expand(k->secret, "tls13 iv", k->iv, sizeof k->iv);
    if (rc == 0 &&
        !EVP_CipherInit_ex(k->ctx, EVP_aes_128_gcm(), NULL, key, k->iv, k->seals))
        rc = -ENOMEM;
    OPENSSL_cleanse(key, sizeof key);
    if (rc == 0)
        k->count = 0; /* never a number twice under one key */
    return rc;
}

int ms_record_key_init(struct ms_record_key *k,
                       const uint8_t secret[MS_RECORD_SECRET],
                       bool seals)
{
    k->seals = seals;
    memcpy(k->secret, secret, sizeof k->secret);
    k->ctx = EVP_CIPHER_CTX_new();
    if (k->ctx && set_key(k) == 0)
        return 0;
    ms_record_key_finish(k);
    return -ENOMEM;
}

void ms_record_key_finish(struct ms_record_key *k)
{
    EVP_CIPHER_CTX_free(k->ctx);
    OPENSSL_cleanse(k, sizeof *k);
}

int ms_record_key_renew(struct ms_record_key *k)
{
    uint8_t next[MS_RECORD_SECRET];
    int rc = expand(k->secret, "tls13 traffic upd", next, sizeof next);

    if (rc == 0) {
        memcpy(k->secret, next, sizeof next);
        rc = set_key(k);
    }
    OPENSSL_cleanse(next, sizeof next);
    return rc;
}

/* ---- records ---------------------------------------------------------------------- */

/* The nonce of the next record, and the head as what is vouched for. */
static bool begin(struct ms_record_key *k, const uint8_t head[MS_RECORD_HEAD])
{
    uint8_t nonce[IV];
    int n;

    memcpy(nonce, k->iv, sizeof nonce);
    for (unsigned i = 0; i < sizeof k->count; i++)
        nonce[IV - 1 - i] ^= (uint8_t)(k->count >> (8 * i));
    k->count++;
    return EVP_CipherInit_ex(k->ctx, NULL, NULL, NULL, nonce, -1) &&
           EVP_CipherUpdate(k->ctx, NULL, &n, head, MS_RECORD_HEAD);
}

static void set_head(uint8_t *at, size_t len)
{
    size_t body_len = len + MS_RECORD_TAIL;

    at[0] = MS_RECORD_DATA;
    at[1] = 3;
    at[2] = 3;
    at[3] = (uint8_t)(body_len >> 8);
    at[4] = (uint8_t)body_len;
}

/* The next `len` bytes of a list behind the first `skip`, to `to`. */
static bool cipher(struct ms_record_key *k,
                   uint8_t *to,
                   const struct iovec *iov,
                   size_t skip,
                   size_t len)
{
    for (; len; iov++) {
        size_t n = iov->iov_len > skip ? iov->iov_len - skip : 0;
        int done;

        if (n > len)
            n = len;
        if (n && !EVP_CipherUpdate(
                     k->ctx, to, &done, (const uint8_t *)iov->iov_base + skip, (int)n))
            return false;
        skip -= skip < iov->iov_len ? skip : iov->iov_len;
        to += n;
        len -= n;
    }
    return true;
}

int ms_record_seal_from(struct ms_record_key *k,
                        enum ms_record_type type,
                        uint8_t *at,
                        const struct iovec *iov,
                        size_t skip,
                        size_t len)
{
    uint8_t *body = at + MS_RECORD_HEAD, inner = (uint8_t)type;
    int n, last;

    assert(len <= MS_RECORD_PLAIN_MAX && k->seals);
    set_head(at, len);
    if (begin(k, at) && cipher(k, body, iov, skip, len) &&
        EVP_CipherUpdate(k->ctx, body + len, &n, &inner, TYPE) &&
        EVP_CipherFinal_ex(k->ctx, body + len + TYPE, &last) &&
        EVP_CIPHER_CTX_ctrl(k->ctx, EVP_CTRL_AEAD_GET_TAG, TAG, body + len + TYPE))
        return 0;
    return -EIO;
}

int ms_record_seal(struct ms_record_key *k,
                   enum ms_record_type type,
                   uint8_t *at,
                   size_t len)
{
    struct iovec own = {at + MS_RECORD_HEAD, len};

    return ms_record_seal_from(k, type, at, &own, 0, len);
}

ssize_t ms_record_length(const uint8_t *at, size_t len)
{
    size_t body;

    if (len < MS_RECORD_HEAD)
        return 0;
    body = (size_t)at[3] << 8 | at[4];
    if (at[0] != MS_RECORD_DATA || at[1] != 3 || body < MS_RECORD_TAIL ||
        body > MS_RECORD_BODY_MAX)
        return -EPROTO;
    return (ssize_t)(MS_RECORD_HEAD + body);
}

ssize_t ms_record_open_to(struct ms_record_key *k,
                          const uint8_t *at,
                          size_t len,
                          uint8_t *to,
                          enum ms_record_type *type)
{
    const uint8_t *body = at + MS_RECORD_HEAD;
    size_t inner = ms_record_inner(len);
    uint8_t tag[TAG], said;
    int n, last;

    memcpy(tag, body + inner + TYPE, sizeof tag);
    if (!begin(k, at) || !EVP_CipherUpdate(k->ctx, to, &n, body, (int)inner) ||
        !EVP_CipherUpdate(k->ctx, &said, &n, body + inner, TYPE) ||
        !EVP_CIPHER_CTX_ctrl(k->ctx, EVP_CTRL_AEAD_SET_TAG, TAG, tag) ||
        EVP_CipherFinal_ex(k->ctx, &said + n, &last) <= 0)
        return -EBADMSG;
    while (said == 0 && inner) /* others may pad */
        said = to[--inner];
    if (said == 0)
        return -EBADMSG;
    *type = (enum ms_record_type)said;
    return (ssize_t)inner;
}

ssize_t ms_record_open(struct ms_record_key *k,
                       uint8_t *at,
                       size_t len,
                       enum ms_record_type *type)
{
    return ms_record_open_to(k, at, len, at + MS_RECORD_HEAD, type);
}
