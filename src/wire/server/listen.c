/* listen.c - listeners, and what comes to them before anything is known of it. A unix
 * socket is for our handshake alone; on TCP the first byte tells what it will be, and is
 * only peeked at: its protocol reads it. */
#include "base/clock.h"
#include "io/sock.h"
#include "io/tcp.h"
#include "wire/server/server_impl.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#define LISTEN_AGAIN_NS (50 * MS_NS_PER_MS) /* after running out of descriptors */

enum { TLS_HANDSHAKE = 0x16 };

/* A TCP connection that has said nothing yet. */
struct greeting {
    struct unproven unproven;
    struct ms_list link; /* server->greetings */
    struct ms_server *server;
    int fd;
    struct sockaddr_storage peer;
    struct ms_watch watch;
    struct ms_timer deadline;
    int64_t deadline_ns;
};

/* ---- those that are not proven ---------------------------------------------------- */

void ms_unproven_add(struct unproven *u,
                     struct listener *l,
                     void (*cut)(struct unproven *))
{
    u->listener = l;
    u->cut = cut;
    ms_list_init(&u->link);
    if (!l)
        return;
    ms_list_add_tail(&l->unproven, &u->link);
    l->unproven_count++;
}

void ms_unproven_remove(struct unproven *u)
{
    if (!u->listener)
        return;
    ms_list_remove(&u->link);
    u->listener->unproven_count--;
    u->listener = NULL;
}

/* Room for one more. */
static void cut_oldest(struct listener *l)
{
    while (l->unproven_count >= MS_UNPROVEN_MAX) {
        struct unproven *u = ms_list_first(&l->unproven, struct unproven, link);

        u->cut(u);
    }
}

/* ---- the first byte --------------------------------------------------------------- */

static void greeting_destroy(struct greeting *g)
{
    ms_unproven_remove(&g->unproven);
    ms_list_remove(&g->link);
    ms_watch_finish(&g->watch);
    ms_timer_finish(&g->deadline);
    ms_fd_close(&g->fd);
    free(g);
}

static void greeting_cut(struct unproven *u)
{
    greeting_destroy(MS_CONTAINER(u, struct greeting, unproven));
}

static void on_deadline(void *arg)
{
    greeting_destroy(arg);
}

static void serve(struct greeting *g, bool is_tls)
{
    struct ms_server *s = g->server;
    struct ms_tls *tls = is_tls ? ms_net_tls(&s->net) : NULL;
    struct ms_transport *t = NULL;
    struct listener *l = g->unproven.listener;

    if (!is_tls)
        t = ms_transport_tcp(g->fd);
    else if (tls)
        t = ms_transport_tls(g->fd, tls, true);
    if (!t)
        return;
    ms_watch_finish(&g->watch); /* before the next owner watches it */
    g->fd = -1;
    ms_server_conn_create(s,
                          t,
                          l,
                          &g->peer,
                          !is_tls && ms_tls_is_due(s->net.mode, &g->peer),
                          g->deadline_ns);
}

static void give_http(struct greeting *g)
{
    struct ms_server *s = g->server;

    if (!s->ops->on_http)
        return;
    ms_watch_finish(&g->watch);
    s->ops->on_http(s->arg, MS_TAKE_FD(g->fd), &g->peer);
}

static void on_first_byte(void *arg, unsigned events)
{
    struct greeting *g = arg;
    unsigned char first;
    ssize_t n = recv(g->fd, &first, 1, MSG_PEEK | MSG_DONTWAIT);

    (void)events;
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n == 1 && first == TLS_HANDSHAKE)
        serve(g, true);
    else if (n == 1 && first == 'M')
        serve(g, false);
    else if (n == 1 && first >= 'A' && first <= 'Z')
        give_http(g);
    greeting_destroy(g);
}

static void greet(struct listener *l, int fd, const struct sockaddr_storage *peer)
{
    struct ms_server *s = l->server;
    struct greeting *g = calloc(1, sizeof *g);

    if (!g) {
        close(fd);
        return;
    }
    ms_tcp_keep_alive(fd);
    g->server = s;
    g->fd = fd;
    g->peer = *peer;
    g->deadline_ns = ms_now_ns() + s->handshake_ns;
    ms_unproven_add(&g->unproven, l, greeting_cut);
    ms_list_add_tail(&s->greetings, &g->link);
    if (ms_timer_init(&g->deadline, s->loop, on_deadline, g) < 0 ||
        ms_timer_set(&g->deadline, s->handshake_ns) < 0 ||
        ms_watch_init(&g->watch, s->loop, fd, MS_READ, on_first_byte, g) < 0)
        greeting_destroy(g);
}

/* ---- listening -------------------------------------------------------------------- */

static void on_listen_again(void *arg)
{
    struct listener *l = arg;

    ms_watch_set(&l->watch, MS_READ);
}

static int accept_one(struct listener *l)
{
    struct ms_server *s = l->server;
    struct sockaddr_storage peer;
    struct ms_transport *t;
    int fd;

    if (s->conn_count >= MS_PEERS_MAX)
        return -EMFILE;
    fd = l->is_tcp ? ms_tcp_accept(l->fd, &peer) : ms_unix_accept(l->fd);
    if (fd < 0)
        return fd;
    cut_oldest(l);
    if (l->is_tcp) {
        greet(l, fd, &peer);
        return 0;
    }
    t = ms_transport_unix(fd);
    if (t)
        ms_server_conn_create(s, t, l, NULL, false, ms_now_ns() + s->handshake_ns);
    else
        close(fd);
    return 0;
}

static void on_listen(void *arg, unsigned events)
{
    struct listener *l = arg;
    struct ms_server *s = l->server;
    int rc;

    (void)events;
    if (!s->loop_thread_known) { /* before the first connection: nobody reads it yet */
        s->loop_thread = pthread_self();
        s->loop_thread_known = true;
    }
    do
        rc = accept_one(l);
    while (rc == 0);
    if (rc == -EAGAIN)
        return;
    /* no descriptor or no memory: not now, but not never */
    ms_watch_set(&l->watch, 0);
    ms_timer_set(&l->again, LISTEN_AGAIN_NS);
}

/* ---- life ------------------------------------------------------------------------- */

int ms_server_listen(struct ms_server *s, int fd)
{
    struct sockaddr_storage sa = {0};
    socklen_t len = sizeof sa;
    struct listener *l;
    int rc;

    if (s->listener_count == MS_LISTENERS_MAX ||
        getsockname(fd, (struct sockaddr *)&sa, &len) < 0) {
        rc = s->listener_count == MS_LISTENERS_MAX ? -ENOSPC : -errno;
        close(fd);
        return rc;
    }
    l = &s->listeners[s->listener_count++];
    l->server = s;
    l->fd = fd;
    l->is_tcp = sa.ss_family != AF_UNIX;
    ms_list_init(&l->unproven);
    rc = ms_timer_init(&l->again, s->loop, on_listen_again, l);
    if (rc == 0)
        rc = ms_watch_init(&l->watch, s->loop, fd, MS_READ, on_listen, l);
    return rc;
}

void ms_listeners_finish(struct ms_server *s)
{
    ms_list_each (g, &s->greetings, struct greeting, link)
        greeting_destroy(g);
    for (unsigned i = 0; i < s->listener_count; i++) {
        struct listener *l = &s->listeners[i];

        ms_watch_finish(&l->watch);
        ms_timer_finish(&l->again);
        ms_fd_close(&l->fd);
    }
}

void ms_listeners_forget(struct ms_server *s)
{
    ms_list_each (g, &s->greetings, struct greeting, link)
        ms_fd_close(&g->fd);
    for (unsigned i = 0; i < s->listener_count; i++)
        ms_fd_close(&s->listeners[i].fd);
}
