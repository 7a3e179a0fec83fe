/* program.h - this program, and the Python that it is installed for */
#ifndef MS_IO_SESSION_PROGRAM_H
#define MS_IO_SESSION_PROGRAM_H

#include <limits.h>

/* The file that runs: 0, or a negative errno. */
int ms_program_find(char out[PATH_MAX]);

/* python3 of the environment that the program is installed in: beside it, or where pip puts a
 * wheel's programs. 0, or -ENOENT: there is none. */
int ms_program_find_python(char out[PATH_MAX]);

#endif
