/* agent.c - the life of an agent, and its table of what a head can ask */
#include "agent/agent.h"
#include "agent/worker.h"
#include "io/proc.h"
#include "resource/shape.h"
#include "store/server/server.h"
#include "wire/spin.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>

/* ---- what it sends ---------------------------------------------------------------- */

void ms_agent_send(struct ms_agent *a,
                   uint64_t request,
                   Muster__AgentToHead__BodyCase body_case,
                   const void *body)
{
    Muster__AgentToHead m = MUSTER__AGENT_TO_HEAD__INIT;

    m.request = request;
    m.body_case = body_case;
    m.done = (Muster__Done *)(uintptr_t)body; /* a union of pointers */
    if (a->join)
        ms_join_send(a->join, request, &m);
    else if (a->link)
        ms_link_send(a->link, &m.base);
}

void ms_agent_done(struct ms_agent *a, uint64_t request)
{
    Muster__Done done = MUSTER__DONE__INIT;

    if (request)
        ms_agent_send(a, request, MUSTER__AGENT_TO_HEAD__BODY_DONE, &done);
}

void ms_agent_refuse(struct ms_agent *a,
                     uint64_t request,
                     Muster__Failure__Kind kind,
                     const char *message)
{
    Muster__Failure failure = MUSTER__FAILURE__INIT;

    ms_agent_log("refused: %s", message);
    if (!request)
        return;
    failure.kind = kind;
    failure.message = (char *)(uintptr_t)message;
    failure.where = a->node ? (char *)(uintptr_t)a->node : failure.where;
    ms_agent_send(a, request, MUSTER__AGENT_TO_HEAD__BODY_FAILURE, &failure);
}

/* ---- what the head wants --------------------------------------------------------- */

static void on_start(struct ms_agent *a, Muster__HeadToAgent *m)
{
    ms_start_begin(a, m->request, m->start->workers, m->start->n_workers, NULL, 0);
}

/* A cluster was resized or initialized: every process here can see that. */
static void on_cluster_changed(struct ms_agent *a, Muster__HeadToAgent *m)
{
    char path[PATH_MAX];
    struct ms_spin *page;

    snprintf(path, sizeof path, "%s/spin", a->config->session_dir);
    page = ms_spin_open(path);
    ms_spin_add_change(page);
    ms_spin_close(page);
    ms_agent_done(a, m->request);
}

static void on_keep_objects(struct ms_agent *a, Muster__HeadToAgent *m)
{
    const Muster__KeepObjects *k = m->keep_objects;

    if (a->store && k->is_end)
        ms_store_unkeep(a->store, k->holder);
    else if (a->store)
        (void)ms_store_keep(a->store, k->holder, k->cluster, k->names, k->n_names);
    ms_agent_done(a, m->request);
}

static void on_stop(struct ms_agent *a, Muster__HeadToAgent *m)
{
    ms_stop_begin(a, m->request, m->stop);
}

static void on_hold_port(struct ms_agent *a, Muster__HeadToAgent *m)
{
    Muster__PortHeld held = MUSTER__PORT_HELD__INIT;
    struct ms_error err = {0};
    uint16_t port;

    held.host = a->listen.hosts[0];
    if (ms_ports_hold(&a->ports, held.host, m->hold_port->owner, &port, &err) < 0) {
        ms_agent_refuse(a, m->request, MUSTER__FAILURE__KIND__REFUSED, err.text);
        return;
    }
    held.port = port;
    ms_agent_send(a, m->request, MUSTER__AGENT_TO_HEAD__BODY_PORT, &held);
}

static void on_drop_port(struct ms_agent *a, Muster__HeadToAgent *m)
{
    ms_ports_drop(&a->ports, m->drop_port->owner);
    ms_agent_done(a, m->request);
}

static void on_read_log(struct ms_agent *a, Muster__HeadToAgent *m)
{
    ms_log_readers_ask(&a->log_readers, m->request, m->read_log);
}

static void on_list_objects(struct ms_agent *a, Muster__HeadToAgent *m)
{
    uint32_t most = m->list_objects->most;
    Muster__StoreStats *stats =
        a->store ? ms_store_stats(a->store,
                                  most < MS_STORE_SHOWN_MAX ? most : MS_STORE_SHOWN_MAX)
                 : NULL;

    if (stats)
        ms_agent_send(a, m->request, MUSTER__AGENT_TO_HEAD__BODY_STORE, stats);
    else
        ms_agent_refuse(a,
                        m->request,
                        MUSTER__FAILURE__KIND__REFUSED,
                        a->store ? "out of memory" : "it has no store");
    muster__store_stats__free_unpacked(stats, NULL);
}

static void on_successor(struct ms_agent *a, Muster__HeadToAgent *m)
{
    ms_worker_tell_successor(a, m->successor);
}

static void on_shutdown(struct ms_agent *a, Muster__HeadToAgent *m)
{
    bool failed = m->shutdown->failed;

    if (failed && a->join)
        a->exit_code = 1;
    ms_stop_agent(a, m->request, failed ? "the driver has failed" : "the head said so");
}

/* The message is borrowed; a handler may take parts out of it. */
static const struct {
    Muster__HeadToAgent__BodyCase body_case;
    void (*handle)(struct ms_agent *a, Muster__HeadToAgent *m);
} handlers[] = {
    {MUSTER__HEAD_TO_AGENT__BODY_CONFIG, ms_agent_configure},
    {MUSTER__HEAD_TO_AGENT__BODY_START, on_start},
    {MUSTER__HEAD_TO_AGENT__BODY_FORK, ms_fork_begin},
    {MUSTER__HEAD_TO_AGENT__BODY_RUN_STEPS, ms_worker_run_steps},
    {MUSTER__HEAD_TO_AGENT__BODY_CHANGED, on_cluster_changed},
    {MUSTER__HEAD_TO_AGENT__BODY_KEEP_OBJECTS, on_keep_objects},
    {MUSTER__HEAD_TO_AGENT__BODY_STOP, on_stop},
    {MUSTER__HEAD_TO_AGENT__BODY_HOLD_PORT, on_hold_port},
    {MUSTER__HEAD_TO_AGENT__BODY_DROP_PORT, on_drop_port},
    {MUSTER__HEAD_TO_AGENT__BODY_PREPARE, ms_agent_prepare},
    {MUSTER__HEAD_TO_AGENT__BODY_DRIVER, ms_agent_add_driver},
    {MUSTER__HEAD_TO_AGENT__BODY_FORGET_DRIVER, ms_agent_forget_driver},
    {MUSTER__HEAD_TO_AGENT__BODY_READ_LOG, on_read_log},
    {MUSTER__HEAD_TO_AGENT__BODY_LIST_OBJECTS, on_list_objects},
    {MUSTER__HEAD_TO_AGENT__BODY_ASK_ACTIVITY, ms_activities_ask},
    {MUSTER__HEAD_TO_AGENT__BODY_SHUTDOWN, on_shutdown},
    {MUSTER__HEAD_TO_AGENT__BODY_SUCCESSOR, on_successor},
};

static void handle(struct ms_agent *a, Muster__HeadToAgent *m)
{
    bool is_config = m->body_case == MUSTER__HEAD_TO_AGENT__BODY_CONFIG;
    bool is_in_order = is_config == !a->config;

    for (size_t i = 0; i < MS_COUNT(handlers) && is_in_order; i++)
        if (handlers[i].body_case == m->body_case) {
            handlers[i].handle(a, m);
            return;
        }
    ms_agent_refuse(a,
                    m->request,
                    MUSTER__FAILURE__KIND__REFUSED,
                    is_in_order
                        ? "the agent does not understand this request: is it older?"
                    : is_config ? "the agent is configured already"
                                : "the agent must be configured first");
}

void ms_agent_read(struct ms_agent *a, Muster__HeadToAgent *m)
{
    if (!a->is_over)
        handle(a, m);
    muster__head_to_agent__free_unpacked(m, NULL);
}

static void on_body(void *arg, const uint8_t *body, size_t len)
{
    struct ms_agent *a = arg;
    Muster__HeadToAgent *m = muster__head_to_agent__unpack(NULL, len, body);

    if (!m)
        ms_agent_log("the head sent what is no message (%zu bytes)", len);
    else
        ms_agent_read(a, m);
}

static void on_link_closed(void *arg, const struct ms_error *why)
{
    struct ms_agent *a = arg;

    (void)why;
    ms_link_destroy(MS_TAKE(a->link));
    ms_agent_end(a, 0, "the head is gone");
}

static const struct ms_link_ops link_ops = {.on_body = on_body,
                                            .on_closed = on_link_closed};

/* ---- life ------------------------------------------------------------------------ */

/* One that was joined is stopped in order; who cannot wait says it twice. */
static void on_stop_signal(struct ms_agent *a)
{
    if (!a->join || a->is_stopping)
        ms_agent_end(a, 0, "SIGTERM was sent to it");
    else
        ms_stop_agent(a, 0, "a signal to stop was sent to it");
}

static void on_signal(void *arg, unsigned events)
{
    struct ms_agent *a = arg;
    struct signalfd_siginfo info[8];
    ssize_t n = read(a->signal_fd, info, sizeof info);

    (void)events;
    for (ssize_t i = 0; i < n / (ssize_t)sizeof info[0]; i++)
        if (info[i].ssi_signo != SIGCHLD)
            on_stop_signal(a);
    if (!a->is_over)
        ms_reap(a);
}

static int set_up_signals(struct ms_agent *a)
{
    /* the last two are of one that has a terminal */
    static const int heard[] = {SIGCHLD, SIGTERM, SIGINT, SIGHUP, 0};
    static const int heard_alone[] = {SIGCHLD, SIGTERM, 0};

    signal(SIGCHLD, SIG_DFL); /* ignored, it would hide how they ended */
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a log that may not grow is an error of its write */
    signal(SIGQUIT, SIG_IGN);
    if (a->link) {
        signal(SIGINT, SIG_IGN);
        signal(SIGHUP, SIG_IGN);
    }
    a->signal_fd = ms_signals_open(a->link ? heard_alone : heard, NULL);
    if (a->signal_fd < 0)
        return a->signal_fd;
    return ms_watch_init(&a->signals, a->loop, a->signal_fd, MS_READ, on_signal, a);
}

static void set_up_process(struct ms_agent *a, int link_fd, int lock_fd, int kept_fd)
{
    int keep[] = {link_fd, lock_fd, kept_fd};

    ms_proc_close_others(keep, MS_COUNT(keep));
    if (link_fd >= 0) {
        ms_fd_set_cloexec(link_fd, true);
        fcntl(link_fd, F_SETFL, O_NONBLOCK);
    }
    if (lock_fd >= 0)
        ms_fd_set_cloexec(lock_fd, true);
    if (kept_fd >= 0)
        ms_fd_set_cloexec(kept_fd, true);
    ms_proc_set_name("muster-agent");
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    ms_nofile_raise(&a->nofile);
}

int ms_agent_init(struct ms_agent *a, int link_fd, int lock_fd, int kept_fd)
{
    *a = (struct ms_agent){.lock_fd = lock_fd,
                           .signal_fd = -1,
                           .driver_fd = -1,
                           .supervisor_fd = -1,
                           .folder_fd = -1};
    set_up_process(a, link_fd, lock_fd, kept_fd);
    ms_map_init(&a->by_uid);
    ms_map_init(&a->by_pid);
    ms_list_init(&a->dead);
    ms_list_init(&a->starts);
    ms_list_init(&a->stops);
    ms_ports_init(&a->ports);
    ms_contexts_init(&a->contexts);
    ms_exits_init(&a->exits);
    ms_exits_init(&a->successor_asks);
    a->loop = ms_loop_create();
    if (ms_activities_init(a) < 0 || ms_sweep_init(a) < 0) {
        ms_fd_close(&link_fd);
        return -ENOMEM;
    }
    if (link_fd >= 0) {
        a->link = ms_link_create(a->loop, link_fd, &link_ops, a);
        if (!a->link)
            return -ENOMEM;
    }
    return set_up_signals(a);
}

void ms_agent_finish(struct ms_agent *a)
{
    ms_stops_finish(a);
    ms_activities_finish(a);
    ms_store_destroy(a->store);
    ms_zygotes_finish(&a->zygotes);
    ms_log_readers_finish(&a->log_readers);
    ms_logs_destroy(a->logs);
    ms_link_destroy(a->link);
    ms_watch_finish(&a->signals);
    ms_watch_finish(&a->driver);
    ms_watch_finish(&a->supervisor);
    ms_fd_close(&a->signal_fd);
    ms_fd_close(&a->driver_fd);
    ms_fd_close(&a->supervisor_fd);
    ms_ports_finish(&a->ports);
    ms_contexts_finish(&a->contexts);
    ms_exits_finish(&a->exits);
    ms_exits_finish(&a->successor_asks);
    ms_map_finish(&a->by_uid);
    ms_map_finish(&a->by_pid);
    ms_timer_finish(&a->sweep_again);
    ms_loop_destroy(a->loop);
    ms_agent_log_as(NULL);
    muster__agent_config__free_unpacked(a->config, NULL);
    ms_shape_destroy(a->shape);
    ms_fd_close(&a->folder_fd);
    ms_fd_close(&a->lock_fd);
}

int ms_agent_run(int link_fd, int lock_fd, pid_t supervisor_pid)
{
    struct ms_agent a;
    int rc = ms_agent_init(&a, link_fd, lock_fd, -1);

    if (rc == 0)
        rc = ms_agent_watch_supervisor(&a, supervisor_pid);
    if (rc == 0)
        rc = ms_loop_run(a.loop);
    ms_agent_finish(&a);
    return rc < 0 ? 1 : a.exit_code;
}
