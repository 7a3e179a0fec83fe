/* state.h - the state of a node's store, for the files of server/ and peers/
 *
 * server.c    life, leases
 * table.h     objects, who holds them and for how long (pure)
 * space.h     which bytes of the arena are whose (pure)
 * arena.h     the shared memory; work.h the thread that clears it
 * place.c     room and memory for objects
 * spill.h     objects in files
 * conn.c      the connection of a process: handshake, messages, answers
 * requests.c  what a process asks for
 * stats.c     what there is, and who holds the most
 * peers.h     objects of other nodes (../peers)
 */
#ifndef MS_STORE_SERVER_STATE_H
#define MS_STORE_SERVER_STATE_H

#include "io/loop.h"
#include "proto/muster.pb-c.h"
#include "store/server/arena.h"
#include "store/server/server.h"
#include "store/server/table.h"
#include "wire/handshake.h"

#include <stdbool.h>

/* Objects in files (spill.h). */
struct ms_spill {
    char *dir;                     /* NULL: nothing is spilled */
    uint64_t limit, used, writing; /* bytes */
    struct ms_work *work;
    struct ms_error why; /* the last failure; code 0: none since the last success */
    bool was_limited;    /* the limit stood in the way */
};

struct ms_store {
    struct ms_loop *loop;
    char *path, *node_name, *address;
    char *warning; /* for users, or empty */
    uint8_t secret[MS_SECRET_SIZE];
    int listen_fd;
    struct ms_watch watch;
    struct ms_arena arena;
    struct ms_table table;
    struct ms_list conns;
    size_t conn_count;
    struct ms_timer lease_timer, idle_timer;
    uint64_t received, sent;
    void (*on_note)(void *arg, const char *text);
    void *note_arg;
    struct ms_spill spill;
    struct ms_list placings; /* objects that wait for room, in the order of asking */
    uint64_t punches;        /* how often memory was given back */
    struct ms_timer place_timer;

    bool has_pieces; /* of objects travel between us and other nodes */
    enum ms_tls_mode tls;
    struct ms_server *server;      /* for stores of other nodes; NULL: none come */
    struct ms_list remote_holders; /* those that came */
    struct ms_list remote_readers; /* and those that read bytes of us */
    struct ms_list peers;          /* those that we dial */
    struct ms_list
        lost_waiters; /* who waited for a copy that has gone; remote_copy.c */
    struct ms_timer waiters_timer;
    struct ms_timer pace_timer;
};

/* The connection of a process of this node. */
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

/* What was wanted of an object is done, or `why` not; `o` is NULL if it has gone. */
typedef void ms_object_fn(void *arg,
                          struct ms_store *s,
                          struct ms_object *o,
                          const struct ms_error *why);
extern const struct ms_error ms_store_no_memory; /* for such a `why` */
/* A function that waits for that. */
struct ms_waiter {
    struct ms_list link;
    bool bare; /* for the object without its bytes */
    ms_object_fn *fn;
    void *arg;
};
/* 0 or -ENOMEM. */
int ms_waiters_add(struct ms_list *waiting, bool bare, ms_object_fn *fn, void *arg);
/* Tell all of them; they may let the object go, or wait anew. */
void ms_waiters_tell(struct ms_list *waiting,
                     struct ms_store *s,
                     struct ms_object *o,
                     const struct ms_error *why);

/* Room in the arena for an object, if it has none, and memory behind that. `fn` comes once,
 * perhaps at once. If need be others are spilled first. */
void ms_store_place(struct ms_store *s,
                    const struct ms_object *o,
                    ms_object_fn *fn,
                    void *arg);
/* There may be room now: soon those who wait try again. */
void ms_store_retry_places(struct ms_store *s);
/* There is no more: those who wait try once more, and fail. */
void ms_store_fail_places(struct ms_store *s);
void ms_store_on_place_time(void *arg); /* of place_timer */
/* Give unused memory back to the machine. */
void ms_store_punch_idle(struct ms_store *s);

/* ---- conn.c ---------------------------------------------------------------------- */

/* Processes connect; of the listening socket. */
void ms_store_conn_accept(void *store, unsigned events);
void ms_store_conn_destroy(void *conn);
/* That of this holder; NULL: it has gone. */
struct ms_store_conn *ms_store_conn_find(struct ms_store *s, uint64_t holder);
/* A connection that cannot be written to ends soon. */
void ms_store_conn_answer(struct ms_store_conn *c,
                          uint64_t request,
                          Muster__StoreAnswer__BodyCase what,
                          void *body);
void ms_store_conn_refuse(struct ms_store_conn *c,
                          uint64_t request,
                          int code,
                          const char *text);

/* ---- requests.c ------------------------------------------------------------------ */

/* One message of a process that has said who it is. */
void ms_store_conn_handle(struct ms_store_conn *c, const Muster__StoreAsk *ask);
/* A count of one of our objects, or of what we have of another's, for a holder that
 * will confirm it. */
void ms_store_grant_to(struct ms_store *s, const Muster__StoreGrant *m);

#endif
