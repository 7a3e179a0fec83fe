/* test_rig.h - a node's store on a loop of its own thread, for the tests of this folder */
#ifndef MS_STORE_TEST_RIG_H
#define MS_STORE_TEST_RIG_H

#include "base/clock.h"
#include "store/client/client.h"
#include "store/server/server.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MIB         ((uint64_t)1 << 20)
#define DEADLINE_NS (20 * MS_NS_PER_S)

extern const uint8_t rig_secret[32];

struct rig {
    char dir[64], path[96];
    struct ms_loop *loop;
    struct ms_store *store;
    pthread_t thread;
};

/* `o` may be NULL; its limit, and what is about spilling, is taken. */
void rig_start_with(struct rig *r, const struct ms_store_options *o);
void rig_start(struct rig *r, uint64_t limit);
void rig_stop(struct rig *r);

/* A process that enters; "actor/<holder>". */
struct ms_store_client *rig_enter(struct rig *r, uint64_t holder);
struct ms_held *rig_make(struct ms_store_client *c, uint64_t len);
struct ms_held *rig_attach(struct ms_store_client *c, const struct ms_held *h);
uint64_t rig_object_count(struct ms_store_client *c, uint64_t *used);
/* Wait until so many objects are there: others tell the agent in their own time. */
void rig_wait_objects(struct ms_store_client *c, uint64_t want);

#endif
