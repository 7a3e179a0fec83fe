#include "store/client/state.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/name.h"
#include "io/sock.h"
#include "wire/handshake.h"

#include <errno.h>
#include <poll.h>
#include <string.h>

static int wait_fd(int fd, short events, int timeout_ms)
{
    struct pollfd p = {.fd = fd, .events = events};
    int n = poll(&p, 1, timeout_ms);

    return n < 0 ? -errno : n == 0 ? -ETIMEDOUT : 0;
}

static int send_bytes(int fd, const void *data, size_t len)
{
    int64_t until_ns = ms_now_ns() + MS_STORE_ANSWER_NS;
    ssize_t n;

    while ((n = ms_fds_send(fd, data, len, NULL, 0)) == -EAGAIN) {
        int rc = wait_fd(fd, POLLOUT, MS_STORE_SLICE_MS);

        if (rc < 0 && rc != -ETIMEDOUT && rc != -EINTR)
            return rc;
        if (ms_now_ns() > until_ns)
            return -ETIMEDOUT;
    }
    return n < 0 ? (int)n : 0;
}

int ms_store_rpc_send(struct ms_store_client *c, const Muster__StoreAsk *m)
{
    uint8_t small[512], *big;
    size_t len = muster__store_ask__get_packed_size(m);
    int rc;

    if (c->fd < 0 || c->is_forgotten)
        return -EPIPE;
    if (len > MS_STORE_MESSAGE_MAX)
        return -EMSGSIZE;
    if (len <= sizeof small)
        return ms_outbox_send(
            c, small, muster__store_ask__pack(m, small), m->request != 0);
    big = malloc(len);
    if (!big)
        return -ENOMEM;
    rc = ms_outbox_send(c, big, muster__store_ask__pack(m, big), m->request != 0);
    free(big);
    return rc;
}

/* ---- waiting --------------------------------------------------------------------- */

/* One answer from the socket; -EAGAIN: none within a slice. */
static int read_answer(int fd, uint8_t *data, Muster__StoreAnswer **out)
{
    size_t none = 0;
    ssize_t n = ms_fds_recv(fd, data, 2 * MS_STORE_MESSAGE_MAX, NULL, &none);

    if (n == -EAGAIN) {
        int rc = wait_fd(fd, POLLIN, MS_STORE_SLICE_MS);

        if (rc < 0)
            return rc == -ETIMEDOUT || rc == -EINTR ? -EAGAIN : rc;
        none = 0;
        n = ms_fds_recv(fd, data, 2 * MS_STORE_MESSAGE_MAX, NULL, &none);
    }
    if (n <= 0)
        return n < 0 ? (int)n : -EPIPE;
    *out = muster__store_answer__unpack(NULL, (size_t)n, data);
    return *out ? 0 : -EPROTO;
}

/* Locked. Give an answer to whoever waits for it; true: somebody does. */
static bool hand_out(struct ms_store_client *c, Muster__StoreAnswer *m)
{
    ms_list_each (w, &c->waiting, struct ms_store_rpc, link)
        if (w->request == m->request) {
            w->answer = m;
            ms_list_remove(&w->link);
            return true;
        }
    return false;
}

/* Locked. Nothing has come for a slice: is anybody there? */
static void count_silence(struct ms_store_client *c)
{
    Muster__StoreAsk m = MUSTER__STORE_ASK__INIT;
    Muster__StoreStatsAsk ask = MUSTER__STORE_STATS_ASK__INIT;
    uint8_t data[64];

    c->silent_ns += MS_STORE_SLICE_MS * MS_NS_PER_MS;
    if (c->is_pinged || c->silent_ns < c->answer_ns / 2)
        return;
    c->is_pinged = true;
    m.body_case = MUSTER__STORE_ASK__BODY_STATS; /* it answers that at once */
    m.stats = &ask;
    m.request = c->next_request++;
    ms_fds_send(c->fd, data, muster__store_ask__pack(&m, data), NULL, 0);
}

/* Locked. It has said something. */
static void end_silence(struct ms_store_client *c)
{
    c->silent_ns = 0;
    c->is_pinged = false;
}

/* Locked, and so again afterwards. Read one answer, whoever it is for. */
static void read_turn(struct ms_store_client *c)
{
    Muster__StoreAnswer *m = NULL;
    int fd = c->fd, rc;

    c->is_read = true;
    pthread_mutex_unlock(&c->lock);
    rc = read_answer(fd, c->answer, &m);
    pthread_mutex_lock(&c->lock);
    c->is_read = false;
    if (rc == -EAGAIN)
        count_silence(c);
    else
        end_silence(c);
    if (rc < 0 && rc != -EAGAIN)
        ms_list_each (w, &c->waiting, struct ms_store_rpc, link) {
            w->rc = rc;
            ms_list_remove(&w->link);
        }
    if (m && hand_out(c, m))
        m = NULL;
    if (rc == 0) {
        pthread_mutex_unlock(&c->lock);
        ms_outbox_flush(c);
        if (m) {
            ms_store_client_refuse_answer(c, m);
            muster__store_answer__free_unpacked(m, NULL);
        }
        pthread_mutex_lock(&c->lock);
    }
    pthread_cond_broadcast(&c->news);
}

/* Locked. */
static int wait_answer(struct ms_store_client *c, struct ms_store_rpc *w)
{
    while (!w->answer && !w->rc) {
        struct timespec at;

        if (!c->is_read) {
            read_turn(c);
        } else {
            clock_gettime(CLOCK_REALTIME, &at);
            at.tv_sec += 1;
            pthread_cond_timedwait(&c->news, &c->lock, &at);
        }
        if (!w->answer && !w->rc && c->silent_ns >= c->answer_ns)
            w->rc = -ETIMEDOUT;
        if (w->answer || w->rc || !c->is_interrupted)
            continue;
        pthread_mutex_unlock(&c->lock);
        if (c->is_interrupted()) {
            pthread_mutex_lock(&c->lock);
            if (!w->answer)
                w->rc = -EINTR;
            continue;
        }
        pthread_mutex_lock(&c->lock);
    }
    ms_list_remove(&w->link);
    return w->answer ? 0 : w->rc;
}

static Muster__StoreAnswer *check(Muster__StoreAnswer *m, struct ms_error *err)
{
    if (m->body_case != MUSTER__STORE_ANSWER__BODY_FAILURE)
        return m;
    ms_error_set(
        err, m->failure->code ? m->failure->code : -EIO, "%s", m->failure->message);
    muster__store_answer__free_unpacked(m, NULL);
    return NULL;
}

int ms_store_rpc_start(struct ms_store_client *c,
                       Muster__StoreAsk *m,
                       struct ms_store_rpc *w)
{
    int rc;

    *w = (struct ms_store_rpc){0};
    ms_list_init(&w->link);
    pthread_mutex_lock(&c->lock);
    w->request = m->request = c->next_request++;
    if (ms_list_is_empty(&c->waiting))
        end_silence(c);
    ms_list_add_tail(&c->waiting, &w->link);
    pthread_mutex_unlock(&c->lock);
    rc = ms_store_rpc_send(c, m);
    if (rc == 0)
        return 0;
    pthread_mutex_lock(&c->lock);
    ms_list_remove(&w->link);
    w->rc = rc;
    pthread_mutex_unlock(&c->lock);
    return rc;
}

Muster__StoreAnswer *ms_store_rpc_end(struct ms_store_client *c,
                                      struct ms_store_rpc *w,
                                      struct ms_error *err)
{
    int rc;

    pthread_mutex_lock(&c->lock);
    rc = wait_answer(c, w);
    pthread_mutex_unlock(&c->lock);
    if (rc == -ETIMEDOUT)
        ms_error_set(
            err,
            rc,
            "the store of this node does not answer: its agent has said nothing "
            "for %d s; is it stopped?",
            (int)(c->answer_ns / MS_NS_PER_S));
    else if (rc < 0)
        ms_error_sys(err, rc, "the store of this node does not answer");
    return rc < 0 ? NULL : check(w->answer, err);
}

Muster__StoreAnswer *
ms_store_rpc_call(struct ms_store_client *c, Muster__StoreAsk *m, struct ms_error *err)
{
    struct ms_store_rpc w;

    (void)ms_store_rpc_start(c, m, &w); /* the end tells */
    return ms_store_rpc_end(c, &w, err);
}

/* ---- opening --------------------------------------------------------------------- */

/* One whole packet within the time of a handshake. */
static int
receive(int fd, void *data, size_t room, int *fds, size_t *count, size_t *len)
{
    int64_t until_ns = ms_now_ns() + MS_HANDSHAKE_NS;
    size_t fd_room = *count;
    ssize_t n;

    for (;;) {
        int rc;

        *count = fd_room;
        n = ms_fds_recv(fd, data, room, fds, count);
        if (n != -EAGAIN)
            break;
        rc = wait_fd(fd, POLLIN, MS_STORE_SLICE_MS);

        if (rc < 0 && rc != -ETIMEDOUT && rc != -EINTR)
            return rc;
        if (ms_now_ns() > until_ns)
            return -ETIMEDOUT;
    }
    if (n <= 0)
        return n < 0 ? (int)n : -EPIPE;
    *len = (size_t)n;
    return 0;
}

static int prove(int fd, struct ms_handshake *h, struct ms_error *err)
{
    uint8_t in[MS_HELLO_SERVER_SIZE], out[MS_HELLO_SERVER_SIZE];
    size_t len = 0, out_len = 0, none = 0;
    int rc = send_bytes(fd, ms_handshake_hello(h), MS_HELLO_CLIENT_SIZE);

    if (rc == 0)
        rc = receive(fd, in, sizeof in, NULL, &none, &len);
    if (rc < 0)
        return ms_error_sys(err, rc, "the store does not answer");
    if (len != ms_handshake_need(h))
        return ms_error_set(err, -EPROTO, "the store does not speak our protocol");
    rc = ms_handshake_step(h, in, out, &out_len, err);
    if (rc < 0)
        return rc;
    rc = send_bytes(fd, out, out_len);
    return rc < 0 ? ms_error_sys(err, rc, "the store does not answer") : 0;
}

static int shake(int fd, const uint8_t *secret, struct ms_error *err)
{
    uint8_t nonce[32], session[MS_SESSION_SIZE] = {0};
    struct ms_handshake h;
    int rc;

    if (ms_random_bytes(nonce, sizeof nonce) < 0)
        return ms_error_set(err, -EIO, "no random bytes");
    ms_handshake_init_client(&h, secret, nonce, session, MS_LANE_LINK, 0);
    rc = prove(fd, &h, err);
    ms_handshake_finish(&h);
    return rc;
}

static Muster__StoreAnswer *introduce(int fd,
                                      const struct ms_store_client_options *o,
                                      int *arena,
                                      struct ms_error *err)
{
    Muster__StoreAsk m = MUSTER__STORE_ASK__INIT;
    Muster__StoreHello hello = MUSTER__STORE_HELLO__INIT;
    Muster__StoreAnswer *answer = NULL;
    uint8_t data[4096 + 512];
    size_t len = 0, count = 1;
    int rc = -EMSGSIZE;

    hello.holder = o->holder;
    hello.name = (char *)(uintptr_t)o->name;
    m.request = 1;
    m.body_case = MUSTER__STORE_ASK__BODY_HELLO;
    m.hello = &hello;
    if (muster__store_ask__get_packed_size(&m) <= sizeof data)
        rc = send_bytes(fd, data, muster__store_ask__pack(&m, data));
    if (rc == 0)
        rc = receive(fd, data, sizeof data, arena, &count, &len);
    if (rc == 0)
        answer = muster__store_answer__unpack(NULL, len, data);
    if (answer && answer->body_case == MUSTER__STORE_ANSWER__BODY_WELCOME && count == 1)
        return answer;
    if (answer)
        muster__store_answer__free_unpacked(answer, NULL);
    ms_error_set(err, rc < 0 ? rc : -EPROTO, "the store does not let us in");
    return NULL;
}

Muster__StoreAnswer *ms_store_rpc_open(struct ms_store_client *c,
                                       const struct ms_store_client_options *o,
                                       int *arena,
                                       struct ms_error *err)
{
    c->fd = ms_unix_connect_packets(o->path, err);
    if (c->fd < 0 || shake(c->fd, o->secret, err) < 0)
        return NULL;
    return introduce(c->fd, o, arena, err);
}
