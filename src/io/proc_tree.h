/* proc_tree.h - where a process and its descendants stand, by the kernel's word
 *
 * For programs that nobody can ask. A line for each process with its command, and one for each
 * of its threads: what state it is in, and in which functions of the kernel it waits. These are
 * read from /proc/PID/task/TID/stack where that is allowed, else from wchan, else missing.
 */
#ifndef MS_IO_PROC_TREE_H
#define MS_IO_PROC_TREE_H

#include <sys/types.h>

#define MS_PROC_TREE_PROCESSES_MAX 32
#define MS_PROC_TREE_THREADS_MAX   16 /* of each process */
#define MS_PROC_TREE_FRAMES_MAX    6  /* of each thread */

/* Malloc'd; NULL: it has ended, or out of memory. Reads /proc once. */
char *ms_proc_tree(pid_t root);

#endif
