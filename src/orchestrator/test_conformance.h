/* test_conformance.h - what every orchestrator must do, as tests
 *
 * A rig is a backend with at least RIG_NODES nodes of RIG_CPUS CPUs each, on which
 * nothing is held, and the means to break it. The suite is the same for all of them.
 */
#ifndef MS_ORCHESTRATOR_TEST_CONFORMANCE_H
#define MS_ORCHESTRATOR_TEST_CONFORMANCE_H

#include "io/loop.h"
#include "orchestrator/orchestrator.h"

enum { MS_RIG_NODES = 4, MS_RIG_CPUS = 8 };

struct ms_rig {
    const struct ms_rig_ops *ops;
};

struct ms_rig_ops {
    /* A controller; the one before is destroyed or, with `killed`, gone without a word. */
    struct ms_orchestrator *(*open)(struct ms_rig *rig, bool killed);
    /* Let time pass until `*until` is true, or `timeout_ns` have passed: false. */
    bool (*run)(struct ms_rig *rig, const bool *until, int64_t timeout_ns);
    /* The agent of a running piece ends with this exit code. */
    void (*end_piece)(struct ms_rig *rig, const char *key, uint32_t number, int code);
    void (*kill_node)(struct ms_rig *rig, const char *node); /* NULL: cannot be had */
    /* The backend answers nothing for a while; NULL: cannot be had. */
    void (*silence)(struct ms_rig *rig, int64_t for_ns);
    /* Pieces that the backend still has, by its own word. */
    size_t (*held)(struct ms_rig *rig);
    /* Longest time of a start, an end, and until an end is noticed. */
    int64_t patience_ns;
};

/* One way to have a rig. */
struct ms_conformance {
    const char *name;
    struct ms_rig *(*make)(void *arg);
    void (*destroy)(struct ms_rig *rig);
    void *arg;
};

/* A rig's `run` in real time, on a loop. `is_quiet` (may be NULL): nothing can happen any
 * more. */
bool ms_rig_run_loop(struct ms_loop *loop,
                     const bool *until,
                     int64_t timeout_ns,
                     bool (*is_quiet)(void *arg),
                     void *arg);

struct CMUnitTest;

/* Runs `more` tests, and then the suite on each of these, every test on a rig of its own;
 * 0 if all passed. All of it is one report. */
int ms_conformance_run(const struct ms_conformance *all,
                       size_t count,
                       const struct CMUnitTest *more,
                       size_t more_count);

#endif
