/* buf.c - bytes and arrays that grow */
#include "base/buf.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CAPACITY_MIN = 256, ARRAY_MIN = 16 };

void ms_buf_init(struct ms_buf *b)
{
    *b = (struct ms_buf){0};
}

void ms_buf_finish(struct ms_buf *b)
{
    free(b->data);
    *b = (struct ms_buf){0};
}

int ms_buf_reserve(struct ms_buf *b, size_t more)
{
    size_t want = b->capacity ? b->capacity : CAPACITY_MIN;
    uint8_t *data;

    if (more <= b->capacity - b->len)
        return 0;
    if (more > SIZE_MAX / 2 - b->len)
        return -ENOMEM;
    while (want - b->len < more)
        want *= 2;
    data = realloc(b->data, want);
    if (!data)
        return -ENOMEM;
    b->data = data;
    b->capacity = want;
    return 0;
}

int ms_buf_append(struct ms_buf *b, const void *data, size_t len)
{
    int rc = ms_buf_reserve(b, len);

    if (rc < 0)
        return rc;
    if (len)
        memcpy(b->data + b->len, data, len);
    b->len += len;
    return 0;
}

int ms_buf_printf(struct ms_buf *b, const char *fmt, ...)
{
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (!b->failed)
        b->failed = n < 0 ? -EINVAL : ms_buf_reserve(b, (size_t)n + 1);
    if (b->failed)
        return b->failed;
    va_start(ap, fmt);
    vsnprintf((char *)b->data + b->len, (size_t)n + 1, fmt, ap);
    va_end(ap);
    b->len += (size_t)n;
    return 0;
}

void ms_buf_consume(struct ms_buf *b, size_t n)
{
    assert(n <= b->len);
    b->len -= n;
    if (b->len)
        memmove(b->data, b->data + n, b->len);
}

const char *ms_buf_str(struct ms_buf *b)
{
    if (b->failed || ms_buf_reserve(b, 1) < 0)
        return NULL;
    b->data[b->len] = 0;
    return (const char *)b->data;
}

uint8_t *ms_bytes_copy(const void *bytes, size_t len)
{
    uint8_t *copy = malloc(len ? len : 1);

    if (!copy)
        return NULL;
    if (len)
        memcpy(copy, bytes, len);
    return copy;
}

int ms_text_copy(char *out, size_t room, const char *text, size_t len)
{
    if (len >= room)
        return -ENAMETOOLONG;
    memcpy(out, text, len);
    out[len] = 0;
    return 0;
}

int ms_array_reserve(void *array, size_t *room, size_t count, size_t size)
{
    size_t more = *room ? *room : ARRAY_MIN;
    char *at;

    if (count <= *room)
        return 0;
    while (more < count)
        more *= 2;
    memcpy(&at, array, sizeof at);
    at = reallocarray(at, more, size);
    if (!at)
        return -ENOMEM;
    memset(at + *room * size, 0, (more - *room) * size);
    memcpy(array, &at, sizeof at);
    *room = more;
    return 0;
}
