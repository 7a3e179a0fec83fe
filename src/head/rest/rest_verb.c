/* rest_verb.c - any verb by HTTP, as its row says (head/ops/verbs.h)
 *
 * The fields of its message come from the path, the query and, with POST, a JSON object.
 * A verb without a result answers 204.
 */
#include "base/cleanup.h"
#include "base/limits.h"
#include "head/head_impl.h"
#include "head/ops/request.h"
#include "head/rest/message_json.h"
#include "head/rest/rest_impl.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

/* ---- from a request to a message ------------------------------------------------- */

static void cleanup_json(json_t **j)
{
    json_decref(*j);
}

static void cleanup_message(Muster__DriverToHead **m)
{
    muster__driver_to_head__free_unpacked(*m, NULL);
}

/* Workers are given time to end, unless it is said how much. */
static int set_usual(ProtobufCMessage *body)
{
    MS_CLEANUP(cleanup_json)
    json_t *usual =
        json_pack("{s:f}", "grace", (double)MS_STOP_GRACE_NS / (double)MS_NS_PER_S);

    if (!ms_message_field_find(body->descriptor, "grace"))
        return 0;
    return usual ? ms_message_parse(body, usual, NULL) : -ENOMEM;
}

/* Its body is there, and empty but for what is usual. */
static Muster__DriverToHead *create(const struct ms_verb *v, ProtobufCMessage **body)
{
    MS_CLEANUP(cleanup_message) Muster__DriverToHead *m = malloc(sizeof *m);

    if (!m)
        return NULL;
    muster__driver_to_head__init(m);
    *body = ms_proto_create(ms_verb_message(v));
    if (!*body)
        return NULL;
    m->body_case = v->body;
    m->hello = (Muster__LinkHello *)*body; /* all bodies are pointers in a union */
    return set_usual(*body) < 0 ? NULL : MS_TAKE(m);
}

/* The names in braces of the row's path, with what the request has there. */
static int parse_path(const struct rest_ask *ask,
                      const struct ms_verb *v,
                      ProtobufCMessage *body,
                      struct ms_error *err)
{
    const char *values[] = {ask->name, ask->rank};
    const char *at = v->http.path;
    char name[64];
    int rc = 0;

    for (size_t i = 0; rc == 0 && (at = strchr(at, '{')); i++) {
        assert(i < MS_COUNT(values));
        at += 1 + (at[1] == '+');
        snprintf(name, sizeof name, "%.*s", (int)strcspn(at, "}"), at);
        rc = ms_message_parse_text(body, name, values[i], err);
    }
    return rc;
}

static bool is_in_path(const struct ms_verb *v, const char *name)
{
    size_t len = strlen(name);
    const char *at = v->http.path;

    for (; (at = strpbrk(at, "{+")); at++)
        if (strncmp(at + 1, name, len) == 0 && at[1 + len] == '}')
            return true;
    return false;
}

static int parse_pair(const struct ms_verb *v,
                      ProtobufCMessage *body,
                      char *pair,
                      struct ms_error *err)
{
    char *equals = strchr(pair, '=');

    for (char *at = pair; (at = strchr(at, '+'));)
        *at = ' '; /* as forms write it */
    if (equals)
        *equals = 0;
    if (!equals || !ms_rest_decode(pair, strlen(pair), pair) ||
        !ms_rest_decode(equals + 1, strlen(equals + 1), equals + 1))
        return ms_error_set(err, -EINVAL, "the query cannot be read");
    if (is_in_path(v, pair))
        return ms_error_set(err, -EINVAL, "'%.64s' is in the path", pair);
    return ms_message_parse_text(body, pair, equals + 1, err);
}

static int parse_query(const struct rest_ask *ask,
                       const struct ms_verb *v,
                       ProtobufCMessage *body,
                       struct ms_error *err)
{
    MS_CLEANUP(ms_cleanup_free)
    char *query = strdup(ask->request->query ? ask->request->query : "");
    char *rest = query, *pair;
    int rc = query ? 0 : ms_error_set(err, -ENOMEM, "out of memory");

    while (rc == 0 && (pair = strsep(&rest, "&")))
        if (*pair)
            rc = parse_pair(v, body, pair, err);
    return rc;
}

static int parse_body(const struct rest_ask *ask,
                      const struct ms_verb *v,
                      ProtobufCMessage *body,
                      struct ms_error *err)
{
    const struct ms_http_request *r = ask->request;
    json_error_t why;
    MS_CLEANUP(cleanup_json) json_t *object = NULL;
    const char *name;
    json_t *value;

    if (r->body_len == 0)
        return 0;
    object =
        json_loadb((const char *)r->body, r->body_len, JSON_REJECT_DUPLICATES, &why);
    if (!object)
        return ms_error_set(err, -EINVAL, "the body is not JSON: %.128s", why.text);
    if (!json_is_object(object))
        return ms_error_set(err, -EINVAL, "the body is not a JSON object");
    json_object_foreach(
        object,
        name,
        value) if (is_in_path(v, name)) return ms_error_set(err,
                                                            -EINVAL,
                                                            "'%.64s' is in the path",
                                                            name);
    return ms_message_parse(body, object, err);
}

/* NULL with the reason. */
static Muster__DriverToHead *
read_request(const struct rest_ask *ask, const struct ms_verb *v, struct ms_error *err)
{
    ProtobufCMessage *body = NULL;
    MS_CLEANUP(cleanup_message) Muster__DriverToHead *m = create(v, &body);
    int rc = m ? parse_query(ask, v, body, err)
               : ms_error_set(err, -ENOMEM, "out of memory");

    if (rc == 0 && strcmp(v->http.method, "POST") == 0)
        rc = parse_body(ask, v, body, err);
    if (rc == 0)
        rc = parse_path(ask, v, body, err);
    return rc == 0 ? MS_TAKE(m) : NULL;
}

/* ---- from an operation to an answer ---------------------------------------------- */

int ms_rest_status_of(int code)
{
    static const struct {
        int code, status;
    } known[] = {
        {-EINVAL, 400},
        {-ERANGE, 400},
        {-EPERM, 403},
        {-ENOENT, 404},
        {-ENXIO, 404},
        {-EEXIST, 409},
        {-EBUSY, 409},
        {-EALREADY, 409},
        {-ESTALE, 409},
        {-E2BIG, 413},
        {-ENOTSUP, 422},
        {-EPIPE, 502},
        {-ENODEV, 502},
        {-ENOMEM, 503},
        {-ESHUTDOWN, 503},
        {-ETIMEDOUT, 504},
        {-ENOSPC, 507},
    };

    for (size_t i = 0; i < MS_COUNT(known); i++)
        if (known[i].code == code)
            return known[i].status;
    return 500;
}

static void reply_result(struct ms_http_conn *c, const struct ms_head_op *op)
{
    const struct ms_verb *v = ms_verb_find(op->request->body_case);
    json_t *json;

    if (!op->message) {
        ms_http_conn_reply(c, 204, NULL, NULL, NULL, 0);
        return;
    }
    json = v->http.view ? v->http.view(op->message) : ms_message_print(op->message);
    if (json_is_null(json))
        ms_http_conn_fail(c, 404, "there is none of that name");
    else
        ms_http_reply_json(c, 200, json);
}

struct asking {
    struct rest_wait wait;
    struct ms_head_op *op;
};

/* The operation goes on if it has not completed; nobody hears how it ends. */
static void asking_destroy(struct rest_wait *w)
{
    struct asking *a = (struct asking *)w;

    a->op->on_done = NULL;
    ms_head_op_unref(a->op);
    ms_list_remove(&w->link);
    free(a);
}

static void on_done(struct ms_head_op *op, void *arg)
{
    struct asking *a = arg;
    struct ms_http_conn *c = a->wait.conn;

    if (c && op->error.code)
        ms_http_conn_fail(c, ms_rest_status_of(op->error.code), op->error.text);
    else if (c)
        reply_result(c, op);
    asking_destroy(&a->wait);
}

void ms_rest_verb(const struct rest_ask *ask, const struct ms_verb *v)
{
    struct ms_error err = {0};
    MS_CLEANUP(cleanup_message) Muster__DriverToHead *m = read_request(ask, v, &err);
    struct asking *a = m ? calloc(1, sizeof *a) : NULL;

    if (a)
        a->op = ms_head_op_create(ask->rest->head);
    if (!a || !a->op) {
        ms_http_conn_fail(ask->conn,
                          m ? 503 : ms_rest_status_of(err.code),
                          m ? "out of memory" : err.text);
        free(a);
        return;
    }
    a->wait.destroy = asking_destroy;
    ms_rest_wait_begin(&a->wait, ask);
    a->op->request = MS_TAKE(m);
    a->op->asker = MS_ASKER_HTTP;
    a->op->on_done = on_done;
    a->op->done_arg = a;
    ms_head_op_run(a->op); /* it may have completed, and `a` be gone */
}
