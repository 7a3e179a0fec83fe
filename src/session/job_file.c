/* job_file.c - the description of a job, from a file */
#include "session/job_file.h"
#include "base/cleanup.h"
#include "io/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

static int read_text(const char *path, char **text, size_t *size)
{
    MS_CLEANUP(ms_cleanup_fd) int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    ssize_t len;

    if (fd < 0 || fstat(fd, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode))
        return -EINVAL;
    if ((size_t)st.st_size > MS_YAML_FILE_MAX)
        return -EFBIG;
    *size = (size_t)st.st_size;
    *text = malloc(*size + 1);
    if (!*text)
        return -ENOMEM;
    len = ms_fd_read_all(fd, *text, *size);
    if (len < 0)
        return (int)len;
    return (size_t)len == *size ? 0 : -EIO;
}

int ms_job_file_read(struct ms_job *job, const char *path, struct ms_error *err)
{
    MS_CLEANUP(ms_cleanup_free) char *text = NULL;
    size_t size = 0;
    int rc = read_text(path, &text, &size);

    if (rc == 0)
        return ms_job_read(job, path, text, size, err);
    *job = (struct ms_job){0};
    return ms_error_sys(err, rc, "cannot read '%s'", path);
}
