#include "head/nodes/tail.h"
#include "base/cleanup.h"

#include <ctype.h>
#include <fcntl.h>
#include <string.h>

enum { READ_MAX = 2048 };

static size_t read_end(const char *path, char *out)
{
    MS_CLEANUP(ms_cleanup_fd) int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    off_t size = fd < 0 ? 0 : lseek(fd, 0, SEEK_END);
    ssize_t n;

    if (size <= 0)
        return 0;
    n = pread(fd, out, READ_MAX, size > READ_MAX ? size - READ_MAX : 0);
    return n > 0 ? (size_t)n : 0;
}

/* In place: what does not print becomes a blank, line ends become bars. `out` has three
 * times the room. */
static size_t join_lines(const char *in, size_t len, char *out)
{
    size_t n = 0;

    while (len && isspace((unsigned char)in[len - 1]))
        len--;
    for (size_t i = 0; i < len; i++) {
        if (in[i] == '\n') {
            memcpy(out + n, " | ", 3);
            n += 3;
        } else {
            out[n++] = (unsigned char)in[i] < ' ' ? ' ' : in[i];
        }
    }
    return n;
}

const char *ms_tail_read(const char *path, char *out, size_t room)
{
    char raw[READ_MAX], line[3 * READ_MAX];
    size_t len = join_lines(raw, read_end(path, raw), line);
    size_t from = len < room ? 0 : len - (room - 1);

    memcpy(out, line + from, len - from);
    out[len - from] = 0;
    return out;
}
