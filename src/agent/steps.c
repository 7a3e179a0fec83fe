/* steps.c - RunSteps: what a worker is to do before its first caller
 *
 * The head asks, the worker answers; the agent passes both on. A worker that ends on the
 * way answers nothing, and neither do we: the head learns of its end. One that has closed
 * its control link cannot be asked.
 *
 * A worker that was executed finds who it is on its control socket, before it has a loop,
 * and what came behind that would be lost: its steps wait until it says that it is up.
 */
#include "agent/worker.h"
#include "base/cleanup.h"

/* Takes the message. */
static void keep(struct ms_worker *w, Muster__HeadToAgent *message)
{
    if (w->steps)
        muster__head_to_agent__free_unpacked(w->steps, NULL);
    w->steps = message;
}

void ms_worker_is_up(struct ms_worker *w)
{
    w->is_booting = false;
    if (w->steps)
        ms_worker_run_steps(w->agent, MS_TAKE(w->steps));
}

void ms_worker_run_steps(struct ms_agent *a, Muster__HeadToAgent *message)
{
    Muster__RunSteps *run = message->run_steps;
    struct ms_worker *w = ms_map_find(&a->by_uid, run->uid);
    Muster__AgentToWorker m = MUSTER__AGENT_TO_WORKER__INIT;
    const char *why = NULL;

    if (!w || w->has_ended)
        why = "this worker has ended";
    else if (!w->control)
        why = "this worker has closed its control socket: its command is no worker";
    if (!why && w->is_booting) {
        keep(w, message);
        return;
    }
    m.body_case = MUSTER__AGENT_TO_WORKER__BODY_STEPS;
    m.steps = run;
    if (!why && ms_link_send(w->control, &m.base) < 0)
        why = "its steps cannot be sent to this worker";
    if (why)
        ms_agent_refuse(a, message->request, MUSTER__FAILURE__KIND__REFUSED, why);
    else
        w->steps_request = message->request;
    muster__head_to_agent__free_unpacked(message, NULL);
}

void ms_worker_steps_done(struct ms_worker *w, Muster__StepsDone *done)
{
    Muster__AgentToHead m = MUSTER__AGENT_TO_HEAD__INIT;

    if (w->steps_request == 0)
        return; /* the head does not want to know */
    m.body_case = MUSTER__AGENT_TO_HEAD__BODY_STEPS_DONE;
    m.steps_done = done;
    ms_agent_send(w->agent, w->steps_request, &m);
}
