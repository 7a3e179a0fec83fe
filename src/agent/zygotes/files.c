#include "agent/zygotes/files.h"
#include "base/clock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct ms_zygote_file {
    char *path;
    uint64_t size;
    int64_t mtime_ns;
};

void ms_zygote_files_finish(struct ms_zygote_files *files)
{
    for (size_t i = 0; i < files->count; i++)
        free(files->at[i].path);
    free(files->at);
    *files = (struct ms_zygote_files){0};
}

static int grow(struct ms_zygote_files *files)
{
    size_t capacity = files->capacity ? 2 * files->capacity : 16;
    struct ms_zygote_file *at;

    if (files->count < files->capacity)
        return 0;
    at = realloc(files->at, capacity * sizeof *at);
    if (!at)
        return -ENOMEM;
    files->at = at;
    files->capacity = capacity;
    return 0;
}

int ms_zygote_files_add(struct ms_zygote_files *files, const Muster__LoadedFile *file)
{
    struct ms_zygote_file *f;

    if (grow(files) < 0)
        return -ENOMEM;
    f = &files->at[files->count];
    f->path = strdup(file->path);
    if (!f->path)
        return -ENOMEM;
    f->size = file->size;
    f->mtime_ns = file->mtime_ns;
    files->count++;
    return 0;
}

static bool has_changed(const struct ms_zygote_file *f)
{
    struct stat st;

    return stat(f->path, &st) < 0 || (uint64_t)st.st_size != f->size ||
           st.st_mtim.tv_sec * MS_NS_PER_S + st.st_mtim.tv_nsec != f->mtime_ns;
}

const char *ms_zygote_files_changed(const struct ms_zygote_files *files)
{
    for (size_t i = 0; i < files->count; i++)
        if (has_changed(&files->at[i]))
            return files->at[i].path;
    return NULL;
}
