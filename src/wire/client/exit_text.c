/* exit_text.c - how a worker's process ended, in words for errors */
#include "wire/client/exit_text.h"

#include <stdio.h>
#include <string.h>

const char *ms_exit_describe(const Muster__Exit *e, char out[MS_EXIT_TEXT_MAX])
{
    const char *signal = e->signaled ? sigabbrev_np(e->code) : NULL;
    const char *known = e->requested ? "was stopped on request"
                        : e->out_of_memory
                            ? "was killed because it reached its memory limit"
                        : e->code < 0 ? "died"
                                      : NULL;

    if (known)
        snprintf(out, MS_EXIT_TEXT_MAX, "%s", known);
    else if (signal)
        snprintf(
            out, MS_EXIT_TEXT_MAX, "was killed by signal %d (SIG%s)", e->code, signal);
    else if (e->signaled)
        snprintf(out, MS_EXIT_TEXT_MAX, "was killed by signal %d", e->code);
    else
        snprintf(out, MS_EXIT_TEXT_MAX, "exited with code %d", e->code);
    return out;
}
