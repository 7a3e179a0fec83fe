/* put.c - PUT /data: a tensor that comes as JSON, decoded a turn at a time
 *
 * The body is a short object but for its "data", up to a gigabyte of base64. That string is
 * cut out before the rest is parsed, and decoded within the memory of the body: TURN_SIZE of
 * it, then others have their turn, so that health is answered meanwhile. The memory is then
 * the shard's.
 */
#include "base/cleanup.h"
#include "base/clock.h"
#include "io/base64.h"
#include "io/json.h"
#include "worker/http/http_impl.h"
#include "worker/native/json.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum {
    PIECE_SIZE = 64 << 10, /* letters that are decoded at once, as whole float32 */
    PIECE_BYTES = PIECE_SIZE / 4 * 3,
    TURN_SIZE = 1 << 20, /* letters */
    REST_MAX = 64 << 10  /* what the body has before its data, and in all beside it */
};

struct http_put {
    struct http_wait wait;
    struct ms_list link; /* http->puts */
    struct ms_worker_http *http;
    char *id;
    json_t *json; /* the body; "data" is empty */
    struct ms_json_tensor tensor;
    uint8_t *body;
    size_t at, end; /* the letters in it that were not decoded yet, */
    size_t size,
        len; /* their bytes so far; of these, what is kept, from its begin on */
};

static void put_free(struct http_put *put)
{
    ms_list_remove(&put->link);
    json_decref(put->json);
    free(put->id);
    free(put->body);
    free(put);
}

static void on_gone(struct http_wait *w)
{
    put_free((struct http_put *)w);
}

/* ---- the body without its data ----------------------------------------------------- */

static size_t skip_space(const char *s, size_t len, size_t at)
{
    while (at < len && strchr(" \t\r\n", s[at]) && s[at])
        at++;
    return at;
}

/* The quote that ends the string that begins at `at`; not less than len: there is none. */
static size_t string_end(const char *s, size_t len, size_t at)
{
    for (at++; at < len && s[at] != '"'; at++)
        if (s[at] == '\\')
            at++;
    return at;
}

/* Where the string begins that is the value of the key that ends at `end`; 0: it is no key,
 * or its value is no string. */
static size_t string_after(const char *s, size_t len, size_t end)
{
    size_t at = skip_space(s, len, end + 1);

    if (at >= len || s[at] != ':')
        return 0;
    at = skip_space(s, len, at + 1);
    return at < len && s[at] == '"' ? at + 1 : 0;
}

/* The same of the outermost object's "data". Whether all this is JSON is seen later, when
 * what stands around it is parsed. */
static size_t find_data(const char *s, size_t len)
{
    unsigned depth = 0;
    size_t begin, end;

    for (size_t at = 0; at < len; at++) {
        if (s[at] == '{' || s[at] == '[')
            depth++;
        else if (s[at] == '}' || s[at] == ']')
            depth--;
        if (s[at] != '"')
            continue;
        end = string_end(s, len, at);
        if (depth == 1 && end < len && end - at == 5 &&
            memcmp(s + at, "\"data\"", 5) == 0 && (begin = string_after(s, len, end)))
            return begin;
        at = end;
    }
    return 0;
}

/* The body with an empty "data", and where that is. */
static json_t *
parse(struct http_put *put, const char *body, size_t len, struct ms_error *err)
{
    MS_CLEANUP(ms_buf_finish) struct ms_buf rest = {0};
    size_t at = find_data(body, len < REST_MAX ? len : REST_MAX);
    const char *quote = at ? memchr(body + at, '"', len - at) : NULL;
    size_t end = quote ? (size_t)(quote - body) : at;

    if (at + (len - end) > REST_MAX) {
        ms_error_set(err, -EINVAL, "the body has too much beside its 'data'");
        return NULL;
    }
    if (ms_buf_append(&rest, body, at) < 0 ||
        ms_buf_append(&rest, body + end, len - end) < 0) {
        ms_error_set(err, -ENOMEM, "out of memory");
        return NULL;
    }
    put->at = at;
    put->end = end;
    return ms_http_parse(rest.data, rest.len, 0, err);
}

static int put_begin(struct http_put *put,
                     const struct ms_http_request *r,
                     const char *id,
                     struct ms_error *err)
{
    const char *type;

    put->id = strdup(id);
    if (!put->id)
        return ms_error_set(err, -ENOMEM, "out of memory");
    put->json = parse(put, (const char *)r->body, r->body_len, err);
    if (!put->json)
        return err->code;
    type = json_string_value(json_object_get(put->json, "type"));
    if (!type || (strcmp(type, "tensor") != 0 && strcmp(type, "ndarray") != 0) ||
        !put->at)
        return ms_error_set(err, -EINVAL, "the body is no tensor and no ndarray");
    return ms_json_tensor_read(put->json, *type == 't', &put->tensor, err);
}

/* ---- its data ---------------------------------------------------------------------- */

/* The next letters, with a NUL. JSON may write "/" as "\/". */
static size_t next_letters(struct http_put *put, char out[PIECE_SIZE + 1])
{
    const char *from = (const char *)put->body + put->at;
    size_t left = put->end - put->at, most = left < PIECE_SIZE ? left : PIECE_SIZE;
    size_t n = 0, at = 0;

    if (!memchr(from, '\\', most)) {
        memcpy(out, from, most);
        n = at = most;
    }
    while (n < PIECE_SIZE && at < left) {
        if (from[at] == '\\' && at + 1 < left && from[at + 1] == '/')
            at++;
        out[n++] = from[at++];
    }
    out[n] = '\0';
    put->at += at;
    return n;
}

/* OpenSSL does not promise to decode in place. */
static int decode_piece(struct http_put *put, struct ms_error *err)
{
    char letters[PIECE_SIZE + 1];
    uint8_t bytes[PIECE_BYTES];
    size_t n = next_letters(put, letters), size = 0;

    if (ms_base64_decode_to(letters, n, bytes, &size) < 0 ||
        (put->at < put->end && size < PIECE_BYTES))
        return ms_error_set(err, -EINVAL, "'data' cannot be decoded: it is not base64");
    put->size += size;
    if (put->tensor.dtype == MUSTER_BFLOAT16) {
        ms_bfloat16_narrow(bytes, size / sizeof(uint32_t));
        size /= 2;
    }
    memcpy(put->body + put->len, bytes, size);
    put->len += size;
    return 0;
}

static int keep(struct http_put *put, struct ms_error *err)
{
    bool is_torch =
        strcmp(json_string_value(json_object_get(put->json, "type")), "tensor") == 0;
    const char *named = json_string_value(json_object_get(put->json, "dtype"));
    char dtype[MS_NAME_MAX];
    MS_CLEANUP(ms_cleanup_free)
    char *shape = json_dumps(json_object_get(put->json, "shape"), JSON_COMPACT);
    uint8_t *less;
    struct ms_http_tensor with = {.id = put->id,
                                  .type = is_torch ? (char[]){"tensor"}
                                                   : (char[]){"ndarray"},
                                  .dtype = dtype,
                                  .shape = shape,
                                  .len = put->len};

    if (put->size != put->tensor.sent_size)
        return ms_error_set(err,
                            -EINVAL,
                            "'data' has %zu bytes, which is not what shape and dtype "
                            "say",
                            put->size);
    less = realloc(put->body, put->len ? put->len : 1);
    with.bytes = with.memory = less ? less : put->body;
    put->body = NULL;
    if (is_torch)
        snprintf(dtype, sizeof dtype, "torch.%s", muster_dtype_name(put->tensor.dtype));
    else
        snprintf(dtype, sizeof dtype, "%s", named);
    if (shape)
        return ms_worker_http_keep(put->http, &with, err);
    free(with.memory);
    return ms_error_set(err, -ENOMEM, "out of memory");
}

/* ---- turns ------------------------------------------------------------------------- */

static void reply(struct http_put *put, int rc, const struct ms_error *err)
{
    if (rc < 0)
        ms_http_data_fail(put->wait.conn, 500, err->text);
    else
        ms_http_reply_json(
            put->wait.conn,
            200,
            MS_JSON({"status", json_string("ok")}, {"shard_id", json_string(put->id)}));
    put_free(put);
}

/* Answered at the end; else its next turn will come. */
static void put_go_on(struct http_put *put)
{
    size_t until = put->at + TURN_SIZE;
    struct ms_error err = {0};
    int rc = 0;

    while (rc == 0 && put->at < put->end && put->at < until)
        rc = decode_piece(put, &err);
    ms_list_remove(&put->link);
    if (rc == 0 && put->at < put->end) {
        ms_list_add_tail(&put->http->puts, &put->link);
        ms_timer_set(&put->http->puts_turn, 0);
        return;
    }
    if (rc == 0)
        rc = keep(put, &err);
    reply(put, rc, &err);
}

static void on_turn(void *arg)
{
    struct ms_worker_http *h = arg;

    if (ms_list_is_empty(&h->puts))
        return;
    ms_timer_set(&h->puts_turn, 0);
    put_go_on(ms_list_first(&h->puts, struct http_put, link));
}

int ms_http_puts_init(struct ms_worker_http *h)
{
    return ms_timer_init(&h->puts_turn, h->o.loop, on_turn, h);
}

void ms_http_put(struct ms_worker_http *h,
                 struct ms_http_conn *c,
                 const struct ms_http_request *r,
                 const char *id)
{
    struct http_put *put = calloc(1, sizeof *put);
    struct ms_error err = {0};
    int rc;

    if (!put) {
        ms_http_data_fail(c, 503, "out of memory");
        return;
    }
    ms_list_init(&put->link);
    put->http = h;
    put->wait.on_gone = on_gone;
    ms_http_wait_begin(&put->wait, c);
    rc = put_begin(put, r, id, &err);
    if (rc < 0) {
        reply(put, rc, &err);
        return;
    }
    put->body = ms_http_conn_take_body(c);
    put_go_on(put);
}

/* bfloat16 comes as float32, twice as long as it is kept. */
uint64_t ms_http_put_max(struct ms_worker_http *h, const char *id)
{
    return ms_http_tensors_room(&h->shards, id) * 2 / 3 * 4 + REST_MAX;
}
