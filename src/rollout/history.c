/* history.c - the lengths that prompts had, in a file */
#include "rollout/rollout_impl.h"

#include "base/buf.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

enum { READ_SIZE = 1 << 20 };

static int read_all(FILE *f, struct ms_buf *out)
{
    MS_CLEANUP(ms_cleanup_free) char *block = malloc(READ_SIZE);
    size_t n;

    if (!block)
        return -ENOMEM;
    while ((n = fread(block, 1, READ_SIZE, f)) > 0)
        if (ms_buf_append(out, block, n) < 0)
            return -ENOMEM;
    return ferror(f) ? -EIO : 0;
}

int ms_rollout_history_load(struct ms_rollout *r, struct ms_error *err)
{
    MS_CLEANUP(ms_cleanup_file) FILE *f = fopen(r->history, "re");
    MS_CLEANUP(ms_buf_finish) struct ms_buf bytes;
    int rc;

    ms_buf_init(&bytes);
    if (!f)
        return errno == ENOENT ? 0 : ms_error_sys(err, -errno, "%s", r->history);
    rc = read_all(f, &bytes);
    if (rc < 0)
        return ms_error_sys(err, rc, "%s", r->history);
    rc = ms_lengths_load(r->lengths, bytes.data, bytes.len, err);
    return rc < 0 ? ms_error_wrap(err, "%s", r->history) : 0;
}

static int write_all(const char *path, const struct ms_buf *bytes)
{
    MS_CLEANUP(ms_cleanup_file) FILE *f = fopen(path, "we");
    bool is_whole;

    if (!f)
        return -errno;
    is_whole = fwrite(bytes->data, 1, bytes->len, f) == bytes->len && fflush(f) == 0 &&
               fdatasync(fileno(f)) == 0;
    return is_whole ? 0 : -EIO;
}

/* To another name first: whoever is killed meanwhile leaves the old one. */
int ms_rollout_history_save(struct ms_rollout *r)
{
    MS_CLEANUP(ms_buf_finish) struct ms_buf bytes;
    char path[PATH_MAX];
    int rc;

    ms_buf_init(&bytes);
    r->saved = r->learnt;
    if (snprintf(path, sizeof path, "%s.%d", r->history, (int)r->pid) >=
        (int)sizeof path)
        return -ENAMETOOLONG;
    rc = ms_lengths_save(r->lengths, &bytes);
    if (rc == 0)
        rc = write_all(path, &bytes);
    if (rc == 0 && rename(path, r->history) < 0)
        rc = -errno;
    if (rc < 0)
        unlink(path);
    return rc;
}
