/* test_rig.h - a server with an engine and a client, in one process, over real sockets
 *
 * Each side has a loop of its own on a thread of its own; the engine has a third. The
 * engine runs `engine` for each request; the default knows these methods:
 *     echo    answers with its argument
 *     hold    counts `held`, waits for rig_open, and answers with its argument
 *     stream  sends as many items "0", "1", ... as its argument says, answers "end"
 * All waiting is for an event, with RIG_DEADLINE_NS as its end.
 */
#ifndef MS_WIRE_TEST_RIG_H
#define MS_WIRE_TEST_RIG_H

#include "base/cleanup.h"
#include "base/clock.h"
#include "wire/client/client.h"
#include "wire/server/server.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>

#include <cmocka.h>

#define RIG_DEADLINE_NS (20 * MS_NS_PER_S)
#define RIG_BUSY_NS     (10 * MS_NS_PER_S) /* what a busy machine may add to a time */

enum { RIG_UID = 77 };

struct rig {
    /* before rig_start */
    void (*engine)(struct rig *rig, struct ms_request *r);
    void (*on_request)(void *arg, struct ms_request *r); /* default: answers "loop" */
    bool no_engine, no_client, spin;
    const char *tcp; /* also listen here, and call there; NULL: the unix socket */
    enum ms_tls_mode tls;
    const char *address; /* call there instead */
    int64_t handshake_ns, server_grace_ns, client_grace_ns, exit_wait_ns;
    void *(*on_stored)(void *arg, const uint8_t *body, size_t len);
    void (*on_stored_drop)(void *token);
    void *data; /* the test's */

    uint8_t secret[32];
    bool has_secret; /* given; else one is made */
    char folder[64], path[96], spin_path[96], tcp_address[96];
    uint16_t port;
    struct ms_server_ops ops;
    struct ms_loop *server_loop, *client_loop;
    struct ms_server *server;
    struct ms_client *client;
    struct ms_peer *peer;
    struct ms_spin *leases;
    pthread_t server_thread, client_thread, engine_thread;

    _Atomic unsigned executed;  /* requests that came out of engine_next */
    _Atomic unsigned held;      /* "hold" that began */
    _Atomic unsigned cancelled; /* on_cancel */
    _Atomic unsigned asked;     /* how it ended */
    _Atomic unsigned gate;      /* "hold" that may go on */
    _Atomic unsigned suspected; /* on_suspect(true) */
    _Atomic unsigned cleared;   /* on_suspect(false) */

    pthread_mutex_t lock;
    pthread_cond_t changed; /* one of those */
};

void rig_start(struct rig *rig);
void rig_stop(struct rig *rig);
void rig_stop_server(struct rig *rig); /* idempotent; the client stays */
void rig_start_server(struct rig *rig);

/* Wait until `*count` is at least `least`. */
void rig_wait_count(struct rig *rig, const _Atomic unsigned *count, unsigned least);
/* `*count` + 1, waking those. */
void rig_count(struct rig *rig, _Atomic unsigned *count);
/* Let `more` of those in "hold" go on. */
void rig_open(struct rig *rig, unsigned more);

/* Run on the loop's thread and wait until it has run. */
void rig_on_loop(struct rig *rig, struct ms_loop *loop, void (*fn)(void *), void *arg);

/* The peer's connection breaks. */
void rig_break(struct rig *rig);
/* Wait until the client's session has had so many connections. */
void rig_wait_conns(struct rig *rig, unsigned least);

struct ms_call *rig_call(struct rig *rig, const char *method, const char *text);
struct ms_call *rig_call_spec(struct rig *rig,
                              const char *method,
                              const void *data,
                              size_t len,
                              struct ms_call_spec *spec);
void rig_wait(struct ms_call *c);
/* Wait, compare, unref. */
void rig_expect(struct ms_call *c, const char *text);
void rig_expect_failure(struct ms_call *c, Muster__Failure__Kind kind);
/* The same, and its message has this in it. */
void rig_expect_failure_text(struct ms_call *c,
                             Muster__Failure__Kind kind,
                             const char *text);
void rig_reply(struct ms_request *r, const char *text);

unsigned rig_open_fds(void);

#endif
