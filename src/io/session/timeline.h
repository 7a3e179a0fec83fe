/* timeline.h - what happened when, as lines of a file
 *
 * A line is a JSON object with the times of CLOCK_MONOTONIC in nanoseconds:
 *   {"timeline": 1, "unix_ns": U, "now_ns": N}               the first: what time it was
 *   {"track": T, "name": W, "begin": N, "end": N}            a span of a track
 *   {"track": T, "name": W, "at": N}                         a mark
 *   {"track": T, "name": W, "at": N, "value": V}             a count from then on
 * and of spans "flow": F (spans with the same number are one thing that went on elsewhere),
 * "nests": true (it lies within others of its track), and "args": {...}, which is shown as
 * it is. A track is "ROLE/RANK@NODE", or a name. `muster timeline` makes a trace for
 * Perfetto of it.
 *
 * Each line is one write(2) to the end of the file: a process that is killed loses none,
 * and several may write to one file. When it has MS_TIMELINE_SIZE_MAX bytes nothing more
 * is written. Any thread.
 */
#ifndef MS_IO_SESSION_TIMELINE_H
#define MS_IO_SESSION_TIMELINE_H

#include "base/error.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define MS_TIMELINE_NAME     "timeline.log" /* in a session's logs */
#define MS_TIMELINE_ENV      "MUSTER_TIMELINE"
#define MS_TIMELINE_SIZE_MAX (UINT64_C(64) << 20)

struct ms_timeline {
    _Atomic bool is_on;
    pthread_mutex_t lock;
    int fd; /* -1: off */
    uint64_t size;
};

enum ms_timeline_kind { MS_TIMELINE_SPAN, MS_TIMELINE_MARK, MS_TIMELINE_COUNT };

struct ms_timeline_event {
    enum ms_timeline_kind kind;
    const char *track, *name;
    int64_t begin_ns, end_ns; /* end_ns: of a span */
    double value;             /* of a count */
    uint64_t flow;            /* 0: none */
    bool nests;
    const char *args; /* a JSON object; NULL: none */
};

void ms_timeline_init(struct ms_timeline *t);
void ms_timeline_finish(struct ms_timeline *t);

/* Write to the end of this file from now on, and no longer to another. */
int ms_timeline_start(struct ms_timeline *t, const char *path, struct ms_error *err);
void ms_timeline_stop(struct ms_timeline *t);
/* In a forked child: it writes nothing. */
void ms_timeline_forget(struct ms_timeline *t);

static inline bool ms_timeline_is_on(const struct ms_timeline *t)
{
    return atomic_load_explicit(&t->is_on, memory_order_relaxed);
}

/* 0, also if it is off or full; -EINVAL: `args` is no JSON object; -ENOMEM, or that of
 * write(2). */
int ms_timeline_add(struct ms_timeline *t, const struct ms_timeline_event *e);

#endif
