/* rpc.c - requests to the agent of this node and its answers, and how the connection begins */
#include "store/client/state.h"

#include "base/clock.h"
#include "base/limits.h"
#include "base/name.h"
#include "io/sock.h"
#include "wire/handshake.h"

#include <errno.h>
#include <poll.h>

/* One packet. Its length; -EAGAIN: none within a slice, or a signal came; -EPIPE: the end. */
static ssize_t receive_slice(int fd, void *data, size_t room)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    size_t no_fds = 0;
    ssize_t n = ms_fds_recv(fd, data, room, NULL, &no_fds);

    if (n == -EAGAIN) {
        int ready = poll(&p, 1, MS_STORE_POLL_MS);

        if (ready <= 0)
            return ready == 0 || errno == EINTR ? -EAGAIN : -errno;
        n = ms_fds_recv(fd, data, room, NULL, &no_fds);
    }
    return n ? n : -EPIPE;
}

/* ---- sending --------------------------------------------------------------------- */

static int send_ask(struct ms_store_client *c, const Muster__StoreAsk *m)
{
    uint8_t small[512], *big = small;
    size_t len = muster__store_ask__get_packed_size(m);
    int rc;

    if (c->fd < 0 || c->is_forgotten)
        return -EPIPE;
    if (len > MS_STORE_MESSAGE_MAX)
        return -EMSGSIZE;
    if (len > sizeof small)
        big = malloc(len);
    if (!big)
        return -ENOMEM;
    rc = ms_outbox_send(c, big, muster__store_ask__pack(m, big), m->request != 0);
    if (big != small)
        free(big);
    return rc;
}

static Muster__StoreAsk ask_of(Muster__StoreAsk__BodyCase what, void *body)
{
    Muster__StoreAsk m = MUSTER__STORE_ASK__INIT;

    m.body_case = what;
    m.hello = body; /* any of the union */
    return m;
}

int ms_store_rpc_send(struct ms_store_client *c,
                      Muster__StoreAsk__BodyCase what,
                      void *body)
{
    Muster__StoreAsk m = ask_of(what, body);

    return send_ask(c, &m);
}

/* ---- waiting --------------------------------------------------------------------- */

/* Locked. Give an answer to the request that waits for it; false: none does. */
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

/* Locked. Nothing has come for a while: ask the agent what it answers at once. */
static void count_silence(struct ms_store_client *c)
{
    Muster__StoreStatsAsk ask = MUSTER__STORE_STATS_ASK__INIT;
    Muster__StoreAsk m =
        ask_of(MUSTER__STORE_ASK__BODY_STATS, &ask); /* answered at once */
    uint8_t data[64];

    c->silent_ns += MS_STORE_POLL_MS * MS_NS_PER_MS;
    if (c->is_pinged || c->silent_ns < c->answer_ns / 2)
        return;
    c->is_pinged = true;
    m.request = c->next_request++;
    ms_fds_send(c->fd, data, muster__store_ask__pack(&m, data), NULL, 0);
}

/* Locked. It has said something. */
static void end_silence(struct ms_store_client *c)
{
    c->silent_ns = 0;
    c->is_pinged = false;
}

/* Locked, and so again afterwards. Read one answer, of any request. */
static void read_turn(struct ms_store_client *c)
{
    Muster__StoreAnswer *m = NULL;
    int fd = c->fd;
    ssize_t rc;

    c->is_read = true;
    pthread_mutex_unlock(&c->lock);
    rc = receive_slice(fd, c->answer, 2 * MS_STORE_MESSAGE_MAX);
    if (rc > 0)
        m = muster__store_answer__unpack(NULL, (size_t)rc, c->answer);
    if (rc > 0 && !m)
        rc = -EPROTO;
    pthread_mutex_lock(&c->lock);
    c->is_read = false;
    if (rc == -EAGAIN)
        count_silence(c);
    else
        end_silence(c);
    if (rc < 0 && rc != -EAGAIN)
        ms_list_each (w, &c->waiting, struct ms_store_rpc, link) {
            w->rc = (int)rc;
            ms_list_remove(&w->link);
        }
    if (m && hand_out(c, m))
        m = NULL;
    if (rc > 0) {
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

void ms_store_rpc_start(struct ms_store_client *c,
                        Muster__StoreAsk__BodyCase what,
                        void *body,
                        struct ms_store_rpc *w)
{
    Muster__StoreAsk m = ask_of(what, body);
    int rc;

    *w = (struct ms_store_rpc){0};
    pthread_mutex_lock(&c->lock);
    w->request = m.request = c->next_request++;
    if (ms_list_is_empty(&c->waiting))
        end_silence(c);
    ms_list_add_tail(&c->waiting, &w->link);
    pthread_mutex_unlock(&c->lock);
    rc = send_ask(c, &m);
    if (rc == 0)
        return;
    pthread_mutex_lock(&c->lock);
    ms_list_remove(&w->link);
    w->rc = rc;
    pthread_mutex_unlock(&c->lock);
}

/* What came, if it is what was asked for. */
static Muster__StoreAnswer *
check(Muster__StoreAnswer *m, Muster__StoreAnswer__BodyCase want, struct ms_error *err)
{
    if (m->body_case == want)
        return m;
    if (m->body_case == MUSTER__STORE_ANSWER__BODY_FAILURE)
        ms_error_set(
            err, m->failure->code ? m->failure->code : -EIO, "%s", m->failure->message);
    else
        ms_error_set(err, -EPROTO, "the store answers something else");
    muster__store_answer__free_unpacked(m, NULL);
    return NULL;
}

Muster__StoreAnswer *ms_store_rpc_end(struct ms_store_client *c,
                                      struct ms_store_rpc *w,
                                      Muster__StoreAnswer__BodyCase want,
                                      struct ms_error *err)
{
    int rc;

    pthread_mutex_lock(&c->lock);
    rc = wait_answer(c, w);
    pthread_mutex_unlock(&c->lock);
    if (rc == 0)
        return check(w->answer, want, err);
    if (rc == -ETIMEDOUT)
        ms_error_set(
            err,
            rc,
            "the store of this node does not answer: its agent has said nothing "
            "for %d s; is it stopped?",
            (int)(c->answer_ns / MS_NS_PER_S));
    else
        ms_error_sys(err, rc, "the store of this node does not answer");
    return NULL;
}

/* ---- opening --------------------------------------------------------------------- */

static int send_bytes(int fd, const void *data, size_t len)
{
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    int64_t until_ns = ms_now_ns() + MS_STORE_ANSWER_NS;
    ssize_t n;
    int rc;

    while ((n = ms_fds_send(fd, data, len, NULL, 0)) == -EAGAIN)
        if ((rc = ms_poll_until(&p, 1, until_ns)) <= 0 && rc != -EINTR)
            return rc < 0 ? rc : -ETIMEDOUT;
    return n < 0 ? (int)n : 0;
}

/* One packet within the time of a handshake; its length. */
static ssize_t receive(int fd, void *data, size_t room, int *fds, size_t *fd_count)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    int64_t until_ns = ms_now_ns() + MS_HANDSHAKE_NS;
    size_t fd_room = *fd_count;
    ssize_t n;
    int rc;

    while ((n = ms_fds_recv(fd, data, room, fds, fd_count)) == -EAGAIN) {
        if ((rc = ms_poll_until(&p, 1, until_ns)) <= 0 && rc != -EINTR)
            return rc < 0 ? rc : -ETIMEDOUT;
        *fd_count = fd_room;
    }
    return n ? n : -EPIPE;
}

static int prove(int fd, struct ms_handshake *h, struct ms_error *err)
{
    uint8_t in[MS_HELLO_SERVER_SIZE], out[MS_HELLO_SERVER_SIZE];
    size_t out_len = 0, no_fds = 0;
    ssize_t n = send_bytes(fd, h->hello_client, MS_HELLO_CLIENT_SIZE);
    int rc;

    if (n == 0)
        n = receive(fd, in, sizeof in, NULL, &no_fds);
    if (n < 0)
        return ms_error_sys(err, (int)n, "the store does not answer");
    if ((size_t)n != ms_handshake_need(h))
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
    Muster__StoreHello hello = MUSTER__STORE_HELLO__INIT;
    Muster__StoreAsk m = ask_of(MUSTER__STORE_ASK__BODY_HELLO, &hello);
    Muster__StoreAnswer *answer = NULL;
    uint8_t data[4096 + 512];
    size_t fd_count = 1;
    ssize_t n = -EMSGSIZE;

    hello.holder = o->holder;
    hello.name = (char *)(uintptr_t)o->name;
    m.request = 1;
    if (muster__store_ask__get_packed_size(&m) <= sizeof data)
        n = send_bytes(fd, data, muster__store_ask__pack(&m, data));
    if (n == 0)
        n = receive(fd, data, sizeof data, arena, &fd_count);
    if (n > 0)
        answer = muster__store_answer__unpack(NULL, (size_t)n, data);
    if (answer && answer->body_case == MUSTER__STORE_ANSWER__BODY_WELCOME &&
        fd_count == 1)
        return answer;
    muster__store_answer__free_unpacked(answer, NULL);
    ms_error_set(err, n < 0 ? (int)n : -EPROTO, "the store does not let us in");
    return NULL;
}

Muster__StoreAnswer *ms_store_rpc_open(struct ms_store_client *c,
                                       const struct ms_store_client_options *o,
                                       int *arena,
                                       struct ms_error *err)
{
    c->fd = ms_unix_connect(o->path, SOCK_SEQPACKET, err);
    if (c->fd < 0 || shake(c->fd, o->secret, err) < 0)
        return NULL;
    return introduce(c->fd, o, arena, err);
}
