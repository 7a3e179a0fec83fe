/* snapshot.c - the wire form of the state */
#include "job/core/core_impl.h"

#include <errno.h>
#include <string.h>

enum { SNAPSHOT = 'S', SLOT_SIZE_MIN = 13 };

static void walk_driver(struct ms_core_codec *k, struct ms_core_driver *d)
{
    ms_core_codec_u8(k, &d->state, MS_CORE_DRIVER_STATES - 1);
    ms_core_codec_bool(k, &d->is_restart_due);
    ms_core_codec_bool(k, &d->is_unsure);
    ms_core_codec_u8(k, &d->quick, UINT8_MAX);
    ms_core_codec_u8(k, &d->tries, UINT8_MAX);
    ms_core_codec_budget(k, d->spent);
    ms_core_codec_u16(k, &d->error_count);
    ms_core_codec_u32(k, &d->error_mark, UINT32_MAX);
    ms_core_codec_u32(k, &d->attempt, UINT32_MAX);
    ms_core_codec_u64(k, &d->op, UINT64_MAX);
    ms_core_codec_i64(k, &d->started_ns);
    ms_core_codec_i64(k, &d->retry_ns);
    ms_core_codec_i64(k, &d->pardoned_ns);
    if (k->version < 3)
        return;
    ms_core_codec_u8(k, &d->hang, MS_CORE_DUMPED);
    ms_core_codec_u64(k, &d->dump_op, UINT64_MAX);
}

static void walk_node(struct ms_core_codec *k, struct ms_core_node *n)
{
    ms_core_codec_text(k, n->name, sizeof n->name);
    ms_core_codec_u8(k, &n->avoid, MS_CORE_AVOIDS - 1);
    ms_core_codec_u8(k, &n->cause, MS_JOB_CAUSES - 1);
    if (k->version >= 2)
        ms_core_codec_u8(k, &n->struck_by, MS_JOB_CAUSES - 1);
    ms_core_codec_u16(k, &n->strikes);
    if (k->version >= 2)
        ms_core_codec_i64(k, &n->struck_ns);
    ms_core_codec_u64(k, &n->op, UINT64_MAX);
}

static bool has_spent(const uint16_t *spent)
{
    bool has = false;

    for (int i = 0; i < MS_JOB_BUDGETS; i++)
        has |= spent[i] != 0;
    return has;
}

/* Most slots have spent nothing. */
static void walk_spent(struct ms_core_codec *k, uint16_t *spent)
{
    bool has = has_spent(spent);

    ms_core_codec_bool(k, &has);
    if (!has)
        return;
    ms_core_codec_budget(k, spent);
    if (k->rc == 0 && !has_spent(spent))
        k->rc = -EBADMSG; /* a value has one form alone */
}

static void
walk_slot(struct ms_core_codec *k, struct ms_core_role *r, struct ms_core_slot *s)
{
    uint8_t state = s->state;

    ms_core_codec_u8(k, &state, MS_JOB_SLOT_STATES - 1);
    ms_core_slot_set(r, s, state);
    ms_core_codec_i64(k, &s->started_ns);
    ms_core_codec_i64(k, &s->ended_ns);
    ms_core_codec_i64(k, &s->retry_ns);
    ms_core_codec_u32(k, &s->incarnation, UINT32_MAX);
    ms_core_codec_u32(k, &s->restarts, UINT32_MAX);
    ms_core_codec_u32(k, &s->mark, UINT32_MAX);
    ms_core_codec_i32(k, &s->code);
    walk_spent(k, s->spent);
    ms_core_codec_u8(k, &s->cause, MS_JOB_BUDGETS - 1);
    ms_core_codec_u8(k, &s->signaled, 1);
    ms_core_codec_u8(k, &s->quick, UINT8_MAX);
    ms_core_codec_u8(k, &s->flags, UINT8_MAX);
}

static void walk_role_flags(struct ms_core_codec *k, struct ms_core_role *r)
{
    ms_core_codec_bool(k, &r->is_up);
    ms_core_codec_bool(k, &r->is_given_up);
    ms_core_codec_bool(k, &r->is_restart_due);
    ms_core_codec_bool(k, &r->is_scaling);
    ms_core_codec_bool(k, &r->is_drained);
    ms_core_codec_bool(k, &r->has_failed);
    ms_core_codec_bool(k, &r->has_strays);
    ms_core_codec_bool(k, &r->is_unsure);
    ms_core_codec_u8(k, &r->quick, UINT8_MAX);
    ms_core_codec_u8(k, &r->tries, UINT8_MAX);
    ms_core_codec_u8(k, &r->waits, UINT8_MAX);
    ms_core_codec_u8(k, &r->hang, MS_CORE_DUMPED);
    ms_core_codec_u8(k, &r->scale_tries, UINT8_MAX);
}

static void walk_role_times(struct ms_core_codec *k, struct ms_core_role *r)
{
    ms_core_codec_i64(k, &r->retry_ns);
    ms_core_codec_i64(k, &r->scale_retry_ns);
    ms_core_codec_i64(k, &r->stray_retry_ns);
    ms_core_codec_i64(k, &r->slot_retry_ns);
    ms_core_codec_i64(k, &r->pending_ns);
    ms_core_codec_i64(k, &r->up_ns);
}

static void walk_role(struct ms_core_codec *k, struct ms_core_role *r)
{
    uint32_t max = r->spec->max;

    ms_core_codec_u32(k, &r->size, max);
    ms_core_codec_u32(k, &r->wanted, max);
    ms_core_codec_u32(k, &r->next_size, max);
    ms_core_codec_u32(k, &r->incarnation, UINT32_MAX);
    ms_core_codec_u32(k, &r->memory, UINT32_MAX);
    ms_core_codec_u32(k, &r->room, UINT32_MAX);
    ms_core_codec_budget(k, r->spent);
    ms_core_codec_u16(k, &r->restarts);
    ms_core_codec_u16(k, &r->error_count);
    ms_core_codec_u32(k, &r->error_mark, UINT32_MAX);
    ms_core_codec_u64(k, &r->op, UINT64_MAX);
    ms_core_codec_u64(k, &r->dump_op, UINT64_MAX);
    ms_core_codec_u64(k, &r->drain_op, UINT64_MAX);
    ms_core_codec_u64(k, &r->stray_op, UINT64_MAX);
    ms_core_codec_u32(k, &r->op_count, max);
    ms_core_codec_u32(k, &r->op_size, max);
    ms_core_codec_u32(k, &r->op_incarnation, UINT32_MAX);
    ms_core_codec_u8(k, &r->doing, MS_JOB_DO_DESTROY);
    walk_role_flags(k, r);
    walk_role_times(k, r);
    ms_core_codec_text(k, r->text, sizeof r->text);
    for (uint32_t i = 0; i < max && k->rc == 0; i++)
        walk_slot(k, r, &r->slots[i]);
}

static void walk_capacity(struct ms_core_codec *k, struct ms_job_core *c)
{
    uint64_t count = c->node_count;

    ms_core_codec_u8(k, &c->held, MS_CORE_HELDS - 1);
    ms_core_codec_u8(k, &c->held_tries, UINT8_MAX);
    ms_core_codec_u8(k, &c->check_rounds, UINT8_MAX);
    if (k->version >= 4)
        ms_core_codec_u8(k, &c->check_tries, UINT8_MAX);
    ms_core_codec_u64(k, &c->held_op, UINT64_MAX);
    ms_core_codec_u64(k, &c->check_op, UINT64_MAX);
    ms_core_codec_i64(k, &c->held_retry_ns);
    ms_core_codec_i64(k, &c->check_retry_ns);
    ms_core_codec_i64(k, &c->pending_ns);
    ms_core_codec_i64(k, &c->unknown_ns);
    ms_core_codec_u64(k, &count, MS_CORE_NODES_MAX);
    c->node_count = count;
    for (size_t i = 0; i < count && k->rc == 0; i++)
        walk_node(k, &c->nodes[i]);
}

static void walk_job(struct ms_core_codec *k, struct ms_job_core *c)
{
    ms_core_codec_u8(k, &c->stage, MS_JOB_STAGES - 1);
    ms_core_codec_u8(k, &c->end_stage, MS_JOB_STAGES - 1);
    ms_core_codec_u8(k, &c->cause, MS_JOB_CAUSES - 1);
    ms_core_codec_i32(k, &c->code);
    ms_core_codec_i64(k, &c->now_ns);
    ms_core_codec_i64(k, &c->since_ns);
    ms_core_codec_u64(k, &c->last_id, UINT64_MAX);
    ms_core_codec_bool(k, &c->cannot_ask);
    ms_core_codec_bool(k, &c->is_deleted);
    ms_core_codec_bool(k, &c->is_admitted);
    ms_core_codec_bool(k, &c->is_down_first);
    ms_core_codec_bool(k, &c->is_checked);
    ms_core_codec_bool(k, &c->is_held_unsure);
    ms_core_codec_i64(k, &c->cannot_ask_ns);
    ms_core_codec_u32(k, &c->restarts, UINT32_MAX);
    ms_core_codec_u32(k, &c->escalations, UINT32_MAX);
    ms_core_codec_text(k, c->text, sizeof c->text);
    walk_capacity(k, c);
    walk_driver(k, &c->driver);
    for (uint32_t i = 0; i < c->spec.role_count && k->rc == 0; i++)
        walk_role(k, &c->roles[i]);
}

int ms_job_core_encode(const struct ms_job_core *core, struct ms_buf *out)
{
    struct ms_job_core c = *core; /* writing changes nothing of what it points to */
    size_t from = out->len;
    struct ms_core_codec k;

    ms_core_codec_begin(&k, out, SNAPSHOT);
    ms_core_codec_spec(&k, &c.spec);
    ms_core_codec_role_specs(&k, &c.spec);
    walk_job(&k, &c);
    return ms_core_codec_seal(&k, from);
}

/* ---- reading ----------------------------------------------------------------------- */

static bool is_sound_role(const struct ms_core_role *r)
{
    uint32_t absent = r->counts[MS_JOB_SLOT_ABSENT];

    for (uint32_t i = r->size; i < r->spec->max; i++)
        if (r->slots[i].state != MS_JOB_SLOT_ABSENT)
            return false;
    for (uint32_t i = 0; i < r->spec->max; i++)
        if (r->slots[i].incarnation > r->incarnation)
            return false;
    return absent >= r->spec->max - r->size && r->wanted >= r->spec->min &&
           r->next_size <= r->size && r->op_incarnation <= r->incarnation;
}

static bool is_sound(const struct ms_job_core *c)
{
    for (uint32_t i = 0; i < c->spec.role_count; i++)
        if (!is_sound_role(&c->roles[i]))
            return false;
    return c->now_ns >= 0;
}

/* A job that was not submitted has no spec to be checked. */
static int read_spec(struct ms_core_codec *k, struct ms_job_core *c)
{
    struct ms_error err;

    ms_core_codec_spec(k, &c->spec);
    ms_core_codec_role_specs(k, &c->spec);
    if (k->rc == 0 && c->spec.name[0] && ms_job_spec_check(&c->spec, &err) < 0)
        return -EBADMSG;
    if (k->rc == 0 && !c->spec.name[0] && c->spec.role_count)
        return -EBADMSG;
    return k->rc;
}

/* Memory is taken only for slots that can be there. */
static bool has_slots(const struct ms_core_codec *k, const struct ms_job_core *c)
{
    uint64_t slots = 0;

    for (uint32_t i = 0; i < c->spec.role_count; i++)
        slots += c->spec.roles[i].max;
    return slots <= (uint64_t)(k->end - k->at) / SLOT_SIZE_MIN;
}

static int read_all(struct ms_core_codec *k, struct ms_job_core *c)
{
    int rc = read_spec(k, c);

    if (rc == 0)
        rc = has_slots(k, c) ? ms_core_allocate(c) : -EBADMSG;
    if (rc < 0)
        return rc;
    walk_job(k, c);
    if (k->rc < 0)
        return k->rc;
    if ((c->stage == MS_JOB_STAGE_NEW) != (c->spec.name[0] == 0))
        return -EBADMSG;
    return k->at == k->end && is_sound(c) ? 0 : -EBADMSG;
}

/* NULL with the reason in *rc. */
static struct ms_job_core *read_as(struct ms_core_codec k, uint8_t version, int *rc)
{
    struct ms_job_core *c = ms_job_core_create();

    k.version = version;
    *rc = c ? read_all(&k, c) : -ENOMEM;
    if (*rc == 0)
        return c;
    ms_job_core_destroy(c);
    return NULL;
}

struct ms_job_core *
ms_job_core_decode(const void *data, size_t len, struct ms_error *err)
{
    struct ms_job_core *c;
    struct ms_core_codec k;
    int rc = ms_core_codec_open(&k, SNAPSHOT, data, len, err);

    if (rc < 0)
        return NULL;
    c = read_as(k, k.version, &rc);
    if (rc == -EBADMSG && k.version == 1) /* with what 2 adds */
        c = read_as(k, 2, &rc);
    if (c)
        return c;
    ms_error_set(err,
                 rc,
                 rc == -ENOMEM ? "no memory for a job"
                               : "a snapshot of a job is damaged");
    return NULL;
}
