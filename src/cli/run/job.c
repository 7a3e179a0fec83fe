/* job.c - a job while it runs: signals, the head, the end */
#include "cli/run/job.h"
#include "base/cleanup.h"
#include "cli/out.h"

#include <errno.h>
#include <signal.h>
#include <sys/signalfd.h>

void ms_job_run_fail(struct ms_job_run *j, const char *what)
{
    ms_run_mark(j->run);
    j->code = ms_out_fail(j->run->cli, MS_EXIT_FAILED, "%s", what);
}

/* ---- signals ----------------------------------------------------------------------- */

static void on_signal(void *arg, unsigned events)
{
    struct ms_job_run *j = arg;
    struct signalfd_siginfo info;

    (void)events;
    if (read(j->signal_fd, &info, sizeof info) != sizeof info || j->is_over)
        return;
    if (!j->stop_signal)
        ms_run_report(j->run,
                      json_pack("{s:s}", "event", "stopping"),
                      "stopping; once more: by force");
    if (!ms_job_run_stop_driver(j) && !j->releasing)
        ms_job_run_release(j);
    j->stop_signal = (int)info.ssi_signo;
}

static void on_stop_asked(void *arg)
{
    (void)arg;
    kill(getpid(), SIGTERM);
}

static int open_signals(struct ms_job_run *j, struct ms_error *err)
{
    int rc = ms_run_signals(&j->signal_fd);

    if (rc == 0)
        rc = ms_watch_init(&j->signals, j->loop, j->signal_fd, MS_READ, on_signal, j);
    if (rc == 0)
        rc = ms_timer_init(&j->force, j->loop, ms_job_run_force, j);
    return rc < 0 ? ms_error_sys(err, rc, "cannot watch signals") : 0;
}

/* ---- the head ---------------------------------------------------------------------- */

/* What an agent of a node in a network namespace is started by. */
struct prefix {
    const char *words[5];
};

/* Where the nodes of a Ray cluster reach it; of this machine: loopback. */
static const char *listen_at(const struct ms_run_spec *r)
{
    const char *given = r->cli->values[MS_OPT_LISTEN];

    return given ? given : r->is_inside ? "*:0" : "127.0.0.1:0";
}

static int
serve(struct ms_job_run *j, const char *const *const *prefixes, struct ms_error *err)
{
    const struct ms_run_spec *r = j->run;
    const char *const listen[] = {listen_at(r), NULL};
    const struct ms_head_lender lender = {
        .name = r->on,
        .address = r->address,
        .agent_path = j->muster,
        .nodes = (const Muster__NodeShape *const *)r->job->nodes,
        .node_count = r->job->node_count,
        .prefixes = prefixes,
        .on_piece = ms_job_run_on_piece,
        .arg = j,
    };

    j->head =
        ms_head_serve(&(struct ms_head_serve_options){.is_of_job = true,
                                                      .listen = listen,
                                                      .lender = &lender,
                                                      .on_stop_asked = on_stop_asked},
                      err);
    return j->head ? 0 : -EIO;
}

static int open_head(struct ms_job_run *j, struct ms_error *err)
{
    const struct ms_job *job = j->run->job;
    MS_CLEANUP(ms_cleanup_free)
    struct prefix *made = calloc(job->node_count + 1, sizeof *made);
    MS_CLEANUP(ms_cleanup_free)
    const char *const **prefixes = calloc(job->node_count + 1, sizeof *prefixes);
    const struct ms_session *session;
    const char *address;

    if (!made || !prefixes)
        return ms_error_set(err, -ENOMEM, "out of memory");
    for (size_t i = 0; i < job->node_count; i++)
        if (job->netns[i]) {
            made[i] = (struct prefix){{"ip", "netns", "exec", job->netns[i], NULL}};
            prefixes[i] = made[i].words;
        }
    if (serve(j, prefixes, err) < 0)
        return -EIO;
    session = ms_head_session(j->head);
    address = ms_head_addresses(j->head)[0];
    snprintf(j->secret_file, sizeof j->secret_file, "%s/secret", session->dir);
    ms_run_report(j->run,
                  MS_JSON({"event", json_string("begun")},
                          {"session", json_string(session->name)},
                          {"address", json_string(address)},
                          {"orchestrator", json_string(j->run->on)},
                          {"nodes", json_integer((json_int_t)j->run->nodes->count)}),
                  "session %s, head at %s",
                  session->name,
                  address);
    return 0;
}

/* ---- the whole --------------------------------------------------------------------- */

static void close_all(struct ms_job_run *j)
{
    ms_fd_close(&j->driver.pidfd); /* its holder ends it with us */
    if (j->head)
        ms_head_stop(j->head, MS_STOP_GRACE_NS);
    ms_head_op_unref(j->reserving);
    ms_head_op_unref(j->releasing);
    ms_watch_finish(&j->ended);
    ms_watch_finish(&j->signals);
    ms_timer_finish(&j->force);
    ms_fd_close(&j->signal_fd);
    ms_loop_destroy(j->loop);
}

enum ms_exit ms_run_job(const struct ms_run_spec *r)
{
    struct ms_job_run j = {
        .run = r, .driver.pidfd = -1, .signal_fd = -1, .loop = ms_loop_create()};
    struct ms_error err = {0};
    int rc = 0;

    if (!j.loop)
        return ms_out_fail(r->cli, MS_EXIT_FAILED, "out of memory");
    if (readlink("/proc/self/exe", j.muster, sizeof j.muster - 1) < 0)
        rc = ms_error_sys(&err, -errno, "cannot find this program");
    if (rc == 0 && !getcwd(j.folder, sizeof j.folder))
        rc = ms_error_sys(&err, -errno, "which folder is this?");
    if (rc == 0)
        rc = open_signals(&j, &err);
    if (rc == 0)
        rc = open_head(&j, &err);
    if (rc == 0)
        rc = ms_job_run_reserve(&j, &err);
    if (rc == 0 && ms_loop_run(j.loop) < 0)
        rc = ms_error_set(&err, -EIO, "the loop has failed");
    if (rc < 0)
        ms_job_run_fail(&j, err.text);
    close_all(&j);
    return j.code;
}
