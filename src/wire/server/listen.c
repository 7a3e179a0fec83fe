/* listen.c - the listeners of a server */
#include "base/clock.h"
#include "io/sock.h"
#include "io/tcp.h"
#include "wire/server/server_impl.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#define LISTEN_AGAIN_NS (50 * MS_NS_PER_MS) /* after running out of descriptors */

static void on_listen_again(void *arg)
{
    struct listener *l = arg;

    ms_watch_set(&l->watch, MS_READ);
}

static void cut_oldest(struct listener *l)
{
    ms_server_conn_cut(
        ms_list_first(&l->unproven, struct ms_server_conn, unproven_link));
}

static int accept_one(struct listener *l)
{
    int fd;

    if (l->server->conn_count >= MS_PEERS_MAX) {
        if (l->unproven_count) /* one that says nothing makes room for the next */
            cut_oldest(l);
        return -EMFILE;
    }
    fd = l->is_tcp ? ms_tcp_accept(l->fd) : ms_unix_accept(l->fd);
    if (fd < 0)
        return fd;
    while (l->unproven_count >= l->server->o.unproven_max)
        cut_oldest(l);
    ms_server_conn_create(l, fd);
    return 0;
}

static void on_listen(void *arg, unsigned events)
{
    struct listener *l = arg;
    struct ms_server *s = l->server;
    unsigned count = 0;
    int rc;

    (void)events;
    if (!s->loop_thread_known) { /* before the first connection: nobody reads it yet */
        s->loop_thread = pthread_self();
        s->loop_thread_known = true;
    }
    do
        rc = accept_one(l);
    while (rc == 0 && ++count < MS_UNPROVEN_MAX); /* what was cut is closed behind us */
    if (rc == 0 || rc == -EAGAIN)
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
    rc = ms_timer_init(&l->again, s->o.loop, on_listen_again, l);
    if (rc == 0)
        rc = ms_watch_init(&l->watch, s->o.loop, fd, MS_READ, on_listen, l);
    return rc;
}

void ms_listeners_finish(struct ms_server *s)
{
    for (unsigned i = 0; i < s->listener_count; i++) {
        struct listener *l = &s->listeners[i];

        ms_watch_finish(&l->watch);
        ms_timer_finish(&l->again);
        ms_fd_close(&l->fd);
    }
}
