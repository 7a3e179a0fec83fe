/* path.c - where the store of a node is found */
#include "store/path.h"

#include <stdint.h>
#include <stdio.h>

const char *ms_store_path(const char *dir, const char *node, char *out)
{
    uint32_t hash = 2166136261u; /* FNV-1a: names may be too long for a socket's path */

    for (const char *at = node; *at; at++)
        hash = (hash ^ (uint8_t)*at) * 16777619u;
    snprintf(out, MS_STORE_PATH_MAX, "%s/store-%08x.sock", dir, (unsigned)hash);
    return out;
}
