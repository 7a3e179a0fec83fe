/* zygote_choice.h - which zygote serves a key, and which ones go. Pure.
 *
 * All look at a list of zygotes (zygote_impl.h) and change nothing. A zygote is idle when
 * it has nothing to do and no other that was derived from it lives: those end with it.
 */
#ifndef MS_AGENT_ZYGOTES_CHOICE_H
#define MS_AGENT_ZYGOTES_CHOICE_H

#include "agent/zygotes/zygote_impl.h"

/* Keys are compared with what a zygote was made with, and with that and the variables that
 * its imports have changed: a worker that was forked from it has those. */

/* The one of this key; it may be starting, or not forkable. Neither dead nor stale. */
struct ms_zygote *ms_zygote_find(const struct ms_list *list,
                                 const struct ms_zygote_key *key);

/* The one that has most of what is asked for, and nothing else. */
struct ms_zygote *ms_zygote_find_base(const struct ms_list *list,
                                      const struct ms_zygote_key *key);

/* One that has all of what is asked for, and maybe more. */
struct ms_zygote *ms_zygote_find_richer(const struct ms_list *list,
                                        const struct ms_zygote_key *key);

bool ms_zygote_is_idle(const struct ms_list *list, const struct ms_zygote *z);

/* When one that is idle ends; MS_NEVER: a living driver has asked for it. */
int64_t ms_zygote_expires_ns(const struct ms_zygote *z);

/* An idle one whose time is over; NULL: none. */
struct ms_zygote *ms_zygote_find_over(const struct ms_list *list, int64_t now_ns);

/* The idle one that gives its place to another; NULL: none is. */
struct ms_zygote *ms_zygote_find_spare(const struct ms_list *list);

/* When to look for one that is over; MS_NEVER: not by time. */
int64_t ms_zygote_next_end_ns(const struct ms_list *list);

#endif
