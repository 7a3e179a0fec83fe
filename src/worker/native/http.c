/* http.c - operations of a worker in C that came by HTTP: JSON in, JSON out */
#include "worker/http/http.h"
#include "base/cleanup.h"
#include "base/json.h"
#include "worker/native/json.h"
#include "worker/native/native_impl.h"

#include <errno.h>
#include <string.h>

/* ---- answers --------------------------------------------------------------------- */

/* Three digits, then JSON (worker/http/call.c takes it apart). `json` is let go of; NULL: no
 * memory. The count of pieces, or -ENOMEM. */
static int print(const char *status, json_t *json, char **text, struct iovec iov[2])
{
    *text = json ? json_dumps(json, JSON_COMPACT) : NULL;
    json_decref(json);
    if (!*text)
        return -ENOMEM;
    iov[0] = (struct iovec){(void *)(uintptr_t)status, strlen(status)};
    iov[1] = (struct iovec){*text, strlen(*text)};
    return 2;
}

static void answer(struct ms_request *r, const char *status, json_t *json)
{
    char *text = NULL;
    struct iovec iov[2];
    int count = print(status, json, &text, iov);

    if (count < 0)
        ms_request_fail_text(r, MUSTER__FAILURE__KIND__NO_MEMORY, "out of memory");
    else
        ms_request_reply(r, MS_CODEC_BYTES, iov, count);
    free(text);
}

int ms_native_http_result(const struct muster_value *value,
                          char **text,
                          struct iovec iov[2])
{
    json_t *result = NULL;
    int rc = ms_value_to_json(value, &result);

    if (rc < 0)
        return rc;
    return print("200",
                 MS_JSON({"status", json_string("success")}, {"result", result}),
                 text,
                 iov);
}

static void refuse(struct ms_request *r, const char *name, const char *must)
{
    ms_request_fail_text(r, MUSTER__FAILURE__KIND__BAD_ARGUMENT, "'%s' %s", name, must);
}

static void refuse_value(struct ms_request *r, const struct ms_error *why)
{
    ms_request_fail_text(r,
                         why->code == -ENOMEM ? MUSTER__FAILURE__KIND__NO_MEMORY
                                              : MUSTER__FAILURE__KIND__BAD_ARGUMENT,
                         "%s",
                         why->text);
}

/* ---- fields ---------------------------------------------------------------------- */

enum need { TEXT, OBJECT, LIST_OR_NONE, OBJECT_OR_NONE, PRESENT };

struct field {
    const char *name;
    enum need need;
};

/* One that C can hold: no NUL is in it. */
static bool is_text(const json_t *value)
{
    return json_is_string(value) &&
           strlen(json_string_value(value)) == json_string_length(value);
}

static bool is_good(const json_t *value, enum need need)
{
    switch (need) {
    case TEXT:
        return is_text(value) && json_string_length(value) > 0;
    case OBJECT:
        return json_is_object(value);
    case LIST_OR_NONE:
        return !value || json_is_array(value);
    case OBJECT_OR_NONE:
        return !value || json_is_object(value);
    case PRESENT:
        return value && !json_is_null(value);
    }
    return false;
}

/* Are they what they must be? If not, that was answered. `fields` end with a NULL name. */
static bool check(struct ms_request *r, const json_t *body, const struct field *fields)
{
    static const char *const must[] = {
        [TEXT] = "must be a string, and not empty",
        [OBJECT] = "must be an object",
        [LIST_OR_NONE] = "must be a list",
        [OBJECT_OR_NONE] = "must be an object",
        [PRESENT] = "is missing",
    };

    for (; fields->name; fields++)
        if (!is_good(json_object_get(body, fields->name), fields->need)) {
            refuse(r, fields->name, must[fields->need]);
            return false;
        }
    return true;
}

static const char *text_at(const json_t *body, const char *name)
{
    return json_string_value(json_object_get(body, name));
}

/* ---- what can be asked ----------------------------------------------------------- */

static void
do_configure(struct ms_native_engines *e, struct ms_request *r, const json_t *body)
{
    struct ms_error why = {0};
    struct muster_value *value =
        ms_value_from_json(json_object_get(body, "config"), &why);

    if (!value) {
        refuse_value(r, &why);
        return;
    }
    ms_native_engines_configure(e, value);
    answer(r,
           "200",
           MS_JSON({"status", json_string("success")},
                   {"message", json_string("configured")},
                   {"result", json_null()}));
}

/* A variable's value as text; NULL: it cannot be one. */
static const char *variable(const char *name, const json_t *value, char room[32])
{
    if (!name[0] || strchr(name, '='))
        return NULL;
    if (json_is_boolean(value))
        return json_is_true(value) ? "True" : "False"; /* as Python's workers do */
    if (json_is_integer(value)) {
        snprintf(room, 32, "%lld", (long long)json_integer_value(value));
        return room;
    }
    return is_text(value) ? json_string_value(value) : NULL;
}

static void
do_set_env(struct ms_native_engines *e, struct ms_request *r, const json_t *body)
{
    json_t *env = json_object_get(body, "env"), *value;
    const char *name;
    char room[32];

    (void)e;
    json_object_foreach(env, name, value)
    {
        if (!variable(name, value, room)) {
            ms_request_fail_text(r,
                                 MUSTER__FAILURE__KIND__BAD_ARGUMENT,
                                 "'env': '%s' cannot be set: names have no '=', and "
                                 "values are strings, integers or truth values",
                                 name);
            return;
        }
    }
    json_object_foreach(env, name, value)
    {
        const char *text = variable(name, value, room);

        if (!text || setenv(name, text, 1) < 0) {
            ms_request_fail_text(r, MUSTER__FAILURE__KIND__NO_MEMORY, "out of memory");
            return;
        }
    }
    answer(r, "200", json_pack("{s:s}", "status", "success"));
}

/* As ms_native_engine_create wants it. */
static struct muster_value *spec_of(const json_t *body, struct ms_error *why)
{
    json_t *args = json_object_get(body, "init_args");
    json_t *kwargs = json_object_get(body, "init_kwargs");
    json_t *spec = MS_JSON({"name", json_incref(json_object_get(body, "engine_name"))},
                           {"cls", json_incref(json_object_get(body, "engine"))},
                           {"args", args ? json_incref(args) : json_array()},
                           {"kwargs", kwargs ? json_incref(kwargs) : json_object()});
    struct muster_value *value = spec ? ms_value_from_json(spec, why) : NULL;

    if (!spec)
        ms_error_set(why, -ENOMEM, "out of memory");
    json_decref(spec);
    return value;
}

static void
do_create_engine(struct ms_native_engines *e, struct ms_request *r, const json_t *body)
{
    static struct muster_error err; /* the engine's thread alone runs this */
    struct ms_error why = {0};
    struct muster_value *spec = spec_of(body, &why);
    Muster__Failure__Kind kind;

    if (!spec) {
        refuse_value(r, &why);
        return;
    }
    ms_report_clear(&err);
    kind = ms_native_engine_create(e, spec, &err);
    muster_value_destroy(spec);
    if (kind != MS_NATIVE_OK)
        ms_request_fail_report(r, kind, err.code, &err);
    else
        answer(
            r,
            "200",
            MS_JSON({"status", json_string("success")},
                    {"message", json_string("made")},
                    {"engine_name", json_incref(json_object_get(body, "engine_name"))},
                    {"result", json_null()}));
}

/* May it be called so? If not, that was answered. */
static bool check_call(struct ms_request *r, const json_t *body)
{
    const json_t *meta = json_object_get(body, "rpc_meta");
    const json_t *broadcast = json_object_get(meta, "broadcast");

    if (meta && !json_is_null(meta) && !json_is_object(meta)) {
        refuse(r, "rpc_meta", "must be an object or null");
        return false;
    }
    if (broadcast && !json_is_boolean(broadcast)) {
        refuse(r, "rpc_meta.broadcast", "must be true or false");
        return false;
    }
    if (!json_is_true(broadcast))
        return true;
    answer(r,
           "501",
           MS_JSON({"status", json_string("error")},
                   {"error",
                    json_string("'rpc_meta': a C worker has no process groups to "
                                "broadcast arguments in; send them to each rank")}));
    return false;
}

static void
do_call(struct ms_native_engines *e, struct ms_request *r, const json_t *body)
{
    static struct muster_error err; /* the engine's thread alone runs this */
    struct muster_call call = {.request = r,
                               .method = text_at(body, "method"),
                               .codec = MS_CODEC_PLAIN,
                               .is_http = true,
                               .deadline_ns = r->deadline_ns};
    struct ms_error why = {0};
    struct ms_native_method m;
    Muster__Failure__Kind kind;

    if (!check_call(r, body))
        return;
    ms_report_clear(&err);
    kind = ms_native_engine_find_method(
        e, text_at(body, "engine_name"), call.method, &m, &err);
    if (kind != MS_NATIVE_OK) {
        ms_request_fail_report(r, kind, -ENOENT, &err);
        return;
    }
    call.arguments = ms_arguments_from_json(
        json_object_get(body, "args"), json_object_get(body, "kwargs"), &why);
    if (!call.arguments) {
        ms_error_wrap(&why, "'%s'", call.method);
        refuse_value(r, &why);
        return;
    }
    ms_call_invoke(&call, &m, &err);
}

static const struct {
    uint16_t op;
    struct field fields[5]; /* that its body must have; NULL-terminated */
    void (*run)(struct ms_native_engines *e, struct ms_request *r, const json_t *body);
} operations[] = {
    {MS_OP_HTTP_CONFIGURE, {{"config", PRESENT}, {"rank", PRESENT}}, do_configure},
    {MS_OP_HTTP_SET_ENV, {{"env", OBJECT}}, do_set_env},
    {MS_OP_HTTP_CREATE_ENGINE,
     {{"engine", TEXT},
      {"engine_name", TEXT},
      {"init_args", LIST_OR_NONE},
      {"init_kwargs", OBJECT_OR_NONE}},
     do_create_engine},
    {MS_OP_HTTP_CALL,
     {{"method", TEXT},
      {"engine_name", TEXT},
      {"args", LIST_OR_NONE},
      {"kwargs", OBJECT_OR_NONE}},
     do_call},
};

bool ms_native_http(struct ms_native_engines *e, struct ms_request *r)
{
    struct ms_error why = {0};
    json_t *body;
    size_t i = 0;

    while (i < MS_COUNT(operations) && operations[i].op != r->op)
        i++;
    if (i == MS_COUNT(operations))
        return false;
    body = ms_http_parse(r->body, r->len, JSON_ALLOW_NUL, &why);
    if (!body)
        refuse_value(r, &why);
    else if (check(r, body, operations[i].fields))
        operations[i].run(e, r, body);
    json_decref(body);
    return true;
}
