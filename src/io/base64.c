/* base64.c - bytes as base64, by OpenSSL */
#include "io/base64.h"

#include <errno.h>
#include <limits.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

/* The count of "=" at its end; -EINVAL: it is no base64. EVP_DecodeBlock, which does the
 * rest, forgives white space and takes "=" for a letter. */
static int padding(const char *text, size_t len)
{
    size_t letters = strspn(text,
                            "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                            "abcdefghijklmnopqrstuvwxyz0123456789+/");
    size_t rest;

    if (len % 4 || letters > len || len - letters > 2)
        return -EINVAL;
    rest = strspn(text + letters, "=");
    return letters + rest == len ? (int)rest : -EINVAL;
}

int ms_base64_decode_to(const char *text, size_t len, uint8_t *out, size_t *size)
{
    int pad = padding(text, len);

    if (pad < 0)
        return pad;
    if (len > INT_MAX)
        return -E2BIG;
    if (EVP_DecodeBlock(out, (const unsigned char *)text, (int)len) < 0)
        return -EINVAL;
    *size = len / 4 * 3 - (size_t)pad;
    return 0;
}

int ms_base64_decode(const char *text, size_t len, uint8_t **data, size_t *size)
{
    uint8_t *out = malloc(len / 4 * 3 + 1);
    int rc = out ? ms_base64_decode_to(text, len, out, size) : -ENOMEM;

    if (rc < 0)
        free(out);
    else
        *data = out;
    return rc;
}

int ms_base64_encode(const void *data, size_t size, char **text, size_t *len)
{
    size_t room = (size + 2) / 3 * 4;
    char *out;

    if (size > INT_MAX || room >= INT_MAX)
        return -E2BIG;
    out = malloc(room + 1);
    if (!out)
        return -ENOMEM;
    out[0] = '\0';
    EVP_EncodeBlock((unsigned char *)out, data, (int)size);
    *text = out;
    *len = room;
    return 0;
}
