/* test_rig.h - a server with an engine and a client, in one process, over real sockets
 *
 * Each side has a loop of its own on a thread of its own; the engine has a third. The
 * engine runs `engine` for each request (rig_echo unless set before rig_start). All
 * waiting is for an event, with RIG_DEADLINE_NS as its end.
 */
#ifndef MS_WIRE_TEST_RIG_H
#define MS_WIRE_TEST_RIG_H

#include "base/cleanup.h"
#include "base/clock.h"
#include "wire/client.h"
#include "wire/server.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>

#include <cmocka.h>

#define RIG_DEADLINE_NS (20 * MS_NS_PER_S)

enum { RIG_UID = 77 };

struct rig {
    /* before rig_start */
    void (*engine)(struct rig *rig, struct ms_request *r);
    void (*on_request)(void *arg, struct ms_request *r); /* default: answers "loop" */
    void (*on_cancel)(void *arg, struct ms_request *r);
    bool no_engine, is_async;
    bool spin;
    bool lone_server; /* no client */
    int64_t handshake_ns, grace_ns, verdict_ns;
    void *data; /* the test's */

    uint8_t secret[32];
    char folder[64], path[96], spin_path[96];
    struct ms_loop *server_loop, *client_loop;
    struct ms_server *server;
    struct ms_client *client;
    struct ms_peer *peer;
    struct ms_spin *leases;
    pthread_t server_thread, client_thread, engine_thread;
    _Atomic unsigned executed; /* requests that came out of engine_next */
    _Atomic unsigned asked;    /* verdicts */

    pthread_mutex_t lock; /* for gates of tests */
    pthread_cond_t changed;
};

void rig_start(struct rig *rig);
/* Stop the threads and destroy everything; idempotent. */
void rig_stop(struct rig *rig);
void rig_stop_server(struct rig *rig);
void rig_start_server(struct rig *rig);

void rig_echo(struct rig *rig, struct ms_request *r);

/* Wait until `*count` is at least `least`. */
void rig_wait_count(struct rig *rig, const _Atomic unsigned *count, unsigned least);
/* `*count` + 1, waking those. */
void rig_count(struct rig *rig, _Atomic unsigned *count);

/* Run on the loop's thread and wait until it has run. */
void rig_on_loop(struct rig *rig, struct ms_loop *loop, void (*fn)(void *), void *arg);

/* Calls with text. */
struct ms_call *rig_call(struct rig *rig, const char *method, const char *text);
struct ms_call *rig_call_bytes(struct rig *rig,
                               const char *method,
                               const void *data,
                               size_t len,
                               struct ms_call_spec *spec);
void rig_wait(struct ms_call *c);
/* Wait, compare, unref. */
void rig_expect(struct ms_call *c, const char *text);
void rig_expect_failure(struct ms_call *c, Muster__Failure__Kind kind);
void rig_reply(struct ms_request *r, const char *text);

unsigned rig_open_fds(void);

#endif
