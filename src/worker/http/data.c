/* data.c - /data: tensors by HTTP, put, fetched and cleared as AReaL's clients do it
 *
 * Nothing here waits for the engine. A tensor becomes JSON while it is sent, from the store's
 * memory, so that an answer of any size needs little memory and health is answered meanwhile;
 * the connection is held while a piece of it comes back from a disk.
 */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/json.h"
#include "plain/plain.h"
#include "worker/http/http_impl.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

/* ---- out: JSON that is made while it is sent ------------------------------------- */

/* Multiples of 3 are base64 without padding, of 12 whole numbers of 4 bytes too. */
enum { ENCODE_SIZE = 48 << 10, ENCODE_UNIT = 12 };

enum part { BEFORE, DATA, AFTER };

/* An answer with the JSON of some shards, alone or as a list. */
struct shard_text {
    struct ms_worker_http *http;
    struct ms_http_conn *conn;
    bool is_list;
    size_t count;

    size_t at; /* the shard that is being sent, */
    enum part part;
    uint64_t part_at;        /* and where in this part of it */
    size_t piece;            /* of its data, */
    uint64_t piece_at;       /* where in them that begins, */
    struct ms_held *reading; /* and its bytes, */
    struct ms_http_ask *ask; /* which may have to come first, */
    bool is_lost;            /* or cannot be had */
    struct ms_http_tensor *all[];
};

static uint64_t sent_size(const struct ms_http_tensor *shard)
{
    return ms_http_tensor_is_widened(shard) ? 2 * shard->len : shard->len;
}

/* What stands before or behind the data of shard `i`. */
static size_t
print_part(const struct shard_text *t, size_t i, enum part part, char *out, size_t room)
{
    const struct ms_http_tensor *shard = t->all[i];
    const char *open = !t->is_list ? "" : i == 0 ? "[" : ",";
    const char *close = t->is_list && i + 1 == t->count ? "]" : "";
    int n;

    if (part == BEFORE)
        n = snprintf(out, room, "%s{\"type\":\"%s\",\"data\":\"", open, shard->type);
    else
        n = snprintf(out,
                     room,
                     "\",\"shape\":%s,\"dtype\":\"%s\"}%s",
                     shard->shape,
                     shard->dtype,
                     close);
    return (size_t)n;
}

static uint64_t text_size(const struct shard_text *t)
{
    uint64_t size = t->is_list && t->count == 0 ? 2 : 0;

    for (size_t i = 0; i < t->count; i++)
        size += print_part(t, i, BEFORE, NULL, 0) + print_part(t, i, AFTER, NULL, 0) +
                (sent_size(t->all[i]) + 2) / 3 * 4;
    return size;
}

static void leave_piece(struct shard_text *t)
{
    if (!t->reading)
        return;
    ms_held_unref(t->reading);
    t->reading = NULL;
    ms_http_store_leave(t->http->store);
}

static void next_part(struct shard_text *t)
{
    leave_piece(t);
    t->part_at = t->piece_at = t->piece = 0;
    t->part = t->part == AFTER ? BEFORE : t->part + 1;
    if (t->part == BEFORE)
        t->at++;
}

static size_t read_text_part(struct shard_text *t, uint8_t *out, size_t room)
{
    char text[2 * MS_HTTP_TENSOR_ID_MAX + MS_NAME_MAX];
    size_t len = print_part(t, t->at, t->part, text, sizeof text);
    size_t n = len - t->part_at < room ? len - t->part_at : room;

    memcpy(out, text + t->part_at, n);
    t->part_at += n;
    if (t->part_at == len)
        next_part(t);
    return n;
}

static void on_brought(void *arg, struct ms_http_ask *a)
{
    struct shard_text *t = arg;

    t->ask = NULL;
    t->is_lost = a->err.code < 0;
    if (!t->is_lost)
        t->reading = MS_TAKE(a->held);
    ms_http_conn_go_on(t->conn);
}

/* False: its bytes are not here, but will be, unless it is_lost. */
static bool read_piece(struct shard_text *t, const struct ms_http_piece *p)
{
    if (!t->reading && !t->is_lost)
        t->reading = ms_http_store_read(t->http->store, p->held);
    if (t->reading || t->is_lost)
        return t->reading;
    t->ask = ms_http_ask_bring(t->http->store, p->held, on_brought, t);
    t->is_lost = !t->ask;
    if (t->ask)
        ms_http_conn_hold(t->conn);
    return false;
}

/* The bytes from `at` on, *n of them or fewer; NULL: they are not here. */
static const uint8_t *read_bytes(struct shard_text *t, uint64_t at, size_t *n)
{
    const struct ms_http_tensor *shard = t->all[t->at];
    const struct ms_http_piece *p = &shard->pieces.all[t->piece];
    uint64_t left;

    if (!shard->pieces.count)
        return shard->memory + at;
    if (at == t->piece_at + p->len && t->piece + 1 < shard->pieces.count) {
        leave_piece(t);
        t->piece_at += p->len;
        p = &shard->pieces.all[++t->piece];
    }
    if (!read_piece(t, p))
        return NULL;
    left = t->piece_at + p->len - at;
    if (*n > left)
        *n = (size_t)left;
    return t->reading->read + p->offset + (at - t->piece_at);
}

/* Bytes as they are sent, *n of them or fewer; `wide` has room for ENCODE_SIZE. */
static const uint8_t *
read_sent(struct shard_text *t, size_t *n, uint8_t wide[ENCODE_SIZE])
{
    bool is_widened = ms_http_tensor_is_widened(t->all[t->at]);
    const uint8_t *from;

    if (!is_widened)
        return read_bytes(t, t->part_at, n);
    *n /= 2;
    from = read_bytes(t, t->part_at / 2, n);
    if (from)
        ms_bfloat16_widen(from, *n / 2, wide);
    *n *= 2;
    return from ? wide : NULL;
}

/* As base64, whole units of it unless these are the last. 0: there is no room for one, or they are
 * not here yet. */
static size_t read_data_part(struct shard_text *t, uint8_t *out, size_t room)
{
    uint64_t left = sent_size(t->all[t->at]) - t->part_at;
    size_t most = (room - 1) / 4 * 3; /* EVP_EncodeBlock adds a NUL */
    uint8_t wide[ENCODE_SIZE];
    const uint8_t *from = NULL;
    size_t n;

    if (most > ENCODE_SIZE)
        most = ENCODE_SIZE;
    n = left <= most ? (size_t)left : most / ENCODE_UNIT * ENCODE_UNIT;
    if (n && !(from = read_sent(t, &n, wide)))
        return 0;
    t->part_at += n;
    left -= n;
    n = n ? (size_t)EVP_EncodeBlock(out, from, (int)n) : 0;
    if (!left)
        next_part(t);
    return n;
}

/* Of struct ms_http_source. What follows the data is longer than what it does not use. */
static size_t text_read(void *arg, uint8_t *out, size_t room)
{
    struct shard_text *t = arg;
    size_t len = 0;

    if (t->count == 0) {
        memcpy(out, "[]", 2);
        return 2;
    }
    while (len < room && t->at < t->count) {
        bool is_data = t->part == DATA;
        size_t n = is_data ? read_data_part(t, out + len, room - len)
                           : read_text_part(t, out + len, room - len);

        len += n;
        if (n == 0 && t->part == DATA)
            break;
    }
    return len;
}

static void text_finish(void *arg)
{
    struct shard_text *t = arg;

    ms_http_ask_drop(t->ask);
    leave_piece(t);
    for (size_t i = 0; i < t->count; i++)
        ms_http_tensor_unref(&t->http->shards, t->all[i]);
    free(t);
}

static struct shard_text *text_create(struct ms_worker_http *h, size_t room, bool list)
{
    struct shard_text *t = calloc(1, sizeof *t + room * sizeof t->all[0]);

    if (t)
        *t = (struct shard_text){.http = h, .is_list = list};
    return t;
}

static void reply_text(struct ms_http_conn *c, struct shard_text *t)
{
    struct ms_http_source from = {text_read, text_finish, t};

    t->conn = c;
    ms_http_conn_reply_from(c, 200, "application/octet-stream", text_size(t), &from);
}

/* As AReaL's clients read it. `more` is taken. */
static void fail_with(struct ms_http_conn *c, int status, const char *why, json_t *more)
{
    json_t *o =
        MS_JSON({"status", json_string("error")}, {"message", ms_json_string(why)});

    if (o && more && json_object_update(o, more) < 0)
        o = (json_decref(o), NULL);
    json_decref(more);
    ms_http_reply_json(c, status, o);
}

void ms_http_data_fail(struct ms_http_conn *c, int status, const char *why)
{
    fail_with(c, status, why, NULL);
}

/* ---- the lease ------------------------------------------------------------------- */

static void on_lease(void *arg)
{
    struct ms_worker_http *h = arg;
    int64_t now_ns = ms_now_ns(), next_ns = ms_http_tensors_expire(&h->shards, now_ns);

    if (next_ns != MS_NEVER)
        ms_timer_set(&h->lease, next_ns - now_ns);
}

int ms_http_lease_init(struct ms_worker_http *h)
{
    return ms_timer_init(&h->lease, h->o.loop, on_lease, h);
}

int ms_worker_http_keep(struct ms_worker_http *h,
                        const struct ms_http_tensor *with,
                        struct ms_error *err)
{
    int rc = ms_http_tensors_add(&h->shards, with, ms_now_ns(), err);

    if (rc > 0)
        ms_loop_post(h->o.loop, on_lease, h);
    return rc < 0 ? rc : 0;
}

int ms_worker_http_keep_object(struct ms_worker_http *h,
                               const struct ms_http_tensor *with,
                               const struct ms_held *held,
                               uint64_t offset,
                               struct ms_error *err)
{
    struct ms_http_tensor kept = *with;
    int rc = ms_http_store_hold(h->store, held, offset, with->len, &kept.pieces, err);

    return rc < 0 ? rc : ms_worker_http_keep(h, &kept, err);
}

/* ---- what is asked --------------------------------------------------------------- */

static void do_get(struct ms_worker_http *h, struct ms_http_conn *c, const char *id)
{
    struct shard_text *t = text_create(h, 1, false);
    struct ms_http_tensor *shard =
        t ? ms_http_tensors_find(&h->shards, id, ms_now_ns()) : NULL;

    if (!shard) {
        free(t);
        ms_http_data_fail(
            c, t ? 404 : 503, t ? "there is no shard of this id" : "out of memory");
        return;
    }
    t->all[t->count++] = shard;
    reply_text(c, t);
}

/* "shard_ids", a list of strings, of the body; NULL: that was answered. */
static json_t *take_ids(struct ms_http_conn *c, const struct ms_http_request *r)
{
    json_t *json = ms_http_parse(r->body, r->body_len, 0, NULL);
    json_t *ids = json_incref(json_object_get(json, "shard_ids")), *id;
    bool is_good = json_is_array(ids);
    size_t i;

    json_decref(json);
    json_array_foreach(ids, i, id) is_good = is_good && json_is_string(id);
    if (is_good)
        return ids;
    json_decref(ids);
    ms_http_data_fail(c, 400, "'shard_ids' must be a list of strings");
    return NULL;
}

/* Find these; the ids of those that are not here. NULL: no memory. */
static json_t *take_all(struct ms_worker_http *h, struct shard_text *t, json_t *ids)
{
    json_t *missing = json_array(), *id;
    size_t i;

    json_array_foreach(ids, i, id)
    {
        struct ms_http_tensor *shard =
            ms_http_tensors_find(&h->shards, json_string_value(id), ms_now_ns());

        if (shard)
            t->all[t->count++] = shard;
        else
            json_array_append(missing, id);
    }
    return missing;
}

static void do_batch(struct ms_worker_http *h,
                     struct ms_http_conn *c,
                     const struct ms_http_request *r)
{
    json_t *ids = take_ids(c, r), *missing;
    struct shard_text *t = ids ? text_create(h, json_array_size(ids), true) : NULL;

    if (!ids)
        return;
    if (!t) {
        json_decref(ids);
        ms_http_data_fail(c, 503, "out of memory");
        return;
    }
    missing = take_all(h, t, ids);
    if (t->count == json_array_size(ids)) {
        json_decref(missing);
        reply_text(c, t);
    } else {
        text_finish(t);
        fail_with(c,
                  400,
                  "some of these shards are not here",
                  MS_JSON({"missing_shard_ids", missing}));
    }
    json_decref(ids);
}

static void do_clear(struct ms_worker_http *h,
                     struct ms_http_conn *c,
                     const struct ms_http_request *r)
{
    json_t *ids = take_ids(c, r), *id;
    size_t i, cleared = 0, count;
    uint64_t bytes;

    if (!ids)
        return;
    json_array_foreach(ids, i, id) cleared +=
        ms_http_tensors_remove(&h->shards, json_string_value(id));
    json_decref(ids);
    ms_http_tensors_stats(&h->shards, &count, &bytes);
    ms_http_reply_json(c,
                       200,
                       MS_JSON({"status", json_string("ok")},
                               {"cleared_count", json_integer((json_int_t)cleared)},
                               {"num_tensors", json_integer((json_int_t)count)},
                               {"total_bytes", json_integer((json_int_t)bytes)}));
}

void ms_http_data(struct ms_worker_http *h,
                  struct ms_http_conn *c,
                  const struct ms_http_request *r)
{
    const char *id = r->path + strlen(MS_HTTP_DATA);

    if (strcmp(r->method, "POST") == 0 && strcmp(id, "batch") == 0)
        do_batch(h, c, r);
    else if (strcmp(r->method, "DELETE") == 0 && strcmp(id, "clear") == 0)
        do_clear(h, c, r);
    else if (strcmp(r->method, "PUT") == 0)
        ms_http_data_fail(c,
                          r->has_body ? 503 : 500,
                          r->has_body ? "out of memory" : "there is no body");
    else if (strcmp(r->method, "GET") == 0 || strcmp(r->method, "HEAD") == 0)
        do_get(h, c, id);
    else
        ms_http_conn_fail(c, 405, "this path has another method");
}
