/* node_check.c - `muster node-check`: what two nodes do to be checked together
 *
 * Each writes, copies and compares memory; then both send each other the same amount at once
 * and compare what arrives. An agent starts it as a rank of a cluster of two, or of one: RANK,
 * WORLD_SIZE, MASTER_ADDR and MASTER_PORT say who and where. MUSTER_CHECK_TOKEN is known to
 * the two alone: a stranger at the port is told nothing and turned away soon. It ends with 0
 * if all was as it should be, and otherwise says on stderr what was not.
 */
#include "base/cleanup.h"
#include "base/clock.h"
#include "cli/cli.h"
#include "cli/out.h"
#include "io/sock.h"
#include "io/tcp.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    MEMORY_SIZE = 64 << 20,
    MEMORY_PASSES = 3,
    SENT_SIZE = 32 << 20,
    PIECE = 1 << 20
};
enum { TOKEN_SIZE = 32, HALF = TOKEN_SIZE / 2 };

#define DEADLINE_NS (600 * MS_NS_PER_S) /* the head has a shorter one */
#define REDIAL_NS   (50 * MS_NS_PER_MS)
#define GREET_NS    (2 * MS_NS_PER_S) /* one caller; the next one waits for it */

struct place {
    uint32_t rank, size;
    uint16_t port;
    const char *host, *token;
    int64_t deadline_ns;
};

/* ---- memory ------------------------------------------------------------------------ */

static uint64_t next_word(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static void fill(uint64_t *at, size_t count, uint64_t *state)
{
    for (size_t i = 0; i < count; i++)
        at[i] = next_word(state);
}

static bool is_as_filled(const uint64_t *at, size_t count, uint64_t *state)
{
    bool is_same = true;

    for (size_t i = 0; i < count; i++)
        is_same &= at[i] == next_word(state);
    return is_same;
}

static int check_memory(struct ms_error *err)
{
    size_t count = MEMORY_SIZE / sizeof(uint64_t) / 2;
    MS_CLEANUP(ms_cleanup_free) uint64_t *all = malloc(MEMORY_SIZE);

    if (!all)
        return ms_error_set(
            err, -ENOMEM, "%d MiB of memory are not to be had", MEMORY_SIZE >> 20);
    for (uint64_t pass = 1; pass <= MEMORY_PASSES; pass++) {
        uint64_t written = pass, read = pass;

        fill(all, count, &written);
        memcpy(all + count, all, count * sizeof *all);
        if (!is_as_filled(all + count, count, &read))
            return ms_error_set(err, -EIO, "memory does not keep what was written");
    }
    return 0;
}

/* ---- connecting -------------------------------------------------------------------- */

static int wait_for(int fd, short events, int64_t until_ns)
{
    struct pollfd p = {.fd = fd, .events = events};

    return ms_poll_until(&p, 1, until_ns);
}

/* All of it, within the deadline. 0, -ETIMEDOUT, -EPIPE or why not. */
static int read_all(int fd, void *at, size_t len, int64_t until_ns)
{
    size_t done = 0;

    while (done < len) {
        ssize_t n = recv(fd, (char *)at + done, len - done, 0);

        if (n == 0)
            return -EPIPE;
        if (n < 0 && errno != EAGAIN && errno != EINTR)
            return -errno;
        if (n < 0 && wait_for(fd, POLLIN, until_ns) <= 0)
            return -ETIMEDOUT;
        done += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

static int write_all(int fd, const void *at, size_t len, int64_t until_ns)
{
    size_t done = 0;

    while (done < len) {
        ssize_t n = send(fd, (const char *)at + done, len - done, MSG_NOSIGNAL);

        if (n < 0 && errno != EAGAIN && errno != EINTR)
            return -errno;
        if (n < 0 && wait_for(fd, POLLOUT, until_ns) <= 0)
            return -ETIMEDOUT;
        done += n > 0 ? (size_t)n : 0;
    }
    return 0;
}

static int expect(int fd, const char *half, int64_t until_ns)
{
    char told[HALF];
    int rc = read_all(fd, told, sizeof told, until_ns);

    return rc == 0 && memcmp(told, half, HALF) != 0 ? -EPERM : rc;
}

/* The caller says the first half of the word. One that does hears the second half. */
static int greet_caller(const struct place *p, int fd)
{
    int64_t until_ns = ms_now_ns() + GREET_NS;
    int rc = expect(fd, p->token, until_ns);

    return rc == 0 ? write_all(fd, p->token + HALF, HALF, until_ns) : rc;
}

static int greet_called(const struct place *p, int fd)
{
    int rc = write_all(fd, p->token, HALF, p->deadline_ns);

    return rc == 0 ? expect(fd, p->token + HALF, p->deadline_ns) : rc;
}

static int take_call(const struct place *p, struct ms_error *err)
{
    uint16_t port = p->port;
    MS_CLEANUP(ms_cleanup_fd) int listener = ms_tcp_listen(p->host, &port, err);

    if (listener < 0)
        return listener;
    while (wait_for(listener, POLLIN, p->deadline_ns) > 0) {
        int fd = ms_tcp_accept(listener);

        if (fd >= 0 && greet_caller(p, fd) == 0)
            return fd;
        ms_fd_close(&fd);
    }
    return ms_error_set(err, -ETIMEDOUT, "the other node did not come");
}

/* 0: it is connected and is the other one. */
static int dial(const struct place *p, const struct ms_resolved *at, int *fd)
{
    int rc;

    *fd = ms_tcp_connect((const struct sockaddr *)&at->at[0], at->len[0], NULL);
    if (*fd < 0)
        return *fd;
    while ((rc = ms_tcp_connected(*fd)) == -EINPROGRESS)
        if (wait_for(*fd, POLLOUT, p->deadline_ns) <= 0)
            return -ETIMEDOUT;
    return rc < 0 ? rc : greet_called(p, *fd);
}

static int call(const struct place *p, struct ms_error *err)
{
    struct ms_resolved at;
    int rc = ms_resolve(p->host, p->port, &at, err), fd = -1;

    if (rc < 0 || at.count == 0)
        return rc < 0 ? rc : ms_error_set(err, -ENXIO, "no host '%s'", p->host);
    do {
        rc = dial(p, &at, &fd);
        if (rc == 0)
            return fd;
        ms_fd_close(&fd);
        ms_poll_until(NULL, 0, ms_now_ns() + REDIAL_NS); /* it may not listen yet */
    } while (ms_now_ns() < p->deadline_ns);
    return ms_error_set(
        err, rc, "%s:%u cannot be reached: %s", p->host, p->port, strerror(-rc));
}

/* ---- exchanging -------------------------------------------------------------------- */

struct flow {
    uint64_t state; /* of what is sent, or compared */
    size_t done;    /* of SENT_SIZE */
    size_t made;    /* in pieces, of what is sent */
    uint64_t piece[PIECE / sizeof(uint64_t)];
};

static int send_some(int fd, struct flow *f)
{
    size_t at = f->done % PIECE;
    ssize_t n;

    if (f->done == f->made) {
        fill(f->piece, PIECE / sizeof(uint64_t), &f->state);
        f->made += PIECE;
    }
    n = send(fd, (const char *)f->piece + at, PIECE - at, MSG_NOSIGNAL);
    if (n < 0)
        return -errno;
    f->done += (size_t)n;
    return 0;
}

static int receive_some(int fd, struct flow *f)
{
    size_t at = f->done % PIECE;
    ssize_t n = recv(fd, (char *)f->piece + at, PIECE - at, 0);

    if (n <= 0)
        return n == 0 ? -EPIPE : -errno;
    f->done += (size_t)n;
    if (f->done % PIECE == 0 &&
        !is_as_filled(f->piece, PIECE / sizeof(uint64_t), &f->state))
        return -EILSEQ;
    return 0;
}

static int exchange(const struct place *p, int fd, struct flow *out, struct flow *in)
{
    while (out->done < SENT_SIZE || in->done < SENT_SIZE) {
        struct pollfd both = {.fd = fd};
        int rc = 0;

        both.events = (short)((out->done < SENT_SIZE ? POLLOUT : 0) |
                              (in->done < SENT_SIZE ? POLLIN : 0));
        if (ms_poll_until(&both, 1, p->deadline_ns) <= 0)
            return -ETIMEDOUT;
        if (in->done < SENT_SIZE && (both.revents & (POLLIN | POLLHUP | POLLERR)))
            rc = receive_some(fd, in);
        if ((rc == 0 || rc == -EAGAIN) && out->done < SENT_SIZE &&
            (both.revents & POLLOUT))
            rc = send_some(fd, out);
        if (rc < 0 && rc != -EAGAIN && rc != -EINTR)
            return rc;
    }
    return 0;
}

static int check_network(const struct place *p, struct ms_error *err)
{
    MS_CLEANUP(ms_cleanup_fd) int fd = p->rank == 0 ? take_call(p, err) : call(p, err);
    MS_CLEANUP(ms_cleanup_free) struct flow *out = calloc(1, sizeof *out);
    MS_CLEANUP(ms_cleanup_free) struct flow *in = calloc(1, sizeof *in);
    int rc;

    if (fd < 0)
        return fd;
    if (!out || !in)
        return ms_error_set(err, -ENOMEM, "out of memory");
    out->state = p->rank + 1;
    in->state = 2 - p->rank;
    rc = exchange(p, fd, out, in);
    if (rc == -EILSEQ)
        return ms_error_set(err, rc, "other bytes arrived than were sent");
    if (rc < 0)
        return ms_error_set(err,
                            rc,
                            "the connection to the other node broke after %zu MiB: %s",
                            in->done >> 20,
                            strerror(-rc));
    return 0;
}

/* ---- the command ------------------------------------------------------------------- */

static uint32_t number(const char *name)
{
    const char *text = getenv(name);

    return text ? (uint32_t)strtoul(text, NULL, 10) : UINT32_MAX;
}

enum ms_exit ms_cmd_node_check(const struct ms_cli *cli)
{
    struct place p = {.rank = number("RANK"),
                      .size = number("WORLD_SIZE"),
                      .port = (uint16_t)number("MASTER_PORT"),
                      .host = getenv("MASTER_ADDR"),
                      .token = getenv("MUSTER_CHECK_TOKEN"),
                      .deadline_ns = ms_now_ns() + DEADLINE_NS};
    struct ms_error err = {0};
    int rc;

    if (p.size < 1 || p.size > 2 || p.rank >= p.size || !p.host || !p.token ||
        strlen(p.token) != TOKEN_SIZE)
        return ms_out_fail(cli,
                           MS_EXIT_USAGE,
                           "it is for the node check of a job, started by an agent");
    rc = check_memory(&err);
    if (rc == 0 && p.size == 2)
        rc = check_network(&p, &err);
    return rc < 0 ? ms_out_fail(cli, MS_EXIT_FAILED, "%s", err.text) : MS_EXIT_OK;
}
