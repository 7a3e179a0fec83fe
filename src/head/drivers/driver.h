/* driver.h - a program that has joined this head, as the head sees it
 *
 * A driver is known by the random id of its process. It owns the clusters that it makes;
 * what happens to them is told to it alone. When it ends, or has been silent for
 * link_grace, its clusters end, except those that are detached and whole.
 *
 *   EXPECTED -> HERE <-> AWAY -> ENDING -> freed
 *
 * EXPECTED is a driver of which a head that was started again knows from its workers
 * only. AWAY is one whose link broke without a word. Both have link_grace to come. In
 * ENDING its clusters are being destroyed; the record stays until they are.
 *
 * Requests are carried out once and answered once, also if its link breaks meanwhile
 * (wire/link/requests.h). One that was given up and comes back all the same has a new record;
 * changes that it asked for before are refused then, for they may have been carried out.
 *
 * A worker that asks its head for something is a driver that makes no clusters: its link
 * tells who it is (DriverHello.worker). A tool is one that only asks, as a command does
 * (DriverHello.tool): it is not counted among drivers, and a head that is part of another
 * driver takes it too.
 *
 * The driver of an embedded head is the process itself: a NULL pointer, with the id 0.
 *
 * The head owns them (head->drivers). All of this is for the head's thread.
 */
#ifndef MS_HEAD_DRIVERS_DRIVER_H
#define MS_HEAD_DRIVERS_DRIVER_H

#include "base/error.h"
#include "cluster/registry.h"
#include "head/ops/verbs.h"
#include "io/loop.h"
#include "proto/muster.pb-c.h"
#include "wire/link/link.h"
#include "wire/link/requests.h"

#include <stdbool.h>

struct ms_head;
struct ms_head_op;
struct ms_node;

enum ms_driver_state {
    MS_DRIVER_EXPECTED,
    MS_DRIVER_HERE,
    MS_DRIVER_AWAY,
    MS_DRIVER_ENDING
};

struct ms_driver {
    struct ms_head *head;
    uint64_t id;
    enum ms_driver_state state;
    bool suspect;
    struct ms_link *wire;
    Muster__DriverHello *hello; /* NULL while EXPECTED */
    struct ms_replies replies;  /* to its requests, */
    uint64_t given_up; /* those up to here an earlier record of it may have had */
    unsigned running;  /* operations of it that have not completed */
    struct ms_timer grace;
    bool is_silent;   /* given up for that: it may come back when this record is gone */
    uint64_t goodbye; /* the request to be answered when its clusters are gone */
    bool over;        /* all of it is gone; only the link is left */
    uint64_t lines_dropped;
};

enum { MS_OWNER_TEXT_MAX = 256, MS_DRIVERS_GIVEN_UP = 256 };

/* One that was given up because it was silent, and the number of its newest request: what it
 * asks again up to that one may have been carried out. The newest of them are remembered. */
struct ms_driver_given_up {
    uint64_t id, newest;
};

/* 0 for NULL. */
uint64_t ms_driver_id(const struct ms_driver *d);
/* The uid of the worker that it is; 0: it is a driver. */
uint64_t ms_driver_worker(const struct ms_driver *d);
/* What it is as one who asks: a driver, a worker or a tool. */
enum ms_asker ms_driver_asker(const struct ms_driver *d);
/* NULL if there is none. */
struct ms_driver *ms_driver_find(const struct ms_head *h, uint64_t id);

/* One whose link has said who it is; takes the link over. The hello is taken too. 0, or
 * why it is refused: -EBUSY, -ENOSPC, -ENOMEM. */
int ms_driver_attach(struct ms_head *h,
                     struct ms_link *wire,
                     Muster__DriverHello **hello,
                     struct ms_error *err);
/* A worker of this driver was reported: it should come. */
int ms_driver_expect(struct ms_head *h, uint64_t id);
/* A worker has ended: what it made as a driver ends too. */
void ms_drivers_worker_ended(struct ms_head *h, uint64_t uid);
/* All of them, without ending anything. */
void ms_drivers_finish(struct ms_head *h);
/* Their links, without a word. */
void ms_drivers_cut(struct ms_head *h);

/* Give a node this driver's context, if it has not got it. 0 or a negative errno. */
int ms_driver_introduce(struct ms_driver *d, struct ms_node *n, struct ms_error *err);

/* ", of pid 12 on host a (train.py)", or nothing for our own. Returns `out`. */
const char *ms_driver_print_owner(const struct ms_head *h,
                                  const struct ms_cluster *c,
                                  char *out,
                                  size_t room);

/* ---- what it is told ------------------------------------------------------------- */

/* One of the bodies of HeadToDriver, if it is there; `request` is what it answers, or 0. */
void ms_driver_tell(struct ms_driver *d,
                    uint64_t request,
                    Muster__HeadToDriver__BodyCase which,
                    const void *body);
void ms_driver_tell_exit(struct ms_head *h,
                         const struct ms_cluster *c,
                         uint64_t uid,
                         const Muster__Exit *exit);
/* Once more, to one that has come back. */
void ms_driver_repeat_exits(struct ms_driver *d);
/* A cluster of driver `id` has been forgotten. */
void ms_driver_cluster_gone(struct ms_head *h, uint64_t id);
/* Lines of this node, to whom they belong. Both are borrowed. */
void ms_head_logged(struct ms_head *h, char *node, Muster__LogLines *lines);
/* A node has come, is suspected, or has gone: to all. */
void ms_drivers_tell_node(struct ms_head *h, const struct ms_node *n);
void ms_drivers_tell_changed(struct ms_head *h, Muster__ClusterChanged *changed);
void ms_drivers_say_goodbye(struct ms_head *h, const char *why);

#endif
