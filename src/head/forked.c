/* forked.c - closing, in a forked child, what a loop of the parent watches */
#include "head/forked.h"
#include "base/cleanup.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

enum {
    INFO_MAX = 128 << 10, /* of one fdinfo file: more than a thousand descriptors */
    WATCHED_MAX = 1024,
};

/* A forked child of a program with threads must not use the heap. */
static char info[INFO_MAX];

struct watched {
    int fd;
    unsigned long inode;
};
static struct watched watched[WATCHED_MAX];

/* The text of /proc/self/fdinfo/<fd>. */
static bool read_info(int fd)
{
    char path[48];
    MS_CLEANUP(ms_cleanup_fd) int file = -1;
    size_t len = 0;
    ssize_t n;

    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
    file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return false;
    while (len < sizeof info - 1 &&
           (n = read(file, info + len, sizeof info - 1 - len)) > 0)
        len += (size_t)n;
    info[len] = 0;
    return true;
}

/* "tfd:        5 events:       19 data: ...  pos:0 ino:1a2b sdev:8" for each; 0 if it
 * is no epoll. */
static size_t parse_info(void)
{
    size_t count = 0;

    for (char *at = strstr(info, "tfd:"); at && count < WATCHED_MAX;
         at = strstr(at + 4, "tfd:")) {
        char *inode = strstr(at, "ino:");

        watched[count].fd = (int)strtol(at + 4, NULL, 10);
        watched[count].inode = inode ? strtoul(inode + 4, NULL, 16) : 0;
        count++;
    }
    return count;
}

static bool watches(size_t count, int fd)
{
    for (size_t i = 0; i < count; i++)
        if (watched[i].fd == fd)
            return true;
    return false;
}

/* A number may name something else by now. */
static void close_watched(const struct watched *w)
{
    struct stat st;

    if (fstat(w->fd, &st) == 0 && (unsigned long)st.st_ino == w->inode)
        close(w->fd);
}

/* True if `epoll` is the one. */
static bool close_if_watching(int epoll, int fd)
{
    size_t count = read_info(epoll) ? parse_info() : 0;

    if (!watches(count, fd))
        return false;
    close(epoll);
    for (size_t i = 0; i < count; i++)
        close_watched(&watched[i]);
    return true;
}

/* The open descriptors, by the kernel's own call: opendir would take memory. */
void ms_forked_close(int fd)
{
    MS_CLEANUP(ms_cleanup_fd)
    int dir = open("/proc/self/fdinfo", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    _Alignas(struct dirent64) char entries[4096];
    long n;

    if (dir < 0)
        return;
    while ((n = syscall(SYS_getdents64, dir, entries, sizeof entries)) > 0)
        for (long at = 0; at < n;) {
            const struct dirent64 *e = (const void *)(entries + at);

            at += e->d_reclen;
            if (e->d_name[0] != '.' && atoi(e->d_name) != dir &&
                close_if_watching(atoi(e->d_name), fd))
                return;
        }
}
