/* machine.h - what this node has to give: CPUs, memory, devices
 *
 * Counts what this process may really use: its affinity and its control group's quota,
 * not what the hardware has.
 */
#ifndef MS_AGENT_MACHINE_MACHINE_H
#define MS_AGENT_MACHINE_MACHINE_H

#include "proto/muster.pb-c.h"

#include <stdint.h>

struct ms_error;

/* All that this node has: what was told, and what was found where nothing was. `told` may
 * be NULL. NULL on failure. */
Muster__NodeShape *
ms_machine_shape(const char *node, const Muster__NodeShape *told, struct ms_error *err);

/* At least 1. */
unsigned ms_machine_cpus(void);
/* Bytes. */
uint64_t ms_machine_memory(void);
/* Bytes that the control groups of this process still allow, their own and those above;
 * UINT64_MAX: they set no limit. Any thread. */
uint64_t ms_machine_memory_left(void);

/* Pure parts, for the tests: whole CPUs of a quota, rounded up; 0: no limit.
 * "200000 100000" or "max 100000" (cpu.max), or the two files of version 1. */
unsigned ms_machine_quota_v2(const char *cpu_max);
unsigned ms_machine_quota_v1(const char *quota_us, const char *period_us);
/* What is left of a group's memory, from its files: the limit ("max": none, UINT64_MAX), what
 * is used, and memory.stat, whose number behind `cache` the kernel takes back when it must. */
uint64_t ms_machine_left(const char *limit,
                         const char *usage,
                         const char *stat,
                         const char *cache);

#endif
