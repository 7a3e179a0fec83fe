/* context.c - what the workers of each driver are started with */
#include "agent/context.h"
#include "base/cleanup.h"
#include "base/env.h"
#include "base/proto.h"

#include <errno.h>
#include <string.h>

void ms_contexts_init(struct ms_contexts *c)
{
    *c = (struct ms_contexts){0};
    ms_list_init(&c->list);
}

static void context_free(struct ms_context *context)
{
    ms_list_remove(&context->link);
    muster__driver_context__free_unpacked(context->message, NULL);
    free(context);
}

void ms_contexts_finish(struct ms_contexts *c)
{
    if (!c->list.next)
        return;
    ms_list_each (context, &c->list, struct ms_context, link)
        context_free(context);
}

static struct ms_context *find(const struct ms_contexts *c, uint64_t driver)
{
    ms_list_each (context, &c->list, struct ms_context, link)
        if (context->driver == driver)
            return context;
    return NULL;
}

static struct ms_context *add(struct ms_contexts *c,
                              const Muster__DriverContext *message)
{
    struct ms_context *context = calloc(1, sizeof *context);

    if (!context)
        return NULL;
    ms_list_init(&context->link);
    context->driver = message->driver;
    context->message = (Muster__DriverContext *)ms_proto_copy(&message->base);
    if (!context->message) {
        context_free(context);
        return NULL;
    }
    ms_list_add_tail(&c->list, &context->link);
    return context;
}

/* Nested sessions of its workers belong below the root of this machine. */
static struct ms_context *add_foreign(struct ms_contexts *c,
                                      const Muster__DriverContext *message)
{
    MS_CLEANUP(ms_env_finish) struct ms_env env = {0};
    Muster__DriverContext with = *message;

    for (size_t i = 0; i < message->n_env; i++)
        if (ms_env_set(&env, message->env[i]) == -ENOMEM)
            return NULL;
    if (ms_env_inherit(&env, "MUSTER_HOME") < 0)
        return NULL;
    with.env = env.entries;
    with.n_env = env.count;
    return add(c, &with);
}

struct ms_context *ms_contexts_add(struct ms_contexts *c,
                                   const Muster__DriverContext *message)
{
    struct ms_context *context = find(c, message->driver);

    if (!context)
        context = add_foreign(c, message);
    if (!context)
        return NULL;
    c->forgotten -= context->is_forgotten;
    context->is_forgotten = false;
    context->wants_logs = message->wants_logs;
    return context;
}

struct ms_context *ms_contexts_add_own(struct ms_contexts *c,
                                       const Muster__AgentConfig *config)
{
    static const Muster__DriverContext empty = MUSTER__DRIVER_CONTEXT__INIT;
    const Muster__DriverContext *own = config->context ? config->context : &empty;
    struct ms_context *context = config->driver_pid ? add(c, own) : add_foreign(c, own);

    if (context)
        context->wants_logs = own->wants_logs;
    return context;
}

struct ms_context *ms_contexts_find(const struct ms_contexts *c, uint64_t driver)
{
    struct ms_context *context = find(c, driver);

    return context && !context->is_forgotten ? context : NULL;
}

void ms_contexts_forget(struct ms_contexts *c, uint64_t driver)
{
    struct ms_context *context = ms_contexts_find(c, driver);

    if (!context)
        return;
    context->is_forgotten = true;
    context->wants_logs = false;
    c->forgotten++;
}

void ms_contexts_collect(struct ms_contexts *c)
{
    ms_list_each (context, &c->list, struct ms_context, link) {
        if (context->workers || !context->is_forgotten)
            continue;
        c->forgotten--;
        context_free(context);
    }
}
