/* history.c - the lengths that prompts had, in a file */
#include "rollout/rollout_impl.h"

#include "base/buf.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

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

char *ms_rollout_history_of(const char *role)
{
    const char *folder = getenv("MUSTER_CHECKPOINT");
    char *path = NULL;

    if (!folder || !*folder || asprintf(&path, "%s/lengths-%s", folder, role) < 0)
        return NULL;
    return path;
}

/* ---- saved ------------------------------------------------------------------------- */

/* What is to be written, by whichever thread; it has all that it needs. */
struct save {
    struct ms_rollout *r;
    char path[PATH_MAX], temporary[PATH_MAX];
    struct ms_lengths_saving at;
    struct ms_buf bytes;
    uint64_t learnt; /* groups that are in it */
};

static void save_destroy(struct save *s)
{
    if (s)
        ms_buf_finish(&s->bytes);
    free(s);
}

static void note(struct ms_rollout *r, int rc, uint64_t learnt)
{
    struct ms_error why = {0};

    if (rc == 0) {
        r->saved = learnt;
        r->save_stats.saves++;
        return;
    }
    ms_error_sys(&why, rc, "%s", r->history);
    snprintf(r->save_stats.error, sizeof r->save_stats.error, "%s", why.text);
    r->save_stats.failures++;
}

/* Under the lock. NULL: it was noted why not. */
static struct save *save_prepare(struct ms_rollout *r)
{
    static _Atomic unsigned number; /* schedulers may have the same path by mistake */
    struct save *s = calloc(1, sizeof *s);
    int length;

    if (!s) {
        note(r, -ENOMEM, 0);
        return NULL;
    }
    s->r = r;
    s->learnt = r->learnt;
    ms_buf_init(&s->bytes);
    length = snprintf(s->temporary,
                      sizeof s->temporary,
                      "%s.%d.%u",
                      r->history,
                      (int)r->pid,
                      ++number);
    if (length >= (int)sizeof s->temporary) {
        note(r, -ENAMETOOLONG, 0);
        save_destroy(s);
        return NULL;
    }
    snprintf(s->path, sizeof s->path, "%s", r->history);
    return s;
}

/* The lengths as they are now, in parts: tokens wait for none of them for long. */
static int save_collect(struct save *s)
{
    int rc = 1;

    while (rc > 0) {
        MS_LOCK(&s->r->lock);
        rc = ms_lengths_save(s->r->lengths, &s->at, &s->bytes);
    }
    return rc;
}

/* The folder of a checkpoint may not be there before the first one is written. */
static FILE *open_new(const char *path)
{
    FILE *f = fopen(path, "we");
    char folder[PATH_MAX];
    char *end;

    if (f || errno != ENOENT)
        return f;
    snprintf(folder, sizeof folder, "%s", path);
    end = strrchr(folder, '/');
    if (!end || end == folder)
        return NULL;
    *end = '\0';
    return mkdir(folder, 0777) < 0 && errno != EEXIST ? NULL : fopen(path, "we");
}

static int write_all(const char *path, const struct ms_buf *bytes)
{
    MS_CLEANUP(ms_cleanup_file) FILE *f = open_new(path);

    if (!f)
        return -errno;
    errno = EIO;
    return fwrite(bytes->data, 1, bytes->len, f) == bytes->len && fflush(f) == 0 &&
                   fdatasync(fileno(f)) == 0
               ? 0
               : -errno;
}

/* To another name first: a process that is killed meanwhile leaves the old one. */
static int save_write(const struct save *s)
{
    int rc = write_all(s->temporary, &s->bytes);

    if (rc == 0 && rename(s->temporary, s->path) < 0)
        rc = -errno;
    if (rc < 0)
        unlink(s->temporary);
    return rc;
}

static void save_do(struct save *s)
{
    struct ms_rollout *r = s->r;
    uint64_t learnt = s->learnt;
    int rc = save_collect(s);

    if (rc == 0)
        rc = save_write(s);
    save_destroy(s);
    MS_LOCK(&r->lock);
    note(r, rc, learnt);
    r->is_saving = false;
}

static void *save_run(void *arg)
{
    save_do(arg);
    return NULL;
}

void ms_rollout_history_save(struct ms_rollout *r)
{
    struct save *s;
    int rc;

    if (r->is_saving)
        return; /* next time */
    if (r->has_saver)
        pthread_join(r->saver, NULL); /* it has ended */
    r->has_saver = false;
    s = save_prepare(r);
    if (!s)
        return;
    rc = -pthread_create(&r->saver, NULL, save_run, s);
    r->is_saving = r->has_saver = rc == 0;
    if (rc < 0) {
        note(r, rc, 0);
        save_destroy(s);
    }
}

void ms_rollout_history_finish(struct ms_rollout *r)
{
    struct save *s = NULL;

    if (r->has_saver)
        pthread_join(r->saver, NULL);
    r->has_saver = false;
    pthread_mutex_lock(&r->lock);
    if (r->history && r->learnt != r->saved)
        s = save_prepare(r);
    pthread_mutex_unlock(&r->lock);
    if (s)
        save_do(s);
}
