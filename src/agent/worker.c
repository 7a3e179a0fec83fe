/* worker.c - one worker: its endpoints, its control link, its signals */
#include "agent/worker.h"
#include "base/clock.h"
#include "io/addr.h"
#include "io/proc.h"
#include "io/sock.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>

/* ---- its control link ------------------------------------------------------------ */

/* Takes the message. */
static void on_steps_done(struct ms_worker *w, Muster__StepsDone *done)
{
    if (!w->steps_request && !w->start_steps && w->spec->steps) {
        w->start_steps = done; /* the head will ask */
        return;
    }
    if (w->steps_request) /* else the head does not want to know */
        ms_agent_send(
            w->agent, w->steps_request, MUSTER__AGENT_TO_HEAD__BODY_STEPS_DONE, done);
    muster__steps_done__free_unpacked(done, NULL);
}

static void on_control(void *arg, const uint8_t *body, size_t len)
{
    struct ms_worker *w = arg;
    Muster__WorkerToAgent *m = muster__worker_to_agent__unpack(NULL, len, body);

    if (!m)
        return;
    if (m->body_case == MUSTER__WORKER_TO_AGENT__BODY_ASK)
        ms_worker_ask(w, m->ask->uid);
    else if (m->body_case == MUSTER__WORKER_TO_AGENT__BODY_ASK_SUCCESSOR)
        ms_worker_ask_successor(w, m->ask_successor);
    else if (m->body_case == MUSTER__WORKER_TO_AGENT__BODY_FORK)
        ms_fork_asked(w, m->fork);
    else if (m->body_case == MUSTER__WORKER_TO_AGENT__BODY_STEPS_DONE)
        on_steps_done(w, MS_TAKE(m->steps_done));
    else if (m->body_case == MUSTER__WORKER_TO_AGENT__BODY_ACTIVITY)
        ms_activity_answered(w, MS_TAKE(m->activity));
    else if (m->body_case == MUSTER__WORKER_TO_AGENT__BODY_KILL)
        ms_fork_kill(w, m->kill);
    muster__worker_to_agent__free_unpacked(m, NULL);
}

/* It runs, and cannot be reached any more: its calls would wait for ever. */
static void on_detached(void *arg)
{
    struct ms_worker *w = arg;

    if (ms_proc_is_ending(w->pid))
        return; /* the kernel takes its time to free what it had */
    w->is_detached = true;
    ms_worker_signal(w, SIGKILL);
}

/* Mostly it is dying, and the reaper tells how. A command may close what it likes; a worker
 * that has closed its descriptors, or has executed another program, is ended. */
static void on_control_closed(void *arg, const struct ms_error *why)
{
    struct ms_worker *w = arg;

    (void)why;
    ms_link_destroy(MS_TAKE(w->control));
    if (!w->is_command && w->pid > 0 &&
        ms_timer_init(&w->detached, w->agent->loop, on_detached, w) == 0)
        ms_timer_set(&w->detached, MS_DETACHED_NS);
}

static const struct ms_link_ops control_ops = {.on_body = on_control,
                                               .on_closed = on_control_closed};

int ms_worker_send(struct ms_worker *w,
                   Muster__AgentToWorker__BodyCase body_case,
                   const void *body)
{
    Muster__AgentToWorker m = MUSTER__AGENT_TO_WORKER__INIT;

    if (!w || !w->control)
        return -EPIPE;
    m.body_case = body_case;
    m.boot = (Muster__WorkerBoot *)(uintptr_t)body; /* a union of pointers */
    return ms_link_send(w->control, &m.base);
}

/* ---- its steps: what it does before its first caller ------------------------------ */

/* The head asks, the worker answers; the agent passes both on, and answers for a worker
 * that cannot be asked. One that ends on the way answers nothing: the head learns of its
 * end. The steps of its spec are sent to it before it runs; when the head asks for them it
 * may have done them. */

/* The worker cannot be asked: an answer in its place. */
static void answer_for(struct ms_agent *a, const Muster__HeadToAgent *asked, char *why)
{
    Muster__StepsDone done = MUSTER__STEPS_DONE__INIT;
    Muster__Failure failure = MUSTER__FAILURE__INIT;

    failure.kind = MUSTER__FAILURE__KIND__REFUSED;
    failure.message = why;
    done.uid = asked->run_steps->uid;
    done.run = asked->run_steps->run;
    done.failure = &failure;
    if (asked->request)
        ms_agent_send(a, asked->request, MUSTER__AGENT_TO_HEAD__BODY_STEPS_DONE, &done);
}

/* Those of its spec: now, or when it has done them. */
static void answer_start_steps(struct ms_worker *w, uint64_t request)
{
    w->steps_request = request;
    if (w->start_steps)
        on_steps_done(w, MS_TAKE(w->start_steps));
}

void ms_worker_run_steps(struct ms_agent *a, Muster__HeadToAgent *m)
{
    static char ended[] = "it has ended",
                closed[] = "it has closed its control socket: its command is no worker",
                unsent[] = "its steps cannot be sent to it";
    struct ms_worker *w = ms_map_find(&a->by_uid, m->run_steps->uid);
    bool of_start = w && w->spec->steps && w->spec->steps->run == m->run_steps->run;

    if (!w || w->has_ended)
        answer_for(a, m, ended);
    else if (of_start && (w->start_steps || w->control))
        answer_start_steps(w, m->request);
    else if (!w->control && w->is_command)
        answer_for(a, m, closed);
    else if (!w->control)
        w->steps_request = m->request; /* its end, which is near, is the answer */
    else if (ms_worker_send(w, MUSTER__AGENT_TO_WORKER__BODY_STEPS, m->run_steps) < 0)
        answer_for(a, m, unsent);
    else
        w->steps_request = m->request;
}

/* ---- its endpoints --------------------------------------------------------------- */

/* <session>/w/<cluster>-<rank>-<uid>.sock; a long cluster name is cut to what fits, the
 * uid is enough to be unique. */
static char *make_path(const struct ms_worker *w, struct ms_error *err)
{
    const char *dir = w->agent->config->session_dir;
    char *out = NULL, tail[48];
    int tail_len, room;

    tail_len =
        snprintf(tail, sizeof tail, "-%u-%016" PRIx64 ".sock", w->spec->rank, w->uid);
    room = (int)MS_SOCKET_PATH_MAX - (int)strlen(dir) - 3 - tail_len;
    if (room < 1) {
        ms_error_set(
            err, -ENAMETOOLONG, "session folder '%s': its path is too long", dir);
        return NULL;
    }
    if (asprintf(&out, "%s/w/%.*s%s", dir, room, w->spec->cluster, tail) < 0) {
        ms_error_set(err, -ENOMEM, "out of memory");
        return NULL;
    }
    return out;
}

static int make_socket(struct ms_worker *w, struct ms_error *err)
{
    MS_CLEANUP(ms_cleanup_free) char *path = make_path(w, err);
    int fd = path ? ms_unix_listen(path, SOCK_STREAM, err) : err->code;

    if (fd < 0)
        return fd;
    w->path = MS_TAKE(path);
    w->child_fds[MS_SPAWN_LISTEN] = fd;
    return 0;
}

/* Where its spec says. */
static int take_listen(struct ms_worker *w, uint16_t *port, struct ms_error *err)
{
    const char *host;
    struct ms_addr at;
    int rc = ms_addr_parse_listen(w->spec->listen, &at, err);

    if (rc < 0)
        return rc;
    host = at.name;
    *port = at.port;
    w->own_listen = calloc(1, sizeof *w->own_listen);
    return w->own_listen ? ms_listen_init(w->own_listen, &host, 1, err)
                         : ms_error_set(err, -ENOMEM, "out of memory");
}

const struct ms_listen *ms_worker_listen(const struct ms_worker *w)
{
    return w->own_listen ? w->own_listen : &w->agent->listen;
}

static int make_tcp(struct ms_worker *w, struct ms_error *err)
{
    uint16_t port = 0;
    int fd = *w->spec->listen ? take_listen(w, &port, err) : 0;

    if (fd == 0)
        fd = ms_listen_open(ms_worker_listen(w), &port, err);
    if (fd < 0)
        return fd;
    w->child_fds[MS_SPAWN_LISTEN_TCP] = fd;
    w->address = ms_listen_print(ms_worker_listen(w), ms_host_id(), w->path, port);
    return w->address ? 0 : ms_error_set(err, -ENOMEM, "out of memory");
}

/* The read ends are ours and non-blocking, the write ends are not. */
static int make_log(struct ms_worker *w, struct ms_error *err)
{
    struct ms_log_source from = {.uid = w->uid,
                                 .driver = w->context->driver,
                                 .cluster = w->spec->cluster,
                                 .rank = w->spec->rank,
                                 .is_wanted = &w->context->wants_logs};
    int ours[2] = {-1, -1}, fds[2];

    for (int i = 0; i < 2; i++) {
        if (pipe2(fds, O_CLOEXEC) < 0) {
            ms_error_sys(err, -errno, "cannot make a pipe");
            ms_fd_close(&ours[0]);
            return err->code;
        }
        fcntl(fds[0], F_SETFL, O_NONBLOCK);
        ours[i] = fds[0];
        w->child_fds[i ? MS_SPAWN_STDERR : MS_SPAWN_STDOUT] = fds[1];
    }
    w->log = ms_log_open(w->agent->logs, &from, ours[0], ours[1]);
    return w->log ? 0 : ms_error_set(err, -ENOMEM, "out of memory");
}

static int make_control(struct ms_worker *w, struct ms_error *err)
{
    int fds[2], rc = ms_unix_pair(SOCK_STREAM, fds);

    if (rc < 0)
        return ms_error_sys(err, rc, "cannot make its control socket");
    w->child_fds[MS_SPAWN_CONTROL] = fds[1];
    w->control = ms_link_create(w->agent->loop, fds[0], &control_ops, w);
    return w->control ? 0 : ms_error_set(err, -ENOMEM, "out of memory");
}

static int make_cgroup(struct ms_worker *w, struct ms_error *err)
{
    int rc;

    if (!w->spec->memory_limit)
        return 0;
    rc = ms_cgroup_create(
        &w->cgroup, &w->agent->cgroups, w->uid, w->spec->memory_limit, err);
    if (rc < 0)
        return rc;
    rc = ms_cgdir_open_procs(w->cgroup.dir);
    if (rc < 0)
        return ms_error_sys(
            err, rc, "memory limits cannot be had here: '%s'", w->cgroup.dir);
    w->child_fds[MS_SPAWN_CGROUP] = rc;
    return 0;
}

static int make_endpoints(struct ms_worker *w, struct ms_error *err)
{
    static int (*const make[])(struct ms_worker *, struct ms_error *) = {
        make_socket, make_tcp, make_log, make_control, make_cgroup};
    struct rlimit limit = {0};
    int rc = 0;

    for (size_t i = 0; i < MS_COUNT(make) && rc == 0; i++)
        rc = make[i](w, err);
    if (rc != -EMFILE && rc != -ENFILE)
        return rc;
    getrlimit(RLIMIT_NOFILE, &limit);
    return ms_error_set(
        err,
        rc,
        "no descriptor left: the agent may have %llu (ulimit -Hn), and each "
        "worker needs 4",
        (unsigned long long)limit.rlim_cur);
}

struct ms_worker *ms_worker_create(struct ms_agent *a,
                                   struct ms_start *start,
                                   struct ms_context *context,
                                   Muster__WorkerSpec *spec,
                                   struct ms_error *err)
{
    struct ms_worker *w = calloc(1, sizeof *w);

    if (!w) {
        muster__worker_spec__free_unpacked(spec, NULL);
        ms_error_set(err, -ENOMEM, "out of memory");
        return NULL;
    }
    ms_list_init(&w->link);
    ms_list_init(&w->item.link);
    w->agent = a;
    w->start = start;
    w->spec = spec;
    w->context = context;
    context->workers++;
    w->uid = w->item.uid = spec->uid;
    w->is_command = spec->start == MUSTER__START_KIND__START_COMMAND;
    w->problem_fd = -1;
    for (int i = 0; i < MS_SPAWN_FDS; i++)
        w->child_fds[i] = -1;
    if (ms_map_add(&a->by_uid, w->uid, w) < 0)
        ms_error_set(err, -ENOMEM, "out of memory");
    else if (make_endpoints(w, err) == 0)
        return w;
    ms_worker_destroy(w);
    return NULL;
}

void ms_worker_destroy(struct ms_worker *w)
{
    if (!w)
        return;
    w->context->workers--;
    ms_agent_collect_soon(w->agent);
    if (ms_map_find(&w->agent->by_uid, w->uid) == w)
        ms_map_remove(&w->agent->by_uid, w->uid);
    if (ms_map_find(&w->agent->by_pid, (uint64_t)w->pid) == w)
        ms_map_remove(&w->agent->by_pid, (uint64_t)w->pid);
    ms_list_remove(&w->link);
    ms_list_remove(&w->item.link);
    ms_buf_finish(&w->item.data);
    ms_worker_close_child_fds(w);
    ms_watch_finish(&w->problem);
    ms_fd_close(&w->problem_fd);
    ms_link_destroy(w->control);
    ms_timer_finish(&w->detached);
    ms_log_close(w->log);
    ms_cgroup_remove(&w->cgroup);
    if (w->path)
        unlink(w->path);
    muster__worker_exited__free_unpacked(w->exited, NULL);
    muster__steps_done__free_unpacked(w->start_steps, NULL);
    muster__activity__free_unpacked(w->activity, NULL);
    muster__worker_spec__free_unpacked(w->spec, NULL);
    free(w->own_listen);
    free(w->path);
    free(w->address);
    free(w);
}

void ms_worker_close_child_fds(struct ms_worker *w)
{
    for (int i = 0; i < MS_SPAWN_FDS; i++)
        ms_fd_close(&w->child_fds[i]);
}

void ms_worker_describe(const struct ms_worker *w, Muster__WorkerStarted *out)
{
    muster__worker_started__init(out);
    out->uid = w->uid;
    out->pid = w->pid;
    out->address = w->address;
    if (w->log)
        out->log_path = (char *)(uintptr_t)ms_log_path(w->log);
    else if (w->exited && w->exited->exit)
        out->log_path = w->exited->exit->log_path;
}

int ms_worker_set_pid(struct ms_worker *w, pid_t pid, pid_t zygote)
{
    int rc = ms_map_add(&w->agent->by_pid, (uint64_t)pid, w);

    w->pid = pid;
    w->zygote_pid = zygote;
    w->started_ns = ms_now_ns();
    return rc;
}

void ms_worker_signal(struct ms_worker *w, int sig)
{
    if (w->pid <= 0 || w->has_ended)
        return;
    if (sig == SIGKILL || w->is_command)
        ms_proc_group_kill(w->pid, sig);
    if (sig == SIGKILL || !w->is_command)
        kill(w->pid, sig);
    if (sig == SIGKILL)
        ms_cgroup_kill(&w->cgroup);
}
