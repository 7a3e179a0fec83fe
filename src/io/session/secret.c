/* secret.c - read a secret from a file that others cannot read */
#include "io/session/secret.h"
#include "base/cleanup.h"
#include "base/name.h"
#include "io/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

enum { DIGITS = 2 * MS_SECRET_FILE_SIZE };

/* A group that root has chosen may read it: so do credentials of service managers. */
static int check(int fd, const char *path, struct ms_error *err)
{
    struct stat st;

    if (fstat(fd, &st) < 0)
        return ms_error_sys(err, -errno, "cannot look at '%s'", path);
    if (!S_ISREG(st.st_mode))
        return ms_error_set(err, -EINVAL, "'%s' is not a file", path);
    if (st.st_uid != geteuid() && st.st_uid != 0)
        return ms_error_set(err,
                            -EPERM,
                            "the secret in '%s' belongs to user %u, not to us",
                            path,
                            (unsigned)st.st_uid);
    if (st.st_mode & (st.st_uid == 0 ? 027 : 077))
        return ms_error_set(err,
                            -EPERM,
                            "'%s' has mode %03o, others could read the secret: "
                            "chmod 600 it",
                            path,
                            (unsigned)st.st_mode & 0777);
    return 0;
}

int ms_secret_read(const char *path,
                   uint8_t out[MS_SECRET_FILE_SIZE],
                   struct ms_error *err)
{
    MS_CLEANUP(ms_cleanup_fd)
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    uint8_t secret[MS_SECRET_FILE_SIZE];
    char text[DIGITS + 2];
    ssize_t len;
    int rc;

    if (fd < 0)
        return ms_error_sys(err, -errno, "cannot read the secret in '%s'", path);
    rc = check(fd, path, err);
    if (rc < 0)
        return rc;
    len = ms_fd_read_all(fd, text, sizeof text);
    if (len == DIGITS + 1 && text[DIGITS] == '\n')
        len--;
    text[len == DIGITS ? DIGITS : 0] = 0;
    rc = len == DIGITS ? ms_unhex(text, secret, sizeof secret) : -EINVAL;
    if (rc == 0)
        memcpy(out, secret, sizeof secret);
    explicit_bzero(text, sizeof text);
    explicit_bzero(secret, sizeof secret);
    if (len < 0)
        return ms_error_sys(err, (int)len, "cannot read the secret in '%s'", path);
    if (rc < 0)
        return ms_error_set(
            err, -EINVAL, "'%s' does not hold a secret: 64 hexadecimal digits", path);
    return 0;
}
