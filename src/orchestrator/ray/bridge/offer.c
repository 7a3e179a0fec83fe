/* offer.c - the key exchange of a controller and its bridge, in text that may be public */
#include "orchestrator/ray/bridge/offer.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/name.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define LABEL "muster bridge 1"

int ms_offer_keys_make(struct ms_offer_keys *k)
{
    EVP_PKEY *key = EVP_PKEY_Q_keygen(NULL, NULL, "X25519");
    size_t private_len = MS_OFFER_KEY, public_len = MS_OFFER_KEY;
    bool good = key &&
                EVP_PKEY_get_raw_private_key(key, k->private_key, &private_len) == 1 &&
                EVP_PKEY_get_raw_public_key(key, k->public_key, &public_len) == 1;

    EVP_PKEY_free(key);
    return good ? 0 : -EIO;
}

void ms_offer_keys_wipe(struct ms_offer_keys *k)
{
    OPENSSL_cleanse(k, sizeof *k);
}

char *ms_offer_print(const uint8_t public_key[MS_OFFER_KEY], const char *addresses)
{
    MS_CLEANUP(ms_buf_finish) struct ms_buf b = {0};
    char hex[2 * MS_OFFER_KEY + 1];

    ms_hex(public_key, MS_OFFER_KEY, hex);
    if (ms_buf_printf(&b, "1 %s %s", hex, addresses[0] ? addresses : "-") < 0 ||
        !ms_buf_str(&b))
        return NULL;
    return (char *)MS_TAKE(b.data);
}

int ms_offer_parse(const char *text, struct ms_offer *out, struct ms_error *err)
{
    char hex[2 * MS_OFFER_KEY + 1];
    struct ms_offer o = {0};
    int version = 0, at = 0;
    size_t len;

    if (sscanf(text, "%d %64s %n", &version, hex, &at) != 2 || version != 1 ||
        ms_unhex(hex, o.public_key, MS_OFFER_KEY) < 0 || at == 0)
        return ms_error_set(err, -EINVAL, "it is not the offer of a controller");
    len = strcspn(text + at, " \r\n");
    if (len == 0 || len > MS_ADDR_LIST_MAX)
        return ms_error_set(err, -EINVAL, "the offer's addresses are missing");
    if (len > 1 || text[at] != '-')
        memcpy(o.addresses, text + at, len);
    *out = o;
    return 0;
}

int ms_offer_find(const char *log, struct ms_offer *out)
{
    static const char mark[] = MS_OFFER_ANSWER " ";

    for (const char *at = strstr(log, mark); at; at = strstr(at + 1, mark)) {
        bool is_line = at == log || at[-1] == '\n';

        if (is_line && strchr(at, '\n') &&
            ms_offer_parse(at + strlen(mark), out, NULL) == 0)
            return 0;
    }
    return -ENOENT;
}

static int derive(const struct ms_offer_keys *ours,
                  const uint8_t theirs[MS_OFFER_KEY],
                  uint8_t shared[MS_OFFER_KEY])
{
    EVP_PKEY *mine = EVP_PKEY_new_raw_private_key(
                 EVP_PKEY_X25519, NULL, ours->private_key, MS_OFFER_KEY),
             *other = EVP_PKEY_new_raw_public_key(
                 EVP_PKEY_X25519, NULL, theirs, MS_OFFER_KEY);
    EVP_PKEY_CTX *ctx = mine ? EVP_PKEY_CTX_new(mine, NULL) : NULL;
    size_t len = MS_OFFER_KEY;
    bool good = ctx && other && EVP_PKEY_derive_init(ctx) == 1 &&
                EVP_PKEY_derive_set_peer(ctx, other) == 1 &&
                EVP_PKEY_derive(ctx, shared, &len) == 1; /* refuses weak keys */

    EVP_PKEY_CTX_free(ctx);
    EVP_PKEY_free(mine);
    EVP_PKEY_free(other);
    return good ? 0 : -EPROTO;
}

int ms_offer_secret(const struct ms_offer_keys *ours,
                    const uint8_t theirs[MS_OFFER_KEY],
                    uint8_t secret[MS_OFFER_KEY])
{
    bool first = memcmp(ours->public_key, theirs, MS_OFFER_KEY) < 0;
    uint8_t shared[MS_OFFER_KEY];
    EVP_MD_CTX *md = EVP_MD_CTX_new();
    int rc = md ? derive(ours, theirs, shared) : -ENOMEM;
    bool good =
        rc == 0 && EVP_DigestInit_ex(md, EVP_sha256(), NULL) == 1 &&
        EVP_DigestUpdate(md, LABEL, sizeof LABEL) == 1 &&
        EVP_DigestUpdate(md, first ? ours->public_key : theirs, MS_OFFER_KEY) == 1 &&
        EVP_DigestUpdate(md, first ? theirs : ours->public_key, MS_OFFER_KEY) == 1 &&
        EVP_DigestUpdate(md, shared, MS_OFFER_KEY) == 1 &&
        EVP_DigestFinal_ex(md, secret, NULL) == 1;

    OPENSSL_cleanse(shared, sizeof shared);
    EVP_MD_CTX_free(md);
    return good ? 0 : rc < 0 ? rc : -EIO;
}
