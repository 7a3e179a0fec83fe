/* books_impl.h - what the files of the books share
 *
 * books.c    nodes and groups
 * claims.c   what clusters hold
 * holders.c  who holds the devices of a node, for people
 */
#ifndef MS_RESOURCE_BOOKS_IMPL_H
#define MS_RESOURCE_BOOKS_IMPL_H

#include "resource/books.h"

/* Free it; nothing is given back. */
void ms_claim_destroy(struct ms_claim *c);
/* Something was given back: groups that are ending and free are removed, others are tried. */
void ms_books_settle(struct ms_books *b);

#endif
