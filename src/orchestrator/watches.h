/* watches.h - who hears the changes of a inventory, each from its own cursor
 *
 * Nothing is told from inside of a call: whoever changes the inventory wakes the watches,
 * which ask for a pump soon.
 */
#ifndef MS_ORCHESTRATOR_WATCHES_H
#define MS_ORCHESTRATOR_WATCHES_H

#include "orchestrator/inventory.h"

struct ms_watches {
    struct ms_list all; /* ms_orch_watch */
    const struct ms_inventory *inventory;
    void (*pump_soon)(void *arg); /* have ms_watches_pump called, later */
    void *arg;
};

void ms_watches_init(struct ms_watches *w,
                     const struct ms_inventory *inventory,
                     void (*pump_soon)(void *arg),
                     void *arg);
/* Nobody hears anything any more. */
void ms_watches_finish(struct ms_watches *w);

/* As orchestrator.h has them. */
struct ms_orch_watch *ms_watches_add(struct ms_watches *w,
                                     uint64_t cursor,
                                     ms_orch_watched *watched,
                                     void *arg);
void ms_watches_remove(struct ms_orch_watch *w); /* NULL is nothing */

/* The inventory has changed. */
void ms_watches_wake(struct ms_watches *w);
/* Tell what has not been told. */
void ms_watches_pump(struct ms_watches *w);

#endif
