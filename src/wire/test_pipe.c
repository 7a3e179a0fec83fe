/* test_pipe.c - two transports that are connected in memory, as slow as a test
 * likes */
#include "wire/test_pipe.h"
#include "base/cleanup.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* How many of `want` bytes pass now; 0: none. */
static size_t allowed(struct test_pipe *p, size_t want)
{
    if (p->is_random && test_random(&p->seed) % 4 == 0)
        return 0;
    if (p->step && want > p->step)
        want = p->step;
    if (p->is_random && want > 1)
        want = 1 + test_random(&p->seed) % want;
    return want;
}

static struct test_pipe_end *end_of(struct ms_transport *t)
{
    return MS_CONTAINER(t, struct test_pipe_end, transport);
}

static struct test_pipe_end *other(struct test_pipe_end *e)
{
    return &e->pipe->end[e == &e->pipe->end[0]];
}

static ssize_t pipe_read(struct ms_transport *t, void *at, size_t room)
{
    struct test_pipe_end *e = end_of(t);
    size_t have = e->in.len - e->in_at, n;

    if (have == 0)
        return other(e)->closed ? 0 : -EAGAIN;
    n = allowed(e->pipe, have < room ? have : room);
    if (n == 0)
        return -EAGAIN;
    memcpy(at, e->in.data + e->in_at, n);
    e->in_at += n;
    if (e->in_at == e->in.len)
        e->in_at = e->in.len = 0;
    return (ssize_t)n;
}

static ssize_t pipe_write(struct ms_transport *t, const struct iovec *iov, int count)
{
    struct test_pipe_end *e = end_of(t), *to = other(e);
    size_t want = 0, unread = to->in.len - to->in_at, n, left;

    if (to->closed)
        return -EPIPE;
    for (int i = 0; i < count; i++)
        want += iov[i].iov_len;
    if (e->pipe->room && want > e->pipe->room - unread)
        want = e->pipe->room - unread;
    n = left = want ? allowed(e->pipe, want) : 0;
    if (n == 0)
        return -EAGAIN;
    for (int i = 0; left; i++) {
        size_t part = iov[i].iov_len < left ? iov[i].iov_len : left;

        if (part)
            test_pipe_put(to, iov[i].iov_base, part);
        left -= part;
    }
    e->pipe->written += n;
    return (ssize_t)n;
}

static void pipe_destroy(struct ms_transport *t)
{
    end_of(t)->closed = true;
}

static const struct ms_transport_ops pipe_ops = {
    .read = pipe_read,
    .write = pipe_write,
    .destroy = pipe_destroy,
};

void test_pipe_init(struct test_pipe *p)
{
    *p = (struct test_pipe){.seed = 88172645463325252u};
    for (int i = 0; i < 2; i++) {
        p->end[i].transport = (struct ms_transport){.ops = &pipe_ops, .fd = -1};
        p->end[i].pipe = p;
    }
}

void test_pipe_finish(struct test_pipe *p)
{
    ms_buf_finish(&p->end[0].in);
    ms_buf_finish(&p->end[1].in);
}

void test_pipe_put(struct test_pipe_end *e, const void *data, size_t len)
{
    if (ms_buf_append(&e->in, data, len) < 0)
        abort();
}
