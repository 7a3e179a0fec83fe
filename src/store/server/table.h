/* table.h - the objects of one node's store, who holds them, and for how long
 *
 * An object is named by the node that it was made on and a number there. Its entry here
 * is one of
 *
 *   ours         made on this node; has its bytes here
 *   a copy    of another node's object: without bytes (a process here only holds a
 *                reference), or with a copy that is being received, or with a whole one
 *
 * Counts. A holder is a process of this node, or another node, which counts once for each
 * time that it was given one of ours. An object has gone when no holder
 * has a count other than zero.
 *
 * Grants. A process that answers a call with an object gives a count to the caller, which
 * confirms it when the answer has arrived. A grant that is not confirmed by its deadline
 * lapses. Grant and confirmation may come in any order: what is confirmed counts, and its grant
 * then adds nothing, also if it was lost. A confirmation that comes after its
 * grant has lapsed brings the count back, if the object is still there. An answer that is not
 * sent after all, because the caller waits no more, takes its grants back.
 *
 * A copy whose last count has gone is kept while there is room, if its bytes are whole;
 * `on_unheld` says so. Pins keep an object for as long as the agent itself reads or writes
 * its bytes.
 *
 * Reads. A process says when it reads an object and when it only holds it: one that is
 * whole, is not read and not promised in a grant, is idle, and may be spilled:
 * it loses its room, and keeps its entry with what the owner of the table needs to bring
 * it back.
 *
 * Slices. A range of one of ours may be an object too, in the same memory. It keeps the
 * whole one, and that in its place. A copy of a slice is not kept without holders:
 * its origin would not say when it has become useless.
 *
 * Pure: state and time in, state out. What must be done besides comes by callbacks, which
 * must not change the table.
 */
#ifndef MS_STORE_TABLE_H
#define MS_STORE_TABLE_H

#include "base/buf.h"
#include "base/list.h"
#include "base/map.h"
#include "store/server/space.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { MS_SITE_MAX = 120, MS_HOLDER_NAME_MAX = 80 };

struct ms_object {
    struct ms_table *table;
    uint64_t node, id;
    uint64_t len;
    uint64_t at;   /* in the arena, if has_room */
    bool has_room; /* a range of the arena is its */
    bool is_ready; /* there is memory behind the range */
    bool is_whole; /* all bytes are there */
    bool is_copy;
    bool is_slice;
    struct ms_object *whole; /* of a slice of one of ours: pinned */
    unsigned pins;
    int64_t reads;   /* of processes of this node */
    int64_t used_ns; /* when that changed last */
    /* NULL: it is not in a file; the owner's of the table */
    struct ms_spilled *spilled;
    int64_t made_ns;
    char site[MS_SITE_MAX]; /* where in the user's program */
    struct ms_list holds;
    void *user; /* the owner's of the table */

    /* the table's */
    struct ms_list link;
};

enum ms_holder_kind { MS_HOLDER_PROCESS, MS_HOLDER_NODE };

struct ms_holder {
    struct ms_table *table;
    uint64_t id;
    enum ms_holder_kind kind;
    pid_t pid;
    char name[MS_HOLDER_NAME_MAX];
    struct ms_list holds;
    uint64_t statement, differences; /* ms_table_state_begin */
    struct ms_list link;             /* the table's */
};

/* That a holder has an object. */
struct ms_hold {
    struct ms_object *object;
    struct ms_holder *holder;
    int64_t count;
    int64_t early;  /* confirmations that came before their grants */
    int64_t late;   /* grants that have lapsed: their confirmations may still come */
    int64_t leases; /* of the count: grants that are not confirmed yet */
    int64_t reads;
    uint64_t statement; /* the last one that named it */
    int64_t since_ns;
    struct ms_list of_object, of_holder;
};

struct ms_table_ops {
    /* It goes now; its range is given back afterwards. */
    void (*on_free)(void *arg, struct ms_object *o);
    /* A copy has lost its last holder here (it is kept, or goes). */
    void (*on_unheld)(void *arg, struct ms_object *o);
};

struct ms_table {
    uint64_t node; /* ours */
    uint64_t next_id;
    struct ms_space *space;
    struct ms_map objects; /* by node and id */
    struct ms_map holders;
    struct ms_list all;         /* objects, oldest first; of which */
    struct ms_list unheld;      /* copies without holders, the longest unused first */
    struct ms_list holder_list; /* holders, in the order of coming */
    struct ms_list leases;      /* in the order of their deadlines */
    uint64_t allocated;         /* bytes ever */
    const struct ms_table_ops *ops;
    void *arg;
};

/* The arena has `size` bytes, of which `limit` may be used. -ENOMEM. */
int ms_table_init(struct ms_table *t,
                  uint64_t node,
                  uint64_t size,
                  uint64_t limit,
                  const struct ms_table_ops *ops,
                  void *arg);
/* Without callbacks. */
void ms_table_finish(struct ms_table *t);

/* ---- holders --------------------------------------------------------------------- */

/* NULL: out of memory, or there is one with this id. */
struct ms_holder *ms_table_add_holder(struct ms_table *t,
                                      uint64_t id,
                                      enum ms_holder_kind kind,
                                      pid_t pid,
                                      const char *name);
struct ms_holder *ms_table_find_holder(const struct ms_table *t, uint64_t id);
/* It is gone, and so are its counts. */
void ms_holder_remove(struct ms_holder *h);

/* ---- objects --------------------------------------------------------------------- */

/* A new one of ours, without room, held and read once by `h`. NULL: out of memory. */
struct ms_object *
ms_holder_make(struct ms_holder *h, uint64_t len, const char *site, int64_t now_ns);
/* The entry of an object, mostly of another node's, without bytes and without holders: hold it, or
 * ms_object_settle it. NULL: out of memory. */
struct ms_object *ms_table_add(
    struct ms_table *t, uint64_t node, uint64_t id, uint64_t len, int64_t now_ns);
/* A slice of one of ours that is ready, without holders: hold it, or ms_object_settle it.
 * NULL: out of memory, or there is an object with this id. */
struct ms_object *ms_object_slice(struct ms_object *whole,
                                  uint64_t id,
                                  uint64_t offset,
                                  uint64_t len,
                                  int64_t now_ns);
/* Room for its bytes. -ENOSPC: the limit (copies without holders have been given up for
 * it); -ENOMEM. */
int ms_object_room(struct ms_object *o);
/* It loses its room: its bytes are elsewhere, in `spilled`. */
void ms_object_unroom(struct ms_object *o);
struct ms_object *ms_table_find(const struct ms_table *t, uint64_t node, uint64_t id);

void ms_object_pin(struct ms_object *o);
/* It may go with that. */
void ms_object_unpin(struct ms_object *o);
/* Without holders and pins it goes, or is kept among the unheld. */
void ms_object_settle(struct ms_object *o);
/* A copy without holders is not worth keeping: its origin has gone. */
void ms_object_forget(struct ms_object *o);

/* ---- counts ---------------------------------------------------------------------- */

/* `by` more (or fewer) counts. The object may go. 0 or -ENOMEM. */
int ms_holder_count(struct ms_holder *h,
                    struct ms_object *o,
                    int64_t by,
                    int64_t now_ns);
/* A holder states all that it has: begin, each object with its count, end. What was granted
 * to it and is not confirmed counts besides. Objects may go, those that it does not name when
 * it ends. The end tells for how many objects the count was another. */
void ms_holder_state_begin(struct ms_holder *h);
int ms_holder_state(struct ms_holder *h,
                    struct ms_object *o,
                    int64_t count,
                    int64_t now_ns);
uint64_t ms_holder_state_end(struct ms_holder *h);
/* One more, unless it is not confirmed by then. Deadlines never go back. */
int ms_holder_grant(struct ms_holder *h,
                    struct ms_object *o,
                    int64_t now_ns,
                    int64_t deadline_ns);
int ms_holder_confirm(struct ms_holder *h, struct ms_object *o, int64_t now_ns);
/* A grant that will not be confirmed goes; it may have lapsed. The object may go. */
void ms_holder_take_back(struct ms_holder *h, struct ms_object *o);
/* Grants that have lapsed go. When the next one does; MS_NEVER: none. */
int64_t ms_table_expire(struct ms_table *t, int64_t now_ns);

/* More reads, or fewer, of a holder that has counts. */
void ms_holder_read(struct ms_holder *h,
                    struct ms_object *o,
                    int64_t by,
                    int64_t now_ns);
/* May it be spilled? */
bool ms_object_is_idle(const struct ms_object *o);
/* The one that may be spilled and was not used for the longest time, of at least `least`
 * bytes, or NULL; how many bytes all of those have; and how many those have that were promised,
 * whose receivers are about to say that they have them. */
struct ms_object *ms_table_find_idle(const struct ms_table *t,
                                     uint64_t least,
                                     uint64_t *bytes,
                                     uint64_t *promised);

bool ms_object_is_held(const struct ms_object *o);
/* How much of the arena a holder holds, in bytes and objects. */
uint64_t ms_holder_bytes(const struct ms_holder *h, size_t *objects);

/* Why `len` bytes cannot be had: how much there is, `besides` (may be NULL), and who holds
 * the most. Appended. */
void ms_table_explain_full(const struct ms_table *t,
                           uint64_t len,
                           const char *besides,
                           struct ms_buf *out);

#endif
