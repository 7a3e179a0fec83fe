#include "base/cleanup.h"
#include "orchestrator/ray/job_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

const char *ms_ray_job_address(const struct ms_ray_job *j)
{
    return j->base ? j->base : j->site.address;
}

/* ---- steps ------------------------------------------------------------------------- */

static void on_time(void *arg)
{
    struct ms_ray_job *j = arg;
    void (*next)(struct ms_ray_job * j) = MS_TAKE(j->next);

    if (next)
        next(j);
}

void ms_ray_job_soon(struct ms_ray_job *j,
                     int64_t delay_ns,
                     void (*next)(struct ms_ray_job *j))
{
    j->next = next;
    ms_timer_set(&j->timer, delay_ns); /* fails only when out of memory at its making */
}

void ms_ray_job_ask(struct ms_ray_job *j,
                    const struct ms_fetch_spec *spec,
                    const char *path,
                    ms_fetched *done)
{
    MS_CLEANUP(ms_buf_finish) struct ms_buf url = {0};
    struct ms_fetch_spec s = *spec;
    struct ms_error err = {0};

    if (!j->fetcher && !(j->fetcher = ms_fetcher_create(j->loop, &err))) {
        ms_ray_job_over(j, err.code, -1, &err);
        return;
    }
    s.token = j->token;
    s.timeout_ns = s.timeout_ns ? s.timeout_ns : MS_RAY_ANSWER_NS;
    if (ms_buf_printf(&url, "%s%s", j->base, path) == 0 && ms_buf_str(&url)) {
        s.url = ms_buf_str(&url);
        j->fetch = ms_fetch(j->fetcher, &s, done, j);
    }
    if (j->fetch)
        return;
    j->is_on_cluster = false; /* nothing more can be done for it */
    ms_error_set(&err, -ENOMEM, "out of memory");
    ms_ray_job_over(j, -ENOMEM, -1, &err);
}

void ms_ray_job_over(struct ms_ray_job *j,
                     int rc,
                     int exit_code,
                     const struct ms_error *why)
{
    if (j->is_over)
        return;
    j->is_over = true;
    if (j->events)
        j->events->on_ended(j->arg, rc, exit_code, rc < 0 ? why : NULL);
}

/* ---- copies ------------------------------------------------------------------------ */

static void free_texts(char **texts)
{
    for (size_t i = 0; texts && texts[i]; i++)
        free(texts[i]);
    free(texts);
}

/* NULL gives NULL, and is no failure. */
static bool copy_texts(char ***to, const char *const *from)
{
    size_t count = 0;

    if (!from)
        return true;
    while (from[count])
        count++;
    *to = calloc(count + 1, sizeof **to);
    for (size_t i = 0; *to && i < count; i++)
        if (!((*to)[i] = strdup(from[i])))
            return false;
    return *to != NULL;
}

static bool copy_text(const char **to, const char *from)
{
    *to = from ? strdup(from) : NULL;
    return !from || *to;
}

static void free_site(struct ms_ray_site *s)
{
    const char *all[] = {s->address, s->token, s->muster, s->python_dir, s->cache_dir};

    for (size_t i = 0; i < MS_COUNT(all); i++)
        free((char *)(uintptr_t)all[i]);
    *s = (struct ms_ray_site){0};
}

static bool copy_site(struct ms_ray_site *to, const struct ms_ray_site *from)
{
    return copy_text(&to->address, from->address) &&
           copy_text(&to->token, from->token) && copy_text(&to->muster, from->muster) &&
           copy_text(&to->python_dir, from->python_dir) &&
           copy_text(&to->cache_dir, from->cache_dir);
}

static bool copy_spec(struct ms_ray_job *j, const struct ms_ray_job_spec *spec)
{
    j->id = strdup(spec->id);
    j->entrypoint = strdup(spec->entrypoint ? spec->entrypoint : "");
    if (!j->id || !j->entrypoint || !copy_site(&j->site, &spec->site) ||
        !copy_texts(&j->env, spec->env) || !copy_texts(&j->files, spec->files))
        return false;
    if (spec->site.token)
        j->token = strdup(spec->site.token);
    return !spec->site.token || j->token;
}

/* ---- life -------------------------------------------------------------------------- */

static void job_free(struct ms_ray_job *j)
{
    ms_fetcher_destroy(j->fetcher);
    ms_packing_destroy(j->packing);
    ms_local_ray_destroy(j->local_ray);
    ms_package_finish(&j->package);
    ms_timer_finish(&j->timer);
    free_site(&j->site);
    free_texts(j->env);
    free_texts(j->files);
    free(j->base);
    free(j->token);
    free(j->id);
    free(j->entrypoint);
    free(j);
}

struct ms_ray_job *ms_ray_job_create(const struct ms_ray_job_spec *spec,
                                     const struct ms_ray_job_events *events,
                                     void *arg,
                                     struct ms_error *err)
{
    bool is_local = strcmp(spec->site.address, MS_RAY_LOCAL) == 0;
    char *base = is_local ? NULL : ms_ray_base_url(spec->site.address, err);
    struct ms_ray_job *j = is_local || base ? calloc(1, sizeof *j) : NULL;

    if (!j) {
        if (is_local || base)
            ms_error_set(err, -ENOMEM, "out of memory");
        free(base);
        return NULL;
    }
    j->loop = spec->loop;
    j->events = events;
    j->arg = arg;
    j->base = base;
    j->is_there = j->is_on_cluster = spec->is_there;
    j->pause_ns = MS_RAY_LOOK_NS;
    j->polite_ns = spec->polite_ns;
    if (!copy_spec(j, spec) || ms_timer_init(&j->timer, j->loop, on_time, j) < 0) {
        ms_error_set(err, -ENOMEM, "out of memory");
        job_free(j);
        return NULL;
    }
    ms_ray_job_soon(j, 0, ms_ray_job_begin);
    return j;
}

int ms_ray_job_set_env(struct ms_ray_job *j, const char *entry)
{
    size_t count = 0;
    char **env;

    while (j->env && j->env[count])
        count++;
    env = realloc(j->env, (count + 2) * sizeof *env);
    if (!env)
        return -ENOMEM;
    j->env = env;
    env[count + 1] = NULL;
    env[count] = strdup(entry);
    return env[count] ? 0 : -ENOMEM;
}

void ms_ray_job_stop(struct ms_ray_job *j)
{
    if (j->is_stopping || j->is_over)
        return;
    j->is_stopping = true;
    j->stop_until_ns = ms_now_ns() + MS_RAY_STOP_NS;
    j->polite_until_ns = ms_now_ns() + j->polite_ns;
    if (!j->fetch && !j->packing)
        ms_ray_job_soon(
            j, 0, j->is_on_cluster ? ms_ray_job_begin_looking : ms_ray_job_begin);
}

void ms_ray_job_look(struct ms_ray_job *j)
{
    if (!j->fetch && !j->is_over && j->is_on_cluster)
        ms_ray_job_soon(j, 0, ms_ray_job_begin_looking);
}

/* It only ends a wait. */
static void on_limit(void *arg)
{
    (void)arg;
}

/* The rest of its life on a loop of its own, for somebody who cannot wait on theirs. */
static void stop_now(struct ms_ray_job *j, int64_t until_ns)
{
    struct ms_loop *loop = ms_loop_create();
    struct ms_timer limit = {0};

    if (!loop)
        return;
    ms_fetcher_destroy(MS_TAKE(j->fetcher));
    j->fetch = NULL;
    ms_timer_finish(&j->timer);
    j->loop = loop;
    if (ms_timer_init(&j->timer, loop, on_time, j) == 0 &&
        ms_timer_init(&limit, loop, on_limit, NULL) == 0) {
        j->is_stopping = true;
        j->is_stop_asked = false;
        j->stop_until_ns = until_ns;
        j->polite_until_ns = ms_now_ns() + j->polite_ns;
        ms_ray_job_soon(j, 0, ms_ray_job_begin_looking);
        ms_timer_set(&limit, until_ns - ms_now_ns());
        while (j->is_on_cluster && ms_now_ns() < until_ns)
            if (ms_loop_run_once(loop, true) < 0)
                break;
    }
    ms_fetcher_destroy(MS_TAKE(j->fetcher));
    ms_timer_finish(&j->timer);
    ms_timer_finish(&limit);
    ms_loop_destroy(loop);
}

void ms_ray_job_destroy(struct ms_ray_job *j, int64_t until_ns)
{
    if (!j)
        return;
    j->events = NULL;
    if (j->is_on_cluster && !j->local_ray)
        stop_now(j, until_ns);
    job_free(j);
}

void ms_ray_job_leave(struct ms_ray_job *j)
{
    if (j)
        job_free(j);
}
