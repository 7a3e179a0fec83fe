/* session.c - a C driver's session: its start from options, its logs, its end */
#include "base/cleanup.h"
#include "base/clock.h"
#include "capi/capi.h"
#include "session/env.h"
#include "session/find.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#define START_NS (60 * MS_NS_PER_S)

/* ---- logs ------------------------------------------------------------------------ */

static void on_log(void *arg, const Muster__LogLines *lines)
{
    struct muster_session *s = arg;

    for (size_t i = 0; i < lines->n_lines; i++) {
        const Muster__LogLine *from = lines->lines[i];
        struct muster_log_line line = {.cluster = from->cluster,
                                       .rank = from->rank,
                                       .is_stderr = from->is_stderr,
                                       .text = (const char *)from->text.data,
                                       .len = from->text.len};

        if (s->on_log)
            s->on_log(s->arg, &line);
        else
            fprintf(stderr,
                    "(%s/%u) %.*s\n",
                    line.cluster,
                    line.rank,
                    (int)line.len,
                    line.len ? line.text : "");
    }
}

/* ---- start ----------------------------------------------------------------------- */

static void env_free(char ***env)
{
    ms_session_env_free(*env);
}

static int find_head(const struct muster_session_options *o,
                     struct ms_found_head *found,
                     struct muster_error *err)
{
    struct ms_error why = {0};

    return ms_find_head(o->address, o->secret_file, found, &why) < 0
               ? ms_capi_error(&why, err)
               : 0;
}

static int start_with(struct muster_session *s,
                      const struct ms_driver_session_options *o,
                      struct muster_error *err)
{
    struct ms_error why = {0};

    s->driver = ms_driver_session_start(o, &why);
    if (!s->driver)
        return ms_capi_error(&why, err);
    s->head = ms_driver_session_head(s->driver);
    s->client = ms_driver_session_client(s->driver);
    return 0;
}

static int start(struct muster_session *s,
                 const struct muster_session_options *o,
                 struct muster_error *err)
{
    MS_CLEANUP(ms_found_head_finish) struct ms_found_head found = {0};
    MS_CLEANUP(ms_cleanup_free) char *program = NULL;
    MS_CLEANUP(ms_cleanup_free) char *folder = getcwd(NULL, 0);
    MS_CLEANUP(env_free) char **env = ms_session_env((const char *const *)environ);
    const char *told = getenv("MUSTER_PYTHON");
    const char *python[] = {told ? told : "python3", NULL}, *none[] = {NULL};
    struct ms_driver_session_options so = {
        .head =
            {
                .num_gpus = o->num_gpus,
                .num_cpus = o->num_cpus,
                .log_to_driver = !o->quiet,
                .python = o->python ? o->python : python,
                .sys_path = none,
                .env = (const char *const *)env,
                .working_dir = folder,
                .timeout_ns = o->timeout_ns ? o->timeout_ns : START_NS,
                .on_log = on_log,
                .arg = s,
            },
        .tls = o->tls,
    };

    if (!folder || !env)
        return muster_error_set(err, -errno, NULL, "cannot start: %s", strerror(errno));
    if (find_head(o, &found, err) < 0)
        return -1;
    if (!found.address &&
        !(so.head.agent_path = program = ms_capi_find_program(o->muster_path, err)))
        return -1;
    so.address = found.address;
    so.secret_file = found.secret_file;
    return start_with(s, &so, err);
}

struct muster_session *muster_init(const struct muster_session_options *options,
                                   struct muster_error *err)
{
    struct muster_session_options o = MUSTER_SESSION_OPTIONS;
    struct muster_session *s = calloc(1, sizeof *s);

    if (options) /* an older program knows fewer fields */
        memcpy(&o, options, options->size < sizeof o ? options->size : sizeof o);
    if (!s)
        return ms_capi_no_memory(err), NULL;
    s->on_log = o.on_log;
    s->arg = o.arg;
    s->refs = 1;
    if (start(s, &o, err) < 0) {
        ms_capi_session_unref(s);
        return NULL;
    }
    return s;
}

const char *muster_session_name(const struct muster_session *s)
{
    return s ? ms_head_session(s->head)->name : NULL;
}

const char *muster_session_dir(const struct muster_session *s)
{
    return s ? ms_head_session(s->head)->dir : NULL;
}

/* ---- stop ------------------------------------------------------------------------ */

void muster_shutdown(struct muster_session *s, int64_t grace_ns)
{
    if (ms_capi_check_open(s, NULL) < 0)
        return; /* a forked child's: it is its parent's */
    ms_driver_session_stop(s->driver, grace_ns);
    s->head = NULL;
    s->client = NULL;
    ms_capi_session_unref(s);
}

struct muster_session *ms_capi_session_ref(struct muster_session *s)
{
    atomic_fetch_add(&s->refs, 1);
    return s;
}

void ms_capi_session_unref(struct muster_session *s)
{
    if (atomic_fetch_sub(&s->refs, 1) != 1)
        return;
    ms_driver_session_destroy(s->driver);
    json_decref(s->job);
    free(s);
}

int ms_capi_check_open(const struct muster_session *s, struct muster_error *err)
{
    return s && ms_driver_session_is_open(s->driver)
               ? 0
               : muster_error_set(err, -ESHUTDOWN, NULL, "this session has ended");
}

struct ms_head_op *
ms_capi_done(struct ms_head_op *op, int64_t timeout_ns, struct muster_error *err)
{
    struct ms_error why = {0};

    if (ms_head_op_wait(op, ms_deadline_ns(ms_now_ns(), timeout_ns)) < 0)
        muster_error_set(err, -ETIMEDOUT, NULL, "%s", ms_head_op_delay(op));
    else if (ms_head_op_result(op, &why) < 0)
        ms_capi_op_failure(op, &why, err);
    else
        return op;
    ms_head_op_unref(op);
    return NULL;
}
