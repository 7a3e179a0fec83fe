/* driver_impl.h - what the files of driver.h share
 *
 * driver.c       the record: made, found, ended
 * driver_link.c  its link: what it asks, and its answers
 * driver_tell.c  what it is told
 */
#ifndef MS_HEAD_DRIVERS_DRIVER_IMPL_H
#define MS_HEAD_DRIVERS_DRIVER_IMPL_H

#include "head/drivers/driver.h"

/* EXPECTED, in head->drivers; NULL: out of memory. */
struct ms_driver *ms_driver_create(struct ms_head *h, uint64_t id);
void ms_driver_destroy(struct ms_driver *d);
/* The number of its newest request, if it was given up before; 0: it was not. */
uint64_t ms_driver_given_up(const struct ms_head *h, uint64_t id);
/* Its clusters end, and then its record. `why`: one clause, for people. */
void ms_driver_end(struct ms_driver *d, int64_t grace_ns, const char *why);
/* Tell on_driver that it has come (NULL), or why it has gone. */
void ms_driver_report(const struct ms_driver *d, const char *gone);
/* In ENDING: is all of it gone? Then it is told so, if it asked, and forgotten. */
void ms_driver_settle(struct ms_driver *d);

#endif
