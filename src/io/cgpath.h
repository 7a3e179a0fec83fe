/* cgpath.h - where a process's control groups are, from what /proc says
 *
 * Pure. Version 2 has one tree; version 1 one for each controller; a machine may have
 * both ("hybrid"), and a container sees only a part of the tree (the mount's root).
 */
#ifndef MS_IO_CGPATH_H
#define MS_IO_CGPATH_H

#include <stdbool.h>
#include <stddef.h>

/* The folder of our group for `controller` ("memory", "cpu"), from the texts of
 * /proc/self/cgroup and /proc/self/mountinfo. 0 and *is_v2; -ENOENT: there is none;
 * -ENAMETOOLONG. In a hybrid set-up version 1 wins where it has the controller; "" asks
 * for version 2 alone. */
int ms_cgpath_find(const char *cgroup,
                   const char *mountinfo,
                   const char *controller,
                   char *out,
                   size_t room,
                   bool *is_v2);

/* The number behind a key in a text of "key number" lines; -1: no such key. */
long long ms_cgpath_number(const char *text, const char *key);

#endif
