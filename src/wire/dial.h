/* dial.h - trying the addresses of a list, one after the other
 *
 * A round goes once through the usable entries of a list (a name may stand for several
 * addresses), and begins with the entry that worked last. Each attempt gives a transport that
 * may still be connecting; its owner says how it went. Nothing here blocks and nothing here
 * locks.
 */
#ifndef MS_WIRE_DIAL_H
#define MS_WIRE_DIAL_H

#include "base/error.h"
#include "io/tcp.h"
#include "wire/transport/tls.h"
#include "wire/transport/transport.h"

struct ms_dial {
    char *text;   /* the list */
    size_t count; /* of its entries */
    size_t first; /* the entry that a round begins with */
    size_t tried; /* entries of this round; the current one is the last of them */
    struct ms_lookup *lookup;
    const struct ms_resolved *found; /* of the current entry, if it is a name */
    size_t found_at;
    unsigned refused, failed; /* attempts of this round */
    int last;                 /* why the last one failed */
};

/* Checks and copies the list. 0, or as ms_addr_list_parse; -EADDRNOTAVAIL: all of it is
 * unix sockets of other hosts. */
int ms_dial_init(struct ms_dial *d, const char *addresses, struct ms_error *err);
void ms_dial_finish(struct ms_dial *d);

/* A new round. */
void ms_dial_restart(struct ms_dial *d);

/* The next attempt: 0 and a transport; -EINPROGRESS: a name is being looked up, ask again
 * after MS_LOOKUP_NS; -ENODATA: the round is over; otherwise this attempt has failed already
 * (as if ms_dial_failed had been told). */
int ms_dial_next(struct ms_dial *d,
                 struct ms_net *net,
                 struct ms_transport **t,
                 struct ms_error *err);

/* How the attempt that ms_dial_next gave went. */
void ms_dial_failed(struct ms_dial *d, int why);
void ms_dial_worked(struct ms_dial *d);

/* After a round: the hosts are there, and nobody listens. False if only one of them was
 * silent: then nothing is known. */
bool ms_dial_was_refused(const struct ms_dial *d);

#endif
