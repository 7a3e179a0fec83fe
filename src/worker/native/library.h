/* library.h - where the library of a class is: "libreward.so:reward" */
#ifndef MS_WORKER_NATIVE_LIBRARY_H
#define MS_WORKER_NATIVE_LIBRARY_H

/* The library of this class, whose path may be relative to the folder, by its full path;
 * malloc'd. NULL: it is not there, so that workers look for it where they are; or out of
 * memory. */
char *ms_library_find(const char *worker_cls, const char *folder);

#endif
