#include "orchestrator/ray/content.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/name.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>

enum { DEPTH_MAX = 16, FILES_MAX = 20000 };

static int read_file(int fd, struct ms_content_file *f)
{
    struct stat st;

    if (fstat(fd, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode))
        return -EINVAL;
    if ((uint64_t)st.st_size > MS_CONTENT_FILE_MAX)
        return -EFBIG;
    f->mode = st.st_mode & 0100 ? 0755 : 0644;
    f->len = (size_t)st.st_size;
    f->data = malloc(f->len ? f->len : 1);
    if (!f->data)
        return -ENOMEM;
    for (size_t at = 0; at < f->len;) {
        ssize_t got = read(fd, f->data + at, f->len - at);

        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got < 0 ? -errno : -EIO; /* it became shorter meanwhile */
        at += (size_t)got;
    }
    return 0;
}

static int grow(struct ms_content *c)
{
    size_t capacity = c->capacity ? 2 * c->capacity : 64;
    struct ms_content_file *files;

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

int ms_content_add(struct ms_content *c,
                   const char *name,
                   const char *path,
                   struct ms_error *err)
{
    MS_CLEANUP(ms_cleanup_fd) int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct ms_content_file f = {0};
    int rc = fd < 0 ? -errno : grow(c);

    if (rc == 0)
        rc = read_file(fd, &f);
    if (rc == 0 && !(f.name = strdup(name)))
        rc = -ENOMEM;
    if (rc < 0) {
        free(f.data);
        return ms_error_sys(err, rc, "the package needs %s", path);
    }
    c->files[c->count++] = f;
    return 0;
}

static bool is_left_out(const char *name)
{
    size_t len = strlen(name);

    return name[0] == '.' || strcmp(name, "__pycache__") == 0 ||
           (len > 4 && strcmp(name + len - 4, ".pyc") == 0);
}

static int add_below(struct ms_content *c,
                     const char *name,
                     const char *path,
                     unsigned depth,
                     struct ms_error *err);

static int add_entry(struct ms_content *c,
                     const char *name,
                     const char *path,
                     const char *entry,
                     unsigned depth,
                     struct ms_error *err)
{
    MS_CLEANUP(ms_buf_finish) struct ms_buf in = {0}, at = {0};
    struct stat st;

    if (ms_buf_printf(&in, "%s/%s", name, entry) < 0 ||
        ms_buf_printf(&at, "%s/%s", path, entry) < 0 || !ms_buf_str(&in) ||
        !ms_buf_str(&at))
        return ms_error_set(err, -ENOMEM, "out of memory");
    if (stat(ms_buf_str(&at), &st) < 0)
        return 0; /* a link to nowhere, or it has just gone */
    if (S_ISDIR(st.st_mode))
        return add_below(c, ms_buf_str(&in), ms_buf_str(&at), depth + 1, err);
    if (!S_ISREG(st.st_mode))
        return 0;
    return ms_content_add(c, ms_buf_str(&in), ms_buf_str(&at), err);
}

static int add_below(struct ms_content *c,
                     const char *name,
                     const char *path,
                     unsigned depth,
                     struct ms_error *err)
{
    DIR *dir = depth < DEPTH_MAX ? opendir(path) : NULL;
    const struct dirent *d;
    int rc = 0;

    if (!dir)
        return ms_error_sys(err,
                            depth < DEPTH_MAX ? -errno : -ELOOP,
                            "the package needs the folder %s",
                            path);
    while (rc == 0 && (d = readdir(dir)))
        if (!is_left_out(d->d_name))
            rc = add_entry(c, name, path, d->d_name, depth, err);
    closedir(dir);
    return rc;
}

int ms_content_add_tree(struct ms_content *c,
                        const char *name,
                        const char *path,
                        struct ms_error *err)
{
    return add_below(c, name, path, 0, err);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct ms_content_file *)a)->name,
                  ((const struct ms_content_file *)b)->name);
}

static bool digest_file(EVP_MD_CTX *md, const struct ms_content_file *f)
{
    uint64_t facts[] = {strlen(f->name), f->mode, f->len};

    return EVP_DigestUpdate(md, facts, sizeof facts) == 1 &&
           EVP_DigestUpdate(md, f->name, facts[0]) == 1 &&
           EVP_DigestUpdate(md, f->data, f->len) == 1;
}

int ms_content_name(struct ms_content *c, char out[33])
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

void ms_content_finish(struct ms_content *c)
{
    for (size_t i = 0; i < c->count; i++) {
        free(c->files[i].name);
        free(c->files[i].data);
    }
    free(c->files);
    *c = (struct ms_content){0};
}
