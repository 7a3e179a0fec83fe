/* ping.c - a bare blocking ping-pong of 48 bytes between two processes
 *
 * ping [ROUNDS]: read and write on a unix socket, nothing else.
 */
#include "times.h"

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SIZE = 48, WARM = 2000 };

static int echo(int fd)
{
    char frame[SIZE];

    while (read(fd, frame, SIZE) == SIZE)
        if (write(fd, frame, SIZE) != SIZE)
            return 1;
    return 0;
}

static int ping(int fd, int64_t *times, size_t count)
{
    char frame[SIZE] = {0};

    for (size_t i = 0; i < WARM + count; i++) {
        int64_t begin = now_ns();

        if (write(fd, frame, SIZE) != SIZE || read(fd, frame, SIZE) != SIZE)
            return -1;
        if (i >= WARM)
            times[i - WARM] = now_ns() - begin;
    }
    return 0;
}

int main(int argc, char **argv)
{
    size_t count = argc > 1 ? strtoul(argv[1], NULL, 10) : 20000;
    int64_t *times = calloc(count, sizeof *times);
    int fds[2];
    pid_t pid;

    if (!times || socketpair(AF_UNIX, SOCK_STREAM, 0, fds) < 0)
        return 1;
    pid = fork();
    if (pid == 0) {
        close(fds[0]);
        _exit(echo(fds[1]));
    }
    close(fds[1]);
    if (pid < 0 || ping(fds[0], times, count) < 0)
        return 1;
    close(fds[0]);
    waitpid(pid, NULL, 0);
    print_times(times, count);
    free(times);
    return 0;
}
