/* far.h - objects of other nodes, inside this folder only
 *
 * far.c      the links to stores of other nodes: dialled, lost, dialled again
 * replica.c  what we have of their objects: holding them
 * holdings.c what a node holds of another's, compared when a link opens
 * fetch.c    getting their bytes
 * bulk.c     the bulk link to a store that has bytes for us
 * slice.c    ranges of objects, as objects of their own
 * visitor.c  stores of other nodes that come to us
 * lend.c     those of them that read bytes of us, each on its bulk link
 *
 * The origin of an object counts the nodes that hold it. A node that wants the bytes is
 * told whom to ask: the first one the origin itself, each later one the node before it, so
 * that an object travels along a chain, piece by piece, before it is whole. A node that
 * fails, or is slow, is passed over: its successor asks the origin from the byte where it
 * was.
 *
 * Bytes have connections of their own, so that nothing else waits behind them: who reads
 * dials a bulk link, asks for at most MS_STORE_PIECES pieces of an object at a time, and
 * each answer goes straight to its place in the arena. Whoever lends sends from the arena.
 * That is the back-pressure too: a node that does not read does not ask, and nothing is
 * queued for it but what it has asked for, and that without a copy.
 */
#ifndef MS_STORE_FAR_H
#define MS_STORE_FAR_H

#include "store/server_impl.h"
#include "wire/link/link.h"

/* A store of another node that we have dialled. */
struct ms_far {
    struct ms_store *store;
    struct ms_list link_in; /* store->fars */
    uint64_t node;
    char *address;
    struct ms_link *link;
    bool is_open;
    char *name;             /* NULL: it has not said */
    struct ms_list unheard; /* confirmations and grants, until they have arrived */
    uint64_t last_number;   /* of these */
    bool is_lost;           /* for good: until somebody asks again */
    int64_t lost_ns;        /* since when there is no link; 0: there is */
    struct ms_timer retry;

    struct { /* bulk.c */
        struct ms_link *link;
        bool is_open;
        int64_t
            lost_ns; /* since when it is missed; 0: it is there, or nobody wants it */
        struct ms_timer retry;
        uint64_t last_request;
        struct ms_list wants;
        struct ms_object *filling; /* whose bytes come now; pinned */
        uint64_t filled;           /* its next byte */
    } bulk;
};

/* Somebody waits for a mirror. */
typedef void ms_replica_fn(void *arg, struct ms_store *s, const struct ms_error *why);

/* What we have of another node's object; ms_object.user. */
struct ms_replica {
    struct ms_object *object;
    struct ms_far *origin;
    uint64_t of, offset;   /* of a slice (slice.h): which; else 0 */
    struct ms_far *source; /* whom we ask for bytes; NULL: nobody */
    int64_t counts;        /* that the origin has of us */
    bool is_asked;         /* to be held; not answered yet */
    bool wants_bytes, is_placing;
    uint64_t asked, received; /* bytes from the beginning */
    int64_t looked_ns;        /* when its pace was last looked at, and */
    uint64_t looked_at;       /* how much had come then */
    struct ms_list waiting;   /* of us */
    struct ms_list relays;    /* of other nodes, for pieces */
};

/* ---- far.c ----------------------------------------------------------------------- */

/* The link to that node; made if there is none. NULL: out of memory, no address. */
struct ms_far *ms_far_get(struct ms_store *s, uint64_t node, const char *address);
/* Confirmations and grants are sent until they are heard; others get -ENOTCONN if there is no
 * link now: ms_replicas_resume says what has become of them. It is dialled if need be. */
int ms_far_send(struct ms_far *f, const Muster__StorePeer *m);
void ms_fars_finish(struct ms_store *s);

/* ---- replica.c-------------------------------------------------------------------- */

/* The entry of an object of another node, made if there is none; NULL: out of memory. */
struct ms_object *ms_replica_get(struct ms_store *s, const Muster__StoredName *name);
/* `fn` comes when it is held at its origin, with its bytes here unless `bare`; or with why
 * not. Perhaps at once. */
int ms_replica_want(
    struct ms_store *s, struct ms_object *o, bool bare, ms_replica_fn *fn, void *arg);
/* An answer has granted it to a process of ours: its origin counts us once more. */
void ms_replica_confirm(struct ms_store *s, struct ms_object *o);
/* A process of ours grants it to one of a third node. */
void ms_replica_grant(struct ms_store *s,
                      struct ms_object *o,
                      const Muster__StoreGrant *m);
/* Nobody here holds it any more. */
void ms_replica_unheld(struct ms_store *s, struct ms_object *o);
/* It goes; what is in `user` is freed by whoever calls. Those who wait for it are told soon,
 * by ms_replicas_tell_untold. */
void ms_replica_free(struct ms_store *s, struct ms_object *o);
void ms_replicas_tell_untold(struct ms_store *s);

void ms_replica_held(struct ms_far *f, const Muster__PeerHeld *m);
void ms_replica_gone(struct ms_far *f, const Muster__PeerGone *m);
/* The link is open: say what we hold, and ask for what was not answered. */
void ms_replicas_resume(struct ms_store *s, struct ms_far *f);
/* It is lost for good, or perhaps not: with `for_good` all that are its fail. */
void ms_replicas_lost(struct ms_store *s, struct ms_far *f, bool for_good);

/* Of all mirrors; `fn` may let go of any: they are found again by name. */
void ms_replicas_walk(struct ms_store *s,
                      void (*fn)(struct ms_store *s,
                                 struct ms_object *o,
                                 struct ms_far *f),
                      struct ms_far *f);
/* Tell those whose wish is fulfilled, or all of them `why` not. */
void ms_replica_tell(struct ms_store *s,
                     struct ms_object *o,
                     const struct ms_error *why);
/* It cannot be had: all are told. */
void ms_replica_fail(struct ms_store *s,
                     struct ms_object *o,
                     int code,
                     const char *text);
/* ms_replica_fail: the node that has it is not reached. */
void ms_replica_unreached(struct ms_store *s, struct ms_object *o);

/* ---- holdings.c ------------------------------------------------------------------ */

/* State what we hold of that node's objects. 0 or -ENOMEM. */
int ms_holdings_send(struct ms_store *s, struct ms_far *f);
/* A node has stated what it holds of ours, or a part of that. `on_gone` comes for each that is
 * not here. */
void ms_holdings_take(struct ms_store *s,
                      struct ms_holder *h,
                      const Muster__PeerHoldings *m,
                      void (*on_gone)(void *arg, uint64_t id),
                      void *arg);

/* ---- fetch.c --------------------------------------------------------------------- */

/* Room for it, memory behind that, and the first pieces, of `source`; or go on there from
 * the byte where it was. */
void ms_replica_fetch(struct ms_store *s, struct ms_object *o, struct ms_far *source);
/* No more of it is wanted, whoever was asked. */
void ms_replica_stop(struct ms_object *o);
/* Is this what comes next? */
bool ms_replica_expects(struct ms_far *f,
                        const struct ms_object *o,
                        uint64_t offset,
                        uint64_t len);
/* Bytes [at, at + len) have come; a piece ends here. The object is pinned. */
void ms_replica_part(
    struct ms_far *f, struct ms_object *o, uint64_t at, uint64_t len, bool is_last);
/* The bulk link is there: ask for what is wanted of it. */
void ms_replicas_refetch(struct ms_store *s, struct ms_far *f);
/* It is not: those that can ask elsewhere do; with `for_good` the others fail. True: somebody
 * still wants something of it. */
bool ms_replicas_cut(struct ms_store *s, struct ms_far *f, bool for_good);

/* A node asks for a piece that we may not have yet. False: it has to ask elsewhere. */
struct ms_reader;
bool ms_replica_relay(struct ms_object *o,
                      struct ms_reader *r,
                      uint64_t request,
                      uint64_t offset,
                      uint64_t len);
/* They have to ask elsewhere. */
void ms_replica_drop_relays(struct ms_object *o);
void ms_replica_forget_relays(struct ms_store *s,
                              uint64_t node,
                              uint64_t id,
                              const struct ms_reader *r);
void ms_replicas_forget_reader(struct ms_store *s, const struct ms_reader *r);
/* Is somebody passed over who is too slow? On a timer. */
void ms_replicas_look(struct ms_store *s);

/* ---- bulk.c ---------------------------------------------------------------------- */

int ms_bulk_init(struct ms_far *f);
void ms_bulk_finish(struct ms_far *f);
/* Nothing of it is wanted any more, or it has gone. */
void ms_bulk_close(struct ms_far *f);
/* Ask for a piece. -ENOTCONN: the link is dialled, and ms_replicas_refetch comes. */
int ms_bulk_want(struct ms_far *f,
                 const struct ms_object *o,
                 uint64_t at,
                 uint64_t len);
/* Say that no more of it is wanted. */
void ms_bulk_done(struct ms_far *f, const struct ms_object *o);

/* ---- lend.c ---------------------------------------------------------------------- */

/* A visitor's link is for bulk: 0, and the link is taken; -ENOMEM. */
int ms_reader_create(struct ms_store *s, struct ms_link *link, uint64_t node);
void ms_readers_finish(struct ms_store *s);
void ms_reader_send(struct ms_reader *r,
                    struct ms_object *o,
                    uint64_t request,
                    uint64_t offset,
                    uint64_t len);
void ms_reader_send_gone(struct ms_reader *r, const struct ms_object *o);

/* ---- slice.c --------------------------------------------------------------------- */

/* The object that a node asks to hold, whole or slice. NULL: there is none, or not in
 * memory (then *whole is what has to be brought back first). What was made here and is not
 * held yet is pinned: unpin it. */
struct ms_object *ms_slice_find(struct ms_store *s,
                                const Muster__PeerHold *m,
                                struct ms_object **whole,
                                bool *is_new);

/* ---- visitor.c ------------------------------------------------------------------- */

int ms_visitors_listen(struct ms_store *s, int fd, enum ms_tls_mode tls);
void ms_visitors_finish(struct ms_store *s);
/* The holder that stands for a node, made if there is none; NULL: out of memory. */
struct ms_holder *
ms_visitor_holder(struct ms_store *s, uint64_t node, const char *name);
/* One of ours goes: whoever was given its bytes need not keep them. */
void ms_given_tell(struct ms_store *s, const struct ms_object *o);

#endif
