/* list.h - an intrusive doubly linked list
 *
 * A list head and a link are the same thing; an empty list points at itself. A link that
 * is in no list points at itself too (after ms_list_init or ms_list_remove), so removing
 * twice is harmless. The list owns nothing.
 */
#ifndef MS_BASE_LIST_H
#define MS_BASE_LIST_H

#include "base/cleanup.h"

#include <stdbool.h>
#include <stddef.h>

struct ms_list {
    struct ms_list *prev, *next;
};

static inline void ms_list_init(struct ms_list *l)
{
    l->prev = l->next = l;
}

static inline bool ms_list_is_empty(const struct ms_list *l)
{
    return l->next == l;
}

static inline void ms_list_add_tail(struct ms_list *head, struct ms_list *link)
{
    link->prev = head->prev;
    link->next = head;
    head->prev->next = link;
    head->prev = link;
}

static inline void ms_list_add_head(struct ms_list *head, struct ms_list *link)
{
    ms_list_add_tail(head->next, link);
}

static inline void ms_list_remove(struct ms_list *link)
{
    link->prev->next = link->next;
    link->next->prev = link->prev;
    ms_list_init(link);
}

/* Remove the one behind `link`, which is not the head. */
static inline void ms_list_remove_next(struct ms_list *link)
{
    struct ms_list *next = link->next;

    link->next = next->next;
    next->next->prev = link;
    ms_list_init(next);
}

static inline struct ms_list *ms_list_pop(struct ms_list *head)
{
    struct ms_list *first = head->next;

    if (first == head)
        return NULL;
    /* the analyzer does not follow links. NOLINTNEXTLINE(clang-analyzer-unix.Malloc) */
    ms_list_remove(first);
    return first;
}

/* Move everything from `from` to the tail of `to`. */
static inline void ms_list_splice(struct ms_list *to, struct ms_list *from)
{
    if (ms_list_is_empty(from))
        return;
    from->next->prev = to->prev;
    to->prev->next = from->next;
    from->prev->next = to;
    to->prev = from->prev;
    ms_list_init(from);
}

#define ms_list_entry(link, type, member) MS_CONTAINER(link, type, member)

#define ms_list_first(head, type, member) ms_list_entry((head)->next, type, member)

/* The first one, out of the list; NULL: it is empty. */
#define ms_list_take(head, type, member)                                               \
    ({                                                                                 \
        struct ms_list *ms_taken_ = ms_list_pop(head);                                 \
        ms_taken_ ? ms_list_entry(ms_taken_, type, member) : NULL;                     \
    })

/* Iterate; the current element may be removed or freed. */
#define ms_list_each(pos, head, type, member)                                          \
    for (type *pos = ms_list_entry((head)->next, type, member),                        \
              *pos##_next_ = ms_list_entry(pos->member.next, type, member);            \
         &pos->member != (head);                                                       \
         pos = pos##_next_,                                                            \
              pos##_next_ = ms_list_entry(pos->member.next, type, member))

#endif
