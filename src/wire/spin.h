/* spin.h - leases to poll instead of sleeping
 *
 * On an idle virtual machine waking a core costs more than the whole call, so a caller
 * and its worker poll for up to MS_SPIN_NS before they block. Pollers that outnumber
 * the cores ruin each other, so a pair (one caller, one worker, one call outstanding)
 * needs a lease, and there are only cores - 1 of them on a machine (CPU quota counted).
 * The leases are a page shared by all processes of a session. A lease is not given
 * back: it is used again and again by its pair, and any process may take it once it has
 * been unused for a moment, so a dead owner holds nothing.
 */
#ifndef MS_WIRE_SPIN_H
#define MS_WIRE_SPIN_H

#include <stdbool.h>
#include <stdint.h>

struct ms_spin;

/* Map the page at `path` (a file of at least 4096 zero bytes, made by the head). NULL:
 * no page, nobody spins; all calls below accept that. */
struct ms_spin *ms_spin_open(const char *path);
void ms_spin_close(struct ms_spin *s);

/* How often clusters of this session were resized or initialized: a handle looks again
 * when it has grown. It stands here because it must be seen at once by all processes of the
 * node. */
uint64_t ms_spin_changes(const struct ms_spin *s);
void ms_spin_add_change(struct ms_spin *s);

/* Take or renew the lease of `pair` (not 0). False: none is free. */
bool ms_spin_take(struct ms_spin *s, uint64_t pair, int64_t now_ns);

/* Cores that this process may use at once: affinity and CPU quota. At least 1. */
unsigned ms_spin_cores(void);

static inline void ms_spin_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

#endif
