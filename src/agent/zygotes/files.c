/* files.c - the user's files that a zygote has loaded modules from, as they were then */
#include "agent/zygotes/zygote_impl.h"
#include "base/clock.h"
#include "base/proto.h"

#include <errno.h>
#include <sys/stat.h>

static Muster__LoadedFile **files_of(const struct ms_zygote_files *files, size_t *count)
{
    *count = files->list.len / sizeof(Muster__LoadedFile *);
    return (Muster__LoadedFile **)(void *)files->list.data;
}

void ms_zygote_files_finish(struct ms_zygote_files *files)
{
    size_t count;
    Muster__LoadedFile **at = files_of(files, &count);

    for (size_t i = 0; i < count; i++)
        muster__loaded_file__free_unpacked(at[i], NULL);
    ms_buf_finish(&files->list);
}

int ms_zygote_files_add(struct ms_zygote_files *files, const Muster__LoadedFile *file)
{
    ProtobufCMessage *copy = ms_proto_copy(&file->base);

    if (copy && ms_buf_append(&files->list, &copy, sizeof copy) == 0)
        return 0;
    protobuf_c_message_free_unpacked(copy, NULL);
    return -ENOMEM;
}

static bool has_changed(const Muster__LoadedFile *f)
{
    struct stat st;

    return stat(f->path, &st) < 0 || (uint64_t)st.st_size != f->size ||
           st.st_mtim.tv_sec * MS_NS_PER_S + st.st_mtim.tv_nsec != f->mtime_ns;
}

const char *ms_zygote_files_changed(const struct ms_zygote_files *files)
{
    size_t count;
    Muster__LoadedFile **at = files_of(files, &count);

    for (size_t i = 0; i < count; i++)
        if (has_changed(at[i]))
            return at[i]->path;
    return NULL;
}
