/* link_impl.h - what link.c and link_dial.c share */
#ifndef MS_WIRE_LINK_LINK_IMPL_H
#define MS_WIRE_LINK_LINK_IMPL_H

#include "base/list.h"
#include "wire/conn.h"
#include "wire/dial.h"
#include "wire/link/heartbeat.h"
#include "wire/link/link.h"

struct dialing; /* link_dial.c */

struct ms_link {
    struct ms_loop *loop;
    struct ms_conn *conn; /* NULL: dialling, and between two attempts */
    struct ms_watch watch;
    struct ms_timer soon; /* tells on_closed from the loop; gives out what waits */
    const struct ms_link_ops *ops;
    void *arg;
    struct ms_error why;
    uint64_t sent; /* names messages, so that big ones can be told apart */
    struct dialing *dialing;
    struct ms_heartbeat *heartbeat; /* network */
    struct ms_list beat;            /* in the heartbeat */
    int64_t heard_ns;               /* as far as the order there knows */
    bool is_suspect;
    bool is_open;
    bool held; /* given by a server: what has come already waits */
    bool closed;
    bool broken;  /* nothing can be sent any more; what was sent to us is still read */
    bool reading; /* a callback may destroy us now */
    bool doomed;  /* it did: freed when the callback is over */
};

/* link.c */
struct ms_link *
ms_link_alloc(struct ms_loop *loop, const struct ms_link_ops *ops, void *arg);
/* on_closed follows. */
void ms_link_close_soon(struct ms_link *l, const struct ms_error *why);
/* The connection is proven: watch it as a link. 0 or a negative errno. */
int ms_link_open(struct ms_link *l, struct ms_heartbeat *heartbeat);
/* For the heartbeat. The link may be destroyed in the first. */
void ms_link_set_suspect(struct ms_link *l, bool is_suspect);
void ms_link_send_beat(struct ms_link *l);

/* link_dial.c */
void ms_dialing_destroy(struct dialing *d);

#endif
