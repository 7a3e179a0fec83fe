/* exits.h - how the last workers ended, for those who ask later
 *
 * Keeps the last MS_EXITS_KEPT ends, the newest MS_EXITS_LINES_KEPT of them with their
 * last lines, and who waits to hear of an end that has not come.
 */
#ifndef MS_WIRE_CLIENT_EXITS_H
#define MS_WIRE_CLIENT_EXITS_H

#include "base/limits.h"
#include "base/list.h"
#include "proto/muster.pb-c.h"

#include <stdint.h>

struct ms_exits {
    Muster__WorkerExited *kept[MS_EXITS_KEPT]; /* a ring; NULL: unused */
    unsigned next;
    struct ms_list asks;
    unsigned ask_count;
};

void ms_exits_init(struct ms_exits *e);
void ms_exits_finish(struct ms_exits *e);

/* Remember a copy. -ENOMEM: it is not remembered. */
int ms_exits_add(struct ms_exits *e, const Muster__WorkerExited *exited);

/* The end of this worker, borrowed until the next add; NULL: unknown or forgotten. */
const Muster__WorkerExited *ms_exits_find(const struct ms_exits *e, uint64_t uid);

/* `asker` wants to hear when `about` has ended. Asking twice is asking once. -ENOSPC:
 * too many wait. */
int ms_exits_ask(struct ms_exits *e, uint64_t asker, uint64_t about);
/* The next one who waits for `about`, who then no longer waits; 0: nobody. */
uint64_t ms_exits_take_asker(struct ms_exits *e, uint64_t about);
/* `asker` is gone. */
void ms_exits_forget_asker(struct ms_exits *e, uint64_t asker);

#endif
