/* verbs.h - all that a head can be asked: one table
 *
 * A request is a DriverToHead message of any asker: the process that has the head, a driver
 * or a worker over its link, or a tool over its link, HTTP. Each body of that message
 * has one row here, which says who may ask, what carries it out, what answers it, and where
 * it is found by HTTP. All of these read the row, so that a new verb is
 *
 *   - its message in the oneof of DriverToHead, and what answers it in that of HeadToDriver;
 *   - a function that carries it out;
 *   - a row in verbs.c.
 *
 * Constant; any thread.
 */
#ifndef MS_HEAD_OPS_VERBS_H
#define MS_HEAD_OPS_VERBS_H

#include "base/error.h"
#include "proto/muster.pb-c.h"

#include <stdbool.h>
#include <stddef.h>

struct ms_head_op;
struct json_t;

/* Who asks; a set of them in a row. */
enum ms_asker {
    MS_ASKER_PROCESS = 1, /* the program that has this head, and the head itself */
    MS_ASKER_DRIVER = 2,  /* over its link */
    MS_ASKER_WORKER = 4,  /* over its link */
    MS_ASKER_TOOL = 8,    /* over its link, with the secret: a command */
    MS_ASKER_HTTP = 16    /* with the token */
};

/* What a request waits for in a head that was started again (waiting.h). */
enum ms_verb_waits {
    MS_WAITS_FOR_NOTHING,
    MS_WAITS_FOR_NODES, /* of a driver: until all nodes are back */
    MS_WAITS_IF_UNKNOWN /* if `run` gives -ENOENT, -ENODEV or -EAGAIN: it is run again */
};

/* Carries out op->request, as op->run (op.h). */
typedef int ms_verb_run(struct ms_head_op *op);

/* clusters/ */
ms_verb_run ms_head_create_run, ms_head_destroy_run, ms_head_restart_run,
    ms_head_resize_run, ms_head_refresh_run, ms_head_add_step_run,
    ms_head_stop_clusters_run, ms_head_ask_successor_run, ms_head_find_run,
    ms_head_hold_port_run, ms_head_drop_port_run;
/* nodes/, status.h */
ms_verb_run ms_head_prepare_run, ms_head_read_log_run, ms_head_objects_run,
    ms_head_status_run, ms_head_activity_run;
/* place/ */
ms_verb_run ms_place_group_run, ms_place_wait_run, ms_place_remove_run,
    ms_place_find_run, ms_place_restore_run, ms_place_cluster_run,
    ms_place_resources_run;
/* kv/ */
ms_verb_run ms_head_kv_put_run, ms_head_kv_get_run, ms_head_kv_delete_run,
    ms_head_kv_keys_run, ms_head_kv_watch_run, ms_head_kv_add_run,
    ms_head_kv_compare_set_run, ms_head_kv_wait_run, ms_head_barrier_run;
/* rendezvous/ */
ms_verb_run ms_head_rendezvous_join_run, ms_head_rendezvous_ask_run,
    ms_head_rendezvous_leave_run, ms_head_rendezvous_close_run;
/* shards/ */
ms_verb_run ms_head_shards_open_run, ms_head_shards_take_run, ms_head_shards_end_run,
    ms_head_shards_ask_run, ms_head_shards_change_run, ms_head_shards_save_run,
    ms_head_shards_restore_run;
/* fleet/ */
ms_verb_run ms_fleet_reserve_run, ms_fleet_release_run, ms_fleet_describe_run;
/* jobs/ */
ms_verb_run ms_jobs_submit_run, ms_jobs_check_run, ms_jobs_list_run, ms_jobs_get_run,
    ms_jobs_wait_run, ms_jobs_events_run, ms_jobs_suspend_run, ms_jobs_resume_run,
    ms_jobs_stop_run, ms_jobs_delete_run, ms_jobs_scale_run, ms_jobs_restart_run;
/* waiting.h */
ms_verb_run ms_head_ask_death_run;

/* Where a verb is found by HTTP; see rest/rest_verb.c. */
struct ms_verb_http {
    const char *method; /* NULL: nowhere */
    /* A segment in braces is a field of the verb's message: "api/v1/clusters/{name}". It is a
     * name, or with a plus any text: "api/v1/kv/{+key}". Other fields come in the query, or
     * as a JSON object in the body (POST). */
    const char *path;
    /* What answers, as JSON; null: there is none. NULL: field by field
     * (rest/message_json.h). */
    struct json_t *(*view)(const ProtobufCMessage *answer);
};

struct ms_verb {
    Muster__DriverToHead__BodyCase body;
    Muster__HeadToDriver__BodyCase answer; /* BODY_DONE: there is nothing to tell */
    unsigned who;                          /* enum ms_asker */
    bool
        is_question; /* it changes nothing: asking again is as good as an answer kept */
    bool
        is_kept; /* a change that is in the journal: the next head knows that it was made */
    bool
        on_any_thread; /* completes at once, with locks of its own; else on the head's */
    enum ms_verb_waits waits;
    ms_verb_run *run; /* NULL: nobody may ask */
    struct ms_verb_http http;
};

/* All of them; *count is how many. */
const struct ms_verb *ms_verbs(size_t *count);
/* NULL: there is none. */
const struct ms_verb *ms_verb_find(Muster__DriverToHead__BodyCase body);
/* As people write it: "kv_put". */
const char *ms_verb_name(const struct ms_verb *v);
/* What describes its message. */
const ProtobufCMessageDescriptor *ms_verb_message(const struct ms_verb *v);

/* The verb of this message, if `who` may ask for it. NULL: -ENOSYS (the head has no such
 * verb) or -EPERM, in err->code. */
const struct ms_verb *
ms_verb_check(const Muster__DriverToHead *m, enum ms_asker who, struct ms_error *err);

#endif
