/* server.h - the answering side of calls
 *
 * A server accepts connections, lets them prove the secret, and hands each call to its
 * owner as a request, which is answered exactly once, from any thread. A call is named
 * by (session, call id) and is handed out at most once: one that is sent again after a
 * reconnect is attached to what runs already, or answered from the kept reply, which
 * stays until the client has acknowledged it.
 *
 * Threads. The loop's thread accepts, shakes hands and reads. But the connection that
 * gave a worker's engine its last calls is read by the engine's thread itself while that
 * has nothing else to do (ms_server_engine_next), because a hand-over between two threads
 * costs as much as the whole call; while the engine is busy the loop's thread reads that
 * one too, so that health, cancel and new calls are seen at once. A server without an
 * engine serves everything on the loop.
 *
 * Order. Requests of one session come out in the order in which their first pieces were
 * sent, although a small one may be there before a big one is whole. One session never
 * waits for the missing pieces of another's.
 *
 * Sessions. On the call lane a session outlives its connections, so that the client can
 * come back to its calls; a newer connection of a session replaces the older one. On
 * the control lane a session ends with its connection. A connection of the link lane is not
 * a session: it is given to the owner as a link (link.h).
 *
 * Listeners may be unix sockets or TCP. On TCP the first byte tells what comes: TLS, our
 * handshake, or HTTP, which is given away. A listener has at most `unproven_max`
 * connections that have not proven the secret; for a new one the oldest of them is cut.
 */
#ifndef MS_WIRE_SERVER_SERVER_H
#define MS_WIRE_SERVER_SERVER_H

#include "base/error.h"
#include "base/limits.h"
#include "base/list.h"
#include "io/loop.h"
#include "proto/muster.pb-c.h"
#include "wire/frame.h"
#include "wire/handshake.h"
#include "wire/transport/tls.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

struct ms_server;
struct ms_ledger;
struct ms_link;
struct sockaddr_storage;

/* The calls of a method that have run. `took` counts those that took at most so many
 * milliseconds, each in the first that fits; the last count is of those that took longer. */
#define MS_CALL_TIMES_MS                                                               \
    {                                                                                  \
        0.1, 1, 10, 100, 300, 1000, 3000, 10000, 30000, 100000, 300000                 \
    }
enum { MS_CALL_TIMES = 12 };

struct ms_method_calls {
    uint64_t failed, total_ns;
    uint64_t took[MS_CALL_TIMES];
};

/* An interned method; one per (engine, name) and server, never freed before it. */
struct ms_method {
    uint32_t index; /* 0, 1, 2, ... */
    char *engine, *name;
    struct ms_method_calls calls; /* under the server's lock */
};

/* How a submitted request ended: MS_KIND_REPLY or MS_KIND_ERROR (a packed Failure; empty
 * if there was no memory for one). The body is borrowed. */
typedef void
ms_submit_fn(void *arg, uint8_t kind, uint8_t codec, const uint8_t *body, size_t len);

enum ms_serve_state {
    MS_SERVE_RECEIVING, /* has its place; the body is on its way */
    MS_SERVE_WAITING,   /* whole; not handed out */
    MS_SERVE_RUNNING,   /* handed out */
    MS_SERVE_DONE       /* answered; the reply is kept until acknowledged */
};

/* Fields are read-only for the owner, between on_request (or engine_next) and the
 * reply. */
/* The items of a request that streams; stream.c's. */
struct ms_stream {
    struct ms_list items; /* made, and perhaps not arrived: the newest */
    size_t kept, bytes;   /* how many those are */
    uint64_t made, consumed;
    bool is_held_up; /* the handler has found the window closed */
    bool is_adrift;  /* the connection broke: items are not sent now */
    bool is_resumed; /* and its client has said what it has */
    bool is_wired;   /* an item was sent to a client */
    bool is_unkept;  /* some could not be kept */
};

struct ms_request {
    uint64_t call_id;
    uint16_t op, flags;
    uint8_t codec;
    const struct ms_method *method; /* NULL for built-in operations */
    uint8_t *body;                  /* the payload; see ms_request_take_body */
    size_t len;
    int64_t deadline_ns;
    uint32_t chain_count; /* workers that wait for this call, outermost first */
    uint64_t chain[MS_CHAIN_MAX];
    uint64_t owner_words[2]; /* the owner's, to remember something by */

    /* the server's */
    enum ms_serve_state state;
    bool cancelled;
    unsigned refs;
    struct ms_ledger *ledger;
    struct ms_server *server;
    struct ms_list queue_link;  /* queue, then deliveries, then handed */
    struct ms_list ledger_link; /* kept */
    struct ms_list tell_link;   /* tells */
    uint64_t walk;              /* the ATTACH that still wants it */
    uint8_t *memory;            /* malloc'd block behind body */
    struct ms_stream stream;
    uint32_t core;         /* of the caller, + 1 */
    int64_t begun_ns;      /* when the engine took it */
    bool expired;          /* cancelled by its deadline */
    bool streamed;         /* the handler sends items */
    bool stream_lost;      /* and their connection broke */
    bool reply_lost;       /* the reply was dropped */
    ms_submit_fn *on_done; /* of a submitted one */
    void *done_arg;
    uint8_t reply_kind, reply_codec;
    uint16_t reply_flags;
    uint8_t *reply;
    size_t reply_len;
};

struct ms_server_ops {
    /* Loop's thread, for built-in operations below 16 and for everything when there is
     * no engine. The request is the callee's until it replies. */
    void (*on_request)(void *arg, struct ms_request *r);
    /* A handed-out request was cancelled, its deadline came, or its session is gone; a
     * reply is still due (it is dropped). Loop's thread; no lock is held. It may cross
     * the reply: `r` is valid, but its owner may be done with it. May be NULL. */
    void (*on_cancel)(void *arg, struct ms_request *r);
    /* Async engine: requests wait (call ms_server_engine_poll until it gives NULL), or a
     * window that was found closed is open. Any thread. */
    void (*on_queued)(void *arg);
    /* The caller has ended, and this answer has not reached it: what it grants can be taken
     * back. Any thread, with the server's lock held: it must not come back here. May be
     * NULL. */
    void (*on_unread)(void *arg, const struct ms_request *r);
    /* For the first time the engine has been busy for MS_LONG_NS with one request, or an
     * asynchronous one has had any for so long. Once. Loop's thread; may be NULL. */
    void (*on_long)(void *arg);
    /* A connection of the link lane has proven the secret: ms_link_accept it here, or
     * destroy it. Loop's thread; no lock is held. NULL: such connections are cut. */
    void (*on_link)(void *arg, struct ms_link *l);
    /* HTTP has come to a TCP listener: the socket (non-blocking) is the callee's, and
     * nothing was read from it yet. `peer` is who it is, borrowed. Loop's thread; no lock
     * is held. NULL: such connections are cut. */
    void (*on_http)(void *arg, int fd, const struct sockaddr_storage *peer);
    /* A connection was refused: a wrong secret, another version, TLS due and not there.
     * For a log; `peer` is text ("10.0.0.7:41234", "unix"). Loop's thread; no lock is
     * held. May be NULL. */
    void (*on_refused)(void *arg, const char *peer, const struct ms_error *why);
};

struct ms_server_options {
    struct ms_loop *loop;
    const uint8_t *secret; /* MS_SECRET_SIZE bytes, copied */
    uint64_t identity;     /* told to clients */
    bool has_engine;       /* calls (op >= 16) go to the engine's queue */
    enum ms_tls_mode tls;  /* what TCP connections must be */
    const struct ms_server_ops *ops;
    void *arg;
    int64_t handshake_ns;  /* 0: MS_HANDSHAKE_NS */
    unsigned unproven_max; /* of one listener; 0: MS_UNPROVEN_MAX */
    int64_t grace_ns;      /* a session without a connection; 0: 2 * MS_LINK_GRACE_NS */
};

struct ms_server *ms_server_create(const struct ms_server_options *o);
/* On the loop's thread (not inside a callback of this server), or when the loop does
 * not run; the engine's thread has left ms_server_engine_next for good. Open requests
 * become orphans: replying to them stays legal until the last one is answered. */
void ms_server_destroy(struct ms_server *s);

/* In a forked child: close the inherited descriptors, the listening ones too. The server
 * is of no use there. */
void ms_server_forget(struct ms_server *s);

/* Takes over a listening socket, unix or TCP, also on failure; at most MS_LISTENERS_MAX
 * (-ENOSPC). Loop's thread, or before it runs. */
int ms_server_listen(struct ms_server *s, int fd);

/* ---- the engine's thread --------------------------------------------------------- */

/* The next request for the engine, in order, polling and then blocking for it. Runs on
 * one thread, always the same. Until the next call the engine counts as busy. 0;
 * -ETIMEDOUT at until_ns; -EINTR after a signal; -ESHUTDOWN after
 * ms_server_engine_stop. Requests that were cancelled or have expired are answered here
 * and never come out. */
int ms_server_engine_next(struct ms_server *s, int64_t until_ns, struct ms_request **r);

/* Instead of it, for an engine with an event loop of its own: never blocks, NULL if
 * nothing waits; the loop's thread does all the reading and says on_queued. Call
 * ms_server_engine_is_async first, once. */
void ms_server_engine_is_async(struct ms_server *s);
struct ms_request *ms_server_engine_poll(struct ms_server *s);

/* Any thread, also a signal handler's (it only sets a flag and writes an eventfd). */
void ms_server_engine_stop(struct ms_server *s);

/* Writing a byte here makes ms_server_engine_next return -EINTR: for
 * signal.set_wakeup_fd and the like. */
int ms_server_engine_wake_fd(const struct ms_server *s);

/* What the engine does now: the request that runs (NULL: idle) and since when; copies
 * its name. Any thread. */
bool ms_server_engine_running(struct ms_server *s,
                              char *name,
                              size_t room,
                              int64_t *since_ns,
                              uint64_t *queued,
                              uint64_t *done);

/* The same with all that was counted: what the engine does, for how long, and its methods;
 * uid and memory are not set. Freed with muster__activity__free_unpacked. NULL: out of
 * memory. Any thread. */
Muster__Activity *ms_server_activity(struct ms_server *s);

/* ---- requests that came by another way than a connection of ours ------------------- */

/* Put one into the engine's queue, behind what is there. `body` is a malloc'd block,
 * which is taken over, also on failure. on_done comes once, on the loop's thread, never
 * before this returns; only a server that is destroyed meanwhile forgets it. NULL: out of
 * memory. Loop's thread. */
struct ms_request *ms_server_submit(struct ms_server *s,
                                    uint16_t op,
                                    uint8_t codec,
                                    uint8_t *body,
                                    size_t len,
                                    ms_submit_fn *on_done,
                                    void *arg);
/* The op that means engine.method for what is submitted. -ENOSPC: there are MS_METHODS_MAX,
 * or no memory. Loop's thread. */
int ms_server_submit_method(struct ms_server *s,
                            const char *engine,
                            const char *method);
/* Cancel it: it does not begin, or its handler is told. on_done still
 * comes. Loop's thread, before on_done. */
void ms_server_submit_cancel(struct ms_request *r);

/* ---- answering, from any thread -------------------------------------------------- */

/* Each of these ends the request; it must not be touched afterwards. A failure means that
 * the caller does not get this answer: -ECANCELED, the call was cancelled; -EMSGSIZE and
 * -ENOMEM, an error was sent instead. */
int ms_request_reply(struct ms_request *r,
                     uint8_t codec,
                     const struct iovec *iov,
                     int count);
int ms_request_fail(struct ms_request *r, const Muster__Failure *f);
int ms_request_fail_text(struct ms_request *r,
                         Muster__Failure__Kind kind,
                         const char *fmt,
                         ...) __attribute__((format(printf, 3, 4)));

/* The answer is a stream, also if it has no item. Before the first item. */
void ms_request_begin_stream(struct ms_request *r);
/* One item of a stream. 0; -EAGAIN: the window is closed (wait); -ECANCELED: nobody
 * listens any more, end with a reply. */
int ms_request_item(struct ms_request *r,
                    uint8_t codec,
                    const struct iovec *iov,
                    int count);
/* Block until the window is open: 0, -ETIMEDOUT at until_ns, or -ECANCELED. */
int ms_request_item_wait(struct ms_request *r, int64_t until_ns);
bool ms_request_is_cancelled(struct ms_request *r);

/* The memory behind body, now the caller's: free(*memory) frees it. */
void ms_request_take_body(struct ms_request *r, uint8_t **memory);

#endif
