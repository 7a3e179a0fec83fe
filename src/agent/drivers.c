/* drivers.c - the contexts of drivers, and the zygotes that their workers come from */
#include "agent/agent_impl.h"

#include <errno.h>

/* The key of workers of this driver that have nothing of their own but what is asked (may
 * be NULL). NULL: out of memory. */
static Muster__DriverContext *driver_key(const struct ms_agent *a,
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
    Muster__DriverContext *key;
    struct ms_error err = {.text = "out of memory"};

    if (!context->message->n_python)
        return;
    key = driver_key(a, context, NULL);
    ms_zygotes_begin_round(&a->zygotes);
    if (!key || ms_zygotes_warm_up(&a->zygotes, key, context->driver, &err) < 0)
        ms_agent_log("no zygote: %s", err.text);
}

void ms_agent_prepare(struct ms_agent *a, Muster__HeadToAgent *m)
{
    const struct ms_context *context =
        ms_contexts_find(&a->contexts, m->prepare->driver);
    Muster__Failure__Kind kind = MUSTER__FAILURE__KIND__REFUSED;
    Muster__DriverContext *key;
    struct ms_error err = {0};

    if (!context) {
        ms_error_set(&err, -ENOENT, "the driver is not known here, or gone");
    } else if (a->is_stopping) {
        kind = MUSTER__FAILURE__KIND__SHUTTING_DOWN;
        ms_error_set(&err, -ESHUTDOWN, "the agent is shutting down");
    } else if (!(key = driver_key(a, context, m->prepare->key))) {
        kind = MUSTER__FAILURE__KIND__NO_MEMORY;
        ms_error_set(&err, -ENOMEM, "out of memory");
    } else {
        ms_zygotes_begin_round(&a->zygotes);
        ms_zygotes_prepare(&a->zygotes, key, context->driver, m->request, &err);
    }
    if (err.code)
        ms_agent_refuse(a, m->request, kind, err.text);
}

void ms_agent_add_driver(struct ms_agent *a, Muster__HeadToAgent *m)
{
    struct ms_context *context;

    if (!m->driver->driver) {
        ms_agent_refuse(a,
                        m->request,
                        MUSTER__FAILURE__KIND__BAD_ARGUMENT,
                        "driver 0 comes with the configuration");
        return;
    }
    context = ms_contexts_add(&a->contexts, m->driver);
    if (!context) {
        ms_agent_refuse(
            a, m->request, MUSTER__FAILURE__KIND__NO_MEMORY, "out of memory");
        return;
    }
    if (!a->is_stopping)
        ms_agent_warm_up(a, context);
    ms_agent_done(a, m->request);
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

void ms_agent_forget_driver(struct ms_agent *a, Muster__HeadToAgent *m)
{
    uint64_t driver = m->forget_driver->driver;

    if (driver) { /* 0 goes with the agent */
        ms_contexts_forget(&a->contexts, driver);
        ms_zygotes_forget(&a->zygotes, driver);
        ms_agent_collect_soon(a);
    }
    ms_agent_done(a, m->request);
}
