/* far.h - objects of other nodes, inside this folder only
 *
 * far.c      the links to stores of other nodes: dialled, lost, dialled again
 * replica.c  what we have of their objects: holding them, and getting their bytes
 * visitor.c  stores of other nodes that come to us
 *
 * The origin of an object counts the nodes that hold it. A node that wants the bytes is
 * told whom to ask: the first one the origin itself, each later one the node before it, so
 * that an object travels along a chain, piece by piece, before it is whole. A node that
 * fails is passed over: its successor asks the origin from where it was.
 */
#ifndef MS_STORE_FAR_H
#define MS_STORE_FAR_H

#include "store/server_impl.h"
#include "wire/link.h"

/* A store of another node that we have dialled. */
struct ms_far {
    struct ms_store *store;
    struct ms_list link_in; /* store->fars */
    uint64_t node;
    char *address;
    struct ms_link *link;
    bool is_open, was_open;
    struct ms_list unsent; /* counts that wait for the link */
    bool is_lost;          /* for good: until somebody asks again */
    int64_t lost_ns;       /* since when there is no link; 0: there is */
    struct ms_timer retry;
};

/* Somebody waits for a mirror. */
typedef void ms_replica_fn(void *arg, struct ms_store *s, const struct ms_error *why);

/* What we have of another node's object; ms_object.user. */
struct ms_replica {
    struct ms_object *object;
    struct ms_far *origin;
    struct ms_far *source; /* whom we ask for bytes; NULL: nobody */
    int64_t counts;        /* that the origin has of us */
    bool is_asked;         /* to be held; not answered yet */
    bool wants_bytes, is_placing;
    uint64_t asked, received; /* bytes from the beginning */
    struct ms_list waiting;   /* of us */
    struct ms_list relays;    /* of other nodes, for pieces */
};

/* ---- far.c ----------------------------------------------------------------------- */

/* The link to that node; made if there is none. NULL: out of memory, no address. */
struct ms_far *ms_far_get(struct ms_store *s, uint64_t node, const char *address);
/* Counts, confirmations and grants wait for the link if there is none now; others get
 * -ENOTCONN, and are said again by ms_replicas_resume. */
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
void ms_replica_piece(struct ms_far *f, const Muster__PeerPiece *m);
/* The link is there again: say what was not heard. */
void ms_replicas_resume(struct ms_store *s, struct ms_far *f);
/* It is lost: those that only asked it for bytes ask elsewhere. With `for_good` the others
 * fail. */
void ms_replicas_lost(struct ms_store *s, struct ms_far *f, bool for_good);

/* A node asks for a piece that we may not have yet. False: it has to ask elsewhere. */
struct ms_visitor;
bool ms_replica_relay(struct ms_object *o,
                      struct ms_visitor *v,
                      uint64_t offset,
                      uint64_t len);
void ms_replicas_forget_visitor(struct ms_store *s, const struct ms_visitor *v);

/* ---- visitor.c ------------------------------------------------------------------- */

int ms_visitors_listen(struct ms_store *s, int fd, enum ms_tls_mode tls);
void ms_visitors_finish(struct ms_store *s);
void ms_visitor_send_piece(struct ms_visitor *v,
                           const struct ms_object *o,
                           uint64_t offset,
                           uint64_t len);
void ms_visitor_send_gone(struct ms_visitor *v, const struct ms_object *o);
/* The holder that stands for a node, made if there is none; NULL: out of memory. */
struct ms_holder *
ms_visitor_holder(struct ms_store *s, uint64_t node, const char *name);
/* One of ours goes: whoever was given its bytes need not keep them. */
void ms_given_tell(struct ms_store *s, const struct ms_object *o);

#endif
