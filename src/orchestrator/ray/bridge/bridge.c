/* bridge.c - `muster bridge`: the process in the job, between the controller and Python */
#include "orchestrator/ray/bridge/bridge.h"

#include "base/cleanup.h"
#include "io/spawn.h"
#include "io/supervised.h"
#include "io/tcp.h"
#include "orchestrator/ray/bridge/child.h"
#include "orchestrator/ray/bridge/offer.h"
#include "orchestrator/ray/bridge/wire.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>

#define END_NS  (20 * MS_NS_PER_S) /* the child's time to release everything */
#define TERM_NS (2 * MS_NS_PER_S) /* the same when Ray stops the job: it kills at 3 s */

struct bridge {
    const struct ms_bridge_options *options;
    struct ms_loop *loop;
    struct ms_bridge_transport *child;
    struct ms_wire wire;
    char *hello; /* the child's first line; each new controller hears it */
    struct ms_timer alone, force;
    struct ms_watch signals, with;
    int signal_fd, with_fd; /* of who it ends with; -1: nobody */
    bool is_ending;
    int code;
};

/* ---- the end ----------------------------------------------------------------------- */

/* The child's input ends: it releases everything. */
static void end(struct bridge *b, int64_t within_ns, const char *why)
{
    if (why && !b->is_ending)
        fprintf(b->options->out, "muster bridge: %s\n", why);
    fflush(b->options->out);
    b->is_ending = true;
    ms_script_end(b->child);
    ms_timer_set(&b->force, within_ns);
}

static void on_force(void *arg)
{
    struct bridge *b = arg;

    b->code = 1;
    ms_loop_stop(b->loop);
}

static void on_signal(void *arg, unsigned events)
{
    struct bridge *b = arg;
    struct signalfd_siginfo info;

    (void)events;
    while (read(b->signal_fd, &info, sizeof info) == sizeof info)
        end(b, TERM_NS, "was told to end");
}

static void on_with_ended(void *arg, unsigned events)
{
    struct bridge *b = arg;

    (void)events;
    ms_watch_finish(&b->with);
    end(b, TERM_NS, "its job has ended");
}

static void on_child_ended(void *arg, const struct ms_error *why)
{
    struct bridge *b = arg;

    if (!b->is_ending && why->code < 0) {
        fprintf(b->options->out, "muster bridge: %s\n", why->text);
        fflush(b->options->out);
        b->code = 1;
    }
    ms_loop_stop(b->loop);
}

static void on_alone(void *arg)
{
    end(arg, END_NS, "its controller does not come (back): releasing everything");
}

/* ---- lines ------------------------------------------------------------------------- */

static void tell(struct bridge *b, const char *line, size_t len)
{
    if (ms_wire_send(&b->wire, line, len) < 0)
        end(b, END_NS, "too much waits for a controller that does not read");
}

static void on_child_line(void *arg, const char *line, size_t len)
{
    struct bridge *b = arg;

    if (!b->hello)
        b->hello = strndup(line, len);
    if (b->wire.relay.heard.asker != 0)
        tell(b, line, len); /* before there is a controller: it will ask for all */
}

static void on_line(void *arg, const char *line, size_t len)
{
    struct bridge *b = arg;

    b->child->ops->send(b->child, line, len);
}

/* ---- the controller ---------------------------------------------------------------- */

static void on_up(void *arg, bool is_new)
{
    struct bridge *b = arg;

    ms_timer_cancel(&b->alone);
    if (is_new && b->hello)
        tell(b, b->hello, strlen(b->hello));
}

/* Our controller is gone, or only the way to it. */
static void on_lost(void *arg, bool has_ended, const struct ms_error *why)
{
    struct bridge *b = arg;
    int64_t wait_ns = b->options->grace_ns;

    (void)why;
    if (b->is_ending)
        return;
    if (!has_ended && wait_ns < MS_BRIDGE_BROKEN_NS)
        wait_ns = MS_BRIDGE_BROKEN_NS;
    if (wait_ns == 0)
        end(b, END_NS, NULL);
    else
        ms_timer_set(&b->alone, wait_ns);
}

/* Answer the controller's offer, in our log, with where we listen; and dial it. */
static int agree(struct bridge *b)
{
    struct ms_offer_keys keys;
    struct ms_offer offer;
    char addresses[MS_ADDR_LIST_MAX + 1] = "";
    MS_CLEANUP(ms_cleanup_free) char *answer = NULL;
    struct ms_error err = {0};
    uint16_t port = 0;
    int fd;

    if (ms_offer_parse(b->options->offer, &offer, &err) < 0 ||
        ms_offer_keys_make(&keys) < 0 ||
        ms_offer_secret(&keys, offer.public_key, b->wire.secret) < 0) {
        fprintf(b->options->out,
                "muster bridge: there is no offer of a controller: %s\n",
                err.text);
        return -EINVAL;
    }
    fd = ms_tcp_listen("*", &port, NULL);
    strcpy(b->wire.peer_at, offer.addresses);
    if (ms_wire_connect(&b->wire, fd) == 0 && fd >= 0)
        ms_wire_addresses(
            addresses, "", port); /* else the controller is still dialled */
    answer = ms_offer_print(keys.public_key, addresses);
    ms_offer_keys_wipe(&keys);
    if (!answer)
        return -ENOMEM;
    fprintf(b->options->out, MS_OFFER_ANSWER " %s\n", answer);
    fflush(b->options->out);
    return 0;
}

/* ---- life -------------------------------------------------------------------------- */

static int watch_signals(struct bridge *b)
{
    sigset_t set;

    signal(SIGPIPE, SIG_IGN);
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    sigprocmask(SIG_BLOCK, &set, NULL);
    b->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return b->signal_fd < 0
               ? -errno
               : ms_watch_init(
                     &b->signals, b->loop, b->signal_fd, MS_READ, on_signal, b);
}

/* -ESRCH: it has ended already. */
static int watch_with(struct bridge *b)
{
    pid_t pid = b->options->with ? ms_supervisor_find(b->options->with) : 0;

    if (!b->options->with)
        return 0;
    b->with_fd = pid > 0 ? ms_process_open(pid) : -ESRCH;
    return b->with_fd < 0
               ? b->with_fd
               : ms_watch_init(
                     &b->with, b->loop, b->with_fd, MS_READ, on_with_ended, b);
}

static int begin(struct bridge *b)
{
    static const struct ms_wire_events wire_events = {on_up, on_lost, on_line};
    static const struct ms_bridge_transport_events events = {.on_line = on_child_line,
                                                             .on_down = on_child_ended};
    struct ms_error err = {0};
    int rc = ms_wire_init(&b->wire, b->loop, &wire_events, b);

    if (rc == 0)
        rc = agree(b);
    if (rc == 0)
        rc = watch_signals(b);
    if (rc == 0)
        rc = watch_with(b);
    if (rc == 0)
        rc = ms_timer_init(&b->alone, b->loop, on_alone, b);
    if (rc == 0)
        rc = ms_timer_init(&b->force, b->loop, on_force, b);
    if (rc < 0)
        return rc;
    b->child = ms_bridge_child_start(
        &(struct ms_bridge_child_spec){.loop = b->loop,
                                       .python = b->options->python,
                                       .script = b->options->script,
                                       .name = b->options->name,
                                       .grace_ns = b->options->grace_ns},
        &events,
        b,
        &err);
    if (!b->child) {
        fprintf(b->options->out, "muster bridge: %s\n", err.text);
        return err.code;
    }
    return ms_timer_set(&b->alone, MS_BRIDGE_FIRST_NS);
}

static void finish(struct bridge *b)
{
    ms_wire_finish(&b->wire);
    if (b->child)
        b->child->ops->destroy(b->child, false, ms_now_ns());
    ms_timer_finish(&b->alone);
    ms_timer_finish(&b->force);
    ms_watch_finish(&b->signals);
    ms_watch_finish(&b->with);
    ms_fd_close(&b->signal_fd);
    ms_fd_close(&b->with_fd);
    free(b->hello);
    ms_loop_destroy(b->loop);
}

int ms_bridge_run(const struct ms_bridge_options *o)
{
    struct bridge b = {
        .options = o, .signal_fd = -1, .with_fd = -1, .loop = ms_loop_create()};

    if (!b.loop)
        return 1;
    if (begin(&b) < 0 || ms_loop_run(b.loop) < 0)
        b.code = 1;
    finish(&b);
    fflush(o->out);
    return b.code;
}

int ms_bridge_run_by_env(FILE *out)
{
    const char *offer = getenv(MS_OFFER_ENV), *name = getenv(MS_BRIDGE_NAME_ENV),
               *grace = getenv(MS_BRIDGE_GRACE_ENV);
    double grace_s = grace ? strtod(grace, NULL) : 0;

    if (!offer || !name || !(grace_s >= 0 && grace_s < 1e9))
        return -EINVAL;
    return ms_bridge_run(
        &(struct ms_bridge_options){.offer = offer,
                                    .name = name,
                                    .grace_ns = (int64_t)(grace_s * 1e9),
                                    .with = getenv(MS_BRIDGE_WITH_ENV),
                                    .out = out});
}
