/* test_local_rig.h - this host as four nodes with small agents, for tests of `local`
 *
 * The test program is the agents too: its main asks `local_rig_is_agent` first.
 */
#ifndef MS_ORCHESTRATOR_LOCAL_TEST_LOCAL_RIG_H
#define MS_ORCHESTRATOR_LOCAL_TEST_LOCAL_RIG_H

#include "base/clock.h"
#include "orchestrator/local/local_impl.h"
#include "orchestrator/test_conformance.h"

enum { NODES = MS_RIG_NODES, TEXT_MAX = 512 };

#define PATIENCE_NS (60 * MS_NS_PER_S)

struct local_rig {
    struct ms_rig base;
    struct ms_loop *loop;
    struct ms_orchestrator *o;
    pid_t anchor; /* stands for the controller's process */
    bool is_durable;
    char dir[32];
};

/* How an operation has ended. */
struct outcome {
    bool done;
    int rc;
    struct ms_error why;
};

extern char local_rig_self[TEXT_MAX]; /* this program */

/* First in main: true if that is over, with the code to exit with. A process that was
 * started as an agent has been one. */
bool local_rig_is_agent(int argc, char **argv, int *code);

/* `durable`: NULL, or anything, then what is lent outlives its controller. */
struct ms_rig *local_rig_make(void *durable);
void local_rig_destroy(struct ms_rig *rig);
int local_rig_teardown(void **state);

static inline struct local_rig *rig_of(struct ms_rig *rig)
{
    return (struct local_rig *)rig;
}

struct ms_orchestrator *open_rig(struct ms_rig *rig, bool killed);
struct ms_orchestrator *open_with(struct local_rig *r, const char *path);
bool run_rig(struct ms_rig *rig, const bool *until, int64_t timeout_ns);
size_t count_children(void);

struct outcome reserve(struct local_rig *r,
                       const char *key,
                       const struct ms_bundle *bundles,
                       size_t count,
                       const char *mode);
void release_some(struct local_rig *r,
                  const char *key,
                  const uint32_t *numbers,
                  size_t count);
void release(struct local_rig *r, const char *key);

/* The process of a piece's agent; 0: there is none. */
pid_t agent_pid(const struct ms_orchestrator *o, const char *key, uint32_t number);
/* Pieces that hold something, or wait. */
size_t held_pieces(struct ms_rig *rig);

#endif
