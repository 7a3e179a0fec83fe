#include "store/server/state.h"

#include "base/cleanup.h"
#include "base/limits.h"
#include "base/name.h"
#include "io/sock.h"
#include "io/spawn.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

enum { READS_MAX = 64 };

struct packet {
    struct ms_list link;
    int fd; /* -1: none */
    size_t len;
    uint8_t data[];
};

static void packet_free(struct packet *p)
{
    ms_list_remove(&p->link);
    ms_fd_close(&p->fd);
    free(p);
}

void ms_guest_destroy(struct ms_guest *g)
{
    struct ms_store *s = g->store;

    ms_watch_finish(&g->watch);
    ms_watch_finish(&g->death);
    ms_timer_finish(&g->patience);
    ms_list_each (p, &g->unsent, struct packet, link)
        packet_free(p);
    ms_handshake_finish(&g->handshake);
    ms_fd_close(&g->fd);
    ms_fd_close(&g->pidfd);
    ms_list_remove(&g->link);
    s->guest_count--;
    if (g->holder) {
        ms_table_remove_holder(&s->table, g->holder);
        ms_store_retry_places(s); /* what others hold may be spilled now */
    }
    free(g);
}

struct ms_guest *ms_guest_find(struct ms_store *s, uint64_t holder)
{
    ms_list_each (g, &s->guests, struct ms_guest, link)
        if (g->holder && g->holder->id == holder)
            return g;
    return NULL;
}

/* ---- answers --------------------------------------------------------------------- */

static ssize_t send_packet(struct ms_guest *g, const struct packet *p)
{
    return ms_fds_send(g->fd, p->data, p->len, &p->fd, p->fd >= 0);
}

/* 0, or a negative errno other than -EAGAIN. */
static int flush(struct ms_guest *g)
{
    ms_list_each (p, &g->unsent, struct packet, link) {
        ssize_t n = send_packet(g, p);

        if (n == -EAGAIN)
            break;
        if (n < 0)
            return (int)n;
        packet_free(p);
    }
    return ms_watch_set(&g->watch,
                        ms_list_is_empty(&g->unsent) ? MS_READ : MS_READ | MS_WRITE);
}

/* What cannot be sent is no matter: the end of the connection is seen by reading. */
static void send_bytes(struct ms_guest *g, struct packet *p)
{
    ms_list_add_tail(&g->unsent, &p->link);
    if (flush(g) < 0)
        shutdown(g->fd, SHUT_RDWR);
}

static struct packet *packet_create(size_t len, int fd)
{
    struct packet *p = malloc(sizeof *p + len);

    if (!p)
        return NULL;
    ms_list_init(&p->link);
    p->fd = fd >= 0 ? dup(fd) : -1;
    p->len = len;
    return p;
}

void ms_guest_answer(struct ms_guest *g,
                     uint64_t request,
                     Muster__StoreAnswer *m,
                     int fd)
{
    struct packet *p;

    m->request = request;
    p = packet_create(muster__store_answer__get_packed_size(m), fd);
    if (!p) {
        shutdown(g->fd, SHUT_RDWR);
        return;
    }
    muster__store_answer__pack(m, p->data);
    send_bytes(g, p);
}

void ms_guest_refuse(struct ms_guest *g,
                     uint64_t request,
                     Muster__Failure__Kind kind,
                     int code,
                     const char *text)
{
    Muster__StoreAnswer m = MUSTER__STORE_ANSWER__INIT;
    Muster__Failure f = MUSTER__FAILURE__INIT;

    f.kind = kind;
    f.code = code;
    f.message = (char *)(uintptr_t)text;
    m.body_case = MUSTER__STORE_ANSWER__BODY_FAILURE;
    m.failure = &f;
    ms_guest_answer(g, request, &m, -1);
}

/* ---- the beginning --------------------------------------------------------------- */

static int shake(struct ms_guest *g, const uint8_t *in, size_t len)
{
    uint8_t out[MS_HELLO_SERVER_SIZE];
    size_t out_len = 0;
    struct packet *p;
    int rc;

    if (len != ms_handshake_need(&g->handshake))
        return -EPROTO;
    rc = ms_handshake_step(&g->handshake, in, out, &out_len, NULL);
    if (rc < 0 || !out_len)
        return rc;
    p = packet_create(out_len, -1);
    if (!p)
        return -ENOMEM;
    memcpy(p->data, out, out_len);
    send_bytes(g, p);
    return 0;
}

static int welcome(struct ms_guest *g, const Muster__StoreAsk *ask)
{
    struct ms_store *s = g->store;
    Muster__StoreAnswer m = MUSTER__STORE_ANSWER__INIT;
    Muster__StoreWelcome w = MUSTER__STORE_WELCOME__INIT;
    struct ms_holder *old;

    if (ask->body_case != MUSTER__STORE_ASK__BODY_HELLO || !ask->hello->holder)
        return -EPROTO;
    old = ms_table_find_holder(&s->table, ask->hello->holder);
    if (old) { /* the same process comes again, after an exec: what it had is lost */
        struct ms_guest *other = ms_guest_find(s, old->id);

        if (!other || other->pid != g->pid)
            return -EPROTO;
        ms_guest_destroy(other);
    }
    g->holder = ms_table_add_holder(
        &s->table, ask->hello->holder, MS_HOLDER_PROCESS, g->pid, ask->hello->name);
    if (!g->holder)
        return -ENOMEM;
    ms_timer_cancel(&g->patience);
    w.node = s->table.node;
    w.arena_size = ms_space_size(s->table.space);
    w.limit = ms_space_limit(s->table.space);
    w.address = s->address;
    w.warning = s->warning;
    w.spills = s->spill != NULL;
    m.body_case = MUSTER__STORE_ANSWER__BODY_WELCOME;
    m.welcome = &w;
    ms_guest_answer(g, ask->request, &m, ms_arena_fd(s->arena));
    return 0;
}

/* ---- reading --------------------------------------------------------------------- */

static int take(struct ms_guest *g, const uint8_t *data, size_t len)
{
    Muster__StoreAsk *ask;
    int rc = 0;

    if (!g->handshake.done)
        return shake(g, data, len);
    ask = muster__store_ask__unpack(NULL, len, data);
    if (!ask)
        return -EPROTO;
    if (!g->holder)
        rc = welcome(g, ask);
    else
        ms_guest_asks(g, ask);
    muster__store_ask__free_unpacked(ask, NULL);
    return rc;
}

/* 0: there is no more now; 1: there may be; or a negative errno. */
static int read_some(struct ms_guest *g)
{
    static uint8_t data[MS_STORE_MESSAGE_MAX]; /* of the one thread */

    for (int i = 0; i < READS_MAX; i++) {
        size_t count = 0;
        ssize_t n = ms_fds_recv(g->fd, data, sizeof data, NULL, &count);
        int rc;

        if (n == -EAGAIN)
            return 0;
        if (n <= 0)
            return n < 0 ? (int)n : -EPIPE;
        rc = take(g, data, (size_t)n);
        if (rc < 0)
            return rc;
    }
    return 1;
}

static void on_ready(void *arg, unsigned events)
{
    struct ms_guest *g = arg;
    int rc = 0;

    if (events & MS_WRITE)
        rc = flush(g);
    if (rc == 0 && events & MS_READ)
        rc = read_some(g);
    if (rc < 0)
        ms_guest_destroy(g);
}

/* What it has said to the last is heard: others hold what it gave them. */
static void on_death(void *arg, unsigned events)
{
    (void)events;
    while (read_some(arg) > 0)
        ;
    ms_guest_destroy(arg);
}

static void on_late(void *arg)
{
    ms_guest_destroy(arg);
}

/* ---- coming ---------------------------------------------------------------------- */

/* Takes the descriptor. */
static int guest_create(struct ms_store *s, int fd)
{
    struct ms_guest *g = calloc(1, sizeof *g);
    uint8_t nonce[32];
    uid_t uid;
    int rc;

    if (!g || ms_random_bytes(nonce, sizeof nonce) < 0) {
        free(g);
        close(fd);
        return -ENOMEM;
    }
    g->store = s;
    g->fd = fd;
    g->pidfd = -1;
    ms_list_init(&g->unsent);
    ms_list_add_tail(&s->guests, &g->link);
    s->guest_count++;
    ms_handshake_init_server(&g->handshake, s->secret, nonce, s->table.node);
    rc = ms_unix_peer(fd, &uid, &g->pid);
    if (rc == 0 && uid != geteuid())
        rc = -EACCES;
    if (rc == 0 &&
        g->pid > 0) /* else it is of another pid namespace: its end of file */
        g->pidfd = rc = ms_process_open(g->pid);
    if (rc >= 0)
        rc = ms_watch_init(&g->watch, s->loop, fd, MS_READ, on_ready, g);
    if (rc >= 0)
        rc = ms_timer_init(&g->patience, s->loop, on_late, g);
    if (rc >= 0)
        rc = ms_timer_set(&g->patience, MS_HANDSHAKE_NS);
    if (rc >= 0 && g->pidfd >= 0)
        rc = ms_watch_init(&g->death, s->loop, g->pidfd, MS_READ, on_death, g);
    if (rc < 0)
        ms_guest_destroy(g);
    return rc;
}

void ms_guest_accept(struct ms_store *s)
{
    int fd;

    while ((fd = ms_unix_accept(s->listen_fd)) >= 0)
        if (s->guest_count >= MS_STORE_CLIENTS_MAX)
            close(fd);
        else
            guest_create(s, fd);
}
