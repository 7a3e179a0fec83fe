/* amount.h - CPUs, bytes and numbers of things as people read them
 *
 * They are given by value, for a printf in the same expression:
 *     ms_buf_printf(out, "%s CPUs", ms_amount_cpus(n->cpu_milli).text)
 */
#ifndef MS_RESOURCE_AMOUNT_H
#define MS_RESOURCE_AMOUNT_H

#include <stdint.h>

struct ms_amount {
    char text[32];
};

/* "4", "1.5", "0.125": thousandths of a CPU. */
struct ms_amount ms_amount_cpus(uint64_t cpu_milli);

/* "512 B", "16.0 GiB": powers of 1024. */
struct ms_amount ms_amount_bytes(uint64_t bytes);

/* "1 worker", "4 workers". The noun is short. */
struct ms_amount ms_amount_count(uint64_t n, const char *noun);

#endif
