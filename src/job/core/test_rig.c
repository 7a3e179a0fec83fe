/* test_rig.c - one job and its journal, for tests of the core */
#include "job/core/test_rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct ms_job_spec
rig_spec(struct ms_job_role_spec *role, uint32_t count, bool has_driver)
{
    struct ms_job_spec spec;

    ms_job_role_spec_init(role);
    memcpy(role->name, "actor", 6);
    role->count = role->min = role->max = count;
    ms_job_spec_init(&spec);
    memcpy(spec.name, "job", 4);
    spec.roles = role;
    spec.role_count = 1;
    spec.has_driver = has_driver;
    return spec;
}

static void keep_record(struct rig *g, const struct ms_job_event *e)
{
    size_t from = g->journal.len;
    struct ms_error err = {0};

    assert_int_equal(ms_job_event_encode(e, &g->journal), 0);
    assert_int_equal(
        ms_array_reserve(&g->sizes, &g->size_room, g->records + 1, sizeof *g->sizes),
        0);
    assert_int_equal(
        ms_array_reserve(&g->times, &g->time_room, g->records + 1, sizeof *g->times),
        0);
    g->sizes[g->records] = g->journal.len - from;
    g->times[g->records++] = g->now_ns;
    ms_job_event_read_finish(&g->event);
    if (ms_job_event_decode(
            &g->event, g->journal.data + from, g->journal.len - from, &err))
        fail_msg("%s", err.text);
}

int rig_try(struct rig *g, const struct ms_job_event *e, struct ms_error *err)
{
    int rc = ms_job_core_check(g->core, e, err);

    if (rc < 0)
        return rc;
    keep_record(g, e);
    rc = ms_job_core_step(
        g->core, &g->event.event, g->now_ns, &g->actions, &g->count, err);
    assert_int_equal(rc, 0);
    for (size_t i = 0; i < g->count; i++)
        if (g->actions[i].what == MS_JOB_DO_SAY)
            ms_buf_printf(&g->said, "%s\n", g->actions[i].text);
    return 0;
}

void rig_step(struct rig *g, const struct ms_job_event *e)
{
    struct ms_error err = {0};

    if (rig_try(g, e, &err) < 0)
        fail_msg("%s: %s", ms_job_event_name(e->what), err.text);
}

void rig_do(struct rig *g, uint32_t what)
{
    rig_step(g, &(struct ms_job_event){.what = what});
}

void rig_init(struct rig *g, const struct ms_job_spec *spec)
{
    *g = (struct rig){.core = ms_job_core_create(), .now_ns = MS_NS_PER_S};
    assert_non_null(g->core);
    rig_step(g, &(struct ms_job_event){.what = MS_JOB_SUBMITTED, .spec = spec});
}

void rig_finish(struct rig *g)
{
    ms_job_core_destroy(g->core);
    ms_job_event_read_finish(&g->event);
    ms_buf_finish(&g->said);
    ms_buf_finish(&g->journal);
    free(g->sizes);
    free(g->times);
}

void rig_tick(struct rig *g, double seconds)
{
    g->now_ns += (int64_t)(seconds * (double)MS_NS_PER_S);
    rig_do(g, MS_JOB_TICK);
}

const struct ms_job_action *rig_action(struct rig *g, uint32_t what)
{
    const struct ms_job_action *found = NULL;

    for (size_t i = 0; i < g->count; i++)
        if (g->actions[i].what == what) {
            if (found)
                fail_msg("two of %s", ms_job_action_name(what));
            found = &g->actions[i];
        }
    if (!found)
        fail_msg("no %s; so far:\n%s", ms_job_action_name(what), ms_buf_str(&g->said));
    return found;
}

bool rig_has(const struct rig *g, uint32_t what)
{
    for (size_t i = 0; i < g->count; i++)
        if (g->actions[i].what == what)
            return true;
    return false;
}

size_t rig_done_count(const struct rig *g)
{
    size_t count = 0;

    for (size_t i = 0; i < g->count; i++)
        count += g->actions[i].id != 0;
    return count;
}

bool rig_said(struct rig *g, const char *part)
{
    const char *said = ms_buf_str(&g->said);

    return said && strstr(said, part);
}

void rig_done(struct rig *g, uint64_t id)
{
    rig_step(g, &(struct ms_job_event){.what = MS_JOB_DONE, .id = id});
}

void rig_not_done(struct rig *g, uint64_t id, uint8_t failure, const char *text)
{
    rig_step(g,
             &(struct ms_job_event){
                 .what = MS_JOB_NOT_DONE, .id = id, .failure = failure, .text = text});
}

void rig_exit(
    struct rig *g, uint32_t role, uint32_t rank, uint8_t cause, const char *text)
{
    struct ms_job_report p = {.role = role,
                              .rank = rank,
                              .incarnation =
                                  ms_job_core_slot(g->core, role, rank).incarnation,
                              .cause = cause,
                              .code = cause == MS_JOB_SUCCEEDED ? 0 : 1};

    rig_step(
        g,
        &(struct ms_job_event){
            .what = MS_JOB_EXITED, .reports = &p, .report_count = 1, .text = text});
}

void rig_driver_exit(struct rig *g, uint8_t cause, int32_t code, const char *text)
{
    struct ms_job_report p = {.role = MS_JOB_DRIVER,
                              .incarnation = ms_job_core_view(g->core).attempt,
                              .cause = cause,
                              .code = code};

    rig_step(
        g,
        &(struct ms_job_event){
            .what = MS_JOB_EXITED, .reports = &p, .report_count = 1, .text = text});
}

void rig_settle(struct rig *g)
{
    uint64_t ids[64];
    size_t count;

    do {
        count = 0;
        for (size_t i = 0; i < g->count && count < 64; i++)
            if (g->actions[i].id)
                ids[count++] = g->actions[i].id;
        g->count = 0;
        for (size_t i = 0; i + 1 < count; i++) {
            rig_done(g, ids[i]);
            assert_true(i + 1 == count || rig_done_count(g) == 0);
        }
        if (count)
            rig_done(g, ids[count - 1]);
    } while (count);
}

void rig_run(struct rig *g)
{
    rig_do(g, MS_JOB_ADMITTED);
    rig_settle(g);
    assert_int_equal(rig_stage(g), MS_JOB_STAGE_RUNNING);
}

enum ms_job_stage rig_stage(const struct rig *g)
{
    return ms_job_core_view(g->core).stage;
}

void rig_replay(struct rig *g)
{
    struct ms_job_core *core = ms_job_core_create();
    size_t at = 0;

    assert_non_null(core);
    for (size_t i = 0; i < g->records; i++) {
        struct ms_job_event_read e;
        const struct ms_job_action *actions;
        size_t count;

        assert_int_equal(
            ms_job_event_decode(&e, g->journal.data + at, g->sizes[i], NULL), 0);
        assert_int_equal(
            ms_job_core_step(core, &e.event, g->times[i], &actions, &count, NULL), 0);
        at += g->sizes[i];
        ms_job_event_read_finish(&e);
    }
    ms_job_core_destroy(g->core);
    g->core = core;
    g->count = 0;
}
