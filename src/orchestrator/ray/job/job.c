/* job.c - one job on a Ray cluster: starts ray_job.py, and tells what that says of it */
#include "orchestrator/ray/job/job.h"

#include "base/clock.h"
#include "base/json.h"
#include "orchestrator/ray/bridge/child.h"
#include "orchestrator/ray/job/python.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STOP_NS      (30 * MS_NS_PER_S) /* then ending it has come to nothing */
#define LOCAL_END_NS (45 * MS_NS_PER_S) /* for a Ray of our own to end */

/* Of its command line: those before the files, and pairs of files. */
enum { WORDS = 9, FILES_MAX = 8 };

struct ms_ray_job {
    struct ms_ray_job_spec spec;
    const struct ms_ray_job_events *events;
    void *arg;
    struct ms_bridge_transport *script;
    bool is_over; /* its end was told */
};

/* ---- what the script says ---------------------------------------------------------- */

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

/* Taken. */
static void order(struct ms_ray_job *j, json_t *o)
{
    char *line = o ? json_dumps(o, JSON_COMPACT) : NULL;

    if (line)
        j->script->ops->send(j->script, line, strlen(line));
    free(line);
    json_decref(o);
}

static void order_end(struct ms_ray_job *j, const char *verb, int64_t within_ns)
{
    double within_s = within_ns > 0 ? (double)within_ns / 1e9 : 0;

    order(j, MS_JSON({"do", json_string(verb)}, {"within_s", json_real(within_s)}));
}

static void ended(struct ms_ray_job *j, int rc, int exit_code, const char *text)
{
    struct ms_error why = {0};

    if (j->is_over)
        return;
    j->is_over = true;
    if (rc < 0)
        ms_error_set(&why, rc, "%s", text);
    j->events->on_ended(j->arg, rc, exit_code, rc < 0 ? &why : NULL);
}

static void submit(struct ms_ray_job *j)
{
    json_t *env = ms_ray_env_object(j->spec.env);

    if (env)
        order(j, json_pack("{s:s, s:o}", "do", "submit", "env", env));
    else
        ended(j, -ENOMEM, -1, "out of memory");
}

static void on_event(struct ms_ray_job *j, const char *event, const json_t *o)
{
    const struct ms_ray_job_events *e = j->events;
    const json_t *log = json_object_get(o, "text");
    const char *why = json_string_value(json_object_get(o, "why"));
    struct ms_error silence = {0};

    if (strcmp(event, "submitting") == 0) {
        if (e->on_submitting)
            e->on_submitting(j->arg, json_string_value(json_object_get(o, "local")));
        submit(j);
    } else if (strcmp(event, "submitted") == 0 && e->on_submitted) {
        e->on_submitted(j->arg);
    } else if (strcmp(event, "log") == 0 && e->on_log) {
        e->on_log(j->arg, json_string_value(log), json_string_length(log));
    } else if (strcmp(event, "silent") == 0 && e->on_silent) {
        ms_error_set(&silence, -EAGAIN, "%s", why ? why : "");
        e->on_silent(j->arg, why ? &silence : NULL);
    } else if (strcmp(event, "ended") == 0) {
        ended(j,
              (int)json_integer_value(json_object_get(o, "rc")),
              (int)json_integer_value(json_object_get(o, "exit_code")),
              why ? why : "");
    }
}

static void on_line(void *arg, const char *line, size_t len)
{
    json_t *o = json_loadb(line, len, JSON_ALLOW_NUL, NULL);
    const char *event = json_string_value(json_object_get(o, "event"));

    if (event)
        on_event(arg, event, o);
    json_decref(o);
}

static void on_down(void *arg, const struct ms_error *why)
{
    ended(arg, -EIO, -1, why->text);
}

/* ---- life -------------------------------------------------------------------------- */

void ms_ray_job_look(struct ms_ray_job *j)
{
    order(j, json_pack("{s:s}", "do", "look"));
}

void ms_ray_job_stop(struct ms_ray_job *j)
{
    order_end(j, "stop", STOP_NS);
}

static bool is_local(const struct ms_ray_job *j)
{
    return strcmp(j->spec.site.address, MS_RAY_LOCAL) == 0;
}

static int start(struct ms_ray_job *j, struct ms_error *err)
{
    static const struct ms_bridge_transport_events events = {.on_line = on_line,
                                                             .on_down = on_down};
    const struct ms_ray_job_spec *s = &j->spec;
    char muster[PATH_MAX], script[PATH_MAX], polite_s[32];
    const char *argv[WORDS + 2 * FILES_MAX + 1] = {
        "-IS", /* the standard library is all that it needs */
        script,
        s->site.address,
        s->id,
        s->entrypoint,
        muster,
        s->site.cache_dir ? s->site.cache_dir : "",
        polite_s,
        s->is_there ? "1" : "0"};
    int rc = ms_ray_find_muster(&s->site, muster, err);

    for (size_t i = 0; s->files && s->files[i] && i < 2 * FILES_MAX; i++)
        argv[WORDS + i] = s->files[i];
    snprintf(polite_s, sizeof polite_s, "%.3f", (double)s->polite_ns / 1e9);
    if (rc == 0)
        rc = ms_ray_find_script(&s->site, "ray_job.py", script, err);
    if (rc == 0)
        j->script = ms_script_start(&(struct ms_script_spec){.loop = s->loop,
                                                             .what = "ray_job.py",
                                                             .argv = argv,
                                                             .new_session = true},
                                    &events,
                                    j,
                                    err);
    return j->script ? 0 : -EIO;
}

struct ms_ray_job *ms_ray_job_create(const struct ms_ray_job_spec *spec,
                                     const struct ms_ray_job_events *events,
                                     void *arg,
                                     struct ms_error *err)
{
    struct ms_ray_job *j = calloc(1, sizeof *j);

    if (!j) {
        ms_error_set(err, -ENOMEM, "out of memory");
        return NULL;
    }
    *j = (struct ms_ray_job){.spec = *spec, .events = events, .arg = arg};
    if (start(j, err) == 0)
        return j;
    free(j);
    return NULL;
}

void ms_ray_job_destroy(struct ms_ray_job *j, int64_t until_ns)
{
    int64_t now_ns = ms_now_ns();

    if (!j)
        return;
    if (is_local(j) && until_ns < now_ns + LOCAL_END_NS)
        until_ns = now_ns + LOCAL_END_NS;
    order_end(j, "end", until_ns - now_ns);
    j->script->ops->destroy(j->script, false, until_ns);
    free(j);
}

void ms_ray_job_leave(struct ms_ray_job *j)
{
    if (!j)
        return;
    j->script->ops->destroy(j->script, true, 0);
    free(j);
}
