/* size.h - numbers of bytes, as people write them */
#ifndef MS_BASE_SIZE_H
#define MS_BASE_SIZE_H

#include <stdint.h>

/* "512", "1.5GB", "80 GiB", "16g": powers of 1000, or with an i of 1024; case and the B
 * mean nothing. 0, or -EINVAL: not a size, or beyond 64 bits. */
int ms_size_parse(const char *text, uint64_t *out);

#endif
