/* test_proxy.c - a network that a test can break */
#include "wire/test_proxy.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "io/tcp.h"
#include "wire/test_rig.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>

static int connect_to(uint16_t port)
{
    struct sockaddr_storage sa;
    socklen_t len;

    ms_tcp_numeric("127.0.0.1", port, &sa, &len);
    return ms_tcp_connect((struct sockaddr *)&sa, len, NULL);
}

static void wake(struct proxy *p)
{
    ssize_t n = write(p->wake[1], "w", 1);

    (void)n;
}

static void pair_close(struct proxy *p, unsigned i, bool reset)
{
    struct linger hard = {.l_onoff = 1, .l_linger = 0};

    for (int side = 0; side < 2; side++) {
        if (reset)
            setsockopt(p->pairs[i].fd[side], SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
        close(p->pairs[i].fd[side]);
    }
    p->pairs[i] = p->pairs[--p->count];
}

/* Blocking for a moment is fine: nothing else goes on here. */
static bool write_all(int fd, const char *data, size_t len)
{
    while (len) {
        ssize_t n = send(fd, data, len, MSG_NOSIGNAL);

        if (n < 0 && errno == EAGAIN) {
            struct pollfd pfd = {.fd = fd, .events = POLLOUT};

            if (poll(&pfd, 1, 200) <= 0)
                return false;
            continue;
        }
        if (n < 0)
            return false;
        data += n;
        len -= (size_t)n;
    }
    return true;
}

/* One piece from one side to the other; false: the pair is over. */
static bool forward(struct proxy *p, unsigned i, int from)
{
    static _Thread_local char data[64 << 10];
    ssize_t n = recv(p->pairs[i].fd[from], data, sizeof data, MSG_DONTWAIT);

    if (n < 0)
        return errno == EAGAIN;
    if (n == 0)
        return false;
    if (p->is_held && from == 1)
        return true;
    if (p->delay_ns)
        poll(NULL, 0, (int)(p->delay_ns / MS_NS_PER_MS));
    return write_all(p->pairs[i].fd[!from], data, (size_t)n);
}

static void accept_one(struct proxy *p)
{
    int fd = ms_tcp_accept(p->listen_fd);

    if (fd < 0)
        return;
    p->accepted++;
    if (p->count == PROXY_PAIRS_MAX) {
        close(fd);
        return;
    }
    p->pairs[p->count].fd[0] = fd;
    p->pairs[p->count].fd[1] = connect_to(p->target);
    p->pairs[p->count].mute = false;
    p->count++;
}

static int watch(struct proxy *p, struct pollfd *pfd)
{
    int n = 0;

    pfd[n++] = (struct pollfd){.fd = p->wake[0], .events = POLLIN};
    pfd[n++] = (struct pollfd){.fd = p->is_cut ? -1 : p->listen_fd, .events = POLLIN};
    for (unsigned i = 0; i < p->count; i++)
        for (int side = 0; side < 2; side++)
            pfd[n++] = (struct pollfd){
                .fd = p->is_cut || p->pairs[i].mute ? -1 : p->pairs[i].fd[side],
                .events = POLLIN};
    return n;
}

static void serve(struct proxy *p, const struct pollfd *pfd, unsigned count)
{
    for (unsigned i = count; i-- > 0;) {
        bool open = true;

        for (int side = 0; side < 2 && open; side++)
            if (pfd[2 + 2 * i + (unsigned)side].revents)
                open = forward(p, i, side);
        if (!open)
            pair_close(p, i, false);
    }
    if (pfd[1].revents)
        accept_one(p);
}

static void *run(void *arg)
{
    struct proxy *p = arg;

    pthread_mutex_lock(&p->lock);
    while (!p->stop) {
        struct pollfd pfd[2 + 2 * PROXY_PAIRS_MAX];
        int n = watch(p, pfd);
        unsigned count = p->count, changes = p->changes;
        char byte;

        pthread_mutex_unlock(&p->lock);
        poll(pfd, (nfds_t)n, -1);
        pthread_mutex_lock(&p->lock);
        if (pfd[0].revents && read(p->wake[0], &byte, 1) < 0)
            break;
        if (changes == p->changes)
            serve(p, pfd, count);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

void proxy_start(struct proxy *p, uint16_t target)
{
    *p = (struct proxy){.target = target};
    memset(p->fill, -1, sizeof p->fill);
    p->listen_fd = ms_tcp_listen("127.0.0.1", &p->port, NULL);
    assert_true(p->listen_fd >= 0);
    assert_int_equal(pipe2(p->wake, O_CLOEXEC), 0);
    pthread_mutex_init(&p->lock, NULL);
    assert_int_equal(pthread_create(&p->thread, NULL, run, p), 0);
}

void proxy_rig_start(struct proxy *p, struct rig *rig)
{
    proxy_start(p, 0);
    snprintf(p->address, sizeof p->address, "127.0.0.1:%u", p->port);
    rig->tcp = "127.0.0.1";
    rig->address = p->address;
    rig_start(rig);
    p->target = rig->port; /* known now, and nobody has called yet */
}

void proxy_stop(struct proxy *p)
{
    pthread_mutex_lock(&p->lock);
    p->stop = true;
    pthread_mutex_unlock(&p->lock);
    wake(p);
    pthread_join(p->thread, NULL);
    while (p->count)
        pair_close(p, 0, false);
    for (int i = 0; i < PROXY_FILL_MAX; i++)
        ms_fd_close(&p->fill[i]);
    close(p->listen_fd);
    close(p->wake[0]);
    close(p->wake[1]);
}

/* A full backlog answers no SYN, as a cut cable does. */
static void fill_backlog(struct proxy *p)
{
    assert_int_equal(listen(p->listen_fd, 0), 0);
    for (int i = 0; i < PROXY_FILL_MAX; i++) {
        struct pollfd pfd;

        p->fill[i] = connect_to(p->port);
        pfd = (struct pollfd){.fd = p->fill[i], .events = POLLOUT};
        if (poll(&pfd, 1, 50) == 0)
            return;
    }
    fail();
}

void proxy_cut(struct proxy *p)
{
    pthread_mutex_lock(&p->lock);
    p->is_cut = true;
    p->changes++;
    fill_backlog(p);
    pthread_mutex_unlock(&p->lock);
    wake(p);
}

void proxy_heal(struct proxy *p, bool drop_old)
{
    int fd;

    pthread_mutex_lock(&p->lock);
    for (int i = 0; i < PROXY_FILL_MAX; i++)
        ms_fd_close(&p->fill[i]);
    while ((fd = ms_tcp_accept(p->listen_fd)) >= 0)
        close(fd); /* those, and who came while it was cut: a SYN that was lost */
    listen(p->listen_fd, 64);
    for (unsigned i = 0; drop_old && i < p->count; i++)
        p->pairs[i].mute = true;
    p->is_cut = false;
    p->changes++;
    pthread_mutex_unlock(&p->lock);
    wake(p);
}

void proxy_reset(struct proxy *p)
{
    pthread_mutex_lock(&p->lock);
    while (p->count)
        pair_close(p, 0, true);
    p->changes++;
    pthread_mutex_unlock(&p->lock);
    wake(p);
}

void proxy_hold(struct proxy *p, bool is_held)
{
    pthread_mutex_lock(&p->lock);
    p->is_held = is_held;
    pthread_mutex_unlock(&p->lock);
}
