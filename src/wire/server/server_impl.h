/* server_impl.h - what the files of the server share
 *
 * server.c   life, what the loop's thread does for the others
 * listen.c   listeners
 * server_conn.c  one connection: its first byte, shaking hands, messages, watching
 * lane.c     the connections that the engine's and the loop's thread read in turn
 * engine.c   the engine's thread
 * ledger.c   sessions: attaching, losing, forgetting
 * request.c  calls that arrive: at most once, in order
 * reply.c    answers and streams
 * submit.c   requests that came by another way
 * activity.c what the engine does and has done, for those who look
 *
 * One lock guards everything below but the reading half of a connection, which
 * belongs to the thread that set `reading`. A connection is destroyed on the loop's
 * thread only, when nobody reads it. No work is posted to the loop: what other
 * threads leave for it waits in lists of the server, so nothing outlives
 * ms_server_destroy.
 */
#ifndef MS_WIRE_SERVER_SERVER_IMPL_H
#define MS_WIRE_SERVER_SERVER_IMPL_H

#include "base/lock.h"
#include "base/map.h"
#include "wire/conn.h"
#include "wire/link/heartbeat.h"
#include "wire/server/server.h"

#include <pthread.h>
#include <stdatomic.h>

struct listener {
    struct ms_server *server;
    int fd;
    bool is_tcp;
    struct ms_watch watch;
    struct ms_timer again;
    struct ms_list unproven; /* server_conn, oldest first */
    unsigned unproven_count;
};

struct ms_server_conn {
    struct ms_list link;          /* server->conns */
    struct ms_list todo_link;     /* server->todo */
    struct ms_list unproven_link; /* listener->unproven */
    struct listener *listener;    /* NULL: proven */
    struct ms_server *server;
    int fd;               /* of TCP that has said nothing yet; -1: `conn` has it */
    struct ms_conn *conn; /* NULL before the first byte */
    uint64_t id;
    struct ms_ledger *ledger; /* NULL: not attached yet, or replaced by a newer one */
    struct ms_watch watch;    /* loop: reading (not in the lane) and writing */
    struct ms_timer deadline; /* of the handshake */
    bool attached;            /* has had a ledger */
    bool in_lane;             /* in lane_fd; read by the loop, or by the engine */
    bool armed;               /* lane_fd reports it, once */
    bool reading;             /* a thread reads it */
    bool dead;                /* over; the loop will destroy it */
    char *peer;               /* who it is, for people; NULL: a unix socket */
    uint64_t read_turn;       /* the engine's turn when its last read began */
};

/* The calls of one client session. */
struct ms_ledger {
    struct ms_list link;
    uint8_t session[MS_SESSION_SIZE];
    struct ms_server *server;
    struct ms_server_conn *conn; /* NULL: no connection now */
    uint64_t conns;              /* that it has had */
    int64_t lost_ns;
    bool is_left;           /* its client has ended: nobody will read an answer */
    struct ms_map requests; /* call id -> request */
    struct ms_list kept;    /* answered, oldest first */
    uint64_t kept_bytes;
    uint64_t newest;       /* the highest call id that began */
    uint64_t forgotten;    /* calls up to here may have run, and nobody remembers */
    uint64_t blocked_walk; /* the walk of the queue that met a call still arriving */
    struct ms_method **methods; /* by op - MS_OP_METHOD */
    size_t method_room;
};

struct ms_server {
    struct ms_server_options o; /* the secret is in `net` */
    pthread_t loop_thread;
    bool loop_thread_known;
    struct ms_net net;

    pthread_mutex_t lock;
    pthread_cond_t credit;   /* a stream's window opened, or it was cancelled */
    pthread_cond_t released; /* a connection is no longer being read */
    unsigned refs;           /* server, and each handed-out request */
    bool destroyed;

    struct listener listeners[MS_LISTENERS_MAX];
    unsigned listener_count;
    struct ms_heartbeat *heartbeat; /* of links; NULL: there were none */
    struct ms_list conns, ledgers;
    struct ms_map by_id;      /* id -> server_conn */
    struct ms_map by_session; /* -> ledger */
    uint64_t next_id, walks;
    unsigned conn_count;
    struct ms_method **methods;
    size_t method_count, method_room;

    struct ms_ledger local; /* submitted requests; has never a connection */

    /* what the loop's thread is asked to do */
    int todo_fd;
    struct ms_watch todo_watch;
    bool todo_told;
    struct ms_list todo;       /* connections to watch anew, or to bury */
    struct ms_list deliveries; /* requests for on_request */
    struct ms_list tells;      /* requests for on_cancel */
    struct ms_list handed;     /* requests that are out */
    struct ms_list finished;   /* submitted requests for on_done */
    struct ms_timer timer;     /* sessions without a connection, deadlines */
    int64_t timer_ns;          /* when it should fire */

    /* the engine's lane */
    int lane_fd; /* epoll of the connections in the lane, for the loop */
    struct ms_watch lane_watch;
    int wake_read, wake_write; /* wake the engine */
    int tick_fd;
    struct ms_watch tick_watch;
    bool tick_armed;
    int long_fd; /* a timer; -1: there is no on_long, or it has come */
    struct ms_watch long_watch;
    bool long_armed;
    struct ms_server_conn *hot;   /* the one that the engine reads itself */
    struct ms_server_conn *rival; /* another one that gave the engine its last call */
    struct ms_list queue;         /* requests for the engine */
    _Atomic unsigned queued;
    bool is_ready; /* something may have become ready for the engine */
    bool is_async;
    bool engine_blocked;                 /* asleep, or just awake and reading... */
    struct ms_server_conn *engine_reads; /* ...this one */
    bool spin_next;                      /* the last request came with a lease */
    uint32_t caller_core;                /* and from this core, + 1 */
    atomic_uint engine_core;             /* where the engine ran when it took it, + 1 */
    int64_t move_again_ns; /* when the engine may leave the caller's core again */
    int64_t move_wait_ns;
    _Atomic bool stopping;
    struct ms_request *running;
    int64_t busy_since_ns; /* 0: idle */
    int64_t idle_since_ns; /* when it was last done with a request */
    bool has_run;          /* a request, since it came last; among these it counts: */
    struct ms_method_calls *ended; /* NULL: it is no call */
    bool ended_failed;
    struct ms_method_calls
        http_calls; /* which methods they name only the engine knows */
    uint64_t turn;  /* how often it came back after more than a moment */
    uint64_t calls_done;
};

/* server.c; all with the lock held */
void ms_server_wake_loop(struct ms_server *s);
bool ms_server_on_loop(const struct ms_server *s);
/* Let the timer fire at `at_ns` at the latest. */
void ms_server_wake_at(struct ms_server *s, int64_t at_ns);
/* The request is out from now on; `to` is handed, or deliveries. */
void ms_server_hand_out(struct ms_server *s, struct ms_request *r, struct ms_list *to);
/* Call on_request for what waits for it. Loop's thread; lets go of the lock
 * meanwhile. */
void ms_server_deliver(struct ms_server *s);
/* It was cancelled while it runs: on_cancel, from the loop. */
void ms_server_tell(struct ms_server *s, struct ms_request *r);
void ms_server_unref_locked(struct ms_server *s); /* unlocks */

/* ledger.c; with the lock held. NULL: there are MS_METHODS_MAX, or out of memory. */
struct ms_method *
ms_server_intern(struct ms_server *s, const char *engine, const char *name);

/* listen.c; loop's thread */
void ms_listeners_finish(struct ms_server *s);

/* server_conn.c */
/* Loop's thread. Takes the socket, which has come to this listener. */
void ms_server_conn_create(struct listener *l, int fd);
/* Loop's thread; the lock is held and nobody reads it. */
void ms_server_conn_destroy(struct ms_server_conn *sc);
/* Loop's thread. It has not proven itself: it ends now, unless it is being read. */
void ms_server_conn_cut(struct ms_server_conn *sc);
/* Read with the role, without the lock. As ms_conn_read. */
int ms_server_conn_read(struct ms_server_conn *sc, struct ms_error *err);
/* The rest with the lock held. */
void ms_server_conn_watch(struct ms_server_conn *sc); /* loop's thread */
/* The connection is over, and nobody else reads it. */
void ms_server_conn_lost(struct ms_server_conn *sc);
/* Send; what cannot be sent ends the connection, and the client will ask again.
 */
int ms_server_conn_send(struct ms_server_conn *sc,
                        const struct ms_frame *head,
                        const struct iovec *iov,
                        int count);
/* Make its reader, now or later, find the end. */
void ms_server_conn_break(struct ms_server_conn *sc);

/* lane.c; the lock is held where a connection is given */
int ms_lane_init(struct ms_server *s);
void ms_lane_finish(struct ms_server *s);
int ms_lane_add(struct ms_server_conn *sc);
void ms_lane_remove(struct ms_server_conn *sc);
/* Let the loop read it, unless a thread reads it now. */
void ms_lane_arm(struct ms_server_conn *sc);
/* Become its reader; nobody reads it now. */
void ms_lane_claim(struct ms_server_conn *sc);
/* Read what is there. The lock is let go meanwhile. */
int ms_lane_read(struct ms_server_conn *sc);
/* Give it back after a read that ended with `rc`. */
void ms_lane_release(struct ms_server_conn *sc, int rc);
/* The engine reads this one itself; NULL: none. */
void ms_lane_set_hot(struct ms_server *s, struct ms_server_conn *sc);
/* The engine goes away with a request: hot is taken over if it stays away. */
void ms_lane_watch_engine(struct ms_server *s);
/* Look after a while whether the engine still has the request that it has taken now. */
void ms_lane_await_long(struct ms_server *s);

/* engine.c; the lock is held */
/* What was read from `sc` (NULL: something else) made something ready: wake the engine, if it
 * sleeps. */
void ms_engine_wake(struct ms_server *s, const struct ms_server_conn *sc);

/* activity.c; all with the lock held */
/* A request of the engine is over; `failed`: its handler said so. The end of one that the
 * engine's own thread had is the next time at which that reads the clock. */
void ms_activity_ended(struct ms_request *r, bool failed);
/* The engine's thread has come back from what it had. */
void ms_activity_back(struct ms_server *s, int64_t now_ns);

/* submit.c; all with the lock held */
void ms_submit_init(struct ms_server *s);
void ms_submit_finish(struct ms_server *s);
/* It is answered: on_done, from the loop. */
void ms_submit_answered(struct ms_request *r);
/* Call on_done where it is due. Loop's thread; lets go of the lock meanwhile. */
void ms_submit_tell(struct ms_server *s);

/* ledger.c; all with the lock held */
/* 0, or a negative errno: -ENOMEM, -EPIPE if a newer connection has replaced
 * this one. */
int ms_ledger_attach(struct ms_server_conn *sc);
void ms_ledger_detach(struct ms_server_conn *sc);
void ms_ledger_destroy(struct ms_ledger *l);
int64_t ms_ledger_sweep(struct ms_server *s, int64_t now_ns); /* next time, or NEVER */
int ms_ledger_method(struct ms_ledger *l, const struct ms_message *m);
/* Forget what the client no longer waits for. */
int ms_ledger_keep_only(struct ms_ledger *l, const struct ms_message *m);
/* The client has ended. Calls that were made go on. */
void ms_ledger_leave(struct ms_ledger *l);

/* request.c; all with the lock held */
/* In the ledger; NULL: out of memory. */
struct ms_request *ms_request_create(struct ms_ledger *l, uint64_t call_id);
bool ms_request_is_for_engine(const struct ms_request *r);
/* The first piece of a CALL that will take several. */
int ms_request_begin(struct ms_ledger *l, const struct ms_frame *head);
/* A whole CALL; a request that is now whole is put where it belongs. */
int ms_request_whole(struct ms_server_conn *sc, struct ms_message *m);
void ms_request_acked(struct ms_ledger *l, uint64_t call_id);
/* The client no longer waits for it. */
void ms_request_cancel(struct ms_request *r);
/* At the end of the engine's queue. */
void ms_request_enqueue(struct ms_request *r);
/* The next one for the engine; NULL: none. Then pop it: it is handed out, or NULL. */
struct ms_request *ms_request_next(struct ms_server *s);
struct ms_request *ms_request_pop(struct ms_request *r, int64_t now_ns);
/* Its session goes: out of it. */
void ms_request_drop(struct ms_request *r);
void ms_request_unref_locked(struct ms_request *r);

/* reply.c; all with the lock held */
/* Answer a request that is not handed out, and keep the reply. */
int ms_request_fail_locked(struct ms_request *r,
                           Muster__Failure__Kind kind,
                           const char *text);
/* Answer a call that has no request. */
void ms_reply_failure(struct ms_server_conn *sc,
                      uint64_t call_id,
                      Muster__Failure__Kind kind,
                      const char *text);
/* (Again) to the session's connection, if there is one. */
void ms_reply_send(struct ms_request *r);
/* Its items went to a connection that is gone, and were not kept. */
void ms_request_lose_stream(struct ms_request *r);

/* stream.c; all with the lock held */
/* A CREDIT: items were consumed; with RESEND: what a client that has come back has. */
int ms_stream_credit(struct ms_ledger *l, const struct ms_message *m);
/* Its connection is gone. */
void ms_stream_detach(struct ms_request *r);
/* It was asked for again, over another one: what is missing there is sent. */
void ms_stream_attach(struct ms_request *r);
/* Free its items: no client waits for them. */
void ms_stream_forget(struct ms_request *r);

#endif
