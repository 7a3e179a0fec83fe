/* token.h - what an HTTP client shows instead of the secret
 *
 * "Authorization: Bearer <token>", where the token is the hexadecimal HMAC-SHA-256 of
 * "muster http token" under the job's secret: it opens HTTP and says nothing about the
 * secret itself.
 */
#ifndef MS_IO_HTTP_TOKEN_H
#define MS_IO_HTTP_TOKEN_H

#include "io/http/parse.h"

enum { MS_HTTP_TOKEN_SIZE = 64 };

struct ms_http_token {
    char text[MS_HTTP_TOKEN_SIZE + 1];
};

/* 0 or -ENOMEM. */
int ms_http_token_make(struct ms_http_token *t, const uint8_t *secret, size_t len);
/* Does the request show it? In a time that does not depend on how much of it is right. */
bool ms_http_token_is_shown(const struct ms_http_token *t,
                            const struct ms_http_request *r);

#endif
