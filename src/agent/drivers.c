#include "agent/agent_impl.h"

void ms_agent_warm_up(struct ms_agent *a, const struct ms_context *context)
{
    struct ms_error err = {0};

    if (context->message->n_python &&
        ms_zygotes_prepare(&a->zygotes, context->message, NULL, 0, &err) < 0)
        ms_agent_say("no zygote: %s", err.text);
}

void ms_agent_add_driver(struct ms_agent *a,
                         uint64_t request,
                         const Muster__DriverContext *message)
{
    struct ms_context *context = NULL;

    if (message->driver)
        context = ms_contexts_add(&a->contexts, message);
    if (!context) {
        ms_agent_refuse(a,
                        request,
                        message->driver ? MUSTER__FAILURE__KIND__NO_MEMORY
                                        : MUSTER__FAILURE__KIND__BAD_ARGUMENT,
                        message->driver ? "out of memory"
                                        : "driver 0 comes with the configuration");
        return;
    }
    if (!a->is_stopping)
        ms_agent_warm_up(a, context);
    ms_agent_done(a, request);
}

static void collect(void *arg)
{
    struct ms_agent *a = arg;
    struct ms_context *context = NULL, *next;

    a->collect_posted = false;
    if (a->is_over)
        return;
    for (next = ms_contexts_idle(&a->contexts, NULL); next;) {
        context = next;
        next = ms_contexts_idle(&a->contexts, context);
        ms_zygotes_forget(&a->zygotes, context->message);
        ms_contexts_release(&a->contexts, context);
    }
}

void ms_agent_collect_soon(struct ms_agent *a)
{
    if (a->collect_posted || a->is_over || !a->contexts.forgotten)
        return;
    a->collect_posted = ms_loop_post(a->loop, collect, a) == 0;
}

void ms_agent_forget_driver(struct ms_agent *a, uint64_t driver)
{
    if (!driver)
        return; /* that one goes with the agent */
    ms_contexts_forget(&a->contexts, driver);
    ms_agent_collect_soon(a);
}
