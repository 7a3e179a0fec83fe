/* client_impl.h - what the files of the client share
 *
 * client.c          the client: its peers, what the loop's thread does, the timer
 * peer.c            a peer: life, methods, starting calls
 * peer_conn.c       its connection: sending, losing, the end
 * peer_connect.c    making it, again and again; what is open goes on over a new one
 * peer_successor.c  the next worker in its place
 * peer_keepalive.c  silence on the network
 * peer_read.c       reading it: the role, and who takes it over
 * call.c            a call: waiting, completing, items
 * inbox.c           notifications
 *
 * A peer's lock guards the peer and its calls, but not the reading half of its
 * connection, which belongs to the thread that set `reading`. The client's lock
 * guards the list of peers and is never taken inside a peer's.
 *
 * A connection that has open calls is always read: by a waiting thread, or else (`armed`) by
 * the thread that takes from the inbox of its calls, or by the loop. A thread that stops reading
 * calls ms_peer_hand_over. An inbox is for those who may be busy with other things, so it has
 * a connection for MS_INBOX_READS_NS after a call, and only if all open calls are told to it.
 * Who makes calls in a row will wait for them, and read all answers at once; until then the
 * loop looks every MS_BURST_NS, and does not take the core from the worker for each answer.
 *
 * A call that was given up, cancelled or past its deadline, is done, but stays in `calls`:
 * its answer may still come, and what that grants is ours until it is given back. So the
 * connection is read until each such call has ended, one that broke is made again, and the
 * worker is asked for what it has. The peer is kept meanwhile.
 *
 * What is unreferenced under a peer's lock goes to `garbage` and is freed by
 * ms_peer_unlock, because the last call may hold the last reference to the
 * peer; a thread that locks a peer has a reference of its own. ms_peer_unlock wakes, too: a
 * thread that is woken earlier only waits for the lock.
 */
#ifndef MS_WIRE_CLIENT_CLIENT_IMPL_H
#define MS_WIRE_CLIENT_CLIENT_IMPL_H

#include "base/limits.h"
#include "base/list.h"
#include "base/lock.h"
#include "base/map.h"
#include "wire/client/client.h"
#include "wire/client/exits.h"
#include "wire/conn.h"
#include "wire/dial.h"

#include <pthread.h>
#include <stdatomic.h>

enum { ACKS_MAX = 64, LABEL_MAX = 160, PROBLEM_MAX = 160 };

struct ms_client {
    struct ms_client_options o; /* the secret is in `net` */
    struct ms_net net;
    _Atomic unsigned refs; /* the owner, and each peer */
    int epoll_fd, timer_fd;
    struct ms_watch epoll_watch, timer_watch;
    pthread_mutex_t timer_lock;
    _Atomic int64_t wake_ns;      /* when the timer is set to fire */
    int64_t due_ns;               /* the same, or when it was set if that is later */
    _Atomic unsigned outstanding; /* open calls of all peers */
    pthread_mutex_t lock;
    struct ms_list peers;
    struct ms_map by_id;
    struct ms_exits exits; /* how workers ended; under `lock` */
    uint64_t next_id;
    bool closed;
    _Atomic bool is_over; /* its owner is gone: nobody is told of calls any more */
};

enum peer_state {
    PEER_IDLE,   /* never connected, or given up: the next call tries */
    PEER_UP,     /* there is a connection */
    PEER_LOST,   /* it broke: reconnecting, or waiting for how it ended */
    PEER_DEAD,   /* `failure` is the answer to everything */
    PEER_SEEKING /* it is dead, and who has its place is asked */
};

/* Who hears of what comes over a connection that no thread reads. */
enum peer_armed { NOT_ARMED, ARMED_LOOP, ARMED_LATER, ARMED_INBOX };

struct ms_peer {
    _Atomic unsigned refs;
    struct ms_client *client;
    struct ms_list link;
    uint64_t id;          /* in the client */
    _Atomic uint64_t uid; /* changed under the lock, with a successor */
    uint64_t pair;        /* names it in spin leases */
    struct ms_dial dial;
    char label[LABEL_MAX];

    pthread_mutex_t lock;
    enum peer_state state;
    struct ms_conn *conn;
    uint8_t session[MS_SESSION_SIZE];
    bool reading;           /* a thread reads the connection */
    enum peer_armed armed;  /* else: who will */
    uint32_t watched;       /* what the loop waits for, once; 0: nothing */
    struct ms_inbox *inbox; /* with the connection among its descriptors; NULL: none */
    int64_t inbox_until_ns; /* how long that reads it; 0: it does not */
    int64_t begun_ns;       /* the last call that nobody waited for at once */
    int64_t burst_until_ns; /* such calls are made in a row */
    int64_t look_ns;        /* ARMED_LATER: when the loop reads */
    bool is_noticed;   /* of an open call the loop tells an inbox: it reads at once */
    int64_t expire_ns; /* no call has an earlier deadline */
    bool locked_read;
    struct ms_list waiters; /* threads in ms_call_wait */
    struct ms_list garbage; /* calls to unreference when the lock is free */
    _Atomic uint32_t *wake; /* then also: a thread that sleeps here, */
    struct ms_inbox *told;  /* and an inbox that has got a tag; NULL: none */
    uint64_t next_call;
    struct ms_map calls;   /* whose ends have not come; each holds a reference */
    size_t open_count;     /* of these, that were not given up */
    struct iovec *methods; /* "engine\0method" of op MS_OP_METHOD + i */
    size_t method_count, method_room;
    uint64_t acks[ACKS_MAX];
    unsigned ack_count;
    uint32_t worker_core; /* where the worker's engine was last seen, + 1 */
    unsigned spin_misses; /* polls in a row that found nothing */
    int64_t spin_again_ns;

    bool is_network; /* the connection, or the last one */
    bool is_remote;  /* its other end is on another host */
    int64_t opened_ns;
    int64_t expect_ns; /* since when something is waited for */
    bool is_suspect, told_suspect;
    int probe_fd; /* suspect: a fresh connection that is tried */
    int64_t probe_ns;

    bool was_known;         /* its worker may have heard of this session */
    bool is_broken;         /* nothing more is sent over it; it is read to its end */
    bool is_dying;          /* `failure` is known: its reader takes what came before */
    bool is_working;        /* something has come over this connection */
    bool wants_exit, asked; /* how its worker ended */
    bool
        may_have_successor; /* DEAD because its worker died: there may be a successor */
    int64_t seek_ns;        /* when to ask for it again */
    uint64_t successor_uid; /* to come when the old connection is dropped; 0: none */
    struct ms_dial successor_dial;
    int64_t lost_ns, retry_ns, exit_due_ns;
    unsigned attempts;
    char problem[PROBLEM_MAX]; /* why the last attempt to connect was given up */
    uint8_t *failure;
    size_t failure_len;
};

struct waiter {
    struct ms_list link;
    struct ms_call *call;
    _Atomic uint32_t asleep; /* the futex it sleeps on */
};

struct item {
    struct ms_list link;
    uint8_t codec;
    uint8_t *body;
    size_t len;
    void *stored; /* what on_stored gave for it */
};

struct ms_call {
    _Atomic unsigned refs;
    struct ms_peer *peer;
    struct ms_list link; /* garbage, or being expired */
    uint64_t id;
    uint16_t op, flags;
    uint8_t codec;
    bool spin;      /* poll for it first */
    bool yields;    /* ...but let others run in between */
    bool just_sent; /* and its answer cannot be there yet */
    bool sent;      /* on a connection that broke: it may have run */
    bool given_up;  /* and what comes of it is given back */
    bool done, ends_stream;
    int64_t begun_ns, asked_ns, deadline_ns;
    uint64_t flow;
    uint8_t *request; /* kept to be sent again; NULL if it was too big */
    size_t request_len;
    uint8_t kind, reply_codec;
    uint8_t *body;
    size_t len;
    void *stored; /* what on_stored gave for the body */
    void (*on_end)(void *arg);
    void *end_arg;
    struct ms_list items;
    unsigned consumed;       /* since the last CREDIT */
    uint64_t arrived, taken; /* items */
    struct ms_list notices;
};

/* client.c */
void ms_client_unref(struct ms_client *c);
/* Let the timer fire at `at_ns` at the latest. Any thread, peer's lock may be
 * held. */
void ms_client_wake_at(struct ms_client *c, int64_t at_ns);

/* peer.c */
void ms_peer_unlock(struct ms_peer *p);
/* With the lock held: out of `calls`, with its reference; NULL: there is none. */
struct ms_call *ms_peer_take_call(struct ms_peer *p, uint64_t id);
/* Unreference a call with the lock held. */
void ms_peer_drop_call(struct ms_peer *p, struct ms_call *c);

static inline struct ms_peer *ms_peer_lock(struct ms_peer *p)
{
    pthread_mutex_lock(&p->lock);
    return p;
}

static inline void ms_peer_release(struct ms_peer **p)
{
    ms_peer_unlock(*p);
}

/* As MS_LOCK, with ms_peer_unlock at the end of the block. */
#define MS_PEER_LOCK(p)                                                                \
    MS_CLEANUP(ms_peer_release)                                                        \
    struct ms_peer *ms_locked_ __attribute__((unused)) = ms_peer_lock(p)

/* peer_conn.c; the peer's lock is held */
/* Over a connection that is broken, or breaks now, this does nothing and gives 0: what is open
 * goes over the next one. */
int ms_peer_send(struct ms_peer *p,
                 const struct ms_frame *head,
                 const struct iovec *iov,
                 int count);
int ms_peer_send_method(struct ms_peer *p, size_t i);
/* The head of its CALL, with the time that is left. */
struct ms_frame ms_call_frame(const struct ms_call *c, int64_t now_ns);
void ms_peer_drop_conn(struct ms_peer *p); /* nobody else reads it */
/* The connection is over; the reader's role is ours, or nobody has it. */
void ms_peer_lose(struct ms_peer *p, int why, const struct ms_error *err);
/* End the connection for `why`; a thread that reads it does that itself. */
void ms_peer_break(struct ms_peer *p, int why);
/* It has none. Losing it again and again, without a word in between, is being lost all the
 * time; and one that is suspect was lost when it was last heard. */
void ms_peer_set_lost(struct ms_peer *p, int64_t now_ns);
void ms_peer_retry_later(struct ms_peer *p, int64_t now_ns);
/* Nobody listens: ask how its worker ended. */
void ms_peer_await_exit(struct ms_peer *p, int64_t now_ns);
/* With this failure. Calls that can go on (peer_successor.c) stay open. `exit` may be NULL. */
void ms_peer_die(struct ms_peer *p,
                 Muster__Failure__Kind kind,
                 const char *text,
                 const Muster__Exit *exit);
/* The end of all calls but, if `but_unsent`, those that can go on; the failure is borrowed. */
void ms_peer_end_calls(struct ms_peer *p,
                       const uint8_t *failure,
                       size_t len,
                       bool but_unsent);
void ms_peer_give_up(struct ms_peer *p, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* peer_connect.c; the peer's lock is held */
void ms_peer_connect(struct ms_peer *p);
/* Retries, exits that are not told, deadlines; the next time to look. */
int64_t ms_peer_on_time(struct ms_peer *p, int64_t now_ns);

/* peer_successor.c; the peer's lock is held */
/* True if this call may wait for a successor: it was never sent. */
bool ms_call_can_go_on(const struct ms_call *c);
/* Ask for one. */
void ms_peer_seek_successor(struct ms_peer *p);
/* The old connection is no more: be the new worker's, if there is one. */
void ms_peer_succeed(struct ms_peer *p);
/* This worker has its place; NULL: nobody has. */
void ms_peer_set_successor(struct ms_peer *p, const Muster__WorkerStatus *worker);

/* peer_keepalive.c; the peer's lock is held */
/* A call was sent: silence counts from now on, if it did not before. */
void ms_peer_expect(struct ms_peer *p, int64_t now_ns);
/* Pings, suspicion, the end of grace; the next time to look. */
int64_t ms_peer_check_silence(struct ms_peer *p, int64_t now_ns);
/* This process did not run for so long: that is not the other side's silence. */
void ms_peer_was_suspended(struct ms_peer *p, int64_t suspended_ns, int64_t now_ns);
/* Since when nothing has come. */
int64_t ms_peer_heard_ns(const struct ms_peer *p, int64_t now_ns);

/* peer_read.c; the peer's lock is held */
void ms_peer_arm(struct ms_peer *p);
/* It is time that the loop reads. */
void ms_peer_look(struct ms_peer *p);
/* `where`, which was armed, has heard of it. Locks the peer. */
void ms_peer_ready(struct ms_peer *p, enum peer_armed where);
/* Read with the role taken; lets go of the lock meanwhile. Polls first if
 * `spin`, then waits until until_ns (0: not at all). 0, -EINTR or -ETIMEDOUT.
 */
int ms_peer_read(struct ms_peer *p, struct ms_call *c, int64_t until_ns);
/* Its worker is dead: what it has answered is there. */
void ms_peer_read_rest(struct ms_peer *p);
/* We end: what is on its way to us will not arrive. */
void ms_peer_leave(struct ms_peer *p);
/* If no thread reads now, wake a waiter that will, or let the loop read. */
void ms_peer_hand_over(struct ms_peer *p);

/* call.c; the peer's lock is held */
/* What on_stored gives for the body of an answer or item; NULL: it has no objects. */
void *
ms_peer_take_stored(struct ms_peer *p, uint8_t codec, const uint8_t *body, size_t len);
void ms_call_complete(
    struct ms_call *c, uint8_t kind, uint8_t codec, uint8_t *body, size_t len);
void ms_call_fail(struct ms_call *c, Muster__Failure__Kind kind, const char *text);
int ms_call_add_item(struct ms_call *c, struct ms_message *m);
/* Complete what is past its deadline; the next deadline. */
int64_t ms_calls_expire(struct ms_peer *p, int64_t now_ns);
void ms_waiter_wake(struct waiter *w);
/* Wake the thread that sleeps on this, or nobody: it may be gone. */
void ms_waiter_wake_at(_Atomic uint32_t *asleep);
/* A packed Failure; NULL: out of memory. */
uint8_t *ms_failure_pack(Muster__Failure__Kind kind,
                         const char *where,
                         const char *text,
                         const Muster__Exit *exit,
                         size_t *len);

/* inbox.c; the peer's lock is held */
/* It hears of this call: it reads the connection for a while, if no other inbox hears of the
 * calls over it. */
void ms_inbox_adopt(struct ms_inbox *i, struct ms_call *c);
/* The connection is no more among its descriptors. */
void ms_inbox_release(struct ms_peer *p);
/* Hear of the connection once, or not. */
void ms_inbox_watch(struct ms_peer *p, bool is_armed);
void ms_notices_put(struct ms_call *c);
/* Without the lock: signal the inbox if tags wait, and give up the reference. */
void ms_inbox_tell(struct ms_inbox *i);
void ms_notices_free(struct ms_call *c);
int ms_notice_add(struct ms_call *c, struct ms_inbox *i, uint64_t tag, bool now);

#endif
