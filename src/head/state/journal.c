/* journal.c - a log of changes in a file, written anew when it has grown */
#include "head/state/journal.h"
#include "base/cleanup.h"
#include "proto/muster.pb-c.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

/* A file up to this size is not written anew. */
enum { SMALL = 1 << 20, HEAD_SIZE = 2 * sizeof(uint32_t), PATH_ROOM = 4096 };

struct ms_journal {
    char path[PATH_ROOM], new_path[PATH_ROOM + 8];
    int fd;
    uint64_t size, rewrite_at; /* bytes */
    bool is_rewriting;
    bool has_lost; /* a change could not be written */
    const struct ms_journal_ops *ops;
    void *arg;
};

/* ---- reading --------------------------------------------------------------------- */

/* The record at the beginning of these bytes; how long it is, 0: it is not whole. */
static size_t read_record(struct ms_journal *d, const uint8_t *data, size_t len)
{
    static const uint8_t nothing[1];
    uint32_t head[2];
    Muster__KeptRecord *r;

    if (len < HEAD_SIZE)
        return 0;
    memcpy(head, data, sizeof head);
    if (head[0] > len - HEAD_SIZE || crc32_z(0, data + HEAD_SIZE, head[0]) != head[1])
        return 0;
    r = muster__kept_record__unpack(NULL, head[0], data + HEAD_SIZE);
    if (!r)
        return 0;
    if (!r->deleted)
        data = r->data.len ? r->data.data : nothing;
    d->ops->on_record(d->arg, r->space, r->key, r->deleted ? NULL : data, r->data.len);
    muster__kept_record__free_unpacked(r, NULL);
    return HEAD_SIZE + head[0];
}

static int read_all(struct ms_journal *d)
{
    MS_CLEANUP(ms_cleanup_fd) int fd = open(d->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    struct stat st;
    uint8_t *data;
    size_t at = 0, step = 1;

    if (fd < 0 || fstat(fd, &st) < 0)
        return errno == ENOENT ? 0 : -errno;
    if (!S_ISREG(st.st_mode) || st.st_size == 0)
        return 0;
    data = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED)
        return -errno;
    while (step > 0) {
        step = read_record(d, data + at, (size_t)st.st_size - at);
        at += step;
    }
    munmap(data, (size_t)st.st_size);
    return 0;
}

/* ---- writing --------------------------------------------------------------------- */

/* All or nothing. */
static int append(struct ms_journal *d, const Muster__KeptRecord *r)
{
    size_t len = muster__kept_record__get_packed_size(r);
    MS_CLEANUP(ms_cleanup_free) uint8_t *all = malloc(HEAD_SIZE + len);
    uint32_t head[2] = {(uint32_t)len, 0};
    ssize_t n;

    if (!all)
        return -ENOMEM;
    muster__kept_record__pack(r, all + HEAD_SIZE);
    head[1] = (uint32_t)crc32_z(0, all + HEAD_SIZE, len);
    memcpy(all, head, sizeof head);
    do
        n = pwrite(d->fd, all, HEAD_SIZE + len, (off_t)d->size);
    while (n < 0 && errno == EINTR);
    if (n != (ssize_t)(HEAD_SIZE + len))
        return n < 0 ? -errno : -ENOSPC; /* the next one overwrites it */
    d->size += (uint64_t)n;
    return 0;
}

static int rewrite(struct ms_journal *d)
{
    int old = d->fd, rc = 0;
    uint64_t old_size = d->size;

    d->fd =
        open(d->new_path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (d->fd < 0) {
        rc = -errno;
        d->fd = old;
        return rc;
    }
    d->size = 0;
    d->has_lost = false;
    d->is_rewriting = true;
    d->ops->on_rewrite(d->arg, d);
    d->is_rewriting = false;
    if (d->has_lost || rename(d->new_path, d->path) < 0) {
        rc = d->has_lost ? -ENOSPC : -errno;
        unlink(d->new_path);
        ms_fd_close(&d->fd);
        d->fd = old;
        d->size = old_size;
        return rc;
    }
    ms_fd_close(&old);
    d->rewrite_at = d->size < SMALL ? 2 * (uint64_t)SMALL : 2 * d->size;
    return 0;
}

static void change(struct ms_journal *d, const Muster__KeptRecord *r)
{
    if (d->is_rewriting) {
        d->has_lost = d->has_lost || append(d, r) < 0;
        return;
    }
    if (!d->has_lost && d->size < d->rewrite_at && append(d, r) == 0)
        return;
    d->has_lost = rewrite(d) < 0; /* this change is in what there is */
}

void ms_journal_put(struct ms_journal *d,
                    uint32_t space,
                    const char *key,
                    const uint8_t *data,
                    size_t len)
{
    Muster__KeptRecord r = MUSTER__KEPT_RECORD__INIT;

    r.space = space;
    r.key = (char *)(uintptr_t)key;
    r.data = (ProtobufCBinaryData){len, (uint8_t *)(uintptr_t)data};
    r.deleted = !data;
    if (d)
        change(d, &r);
}

void ms_journal_delete(struct ms_journal *d, uint32_t space, const char *key)
{
    ms_journal_put(d, space, key, NULL, 0);
}

/* ---- life ------------------------------------------------------------------------ */

int ms_journal_open(struct ms_journal **out,
                    const char *dir,
                    const char *name,
                    bool is_kept,
                    const struct ms_journal_ops *ops,
                    void *arg,
                    struct ms_error *err)
{
    struct ms_journal *d = calloc(1, sizeof *d);
    int rc = d ? 0 : -ENOMEM;

    if (d) {
        *d = (struct ms_journal){.fd = -1, .ops = ops, .arg = arg};
        if (snprintf(d->path, sizeof d->path, "%s/%s", dir, name) >=
            (int)sizeof d->path)
            rc = -ENAMETOOLONG;
        snprintf(d->new_path, sizeof d->new_path, "%s.new", d->path);
    }
    if (rc == 0 && is_kept)
        rc = read_all(d);
    if (rc == 0)
        rc = rewrite(d);
    if (rc < 0) {
        ms_journal_close(d);
        return ms_error_sys(err, rc, "cannot keep '%.200s/%s'", dir, name);
    }
    *out = d;
    return 0;
}

void ms_journal_close(struct ms_journal *d)
{
    if (!d)
        return;
    ms_fd_close(&d->fd);
    free(d);
}
