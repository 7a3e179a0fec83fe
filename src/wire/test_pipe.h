/* test_pipe.h - two transports that are connected in memory, as slow as a test likes
 *
 * Each end reads and writes at most `step` bytes at a time, or a random number of them
 * up to that, says -EAGAIN every now and then, and takes no more than `room` unread
 * bytes. For one thread.
 */
#ifndef MS_WIRE_TEST_PIPE_H
#define MS_WIRE_TEST_PIPE_H

#include "base/buf.h"
#include "base/test_random.h"
#include "wire/transport/transport.h"

#include <stdbool.h>
#include <stdint.h>

struct test_pipe_end {
    struct ms_transport transport; /* given to a connection, which destroys it */
    struct test_pipe *pipe;
    struct ms_buf in; /* written by the other end */
    size_t in_at;
    bool closed;
};

struct test_pipe {
    struct test_pipe_end end[2];
    size_t step;      /* 0: no limit */
    size_t room;      /* 0: no limit */
    bool is_random;   /* 1..step bytes, and -EAGAIN one time in four */
    uint64_t seed;    /* not 0 */
    uint64_t written; /* by both */
};

void test_pipe_init(struct test_pipe *p);
void test_pipe_finish(struct test_pipe *p);

/* Bytes for this end, as if the other had written them. */
void test_pipe_put(struct test_pipe_end *e, const void *data, size_t len);

#endif
