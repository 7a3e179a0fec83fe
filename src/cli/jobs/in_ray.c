/* in_ray.c - `muster host`: the head of one job, in a job of a Ray cluster */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/env.h"
#include "base/name.h"
#include "base/proto.h"
#include "cli/jobs/jobs.h"
#include "cli/out.h"
#include "cli/run/run.h"
#include "head/head.h"
#include "io/loop.h"
#include "io/session/secret.h"
#include "io/tree.h"
#include "orchestrator/ray/bridge/offer.h"
#include "orchestrator/ray/site.h"
#include "session/env.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

/* `muster host ID FILE NAME`, in the folder of the job. The head's session is called ray-ID: a
 * second start of it, because the first was killed, finds secret, port and journal there. The
 * first one derives its secret from the offer in the environment and answers it by its first
 * line. What happens to the job is printed, a line each. It ends with the job, but stays for
 * LINGER_NS so that people can still ask; its exit code is the job's, or 1 for those that mean
 * a signal: those say that it was killed itself. */

#define LINGER_NS (600 * MS_NS_PER_S)
#define ASK_NS                                                                         \
    (20 * MS_NS_PER_S) /* one question; it is answered when there is something */
#define AGAIN_NS (1 * MS_NS_PER_S)

enum { CODE_MAX = 127, WORDS = 3 };

struct hosting {
    const struct ms_cli *cli;
    const char *id, *file, *name;
    struct ms_loop *loop;
    struct ms_head *head;
    struct ms_head_op *asked; /* the question under way */
    struct ms_watch signals;
    struct ms_timer again;
    int signal_fd;
    struct ms_offer_keys keys;
    bool is_first;   /* no head of this job was here before */
    uint64_t after;  /* the last event that was printed */
    int64_t over_ns; /* since then; 0: it is not over */
    char muster[PATH_MAX], session[32];
    enum ms_exit code;
};

/* ---- the head ---------------------------------------------------------------------- */

/* As the head before had it; 0: there was none. */
static int port_before(const struct hosting *h)
{
    char root[MS_SESSION_DIR_MAX], path[PATH_MAX], text[MS_ADDR_LIST_MAX + 1];
    const char *colon;

    if (ms_session_root(root, NULL) < 0)
        return 0;
    snprintf(path, sizeof path, "%s/%s/address", root, h->session);
    if (ms_file_read(path, text, sizeof text) < 0)
        return 0;
    text[strcspn(text, "\n")] = 0;
    colon = strrchr(text, ':');
    return colon ? (int)strtol(colon + 1, NULL, 10) : 0;
}

/* The secret of both, in a file that is there for the head's start alone. */
static int
make_secret(char path[PATH_MAX], struct ms_offer_keys *keys, struct ms_error *err)
{
    const char *text = getenv(MS_JOB_OFFER_ENV);
    uint8_t secret[MS_OFFER_KEY];
    char digits[2 * MS_OFFER_KEY + 1];
    struct ms_offer offer;
    MS_CLEANUP(ms_cleanup_fd) int fd = -1;

    if (!text)
        return ms_error_set(err, -EINVAL, MS_JOB_OFFER_ENV " is not set");
    if (ms_offer_parse(text, &offer, err) < 0)
        return -EINVAL;
    if (ms_offer_keys_make(keys) < 0 ||
        ms_offer_secret(keys, offer.public_key, secret) < 0)
        return ms_error_set(err, -EIO, "cannot make the secret");
    strcpy(path, "/tmp/muster-host-XXXXXX");
    fd = mkostemp(path, O_CLOEXEC);
    ms_hex(secret, sizeof secret, digits);
    explicit_bzero(secret, sizeof secret);
    if (fd < 0 || write(fd, digits, strlen(digits)) != (ssize_t)strlen(digits))
        return ms_error_sys(err, -errno, "cannot write %s", path);
    explicit_bzero(digits, sizeof digits);
    return 0;
}

static void answer(const struct hosting *h)
{
    MS_CLEANUP(ms_buf_finish) struct ms_buf all = {0};
    MS_CLEANUP(ms_cleanup_free) char *text = NULL;
    const char *const *at = ms_head_addresses(h->head);

    ms_buf_init(&all);
    for (size_t i = 0; at[i]; i++)
        ms_buf_printf(&all, "%s%s", i ? "," : "", at[i]);
    text = ms_offer_print(h->keys.public_key, ms_buf_str(&all));
    if (text)
        printf("\n" MS_OFFER_ANSWER " %s\n", text);
    fflush(stdout);
}

static void on_stop_asked(void *arg)
{
    (void)arg;
    kill(getpid(), SIGTERM);
}

static int open_head(struct hosting *h, struct ms_error *err)
{
    int port = port_before(h);
    char at[32], secret_file[PATH_MAX] = "";
    const char *const listen[] = {at, NULL};
    int rc = port ? 0 : make_secret(secret_file, &h->keys, err);

    h->is_first = port == 0;
    snprintf(at, sizeof at, "*:%d", port);
    if (rc == 0)
        h->head = ms_head_serve(
            &(struct ms_head_serve_options){.name = h->session,
                                            .secret_file = port ? NULL : secret_file,
                                            .listen = listen,
                                            .agent_path = h->muster,
                                            .ray = MS_RAY_INSIDE,
                                            .on_stop_asked = on_stop_asked},
            err);
    if (*secret_file)
        unlink(secret_file);
    return rc == 0 && !h->head ? -EIO : rc;
}

/* ---- the job ----------------------------------------------------------------------- */

/* One that the head before had is there already. */
static int submit(struct hosting *h, struct ms_error *err)
{
    Muster__SubmitJob job = MUSTER__SUBMIT_JOB__INIT;
    Muster__DriverContext context = MUSTER__DRIVER_CONTEXT__INIT;
    MS_CLEANUP(ms_env_finish) struct ms_env env = {0};
    MS_CLEANUP(ms_cleanup_free) char *here = getcwd(NULL, 0);
    MS_CLEANUP(ms_cleanup_free) char *text = ms_jobs_read_text(h->file);
    char **own = ms_session_env((const char *const *)environ), file[] = "job.yaml";
    char on[] = "ray";
    struct ms_head_op *op;
    int rc = own && here && text ? 0 : -ENOMEM;

    ms_env_init(&env);
    if (rc == 0)
        rc = ms_env_set_all(&env, own, ms_field_count((const char *const *)own));
    if (rc == 0)
        rc = ms_run_inside_env(h->muster, &env);
    ms_session_env_free(own);
    if (rc < 0)
        return ms_error_sys(err, rc, "cannot submit the job");
    job.file = file;
    job.text = text;
    job.folder = here;
    job.name = ms_field_text(h->name);
    job.on = on;
    job.context = &context;
    context.env = env.entries;
    context.n_env = env.count;
    op = ms_head_request(h->head, MUSTER__DRIVER_TO_HEAD__BODY_SUBMIT_JOB, &job);
    ms_head_op_wait(op, MS_NEVER);
    rc = ms_head_op_result(op, err);
    ms_head_op_unref(op);
    return rc == -EEXIST ? 0 : rc;
}

static void ask(void *arg);

static void take_events(struct hosting *h, const Muster__JobEvents *all)
{
    for (size_t i = 0; i < all->n_events; i++) {
        printf("muster: %s\n", ms_out_clean(all->events[i]->text));
        h->after = all->events[i]->number;
    }
    fflush(stdout);
    if (all->is_over && !h->over_ns)
        h->over_ns = ms_now_ns();
}

/* Deleted, or nobody has asked for long: it was heard. */
static void on_events(void *arg)
{
    struct hosting *h = arg;
    struct ms_head_op *op = MS_TAKE(h->asked);
    struct ms_error why = {0};
    int rc = ms_head_op_result(op, &why);

    if (rc == 0)
        take_events(h, (const Muster__JobEvents *)ms_head_op_message(op));
    ms_head_op_unref(op);
    if (rc == -ENOENT || (h->over_ns && ms_now_ns() - h->over_ns > LINGER_NS))
        ms_loop_stop(h->loop);
    else if (rc < 0 || h->over_ns)
        ms_timer_set(&h->again, AGAIN_NS);
    else
        ask(h);
}

static void post_events(struct ms_head_op *op, void *arg)
{
    struct hosting *h = arg;

    (void)op;
    if (ms_loop_post(h->loop, on_events, h) < 0)
        ms_loop_stop(h->loop);
}

static void ask(void *arg)
{
    struct hosting *h = arg;
    Muster__AskJobEvents want = MUSTER__ASK_JOB_EVENTS__INIT;

    want.name = ms_field_text(h->name);
    want.after = h->after;
    want.wait_ns = (uint64_t)ASK_NS;
    h->asked = ms_head_request_then(
        h->head, MUSTER__DRIVER_TO_HEAD__BODY_JOB_EVENTS, &want, post_events, h);
    if (!h->asked)
        ms_loop_stop(h->loop);
}

/* Its exit code, when it is over. */
static enum ms_exit code_of(struct hosting *h)
{
    Muster__JobRef want = MUSTER__JOB_REF__INIT;
    struct ms_head_op *op;
    const Muster__JobStatus *s;
    int code = 0;

    want.name = ms_field_text(h->name);
    op = ms_head_request(h->head, MUSTER__DRIVER_TO_HEAD__BODY_GET_JOB, &want);
    ms_head_op_wait(op, MS_NEVER);
    if (ms_head_op_result(op, NULL) == 0) {
        s = (const Muster__JobStatus *)ms_head_op_message(op);
        code = s->is_over ? s->code : 1;
    }
    ms_head_op_unref(op);
    return (enum ms_exit)(code < 0 || code > CODE_MAX ? 1 : code);
}

/* ---- the whole --------------------------------------------------------------------- */

/* Ray ends it. */
static void on_signal(void *arg, unsigned events)
{
    struct hosting *h = arg;
    struct signalfd_siginfo info;

    (void)events;
    if (read(h->signal_fd, &info, sizeof info) == sizeof info)
        ms_loop_stop(h->loop);
}

static int open_all(struct hosting *h, struct ms_error *err)
{
    int rc = h->loop ? ms_run_signals(&h->signal_fd) : -ENOMEM;

    if (rc == 0)
        rc = ms_watch_init(&h->signals, h->loop, h->signal_fd, MS_READ, on_signal, h);
    if (rc == 0)
        rc = ms_timer_init(&h->again, h->loop, ask, h);
    if (rc == 0 && readlink("/proc/self/exe", h->muster, sizeof h->muster - 1) < 0)
        rc = -errno;
    if (rc < 0)
        return ms_error_sys(err, rc, "cannot host the job");
    rc = open_head(h, err);
    if (rc == 0)
        rc = submit(h, err);
    if (rc == 0 && h->is_first)
        answer(h);
    ms_offer_keys_wipe(&h->keys);
    return rc;
}

static void close_all(struct hosting *h)
{
    char dir[MS_SESSION_DIR_MAX] = "";

    if (h->head) {
        snprintf(dir, sizeof dir, "%s", ms_head_session(h->head)->dir);
        ms_head_stop(h->head, MS_STOP_GRACE_NS);
        ms_tree_remove(AT_FDCWD, dir); /* nobody asks any more */
    }
    ms_head_op_unref(h->asked);
    ms_watch_finish(&h->signals);
    ms_timer_finish(&h->again);
    ms_fd_close(&h->signal_fd);
    ms_loop_destroy(h->loop);
}

enum ms_exit ms_cmd_host(const struct ms_cli *cli)
{
    struct hosting h = {.cli = cli, .signal_fd = -1, .loop = ms_loop_create()};
    struct ms_error err = {0};

    for (size_t i = 0; i < WORDS; i++)
        if (!cli->args[i])
            return ms_out_fail(
                cli, MS_EXIT_USAGE, "it is for `muster submit --on ray`");
    h.id = cli->args[0];
    h.file = cli->args[1];
    h.name = cli->args[2];
    snprintf(h.session, sizeof h.session, "ray-%.20s", h.id);
    if (open_all(&h, &err) < 0) {
        h.code = ms_out_fail(cli, MS_EXIT_FAILED, "%s", err.text);
    } else {
        ask(&h);
        ms_loop_run(h.loop);
        h.code = code_of(&h);
    }
    close_all(&h);
    return h.code;
}
