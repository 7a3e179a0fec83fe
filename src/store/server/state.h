/* state.h - what the parts of a node's store share, inside this folder only
 *
 * server.c  life, leases
 * place.c   room and memory for objects
 * spill.h   objects in files
 * guest.c   one process: handshake, messages, answers
 * ask.c     what it asks for
 * stats.c   what there is
 * far.h     objects of other nodes
 */
#ifndef MS_STORE_STATE_H
#define MS_STORE_STATE_H

#include "io/loop.h"
#include "proto/muster.pb-c.h"
#include "store/server/arena.h"
#include "store/server/server.h"
#include "store/server/table.h"
#include "wire/handshake.h"

#include <stdbool.h>

struct ms_store {
    struct ms_loop *loop;
    char *path, *node_name, *address;
    char *warning; /* for users, or empty */
    uint8_t secret[MS_SECRET_SIZE];
    int listen_fd;
    struct ms_watch watch;
    struct ms_arena *arena;
    struct ms_table table;
    struct ms_list conns;
    size_t conn_count;
    struct ms_timer lease_timer, idle_timer;
    uint64_t received, sent;
    uint64_t (*memory_left)(void);
    void (*on_note)(void *arg, const char *text);
    void *note_arg;
    struct ms_spill *spill;  /* NULL: nothing is spilled */
    struct ms_list placings; /* objects that wait for room, in the order of asking */
    uint64_t punches;        /* how often memory was given back */
    struct ms_timer place_timer;

    bool has_pieces; /* of objects travel between us and other nodes */
    enum ms_tls_mode tls;
    struct ms_server *server;      /* for stores of other nodes; NULL: none come */
    struct ms_list remote_holders; /* those that came */
    struct ms_list readers;        /* and those that read bytes of us */
    struct ms_list peers;          /* those that we dial */
    struct ms_list bereft; /* who waited for a mirror that has gone; replica.c */
    struct ms_timer bereft_timer;
    struct ms_timer pace_timer;
};

/* A process of this node. */
struct ms_store_conn {
    struct ms_store *store;
    struct ms_list link;
    int fd, pidfd;
    pid_t pid;
    struct ms_watch watch, death;
    struct ms_timer patience; /* until it has said who it is */
    struct ms_handshake handshake;
    struct ms_holder *holder; /* NULL: it has not said who it is */
    struct ms_list unsent;    /* answers that found no room */
};

/* ---- server.c -------------------------------------------------------------------- */

/* Pieces of objects come or go from now on. */
void ms_store_expect_pieces(struct ms_store *s);
/* A lease was given: look when it lapses. */
void ms_store_watch_leases(struct ms_store *s);

/* ---- place.c --------------------------------------------------------------------- */

/* Room in the arena for an object, if it has none, and memory behind that. `fn` comes once,
 * perhaps at once, with NULL or why not; `o` is NULL if the object has gone meanwhile. If
 * need be others are spilled first. */
typedef void ms_place_fn(void *arg,
                         struct ms_store *s,
                         struct ms_object *o,
                         const struct ms_error *why);
void ms_store_place(struct ms_store *s,
                    const struct ms_object *o,
                    ms_place_fn *fn,
                    void *arg);
/* There may be room now: soon those who wait try again. */
void ms_store_retry_places(struct ms_store *s);
/* There is no more: those who wait try once more, and fail. */
void ms_store_fail_places(struct ms_store *s);
void ms_store_on_place_time(void *arg); /* of place_timer */
/* Give memory that nobody uses back to the machine. */
void ms_store_punch_idle(struct ms_store *s);

/* Of spill.h. */
typedef void ms_spill_fn(void *arg, struct ms_store *s, const struct ms_error *why);

/* ---- guest.c --------------------------------------------------------------------- */

void ms_store_conn_accept(struct ms_store *s);
void ms_store_conn_destroy(struct ms_store_conn *c);
/* The guest with this holder's id; NULL: it has gone. */
struct ms_store_conn *ms_store_conn_find(struct ms_store *s, uint64_t holder);
/* `fd` goes with it; -1: none. A guest that cannot be told anything ends soon. */
void ms_store_conn_answer(struct ms_store_conn *c,
                          uint64_t request,
                          Muster__StoreAnswer *m,
                          int fd);
void ms_store_conn_refuse(struct ms_store_conn *c,
                          uint64_t request,
                          Muster__Failure__Kind kind,
                          int code,
                          const char *text);

/* ---- ask.c ----------------------------------------------------------------------- */

/* One message of a guest that has said who it is. */
void ms_store_conn_handle(struct ms_store_conn *c, const Muster__StoreAsk *ask);
/* A count of one of our objects, or of what we have of another's, for somebody who will
 * confirm it. */
void ms_store_grant_to(struct ms_store *s, const Muster__StoreGrant *m);
/* An object as others know it; `out` borrows the store's address. */
void ms_store_name(const struct ms_store *s,
                   const struct ms_object *o,
                   Muster__StoredName *out);

#endif
