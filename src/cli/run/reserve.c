/* reserve.c - a job's machines, by requests to the head, which owns the orchestrator */
#include "base/cleanup.h"
#include "cli/run/job.h"

#include <errno.h>
#include <string.h>

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

void ms_job_run_on_piece(void *arg, const char *key, const struct ms_lent_piece *p)
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

int ms_job_run_reserve(struct ms_job_run *j, struct ms_error *err)
{
    Muster__PlaceGroup pieces = MUSTER__PLACE_GROUP__INIT;
    Muster__Reserve reserve = MUSTER__RESERVE__INIT;
    Muster__DriverToHead m = MUSTER__DRIVER_TO_HEAD__INIT;

    pieces.name = (char *)(uintptr_t)j->run->key;
    pieces.timeout_ns = (uint64_t)j->run->timeout_ns;
    reserve.pieces = &pieces;
    reserve.whole = true;
    m.body_case = MUSTER__DRIVER_TO_HEAD__BODY_RESERVE;
    m.reserve = &reserve;
    j->reserving = ms_head_request_then(j->head, &m, post_reserved, j);
    return j->reserving ? 0 : ms_error_set(err, -ENOMEM, "out of memory");
}

void ms_job_run_release(struct ms_job_run *j)
{
    Muster__ReleasePieces release = MUSTER__RELEASE_PIECES__INIT;
    Muster__DriverToHead m = MUSTER__DRIVER_TO_HEAD__INIT;

    j->is_over = true;
    release.key = (char *)(uintptr_t)j->run->key;
    m.body_case = MUSTER__DRIVER_TO_HEAD__BODY_RELEASE_PIECES;
    m.release_pieces = &release;
    j->releasing = ms_head_request_then(j->head, &m, post_released, j);
    if (!j->releasing)
        ms_loop_stop(j->loop); /* stopping the head does the same, without a word */
}
