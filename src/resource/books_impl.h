/* books_impl.h - what the files of the books share
 *
 * books.c   nodes, and the tables of who holds what
 * groups.c  placement groups
 * claims.c  what clusters hold
 * seats.c   groups that clusters bring along
 */
#ifndef MS_RESOURCE_BOOKS_IMPL_H
#define MS_RESOURCE_BOOKS_IMPL_H

#include "resource/books.h"

/* Free it; nothing is given back. */
void ms_claim_destroy(struct ms_claim *c);
void ms_group_destroy(struct ms_books *b, struct ms_group *g);
/* The node is marked as gone: groups on it are BROKEN. */
void ms_groups_break(struct ms_books *b, uint32_t node);
/* Give back the last bundles of a group of clusters, which nobody needs. */
void ms_group_cut(struct ms_books *b, struct ms_group *g);

#endif
