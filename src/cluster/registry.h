/* registry.h - which clusters there are, and what is known of each of their workers
 *
 * A cluster has slots 0..count-1 that never change; in a slot there is an instance: one
 * incarnation of its worker, named by a uid. What happens to a uid that is not the
 * current instance of a slot changes nothing, so a late word about an older incarnation
 * is harmless. Pure: no clock, no socket; the head, which owns it, carries out what
 * follows.
 *
 * Life of an instance: STARTING -> RUNNING -> EXITED, or STARTING -> EXITED. Its exit
 * may be known before its start is confirmed; it then stays EXITED.
 *
 * A registry can also be built from what agents report of clusters that another head
 * made (ms_registry_adopt). A slot of which nobody has reported yet is UNKNOWN, has no
 * uid, and counts as neither living nor dead.
 */
#ifndef MS_CLUSTER_REGISTRY_H
#define MS_CLUSTER_REGISTRY_H

#include "base/error.h"
#include "base/limits.h"
#include "base/list.h"
#include "base/map.h"
#include "proto/muster.pb-c.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct ms_cluster;

struct ms_instance {
    uint64_t uid;         /* never 0 */
    uint32_t incarnation; /* 1, 2, ... */
    Muster__WorkerState state;
    pid_t pid;                /* 0 until started */
    char *address, *log_path; /* NULL until started */
    Muster__Exit *exit;       /* once EXITED; NULL if there was no memory for it */
    int64_t started_ns;       /* when its process was known to be there; 0: not yet */
    char *why; /* why we are about to end it although nobody asked for that, or NULL */
};

struct ms_slot {
    struct ms_cluster *cluster;
    uint32_t rank;
    char node[MS_NAME_MAX + 1];
    uint32_t *devices;
    size_t device_count;
    uint64_t memory;
    uint64_t device_memory;
    uint32_t cpu_milli;
    uint64_t helps; /* uid of the worker that it is a helper of; 0: it is none */
    struct ms_instance now;
    uint64_t former[MS_FORMER_MAX]; /* uids of those before, a ring; 0: none */
    unsigned former_next;
    bool is_changing;  /* part of the operation that its cluster is busy with: */
    size_t steps_sent; /* so many steps of the spec were sent to its new instance, */
    uint64_t
        start_run; /* with its start, as the run of this number; 0: none, or asked */
    bool has_answered;     /* and those were done, or it is known why not */
    uint64_t expected_uid; /* of another head's time, while nobody has reported it */
    uint32_t expected_incarnation;
    Muster__WorkerStarted *expected_process; /* NULL: not known */
};

enum ms_cluster_state {
    MS_CLUSTER_STARTING, /* not all workers are confirmed */
    MS_CLUSTER_RUNNING,
    MS_CLUSTER_STOPPING /* its end was asked for */
};

struct ms_cluster {
    struct ms_list link;
    char name[MS_NAME_MAX + 1];
    uint64_t driver;           /* that made it; 0: the process of the registry itself */
    bool detached;             /* outlives its driver, once it is made: */
    bool is_made;              /* its creation has succeeded */
    bool is_busy;              /* an operation changes it: its end waits for that */
    Muster__ClusterSpec *spec; /* NULL: adopted, and nobody knows it; or helpers */
    Muster__ClusterPlaced *placed; /* the places of its ranks; NULL with the spec */
    Muster__PortHeld *master;      /* the port that is held for it; NULL: none */
    char *port_owner;              /* under this name */
    uint64_t objects; /* under which stores hold what its steps refer to; 0: nothing */
    enum ms_cluster_state state;
    struct ms_slot *slots;
    size_t count;
    size_t live;        /* slots whose instance has not exited */
    size_t unconfirmed; /* slots whose instance has no address yet */
    size_t unknown;     /* slots of which nobody has reported yet */
    size_t drained;     /* handles have the ranks below it only; 0: all */
};

struct ms_registry {
    struct ms_list clusters; /* in the order of their creation */
    struct ms_map by_uid;    /* uid of the current instance -> slot */
    struct ms_map by_former; /* uid of an earlier one -> slot */
    size_t live;             /* of all clusters */
};

void ms_registry_init(struct ms_registry *r);
void ms_registry_finish(struct ms_registry *r);

/* What a new slot is given; borrowed. */
struct ms_slot_spec {
    uint64_t uid;
    const char *node; /* NULL: not told */
    const uint32_t *devices;
    size_t device_count;
    uint64_t memory;        /* bytes, */
    uint64_t device_memory; /* bytes of each device and */
    uint32_t cpu_milli;     /* thousandths of a CPU that it counts for */
    uint64_t helps;
};

/* A new cluster whose instances are all STARTING, in their first incarnation. -EINVAL
 * (bad name, no worker, a uid of 0), -EEXIST (the name, or a uid), -ENOSPC (more living
 * workers than MS_CLUSTER_WORKERS_MAX), -ENOMEM; nothing has then changed. */
int ms_registry_add(struct ms_registry *r,
                    const char *name,
                    const struct ms_slot_spec *slots,
                    size_t count,
                    struct ms_cluster **out,
                    struct ms_error *err);

/* Forget it, whatever its state. */
void ms_registry_remove(struct ms_registry *r, struct ms_cluster *c);

/* NULL if there is none. */
struct ms_cluster *ms_registry_find(const struct ms_registry *r, const char *name);
struct ms_slot *ms_registry_find_uid(const struct ms_registry *r, uint64_t uid);
/* The slot that an earlier incarnation of this uid had. */
struct ms_slot *ms_registry_find_former(const struct ms_registry *r, uint64_t uid);

/* Does it go on when its driver has ended? A detached one whose constructors still ran then
 * does not. */
bool ms_cluster_outlives_driver(const struct ms_cluster *c);

/* Its process exists. 0; -ESTALE: no current instance has this uid; -ENOMEM: try again
 * or give the worker up. An instance that has exited stays so and learns its address.
 */
int ms_registry_started(struct ms_registry *r,
                        const Muster__WorkerStarted *s,
                        int64_t now_ns);

/* A worker of `node` that another head has started. Makes the cluster when it is the
 * first of it to be reported. 0, also for one that is known already, and *out its slot;
 * -EINVAL (no name, a rank beyond the cluster), -EEXIST: another worker has its place;
 * -ENOSPC, -ENOMEM. */
int ms_registry_adopt(struct ms_registry *r,
                      const char *node,
                      const Muster__WorkerReport *report,
                      int64_t now_ns,
                      struct ms_slot **out,
                      struct ms_error *err);

/* A cluster of another head's time, of which no worker is known yet. NULL: the name is
 * taken, or out of memory. */
struct ms_cluster *
ms_registry_expect(struct ms_registry *r, const char *name, size_t count);
/* This uid was an earlier incarnation of the slot's worker. */
void ms_slot_remember(struct ms_registry *r, struct ms_slot *slot, uint64_t uid);

/* It has ended. The slot if this changed anything, NULL if it is no current instance or
 * has ended before. Never fails for want of memory. */
struct ms_slot *
ms_registry_exited(struct ms_registry *r, uint64_t uid, const Muster__Exit *exit);

bool ms_slot_is_live(const struct ms_slot *slot);

/* The slots that are part of what its cluster is busy with, one after the other: NULL comes
 * before the first and after the last. */
struct ms_slot *ms_cluster_next_changing(const struct ms_cluster *c,
                                         const struct ms_slot *after);
#define ms_changing_each(s, c)                                                         \
    for (struct ms_slot *s = NULL; (s = ms_cluster_next_changing((c), s));)
/* Slots from this rank on are changing, or with none of them: no slot is. */
void ms_cluster_set_changing(struct ms_cluster *c, size_t first);
/* Changing slots (or all of them) whose process was never confirmed have none: they have
 * ended, and `why` says why. */
void ms_cluster_end_unstarted(struct ms_registry *r,
                              struct ms_cluster *c,
                              bool all,
                              const char *why);

/* Put a new incarnation into a slot whose instance has exited. 0, -EBUSY (it has not),
 * -EINVAL (uid 0), -EEXIST (the uid), -ENOSPC, -ENOMEM. */
int ms_slot_renew(struct ms_registry *r, struct ms_slot *slot, uint64_t uid);

/* It has another place from now on; its instance has exited. 0 or -ENOMEM. */
int ms_slot_move(struct ms_slot *slot,
                 const char *node,
                 const uint32_t *devices,
                 size_t count);

/* Give a cluster more ranks, whose slots are as `slots` says, or fewer: the last ones, which
 * have all exited, go. Pointers to its slots are void afterwards. 0, -EBUSY (one of them
 * lives), -EEXIST (a uid), -ENOSPC, -ENOMEM; nothing has then changed. */
int ms_cluster_resize(struct ms_registry *r,
                      struct ms_cluster *c,
                      const struct ms_slot_spec *slots,
                      size_t count);

#endif
