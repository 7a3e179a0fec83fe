/* verbs.c - the table of all that a head can be asked */
#include "head/ops/verbs.h"
#include "base/cleanup.h"
#include "head/rest/view.h"

#include <errno.h>

/* What can own clusters, ports and places: they end with it. */
#define OWNERS (MS_ASKER_PROCESS | MS_ASKER_DRIVER | MS_ASKER_WORKER)
#define TOOL   MS_ASKER_TOOL
#define HTTP   MS_ASKER_HTTP

#define ANYBODY (OWNERS | TOOL | HTTP)

#define VERB(asked, answered)                                                          \
    .body = MUSTER__DRIVER_TO_HEAD__BODY_##asked,                                      \
    .answer = MUSTER__HEAD_TO_DRIVER__BODY_##answered
#define CHANGE(asked, answered, asker, runs)                                           \
    VERB(asked, answered), .who = (asker), .run = (runs)
#define QUESTION(asked, answered, asker, runs)                                         \
    CHANGE(asked, answered, asker, runs), .is_question = true
#define NODES      .waits = MS_WAITS_FOR_NODES
#define IF_UNKNOWN .waits = MS_WAITS_IF_UNKNOWN
#define ANY_THREAD .on_any_thread = true
#define KEPT       .is_kept = true

static const struct ms_verb verbs[] = {
    /* the link's own (drivers/) */
    {VERB(HELLO, WELCOME)},
    {VERB(GOODBYE, DONE)},

    /* clusters */
    {CHANGE(CREATE, CREATED, OWNERS, ms_head_create_run), NODES},
    {CHANGE(DESTROY, DONE, OWNERS | TOOL | HTTP, ms_head_destroy_run),
     .http = {"DELETE", "api/v1/clusters/{name}", NULL}},
    {CHANGE(STOP, STOPPED, MS_ASKER_PROCESS | TOOL | HTTP, ms_head_stop_clusters_run),
     .http = {"POST", "api/v1/clusters/{cluster}/stop", NULL}},
    {CHANGE(RESTART, CREATED, OWNERS | TOOL | HTTP, ms_head_restart_run),
     IF_UNKNOWN,
     .http = {"POST", "api/v1/clusters/{cluster}/restart", ms_view_cluster}},
    {CHANGE(RESIZE, CREATED, OWNERS | TOOL | HTTP, ms_head_resize_run),
     IF_UNKNOWN,
     .http = {"POST", "api/v1/clusters/{cluster}/resize", ms_view_cluster}},
    {CHANGE(REFRESH, DONE, OWNERS, ms_head_refresh_run), IF_UNKNOWN},
    {CHANGE(ADD_STEP, DONE, OWNERS, ms_head_add_step_run), IF_UNKNOWN},
    {QUESTION(FIND, FOUND, OWNERS | TOOL, ms_head_find_run)},
    {QUESTION(ASK_SUCCESSOR, SUCCESSOR, OWNERS | TOOL, ms_head_ask_successor_run)},
    {QUESTION(ASK_DEATH, EXITED, OWNERS | TOOL, ms_head_ask_death_run)},

    /* what nodes have */
    {CHANGE(HOLD_PORT, PORT, OWNERS, ms_head_hold_port_run), IF_UNKNOWN},
    {CHANGE(DROP_PORT, DONE, OWNERS, ms_head_drop_port_run)},
    {CHANGE(PREPARE, DONE, OWNERS, ms_head_prepare_run)},
    {QUESTION(STATUS, STATUS, OWNERS | TOOL, ms_head_status_run), NODES},
    {QUESTION(READ_LOG, PIECE, OWNERS | TOOL | HTTP, ms_head_read_log_run)},
    {QUESTION(OBJECTS, OBJECTS, OWNERS | TOOL | HTTP, ms_head_objects_run),
     .http = {"GET", "api/v1/objects", ms_view_all_objects}},

    /* places */
    {CHANGE(PLACE_GROUP, GROUP, OWNERS, ms_place_group_run), NODES, ANY_THREAD},
    {QUESTION(WAIT_GROUP, GROUP, OWNERS | TOOL, ms_place_wait_run), IF_UNKNOWN},
    {QUESTION(FIND_GROUP, GROUP, OWNERS | TOOL, ms_place_find_run),
     IF_UNKNOWN,
     ANY_THREAD},
    {CHANGE(REMOVE_GROUP, DONE, OWNERS | TOOL, ms_place_remove_run),
     IF_UNKNOWN,
     ANY_THREAD},
    {CHANGE(
         RESTORE_GROUP, DONE, MS_ASKER_DRIVER | MS_ASKER_WORKER, ms_place_restore_run),
     NODES},
    {QUESTION(PLACE_CLUSTER, PLACED, OWNERS | TOOL, ms_place_cluster_run),
     NODES,
     ANY_THREAD},
    {QUESTION(RESOURCES, RESOURCES, OWNERS | TOOL, ms_place_resources_run),
     NODES,
     ANY_THREAD},

    /* the key-value store, barriers */
    {CHANGE(KV_PUT, KV_DONE, OWNERS | TOOL | HTTP, ms_head_kv_put_run),
     IF_UNKNOWN,
     .http = {"POST", "api/v1/kv/{+key}", NULL}},
    {CHANGE(KV_DELETE, KV_DONE, OWNERS | TOOL | HTTP, ms_head_kv_delete_run),
     .http = {"DELETE", "api/v1/kv/{+key}", NULL}},
    {QUESTION(KV_GET, KV_ENTRY, OWNERS | TOOL | HTTP, ms_head_kv_get_run),
     .http = {"GET", "api/v1/kv/{+key}", ms_view_kv_entry}},
    {QUESTION(KV_KEYS, KV_EVENTS, OWNERS | TOOL | HTTP, ms_head_kv_keys_run),
     .http = {"GET", "api/v1/kv", ms_view_kv_keys}},
    {QUESTION(KV_WATCH, KV_EVENTS, OWNERS | TOOL, ms_head_kv_watch_run)},
    {CHANGE(KV_ADD, KV_NUMBER, OWNERS | TOOL, ms_head_kv_add_run)},
    {CHANGE(KV_COMPARE_SET, KV_ENTRY, OWNERS | TOOL, ms_head_kv_compare_set_run)},
    {QUESTION(KV_WAIT, KV_DONE, OWNERS | TOOL, ms_head_kv_wait_run)},
    {CHANGE(BARRIER, DONE, MS_ASKER_WORKER, ms_head_barrier_run)},

    /* rendezvous */
    {CHANGE(JOIN_RENDEZVOUS, WORLD, OWNERS, ms_head_rendezvous_join_run)},
    {QUESTION(RENDEZVOUS, RENDEZVOUS, OWNERS | TOOL, ms_head_rendezvous_ask_run)},
    {CHANGE(LEAVE_RENDEZVOUS, RENDEZVOUS, OWNERS, ms_head_rendezvous_leave_run)},
    {CHANGE(CLOSE_RENDEZVOUS, RENDEZVOUS, OWNERS | TOOL, ms_head_rendezvous_close_run)},

    /* data shards */
    {CHANGE(OPEN_SHARDS, SHARDS, OWNERS, ms_head_shards_open_run)},
    {CHANGE(TAKE_SHARDS, SHARDS_TAKEN, OWNERS, ms_head_shards_take_run)},
    {CHANGE(END_SHARD, SHARDS, OWNERS, ms_head_shards_end_run)},
    {QUESTION(SHARDS, SHARDS, OWNERS | TOOL, ms_head_shards_ask_run)},
    {CHANGE(CHANGE_SHARDS, SHARDS, OWNERS | TOOL, ms_head_shards_change_run)},
    {QUESTION(SAVE_SHARDS, SHARDS_SAVED, OWNERS, ms_head_shards_save_run)},
    {CHANGE(RESTORE_SHARDS, SHARDS_SAVED, OWNERS, ms_head_shards_restore_run)},

    /* nodes that an orchestrator lends */
    {CHANGE(RESERVE, RESERVATION, OWNERS, ms_fleet_reserve_run)},
    {CHANGE(RELEASE_PIECES, DONE, OWNERS, ms_fleet_release_run)},
    {QUESTION(RESERVATION, RESERVATION, OWNERS | TOOL, ms_fleet_describe_run)},

    /* jobs */
    {CHANGE(SUBMIT_JOB, JOB, ANYBODY, ms_jobs_submit_run),
     KEPT,
     .http = {"POST", "api/v1/jobs", NULL}},
    {QUESTION(CHECK_JOB, JOB_CHECKED, ANYBODY, ms_jobs_check_run),
     .http = {"POST", "api/v1/check", NULL}},
    {QUESTION(LIST_JOBS, JOBS, ANYBODY, ms_jobs_list_run),
     .http = {"GET", "api/v1/jobs", NULL}},
    {QUESTION(GET_JOB, JOB, ANYBODY, ms_jobs_get_run),
     .http = {"GET", "api/v1/jobs/{name}", NULL}},
    {QUESTION(WAIT_JOB, JOB, ANYBODY, ms_jobs_wait_run),
     .http = {"GET", "api/v1/jobs/{name}/wait", NULL}},
    {QUESTION(JOB_EVENTS, JOB_EVENTS, ANYBODY, ms_jobs_events_run),
     .http = {"GET", "api/v1/jobs/{name}/events", NULL}},
    {CHANGE(SUSPEND_JOB, JOB, ANYBODY, ms_jobs_suspend_run),
     KEPT,
     .http = {"POST", "api/v1/jobs/{name}/suspend", NULL}},
    {CHANGE(RESUME_JOB, JOB, ANYBODY, ms_jobs_resume_run),
     KEPT,
     .http = {"POST", "api/v1/jobs/{name}/resume", NULL}},
    {CHANGE(STOP_JOB, JOB, ANYBODY, ms_jobs_stop_run),
     KEPT,
     .http = {"POST", "api/v1/jobs/{name}/stop", NULL}},
    {CHANGE(DELETE_JOB, JOB, ANYBODY, ms_jobs_delete_run),
     KEPT,
     .http = {"DELETE", "api/v1/jobs/{name}", NULL}},
    {CHANGE(SCALE_JOB, JOB, ANYBODY, ms_jobs_scale_run),
     KEPT,
     .http = {"POST", "api/v1/jobs/{name}/scale", NULL}},
    {CHANGE(RESTART_JOB, JOB, ANYBODY, ms_jobs_restart_run),
     KEPT,
     .http = {"POST", "api/v1/jobs/{name}/restart", NULL}},
};

const struct ms_verb *ms_verbs(size_t *count)
{
    *count = MS_COUNT(verbs);
    return verbs;
}

const struct ms_verb *ms_verb_find(Muster__DriverToHead__BodyCase body)
{
    for (size_t i = 0; i < MS_COUNT(verbs); i++)
        if (verbs[i].body == body)
            return &verbs[i];
    return NULL;
}

static const ProtobufCFieldDescriptor *field_of(const struct ms_verb *v)
{
    return protobuf_c_message_descriptor_get_field(&muster__driver_to_head__descriptor,
                                                   v->body);
}

const char *ms_verb_name(const struct ms_verb *v)
{
    return field_of(v)->name;
}

const ProtobufCMessageDescriptor *ms_verb_message(const struct ms_verb *v)
{
    return field_of(v)->descriptor;
}

static const char *describe(enum ms_asker who)
{
    switch (who) {
    case MS_ASKER_PROCESS:
    case MS_ASKER_DRIVER:
        return "a driver";
    case MS_ASKER_WORKER:
        return "a worker";
    case MS_ASKER_TOOL:
        return "a tool";
    case MS_ASKER_HTTP:
        return "an HTTP client";
    }
    return "nobody";
}

const struct ms_verb *
ms_verb_check(const Muster__DriverToHead *m, enum ms_asker who, struct ms_error *err)
{
    const struct ms_verb *v = ms_verb_find(m->body_case);

    if (!v || !v->run)
        ms_error_set(err, -ENOSYS, "the head does not know this request");
    else if (v->who & who)
        return v;
    else
        ms_error_set(
            err, -EPERM, "%s may not ask for '%s'", describe(who), ms_verb_name(v));
    return NULL;
}
