/* amount.h - CPUs and bytes as people read them
 *
 * Both append to `out` and return 0 or -ENOMEM.
 */
#ifndef MS_RESOURCE_AMOUNT_H
#define MS_RESOURCE_AMOUNT_H

#include "base/buf.h"

#include <stdint.h>

/* "4", "1.5", "0.125": thousandths of a CPU. */
int ms_amount_print_cpus(uint64_t cpu_milli, struct ms_buf *out);

/* "512 B", "16.0 GiB": powers of 1024. */
int ms_amount_print_bytes(uint64_t bytes, struct ms_buf *out);

#endif
