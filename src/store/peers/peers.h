/* peers.h - objects of other nodes, for the files of peers/ and server/
 *
 * peer.c           a store of another node that we dial, and its two links
 * remote_copy.c        what we have of its objects: holding them
 * holdings.c       what a node holds of another's, compared when a link opens
 * fetch.c          getting their bytes over the bulk link to a node that has them
 * remote_holder.c  a store of another node that holds objects of ours
 * remote_reader.c  a store of another node that reads bytes of us, on its bulk link
 * pace.h           how fast those bytes are sent
 *
 * The origin of an object counts the nodes that hold it. A node that wants the bytes is
 * told whom to ask: the first one the origin itself, each later one the node before it, so
 * that an object travels along a chain, piece by piece, before it is whole. A node that
 * fails, or is slow, is passed over: its successor asks the origin from the byte where it
 * was.
 *
 * Bytes have connections of their own, so that nothing else waits behind them. The reader
 * dials a bulk link, asks for at most MS_STORE_PIECES pieces of an object at a time, and
 * each answer goes straight to its place in the arena; the other side sends from its arena.
 * That is the back-pressure too: a node that does not read does not ask, and nothing is
 * queued for it but what it has asked for, and that without a copy.
 */
#ifndef MS_STORE_PEERS_H
#define MS_STORE_PEERS_H

#include "store/server/state.h"
#include "wire/link/link.h"
#include "wire/link/requests.h"

struct ms_store_peer;

/* A link to a peer: dialled when it is wanted, and again while it is. Its ops get it as
 * their argument; on_closed and on_suspect are those of this struct. */
struct ms_peer_link {
    struct ms_store_peer *peer;
    const struct ms_link_ops *ops;
    /* It broke, or could not be dialled; `for_good` after MS_LINK_GRACE_NS without it, or
     * when the peer has ended. True: dial again. */
    bool (*on_lost)(struct ms_store_peer *p, bool for_good);
    struct ms_link *link;
    bool is_open;
    int64_t lost_ns; /* since when it is missed; 0: it is there, or not wanted */
    struct ms_timer retry;
};

/* A store of another node that we have dialled. */
struct ms_store_peer {
    struct ms_store *store;
    struct ms_list link_in; /* store->peers */
    uint64_t node;
    char *address;
    char *name; /* NULL: it has not said */
    struct ms_peer_link control;
    struct ms_requests unacked; /* confirmations and grants, until they have arrived */
    bool is_lost;               /* for good: until it is asked again */

    struct ms_peer_link bulk;
    uint64_t last_request; /* on the bulk link */
    struct ms_list wants;
    struct ms_object *filling; /* whose bytes come now; pinned */
    uint64_t filled;           /* its next byte */
};

/* What we have of another node's object; ms_object.user. */
struct ms_remote_copy {
    struct ms_object *object;
    struct ms_store_peer *origin;
    uint64_t of, offset;          /* of a slice (slice.h): which; else 0 */
    struct ms_store_peer *source; /* which node we ask for bytes, or NULL */
    int64_t counts;               /* that the origin has of us */
    bool is_asked;                /* to be held; not answered yet */
    bool wants_bytes, is_placing;
    uint64_t asked, received; /* bytes from the beginning */
    int64_t looked_ns;        /* when its pace was last looked at, and */
    uint64_t looked_at;       /* how much had come then */
    struct ms_list waiting;   /* of us */
};

/* ---- peer.c ---------------------------------------------------------------------- */

/* The peer of that node; made if there is none. NULL: out of memory, no address. */
struct ms_store_peer *
ms_store_peer_get(struct ms_store *s, uint64_t node, const char *address);
/* Tell it something over its control link, which is dialled if need be. Confirmations and
 * grants are sent until they have arrived, once each and in order; others get -ENOTCONN if
 * there is no link now: ms_remote_copies_resume says what has become of them. */
int ms_store_peer_tell(struct ms_store_peer *p,
                       Muster__StorePeer__BodyCase what,
                       void *body);
void ms_store_peers_finish(struct ms_store *s);

/* It is not wanted any more, or has gone. */
void ms_peer_link_close(struct ms_peer_link *l);
/* See to it that it is dialled, never from inside of the caller. */
void ms_peer_link_wake(struct ms_peer_link *l);
/* It is open: say who we are. */
void ms_peer_link_opened(struct ms_peer_link *l);
void ms_peer_link_on_closed(void *link, const struct ms_error *why);
void ms_peer_link_on_suspect(void *link, bool is_suspect);

/* One message, with this body. */
int ms_store_message_send(struct ms_link *l,
                          Muster__StorePeer__BodyCase what,
                          void *body);
void ms_store_message_gone(struct ms_link *l, uint64_t node, uint64_t id);

/* ---- remote_copy.c ------------------------------------------------------------ */

/* The entry of an object of another node, made if there is none; NULL: out of memory. */
struct ms_object *ms_remote_copy_get(struct ms_store *s,
                                     const Muster__StoredName *name);
/* `fn` comes when it is held at its origin, with its bytes here unless `bare`; or with why
 * not. Perhaps at once. */
int ms_remote_copy_want(
    struct ms_store *s, struct ms_object *o, bool bare, ms_object_fn *fn, void *arg);
/* An answer has granted it to a process of ours: its origin counts us once more. */
void ms_remote_copy_confirm(struct ms_object *o);
/* A process of ours grants it to one of a third node. */
void ms_remote_copy_grant(struct ms_object *o, const Muster__StoreGrant *m);
/* No process here holds it any more; of struct ms_table_ops. */
void ms_remote_copy_unheld(void *store, struct ms_object *o);
/* It goes; what is in `user` is freed by the caller. Those who wait for it are told soon, by
 * ms_remote_copies_tell_waiters. */
void ms_remote_copy_free(struct ms_store *s, struct ms_object *o);
void ms_remote_copies_tell_waiters(void *store);

void ms_remote_copy_held(struct ms_store_peer *p, const Muster__PeerHeld *m);
void ms_remote_copy_gone(struct ms_store_peer *p, const Muster__PeerGone *m);
/* The link is open: say what we hold, and ask for what was not answered. */
void ms_remote_copies_resume(struct ms_store_peer *p);
/* It is lost for good, or perhaps not: with `for_good` all that are its fail. */
void ms_remote_copies_lost(struct ms_store_peer *p, bool for_good);

/* Of all copies; `fn` may let go of any: they are found again by name. */
void ms_remote_copies_walk(struct ms_store *s,
                           void (*fn)(struct ms_object *o, struct ms_store_peer *p),
                           struct ms_store_peer *p);
/* Tell those whose wish is fulfilled, or all of them `why` not. */
void ms_remote_copy_tell(struct ms_store *s,
                         struct ms_object *o,
                         const struct ms_error *why);
/* It cannot be had: all are told. */
void ms_remote_copy_fail(struct ms_store *s,
                         struct ms_object *o,
                         int code,
                         const char *text);
/* ms_remote_copy_fail: the node that has it is not reached. */
void ms_remote_copy_unreached(struct ms_store *s, struct ms_object *o);

/* ---- holdings.c ------------------------------------------------------------------ */

/* State what we hold of that node's objects. 0 or -ENOMEM. */
int ms_holdings_send(struct ms_store_peer *p);
/* A node has stated what it holds of ours, or a part of that: it is told, on `link`, which of
 * these are not here. */
void ms_holdings_take(struct ms_store *s,
                      struct ms_holder *h,
                      const Muster__PeerHoldings *m,
                      struct ms_link *link);

/* ---- fetch.c --------------------------------------------------------------------- */

/* Room for it, memory behind that, and the first pieces, of `source`; or go on there from
 * the byte where it was. */
void ms_remote_copy_fetch(struct ms_object *o, struct ms_store_peer *source);
/* No more of its bytes are wanted. */
void ms_remote_copy_stop(struct ms_object *o);
/* Pass over nodes that send too slowly; on a timer. */
void ms_remote_copies_look(void *store);

/* Of the bulk link to a peer. */
extern const struct ms_link_ops ms_bulk_ops;
bool ms_bulk_on_lost(struct ms_store_peer *p, bool for_good);
void ms_bulk_close(struct ms_store_peer *p);

/* ---- remote_reader.c ------------------------------------------------------------- */

/* A node has dialled this link for bytes: 0, and the link is taken; -ENOMEM. */
int ms_remote_reader_create(struct ms_store *s, struct ms_link *link, uint64_t node);
void ms_remote_readers_finish(struct ms_store *s);
/* More of this object is in memory: send what was asked for and could not be sent. Or it is
 * lost, and will not come: those who have asked for it have to ask elsewhere. */
void ms_remote_readers_answer(struct ms_store *s, struct ms_object *o, bool is_lost);

/* ---- remote_holder.c ------------------------------------------------------------- */

int ms_remote_holders_listen(struct ms_store *s, int fd, enum ms_tls_mode tls);
void ms_remote_holders_finish(struct ms_store *s);
/* The holder that stands for a node, made if there is none; NULL: out of memory. */
struct ms_holder *
ms_store_node_holder(struct ms_store *s, uint64_t node, const char *name);
/* One of ours goes: nodes that were given its bytes need not keep them. */
void ms_receivers_tell(struct ms_store *s, const struct ms_object *o);

#endif
