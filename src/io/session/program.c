/* program.c - finds this program, and the Python that it is installed for */
#include "io/session/program.h"
#include "base/cleanup.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int ms_program_find(char out[PATH_MAX])
{
    ssize_t len = readlink("/proc/self/exe", out, PATH_MAX - 1);

    if (len < 0)
        return -errno;
    out[len] = 0;
    return 0;
}

int ms_program_find_python(char out[PATH_MAX])
{
    /* bin/muster, and lib/python3.11/site-packages/muster/bin/muster */
    static const char *const beside[] = {"", "../../../../../bin/"};
    char self[PATH_MAX];
    const char *slash;

    if (ms_program_find(self) < 0 || !(slash = strrchr(self, '/')))
        return -ENOENT;
    for (size_t i = 0; i < MS_COUNT(beside); i++) {
        int len = (int)(slash + 1 - self);

        if (snprintf(out, PATH_MAX, "%.*s%spython3", len, self, beside[i]) < PATH_MAX &&
            access(out, X_OK) == 0)
            return 0;
    }
    return -ENOENT;
}
