/* client.h - the calling side
 *
 * A client holds the peers (workers) that a process calls; a peer has one connection,
 * made on first use and remade when it breaks; a call is one request to a peer and
 * completes exactly once. All functions may be called from any thread.
 *
 * The thread that waits reads: a thread that waits for a call reads the peer's connection
 * itself, polling first if it holds a spin lease. Only when nobody waits does the
 * loop's thread read, for the sake of callbacks and deadlines.
 *
 * When a connection ends, the client tries to reconnect and attach its open calls
 * again. If nobody listens there any more it asks how the worker ended (ask_exit) and waits
 * for the answer (ms_client_worker_exited), which fails all open calls at once; without one
 * they fail as unreachable after MS_EXIT_WAIT_NS. The last MS_EXITS_KEPT ends are known and
 * not asked for.
 *
 * A worker that died may have a successor in its place (ask_successor). A call that was
 * certainly never sent to the dead one, because it was made later, waits for the answer and
 * goes there; the peer then is the new worker's. All others fail.
 *
 * On a network connection silence means something. While calls are open it says PING when
 * it has sent nothing for MS_PING_NS; after MS_SUSPECT_NS in which nothing came the peer is
 * suspect (on_suspect) and fresh connections are tried beside the old one, so that a healed
 * link is found soon; after grace_ns of silence the open calls fail as unreachable.
 */
#ifndef MS_WIRE_CLIENT_CLIENT_H
#define MS_WIRE_CLIENT_CLIENT_H

#include "base/error.h"
#include "io/loop.h"
#include "proto/muster.pb-c.h"
#include "wire/frame.h"
#include "wire/spin.h"
#include "wire/transport/tls.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

struct ms_client;
struct ms_peer;
struct ms_call;
struct ms_inbox;

/* What is told of a call that has ended; borrowed. */
struct ms_called {
    const char *label, *method; /* the peer's; without the engine's name */
    int64_t begun_ns;
    uint64_t flow; /* of its spec */
    bool failed;
};

struct ms_client_options {
    struct ms_loop *loop;
    const uint8_t *secret; /* copied */
    struct ms_spin *spin;  /* borrowed; may be NULL */
    /* The connection to this worker broke and nobody listens: find out how it ended, and
     * then say ms_client_worker_exited. May be NULL. Loop's thread; no lock is held. */
    void (*ask_exit)(void *arg, uint64_t uid);
    /* A call was made to a worker that is dead: find out who has its place, and then say
     * ms_client_successor. May be NULL: then nobody has. Asked again every MS_SEEK_NS. Loop's
     * thread; no lock is held. */
    void (*ask_successor)(void *arg, uint64_t uid);
    /* Nothing has come from this worker for MS_SUSPECT_NS although calls are open, or
     * something has again. May be NULL. Loop's thread; no lock is held. */
    void (*on_suspect)(void *arg, uint64_t uid, bool is_suspect);
    /* An answer, or an item of one, with objects of a store (MS_CODEC_STORED) has arrived:
     * they are ours from now on; `token` is given back by on_stored_drop if nobody has
     * taken the body. Any thread, with a peer's lock held. May be NULL. */
    void *(*on_stored)(void *arg, const uint8_t *body, size_t len);
    void (*on_stored_drop)(void *token);
    /* A call to a method has ended, given up or not. Any thread, with a peer's lock held. May
     * be NULL. */
    void (*on_called)(void *arg, const struct ms_called *called);
    void *arg;
    enum ms_tls_mode tls; /* what TCP connections begin with */
    int64_t exit_wait_ns; /* 0: MS_EXIT_WAIT_NS */
    int64_t grace_ns;     /* broken or silent until given up; 0: MS_LINK_GRACE_NS */
};

struct ms_client *ms_client_create(const struct ms_client_options *o);
/* Fail all open calls (`why`), close all connections. Peers and calls stay valid until
 * they are unreferenced. On the loop's thread, or when the loop does not run. */
void ms_client_destroy(struct ms_client *c, const char *why);

/* This worker has ended, as was asked for or not: its calls fail now, and every later one at
 * once. Only the first report counts. */
void ms_client_worker_exited(struct ms_client *c,
                             uint64_t uid,
                             const Muster__Exit *exit);

/* Another worker has its place now: all peers of `uid` are the new one's, and what was open
 * at the old one fails, if it has not yet. NULL: nobody has. */
void ms_client_successor(struct ms_client *c,
                         uint64_t uid,
                         const Muster__WorkerStatus *worker);

/* In a forked child: close the inherited descriptors. Open calls are over and new ones
 * fail, both with a failure that says why. */
void ms_client_forget(struct ms_client *c);

/* A worker at one of the addresses of a list (io/addr.h), which are tried in order; the one
 * that worked is tried first the next time. `label` ("actor_train/0@node") appears in
 * errors. */
struct ms_peer *ms_peer_create(struct ms_client *c,
                               const char *addresses,
                               uint64_t uid,
                               const char *label,
                               struct ms_error *err);
struct ms_peer *ms_peer_ref(struct ms_peer *p);
/* The last one closes the connection. */
void ms_peer_unref(struct ms_peer *p);
uint64_t ms_peer_uid(const struct ms_peer *p);
const char *ms_peer_label(const struct ms_peer *p); /* as long as the peer */

/* The op that means engine.method on this peer, interned on first use; -ENAMETOOLONG (also
 * for an empty method), -EILSEQ (no ms_title_check), -ENOSPC, -ENOMEM. */
int ms_peer_method(struct ms_peer *p, const char *engine, const char *method);

struct ms_call_spec {
    uint16_t op;
    uint8_t codec;
    bool stream;         /* items are welcome */
    bool waits;          /* the caller waits for it right away: may spin... */
    bool is_of_many;     /* ...unless others are called with it, who need the cores */
    int64_t deadline_ns; /* absolute, or MS_NEVER */
    int64_t asked_ns;    /* when it was so far away as its error says; 0: now */
    const struct iovec *iov; /* the payload; borrowed until ms_peer_call returns */
    int count;
    const uint64_t *chain; /* workers that wait for this call */
    uint32_t chain_count;
    uint64_t
        flow; /* in timelines, joined with other calls of the same number; 0: none */
    /* What the payload refers to may go: the call has ended. Comes once, on any thread, with
     * the peer's lock held: it must not come back here. May be NULL. */
    void (*on_end)(void *arg);
    void *end_arg;
};

/* Start a call. NULL only when out of memory; any other failure is the call's. */
struct ms_call *ms_peer_call(struct ms_peer *p, const struct ms_call_spec *spec);

struct ms_call *ms_call_ref(struct ms_call *c);
void ms_call_unref(struct ms_call *c); /* does not cancel */

bool ms_call_is_done(struct ms_call *c);
/* Wait until it is done (or, for a stream, an item is there): 0; -ETIMEDOUT at
 * until_ns; -EINTR after a signal. Several threads may wait for one call. */
int ms_call_wait(struct ms_call *c, int64_t until_ns);
/* Give it up: it completes as cancelled unless it is done. */
void ms_call_cancel(struct ms_call *c);
/* Nobody will wait for it, although its spec said so: the loop's thread reads its
 * reply. */
void ms_call_let_go(struct ms_call *c);
struct ms_peer *ms_call_peer(struct ms_call *c); /* borrowed */

/* After it is done: MS_KIND_REPLY with its payload, or MS_KIND_ERROR with a packed
 * Failure. Borrowed until the last unref; ms_call_take_body moves the memory out. */
struct ms_outcome {
    uint8_t kind, codec;
    bool ends_stream;
    const uint8_t *body;
    size_t len;
};
void ms_call_outcome(struct ms_call *c, struct ms_outcome *o);
/* *stored is what on_stored gave for an MS_CODEC_STORED answer, the caller's from now on, or
 * NULL; `stored` NULL: it stays with the call. */
uint8_t *ms_call_take_body(struct ms_call *c, void **stored);

/* Items wait to be taken. */
bool ms_call_has_items(struct ms_call *c);

/* The next item of a stream, if one is there: 1, and memory that the caller frees; 0 if
 * none is there now. *stored is what on_stored gave for an MS_CODEC_STORED item, the caller's
 * from now on, or NULL; `stored` NULL: it is dropped. */
int ms_call_take_item(
    struct ms_call *c, uint8_t *codec, uint8_t **body, size_t *len, void **stored);

/* ---- completions for event loops ------------------------------------------------- */

/* Where completions go for those that cannot block: a descriptor that becomes readable,
 * and a list of tags. Who takes them reads the connections that they come over: for
 * MS_INBOX_READS_NS after a call was made or told to it the descriptor stands for these
 * connections, so that no other thread must wake up for an answer. After that, and where
 * several inboxes hear of the calls of one peer, the loop reads. Who waits in another way, by
 * ms_call_wait or by looking at ms_call_is_done, reads too: it never waits for the taker. */
struct ms_inbox *ms_inbox_create(void);
void ms_inbox_unref(struct ms_inbox *i); /* the owner's; rests first */
int ms_inbox_fd(const struct ms_inbox *i);
/* Take at most `room` tags; their count, which may be 0 although the descriptor was
 * readable: what had come was not the whole. Never blocks. */
size_t ms_inbox_take(struct ms_inbox *i, uint64_t *tags, size_t room);
/* Nobody waits for it any more: from now on the loop reads, until a call is told to it. */
void ms_inbox_rest(struct ms_inbox *i);
/* Put `tag` there when the call is done (at once if it is), and, for a stream, whenever
 * items arrive. A tag is there once until it is taken: then look for all that has come.
 * 0 or -ENOMEM. */
int ms_call_notify(struct ms_call *c, struct ms_inbox *i, uint64_t tag);

#endif
