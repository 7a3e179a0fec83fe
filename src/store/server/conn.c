/* conn.c - the connection of a process of this node: handshake, messages, answers */
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
    bool has_arena; /* its descriptor goes with it */
    size_t len;
    uint8_t data[];
};

void ms_store_conn_destroy(void *conn)
{
    struct ms_store_conn *c = conn;
    struct ms_store *s = c->store;

    ms_watch_finish(&c->watch);
    ms_watch_finish(&c->death);
    ms_timer_finish(&c->patience);
    ms_list_each (p, &c->unsent, struct packet, link)
        free(p);
    ms_handshake_finish(&c->handshake);
    ms_fd_close(&c->fd);
    ms_fd_close(&c->pidfd);
    ms_list_remove(&c->link);
    s->conn_count--;
    if (c->holder) {
        ms_holder_remove(c->holder);
        ms_store_retry_places(s); /* what others hold may be spilled now */
    }
    free(c);
}

struct ms_store_conn *ms_store_conn_find(struct ms_store *s, uint64_t holder)
{
    ms_list_each (c, &s->conns, struct ms_store_conn, link)
        if (c->holder && c->holder->id == holder)
            return c;
    return NULL;
}

/* ---- answers --------------------------------------------------------------------- */

/* 0, or a negative errno other than -EAGAIN. */
static int flush(struct ms_store_conn *c)
{
    int arena = c->store->arena.fd;

    ms_list_each (p, &c->unsent, struct packet, link) {
        ssize_t n = ms_fds_send(c->fd, p->data, p->len, &arena, p->has_arena);

        if (n == -EAGAIN)
            break;
        if (n < 0)
            return (int)n;
        ms_list_remove(&p->link);
        free(p);
    }
    return ms_watch_set(&c->watch,
                        ms_list_is_empty(&c->unsent) ? MS_READ : MS_READ | MS_WRITE);
}

/* What cannot be sent is no matter: the end of the connection is seen by reading. */
static void send_packet_or_end(struct ms_store_conn *c, struct packet *p)
{
    ms_list_add_tail(&c->unsent, &p->link);
    if (flush(c) < 0)
        shutdown(c->fd, SHUT_RDWR);
}

static struct packet *packet_create(size_t len, bool has_arena)
{
    struct packet *p = malloc(sizeof *p + len);

    if (p) {
        p->has_arena = has_arena;
        p->len = len;
    }
    return p;
}

void ms_store_conn_answer(struct ms_store_conn *c,
                          uint64_t request,
                          Muster__StoreAnswer__BodyCase what,
                          void *body)
{
    Muster__StoreAnswer m = MUSTER__STORE_ANSWER__INIT;
    struct packet *p;

    m.request = request;
    m.body_case = what;
    m.welcome = body; /* any of the union */
    p = packet_create(muster__store_answer__get_packed_size(&m),
                      what == MUSTER__STORE_ANSWER__BODY_WELCOME);
    if (!p) {
        shutdown(c->fd, SHUT_RDWR);
        return;
    }
    muster__store_answer__pack(&m, p->data);
    send_packet_or_end(c, p);
}

void ms_store_conn_refuse(struct ms_store_conn *c,
                          uint64_t request,
                          int code,
                          const char *text)
{
    Muster__Failure f = MUSTER__FAILURE__INIT;

    f.code = code;
    f.message = (char *)(uintptr_t)text;
    ms_store_conn_answer(c, request, MUSTER__STORE_ANSWER__BODY_FAILURE, &f);
}

/* ---- the beginning --------------------------------------------------------------- */

static int shake(struct ms_store_conn *c, const uint8_t *in, size_t len)
{
    uint8_t out[MS_HELLO_SERVER_SIZE];
    size_t out_len = 0;
    struct packet *p;
    int rc;

    if (len != ms_handshake_need(&c->handshake))
        return -EPROTO;
    rc = ms_handshake_step(&c->handshake, in, out, &out_len, NULL);
    if (rc < 0 || !out_len)
        return rc;
    p = packet_create(out_len, false);
    if (!p)
        return -ENOMEM;
    memcpy(p->data, out, out_len);
    send_packet_or_end(c, p);
    return 0;
}

static int welcome(struct ms_store_conn *c, const Muster__StoreAsk *ask)
{
    struct ms_store *s = c->store;
    Muster__StoreWelcome w = MUSTER__STORE_WELCOME__INIT;
    struct ms_holder *old;

    if (ask->body_case != MUSTER__STORE_ASK__BODY_HELLO || !ask->hello->holder)
        return -EPROTO;
    old = ms_table_find_holder(&s->table, ask->hello->holder);
    if (old) { /* the same process comes again, after an exec: what it had is lost */
        struct ms_store_conn *other = ms_store_conn_find(s, old->id);

        if (!other || other->pid != c->pid)
            return -EPROTO;
        ms_store_conn_destroy(other);
    }
    c->holder = ms_table_add_holder(
        &s->table, ask->hello->holder, MS_HOLDER_PROCESS, c->pid, ask->hello->name);
    if (!c->holder)
        return -ENOMEM;
    ms_timer_cancel(&c->patience);
    w.node = s->table.node;
    w.arena_size = s->table.space->size;
    w.limit = s->table.space->limit;
    w.address = s->address;
    w.warning = s->warning;
    w.spills = s->spill.dir != NULL;
    ms_store_conn_answer(c, ask->request, MUSTER__STORE_ANSWER__BODY_WELCOME, &w);
    return 0;
}

/* ---- reading --------------------------------------------------------------------- */

static int take(struct ms_store_conn *c, const uint8_t *data, size_t len)
{
    Muster__StoreAsk *ask;
    int rc = 0;

    if (!c->handshake.done)
        return shake(c, data, len);
    ask = muster__store_ask__unpack(NULL, len, data);
    if (!ask)
        return -EPROTO;
    if (!c->holder)
        rc = welcome(c, ask);
    else
        ms_store_conn_handle(c, ask);
    muster__store_ask__free_unpacked(ask, NULL);
    return rc;
}

/* 0: there is no more now; 1: there may be; or a negative errno. */
static int read_some(struct ms_store_conn *c)
{
    static uint8_t data[MS_STORE_MESSAGE_MAX]; /* of the one thread */

    for (int i = 0; i < READS_MAX; i++) {
        size_t count = 0;
        ssize_t n = ms_fds_recv(c->fd, data, sizeof data, NULL, &count);
        int rc;

        if (n == -EAGAIN)
            return 0;
        if (n <= 0)
            return n < 0 ? (int)n : -EPIPE;
        rc = take(c, data, (size_t)n);
        if (rc < 0)
            return rc;
    }
    return 1;
}

static void on_ready(void *arg, unsigned events)
{
    struct ms_store_conn *c = arg;
    int rc = 0;

    if (events & MS_WRITE)
        rc = flush(c);
    if (rc == 0 && events & MS_READ)
        rc = read_some(c);
    if (rc < 0)
        ms_store_conn_destroy(c);
}

/* All that it has sent is read first: others hold what it gave them. */
static void on_death(void *arg, unsigned events)
{
    (void)events;
    while (read_some(arg) > 0)
        ;
    ms_store_conn_destroy(arg);
}

/* ---- coming ---------------------------------------------------------------------- */

/* Takes the descriptor. A process of another pid namespace has no pid here: its end is the
 * end of the connection. */
static void conn_create(struct ms_store *s, int fd)
{
    struct ms_store_conn *c = calloc(1, sizeof *c);
    uint8_t nonce[32];
    uid_t uid;

    if (!c || ms_random_bytes(nonce, sizeof nonce) < 0) {
        free(c);
        close(fd);
        return;
    }
    c->store = s;
    c->fd = fd;
    c->pidfd = -1;
    ms_list_init(&c->unsent);
    ms_list_add_tail(&s->conns, &c->link);
    s->conn_count++;
    ms_handshake_init_server(&c->handshake, s->secret, nonce, s->table.node);
    if (ms_unix_peer(fd, &uid, &c->pid) < 0 || uid != geteuid() ||
        (c->pid > 0 && (c->pidfd = ms_process_open(c->pid)) < 0) ||
        ms_watch_init(&c->watch, s->loop, fd, MS_READ, on_ready, c) < 0 ||
        ms_timer_init(&c->patience, s->loop, ms_store_conn_destroy, c) < 0 ||
        ms_timer_set(&c->patience, MS_HANDSHAKE_NS) < 0 ||
        (c->pidfd >= 0 &&
         ms_watch_init(&c->death, s->loop, c->pidfd, MS_READ, on_death, c) < 0))
        ms_store_conn_destroy(c);
}

void ms_store_conn_accept(void *store, unsigned events)
{
    struct ms_store *s = store;
    int fd;

    (void)events;
    while ((fd = ms_unix_accept(s->listen_fd)) >= 0)
        if (s->conn_count >= MS_STORE_CLIENTS_MAX)
            close(fd);
        else
            conn_create(s, fd);
}
