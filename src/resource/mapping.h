/* mapping.h - device mappings, as people write them
 *
 * A mapping is an ordered list of global device ids: rank r of a cluster gets the r-th
 * run of num_gpus_per_worker of them. Two ways of writing, which may be joined by '+':
 *
 *   0-15                        a run, both ends included
 *   0,1,4-7                     single ids and runs
 *   [0, 1, 4]                   a list
 *   list(range(0,8))            as ROLL's users write it; range(8), range(0,8,2) too
 *   list(range(0,8)) + [8, 9]
 *
 * The text is parsed, never evaluated. Order is kept, and so are repeated ids: whether
 * they make sense is the plan's business. "[]" is an empty mapping; an empty text is an
 * error. Pure.
 */
#ifndef MS_RESOURCE_MAPPING_H
#define MS_RESOURCE_MAPPING_H

#include "base/buf.h"
#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

#define MS_MAPPING_TEXT_MAX ((size_t)64 << 10) /* characters of a mapping */
#define MS_MAPPING_IDS_MAX  ((size_t)1 << 20)  /* devices in a mapping */
#define MS_MAPPING_ID_MAX   (((uint32_t)1 << 24) - 1)

/* 0 with *ids (malloc'd; NULL when empty) and *count; -EINVAL: not a mapping, and `err`
 * names the character, counted from 1; -E2BIG: beyond a limit above; -ENOMEM. */
int ms_mapping_parse(const char *text,
                     uint32_t **ids,
                     size_t *count,
                     struct ms_error *err);

/* Append the ids, each plus `base`, as a short text that parses back to them, e.g.
 * "0-7,9"; "none" if there are none. 0 or -ENOMEM. */
int ms_mapping_print(const uint32_t *ids,
                     size_t count,
                     uint32_t base,
                     struct ms_buf *out);

#endif
