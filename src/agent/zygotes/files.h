/* zygote_files.h - the user's files that a zygote has loaded modules from
 *
 * As they were when they were loaded. One that has another size or time now, or is gone,
 * means that a fresh interpreter would not be what this zygote is.
 */
#ifndef MS_AGENT_ZYGOTES_FILES_H
#define MS_AGENT_ZYGOTES_FILES_H

#include "proto/muster.pb-c.h"

#include <stdbool.h>
#include <stddef.h>

struct ms_zygote_file;

struct ms_zygote_files {
    struct ms_zygote_file *at;
    size_t count, capacity;
};

void ms_zygote_files_finish(struct ms_zygote_files *files);

/* 0 or -ENOMEM. */
int ms_zygote_files_add(struct ms_zygote_files *files, const Muster__LoadedFile *file);

/* The path of one that has changed, borrowed; NULL: none has. One stat for each. */
const char *ms_zygote_files_changed(const struct ms_zygote_files *files);

#endif
