#include "base/buf.h"
#include "base/cleanup.h"
#include "base/name.h"
#include "io/tcp.h"
#include "orchestrator/ray/bridge.h"
#include "orchestrator/ray/carrier.h"
#include "orchestrator/ray/far_state.h"
#include "orchestrator/ray/job.h"
#include "orchestrator/ray/offer.h"
#include "orchestrator/ray/wire.h"
#include "wire/server/server.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <string.h>

/* A bridge in a job on a cluster: the controller's end of its wire. */

#define POLITE_NS                                                                      \
    (6 * MS_NS_PER_S) /* the bridge's time to release before it is stopped */
#define ENTRYPOINT "chmod +x bin/muster; exec bin/muster bridge"

enum { LOG_KEPT = 64 << 10, HOSTS_MAX = 4 };

struct far {
    struct ms_carrier base;
    const struct ms_ray_options *options;
    const struct ms_carrier_events *events;
    void *arg;
    struct ms_ray_job *job;
    char id[MS_NAME_MAX + 32];
    struct ms_offer_keys keys;
    uint8_t secret[MS_OFFER_KEY];
    bool has_secret, is_adopted, was_attached, is_silent, is_over;
    char reached_by[MS_ADDR_LIST_MAX + 1]; /* where the bridge finds us */
    char bridge_at[MS_ADDR_LIST_MAX + 1];  /* where we find it */
    struct ms_buf log;                     /* until the answer is found in it */
    int listen_fd;
    uint16_t port;
    struct ms_server *server;
    struct ms_list ends;  /* connections, and those to be */
    struct end *attached; /* the one in use */
    struct ms_relay relay;
    struct ms_timer redial, first, quiet;
};

/* One connection. */
struct end {
    struct ms_list link;
    struct far *far;
    struct ms_link *wire;
    bool is_dialling;
};

static int begin(struct far *f, struct ms_error *err);

/* ---- silence and the end ----------------------------------------------------------- */

static void set_silent(struct far *f, const struct ms_error *why)
{
    if (f->is_silent == (why != NULL))
        return;
    f->is_silent = why != NULL;
    f->events->on_silent(f->arg, why);
}

static void down(struct far *f, const struct ms_error *why)
{
    struct ms_error said = *why;

    if (f->is_over)
        return;
    f->is_over = true;
    ms_timer_cancel(&f->first);
    ms_timer_cancel(&f->redial);
    ms_timer_cancel(&f->quiet);
    ms_far_state_remove(f->options);
    f->events->on_down(f->arg, &said);
}

/* The job runs, and nobody has connected. */
static void on_first(void *arg)
{
    struct far *f = arg;
    struct ms_error why = {0};

    ms_error_set(&why,
                 -EHOSTUNREACH,
                 "the bridge runs on Ray, but it and this machine do not reach each "
                 "other: it tried %.150s, and we tried %.150s",
                 f->reached_by[0] ? f->reached_by : "nothing",
                 f->bridge_at[0] ? f->bridge_at : "nothing");
    ms_ray_job_stop(f->job);
    down(f, &why);
}

/* ---- connections ------------------------------------------------------------------- */

static void end_free(struct end *e)
{
    if (e->far->attached == e)
        e->far->attached = NULL;
    ms_list_remove(&e->link);
    ms_link_destroy(e->wire);
    free(e);
}

static bool is_well(const struct far *f)
{
    return f->attached && !ms_link_is_suspect(f->attached->wire);
}

static void on_body(void *arg, const uint8_t *body, size_t len)
{
    struct end *e = arg;
    struct far *f = e->far;
    Muster__BridgeMessage *m = muster__bridge_message__unpack(NULL, len, body);

    if (!m || f->attached != e || f->is_over) {
        if (m)
            muster__bridge_message__free_unpacked(m, NULL);
        return;
    }
    ms_relay_acked(&f->relay, m->heard);
    if (m->instance != 0) { /* it knows us: what it has not heard goes again */
        ms_wire_send_kept(e->wire, &f->relay);
        set_silent(f, NULL);
    }
    if (m->number != 0) {
        bool is_next = ms_relay_take(&f->relay, m->number);
        MS_CLEANUP(ms_cleanup_free)
        char *line = is_next ? strndup((char *)m->line.data, m->line.len) : NULL;

        ms_wire_ack(e->wire, &f->relay);
        if (line)
            f->events->on_line(f->arg, line, strlen(line));
    }
    muster__bridge_message__free_unpacked(m, NULL);
}

static void on_closed(void *arg, const struct ms_error *why)
{
    struct end *e = arg;
    struct far *f = e->far;
    bool was_attached = f->attached == e, was_dialling = e->is_dialling;
    struct ms_error said = *why;

    end_free(e);
    if (f->is_over)
        return;
    if (was_attached) {
        ms_timer_cancel(&f->quiet);
        ms_error_wrap(&said, "the bridge on Ray cannot be reached");
        set_silent(f, &said);
        ms_ray_job_look(f->job); /* perhaps it has ended */
    }
    if (was_attached || was_dialling)
        ms_timer_set(&f->redial, was_attached ? MS_REDIAL_MIN_NS : MS_REDIAL_MAX_NS);
}

static void on_suspect(void *arg, bool is_suspect)
{
    struct end *e = arg;
    struct far *f = e->far;
    struct ms_error why = {0};

    if (f->attached != e || f->is_over)
        return;
    if (!is_suspect) {
        ms_timer_cancel(&f->quiet);
        set_silent(f, NULL);
        return;
    }
    ms_error_set(&why, -EAGAIN, "the bridge on Ray is silent");
    ms_timer_set(&f->quiet, MS_BRIDGE_QUIET_NS);
    ms_timer_set(&f->redial, 0);
    set_silent(f, &why);
}

/* It was silent for too long. */
static void on_quiet(void *arg)
{
    struct far *f = arg;

    if (f->attached)
        end_free(f->attached);
    ms_ray_job_look(f->job);
    ms_timer_set(&f->redial, 0);
}

/* A connection is there: the first one is taken. */
static void on_open(void *arg)
{
    struct end *e = arg;
    struct far *f = e->far;

    e->is_dialling = false;
    if (is_well(f) || f->is_over) {
        end_free(e);
        return;
    }
    if (f->attached)
        end_free(f->attached);
    f->attached = e;
    f->was_attached = true;
    ms_timer_cancel(&f->first);
    ms_timer_cancel(&f->quiet);
    ms_wire_greet(e->wire, &f->relay);
}

static const struct ms_link_ops link_ops = {
    .on_body = on_body,
    .on_closed = on_closed,
    .on_open = on_open,
    .on_suspect = on_suspect,
};

static struct end *end_create(struct far *f)
{
    struct end *e = calloc(1, sizeof *e);

    if (!e)
        return NULL;
    e->far = f;
    ms_list_add_tail(&f->ends, &e->link);
    return e;
}

static void on_link(void *arg, struct ms_link *wire)
{
    struct end *e = end_create(arg);

    if (!e) {
        ms_link_destroy(wire);
        return;
    }
    e->wire = wire;
    ms_link_accept(wire, &link_ops, e);
    on_open(e);
}

static void on_redial(void *arg)
{
    struct far *f = arg;
    struct end *e;

    if (!f->bridge_at[0] || f->is_over || is_well(f))
        return;
    ms_list_each (other, &f->ends, struct end, link)
        if (other->is_dialling)
            return;
    if (!(e = end_create(f)))
        return;
    e->is_dialling = true;
    e->wire = ms_link_dial(
        f->options->loop,
        &(struct ms_link_dial){.addresses = f->bridge_at,
                               .secret = f->secret,
                               .tls = MS_TLS_ON,
                               .deadline_ns = ms_now_ns() + MS_BRIDGE_FIRST_NS,
                               .is_patient = true},
        &link_ops,
        e,
        NULL);
    if (!e->wire)
        end_free(e);
}

/* The secret is known: connect, in whatever ways there are. */
static int connect_now(struct far *f)
{
    static const struct ms_server_ops ops = {.on_link = on_link};

    f->has_secret = true;
    ms_timer_set(&f->first, MS_BRIDGE_FIRST_NS);
    if (f->listen_fd >= 0) {
        f->server =
            ms_server_create(&(struct ms_server_options){.loop = f->options->loop,
                                                         .secret = f->secret,
                                                         .tls = MS_TLS_ON,
                                                         .ops = &ops,
                                                         .arg = f});
        if (!f->server || ms_server_listen(f->server, MS_TAKE_FD(f->listen_fd)) < 0)
            return -ENOMEM;
    }
    on_redial(f);
    return 0;
}

/* ---- the job ----------------------------------------------------------------------- */

/* Our addresses, the one that Ray has seen first. */
static void fill_reached_by(struct far *f, const char *local)
{
    char hosts[HOSTS_MAX][MS_HOST_MAX + 1];
    int count = ms_host_addresses(hosts, HOSTS_MAX);
    struct ms_addr given;
    size_t used = 0;

    if (f->listen_fd < 0)
        return;
    if (f->options->listen &&
        ms_addr_parse_listen(f->options->listen, &given, NULL) == 0 && given.name[0] &&
        strcmp(given.name, "*") != 0) {
        snprintf(f->reached_by,
                 sizeof f->reached_by,
                 strchr(given.name, ':') ? "[%s]:%u" : "%s:%u",
                 given.name,
                 f->port);
        return;
    }
    for (int i = -1; i < count; i++) {
        const char *host = i < 0 ? local : hosts[i];

        if (!host[0] || (i >= 0 && strcmp(host, local) == 0))
            continue;
        used += (size_t)snprintf(f->reached_by + used,
                                 sizeof f->reached_by - used,
                                 strchr(host, ':') ? "%s[%s]:%u" : "%s%s:%u",
                                 used ? "," : "",
                                 host,
                                 f->port);
    }
}

static void on_submitting(void *arg, const char *local)
{
    struct far *f = arg;
    MS_CLEANUP(ms_cleanup_free) char *offer = NULL;
    MS_CLEANUP(ms_buf_finish) struct ms_buf entry = {0};

    fill_reached_by(f, local);
    offer = ms_offer_print(f->keys.public_key, f->reached_by);
    if (offer && ms_buf_printf(&entry, MS_OFFER_ENV "=%s", offer) == 0 &&
        ms_buf_str(&entry))
        ms_ray_job_set_env(f->job, ms_buf_str(&entry)); /* without it the job says so */
}

/* Its answer to our offer, if it is in the log by now. */
static void look_for_answer(struct far *f)
{
    struct ms_offer answer;
    struct ms_error err = {0};
    const char *log = ms_buf_str(&f->log);

    if (!log || ms_offer_find(log, &answer) < 0)
        return;
    ms_buf_finish(&f->log);
    if (ms_offer_secret(&f->keys, answer.public_key, f->secret) < 0) {
        ms_error_set(&err, -EPROTO, "the bridge's answer in the job's log is wrong");
        ms_ray_job_stop(f->job);
        down(f, &err);
        return;
    }
    ms_offer_keys_wipe(&f->keys);
    if (f->options->way != MS_RAY_DIALLED)
        snprintf(f->bridge_at, sizeof f->bridge_at, "%s", answer.addresses);
    ms_far_state_write(f->options,
                       &(struct ms_far_state){.id = f->id,
                                              .secret = f->secret,
                                              .bridge_at = f->bridge_at,
                                              .port = f->port});
    connect_now(f);
}

static void on_log(void *arg, const char *text, size_t len)
{
    struct far *f = arg;

    if (f->options->on_log)
        f->options->on_log(f->options->log_arg, text, len);
    if (f->has_secret || f->is_over)
        return;
    ms_buf_append(&f->log, text, len);
    look_for_answer(f);
    if (f->log.len > LOG_KEPT)
        ms_buf_consume(&f->log, f->log.len - LOG_KEPT);
}

static void on_job_ended(void *arg, int rc, int exit_code, const struct ms_error *why)
{
    struct far *f = arg;
    struct ms_error said = {0};

    (void)exit_code;
    ms_error_set(&said, -ECHILD, "the bridge on Ray has ended");
    if (rc < 0)
        said = *why;
    if (f->is_adopted && !f->was_attached && !f->is_over &&
        (rc == 0 || rc == -ECHILD || rc == -ECANCELED)) {
        /* that of the controller before is gone, and with it what it held */
        f->is_adopted = false;
        f->has_secret = false;
        f->bridge_at[0] = 0;
        ms_timer_cancel(&f->first);
        ms_timer_cancel(&f->redial);
        ms_list_each (e, &f->ends, struct end, link)
            end_free(e); /* that dials a bridge that is no more */
        if (f->server)
            ms_server_destroy(MS_TAKE(f->server));
        ms_far_state_remove(f->options);
        ms_ray_job_leave(MS_TAKE(f->job));
        if (begin(f, &said) == 0)
            return;
    }
    down(f, &said);
}

static const struct ms_ray_job_events job_events = {
    .on_submitting = on_submitting, .on_log = on_log, .on_ended = on_job_ended};

static int listen_here(struct far *f, uint16_t port, struct ms_error *err)
{
    struct ms_addr at = {.name = "*"};

    if (f->options->way == MS_RAY_DIALS || f->listen_fd >= 0)
        return 0;
    if (f->options->listen && ms_addr_parse_listen(f->options->listen, &at, err) < 0)
        return -EINVAL;
    f->port = at.port ? at.port : port;
    f->listen_fd = ms_tcp_listen(at.name, &f->port, err);
    return f->listen_fd < 0 ? f->listen_fd : 0;
}

static int open_job(struct far *f, struct ms_error *err)
{
    char name[128], grace[64];
    const char *env[] = {name, grace, NULL};

    snprintf(name, sizeof name, MS_BRIDGE_NAME_ENV "=%s", f->options->name);
    snprintf(grace,
             sizeof grace,
             MS_BRIDGE_GRACE_ENV "=%.3f",
             (double)f->options->grace_ns / (double)MS_NS_PER_S);
    f->job = ms_ray_job_create(&(struct ms_ray_job_spec){.loop = f->options->loop,
                                                         .site = f->options->site,
                                                         .id = f->id,
                                                         .entrypoint = ENTRYPOINT,
                                                         .env = env,
                                                         .polite_ns = POLITE_NS,
                                                         .is_there = f->is_adopted},
                               &job_events,
                               f,
                               err);
    return f->job ? 0 : err && err->code ? err->code : -ENOMEM;
}

/* A new job. */
static int begin(struct far *f, struct ms_error *err)
{
    char random[17];
    uint64_t id = ms_random_id();
    int rc = listen_here(f, 0, err);

    ms_hex(&id, sizeof id, random);
    snprintf(f->id, sizeof f->id, "muster-%s-%s", f->options->name, random);
    if (rc == 0 && ms_offer_keys_make(&f->keys) < 0)
        rc = ms_error_set(err, -EIO, "cannot make keys");
    return rc < 0 ? rc : open_job(f, err);
}

/* The job of the controller before, if it left one. */
static int resume(struct far *f, struct ms_error *err)
{
    struct ms_far_state s;
    int rc = ms_far_state_read(f->options, &s);

    if (rc < 0)
        return begin(f, err);
    f->is_adopted = true;
    snprintf(f->id, sizeof f->id, "%s", s.id);
    snprintf(f->bridge_at, sizeof f->bridge_at, "%s", s.bridge_at);
    memcpy(f->secret, s.secret, sizeof f->secret);
    rc = listen_here(f, s.port, NULL); /* if another has it now: we can still dial */
    ms_far_state_finish(&s);
    if (rc < 0 && !f->bridge_at[0])
        return ms_error_set(err, rc, "the port that the bridge dials is taken");
    rc = open_job(f, err);
    return rc < 0 ? rc : connect_now(f);
}

/* ---- the carrier ------------------------------------------------------------------- */

static int far_send(struct ms_carrier *c, const char *line, size_t len)
{
    struct far *f = (struct far *)c;
    const struct ms_relayed *one;

    if (len > MS_CONTROL_MAX / 2)
        return -EMSGSIZE;
    one = f->is_over ? NULL : ms_relay_add(&f->relay, line, len);
    if (!one)
        return f->is_over ? -EPIPE : -ENOMEM;
    if (f->attached)
        ms_wire_send(f->attached->wire, &f->relay, one);
    return 0;
}

static void far_destroy(struct ms_carrier *c, bool keep, int64_t until_ns)
{
    struct far *f = (struct far *)c;
    bool leave = keep && f->has_secret && !f->is_over;

    f->is_over = true;
    if (f->attached)
        ms_link_drain(f->attached->wire, ms_now_ns() + MS_NS_PER_S);
    ms_list_each (e, &f->ends, struct end, link)
        end_free(e);
    if (f->server)
        ms_server_destroy(f->server);
    ms_fd_close(&f->listen_fd);
    ms_timer_finish(&f->redial);
    ms_timer_finish(&f->first);
    ms_timer_finish(&f->quiet);
    if (!leave)
        ms_far_state_remove(f->options);
    if (leave)
        ms_ray_job_leave(f->job);
    else
        ms_ray_job_destroy(f->job, until_ns);
    ms_relay_finish(&f->relay);
    ms_buf_finish(&f->log);
    ms_offer_keys_wipe(&f->keys);
    OPENSSL_cleanse(f->secret, sizeof f->secret);
    free(f);
}

void ms_far_cut(struct ms_carrier *c)
{
    struct far *f = (struct far *)c;

    if (f->attached)
        end_free(f->attached);
    ms_timer_set(&f->redial, MS_REDIAL_MIN_NS);
}

static int init(struct far *f, struct ms_error *err)
{
    struct ms_loop *loop = f->options->loop;
    int rc = ms_timer_init(&f->redial, loop, on_redial, f);

    if (rc == 0)
        rc = ms_timer_init(&f->first, loop, on_first, f);
    if (rc == 0)
        rc = ms_timer_init(&f->quiet, loop, on_quiet, f);
    return rc < 0 ? ms_error_sys(err, rc, "cannot make a bridge") : resume(f, err);
}

struct ms_carrier *ms_far_open(const struct ms_ray_options *o,
                               const struct ms_carrier_events *events,
                               void *arg,
                               struct ms_error *err)
{
    static const struct ms_carrier_ops ops = {far_send, far_destroy};
    struct far *f = calloc(1, sizeof *f);

    if (!f) {
        ms_error_set(err, -ENOMEM, "out of memory");
        return NULL;
    }
    f->base.ops = &ops;
    f->options = o;
    f->events = events;
    f->arg = arg;
    f->listen_fd = -1;
    ms_list_init(&f->ends);
    ms_buf_init(&f->log);
    ms_relay_init(&f->relay);
    ms_relay_begin(&f->relay, ms_random_id());
    if (init(f, err) == 0)
        return &f->base;
    far_destroy(&f->base, false, 0);
    return NULL;
}
