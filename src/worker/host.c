/* host.c - the life of a worker's host: its start, what the agent says, its end */
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/heap.h"
#include "base/proto.h"
#include "io/proc.h"
#include "io/spawn.h"
#include "io/supervised.h"
#include "wire/frame.h"
#include "worker/host_impl.h"
#include "worker/keeper.h"
#include "worker/stack.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

enum { BOOT_LOOK_MS = 1000 }; /* between two looks at the deadline */

/* ---- the end --------------------------------------------------------------------- */

static void die(void)
{
    ms_proc_kill_descendants();
    ms_supervised_agent_lost(); /* daemons, if no supervisor is left to end them */
    kill(0, SIGKILL);           /* our process group, and so ourselves */
    _exit(128 + SIGKILL);
}

static void on_agent_gone(void *arg, unsigned events)
{
    (void)arg;
    (void)events;
    die();
}

static void on_link_closed(void *arg, const struct ms_error *why)
{
    (void)arg;
    (void)why;
    die();
}

/* ---- the server ------------------------------------------------------------------- */

static void on_http(void *arg, int fd, const struct sockaddr_storage *peer)
{
    struct ms_host *h = arg;

    (void)peer;
    ms_worker_http_serve(h->http, fd);
}

/* A long call has callers that wait, and that must know of a death soon. Not at the start,
 * because a keeper takes a tenth of the time of one. */
static void on_long(void *arg)
{
    (void)arg;
    ms_keeper_start(); /* without one, deaths are only known later */
}

static int
tell_agent(void *arg, Muster__WorkerToAgent__BodyCase body_case, const void *body)
{
    struct ms_host *h = arg;
    Muster__WorkerToAgent m = MUSTER__WORKER_TO_AGENT__INIT;

    m.body_case = body_case;
    m.ask = (Muster__AskDeath *)(uintptr_t)body; /* a union of pointers */
    return ms_link_send(h->link, &m.base);
}

/* ---- the agent ------------------------------------------------------------------- */

/* Between its start and the first thing that the engine does it imports, for its steps. */
static void tell_activity(struct ms_host *h, const Muster__AskActivity *ask)
{
    Muster__Activity *a = ms_server_activity(h->server);
    int64_t since_ns = ms_steps_since_ns(h->steps);

    if (!a)
        return;
    a->uid = h->boot->uid;
    a->progress = ms_host_progress();
    if (ask->n_stacks_of)
        a->stack = ms_host_stack(h); /* without memory for it there is none */
    if (a->doing == MUSTER__DOING__DOING_IDLE && since_ns) {
        a->doing = MUSTER__DOING__DOING_CONSTRUCTING;
        a->for_ns = (uint64_t)(ms_now_ns() - since_ns);
    }
    tell_agent(h, MUSTER__WORKER_TO_AGENT__BODY_ACTIVITY, a);
    muster__activity__free_unpacked(a, NULL);
}

static void on_link_body(void *arg, const uint8_t *body, size_t len)
{
    struct ms_host *h = arg;
    Muster__AgentToWorker *m = muster__agent_to_worker__unpack(NULL, len, body);

    if (!m)
        return;
    if (m->body_case == MUSTER__AGENT_TO_WORKER__BODY_DIED && m->died->exit)
        ms_client_worker_exited(h->client, m->died->uid, m->died->exit);
    else if (m->body_case == MUSTER__AGENT_TO_WORKER__BODY_SUCCESSOR)
        ms_client_successor(h->client, m->successor->uid, m->successor->worker);
    else if (m->body_case == MUSTER__AGENT_TO_WORKER__BODY_STEPS)
        ms_steps_run(h->steps, MS_TAKE(m->steps));
    else if (m->body_case == MUSTER__AGENT_TO_WORKER__BODY_ASK_ACTIVITY)
        tell_activity(h, m->ask_activity);
    else if (m->body_case == MUSTER__AGENT_TO_WORKER__BODY_FORKED)
        ms_worker_http_forked(h->http, m->forked);
    else if (m->body_case == MUSTER__AGENT_TO_WORKER__BODY_CHILD)
        ms_worker_http_child_ended(h->http, m->child);
    muster__agent_to_worker__free_unpacked(m, NULL);
}

static void on_steps_done(void *arg, const Muster__StepsDone *done)
{
    tell_agent(arg, MUSTER__WORKER_TO_AGENT__BODY_STEPS_DONE, done);
}

/* Of the main thread, which runs the steps, without the others. */
static void take_stack(void *arg, struct ms_buf *out)
{
    struct ms_host *h = arg;
    const char *text, *from, *end;

    if (h->python_stack_fd < 0) {
        ms_stack_native(out);
        return;
    }
    ms_stack_python(h->main_tid, h->python_stack_fd, out);
    text = ms_buf_str(out);
    from = text ? strstr(text, "Current thread") : NULL;
    if (!from)
        return;
    end = strstr(from, "\n\n");
    if (end)
        out->len = (size_t)(end - text);
    ms_buf_consume(out, (size_t)(from - text));
}

static const struct ms_steps_ops steps_ops = {.on_done = on_steps_done,
                                              .stack = take_stack};

static const struct ms_link_ops link_ops = {.on_body = on_link_body,
                                            .on_closed = on_link_closed};

static void ask_exit(void *arg, uint64_t uid)
{
    Muster__AskDeath ask = MUSTER__ASK_DEATH__INIT;

    ask.uid = uid;
    tell_agent(arg, MUSTER__WORKER_TO_AGENT__BODY_ASK, &ask);
}

static void ask_successor(void *arg, uint64_t uid)
{
    Muster__AskSuccessor ask = MUSTER__ASK_SUCCESSOR__INIT;

    ask.uid = uid;
    tell_agent(arg, MUSTER__WORKER_TO_AGENT__BODY_ASK_SUCCESSOR, &ask);
}

/* ---- start ----------------------------------------------------------------------- */

/* Exactly so many bytes; what comes behind them is the link's. 0 or a negative errno. */
static int read_exactly(int fd, uint8_t *at, size_t len, int64_t until_ns)
{
    while (len > 0) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        ssize_t n = read(fd, at, len);

        if (n == 0)
            return -EPIPE;
        if (n < 0 && errno != EAGAIN && errno != EINTR)
            return -errno;
        if (n > 0) {
            at += n;
            len -= (size_t)n;
            continue;
        }
        if (ms_now_ns() >= until_ns)
            return -ETIMEDOUT;
        poll(&p, 1, BOOT_LOOK_MS);
    }
    return 0;
}

/* The body of the first message on the control socket, frame by frame; malloc'd. */
static int read_message(int fd, struct ms_buf *out, int64_t until_ns)
{
    uint64_t total = 0;
    int rc;

    do {
        uint8_t head[MS_FRAME_SIZE];
        struct ms_frame f = {0};

        rc = read_exactly(fd, head, sizeof head, until_ns);
        if (rc == 0)
            rc = ms_frame_decode(head, &f, NULL);
        if (rc == 0 && f.kind != MS_KIND_CONTROL)
            rc = -EPROTO;
        if (rc == 0)
            rc = ms_buf_reserve(out, f.length);
        if (rc == 0)
            rc = read_exactly(fd, out->data + out->len, f.length, until_ns);
        if (rc < 0)
            return rc;
        if (!(f.flags & MS_FRAME_MORE_OF))
            total = f.total;
        out->len += f.length;
    } while (out->len < total);
    return 0;
}

/* The first message on the control socket, before there is a loop. */
static Muster__WorkerBoot *boot_receive(int fd, struct ms_error *err)
{
    MS_CLEANUP(ms_buf_finish) struct ms_buf body = {0};
    Muster__AgentToWorker *m = NULL;
    Muster__WorkerBoot *boot = NULL;

    if (read_message(fd, &body, ms_now_ns() + MS_AGENT_START_NS) == 0)
        m = muster__agent_to_worker__unpack(NULL, body.len, body.data);
    if (m && m->body_case == MUSTER__AGENT_TO_WORKER__BODY_BOOT)
        boot = MS_TAKE(m->boot);
    muster__agent_to_worker__free_unpacked(m, NULL);
    if (!boot)
        ms_error_set(err, -EPIPE, "the agent did not say who this worker is");
    return boot;
}

static void *io_main(void *arg)
{
    struct ms_host *h = arg;

    prctl(PR_SET_NAME, "muster-io");
    ms_loop_run(h->loop);
    return NULL;
}

/* Signals belong to the main thread. */
static int thread_start(struct ms_host *h)
{
    sigset_t all, before;
    int rc;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = -pthread_create(&h->thread, NULL, io_main, h);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}

static int
create_parts(struct ms_host *h, const struct ms_host_options *o, struct ms_error *err)
{
    struct ms_server_options so = {
        .secret = h->boot->secret.data,
        .identity = h->boot->uid,
        .has_engine = true,
        .tls = (enum ms_tls_mode)h->boot->tls,
        .grace_ns = 2 * (int64_t)h->boot->link_grace_ns,
        /* open: there are no strangers */
        .unproven_max = h->boot->http_open ? ms_worker_http_conns_max(3) : 0,
        .ops = &h->server_ops,
        .arg = h};
    struct ms_client_options co = {.secret = h->boot->secret.data,
                                   .tls = (enum ms_tls_mode)h->boot->tls,
                                   .grace_ns = (int64_t)h->boot->link_grace_ns,
                                   .ask_exit = ask_exit,
                                   .ask_successor = ask_successor,
                                   .on_stored = o->on_stored,
                                   .on_stored_drop = o->on_stored_drop,
                                   .arg = h};
    struct ms_worker_http_options ho = {.boot = h->boot,
                                        .engines = ms_host_engines,
                                        .alloc_ports = ms_host_alloc_ports,
                                        .tell_agent = tell_agent,
                                        .arg = h};

    if (h->boot->secret.len != MS_SECRET_SIZE)
        return ms_error_set(err, -EPROTO, "the secret has a wrong size");
    h->loop = so.loop = co.loop = ho.loop = ms_loop_create();
    if (!h->loop)
        return ms_error_set(err, -ENOMEM, "cannot make an event loop");
    h->spin = co.spin = ms_spin_open(h->boot->spin_path);
    h->server = ho.server = ms_server_create(&so);
    h->client = ms_client_create(&co);
    h->link = ms_link_create(h->loop, h->control_fd, &link_ops, h);
    if (h->server) {
        h->http = ms_worker_http_create(&ho);
        h->steps = ms_steps_create(h->server, &steps_ops, h);
    }
    h->debug = ms_debug_create(h->loop, h->main_tid);
    if (!h->server || !h->client || !h->link || !h->http || !h->steps || !h->debug)
        return ms_error_set(err, -ENOMEM, "cannot make the worker's server");
    if (o->listen_tcp_fd >= 0 && ms_server_listen(h->server, o->listen_tcp_fd) < 0)
        return ms_error_set(err, -ENOMEM, "cannot watch the TCP port");
    return ms_server_listen(h->server, o->listen_fd);
}

static int agent_watch(struct ms_host *h, struct ms_error *err)
{
    h->agent_pidfd = ms_process_open(h->boot->agent_pid);
    if (h->agent_pidfd < 0)
        return ms_error_sys(err, h->agent_pidfd, "cannot watch the agent");
    return ms_watch_init(
        &h->agent_watch, h->loop, h->agent_pidfd, MS_READ, on_agent_gone, h);
}

struct ms_host *ms_host_start(const struct ms_host_options *o, struct ms_error *err)
{
    struct ms_host *h = calloc(1, sizeof *h);
    int rc;

    if (!h) {
        ms_error_set(err, -ENOMEM, "out of memory");
        return NULL;
    }
    ms_heap_keep(); /* for the engine */
    pthread_mutex_init(&h->lock, NULL);
    h->main_tid = (pid_t)syscall(SYS_gettid);
    h->control_fd = o->control_fd;
    h->python_stack_fd = o->python_stack_fd;
    h->server_ops = (struct ms_server_ops){.on_request = ms_host_on_request,
                                           .on_cancel = o->on_cancel,
                                           .on_queued = o->on_queued,
                                           .on_unread = o->on_unread,
                                           .on_long = on_long,
                                           .on_http = on_http};
    h->boot = boot_receive(h->control_fd, err);
    rc = h->boot ? create_parts(h, o, err) : -EPROTO;
    if (rc == 0)
        rc = agent_watch(h, err);
    if (rc == 0 && (rc = thread_start(h)) < 0)
        ms_error_sys(err, rc, "cannot start the I/O thread");
    return rc < 0 ? NULL : h; /* on failure the process ends: nothing is taken back */
}

const Muster__WorkerBoot *ms_host_boot(const struct ms_host *h)
{
    return h->boot;
}

uint64_t ms_host_changes(const struct ms_host *h)
{
    return ms_spin_changes(h->spin);
}

struct ms_server *ms_host_server(struct ms_host *h)
{
    return h->server;
}

struct ms_worker_http *ms_host_http(struct ms_host *h)
{
    return h->http;
}

struct ms_client *ms_host_client(struct ms_host *h)
{
    return h->client;
}

struct ms_debug *ms_host_debug(struct ms_host *h)
{
    return h->debug;
}

int ms_host_set_engines(struct ms_host *h, const char *const *names, size_t count)
{
    Muster__Health with = MUSTER__HEALTH__INIT, *copy, *old;

    with.engines = ms_field_strings(names);
    with.n_engines = count;
    copy = (Muster__Health *)ms_proto_copy(&with.base);
    if (!copy)
        return -ENOMEM;
    pthread_mutex_lock(&h->lock);
    old = h->engines;
    h->engines = copy;
    pthread_mutex_unlock(&h->lock);
    muster__health__free_unpacked(old, NULL);
    return 0;
}

void ms_host_end(struct ms_host *h)
{
    ms_worker_http_end(h->http);
}

void ms_host_forget(struct ms_host *h)
{
    ms_client_forget(h->client);
    ms_server_forget(h->server);
    ms_worker_http_forget(h->http);
    for (size_t i = 0; i < h->port_count; i++)
        close(h->port_fds[i]);
    close(h->control_fd);
    close(h->agent_pidfd);
}
