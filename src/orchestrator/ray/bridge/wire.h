/* wire.h - the connection between a controller and its bridge
 *
 * Both ends have one. Either side dials the other, and listens for it, as far as addresses
 * are known; the first connection that comes about is taken. It carries lines, which arrive
 * once and in order (relay.h): a connection that breaks, or is silent for too long, is made
 * again, by whichever side can.
 *
 * A connection begins with a greeting of the controller, by which the bridge knows it: the
 * same one as before, or another, for which everything begins anew. The bridge greets back.
 */
#ifndef MS_ORCHESTRATOR_RAY_BRIDGE_WIRE_H
#define MS_ORCHESTRATOR_RAY_BRIDGE_WIRE_H

#include "base/clock.h"
#include "base/error.h"
#include "base/limits.h"
#include "io/loop.h"
#include "orchestrator/ray/bridge/relay.h"

/* How long both sides try again after a connection broke, beyond any grace. */
#define MS_BRIDGE_BROKEN_NS (30 * MS_NS_PER_S)
/* From its start until a controller is there. */
#define MS_BRIDGE_FIRST_NS (60 * MS_NS_PER_S)

enum { MS_WIRE_SECRET = 32 };

struct ms_wire_events {
    /* The other side is there, perhaps again. is_new: it is another controller. */
    void (*on_up)(void *arg, bool is_new);
    /* It does not say anything, or (has_ended) is no more; its connection is made again.
     * `why` is a verb and more: "is silent", "cannot be reached: ...". */
    void (*on_lost)(void *arg, bool has_ended, const struct ms_error *why);
    void (*on_line)(void *arg, const char *line, size_t len); /* with a NUL behind it */
};

struct ms_wire {
    struct ms_loop *loop;
    const struct ms_wire_events *events;
    void *arg;
    bool is_controller;
    uint8_t secret[MS_WIRE_SECRET];
    char peer_at[MS_ADDR_LIST_MAX +
                 1]; /* where the other side is dialled; "": nowhere */
    struct ms_server *server;
    struct ms_list conns;  /* connections, and those to be */
    struct conn *attached; /* the one in use */
    struct ms_relay relay;
    struct ms_timer redial, quiet;
};

/* 0, -ENOMEM. Finish it in any case. */
int ms_wire_init(struct ms_wire *w,
                 struct ms_loop *loop,
                 const struct ms_wire_events *events,
                 void *arg);
/* What was sent has a second to arrive. */
void ms_wire_finish(struct ms_wire *w);

/* Listen on this socket, which is taken (-1: do not), and dial peer_at. The secret is set.
 * A negative errno: it does not listen, but dials. */
int ms_wire_connect(struct ms_wire *w, int listen_fd);
/* All connections end; connect again to go on. */
void ms_wire_disconnect(struct ms_wire *w);

/* 0, -ENOMEM (too much waits, or none is left). What cannot be sent now waits. */
int ms_wire_send(struct ms_wire *w, const char *line, size_t len);
/* The connection breaks, as a network breaks it: for tests. */
void ms_wire_cut(struct ms_wire *w);

/* "first:PORT,other:PORT,...": this machine's addresses, `first` (may be "") before the
 * others; where there are none, loopback. */
void ms_wire_addresses(char out[MS_ADDR_LIST_MAX + 1],
                       const char *first,
                       uint16_t port);

#endif
