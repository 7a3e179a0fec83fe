/* files.h - the files that go into a package, in memory; private to package.c */
#ifndef MS_ORCHESTRATOR_RAY_PACKAGE_FILES_H
#define MS_ORCHESTRATOR_RAY_PACKAGE_FILES_H

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

#define MS_PACKAGE_FILE_MAX ((size_t)256 << 20)

struct ms_package_file {
    char *name; /* in the package */
    uint32_t mode;
    uint8_t *data;
    size_t len;
};

struct ms_package_files {
    struct ms_package_file *files;
    size_t count, capacity;
};

/* All of a regular file of at most `max` bytes, malloc'd, with a byte more room. The mode
 * that it has in a package, or a negative errno. */
int ms_package_files_read(int fd, size_t max, uint8_t **data, size_t *len);
/* One file; it follows links. */
int ms_package_files_add(struct ms_package_files *c,
                         const char *name,
                         const char *path,
                         struct ms_error *err);
/* A folder with all that is in it, but what Python has compiled. */
int ms_package_files_add_tree(struct ms_package_files *c,
                              const char *name,
                              const char *path,
                              struct ms_error *err);
/* In the order of names; and 32 hexadecimal digits (and a NUL), a hash of it all. */
int ms_package_files_hash(struct ms_package_files *c, char out[33]);
void ms_package_files_finish(struct ms_package_files *c);

#endif
