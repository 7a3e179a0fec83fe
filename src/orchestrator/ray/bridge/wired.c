/* wired.c - a bridge that is reached over a wire: the controller's end of it */
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/name.h"
#include "io/tcp.h"
#include "orchestrator/ray/bridge/bridge.h"
#include "orchestrator/ray/bridge/home.h"
#include "orchestrator/ray/bridge/offer.h"
#include "orchestrator/ray/bridge/state.h"
#include "orchestrator/ray/bridge/transport.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <string.h>

#define POLITE_NS                                                                      \
    (6 * MS_NS_PER_S) /* the bridge's time to release before it is stopped */
#define ENTRYPOINT "chmod +x bin/muster; exec bin/muster bridge"

enum { LOG_KEPT = 64 << 10 };

struct wired {
    struct ms_bridge_transport base;
    const struct ms_ray_options *options;
    const struct ms_bridge_transport_events *events;
    void *arg;
    const struct ms_bridge_home *home;
    void *at;                     /* there */
    struct ms_bridge_state state; /* without the secret, which the wire has */
    struct ms_offer_keys keys;
    bool has_secret, is_adopted, was_up, is_over;
    char reached_by[MS_ADDR_LIST_MAX + 1]; /* where the bridge finds us */
    struct ms_buf log;                     /* until the answer is found in it */
    int listen_fd;
    struct ms_wire wire;
    struct ms_timer first;
    char env_name[128], env_grace[64], *env_offer;
    const char *env[4]; /* of the job: those */
};

static int begin(struct wired *b, struct ms_error *err);

/* ---- the end ----------------------------------------------------------------------- */

static void down(struct wired *b, const struct ms_error *why)
{
    struct ms_error said = *why;

    if (b->is_over)
        return;
    b->is_over = true;
    ms_timer_cancel(&b->first);
    ms_wire_disconnect(&b->wire);
    ms_bridge_state_remove(b->options);
    b->events->on_down(b->arg, &said);
}

/* The job runs, and nobody has connected. */
static void on_first(void *arg)
{
    struct wired *b = arg;
    struct ms_error why = {0};

    ms_error_set(&why,
                 -EHOSTUNREACH,
                 "the bridge runs on Ray, but it and this machine do not reach each "
                 "other: it tried %.150s, and we tried %.150s",
                 b->reached_by[0] ? b->reached_by : "nothing",
                 b->wire.peer_at[0] ? b->wire.peer_at : "nothing");
    b->home->stop(b->at);
    down(b, &why);
}

/* ---- the wire ---------------------------------------------------------------------- */

static void on_up(void *arg, bool is_new)
{
    struct wired *b = arg;

    (void)is_new;
    b->was_up = true;
    ms_timer_cancel(&b->first);
    b->events->on_silent(b->arg, NULL);
}

static void on_lost(void *arg, bool has_ended, const struct ms_error *why)
{
    struct wired *b = arg;
    struct ms_error said = {0};

    (void)has_ended; /* its job says that */
    ms_error_set(&said, why->code, "the bridge on Ray %s", why->text);
    b->events->on_silent(b->arg, &said);
    b->home->look(b->at); /* perhaps it has ended */
}

static void on_line(void *arg, const char *line, size_t len)
{
    struct wired *b = arg;

    b->events->on_line(b->arg, line, len);
}

/* The secret is known: connect, in whatever ways there are. */
static void connect_now(struct wired *b)
{
    b->has_secret = true;
    snprintf(b->wire.peer_at, sizeof b->wire.peer_at, "%s", b->state.bridge_at);
    ms_timer_set(&b->first, MS_BRIDGE_FIRST_NS);
    ms_wire_connect(&b->wire, MS_TAKE_FD(b->listen_fd));
}

/* ---- the job ----------------------------------------------------------------------- */

/* On the job's thread: until the bridge's answer has come nobody else looks at these. */
static void on_submitting(void *arg, const char *local)
{
    struct wired *b = arg;
    MS_CLEANUP(ms_cleanup_free) char *offer = NULL;

    if (b->listen_fd >= 0)
        ms_wire_addresses(b->reached_by, local, b->state.port);
    offer = ms_offer_print(b->keys.public_key, b->reached_by);
    free(MS_TAKE(b->env_offer));
    if (offer && asprintf(&b->env_offer, MS_OFFER_ENV "=%s", offer) >= 0)
        b->env[2] = b->env_offer; /* without it the job says so */
}

/* Its answer to our offer, if it is in the log by now. */
static void look_for_answer(struct wired *b)
{
    struct ms_offer answer;
    struct ms_error err = {0};
    const char *log = ms_buf_str(&b->log);

    if (!log || ms_offer_find(log, &answer) < 0)
        return;
    ms_buf_finish(&b->log);
    if (ms_offer_secret(&b->keys, answer.public_key, b->wire.secret) < 0) {
        ms_error_set(&err, -EPROTO, "the bridge's answer in the job's log is wrong");
        b->home->stop(b->at);
        down(b, &err);
        return;
    }
    ms_offer_keys_wipe(&b->keys);
    if (b->options->dialling != MS_RAY_BRIDGE_DIALS)
        strcpy(b->state.bridge_at, answer.addresses);
    memcpy(b->state.secret, b->wire.secret, sizeof b->state.secret);
    ms_bridge_state_write(b->options, &b->state);
    OPENSSL_cleanse(b->state.secret, sizeof b->state.secret);
    connect_now(b);
}

static void on_log(void *arg, const char *text, size_t len)
{
    struct wired *b = arg;

    if (b->options->on_log)
        b->options->on_log(b->options->log_arg, text, len);
    if (b->has_secret || b->is_over)
        return;
    ms_buf_append(&b->log, text, len);
    look_for_answer(b);
    if (b->log.len > LOG_KEPT)
        ms_buf_consume(&b->log, b->log.len - LOG_KEPT);
}

/* The bridge of the controller before is gone, and with it what it held: a new one. */
static int begin_anew(struct wired *b, struct ms_error *err)
{
    b->is_adopted = b->has_secret = false;
    b->state.bridge_at[0] = 0;
    ms_timer_cancel(&b->first);
    ms_wire_disconnect(&b->wire);
    ms_bridge_state_remove(b->options);
    b->home->leave(MS_TAKE(b->at));
    return begin(b, err);
}

static void on_job_ended(void *arg, int rc, int exit_code, const struct ms_error *why)
{
    struct wired *b = arg;
    struct ms_error said = {0};

    (void)exit_code;
    ms_error_set(&said, -ECHILD, "the bridge on Ray has ended");
    if (rc < 0)
        said = *why;
    if (b->is_adopted && !b->was_up && !b->is_over &&
        (rc == 0 || rc == -ECHILD || rc == -ECANCELED) && begin_anew(b, &said) == 0)
        return;
    down(b, &said);
}

static int listen_here(struct wired *b, struct ms_error *err)
{
    if (b->options->dialling == MS_RAY_CONTROLLER_DIALS || b->listen_fd >= 0)
        return 0;
    b->listen_fd = ms_tcp_listen("*", &b->state.port, err);
    return b->listen_fd < 0 ? b->listen_fd : 0;
}

static int open_there(struct wired *b, struct ms_error *err)
{
    static const struct ms_ray_job_events events = {
        .on_submitting = on_submitting, .on_log = on_log, .on_ended = on_job_ended};

    snprintf(
        b->env_name, sizeof b->env_name, MS_BRIDGE_NAME_ENV "=%s", b->options->name);
    snprintf(b->env_grace,
             sizeof b->env_grace,
             MS_BRIDGE_GRACE_ENV "=%.3f",
             (double)b->options->grace_ns / (double)MS_NS_PER_S);
    b->env[0] = b->env_name;
    b->env[1] = b->env_grace;
    b->env[2] = NULL;
    b->at = b->home->create(&(struct ms_ray_job_spec){.loop = b->options->loop,
                                                      .site = b->options->site,
                                                      .id = b->state.job,
                                                      .entrypoint = ENTRYPOINT,
                                                      .env = b->env,
                                                      .polite_ns = POLITE_NS,
                                                      .is_there = b->is_adopted},
                            &events,
                            b,
                            err);
    if (!b->at)
        return err && err->code ? err->code : -ENOMEM;
    if (b->home->name)
        snprintf(b->state.job, sizeof b->state.job, "%s", b->home->name(b->at));
    return 0;
}

/* A new bridge. */
static int begin(struct wired *b, struct ms_error *err)
{
    int rc;

    b->state.port = 0;
    rc = listen_here(b, err);
    snprintf(b->state.job,
             sizeof b->state.job,
             "muster-%s-%016llx",
             b->options->name,
             (unsigned long long)ms_random_id());
    if (rc == 0 && ms_offer_keys_make(&b->keys) < 0)
        rc = ms_error_set(err, -EIO, "cannot make keys");
    return rc < 0 ? rc : open_there(b, err);
}

/* That of the controller before, if it left one. */
static int resume(struct wired *b, struct ms_error *err)
{
    int rc;

    if (ms_bridge_state_read(b->options, &b->state) < 0)
        return begin(b, err);
    b->is_adopted = true;
    memcpy(b->wire.secret, b->state.secret, sizeof b->wire.secret);
    OPENSSL_cleanse(b->state.secret, sizeof b->state.secret);
    rc = listen_here(b, NULL); /* if another has it now: we can still dial */
    if (rc < 0 && !b->state.bridge_at[0])
        return ms_error_set(err, rc, "the port that the bridge dials is taken");
    rc = open_there(b, err);
    if (rc == 0)
        connect_now(b);
    return rc;
}

/* ---- the transport ------------------------------------------------------------------- */

static int send_line(struct ms_bridge_transport *c, const char *line, size_t len)
{
    struct wired *b = (struct wired *)c;

    if (len > MS_CONTROL_MAX / 2)
        return -EMSGSIZE;
    return b->is_over ? -EPIPE : ms_wire_send(&b->wire, line, len);
}

static void destroy(struct ms_bridge_transport *c, bool keep, int64_t until_ns)
{
    struct wired *b = (struct wired *)c;
    bool was_over = b->is_over, leave = keep && b->has_secret && !was_over;

    b->is_over = true;
    ms_wire_finish(&b->wire);
    ms_fd_close(&b->listen_fd);
    ms_timer_finish(&b->first);
    if (!leave && !was_over) /* else the state is that of the bridge after it */
        ms_bridge_state_remove(b->options);
    if (leave)
        b->home->leave(b->at);
    else
        b->home->destroy(b->at, until_ns);
    ms_buf_finish(&b->log);
    ms_offer_keys_wipe(&b->keys);
    free(b->env_offer);
    free(b);
}

void ms_bridge_wire_cut(struct ms_bridge_transport *c)
{
    ms_wire_cut(&((struct wired *)c)->wire);
}

static struct ms_bridge_transport *
open_home(const struct ms_bridge_home *home,
          const struct ms_ray_options *o,
          const struct ms_bridge_transport_events *events,
          void *arg,
          struct ms_error *err)
{
    static const struct ms_bridge_transport_ops ops = {send_line, destroy};
    static const struct ms_wire_events wire_events = {on_up, on_lost, on_line};
    struct wired *b = calloc(1, sizeof *b);

    if (!b) {
        ms_error_set(err, -ENOMEM, "out of memory");
        return NULL;
    }
    *b = (struct wired){.base.ops = &ops,
                        .home = home,
                        .options = o,
                        .events = events,
                        .arg = arg,
                        .listen_fd = -1};
    if (ms_wire_init(&b->wire, o->loop, &wire_events, b) < 0 ||
        ms_timer_init(&b->first, o->loop, on_first, b) < 0)
        ms_error_set(err, -ENOMEM, "out of memory");
    else {
        b->wire.is_controller = true;
        ms_relay_begin(&b->wire.relay, ms_random_id());
        if (resume(b, err) == 0)
            return &b->base;
    }
    destroy(&b->base, false, 0);
    return NULL;
}

/* ---- its homes --------------------------------------------------------------------- */

static void *create_job(const struct ms_ray_job_spec *spec,
                        const struct ms_ray_job_events *events,
                        void *arg,
                        struct ms_error *err)
{
    return ms_ray_job_create(spec, events, arg, err);
}

static void stop_job(void *job)
{
    ms_ray_job_stop(job);
}

static void look_at_job(void *job)
{
    ms_ray_job_look(job);
}

static void leave_job(void *job)
{
    ms_ray_job_leave(job);
}

static void destroy_job(void *job, int64_t until_ns)
{
    ms_ray_job_destroy(job, until_ns);
}

struct ms_bridge_transport *
ms_bridge_open_job(const struct ms_ray_options *o,
                   const struct ms_bridge_transport_events *events,
                   void *arg,
                   struct ms_error *err)
{
    static const struct ms_bridge_home in_job = {.create = create_job,
                                                 .stop = stop_job,
                                                 .look = look_at_job,
                                                 .leave = leave_job,
                                                 .destroy = destroy_job};

    return open_home(&in_job, o, events, arg, err);
}

struct ms_bridge_transport *
ms_bridge_open_beside(const struct ms_ray_options *o,
                      const struct ms_bridge_transport_events *events,
                      void *arg,
                      struct ms_error *err)
{
    return open_home(&ms_bridge_beside, o, events, arg, err);
}
