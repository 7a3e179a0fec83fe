/* heap.c - settings of the C library's malloc for those who allocate the same again and again */
#include "base/heap.h"
#include "base/limits.h"

#include <malloc.h>
#include <stdlib.h>
#include <string.h>

static bool is_set_by_user(void)
{
    static const char *const names[] = {
        "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_TOP_PAD_"};
    const char *tunables = getenv("GLIBC_TUNABLES");

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (getenv(names[i]))
            return true;
    return tunables && strstr(tunables, "glibc.malloc.");
}

bool ms_heap_keep(void)
{
    if (is_set_by_user())
        return false;
    mallopt(M_MMAP_THRESHOLD, MS_HEAP_MAP_MIN);
    mallopt(M_TRIM_THRESHOLD, MS_HEAP_KEEP_MAX);
    return true;
}
