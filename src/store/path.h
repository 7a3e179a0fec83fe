/* path.h - where the store of a node is found, by the processes of that node */
#ifndef MS_STORE_PATH_H
#define MS_STORE_PATH_H

enum { MS_STORE_PATH_MAX = 160 };

/* The path of its socket, in the folder of its agent, which several may share; returns
 * `out`, which has room for MS_STORE_PATH_MAX. */
const char *ms_store_path(const char *dir, const char *node, char *out);

#endif
