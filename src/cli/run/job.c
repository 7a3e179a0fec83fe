/* job.c - a job while it runs: its machines, by requests to the head; signals; the end */
#include "cli/run/job.h"
#include "base/cleanup.h"
#include "cli/out.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>

void ms_job_run_fail(struct ms_job_run *j, const char *what)
{
    ms_run_mark(j->run);
    j->code = ms_out_fail(j->run->cli, MS_EXIT_FAILED, "%s", what);
}

/* ---- what has ended ---------------------------------------------------------------- */

/* A piece's end, on its way from the head's thread to the loop. */
struct end {
    struct ms_job_run *job;
    struct ms_lent_piece piece;
    char node[MS_NAME_MAX + 1], detail[MS_ORCH_DETAIL_MAX];
};

/* While the driver runs: it decides what that means. */
static void report_end(void *arg)
{
    struct end *e = arg;
    struct ms_job_run *j = e->job;

    if (!j->is_over && !j->reserving) {
        ms_run_report_piece(j->run, &e->piece, -1);
        if (e->piece.detail && !ms_cli_has(j->run->cli, MS_OPT_JSON))
            ms_run_report_detail(j->run, e->piece.detail);
    }
    free(e);
}

static void on_piece(void *arg, const char *key, const struct ms_lent_piece *p)
{
    struct ms_job_run *j = arg;
    struct end *e;

    if (p->phase != MS_PHASE_ENDED || strcmp(key, j->run->key) != 0)
        return;
    e = calloc(1, sizeof *e);
    if (!e)
        return;
    e->job = j;
    e->piece = *p;
    e->piece.devices = NULL;
    e->piece.device_count = 0;
    snprintf(e->node, sizeof e->node, "%s", p->node ? p->node : "");
    snprintf(e->detail, sizeof e->detail, "%s", p->detail ? p->detail : "");
    e->piece.agent = NULL;
    e->piece.node = p->node ? e->node : NULL;
    e->piece.detail = p->detail ? e->detail : NULL;
    if (ms_loop_post(j->loop, report_end, e) < 0)
        free(e);
}

/* ---- answers ----------------------------------------------------------------------- */

static void report_reserved(const struct ms_job_run *j, const Muster__Reservation *m)
{
    MS_CLEANUP(ms_cleanup_free)
    struct ms_lent_piece *pieces = calloc(m->n_pieces + 1, sizeof *pieces);
    MS_CLEANUP(ms_cleanup_free)
    const struct ms_lent_piece **list = calloc(m->n_pieces + 1, sizeof *list);

    if (!pieces || !list)
        return;
    for (size_t i = 0; i < m->n_pieces; i++) {
        pieces[i] = (struct ms_lent_piece){.number = m->pieces[i]->number,
                                           .phase = MS_PHASE_RUNNING,
                                           .node = m->pieces[i]->node,
                                           .devices = m->pieces[i]->devices,
                                           .device_count = m->pieces[i]->n_devices};
        list[i] = &pieces[i];
    }
    ms_run_report_reserved(j->run,
                           &(struct ms_reservation){.key = j->run->key,
                                                    .pieces = list,
                                                    .count = m->n_pieces});
}

static void stop_early(struct ms_job_run *j)
{
    j->code = (enum ms_exit)(MS_RUN_SIGNALED + j->stop_signal);
}

static void on_reserved(void *arg)
{
    struct ms_job_run *j = arg;
    struct ms_head_op *op = MS_TAKE(j->reserving);
    struct ms_error why = {0};
    int rc = ms_head_op_result(op, &why);

    if (rc == 0)
        report_reserved(j, (const Muster__Reservation *)ms_head_op_message(op));
    else if (!j->stop_signal)
        ms_job_run_fail(j, why.text);
    if (rc == -ETIMEDOUT || rc == -ENOSPC)
        j->code = MS_EXIT_NO_ROOM;
    if (j->stop_signal)
        stop_early(j);
    if (rc == 0 && !j->stop_signal)
        ms_job_run_drive(j);
    else if (rc == 0 && !j->releasing)
        ms_job_run_release(j);
    else if (rc < 0)
        j->is_over = true;
    if (rc < 0 && !j->releasing)
        ms_loop_stop(j->loop); /* nothing is held */
    ms_head_op_unref(op);
}

static void on_released(void *arg)
{
    struct ms_job_run *j = arg;
    struct ms_head_op *op = MS_TAKE(j->releasing);
    struct ms_error why = {0};

    if (ms_head_op_result(op, &why) < 0)
        ms_job_run_fail(j, why.text);
    else
        ms_run_report(j->run, json_pack("{s:s}", "event", "released"), "released");
    ms_head_op_unref(op);
    if (j->stop_signal && j->reserving)
        stop_early(j);
    ms_loop_stop(j->loop);
}

/* From the head's thread to the loop. */
static void post(struct ms_job_run *j, void (*fn)(void *arg))
{
    if (ms_loop_post(j->loop, fn, j) < 0)
        ms_loop_stop(j->loop);
}

static void post_reserved(struct ms_head_op *op, void *arg)
{
    (void)op;
    post(arg, on_reserved);
}

static void post_released(struct ms_head_op *op, void *arg)
{
    (void)op;
    post(arg, on_released);
}

/* ---- asking ------------------------------------------------------------------------ */

/* What the file says of roles, for the driver (MS_KV_JOB). It is there before the driver. */
static int tell_roles(struct ms_job_run *j, struct ms_error *err)
{
    const char *path = j->run->cli->operands[0], *slash = strrchr(path, '/');
    json_t *roles = ms_job_roles_json(j->run->job, slash ? slash + 1 : path);
    MS_CLEANUP(ms_cleanup_free) char *text = json_dumps(roles, JSON_COMPACT);
    Muster__KvPut put = MUSTER__KV_PUT__INIT;
    struct ms_head_op *op;
    int rc;

    json_decref(roles);
    if (!text)
        return ms_error_set(err, -ENOMEM, "out of memory");
    put.key = (char *)(uintptr_t)MS_KV_JOB;
    put.value = (ProtobufCBinaryData){strlen(text), (uint8_t *)text};
    put.owner = MUSTER__KV_OWNER__KV_NONE;
    op = ms_head_request(j->head, MUSTER__DRIVER_TO_HEAD__BODY_KV_PUT, &put);
    ms_head_op_wait(op, MS_NEVER);
    rc = ms_head_op_result(op, err);
    ms_head_op_unref(op);
    return rc;
}

static int reserve(struct ms_job_run *j, struct ms_error *err)
{
    Muster__PlaceGroup pieces = MUSTER__PLACE_GROUP__INIT;
    Muster__Reserve reserve = MUSTER__RESERVE__INIT;

    pieces.name = (char *)(uintptr_t)j->run->key;
    pieces.timeout_ns = (uint64_t)j->run->timeout_ns;
    reserve.pieces = &pieces;
    reserve.whole = true;
    j->reserving = ms_head_request_then(
        j->head, MUSTER__DRIVER_TO_HEAD__BODY_RESERVE, &reserve, post_reserved, j);
    return j->reserving ? 0 : ms_error_set(err, -ENOMEM, "out of memory");
}

void ms_job_run_release(struct ms_job_run *j)
{
    Muster__ReleasePieces release = MUSTER__RELEASE_PIECES__INIT;

    j->is_over = true;
    release.key = (char *)(uintptr_t)j->run->key;
    j->releasing = ms_head_request_then(j->head,
                                        MUSTER__DRIVER_TO_HEAD__BODY_RELEASE_PIECES,
                                        &release,
                                        post_released,
                                        j);
    if (!j->releasing)
        ms_loop_stop(j->loop); /* stopping the head does the same, without a word */
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
        .on_piece = on_piece,
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
    if (rc == 0 && r->job->role_count > 0)
        rc = tell_roles(&j, &err);
    if (rc == 0)
        rc = reserve(&j, &err);
    if (rc == 0 && ms_loop_run(j.loop) < 0)
        rc = ms_error_set(&err, -EIO, "the loop has failed");
    if (rc < 0)
        ms_job_run_fail(&j, err.text);
    close_all(&j);
    return j.code;
}
