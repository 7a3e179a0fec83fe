/* forked.h - in a forked child: the descriptors of a loop that runs in the parent
 *
 * The epoll descriptor is shared with the parent, so nothing may be removed from it
 * here, and the loop's memory may be in any state, because its thread was not copied.
 * What can be done safely is to ask the kernel which epoll it is and what it watches,
 * and to close the child's copies.
 */
#ifndef MS_HEAD_FORKED_H
#define MS_HEAD_FORKED_H

/* Close the epoll that watches `fd`, and all that it watches, `fd` too. Takes no lock
 * and no memory. */
void ms_forked_close(int fd);

#endif
