/* tree.h - files and folders below a descriptor, without following a symbolic link
 *
 * Every function works relative to an open folder, so that nobody who renames or links
 * things meanwhile can lead us elsewhere.
 */
#ifndef MS_IO_TREE_H
#define MS_IO_TREE_H

#include <dirent.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

static inline void ms_cleanup_dir(DIR **d)
{
    if (*d)
        closedir(*d);
}

/* Read until the end of the file, or until `room` is full. The count, or a negative errno. */
ssize_t ms_fd_read_all(int fd, void *out, size_t room);

/* The text of a file, such as one of /proc, cut to room - 1 bytes, with a NUL behind. Its
 * length, or a negative errno. */
int ms_file_read(const char *path, char *out, size_t room);

/* Open a folder (not a link to one) that belongs to us. A descriptor, or a negative
 * errno; -EPERM: it is another user's. `at` may be AT_FDCWD. */
int ms_tree_open(int at, const char *name);

/* Call fn for each entry but "." and ".." until it returns non-zero, and return that.
 * The entry may be removed by fn. */
int ms_tree_each(int dir, int (*fn)(void *arg, int dir, const char *name), void *arg);

/* Remove a file, link or folder with all that is in it; a link is removed, never what
 * it points to. 0, also when it is not there; else the first negative errno. */
int ms_tree_remove(int at, const char *name);

/* A new file with this content, mode 0600. -EEXIST if the name is taken. */
int ms_tree_write(int at, const char *name, const void *data, size_t len);

/* Read a regular file of ours of at most room - 1 bytes, with a NUL behind. Its length,
 * or a negative errno; -EFBIG: it is longer. */
int ms_tree_read(int at, const char *name, char *out, size_t room);

#endif
