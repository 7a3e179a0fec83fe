/* head_events.h - the lines of `muster head` about nodes and drivers that come and go
 *
 * One line for each, with its time; at most MS_HEAD_EVENTS_MAX within
 * MS_HEAD_EVENTS_PERIOD_S, and then one that counts the others: SIGALRM comes at the end of
 * such a period, and who waits for it calls ms_head_events_end_period. A terminal or a pipe
 * that takes nothing now delays nobody: what it would have got is counted instead.
 */
#ifndef MS_CLI_HEAD_EVENTS_H
#define MS_CLI_HEAD_EVENTS_H

#include "proto/muster.pb-c.h"

#include <jansson.h>
#include <pthread.h>

#define MS_HEAD_EVENTS_MAX      20
#define MS_HEAD_EVENTS_PERIOD_S 2

struct ms_head_events {
    pthread_mutex_t lock;
    json_t *nodes;    /* those that are there: name -> whether it is silent */
    unsigned printed; /* in this period */
    unsigned held;    /* and not printed in it */
};

int ms_head_events_init(struct ms_head_events *e);
void ms_head_events_finish(struct ms_head_events *e);

/* `arg` is the ms_head_events; any thread (ms_head_serve_options). */
void ms_head_events_on_node(void *arg, const Muster__NodeStatus *node);
void ms_head_events_on_driver(void *arg,
                              const Muster__DriverStatus *driver,
                              const char *peer,
                              const char *gone);

/* On SIGALRM. */
void ms_head_events_end_period(struct ms_head_events *e);

#endif
