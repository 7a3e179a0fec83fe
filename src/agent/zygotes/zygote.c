/* zygote.c - the making of one zygote: a fresh interpreter, or forked from another */
#include "agent/exec.h"
#include "agent/zygotes/zygote_impl.h"
#include "base/env.h"
#include "base/limits.h"
#include "base/name.h"
#include "base/proto.h"
#include "io/sock.h"
#include "io/supervised.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

enum { SEND_ROOM = 1 << 20 };

static void on_late(void *arg)
{
    struct ms_zygote *z = arg;

    if (z->state == MS_ZYGOTE_STARTING)
        ms_zygote_fail(z, "the zygote's imports took too long");
    else
        ms_zygote_late(z);
}

struct ms_zygote *ms_zygote_create(struct ms_zygotes *p, Muster__DriverContext *key)
{
    struct ms_zygote *z = calloc(1, sizeof *z);
    struct stat st;

    if (!z) {
        ms_zygote_key_destroy(key);
        return NULL;
    }
    z->pool = p;
    z->key = key;
    z->round = p->round;
    z->fd = z->unread = z->problem_fd = -1;
    ms_list_init(&z->link);
    ms_list_init(&z->queue);
    ms_list_init(&z->sent);
    ms_list_init(&z->derive.link);
    z->derive.fds[0] = -1;
    z->log_from = fstat(p->log_fd, &st) == 0 ? st.st_size : 0;
    if (ms_timer_init(&z->timer, p->loop, on_late, z) < 0) {
        ms_zygote_destroy(z);
        return NULL;
    }
    return z;
}

void ms_zygote_close_socket(struct ms_zygote *z)
{
    ms_watch_finish(&z->watch);
    ms_fd_close(&z->fd);
    ms_fd_close(&z->unread);
}

void ms_zygote_destroy(struct ms_zygote *z)
{
    ms_zygote_close_socket(z);
    ms_fd_close(&z->problem_fd);
    ms_timer_finish(&z->timer);
    ms_list_remove(&z->derive.link);
    ms_buf_finish(&z->derive.data);
    ms_fd_close(&z->derive.fds[0]);
    ms_buf_finish(&z->waiters);
    /* items are their owners': they must not point into us */
    while (!ms_list_is_empty(&z->queue))
        ms_list_remove(z->queue.next);
    while (!ms_list_is_empty(&z->sent))
        ms_list_remove(z->sent.next);
    ms_zygote_key_destroy(z->key);
    ms_zygote_key_destroy(z->after);
    ms_zygote_files_finish(&z->files);
    ms_buf_finish(&z->drivers);
    free(z->problem);
    free(z);
}

static void on_ready(void *arg, unsigned events)
{
    struct ms_zygote *z = arg;

    if (events & MS_READ)
        ms_zygote_read(z);
    if (z->fd >= 0 && (events & MS_WRITE))
        ms_zygote_flush(z);
}

/* Our end into z->fd; the other end into *theirs. */
static int make_socket(struct ms_zygote *z, int *theirs)
{
    int fds[2], room = SEND_ROOM, rc = ms_unix_pair(SOCK_SEQPACKET, fds);

    if (rc < 0)
        return rc;
    setsockopt(fds[0], SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
    rc = ms_watch_init(&z->watch, z->pool->loop, fds[0], MS_READ, on_ready, z);
    if (rc < 0) {
        close(fds[0]);
        close(fds[1]);
        return rc;
    }
    z->fd = fds[0];
    z->unread = fcntl(fds[1], F_DUPFD_CLOEXEC, 0);
    *theirs = fds[1];
    return 0; /* without `unread` what it has not read is lost with it */
}

/* ---- a fresh interpreter --------------------------------------------------------- */

static int send_setup(struct ms_zygote *z)
{
    Muster__ZygoteRequest request = MUSTER__ZYGOTE_REQUEST__INIT;
    Muster__Setup setup = MUSTER__SETUP__INIT;
    MS_CLEANUP(ms_buf_finish) struct ms_buf data = {0};
    ssize_t n;

    setup.n_sys_path = z->key->n_sys_path;
    setup.sys_path = z->key->sys_path;
    setup.n_preload = z->key->n_preload;
    setup.preload = z->key->preload;
    request.body_case = MUSTER__ZYGOTE_REQUEST__BODY_SETUP;
    request.setup = &setup;
    if (ms_proto_pack(&request.base, &data) < 0)
        return -ENOMEM;
    n = ms_fds_send(z->fd, data.data, data.len, NULL, 0);
    return n < 0 ? (int)n : 0;
}

static int make_env(struct ms_env *env, const struct ms_zygote *z)
{
    int rc = ms_env_set_all(env, z->key->env, z->key->n_env);

    if (rc == 0)
        rc = ms_env_inherit(env, MS_SUPERVISOR_VARIABLE);
    if (rc == 0) /* its digits are written over in each worker (process.h) */
        rc = ms_env_set(env, "MUSTER_WORKER_UID=0000000000000000");
    return rc == 0 ? ms_env_set(env, "MUSTER_ZYGOTE_FD=3") : rc;
}

static char **make_argv(const struct ms_zygote *z)
{
    static char dash_c[] = "-c",
                code[] = "from muster._worker.zygote import main; main()";
    size_t count = z->key->n_python;
    char **argv = calloc(count + 3, sizeof *argv);

    if (!argv)
        return NULL;
    memcpy(argv, z->key->python, count * sizeof *argv);
    argv[count] = dash_c;
    argv[count + 1] = code;
    return argv;
}

static int execute(struct ms_zygote *z, int socket, struct ms_error *err)
{
    MS_CLEANUP(ms_env_finish) struct ms_env env = {0};
    MS_CLEANUP(ms_cleanup_free) char **argv = make_argv(z);
    int log = z->pool->log_fd;
    struct ms_exec x = {.working_dir = z->key->working_dir,
                        .fds = {-1, log, log, socket, -1, -1},
                        .new_session = true,
                        .death_signal = SIGKILL,
                        .cgroup_fd = -1,
                        .nofile = &z->pool->nofile};
    pid_t pid;

    if (!argv || make_env(&env, z) < 0)
        return ms_error_set(err, -ENOMEM, "cannot make the zygote's environment");
    if (!argv[0] || !z->key->n_python)
        return ms_error_set(err, -EINVAL, "no interpreter is named for the zygote");
    x.argv = argv;
    x.env = env.entries;
    pid = ms_exec_start(&x, &z->problem_fd, err);
    if (pid < 0)
        return pid;
    z->pid = pid;
    return 0;
}

int ms_zygote_launch(struct ms_zygote *z, struct ms_error *err)
{
    MS_CLEANUP(ms_cleanup_fd) int theirs = -1;
    int rc;

    z->base = NULL;
    ms_zygote_close_socket(z);
    rc = make_socket(z, &theirs);
    if (rc < 0)
        return ms_error_sys(err, rc, "cannot make a zygote's socket");
    rc = execute(z, theirs, err);
    if (rc < 0)
        return rc;
    rc = send_setup(z);
    if (rc < 0) {
        kill(z->pid, SIGKILL);
        return ms_error_sys(err, rc, "cannot talk to a new zygote");
    }
    kill(z->pid, SIGCHLD); /* as ms_zygote_flush: it may wait already */
    ms_timer_set(&z->timer, MS_ZYGOTE_START_NS);
    return 0;
}

/* ---- one from another ------------------------------------------------------------ */

static int pack_derive(struct ms_zygote *z, const struct ms_zygote *base)
{
    Muster__ZygoteRequest request = MUSTER__ZYGOTE_REQUEST__INIT;
    Muster__Derive derive = MUSTER__DERIVE__INIT;
    MS_CLEANUP(ms_cleanup_free)
    char **missing = calloc(z->key->n_preload + 1, sizeof *missing);

    if (!missing)
        return -ENOMEM;
    derive.uid = z->derive.uid = ms_random_id();
    derive.n_preload = ms_zygote_key_missing(z->key, base->key, missing);
    derive.preload = missing;
    request.body_case = MUSTER__ZYGOTE_REQUEST__BODY_DERIVE;
    request.derive = &derive;
    return ms_proto_pack(&request.base, &z->derive.data);
}

int ms_zygote_derive(struct ms_zygote *z, struct ms_zygote *base, struct ms_error *err)
{
    int rc = pack_derive(z, base);

    if (rc == 0)
        rc = make_socket(z, &z->derive.fds[0]);
    if (rc < 0)
        return ms_error_sys(err, rc, "cannot ask a zygote for another");
    z->base = base;
    z->derive.fd_count = 1;
    z->derive.is_derive = true;
    ms_list_add_tail(&base->queue, &z->derive.link);
    ms_timer_set(&z->timer, MS_ZYGOTE_START_NS);
    return 0;
}
