/* in_job.c - a bridge in a job on a cluster: the controller's end of its wire */
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/name.h"
#include "io/tcp.h"
#include "orchestrator/ray/bridge/bridge.h"
#include "orchestrator/ray/bridge/offer.h"
#include "orchestrator/ray/bridge/state.h"
#include "orchestrator/ray/bridge/transport.h"
#include "orchestrator/ray/job/job.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <string.h>

#define POLITE_NS                                                                      \
    (6 * MS_NS_PER_S) /* the bridge's time to release before it is stopped */
#define ENTRYPOINT "chmod +x bin/muster; exec bin/muster bridge"

enum { LOG_KEPT = 64 << 10 };

struct bridge_job {
    struct ms_bridge_transport base;
    const struct ms_ray_options *options;
    const struct ms_bridge_transport_events *events;
    void *arg;
    struct ms_ray_job *job;
    struct ms_bridge_state state; /* without the secret, which the wire has */
    struct ms_offer_keys keys;
    bool has_secret, is_adopted, was_up, is_silent, is_over;
    char reached_by[MS_ADDR_LIST_MAX + 1]; /* where the bridge finds us */
    struct ms_buf log;                     /* until the answer is found in it */
    int listen_fd;
    struct ms_wire wire;
    struct ms_timer first;
    char env_name[128], env_grace[64], *env_offer;
    const char *env[4]; /* of the job: those */
};

static int begin(struct bridge_job *f, struct ms_error *err);

/* ---- silence and the end ----------------------------------------------------------- */

static void set_silent(struct bridge_job *f, const struct ms_error *why)
{
    if (f->is_silent == (why != NULL))
        return;
    f->is_silent = why != NULL;
    f->events->on_silent(f->arg, why);
}

static void down(struct bridge_job *f, const struct ms_error *why)
{
    struct ms_error said = *why;

    if (f->is_over)
        return;
    f->is_over = true;
    ms_timer_cancel(&f->first);
    ms_wire_disconnect(&f->wire);
    ms_bridge_state_remove(f->options);
    f->events->on_down(f->arg, &said);
}

/* The job runs, and nobody has connected. */
static void on_first(void *arg)
{
    struct bridge_job *f = arg;
    struct ms_error why = {0};

    ms_error_set(&why,
                 -EHOSTUNREACH,
                 "the bridge runs on Ray, but it and this machine do not reach each "
                 "other: it tried %.150s, and we tried %.150s",
                 f->reached_by[0] ? f->reached_by : "nothing",
                 f->wire.peer_at[0] ? f->wire.peer_at : "nothing");
    ms_ray_job_stop(f->job);
    down(f, &why);
}

/* ---- the wire ---------------------------------------------------------------------- */

static void on_up(void *arg, bool is_new)
{
    struct bridge_job *f = arg;

    (void)is_new;
    f->was_up = true;
    ms_timer_cancel(&f->first);
    set_silent(f, NULL);
}

static void on_lost(void *arg, bool has_ended, const struct ms_error *why)
{
    struct bridge_job *f = arg;
    struct ms_error said = {0};

    (void)has_ended; /* its job says that */
    ms_error_set(&said, why->code, "the bridge on Ray %s", why->text);
    set_silent(f, &said);
    ms_ray_job_look(f->job); /* perhaps it has ended */
}

static void on_line(void *arg, const char *line, size_t len)
{
    struct bridge_job *f = arg;

    f->events->on_line(f->arg, line, len);
}

/* The secret is known: connect, in whatever ways there are. */
static void connect_now(struct bridge_job *f)
{
    f->has_secret = true;
    snprintf(f->wire.peer_at, sizeof f->wire.peer_at, "%s", f->state.bridge_at);
    ms_timer_set(&f->first, MS_BRIDGE_FIRST_NS);
    ms_wire_connect(&f->wire, MS_TAKE_FD(f->listen_fd));
}

/* ---- the job ----------------------------------------------------------------------- */

/* On the job's thread: until the bridge's answer has come nobody else looks at these. */
static void on_submitting(void *arg, const char *local)
{
    struct bridge_job *f = arg;
    MS_CLEANUP(ms_cleanup_free) char *offer = NULL;

    if (f->listen_fd >= 0)
        ms_wire_addresses(f->reached_by, local, f->state.port);
    offer = ms_offer_print(f->keys.public_key, f->reached_by);
    free(MS_TAKE(f->env_offer));
    if (offer && asprintf(&f->env_offer, MS_OFFER_ENV "=%s", offer) >= 0)
        f->env[2] = f->env_offer; /* without it the job says so */
}

/* Its answer to our offer, if it is in the log by now. */
static void look_for_answer(struct bridge_job *f)
{
    struct ms_offer answer;
    struct ms_error err = {0};
    const char *log = ms_buf_str(&f->log);

    if (!log || ms_offer_find(log, &answer) < 0)
        return;
    ms_buf_finish(&f->log);
    if (ms_offer_secret(&f->keys, answer.public_key, f->wire.secret) < 0) {
        ms_error_set(&err, -EPROTO, "the bridge's answer in the job's log is wrong");
        ms_ray_job_stop(f->job);
        down(f, &err);
        return;
    }
    ms_offer_keys_wipe(&f->keys);
    if (f->options->dialling != MS_RAY_BRIDGE_DIALS)
        strcpy(f->state.bridge_at, answer.addresses);
    memcpy(f->state.secret, f->wire.secret, sizeof f->state.secret);
    ms_bridge_state_write(f->options, &f->state);
    OPENSSL_cleanse(f->state.secret, sizeof f->state.secret);
    connect_now(f);
}

static void on_log(void *arg, const char *text, size_t len)
{
    struct bridge_job *f = arg;

    if (f->options->on_log)
        f->options->on_log(f->options->log_arg, text, len);
    if (f->has_secret || f->is_over)
        return;
    ms_buf_append(&f->log, text, len);
    look_for_answer(f);
    if (f->log.len > LOG_KEPT)
        ms_buf_consume(&f->log, f->log.len - LOG_KEPT);
}

/* The bridge of the controller before is gone, and with it what it held: a new one. */
static int begin_anew(struct bridge_job *f, struct ms_error *err)
{
    f->is_adopted = f->has_secret = false;
    f->state.bridge_at[0] = 0;
    ms_timer_cancel(&f->first);
    ms_wire_disconnect(&f->wire);
    ms_bridge_state_remove(f->options);
    ms_ray_job_leave(MS_TAKE(f->job));
    return begin(f, err);
}

static void on_job_ended(void *arg, int rc, int exit_code, const struct ms_error *why)
{
    struct bridge_job *f = arg;
    struct ms_error said = {0};

    (void)exit_code;
    ms_error_set(&said, -ECHILD, "the bridge on Ray has ended");
    if (rc < 0)
        said = *why;
    if (f->is_adopted && !f->was_up && !f->is_over &&
        (rc == 0 || rc == -ECHILD || rc == -ECANCELED) && begin_anew(f, &said) == 0)
        return;
    down(f, &said);
}

static int listen_here(struct bridge_job *f, struct ms_error *err)
{
    if (f->options->dialling == MS_RAY_CONTROLLER_DIALS || f->listen_fd >= 0)
        return 0;
    f->listen_fd = ms_tcp_listen("*", &f->state.port, err);
    return f->listen_fd < 0 ? f->listen_fd : 0;
}

static int open_job(struct bridge_job *f, struct ms_error *err)
{
    static const struct ms_ray_job_events events = {
        .on_submitting = on_submitting, .on_log = on_log, .on_ended = on_job_ended};

    snprintf(
        f->env_name, sizeof f->env_name, MS_BRIDGE_NAME_ENV "=%s", f->options->name);
    snprintf(f->env_grace,
             sizeof f->env_grace,
             MS_BRIDGE_GRACE_ENV "=%.3f",
             (double)f->options->grace_ns / (double)MS_NS_PER_S);
    f->env[0] = f->env_name;
    f->env[1] = f->env_grace;
    f->env[2] = NULL;
    f->job = ms_ray_job_create(&(struct ms_ray_job_spec){.loop = f->options->loop,
                                                         .site = f->options->site,
                                                         .id = f->state.job,
                                                         .entrypoint = ENTRYPOINT,
                                                         .env = f->env,
                                                         .polite_ns = POLITE_NS,
                                                         .is_there = f->is_adopted},
                               &events,
                               f,
                               err);
    return f->job ? 0 : err && err->code ? err->code : -ENOMEM;
}

/* A new job. */
static int begin(struct bridge_job *f, struct ms_error *err)
{
    int rc;

    f->state.port = 0;
    rc = listen_here(f, err);
    snprintf(f->state.job,
             sizeof f->state.job,
             "muster-%s-%016llx",
             f->options->name,
             (unsigned long long)ms_random_id());
    if (rc == 0 && ms_offer_keys_make(&f->keys) < 0)
        rc = ms_error_set(err, -EIO, "cannot make keys");
    return rc < 0 ? rc : open_job(f, err);
}

/* The job of the controller before, if it left one. */
static int resume(struct bridge_job *f, struct ms_error *err)
{
    int rc;

    if (ms_bridge_state_read(f->options, &f->state) < 0)
        return begin(f, err);
    f->is_adopted = true;
    memcpy(f->wire.secret, f->state.secret, sizeof f->wire.secret);
    OPENSSL_cleanse(f->state.secret, sizeof f->state.secret);
    rc = listen_here(f, NULL); /* if another has it now: we can still dial */
    if (rc < 0 && !f->state.bridge_at[0])
        return ms_error_set(err, rc, "the port that the bridge dials is taken");
    rc = open_job(f, err);
    if (rc == 0)
        connect_now(f);
    return rc;
}

/* ---- the transport ------------------------------------------------------------------- */

static int send_line(struct ms_bridge_transport *c, const char *line, size_t len)
{
    struct bridge_job *f = (struct bridge_job *)c;

    if (len > MS_CONTROL_MAX / 2)
        return -EMSGSIZE;
    return f->is_over ? -EPIPE : ms_wire_send(&f->wire, line, len);
}

static void destroy(struct ms_bridge_transport *c, bool keep, int64_t until_ns)
{
    struct bridge_job *f = (struct bridge_job *)c;
    bool leave = keep && f->has_secret && !f->is_over;

    f->is_over = true;
    ms_wire_finish(&f->wire);
    ms_fd_close(&f->listen_fd);
    ms_timer_finish(&f->first);
    if (!leave)
        ms_bridge_state_remove(f->options);
    if (leave)
        ms_ray_job_leave(f->job);
    else
        ms_ray_job_destroy(f->job, until_ns);
    ms_buf_finish(&f->log);
    ms_offer_keys_wipe(&f->keys);
    free(f->env_offer);
    free(f);
}

void ms_bridge_job_cut(struct ms_bridge_transport *c)
{
    ms_wire_cut(&((struct bridge_job *)c)->wire);
}

struct ms_bridge_transport *
ms_bridge_open_job(const struct ms_ray_options *o,
                   const struct ms_bridge_transport_events *events,
                   void *arg,
                   struct ms_error *err)
{
    static const struct ms_bridge_transport_ops ops = {send_line, destroy};
    static const struct ms_wire_events wire_events = {on_up, on_lost, on_line};
    struct bridge_job *f = calloc(1, sizeof *f);

    if (!f) {
        ms_error_set(err, -ENOMEM, "out of memory");
        return NULL;
    }
    *f = (struct bridge_job){
        .base.ops = &ops, .options = o, .events = events, .arg = arg, .listen_fd = -1};
    if (ms_wire_init(&f->wire, o->loop, &wire_events, f) < 0 ||
        ms_timer_init(&f->first, o->loop, on_first, f) < 0)
        ms_error_set(err, -ENOMEM, "out of memory");
    else {
        f->wire.is_controller = true;
        ms_relay_begin(&f->wire.relay, ms_random_id());
        if (resume(f, err) == 0)
            return &f->base;
    }
    destroy(&f->base, false, 0);
    return NULL;
}
