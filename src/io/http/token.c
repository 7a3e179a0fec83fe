/* token.c - the token that stands for the secret in HTTP */
#include "io/http/token.h"
#include "base/name.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <string.h>
#include <strings.h>

int ms_http_token_make(struct ms_http_token *t, const uint8_t *secret, size_t len)
{
    static const char label[] = "muster http token";
    uint8_t mac[MS_HTTP_TOKEN_SIZE / 2];
    unsigned size = sizeof mac;

    if (!HMAC(EVP_sha256(),
              secret,
              (int)len,
              (const uint8_t *)label,
              sizeof label - 1,
              mac,
              &size))
        return -ENOMEM;
    ms_hex(mac, sizeof mac, t->text);
    return 0;
}

bool ms_http_token_is_shown(const struct ms_http_token *t,
                            const struct ms_http_request *r)
{
    const char *shown = NULL;

    for (size_t i = 0; i < r->header_count; i++) {
        if (strcmp(r->headers[i].name, "authorization") != 0)
            continue;
        if (shown)
            return false; /* two of them: which one? */
        shown = r->headers[i].value;
    }
    if (!shown || strncasecmp(shown, "Bearer ", 7) != 0)
        return false;
    shown += 7;
    shown += strspn(shown, " ");
    return strlen(shown) == MS_HTTP_TOKEN_SIZE &&
           CRYPTO_memcmp(shown, t->text, MS_HTTP_TOKEN_SIZE) == 0;
}
