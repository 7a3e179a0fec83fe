/* client_internal.h - what the files of the client share
 *
 * client.c  the client: its peers, what the loop's thread does, deadlines
 * peer.c    a peer: connecting, sending, reading, losing and attaching again
 * call.c    a call: waiting, completing, items, notifications
 *
 * A peer's lock guards the peer and its calls, but not the reading half of its
 * connection, which belongs to whoever has set `reading`. The client's lock guards the
 * list of peers and is never taken inside a peer's.
 */
#ifndef MS_WIRE_CLIENT_INTERNAL_H
#define MS_WIRE_CLIENT_INTERNAL_H

#include "base/limits.h"
#include "base/list.h"
#include "base/map.h"
#include "wire/client.h"
#include "wire/conn.h"

#include <pthread.h>
#include <stdatomic.h>

enum { ACKS_MAX = 64, LABEL_MAX = 160, PROBLEM_MAX = 160 };

struct ms_client {
    struct ms_loop *loop;
    uint8_t secret[MS_SECRET_SIZE];
    struct ms_spin *spin;
    void (*ask_verdict)(void *arg, uint64_t uid);
    void *arg;
    _Atomic unsigned refs; /* the owner, each peer, posted work */
    int epoll_fd;
    struct ms_watch watch;
    struct ms_timer timer;
    _Atomic int64_t wake_ns;      /* when the timer is set to fire */
    _Atomic unsigned outstanding; /* open calls of all peers */
    pthread_mutex_t lock;
    struct ms_list peers;
    struct ms_map by_id;
    uint64_t next_id;
    bool closed;
};

enum peer_state {
    PEER_IDLE, /* never connected, or given up: the next call tries */
    PEER_UP,   /* there is a connection */
    PEER_LOST, /* it broke: reconnecting, or waiting for a verdict */
    PEER_DEAD  /* `failure` is the answer to everything */
};

struct ms_peer {
    _Atomic unsigned refs;
    struct ms_client *client;
    struct ms_list link;
    uint64_t id; /* in the client */
    uint64_t uid;
    uint64_t pair; /* names it in spin leases */
    char *path;
    char label[LABEL_MAX];

    pthread_mutex_t lock;
    pthread_cond_t changed;
    enum peer_state state;
    struct ms_conn *conn;
    uint8_t session[MS_SESSION_SIZE];
    bool reading, armed, locked_read, broken;
    unsigned waiters;
    uint64_t next_call;
    struct ms_map pending;
    char **methods; /* "engine\0method" of op MS_OP_METHOD + i */
    size_t *method_lens;
    uint32_t method_count, method_room;
    uint64_t acks[ACKS_MAX];
    unsigned ack_count;
    int64_t lost_ns, retry_ns, verdict_ns;
    unsigned attempts;
    bool asked;
    char problem[PROBLEM_MAX]; /* why the last attempt to connect was given up */
    uint8_t *failure;
    size_t failure_len;
};

struct item {
    struct ms_list link;
    uint8_t codec;
    uint8_t *body;
    size_t len;
};

struct notice {
    struct ms_list link;
    struct ms_inbox *inbox;
    uint64_t tag;
};

struct ms_call {
    _Atomic unsigned refs;
    struct ms_peer *peer;
    uint64_t id;
    uint16_t op, flags;
    uint8_t codec;
    bool spin;
    bool done, ends_stream;
    int64_t deadline_ns;
    uint8_t *request; /* kept to be sent again; NULL if it was too big */
    size_t request_len;
    uint8_t kind, reply_codec;
    uint8_t *body;
    size_t len;
    struct ms_list items;
    unsigned consumed;
    struct ms_list notices;
};

/* client.c */
void ms_client_unref(struct ms_client *c);
/* Let the timer fire at `at_ns` at the latest. Any thread, peer's lock may be held. */
void ms_client_wake_at(struct ms_client *c, int64_t at_ns);

/* peer.c; the peer's lock is held */
int ms_peer_send(struct ms_peer *p,
                 const struct ms_frame *head,
                 const struct iovec *iov,
                 int count);
void ms_peer_arm(struct ms_peer *p);
/* Read once with the role taken; lets go of the lock meanwhile. Polls first if `spin`,
 * then waits until until_ns. 0, -EINTR or -ETIMEDOUT. */
int ms_peer_read(struct ms_peer *p, bool spin, int64_t until_ns);
void ms_peer_connect(struct ms_peer *p);
void ms_peer_fail_all(struct ms_peer *p, const uint8_t *failure, size_t len);
void ms_peer_die(struct ms_peer *p, uint8_t *failure, size_t len); /* takes failure */
/* Retries, verdicts that do not come, deadlines; the next time to look. */
int64_t ms_peer_on_time(struct ms_peer *p, int64_t now_ns);

/* call.c; the peer's lock is held */
void ms_call_complete(
    struct ms_call *c, uint8_t kind, uint8_t codec, uint8_t *body, size_t len);
void ms_call_fail(struct ms_call *c, Muster__Failure__Kind kind, const char *text);
int ms_call_add_item(struct ms_call *c, struct ms_message *m);
/* Complete what is past its deadline; the next deadline. */
int64_t ms_calls_expire(struct ms_peer *p, int64_t now_ns);
/* A packed Failure; NULL: out of memory. */
uint8_t *ms_failure_pack(Muster__Failure__Kind kind,
                         const char *where,
                         const char *text,
                         const Muster__Exit *exit,
                         size_t *len);

#endif
