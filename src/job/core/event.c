/* event.c - the wire form of events and actions */
#include "job/core/core_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { EVENT = 'E', ACTION = 'A', REPORT_SIZE_MIN = 7 };

const char *ms_job_event_name(uint32_t what)
{
    static const char *const names[MS_JOB_EVENT_WHATS] = {
        "?",
        [MS_JOB_SUBMITTED] = "submitted",
        [MS_JOB_ADMITTED] = "admitted",
        [MS_JOB_DONE] = "done",
        [MS_JOB_NOT_DONE] = "not done",
        [MS_JOB_EXITED] = "exited",
        [MS_JOB_PROGRESS] = "progress",
        [MS_JOB_SUSPECTED] = "suspected",
        [MS_JOB_HUNG] = "hung",
        [MS_JOB_CANNOT_ASK] = "cannot ask",
        [MS_JOB_CAN_ASK] = "can ask",
        [MS_JOB_RECOVERED] = "recovered",
        [MS_JOB_FOUND] = "found",
        [MS_JOB_ROOM] = "room",
        [MS_JOB_TICK] = "tick",
        [MS_JOB_STOP] = "stop",
        [MS_JOB_SUSPEND] = "suspend",
        [MS_JOB_RESUME] = "resume",
        [MS_JOB_SCALE] = "scale",
        [MS_JOB_RESTART] = "restart",
        [MS_JOB_DELETE] = "delete",
    };

    return what < MS_JOB_EVENT_WHATS ? names[what] : "?";
}

const char *ms_job_action_name(uint32_t what)
{
    static const char *const names[MS_JOB_ACTION_WHATS] = {
        "?",
        [MS_JOB_DO_RESERVE] = "reserve",
        [MS_JOB_DO_RELEASE] = "release",
        [MS_JOB_DO_CHECK_NODES] = "check nodes",
        [MS_JOB_DO_AVOID] = "avoid",
        [MS_JOB_DO_CREATE] = "create",
        [MS_JOB_DO_REPLACE] = "replace",
        [MS_JOB_DO_RESTART] = "restart",
        [MS_JOB_DO_RESIZE] = "resize",
        [MS_JOB_DO_DRAIN] = "drain",
        [MS_JOB_DO_DESTROY] = "destroy",
        [MS_JOB_DO_DUMP_STACKS] = "dump stacks",
        [MS_JOB_DO_END_STRAYS] = "end strays",
        [MS_JOB_DO_START_DRIVER] = "start driver",
        [MS_JOB_DO_STOP_DRIVER] = "stop driver",
        [MS_JOB_DO_SAY] = "say",
        [MS_JOB_DO_FINISH] = "finish",
        [MS_JOB_DO_FORGET] = "forget",
    };

    return what < MS_JOB_ACTION_WHATS ? names[what] : "?";
}

/* ---- writing ----------------------------------------------------------------------- */

/* A text that may be NULL: its length is one more, and NULL is 0. Long ones keep their end. */
static void put_text(struct ms_core_codec *k, const char *text)
{
    char kept[MS_JOB_TEXT_MAX + 1];
    bool is_there = text != NULL;

    ms_core_codec_bool(k, &is_there);
    if (!text)
        return;
    ms_text_keep(kept, sizeof kept, text);
    ms_core_codec_text(k, kept, sizeof kept);
}

static void put_report(struct ms_core_codec *k, const struct ms_job_report *report)
{
    struct ms_job_report p = *report;

    ms_core_codec_u32(k, &p.role, UINT32_MAX);
    ms_core_codec_u32(k, &p.rank, UINT32_MAX);
    ms_core_codec_u32(k, &p.incarnation, UINT32_MAX);
    ms_core_codec_u8(k, &p.seen, UINT8_MAX);
    ms_core_codec_u8(k, &p.cause, UINT8_MAX);
    ms_core_codec_u8(k, &p.signaled, UINT8_MAX);
    ms_core_codec_i32(k, &p.code);
    put_text(k, p.node);
}

static void walk_event(struct ms_core_codec *k, struct ms_job_event *e)
{
    ms_core_codec_u32(k, &e->what, UINT32_MAX);
    ms_core_codec_u32(k, &e->role, UINT32_MAX);
    ms_core_codec_u32(k, &e->rank, UINT32_MAX);
    ms_core_codec_u32(k, &e->count, UINT32_MAX);
    ms_core_codec_u32(k, &e->fits, UINT32_MAX);
    ms_core_codec_u32(k, &e->flags, UINT32_MAX);
    ms_core_codec_u8(k, &e->failure, UINT8_MAX);
    ms_core_codec_u64(k, &e->id, UINT64_MAX);
}

int ms_job_event_encode(const struct ms_job_event *event, struct ms_buf *out)
{
    struct ms_job_event e = *event;
    uint64_t count = e.report_count;
    size_t from = out->len;
    bool has_spec = e.spec != NULL;
    struct ms_core_codec k;

    ms_core_codec_begin(&k, out, EVENT);
    walk_event(&k, &e);
    put_text(&k, e.text);
    ms_core_codec_u64(&k, &count, UINT64_MAX);
    for (size_t i = 0; i < e.report_count; i++)
        put_report(&k, &e.reports[i]);
    ms_core_codec_bool(&k, &has_spec);
    if (e.spec) {
        struct ms_job_spec spec = *e.spec;

        ms_core_codec_spec(&k, &spec);
        ms_core_codec_role_specs(&k, &spec);
    }
    return ms_core_codec_seal(&k, from);
}

/* ---- reading ----------------------------------------------------------------------- */

/* The memory of an event: its reports, and then its texts, which take less room there than
 * they had on the wire. */
struct texts {
    char *at;
};

static const char *get_text(struct ms_core_codec *k, struct texts *t)
{
    char kept[MS_JOB_TEXT_MAX + 1];
    bool is_there = false;
    char *text = t->at;
    size_t len;

    ms_core_codec_bool(k, &is_there);
    if (k->rc < 0 || !is_there)
        return NULL;
    ms_core_codec_text(k, kept, sizeof kept);
    if (k->rc < 0)
        return NULL;
    len = strlen(kept);
    memcpy(text, kept, len + 1);
    t->at += len + 1;
    return text;
}

static void
get_report(struct ms_core_codec *k, struct ms_job_report *p, struct texts *t)
{
    ms_core_codec_u32(k, &p->role, UINT32_MAX);
    ms_core_codec_u32(k, &p->rank, UINT32_MAX);
    ms_core_codec_u32(k, &p->incarnation, UINT32_MAX);
    ms_core_codec_u8(k, &p->seen, UINT8_MAX);
    ms_core_codec_u8(k, &p->cause, UINT8_MAX);
    ms_core_codec_u8(k, &p->signaled, UINT8_MAX);
    ms_core_codec_i32(k, &p->code);
    p->node = get_text(k, t);
}

/* How many reports there are is known only after the text: it is read twice. */
static uint64_t count_reports(const struct ms_core_codec *at)
{
    struct ms_core_codec k = *at;
    char skipped[MS_JOB_TEXT_MAX + 2];
    struct texts t = {skipped};
    uint64_t count = 0;

    get_text(&k, &t);
    ms_core_codec_u64(&k, &count, (uint64_t)(at->end - at->at) / REPORT_SIZE_MIN);
    return k.rc == 0 ? count : 0;
}

static void get_spec(struct ms_core_codec *k, struct ms_job_event_read *r)
{
    bool has_spec = false;

    ms_core_codec_bool(k, &has_spec);
    if (k->rc < 0 || !has_spec)
        return;
    ms_core_codec_spec(k, &r->spec);
    ms_core_codec_role_specs(k, &r->spec);
    r->event.spec = &r->spec;
}

static void get_event(struct ms_core_codec *k, struct ms_job_event_read *r)
{
    struct ms_job_event *e = &r->event;
    struct ms_job_report *reports;
    struct texts t;
    uint64_t count;

    walk_event(k, e);
    count = count_reports(k);
    /* the last byte is for an empty text, which has no byte on the wire but its length */
    r->memory = calloc(1, count * sizeof *reports + (size_t)(k->end - k->at) + 1);
    if (!r->memory) {
        k->rc = -ENOMEM;
        return;
    }
    reports = r->memory;
    t.at = (char *)(reports + count);
    e->text = get_text(k, &t);
    ms_core_codec_u64(k, &count, count);
    for (size_t i = 0; i < count && k->rc == 0; i++)
        get_report(k, &reports[i], &t);
    e->reports = reports;
    e->report_count = count;
    get_spec(k, r);
    if (k->rc == 0 && k->at != k->end)
        k->rc = -EBADMSG;
}

int ms_job_event_decode(struct ms_job_event_read *r,
                        const void *data,
                        size_t len,
                        struct ms_error *err)
{
    struct ms_core_codec k;
    int rc = ms_core_codec_open(&k, EVENT, data, len, err);

    *r = (struct ms_job_event_read){0};
    if (rc < 0)
        return rc;
    get_event(&k, r);
    if (k.rc == 0)
        return 0;
    ms_job_event_read_finish(r);
    return ms_error_set(err,
                        k.rc,
                        k.rc == -ENOMEM ? "no memory for a record"
                                        : "a record of a job cannot be read");
}

void ms_job_event_read_finish(struct ms_job_event_read *r)
{
    free(r->memory);
    free(r->spec.roles);
    *r = (struct ms_job_event_read){0};
}
