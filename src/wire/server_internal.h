/* server_internal.h - what the files of the server share
 *
 * server.c     listening, connections, what the loop's thread does
 * lane.c       the engine's thread: polling, blocking, take-over
 * ledger.c     sessions, requests, replies: at most once
 *
 * One lock guards everything below but the reading half of a connection, which belongs
 * to whoever has set `reading`.
 */
#ifndef MS_WIRE_SERVER_INTERNAL_H
#define MS_WIRE_SERVER_INTERNAL_H

#include "base/map.h"
#include "wire/conn.h"
#include "wire/server.h"

#include <pthread.h>
#include <stdatomic.h>

struct server_conn {
    struct ms_list link; /* server->conns */
    struct ms_list idle_link; /* server->disarmed, while in the lane and not armed */
    struct ms_server *server;
    struct ms_conn *conn;
    uint64_t id;
    struct ms_ledger *ledger; /* NULL until the first message */
    struct ms_watch watch;    /* loop: reading (not in the lane) and writing */
    struct ms_timer deadline; /* of the handshake */
    bool in_lane;             /* in lane_fd; read by engine or loop in turn */
    bool armed;               /* lane_fd reports it */
    bool reading;             /* somebody reads it */
    bool flush_posted;
    bool dead; /* its destruction has been posted */
};

/* The calls of one client session; outlives its connections by MS_LINK_GRACE_NS. */
struct ms_ledger {
    struct ms_list link;
    uint8_t session[MS_SESSION_SIZE];
    struct ms_server *server;
    struct server_conn *conn; /* NULL: no connection now */
    int64_t lost_ns;
    struct ms_map requests;      /* call id -> request */
    struct ms_list kept;         /* answered, oldest first */
    uint64_t kept_bytes;
    struct ms_method **methods; /* by op - MS_OP_METHOD */
    uint32_t method_room;
};

struct ms_server {
    struct ms_loop *loop;
    pthread_t loop_thread;
    bool loop_thread_known;
    uint8_t secret[MS_SECRET_SIZE];
    uint64_t identity;
    bool has_engine;
    const struct ms_server_ops *ops;
    void *arg;

    pthread_mutex_t lock;
    pthread_cond_t credit; /* a stream's window opened, or it was cancelled */
    unsigned refs;         /* server, and each handed-out request */
    bool destroyed;

    int listen_fd;
    struct ms_watch listen_watch;
    struct ms_timer listen_again;
    struct ms_timer sweep; /* ledgers without a connection */
    struct ms_list conns, ledgers;
    struct ms_map by_id; /* id -> server_conn */
    uint64_t next_id;
    unsigned conn_count;
    struct ms_method **methods;
    uint32_t method_count, method_room;

    /* the engine's lane */
    int lane_fd;    /* epoll of the connections in the lane, id 0: wake_read */
    int wake_read, wake_write;
    struct ms_watch lane_watch; /* loop: lane_fd, while taken over */
    int tick_fd;
    struct ms_watch tick_watch;
    _Atomic bool tick_armed;
    struct ms_list disarmed;
    struct server_conn *hot; /* the last one that gave the engine something */
    struct ms_list queue;    /* requests for the engine */
    _Atomic unsigned queued;
    bool taken; /* the loop's thread reads the lane */
    bool is_async;
    bool engine_blocked;
    bool spin_next; /* the last request came with a lease */
    _Atomic bool stopping;
    struct ms_request *running;
    int64_t busy_since_ns; /* 0: idle */
    uint64_t calls_done, calls_at_tick;
};

/* server.c */
bool ms_server_on_loop(const struct ms_server *s);
/* Role holder's thread, lock held: the connection is over. */
void ms_server_conn_lost(struct server_conn *sc);
/* Read with the role, without the lock. As ms_conn_read. */
int ms_server_conn_read(struct server_conn *sc, struct ms_error *err);
/* Lock held: if output waits, let the loop watch for room. */
void ms_server_conn_want_flush(struct server_conn *sc);
void ms_server_unref_locked(struct ms_server *s); /* unlocks */

/* lane.c */
int ms_lane_init(struct ms_server *s);
void ms_lane_finish(struct ms_server *s);
int ms_lane_add(struct server_conn *sc);     /* lock held */
void ms_lane_remove(struct server_conn *sc); /* lock held */
void ms_lane_wake(struct ms_server *s);      /* lock held; if the engine is blocked */

/* ledger.c; all with the lock held */
struct ms_ledger *ms_ledger_attach(struct ms_server *s, struct server_conn *sc);
void ms_ledger_detach(struct server_conn *sc);
void ms_ledger_destroy(struct ms_ledger *l);
int64_t ms_ledger_sweep(struct ms_server *s, int64_t now_ns); /* next time, or NEVER */
/* Gives the request that begins, or NULL if it is known already. */
int ms_ledger_begin(struct ms_ledger *l,
                    const struct ms_frame *head,
                    int64_t now_ns,
                    struct ms_request **fresh);
/* A whole CALL. *ready: a request that became ready to be routed, or NULL. */
int ms_ledger_call(struct ms_ledger *l,
                   struct ms_message *m,
                   int64_t now_ns,
                   struct ms_request **ready,
                   bool *has_place);
int ms_ledger_method(struct ms_ledger *l, const struct ms_message *m);
void ms_ledger_ack(struct ms_ledger *l, uint64_t call_id);
/* The request that was cancelled while it runs (to be told), or NULL. */
struct ms_request *ms_ledger_cancel(struct ms_ledger *l, uint64_t call_id);
void ms_ledger_credit(struct ms_ledger *l, uint64_t call_id, uint32_t items);
/* Answer, keep the reply, drop nothing of the caller's. */
int ms_request_finish_locked(struct ms_request *r,
                             uint8_t kind,
                             uint8_t codec,
                             uint16_t flags,
                             const struct iovec *iov,
                             int count);
int ms_request_fail_locked(struct ms_request *r,
                           Muster__Failure__Kind kind,
                           const char *text);
void ms_request_unref_locked(struct ms_request *r);

#endif
