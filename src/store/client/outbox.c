/* outbox.c - messages to the agent
 *
 * An agent that does not read, because it is stopped, blocks a
 * sender for no longer than its time to answer, and only once: from then on messages wait
 * here, in order, and go with the next one that finds it reading again. Requests do not wait:
 * they fail. */
#include "store/client/state.h"

#include "base/clock.h"
#include "base/limits.h"
#include "io/sock.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#define AGAIN_NS MS_NS_PER_S /* for an agent that was full for its whole time */

struct waiting {
    struct ms_list link;
    size_t len;
    uint8_t data[];
};

/* Locked. */
static int add(struct ms_store_client *c, const void *data, size_t len)
{
    struct waiting *w =
        c->outbox_count < MS_STORE_OUTBOX_MAX ? malloc(sizeof *w + len) : NULL;

    if (!w)
        return -ENOBUFS;
    w->len = len;
    memcpy(w->data, data, len);
    ms_list_init(&w->link);
    ms_list_add_tail(&c->outbox, &w->link);
    c->outbox_count++;
    return 0;
}

/* Locked. 0: all have gone; -EAGAIN. */
static int flush(struct ms_store_client *c)
{
    ms_list_each (w, &c->outbox, struct waiting, link) {
        if (ms_fds_send(c->fd, w->data, w->len, NULL, 0) == -EAGAIN)
            return -EAGAIN;
        ms_list_remove(&w->link);
        free(w); /* after any other failure the agent has gone */
        c->outbox_count--;
    }
    return 0;
}

/* One try. 0, -EAGAIN, or a negative errno. A question is waited for until until_ns even if
 * others have waited for long: the agent may be reading again. */
static int try_send(struct ms_store_client *c,
                    const void *data,
                    size_t len,
                    bool is_question,
                    int64_t until_ns)
{
    ssize_t n = -EAGAIN;

    pthread_mutex_lock(&c->out_lock);
    if (flush(c) == 0)
        n = ms_fds_send(c->fd, data, len, NULL, 0);
    if (n == -EAGAIN && !c->full_until_ns)
        c->full_until_ns = ms_now_ns() + c->answer_ns;
    if (n >= 0)
        c->full_until_ns = 0;
    if (n == -EAGAIN && is_question && until_ns < c->full_until_ns)
        until_ns = c->full_until_ns;
    if (n == -EAGAIN && is_question && ms_now_ns() >= until_ns)
        n = -ETIMEDOUT;
    else if (n == -EAGAIN && !is_question && ms_now_ns() >= c->full_until_ns)
        n = add(c, data, len);
    pthread_mutex_unlock(&c->out_lock);
    return n < 0 ? (int)n : 0;
}

int ms_outbox_send(struct ms_store_client *c,
                   const void *data,
                   size_t len,
                   bool is_question)
{
    struct pollfd p = {.fd = c->fd, .events = POLLOUT};
    int64_t until_ns = ms_now_ns() + AGAIN_NS;
    int rc;

    while ((rc = try_send(c, data, len, is_question, until_ns)) == -EAGAIN)
        if (poll(&p, 1, MS_STORE_POLL_MS) < 0 && errno != EINTR)
            return -errno;
    return rc;
}

void ms_outbox_flush(struct ms_store_client *c)
{
    pthread_mutex_lock(&c->out_lock);
    if (c->fd >= 0 && !c->is_forgotten)
        flush(c);
    pthread_mutex_unlock(&c->out_lock);
}

void ms_outbox_finish(struct ms_store_client *c)
{
    ms_list_each (w, &c->outbox, struct waiting, link)
        free(w);
    pthread_mutex_destroy(&c->out_lock);
}
