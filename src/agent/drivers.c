#include "agent/agent_impl.h"

struct ms_zygote_key *ms_agent_driver_key(const struct ms_agent *a,
                                          const struct ms_context *context,
                                          const Muster__ZygoteKey *asked)
{
    struct ms_zygote_need need = {.context = context->message,
                                  .asked = asked,
                                  .env = context->message->env,
                                  .n_env = context->message->n_env,
                                  .shape = a->shape};

    return ms_zygote_key_create(&need);
}

void ms_agent_warm_up(struct ms_agent *a, const struct ms_context *context)
{
    struct ms_zygote_key *key;
    struct ms_error err = {0};

    if (!context->message->n_python)
        return;
    key = ms_agent_driver_key(a, context, NULL);
    ms_zygotes_begin_round(&a->zygotes);
    if (!key || ms_zygotes_warm_up(&a->zygotes, key, context->driver, &err) < 0)
        ms_agent_say("no zygote: %s", key ? err.text : "out of memory");
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

    a->collect_posted = false;
    if (!a->is_over)
        ms_contexts_collect(&a->contexts);
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
    ms_zygotes_forget(&a->zygotes, driver);
    ms_agent_collect_soon(a);
}
