/* files.c - reads the files of a package, and names it by what is in them */
#include "orchestrator/ray/package/files.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/name.h"

#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <openssl/evp.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>

enum { DEPTH_MAX = 16, FILES_MAX = 20000 };

int ms_package_files_read(int fd, size_t max, uint8_t **data, size_t *len)
{
    MS_CLEANUP(ms_cleanup_free) uint8_t *bytes = NULL;
    struct stat st;

    if (fstat(fd, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode))
        return -EINVAL;
    if ((uint64_t)st.st_size > max)
        return -EFBIG;
    bytes = malloc((size_t)st.st_size + 1);
    if (!bytes)
        return -ENOMEM;
    for (size_t at = 0; at < (size_t)st.st_size;) {
        ssize_t got = read(fd, bytes + at, (size_t)st.st_size - at);

        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got < 0 ? -errno : -EIO; /* it became shorter meanwhile */
        at += (size_t)got;
    }
    *data = MS_TAKE(bytes);
    *len = (size_t)st.st_size;
    return st.st_mode & 0100 ? 0755 : 0644;
}

static int grow(struct ms_package_files *c)
{
    size_t capacity = c->capacity ? 2 * c->capacity : 64;
    struct ms_package_file *files;

    if (c->count < c->capacity)
        return 0;
    if (c->count >= FILES_MAX)
        return -E2BIG;
    files = realloc(c->files, capacity * sizeof *files);
    if (!files)
        return -ENOMEM;
    c->files = files;
    c->capacity = capacity;
    return 0;
}

int ms_package_files_add(struct ms_package_files *c,
                         const char *name,
                         const char *path,
                         struct ms_error *err)
{
    MS_CLEANUP(ms_cleanup_fd) int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct ms_package_file f = {0};
    int rc = fd < 0 ? -errno : grow(c);

    if (rc == 0)
        rc = ms_package_files_read(fd, MS_PACKAGE_FILE_MAX, &f.data, &f.len);
    if (rc > 0 && !(f.name = strdup(name)))
        rc = -ENOMEM;
    if (rc < 0) {
        free(f.data);
        return ms_error_sys(err, rc, "the package needs %s", path);
    }
    f.mode = (uint32_t)rc;
    c->files[c->count++] = f;
    return 0;
}

static bool is_left_out(const char *name)
{
    size_t len = strlen(name);

    return name[0] == '.' || strcmp(name, "__pycache__") == 0 ||
           (len > 4 && strcmp(name + len - 4, ".pyc") == 0);
}

/* One entry of a tree whose root has `skip` characters. */
static int add_entry(struct ms_package_files *c,
                     const char *name,
                     size_t skip,
                     const FTSENT *e,
                     struct ms_error *err)
{
    MS_CLEANUP(ms_buf_finish) struct ms_buf in = {0};
    int problem = e->fts_info == FTS_DC || e->fts_level > DEPTH_MAX ? ELOOP
                  : e->fts_info == FTS_DNR || (e->fts_info == FTS_NS && !e->fts_level)
                      ? e->fts_errno
                      : 0;

    if (problem)
        return ms_error_sys(
            err, -problem, "the package needs the folder %s", e->fts_path);
    if (e->fts_info != FTS_F)
        return 0; /* a folder, a link to nowhere, or it has just gone */
    if (ms_buf_printf(&in, "%s%s", name, e->fts_path + skip) < 0 || !ms_buf_str(&in))
        return ms_error_set(err, -ENOMEM, "out of memory");
    return ms_package_files_add(c, ms_buf_str(&in), e->fts_path, err);
}

int ms_package_files_add_tree(struct ms_package_files *c,
                              const char *name,
                              const char *path,
                              struct ms_error *err)
{
    char *const roots[] = {(char *)(uintptr_t)path, NULL};
    FTS *tree = fts_open(roots, FTS_LOGICAL | FTS_NOCHDIR, NULL);
    FTSENT *e;
    int rc = tree ? 0 : ms_error_sys(err, -errno, "the package needs %s", path);

    while (rc == 0 && (e = fts_read(tree)))
        if (e->fts_level > 0 && is_left_out(e->fts_name))
            fts_set(tree, e, FTS_SKIP);
        else
            rc = add_entry(c, name, strlen(path), e, err);
    if (tree)
        fts_close(tree);
    return rc;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct ms_package_file *)a)->name,
                  ((const struct ms_package_file *)b)->name);
}

static bool digest_file(EVP_MD_CTX *md, const struct ms_package_file *f)
{
    uint64_t facts[] = {strlen(f->name), f->mode, f->len};

    return EVP_DigestUpdate(md, facts, sizeof facts) == 1 &&
           EVP_DigestUpdate(md, f->name, facts[0]) == 1 &&
           EVP_DigestUpdate(md, f->data, f->len) == 1;
}

int ms_package_files_hash(struct ms_package_files *c, char out[33])
{
    EVP_MD_CTX *md = EVP_MD_CTX_new();
    uint8_t hash[EVP_MAX_MD_SIZE];
    bool good = md && EVP_DigestInit_ex(md, EVP_sha256(), NULL) == 1;

    if (c->count)
        qsort(c->files, c->count, sizeof *c->files, by_name);
    for (size_t i = 0; good && i < c->count; i++)
        good = digest_file(md, &c->files[i]);
    good = good && EVP_DigestFinal_ex(md, hash, NULL) == 1;
    EVP_MD_CTX_free(md);
    if (!good)
        return -ENOMEM;
    ms_hex(hash, 16, out);
    return 0;
}

void ms_package_files_finish(struct ms_package_files *c)
{
    for (size_t i = 0; i < c->count; i++) {
        free(c->files[i].name);
        free(c->files[i].data);
    }
    free(c->files);
    *c = (struct ms_package_files){0};
}
