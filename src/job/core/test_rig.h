/* test_rig.h - one job and its journal, for tests of the core
 *
 * Each event is checked, encoded, decoded and taken as a host would; the time is the test's.
 * The text that is said is kept.
 */
#ifndef MS_JOB_CORE_TEST_RIG_H
#define MS_JOB_CORE_TEST_RIG_H

#include "job/core/core.h"

struct rig {
    struct ms_job_core *core;
    int64_t now_ns;
    const struct ms_job_action *actions;
    size_t count;
    struct ms_buf said;    /* all lines */
    struct ms_buf journal; /* all records, one after the other */
    size_t *sizes;         /* of the records */
    int64_t *times;
    size_t records, size_room, time_room;
    struct ms_job_event_read event; /* the last one */
};

/* A job of one role of `count` ranks, and a driver if it is to have one. */
struct ms_job_spec
rig_spec(struct ms_job_role_spec *role, uint32_t count, bool has_driver);

void rig_init(struct rig *g, const struct ms_job_spec *spec); /* submitted */
void rig_finish(struct rig *g);
int rig_try(struct rig *g, const struct ms_job_event *e, struct ms_error *err);
void rig_step(struct rig *g, const struct ms_job_event *e);
void rig_tick(struct rig *g, double seconds);

/* The action of this kind in the last step; the test fails if there is none, or two. */
const struct ms_job_action *rig_action(struct rig *g, uint32_t what);
bool rig_has(const struct rig *g, uint32_t what);
size_t rig_done_count(const struct rig *g); /* actions that want an answer */
bool rig_said(struct rig *g, const char *part);

void rig_done(struct rig *g, uint64_t id);
void rig_not_done(struct rig *g, uint64_t id, uint8_t failure, const char *text);
/* The current process of a rank ends. */
void rig_exit(
    struct rig *g, uint32_t role, uint32_t rank, uint8_t cause, const char *text);
void rig_driver_exit(struct rig *g, uint8_t cause, int32_t code, const char *text);
void rig_do(struct rig *g, uint32_t what); /* an event without fields */

/* Admitted, reserved, all roles created, the driver started. */
void rig_run(struct rig *g);
/* Answer what is asked for, until nothing is. */
void rig_settle(struct rig *g);
enum ms_job_stage rig_stage(const struct rig *g);
/* The controller dies: a new one reads the journal. */
void rig_replay(struct rig *g);

#endif
