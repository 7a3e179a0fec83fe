/* shared.c - the same bytes read by several processes, in plain C
 *
 * shared MIB RANKS ROUNDS [small]: shared memory that every process has mapped and read
 * before, in huge pages if the system gives them and `small` is not said. A round is one
 * byte of every page read by all the processes, who are told and answer over sockets.
 * Prints three medians in microseconds: of a round, of a round whose bytes are copied in
 * before, and of that memcpy alone.
 */
#include "times.h"

#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

enum { RANKS_MAX = 64, WARM = 3, PAGE = 4096, BLOCK = 2 << 20 };

struct shared {
    int fd;
    size_t size;
    uint8_t *write;
    const uint8_t *read; /* of this process */
};

static uint8_t *map(const struct shared *s, int prot)
{
    uint8_t *room = mmap(NULL,
                         s->size + BLOCK,
                         PROT_NONE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                         -1,
                         0);
    uint8_t *at;

    if (room == MAP_FAILED)
        return NULL;
    at = room + (BLOCK - (uintptr_t)room % BLOCK) % BLOCK; /* huge pages fit there */
    at = mmap(at, s->size, prot, MAP_SHARED | MAP_FIXED, s->fd, 0);
    return at == MAP_FAILED ? NULL : at;
}

static int shared_open(struct shared *s, size_t size, bool is_small)
{
    s->size = size;
    s->fd = memfd_create("bench", MFD_CLOEXEC);
    if (s->fd < 0 || ftruncate(s->fd, (off_t)size) < 0)
        return -1;
    s->write = map(s, PROT_READ | PROT_WRITE);
    if (!s->write)
        return -1;
    for (size_t at = 0; at < size; at += BLOCK)
        s->write[at] = 1;
    if (!is_small)
        madvise(s->write, size, MADV_COLLAPSE);
    memset(s->write, 1, size);
    return 0;
}

/* The worker: a byte comes, the sum goes. */
static int serve(struct shared *s, int fd)
{
    char go;

    s->read = map(s, PROT_READ);
    if (!s->read)
        return 1;
    while (read(fd, &go, 1) == 1) {
        uint64_t sum = 0;

        for (size_t at = 0; at < s->size; at += PAGE)
            sum += ((const volatile uint8_t *)s->read)[at];
        if (write(fd, &sum, sizeof sum) != sizeof sum)
            return 1;
    }
    return 0;
}

static int start(struct shared *s, int *fds, size_t ranks)
{
    for (size_t i = 0; i < ranks; i++) {
        int pair[2];
        pid_t pid;

        if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) < 0)
            return -1;
        pid = fork();
        if (pid < 0)
            return -1;
        if (pid == 0) {
            close(pair[0]);
            for (size_t j = 0; j < i; j++)
                close(fds[j]);
            _exit(serve(s, pair[1]));
        }
        close(pair[1]);
        fds[i] = pair[0];
    }
    return 0;
}

static int round_trip(const struct shared *s, const int *fds, size_t ranks)
{
    uint64_t sum;

    for (size_t i = 0; i < ranks; i++)
        if (write(fds[i], "", 1) != 1)
            return -1;
    for (size_t i = 0; i < ranks; i++)
        if (read(fds[i], &sum, sizeof sum) != sizeof sum || sum != s->size / PAGE)
            return -1;
    return 0;
}

/* What each round took; `from` is copied in first, which took copies[i]. */
static int measure(const struct shared *s,
                   const int *fds,
                   size_t ranks,
                   const uint8_t *from,
                   int64_t *times,
                   int64_t *copies,
                   size_t count)
{
    for (size_t i = 0; i < WARM + count; i++) {
        int64_t begin = now_ns(), copied;

        if (from)
            memcpy(s->write, from, s->size);
        copied = now_ns();
        if (round_trip(s, fds, ranks) < 0)
            return -1;
        if (i < WARM)
            continue;
        times[i - WARM] = now_ns() - begin;
        if (copies)
            copies[i - WARM] = copied - begin;
    }
    return 0;
}

static double median_us(int64_t *times, size_t count)
{
    qsort(times, count, sizeof *times, compare_times);
    return (double)times[count / 2] / 1e3;
}

int main(int argc, char **argv)
{
    size_t size = (argc > 1 ? strtoul(argv[1], NULL, 10) : 256) << 20;
    size_t ranks = argc > 2 ? strtoul(argv[2], NULL, 10) : 8;
    size_t count = argc > 3 ? strtoul(argv[3], NULL, 10) : 20;
    int64_t *in_place = calloc(count, sizeof *in_place);
    int64_t *copied = calloc(count, sizeof *copied);
    int64_t *copies = calloc(count, sizeof *copies);
    uint8_t *from = malloc(size);
    struct shared s = {0};
    int fds[RANKS_MAX];

    if (!in_place || !copied || !copies || !from || ranks > RANKS_MAX || !count)
        return 1;
    memset(from, 1, size);
    if (shared_open(&s, size, argc > 4 && strcmp(argv[4], "small") == 0) < 0 ||
        start(&s, fds, ranks) < 0 ||
        measure(&s, fds, ranks, NULL, in_place, NULL, count) < 0 ||
        measure(&s, fds, ranks, from, copied, copies, count) < 0)
        return 1;
    for (size_t i = 0; i < ranks; i++)
        close(fds[i]);
    while (wait(NULL) > 0)
        ;
    printf("%.2f %.2f %.2f\n",
           median_us(in_place, count),
           median_us(copied, count),
           median_us(copies, count));
    return 0;
}
