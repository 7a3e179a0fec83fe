/* hosts.h - many names in one text: "n[0-3]", "gpu[001-128,200]", "rack1-n[2,4]"
 *
 * One pair of brackets with numbers and ranges, both ends included; a first number with
 * leading zeros gives all numbers of its range that width. A text without brackets is one
 * name. Pure.
 */
#ifndef MS_JOB_HOSTS_H
#define MS_JOB_HOSTS_H

#include "base/error.h"

#include <stddef.h>

#define MS_HOSTS_MAX ((size_t)1 << 20) /* names in one text */

/* 0 with *names (malloc'd, and each of them) and *count, in the order written; -EINVAL with
 * the reason; -E2BIG; -ENOMEM. Every name is one that a node may have. */
int ms_hosts_expand(const char *text,
                    char ***names,
                    size_t *count,
                    struct ms_error *err);
void ms_hosts_free(char **names, size_t count);

#endif
