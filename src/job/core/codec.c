/* codec.c - values as bytes, both ways
 *
 * Numbers are little-endian base 128, the smallest first; signed ones have their sign in the
 * lowest bit. A value has one form alone: longer forms of the same number are refused.
 */
#include "job/core/core_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { CHECK_SIZE = 4, HEAD_SIZE = 2, DIGITS_MAX = 10 };

static void fail(struct ms_core_codec *k, int rc)
{
    if (k->rc == 0)
        k->rc = rc;
}

/* ---- records ----------------------------------------------------------------------- */

/* FNV-1a over words of eight bytes, so that a snapshot of many instances is read fast. */
static uint32_t check_of(const uint8_t *at, size_t len)
{
    uint64_t hash = UINT64_C(14695981039346656037) ^ len;

    for (; len >= 8; at += 8, len -= 8) {
        uint64_t word;

        memcpy(&word, at, 8);
        hash = (hash ^ word) * UINT64_C(1099511628211);
        hash ^= hash >> 29;
    }
    for (; len > 0; at++, len--)
        hash = (hash ^ *at) * UINT64_C(1099511628211);
    return (uint32_t)(hash ^ hash >> 32);
}

static void write_bytes(struct ms_core_codec *k, const void *bytes, size_t len)
{
    if (k->rc == 0 && ms_buf_append(k->out, bytes, len) < 0)
        fail(k, -ENOMEM);
}

void ms_core_codec_begin(struct ms_core_codec *k, struct ms_buf *out, char kind)
{
    uint8_t head[HEAD_SIZE] = {(uint8_t)kind, MS_CORE_WIRE_VERSION};

    *k = (struct ms_core_codec){.out = out, .version = MS_CORE_WIRE_VERSION};
    write_bytes(k, head, sizeof head);
}

int ms_core_codec_seal(struct ms_core_codec *k, size_t from)
{
    uint8_t sum[CHECK_SIZE];
    uint32_t check;

    if (k->rc == 0) {
        check = check_of((const uint8_t *)k->out->data + from, k->out->len - from);
        for (int i = 0; i < CHECK_SIZE; i++)
            sum[i] = (uint8_t)(check >> 8 * i);
        write_bytes(k, sum, sizeof sum);
    }
    if (k->rc < 0)
        k->out->len = from;
    return k->rc;
}

int ms_core_codec_open(struct ms_core_codec *k,
                       char kind,
                       const void *data,
                       size_t len,
                       struct ms_error *err)
{
    const uint8_t *at = data;
    uint32_t check = 0;

    if (len < HEAD_SIZE + CHECK_SIZE)
        return ms_error_set(err, -EBADMSG, "a record of %zu bytes is cut short", len);
    if (at[0] != (uint8_t)kind)
        return ms_error_set(
            err, -EBADMSG, "a record of an unknown kind, 0x%02x", at[0]);
    if (at[1] == 0)
        return ms_error_set(err, -EBADMSG, "a record of no version");
    if (at[1] > MS_CORE_WIRE_VERSION)
        return ms_error_set(
            err,
            -ENOTSUP,
            "a record of version %u; this program reads up to %u: a newer "
            "one has written it",
            at[1],
            MS_CORE_WIRE_VERSION);
    for (int i = 0; i < CHECK_SIZE; i++)
        check |= (uint32_t)at[len - CHECK_SIZE + (size_t)i] << 8 * i;
    if (check != check_of(at, len - CHECK_SIZE))
        return ms_error_set(
            err, -EBADMSG, "a record of %zu bytes is damaged: its check is wrong", len);
    *k = (struct ms_core_codec){
        .at = at + HEAD_SIZE, .end = at + len - CHECK_SIZE, .version = at[1]};
    return 0;
}

/* ---- numbers ----------------------------------------------------------------------- */

static void write_u64(struct ms_core_codec *k, uint64_t v)
{
    uint8_t digits[DIGITS_MAX];
    size_t n = 0;

    for (; v >= 0x80; v >>= 7)
        digits[n++] = (uint8_t)(v | 0x80);
    digits[n++] = (uint8_t)v;
    write_bytes(k, digits, n);
}

static uint64_t read_u64(struct ms_core_codec *k)
{
    uint64_t v = 0;

    for (unsigned shift = 0; k->rc == 0 && k->at < k->end && shift < 64; shift += 7) {
        uint8_t digit = *k->at++;

        if (shift == 63 && digit > 1)
            break;
        v |= (uint64_t)(digit & 0x7F) << shift;
        if (digit < 0x80) {
            if (digit == 0 && shift > 0)
                break;
            return v;
        }
    }
    fail(k, -EBADMSG);
    return 0;
}

void ms_core_codec_u64(struct ms_core_codec *k, uint64_t *v, uint64_t max)
{
    uint64_t read;

    if (!ms_core_codec_is_reading(k)) {
        write_u64(k, *v);
        return;
    }
    read = read_u64(k);
    if (read > max)
        fail(k, -EBADMSG);
    *v = k->rc == 0 ? read : 0;
}

void ms_core_codec_u32(struct ms_core_codec *k, uint32_t *v, uint32_t max)
{
    uint64_t wide = *v;

    ms_core_codec_u64(k, &wide, max);
    *v = (uint32_t)wide;
}

void ms_core_codec_u16(struct ms_core_codec *k, uint16_t *v)
{
    uint64_t wide = *v;

    ms_core_codec_u64(k, &wide, UINT16_MAX);
    *v = (uint16_t)wide;
}

void ms_core_codec_u8(struct ms_core_codec *k, uint8_t *v, uint8_t max)
{
    uint64_t wide = *v;

    ms_core_codec_u64(k, &wide, max);
    *v = (uint8_t)wide;
}

void ms_core_codec_bool(struct ms_core_codec *k, bool *v)
{
    uint64_t wide = *v;

    ms_core_codec_u64(k, &wide, 1);
    *v = wide != 0;
}

void ms_core_codec_i64(struct ms_core_codec *k, int64_t *v)
{
    uint64_t wide = (uint64_t)*v << 1 ^ (*v < 0 ? UINT64_MAX : 0);

    ms_core_codec_u64(k, &wide, UINT64_MAX);
    *v = (int64_t)(wide >> 1 ^ (wide & 1 ? UINT64_MAX : 0));
}

void ms_core_codec_i32(struct ms_core_codec *k, int32_t *v)
{
    int64_t wide = *v;

    ms_core_codec_i64(k, &wide);
    if (wide < INT32_MIN || wide > INT32_MAX) {
        fail(k, -EBADMSG);
        wide = 0;
    }
    *v = (int32_t)wide;
}

void ms_core_codec_budget(struct ms_core_codec *k, uint16_t *budget)
{
    for (int i = 0; i < MS_JOB_BUDGETS; i++)
        ms_core_codec_u16(k, &budget[i]);
}

void ms_core_codec_text(struct ms_core_codec *k, char *text, size_t room)
{
    uint64_t len = ms_core_codec_is_reading(k) ? 0 : strnlen(text, room - 1);

    ms_core_codec_u64(k, &len, room - 1);
    if (!ms_core_codec_is_reading(k)) {
        write_bytes(k, text, len);
        return;
    }
    if (len > (uint64_t)(k->end - k->at) || (len && memchr(k->at, 0, len)))
        fail(k, -EBADMSG);
    if (k->rc < 0)
        len = 0;
    memcpy(text, k->at, len);
    memset(text + len, 0, room - len);
    k->at += len;
}

/* ---- specs ------------------------------------------------------------------------- */

static void role_spec(struct ms_core_codec *k, struct ms_job_role_spec *r)
{
    ms_core_codec_text(k, r->name, sizeof r->name);
    ms_core_codec_u32(k, &r->count, UINT32_MAX);
    ms_core_codec_u32(k, &r->min, UINT32_MAX);
    ms_core_codec_u32(k, &r->max, UINT32_MAX);
    ms_core_codec_u32(k, &r->unit, UINT32_MAX);
    ms_core_codec_u8(k, &r->restart, UINT8_MAX);
    ms_core_codec_u8(k, &r->on_hang, UINT8_MAX);
    ms_core_codec_bool(k, &r->critical);
    ms_core_codec_budget(k, r->budget);
    ms_core_codec_i64(k, &r->hang_ns);
    ms_core_codec_u32(k, &r->memory_raise, UINT32_MAX);
    ms_core_codec_u32(k, &r->memory_raise_max, UINT32_MAX);
}

void ms_core_codec_spec(struct ms_core_codec *k, struct ms_job_spec *s)
{
    ms_core_codec_text(k, s->name, sizeof s->name);
    ms_core_codec_u32(k, &s->role_count, MS_JOB_CORE_ROLES_MAX);
    ms_core_codec_bool(k, &s->has_driver);
    ms_core_codec_budget(k, s->driver_budget);
    ms_core_codec_bool(k, &s->check_nodes);
    ms_core_codec_u16(k, &s->role_restarts_max);
    ms_core_codec_u16(k, &s->job_restarts_max);
    ms_core_codec_u16(k, &s->same_error_max);
    ms_core_codec_u16(k, &s->node_strikes_max);
    ms_core_codec_i64(k, &s->stable_ns);
    ms_core_codec_i64(k, &s->backoff_ns);
    ms_core_codec_i64(k, &s->backoff_max_ns);
    ms_core_codec_i64(k, &s->pending_timeout_ns);
    ms_core_codec_i64(k, &s->unknown_ns);
    if (k->version >= 3)
        ms_core_codec_i64(k, &s->driver_hang_ns);
}

void ms_core_codec_role_specs(struct ms_core_codec *k, struct ms_job_spec *s)
{
    if (ms_core_codec_is_reading(k)) {
        s->roles = k->rc == 0 ? calloc(s->role_count + 1, sizeof *s->roles) : NULL;
        if (!s->roles) {
            fail(k, -ENOMEM);
            return;
        }
    }
    for (uint32_t i = 0; i < s->role_count && k->rc == 0; i++)
        role_spec(k, &s->roles[i]);
}
