/* base64.h - bytes as text (RFC 4648, with padding) */
#ifndef MS_IO_BASE64_H
#define MS_IO_BASE64_H

#include <stddef.h>
#include <stdint.h>

/* Strictly: the alphabet and its padding, no white space. 0 and *data is malloc'd and yours
 * (not NULL, also if it is empty); -EINVAL, -E2BIG or -ENOMEM. */
int ms_base64_decode(const char *text, size_t len, uint8_t **data, size_t *size);

/* The same into `out`, with room for len / 4 * 3 bytes. 0 or -EINVAL, -E2BIG. `text` has a NUL
 * behind it. */
int ms_base64_decode_to(const char *text, size_t len, uint8_t *out, size_t *size);

/* 0 and *text is malloc'd and yours, with a NUL behind it; -E2BIG or -ENOMEM. */
int ms_base64_encode(const void *data, size_t size, char **text, size_t *len);

#endif
