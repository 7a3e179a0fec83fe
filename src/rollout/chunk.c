/* chunk.c - what engines send: tokens, how likely they were, and why they end */
#include "rollout/rollout_impl.h"

#include "base/buf.h"
#include "plain/plain.h"

#include <errno.h>
#include <math.h>
#include <string.h>

/* The parts of one chunk, pointing into its bytes. */
struct chunk {
    struct ms_plain_item tokens, logprobs;
    bool has_tokens, has_logprobs, has_version;
    int64_t version;
    struct ms_plain_item reason;
    bool has_reason;
};

static int bad(struct ms_error *err, const char *what)
{
    return ms_error_set(err, -EBADMSG, "generate gave %s", what);
}

static bool is_key(const struct ms_plain_key *key, const char *name)
{
    return key->len == strlen(name) && memcmp(key->at, name, key->len) == 0;
}

static int read_entry(struct chunk *c,
                      const struct ms_plain_key *key,
                      struct ms_plain_cursor value,
                      struct ms_error *err)
{
    struct ms_plain_item item;

    if (ms_plain_read(value, &item) < 0)
        return bad(err, "malformed data");
    if (item.kind == MUSTER_NULL)
        return 0;
    if (is_key(key, "tokens")) {
        c->tokens = item;
        c->has_tokens = true;
    } else if (is_key(key, "logprobs")) {
        c->logprobs = item;
        c->has_logprobs = true;
    } else if (is_key(key, "version")) {
        if (item.kind != MUSTER_INT || item.integer < 0 || item.integer > UINT32_MAX)
            return bad(err, "a version that is not a number from 0 on");
        c->version = item.integer;
        c->has_version = true;
    } else if (is_key(key, "finish_reason")) {
        if (item.kind != MUSTER_TEXT)
            return bad(err, "a finish_reason that is not a text");
        c->reason = item;
        c->has_reason = true;
    }
    return 0;
}

static int
read_chunk(struct chunk *c, const uint8_t *body, size_t len, struct ms_error *err)
{
    struct ms_plain_item root;
    struct ms_plain_cursor value;
    struct ms_plain_key key;
    int rc;

    if (ms_plain_read((struct ms_plain_cursor){body, body + len}, &root) < 0)
        return bad(err, "malformed data");
    if (root.kind == MUSTER_LIST || root.kind == MUSTER_TENSOR) { /* only tokens */
        c->tokens = root;
        c->has_tokens = true;
        return 0;
    }
    if (root.kind != MUSTER_MAP)
        return bad(err, "neither a map nor a list of tokens");
    while ((rc = ms_plain_next_entry(&root.inside, false, &key, &value)) > 0)
        if ((rc = read_entry(c, &key, value, err)) < 0)
            return rc;
    return rc < 0 ? bad(err, "malformed data") : 0;
}

/* ---- rows of numbers ----------------------------------------------------------------- */

static int count_of(const struct ms_plain_item *row, size_t *count)
{
    struct ms_plain_cursor list = row->inside, value;
    int rc;

    *count = 0;
    if (row->kind == MUSTER_TENSOR && row->tensor.ndim == 1) {
        *count = (size_t)row->tensor.shape[0];
        return 0;
    }
    if (row->kind != MUSTER_LIST)
        return -EBADMSG;
    while ((rc = ms_plain_next_item(&list, &value)) > 0)
        ++*count;
    return rc;
}

/* Number `i` of a tensor; false: not of such a type. */
static bool tensor_at(const struct ms_plain_item *row, size_t i, double *out)
{
    union {
        int32_t i32;
        int64_t i64;
        uint32_t u32;
        float f32;
        double f64;
    } n;

    switch (row->tensor.dtype) {
    case MUSTER_INT32:
        memcpy(&n.i32, row->tensor.at + i * sizeof n.i32, sizeof n.i32);
        *out = n.i32;
        return true;
    case MUSTER_UINT32:
        memcpy(&n.u32, row->tensor.at + i * sizeof n.u32, sizeof n.u32);
        *out = n.u32;
        return true;
    case MUSTER_INT64:
        memcpy(&n.i64, row->tensor.at + i * sizeof n.i64, sizeof n.i64);
        *out = (double)n.i64;
        return true;
    case MUSTER_FLOAT32:
        memcpy(&n.f32, row->tensor.at + i * sizeof n.f32, sizeof n.f32);
        *out = n.f32;
        return true;
    case MUSTER_FLOAT64:
        memcpy(&n.f64, row->tensor.at + i * sizeof n.f64, sizeof n.f64);
        *out = n.f64;
        return true;
    default:
        return false;
    }
}

static bool list_next(struct ms_plain_cursor *list, double *out)
{
    struct ms_plain_cursor value;
    struct ms_plain_item item;

    if (ms_plain_next_item(list, &value) <= 0 || ms_plain_read(value, &item) < 0)
        return false;
    if (item.kind == MUSTER_INT)
        *out = (double)item.integer;
    else if (item.kind == MUSTER_FLOAT)
        *out = item.real;
    else if (item.kind == MUSTER_NULL)
        *out = NAN;
    else
        return false;
    return true;
}

static bool row_next(const struct ms_plain_item *row,
                     struct ms_plain_cursor *list,
                     size_t i,
                     double *out)
{
    return row->kind == MUSTER_TENSOR ? tensor_at(row, i, out) : list_next(list, out);
}

/* ---- into the sample ------------------------------------------------------------------ */

static int reserve(struct ms_rollout_sample *s, size_t more, bool logprobs)
{
    size_t room = s->room, before = s->room;

    if (ms_array_reserve(&s->tokens, &room, s->count + more, sizeof *s->tokens) < 0)
        return -ENOMEM;
    if (s->logprobs || logprobs) {
        size_t own = s->logprobs ? before : 0;
        bool is_new = !s->logprobs;

        if (ms_array_reserve(&s->logprobs, &own, room, sizeof *s->logprobs) < 0)
            return -ENOMEM;
        for (size_t i = 0; is_new && i < s->count; i++)
            s->logprobs[i] = NAN;
    }
    s->room = room;
    return ms_array_reserve(&s->runs, &s->run_room, s->run_count + 1, sizeof *s->runs);
}

static void add_version(struct ms_rollout_sample *s, uint32_t version, size_t count)
{
    struct ms_rollout_run *last = s->run_count ? &s->runs[s->run_count - 1] : NULL;

    if (last && last->version == version)
        last->tokens += (uint32_t)count;
    else if (count > 0)
        s->runs[s->run_count++] =
            (struct ms_rollout_run){.version = version, .tokens = (uint32_t)count};
}

static int add_tokens(struct ms_rollout_sample *s,
                      const struct chunk *c,
                      size_t count,
                      struct ms_error *err)
{
    struct ms_plain_cursor tokens = c->tokens.inside, logprobs = c->logprobs.inside;

    for (size_t i = 0; i < count; i++) {
        double token, logprob = NAN;

        if (!row_next(&c->tokens, &tokens, i, &token) ||
            !(token >= INT32_MIN && token <= INT32_MAX) ||
            token != (double)(int32_t)token)
            return bad(err, "tokens that are not 32-bit integers");
        if (c->has_logprobs && !row_next(&c->logprobs, &logprobs, i, &logprob))
            return bad(err, "logprobs that are not numbers");
        s->tokens[s->count + i] = (int32_t)token;
        if (s->logprobs)
            s->logprobs[s->count + i] = (float)logprob;
    }
    return 0;
}

int ms_rollout_chunk_take(struct ms_rollout_sample *s,
                          const uint8_t *body,
                          size_t len,
                          uint32_t version,
                          uint32_t max,
                          struct ms_error *err)
{
    struct chunk c = {0};
    size_t count = 0, logprobs = 0;
    int rc = read_chunk(&c, body, len, err);

    if (rc < 0)
        return rc;
    if (c.has_tokens && count_of(&c.tokens, &count) < 0)
        return bad(err, "tokens that are neither a list nor a row");
    if (c.has_logprobs && (count_of(&c.logprobs, &logprobs) < 0 || logprobs != count))
        return bad(err, "logprobs that are not one for each token");
    if (s->count + count > max)
        count = max - s->count;
    if (reserve(s, count, c.has_logprobs) < 0)
        return ms_error_set(err, -ENOMEM, "no memory for tokens");
    rc = add_tokens(s, &c, count, err);
    if (rc < 0)
        return rc;
    s->count += count;
    add_version(s, c.has_version ? (uint32_t)c.version : version, count);
    if (c.has_reason)
        ms_text_copy(s->reason,
                     sizeof s->reason,
                     (const char *)c.reason.data.at,
                     c.reason.data.len);
    return 0;
}
