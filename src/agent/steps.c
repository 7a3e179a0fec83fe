/* steps.c - RunSteps: what a worker is to do before its first caller
 *
 * The head asks, the worker answers; the agent passes both on, and answers for a worker
 * that cannot be asked. One that ends on the way answers nothing: the head learns of its end.
 */
#include "agent/worker.h"
#include "base/cleanup.h"
#include "wire/spin.h"

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

void ms_worker_run_steps(struct ms_agent *a, Muster__HeadToAgent *m)
{
    static char ended[] = "it has ended",
                closed[] = "it has closed its control socket: its command is no worker",
                unsent[] = "its steps cannot be sent to it";
    struct ms_worker *w = ms_map_find(&a->by_uid, m->run_steps->uid);

    if (!w || w->has_ended)
        answer_for(a, m, ended);
    else if (!w->control)
        answer_for(a, m, closed);
    else if (ms_worker_send(w, MUSTER__AGENT_TO_WORKER__BODY_STEPS, m->run_steps) < 0)
        answer_for(a, m, unsent);
    else
        w->steps_request = m->request;
}

void ms_worker_steps_done(struct ms_worker *w, Muster__StepsDone *done)
{
    if (w->steps_request) /* else the head does not want to know */
        ms_agent_send(
            w->agent, w->steps_request, MUSTER__AGENT_TO_HEAD__BODY_STEPS_DONE, done);
}

void ms_agent_note_change(struct ms_agent *a)
{
    MS_CLEANUP(ms_cleanup_free) char *path = NULL;
    struct ms_spin *page;

    if (asprintf(&path, "%s/spin", a->config->session_dir) < 0) {
        path = NULL;
        return;
    }
    page = ms_spin_open(path);
    ms_spin_add_change(page);
    ms_spin_close(page);
}
