/* test_rig.h - a scheduler under test: events in, the decisions that they must give */
#ifndef MS_GENERATE_TEST_RIG_H
#define MS_GENERATE_TEST_RIG_H

#include "base/cleanup.h"
#include "base/clock.h"
#include "generate/policy.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define S(n) ((int64_t)(n)*MS_NS_PER_S)

/* A scheduler, and what it decided last. */
struct rig {
    struct ms_lengths *lengths;
    struct ms_scheduler *s;
    int64_t now_ns;
    const struct ms_generate_decision *d;
    size_t count;
};

static inline struct rig rig_make(struct ms_scheduler_options o)
{
    struct rig r = {.lengths = ms_lengths_create(100)};

    o.policy = o.policy ? o.policy : &ms_policy_fifo;
    r.s = ms_scheduler_create(&o, r.lengths, NULL);
    assert_non_null(r.s);
    return r;
}

static inline void rig_finish(struct rig *r)
{
    ms_scheduler_destroy(r->s);
    ms_lengths_destroy(r->lengths);
}
#define RIG(name, ...)                                                                 \
    MS_CLEANUP(rig_finish)                                                             \
    struct rig name = rig_make((struct ms_scheduler_options){__VA_ARGS__})

static inline int take(struct rig *r, struct ms_generate_event e)
{
    return ms_scheduler_step(r->s, &e, r->now_ns, &r->d, &r->count);
}
#define EVENT(r, kind, ...)                                                            \
    assert_int_equal(take(r, (struct ms_generate_event){.what = kind, __VA_ARGS__}), 0)
#define REFUSED(r, code, kind, ...)                                                    \
    assert_int_equal(take(r, (struct ms_generate_event){.what = kind, __VA_ARGS__}),   \
                     code)

/* Exactly these decisions were made. */
#define DECIDED(r, ...)                                                                \
    do {                                                                               \
        const uint32_t wanted_[] = {__VA_ARGS__};                                      \
        assert_int_equal((r)->count, MS_COUNT(wanted_));                               \
        for (size_t i_ = 0; i_ < MS_COUNT(wanted_); i_++)                              \
            assert_int_equal((r)->d[i_].what, wanted_[i_]);                            \
    } while (0)
#define NOTHING(r) assert_int_equal((r)->count, 0)

static inline void up(struct rig *r, uint32_t replica, uint32_t slots)
{
    EVENT(r, MS_REPLICA_UP, .replica = replica, .epoch = 1, .samples = slots);
}

static inline void submit(struct rig *r, uint64_t id, uint32_t samples)
{
    EVENT(r,
          MS_SUBMIT,
          .id = id,
          .key = id,
          .samples = samples,
          .prompt = 10,
          .max_new = 100,
          .replica = MS_NOWHERE);
    NOTHING(r);
}

/* Submit and look; the decisions are of the tick. */
static inline void submit_now(struct rig *r, uint64_t id, uint32_t samples)
{
    submit(r, id, samples);
    EVENT(r, MS_TICK);
}

#endif
