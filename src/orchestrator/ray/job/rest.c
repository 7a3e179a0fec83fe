/* rest.c - what Ray's REST answers mean */
#include "orchestrator/ray/job/rest.h"

#include "base/cleanup.h"
#include "io/json.h"

#include <ctype.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char *ms_ray_base_url(const char *address, struct ms_error *err)
{
    const char *rest = strstr(address, "://");
    MS_CLEANUP(ms_buf_finish) struct ms_buf b = {0};
    size_t len;

    if (rest && strncmp(address, "http://", 7) != 0 &&
        strncmp(address, "https://", 8) != 0) {
        ms_error_set(
            err,
            -EINVAL,
            "'%s' is not an address of Ray's dashboard: give http://HEAD:8265, "
            "not the address of ray:// clients",
            address);
        return NULL;
    }
    rest = rest ? rest + 3 : address;
    if (!*rest || strpbrk(rest, " \t\r\n") || rest[0] == '/') {
        ms_error_set(err,
                     -EINVAL,
                     "'%s' is not an address of Ray's dashboard: give http://HEAD:8265",
                     address);
        return NULL;
    }
    if (ms_buf_printf(&b, "%s%s", rest == address ? "http://" : "", address) < 0 ||
        !ms_buf_str(&b)) {
        ms_error_set(err, -ENOMEM, "out of memory");
        return NULL;
    }
    for (len = b.len; len > 0 && b.data[len - 1] == '/'; len--)
        b.data[len - 1] = 0;
    return (char *)MS_TAKE(b.data);
}

/* The last line that says something; of a traceback that is the exception. */
static void last_words(const struct ms_fetch_answer *a, char *out, size_t room)
{
    size_t end = a->len, start;

    while (end > 0 && isspace((unsigned char)a->body[end - 1]))
        end--;
    for (start = end; start > 0 && a->body[start - 1] != '\n'; start--)
        ;
    snprintf(out, room, "%.*s", (int)(end - start), a->body + start);
}

static bool is_html(const struct ms_fetch_answer *a)
{
    const char *body = a->body;

    while (isspace((unsigned char)*body))
        body++;
    return strstr(a->type, "html") || strncasecmp(body, "<!doctype", 9) == 0 ||
           strncasecmp(body, "<html", 5) == 0;
}

static int
no_answer(const struct ms_fetch_answer *a, const char *address, struct ms_error *err)
{
    return ms_error_set(err,
                        a->rc,
                        "no Ray dashboard answers at %s: %s. Is Ray there, with its "
                        "dashboard (ray[default])?",
                        address,
                        a->why.text);
}

static int not_allowed(int status, const char *address, struct ms_error *err)
{
    return ms_error_set(err,
                        -EACCES,
                        status == 401
                            ? "the Ray cluster at %s wants a token, and there is none: "
                              "set RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH"
                            : "the Ray cluster at %s does not accept this token: look "
                              "at RAY_AUTH_TOKEN, RAY_AUTH_TOKEN_PATH and "
                              "~/.ray/auth_token",
                        address);
}

/* There is an answer, and we may have it. */
static int
check_answer(const struct ms_fetch_answer *a, const char *address, struct ms_error *err)
{
    if (a->rc < 0)
        return no_answer(a, address, err);
    if (a->status == 401 || a->status == 403)
        return not_allowed(a->status, address, err);
    return 0;
}

static json_t *body_of(const struct ms_fetch_answer *a)
{
    return a->rc == 0 ? json_loadb(a->body, a->len, JSON_ALLOW_NUL, NULL) : NULL;
}

int ms_ray_read_plain(const struct ms_fetch_answer *a,
                      const char *address,
                      const char *what,
                      struct ms_error *err)
{
    char words[MS_RAY_MESSAGE_MAX];
    int rc = check_answer(a, address, err);

    if (rc < 0 || a->status == 200)
        return rc;
    last_words(a, words, sizeof words);
    /* a page is of somebody on the way: what Ray knows is not known */
    return ms_error_set(err,
                        a->status == 404 && !is_html(a) ? -ENOENT : -EPROTO,
                        "Ray at %s refuses to %s (status %d): %s",
                        address,
                        what,
                        a->status,
                        is_html(a) ? "with a page for browsers" : words);
}

static int not_ray(const struct ms_fetch_answer *a,
                   const char *address,
                   const char *how,
                   struct ms_error *err)
{
    return ms_error_set(err,
                        -EPROTO,
                        "what answers at %s is not the dashboard of Ray: /api/version "
                        "gave %s (status %d)",
                        address,
                        how,
                        a->status);
}

/* "2.57.0", "3.0.0.dev0" */
static bool is_old(const char *version)
{
    int major = 0, minor = 0;

    if (sscanf(version, "%d.%d", &major, &minor) != 2)
        return true;
    return major < MS_RAY_MAJOR_MIN ||
           (major == MS_RAY_MAJOR_MIN && minor < MS_RAY_MINOR_MIN);
}

int ms_ray_read_version(const struct ms_fetch_answer *a,
                        const char *address,
                        char version[MS_RAY_VERSION_MAX],
                        struct ms_error *err)
{
    json_t *body;
    const char *text;
    int rc = check_answer(a, address, err);

    if (rc < 0)
        return rc;
    if (is_html(a))
        return not_ray(a, address, "a page for browsers", err);
    body = body_of(a);
    text = json_string_value(json_object_get(body, "ray_version"));
    if (text)
        snprintf(version, MS_RAY_VERSION_MAX, "%s", text);
    json_decref(body);
    if (!text || a->status != 200)
        return not_ray(a, address, text ? "no answer" : "no version of Ray", err);
    if (is_old(version))
        return ms_error_set(err,
                            -ENOTSUP,
                            "Ray at %s is version %s; Muster needs %d.%d or newer",
                            address,
                            version,
                            MS_RAY_MAJOR_MIN,
                            MS_RAY_MINOR_MIN);
    return 0;
}

bool ms_ray_wants_token(const struct ms_fetch_answer *a)
{
    json_t *body = body_of(a);
    const char *mode = json_string_value(json_object_get(body, "authentication_mode"));
    bool wants =
        a->rc == 0 && (a->status == 401 || (mode && strcmp(mode, "disabled") != 0));

    json_decref(body);
    return wants;
}

static int status_of(const char *text)
{
    static const char *const names[] = {
        "PENDING", "RUNNING", "STOPPED", "SUCCEEDED", "FAILED"};

    for (size_t i = 0; text && i < MS_COUNT(names); i++)
        if (strcmp(text, names[i]) == 0)
            return (int)i;
    return -1;
}

int ms_ray_read_job(const struct ms_fetch_answer *a,
                    const char *address,
                    struct ms_ray_details *out,
                    struct ms_error *err)
{
    int rc = ms_ray_read_plain(a, address, "say how the job is", err), status;
    const json_t *code;
    json_t *body;
    const char *message;

    if (rc < 0)
        return rc;
    body = body_of(a);
    status = status_of(json_string_value(json_object_get(body, "status")));
    message = json_string_value(json_object_get(body, "message"));
    code = json_object_get(body, "driver_exit_code");
    *out = (struct ms_ray_details){
        .status = status < 0 ? MS_RAY_PENDING : (enum ms_ray_status)status,
        .exit_code = json_is_integer(code) ? (int)json_integer_value(code) : -1};
    snprintf(out->message, sizeof out->message, "%s", message ? message : "");
    json_decref(body);
    if (status < 0)
        return ms_error_set(
            err, -EPROTO, "Ray at %s says nothing of the job's status", address);
    return 0;
}

bool ms_ray_read_stopped(const struct ms_fetch_answer *a)
{
    json_t *body = a->status == 200 ? body_of(a) : NULL;
    bool will = json_is_true(json_object_get(body, "stopped"));

    json_decref(body);
    return will;
}

char *ms_ray_read_logs(const struct ms_fetch_answer *a, size_t *len)
{
    json_t *body = a->status == 200 ? body_of(a) : NULL;
    const json_t *logs = json_object_get(body, "logs");
    char *out = NULL;

    *len = json_string_length(logs);
    if (json_is_string(logs) && (out = malloc(*len + 1))) {
        memcpy(out, json_string_value(logs), *len);
        out[*len] = 0;
    }
    json_decref(body);
    return out;
}

json_t *ms_ray_env_object(const char *const *env)
{
    json_t *o = json_object();

    for (size_t i = 0; o && env && env[i]; i++) {
        size_t len = strcspn(env[i], "=");
        char *name = strndup(env[i], len);
        int rc = name && env[i][len]
                     ? json_object_set_new(o, name, ms_json_string(env[i] + len + 1))
                     : -1;

        free(name);
        if (rc < 0) {
            json_decref(o);
            return NULL;
        }
    }
    return o;
}

char *ms_ray_submission(const char *id,
                        const char *entrypoint,
                        const char *package,
                        const char *const *env)
{
    MS_CLEANUP(ms_buf_finish) struct ms_buf uri = {0};
    json_t *body;
    char *text;

    if (ms_buf_printf(&uri, "gcs://%s", package) < 0 || !ms_buf_str(&uri))
        return NULL;
    body = json_pack("{s:s, s:s, s:{s:s, s:o}, s:{s:s}}",
                     "submission_id",
                     id,
                     "entrypoint",
                     entrypoint,
                     "runtime_env",
                     "working_dir",
                     ms_buf_str(&uri),
                     "env_vars",
                     ms_ray_env_object(env),
                     "metadata",
                     "job_name",
                     id);
    text = body ? json_dumps(body, JSON_COMPACT) : NULL;
    json_decref(body);
    return text;
}

void ms_ray_add_log(struct ms_error *err, const char *log, size_t len)
{
    size_t used = strlen(err->text), room = sizeof err->text - used, start;

    while (len > 0 && isspace((unsigned char)log[len - 1]))
        len--;
    if (len == 0 || room < 40)
        return;
    room -= 24;
    start = len > room ? len - room : 0;
    while (start > 0 && start < len && log[start - 1] != '\n')
        start++;
    if (start == len) /* one very long line */
        start = len - room;
    snprintf(err->text + used,
             sizeof err->text - used,
             ". Its log ends: %.*s",
             (int)(len - start),
             log + start);
    for (char *c = err->text + used; *c; c++)
        if (*c == '\n')
            *c = '|';
}
