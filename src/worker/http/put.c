/* put.c - PUT /data: a tensor that comes as JSON, decoded into the node's store as it arrives
 *
 * The body is a short object but for its "data", any number of letters of base64. That string
 * is cut out while it comes and decoded into pieces (store.h); what stands around it is kept and
 * parsed at the end. While a piece is asked for the connection is held.
 */
#include "base/cleanup.h"
#include "base/json.h"
#include "io/base64.h"
#include "worker/http/http_impl.h"
#include "worker/native/json.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum {
    LETTERS = MS_HTTP_PIECE_UNIT / 3 * 4, /* that are decoded at once */
    REST_MAX = 64 << 10                   /* what the body has beside its data */
};

/* Looks for the string that is the value of the outermost object's "data". Whether all this
 * is JSON is seen later, when what stands around it is parsed. */
struct scan {
    unsigned depth;
    size_t string; /* letters of the string so far, */
    bool in_string, is_escaped;
    bool is_data, is_key; /* which is "data", and was followed by a colon */
};

struct http_put {
    struct http_wait wait;
    struct ms_worker_http *http;
    char *id;
    uint64_t left; /* of the body, as announced */
    struct scan scan;
    enum { BEFORE, DATA, AFTER } where;
    struct ms_buf rest; /* the body, with an empty "data" */

    char letters[LETTERS + 1]; /* that were not decoded yet */
    size_t letter_count;
    bool is_escaped; /* behind a backslash */
    bool is_ended;   /* the last ones were not a whole number of bytes */

    uint64_t size;                /* of what was decoded: */
    struct ms_buf kept;           /* that is not in the store (yet), */
    struct ms_held *to;           /* in a piece that is being filled, */
    uint64_t filled;              /* so far, */
    struct ms_http_pieces pieces; /* and in those that are full */

    struct ms_http_ask *ask;
    struct ms_error err; /* the first thing that was wrong */
    bool is_whole;       /* all has come, and is to be answered */
    bool is_narrow;      /* what is in pieces is bfloat16 already */
};

static void drop_piece(struct http_put *put)
{
    if (!put->to)
        return;
    ms_held_unref(put->to);
    put->to = NULL;
    ms_http_store_leave(put->http->store);
}

static void put_free(struct http_put *put)
{
    ms_http_ask_drop(put->ask);
    drop_piece(put);
    ms_http_pieces_finish(&put->pieces);
    ms_buf_finish(&put->kept);
    ms_buf_finish(&put->rest);
    free(put->id);
    free(put);
}

static void on_gone(struct http_wait *w)
{
    put_free((struct http_put *)w);
}

/* Nothing of it is kept; the rest of the body is read, so that the answer is heard. */
static void fail(struct http_put *put, int code, const char *why)
{
    if (put->err.code)
        return;
    ms_error_set(&put->err, code, "%s", why);
    drop_piece(put);
    ms_http_pieces_finish(&put->pieces);
    ms_buf_finish(&put->kept);
}

/* ---- the body without its data ----------------------------------------------------- */

static void scan_string(struct scan *s, char c)
{
    static const char data[] = "data";

    if (s->is_escaped) {
        s->is_escaped = s->is_data = false;
    } else if (c == '\\') {
        s->is_escaped = true;
    } else if (c == '"') {
        s->in_string = false;
        s->is_data = s->is_data && s->string == strlen(data);
        return;
    }
    s->is_data = s->is_data && s->string < strlen(data) && c == data[s->string];
    s->string++;
}

/* True: the data begins behind this. */
static bool scan_next(struct scan *s, char c)
{
    if (s->in_string) {
        scan_string(s, c);
        return false;
    }
    if (c && strchr(" \t\r\n", c))
        return false;
    if (c == '"' && s->is_key)
        return true;
    s->is_key = c == ':' && s->is_data;
    s->is_data = false;
    if (c == '{' || c == '[')
        s->depth++;
    else if (c == '}' || c == ']')
        s->depth--;
    if (c == '"') {
        s->in_string = true;
        s->is_data = s->depth == 1;
        s->string = 0;
    }
    return false;
}

static void keep_rest(struct http_put *put, const uint8_t *data, size_t len)
{
    if (put->rest.len + len > REST_MAX)
        fail(put, -EINVAL, "the body has too much beside its 'data'");
    else if (ms_buf_append(&put->rest, data, len) < 0)
        fail(put, -ENOMEM, "out of memory");
}

/* How much was used. */
static size_t take_before(struct http_put *put, const uint8_t *data, size_t len)
{
    size_t n = 0;

    while (n < len && put->where == BEFORE)
        if (scan_next(&put->scan, (char)data[n++]))
            put->where = DATA;
    keep_rest(put, data, n);
    return n;
}

/* ---- its data, in the store --------------------------------------------------------- */

static void on_piece(void *arg, struct ms_http_ask *a);

/* A piece as large as what has come already, within limits, and what will come. */
static uint64_t piece_size(const struct http_put *put)
{
    uint64_t wanted = put->size, units;
    uint64_t coming = put->kept.len + LETTERS + put->left / 4 * 3;

    if (wanted < MS_HTTP_PIECE_MIN)
        wanted = MS_HTTP_PIECE_MIN;
    if (wanted > MS_HTTP_PIECE_MAX)
        wanted = MS_HTTP_PIECE_MAX;
    if (wanted > coming)
        wanted = coming;
    units = (wanted + MS_HTTP_PIECE_UNIT - 1) / MS_HTTP_PIECE_UNIT;
    return (units ? units : 1) * MS_HTTP_PIECE_UNIT;
}

static void ask_piece(struct http_put *put)
{
    put->ask = ms_http_ask_make(put->http->store, piece_size(put), on_piece, put);
    if (!put->ask)
        fail(put, -ENOMEM, "out of memory");
    else if (!put->is_whole)
        ms_http_conn_hold(put->wait.conn);
}

/* The piece that is being filled has all its bytes. */
static void end_piece(struct http_put *put)
{
    int rc;

    if (!put->to)
        return;
    rc = ms_http_pieces_add(&put->pieces, put->to, 0, put->filled);
    put->to = NULL;
    put->filled = 0;
    ms_http_store_leave(put->http->store);
    if (rc < 0)
        fail(put, -ENOMEM, "out of memory");
}

/* `len` more bytes were written to it. */
static void fill(struct http_put *put, uint64_t len)
{
    put->filled += len;
    if (put->filled == put->to->len)
        end_piece(put);
}

/* What was kept goes to the store; at the end unless it may stay here. */
static void flush_kept(struct http_put *put)
{
    struct ms_buf *kept = &put->kept;

    while (kept->len && put->to) {
        uint64_t room = put->to->len - put->filled;
        size_t n = kept->len < room ? kept->len : (size_t)room;

        memcpy(put->to->write + put->filled, kept->data, n);
        ms_buf_consume(kept, n);
        fill(put, n);
    }
    if (!kept->len) {
        ms_buf_finish(kept);
        return;
    }
    if (!put->ask && !put->err.code &&
        (put->pieces.count || kept->len > MS_HTTP_TENSOR_SMALL || put->is_whole))
        ask_piece(put);
}

static const char not_base64[] = "'data' cannot be decoded: it is not base64";

/* Decode the letters, into the piece if there is room. */
static void decode(struct http_put *put)
{
    bool is_straight = put->to && !put->kept.len; /* pieces have room for whole units */
    size_t size = 0;
    uint8_t *to;

    if (!is_straight && ms_buf_reserve(&put->kept, MS_HTTP_PIECE_UNIT) < 0) {
        fail(put, -ENOMEM, "out of memory");
        return;
    }
    to = is_straight ? put->to->write + put->filled : put->kept.data + put->kept.len;
    put->letters[put->letter_count] = '\0';
    if ((put->is_ended && put->letter_count) ||
        ms_base64_decode_to(put->letters, put->letter_count, to, &size) < 0) {
        fail(put, -EINVAL, not_base64);
        return;
    }
    put->is_ended = size < MS_HTTP_PIECE_UNIT;
    put->letter_count = 0;
    put->size += size;
    if (is_straight) {
        fill(put, size);
    } else {
        put->kept.len += size;
        flush_kept(put);
    }
}

/* The next letters; JSON may write "/" as "\/". How much was used. */
static size_t take_letters(struct http_put *put, const uint8_t *data, size_t len)
{
    size_t room = LETTERS - put->letter_count, n = len < room ? len : room, run;
    const uint8_t *quote, *escape;

    if (put->is_escaped && *data != '/') {
        fail(put, -EINVAL, not_base64);
        return len;
    }
    put->is_escaped = false;
    quote = memchr(data, '"', n);
    run = quote ? (size_t)(quote - data) : n;
    escape = memchr(data, '\\', run);
    if (escape)
        run = (size_t)(escape - data);
    memcpy(put->letters + put->letter_count, data, run);
    put->letter_count += run;
    if (put->letter_count == LETTERS || (quote && !escape))
        decode(put);
    if (escape) {
        put->is_escaped = true;
        return run + 1;
    }
    if (quote)
        put->where = AFTER; /* it ends the text around it too */
    return run;
}

/* ---- the end ------------------------------------------------------------------------ */

static void reply(struct http_put *put)
{
    int code = put->err.code;
    bool is_full = code == -ENOSPC || code == -ENOENT || code == -ECONNREFUSED;

    if (code)
        ms_http_data_fail(put->wait.conn,
                          code == -EINVAL ? 500
                          : is_full       ? 507
                                          : 503,
                          put->err.text);
    else
        ms_http_reply_json(
            put->wait.conn,
            200,
            MS_JSON({"status", json_string("ok")}, {"shard_id", json_string(put->id)}));
    put_free(put);
}

/* What the body says beside its data. NULL: it is wrong. */
static json_t *read_rest(struct http_put *put, struct ms_json_tensor *out)
{
    struct ms_error err = {0};
    json_t *json = ms_http_parse(put->rest.data, put->rest.len, 0, &err);
    const char *type = json_string_value(json_object_get(json, "type"));

    if (json && (!type || put->where != AFTER ||
                 (strcmp(type, "tensor") != 0 && strcmp(type, "ndarray") != 0)))
        ms_error_set(&err, -EINVAL, "the body is no tensor and no ndarray");
    else if (json && ms_json_tensor_read(json, *type == 't', out, &err) == 0 &&
             put->size != out->sent_size)
        ms_error_set(&err,
                     -EINVAL,
                     "'data' has %llu bytes, which is not what shape and dtype say",
                     (unsigned long long)put->size);
    if (!err.code)
        return json;
    fail(put, err.code, err.text);
    json_decref(json);
    return NULL;
}

/* As it is known from now on; its bytes are taken. */
static int keep_as(struct http_put *put,
                   const json_t *json,
                   const struct ms_json_tensor *tensor,
                   const struct ms_http_tensor *bytes,
                   struct ms_error *err)
{
    struct ms_http_tensor with = *bytes;
    const char *type = json_string_value(json_object_get(json, "type"));
    char kind[MS_NAME_MAX], dtype[MS_NAME_MAX];
    MS_CLEANUP(ms_cleanup_free)
    char *shape = json_dumps(json_object_get(json, "shape"), JSON_COMPACT);

    snprintf(kind, sizeof kind, "%s", type);
    if (*type == 't')
        snprintf(dtype, sizeof dtype, "torch.%s", muster_dtype_name(tensor->dtype));
    else
        snprintf(dtype,
                 sizeof dtype,
                 "%s",
                 json_string_value(json_object_get(json, "dtype")));
    with.id = put->id;
    with.type = kind;
    with.dtype = dtype;
    with.shape = shape;
    if (shape)
        return ms_worker_http_keep(put->http, &with, err);
    ms_http_pieces_finish(&with.pieces);
    free(with.memory);
    return ms_error_set(err, -ENOMEM, "out of memory");
}

static void
keep(struct http_put *put, const json_t *json, const struct ms_json_tensor *t)
{
    bool is_here = !put->pieces.count;
    struct ms_http_tensor with = {.len = put->kept.len};
    struct ms_error err = {0};

    if (is_here && !(with.memory = ms_bytes_copy(put->kept.data, put->kept.len))) {
        fail(put, -ENOMEM, "out of memory");
        return;
    }
    with.pieces = put->pieces;
    put->pieces = (struct ms_http_pieces){0};
    for (size_t i = 0; i < with.pieces.count; i++)
        with.len += with.pieces.all[i].len;
    if (keep_as(put, json, t, &with, &err) < 0)
        fail(put, err.code, err.text);
}

static void finish(struct http_put *put);

static void on_narrow(void *arg, struct ms_http_ask *a)
{
    struct http_put *put = arg;

    put->ask = NULL;
    put->pieces = a->pieces;
    a->pieces = (struct ms_http_pieces){0};
    if (a->err.code)
        fail(put, a->err.code, a->err.text);
    put->is_narrow = true;
    finish(put);
}

/* bfloat16, which came as float32. False: it is under way, or has failed. */
static bool narrow(struct http_put *put)
{
    if (!put->pieces.count) {
        ms_bfloat16_narrow(
            put->kept.data, put->kept.len / sizeof(uint32_t), put->kept.data);
        put->kept.len /= 2;
        return true;
    }
    put->ask = ms_http_ask_narrow(put->http->store, &put->pieces, on_narrow, put);
    if (!put->ask)
        fail(put, -ENOMEM, "out of memory");
    return false;
}

/* All is decoded, and where it shall be. */
static void settle(struct http_put *put)
{
    struct ms_json_tensor tensor = {0};
    json_t *json = read_rest(put, &tensor);

    if (json && (tensor.dtype != MUSTER_BFLOAT16 || put->is_narrow || narrow(put)))
        keep(put, json, &tensor);
    json_decref(json);
}

/* May what was kept stay in this process? */
static bool may_stay(const struct http_put *put)
{
    return !put->pieces.count && !put->to && put->kept.len <= MS_HTTP_TENSOR_SMALL &&
           put->kept.len <= ms_http_tensors_room(&put->http->shards, put->id);
}

/* The body is whole: answered now, or when the store has answered. */
static void finish(struct http_put *put)
{
    if (!put->err.code && !put->ask && !may_stay(put))
        flush_kept(put);
    if (!put->err.code && !put->ask)
        end_piece(put);
    if (!put->err.code && !put->ask)
        settle(put);
    if (put->err.code || !put->ask)
        reply(put);
}

static void on_piece(void *arg, struct ms_http_ask *a)
{
    struct http_put *put = arg;

    put->ask = NULL;
    if (a->err.code)
        fail(put, a->err.code, a->err.text);
    if (!put->err.code) /* nor was what came meanwhile wrong */
        put->to = MS_TAKE(a->held);
    flush_kept(put);
    if (put->is_whole)
        finish(put);
    else if (!put->ask)
        ms_http_conn_go_on(put->wait.conn);
}

/* ---- what comes --------------------------------------------------------------------- */

void ms_http_put_part(struct http_wait *w, const uint8_t *data, size_t len)
{
    struct http_put *put = (struct http_put *)w;

    put->left -= len < put->left ? len : put->left;
    for (size_t at = 0; at < len && !put->err.code;) {
        if (put->where == BEFORE) {
            at += take_before(put, data + at, len - at);
        } else if (put->where == DATA) {
            at += take_letters(put, data + at, len - at);
        } else {
            keep_rest(put, data + at, len - at);
            at = len;
        }
    }
}

void ms_http_put_whole(struct http_wait *w)
{
    struct http_put *put = (struct http_put *)w;

    put->is_whole = true;
    finish(put);
}

void ms_http_put_begin(struct ms_worker_http *h,
                       struct ms_http_conn *c,
                       const struct ms_http_request *r,
                       const char *id)
{
    struct http_put *put = calloc(1, sizeof *put);

    if (!put)
        return;
    put->http = h;
    put->wait.on_gone = on_gone;
    put->left = r->content_length ? r->content_length : UINT64_MAX;
    put->id = strdup(id);
    if (put->id)
        ms_http_wait_begin(&put->wait, c);
    else
        put_free(put);
}
