/* activity.c - what a worker does, as cells of a table */
#include "cli/activity.h"
#include "base/cleanup.h"
#include "cli/selector.h"
#include "head/rest/view.h"
#include "resource/amount.h"

#include <string.h>

bool ms_worker_has_failed(const Muster__WorkerStatus *w)
{
    return w->exit && !w->exit->requested && (w->exit->signaled || w->exit->code != 0);
}

/* NULL: it is not known, or it has ended. */
static const Muster__Activity *activity_of(const Muster__WorkerStatus *w)
{
    return w->activity && w->activity->doing ? w->activity : NULL;
}

const char *ms_worker_word(const Muster__WorkerStatus *w)
{
    const Muster__Activity *a = activity_of(w);

    return a ? ms_view_doing_word(a->doing) : ms_view_worker_word(w->state);
}

static const char *style_of(const Muster__WorkerStatus *w)
{
    static const char *const of_doing[] = {
        [MUSTER__DOING__DOING_STARTING] = MS_STYLE_WARN,
        [MUSTER__DOING__DOING_CONSTRUCTING] = MS_STYLE_WARN,
        [MUSTER__DOING__DOING_IDLE] = MS_STYLE_FAINT,
        [MUSTER__DOING__DOING_CALL] = MS_STYLE_GOOD,
        [MUSTER__DOING__DOING_SILENT] = MS_STYLE_BAD,
        [MUSTER__DOING__DOING_STOPPED] = MS_STYLE_BAD,
    };
    const Muster__Activity *a = activity_of(w);

    if (ms_worker_has_failed(w))
        return MS_STYLE_BAD;
    if (a && (size_t)a->doing < MS_COUNT(of_doing))
        return of_doing[a->doing];
    if (w->state == MUSTER__WORKER_STATE__WORKER_RUNNING)
        return MS_STYLE_GOOD;
    return w->state == MUSTER__WORKER_STATE__WORKER_EXITED ? MS_STYLE_FAINT
                                                           : MS_STYLE_WARN;
}

const char *ms_worker_why(const Muster__WorkerStatus *w, char *out, size_t room)
{
    const Muster__Activity *a = activity_of(w);

    out[0] = 0;
    if (w->exit)
        return ms_exit_text(w->exit, out, room);
    if (a && a->doing == MUSTER__DOING__DOING_STOPPED)
        snprintf(out, room, "a signal or a debugger has stopped it");
    return out;
}

void ms_worker_add_state(struct ms_grid *g, const Muster__WorkerStatus *w)
{
    ms_grid_add(g, style_of(w), "%s", ms_worker_word(w));
}

/* The engine that a Cluster makes has this name unless told otherwise: only others are
 * worth a word. */
static const char *method_of(const Muster__Activity *a)
{
    static const char usual[] = "default.";
    bool is_usual = a && strncmp(a->method, usual, sizeof usual - 1) == 0;

    return a ? a->method + (is_usual ? sizeof usual - 1 : 0) : "";
}

void ms_worker_add_for(struct ms_grid *g, const Muster__WorkerStatus *w)
{
    const Muster__Activity *a = activity_of(w);
    char took[24];

    ms_grid_add(g, NULL, "%s", a ? ms_out_moment(a->for_ns, took) : "");
}

void ms_worker_add_doing(struct ms_grid *g, const Muster__WorkerStatus *w)
{
    const Muster__Activity *a = activity_of(w);

    ms_worker_add_for(g, w);
    if (a && a->calls_running > 1)
        ms_grid_add(g, NULL, "%s (+%u)", method_of(a), a->calls_running - 1);
    else
        ms_grid_add(g, NULL, "%s", method_of(a));
}

static void add_count(struct ms_grid *g, const char *style, bool is_shown, uint64_t n)
{
    if (is_shown)
        ms_grid_add(g, n ? style : NULL, "%llu", (unsigned long long)n);
    else
        ms_grid_add(g, NULL, "%s", "");
}

void ms_worker_add_calls(struct ms_grid *g, const Muster__WorkerStatus *w)
{
    const Muster__Activity *a = activity_of(w);
    bool is_known = a && ms_view_is_answer(a);

    add_count(g, MS_STYLE_WARN, is_known, a ? a->calls_queued : 0);
    add_count(g, NULL, is_known, a ? a->calls_done : 0);
    add_count(g, MS_STYLE_BAD, is_known && a->calls_failed, a ? a->calls_failed : 0);
}

void ms_worker_add_memory(struct ms_grid *g, const Muster__WorkerStatus *w)
{
    const Muster__Activity *a = w->activity;

    ms_grid_add(g, NULL, "%s", a && a->memory ? ms_amount_bytes(a->memory).text : "");
    if (a && a->has_device_memory)
        ms_grid_add(g, NULL, "%s", ms_amount_bytes(a->device_memory).text);
    else
        ms_grid_add(g, NULL, "%s", a && w->n_devices ? "-" : "");
}
