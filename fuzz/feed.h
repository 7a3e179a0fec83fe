/* feed.h - a transport that reads from memory, a few bytes at a time, and writes nowhere
 *
 * Also what the sanitizers need to know: memory grows with what has arrived, which is
 * little here, so that whoever takes more has believed a length that a peer announced.
 */
#ifndef MS_FUZZ_FEED_H
#define MS_FUZZ_FEED_H

#include "wire/transport/transport.h"

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
const char *__asan_default_options(void);

__attribute__((used, visibility("default"))) const char *__asan_default_options(void)
{
    return "max_allocation_size_mb=16";
}

struct feed {
    struct ms_transport transport;
    const uint8_t *data;
    size_t size, step;
};

static ssize_t feed_read(struct ms_transport *t, void *at, size_t room)
{
    struct feed *f = (struct feed *)(void *)t;
    size_t n = f->size < room ? f->size : room;

    if (n > f->step)
        n = f->step;
    if (n == 0)
        return 0; /* the end */
    memcpy(at, f->data, n);
    f->data += n;
    f->size -= n;
    return (ssize_t)n;
}

static ssize_t feed_write(struct ms_transport *t, const struct iovec *iov, int count)
{
    ssize_t n = 0;

    (void)t;
    for (int i = 0; i < count; i++)
        n += (ssize_t)iov[i].iov_len;
    return n;
}

static void feed_destroy(struct ms_transport *t)
{
    (void)t;
}

static const struct ms_transport_ops feed_ops = {
    .read = feed_read, .write = feed_write, .destroy = feed_destroy};

/* The first byte says how many bytes are read at a time. */
static inline void feed_init(struct feed *f, const uint8_t *data, size_t size)
{
    static const size_t steps[] = {1, 2, 7, 47, 48, 49, 1000, SIZE_MAX};

    *f = (struct feed){
        .transport = {.ops = &feed_ops, .fd = -1}, .data = data, .step = SIZE_MAX};
    if (size == 0)
        return;
    f->step = steps[data[0] % 8];
    f->data = data + 1;
    f->size = size - 1;
}

#endif
