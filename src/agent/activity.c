/* activity.c - what workers do, asked of all of them at once when the head wants to know
 *
 * A round: every worker is asked over its control link, and answers on its I/O thread also
 * while its engine computes. The round is over when all have answered, or after
 * MS_ACTIVITY_NS. A worker that has not answered is not asked again until it has, and no
 * later round waits for it: so what stands still is waited for once. Nor is one awaited that
 * the kernel has stopped. Who asks during a round has the next one. The devices are asked at
 * the same time (machine/device_memory.h). */
#include "agent/worker.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/proto.h"
#include "io/proc.h"
#include "io/proc_tree.h"
#include "store/server/server.h"

#include <errno.h>
#include <stdlib.h>

struct asker {
    struct ms_list link;
    uint64_t request;
    Muster__AskActivity *ask; /* NULL: out of memory, and no stacks then */
};

static void asker_destroy(struct asker *who)
{
    muster__ask_activity__free_unpacked(who->ask, NULL);
    free(who);
}

/* ---- one worker ------------------------------------------------------------------ */

/* A plain command may never read what it is sent. */
static bool is_worth_waiting(const struct ms_worker *w)
{
    struct ms_proc_look look;

    return (!w->is_command || w->has_answered) && ms_proc_look(w->pid, &look) &&
           !look.is_stopped;
}

static bool is_stack_wanted(const struct ms_worker *w)
{
    ms_list_each (who, &w->agent->activities.askers, struct asker, link)
        for (size_t i = 0; who->ask && i < who->ask->n_stacks_of; i++)
            if (who->ask->stacks_of[i] == w->uid)
                return true;
    return false;
}

static bool are_stacks_wanted(const struct ms_agent *a)
{
    ms_list_each (who, &a->activities.askers, struct asker, link)
        if (who->ask && who->ask->n_stacks_of)
            return true;
    return false;
}

static void ask(struct ms_worker *w)
{
    Muster__AskActivity m = MUSTER__ASK_ACTIVITY__INIT;

    m.stacks_of = &w->uid;
    m.n_stacks_of = is_stack_wanted(w);
    if (w->asked_ns ||
        ms_worker_send(w, MUSTER__AGENT_TO_WORKER__BODY_ASK_ACTIVITY, &m) < 0)
        return;
    w->asked_ns = ms_now_ns();
    w->is_awaited = is_worth_waiting(w);
    w->agent->activities.awaited += w->is_awaited;
}

static Muster__Doing doing_of(const struct ms_worker *w, bool is_stopped)
{
    if (is_stopped)
        return MUSTER__DOING__DOING_STOPPED;
    if (w->has_answered)
        return MUSTER__DOING__DOING_SILENT;
    return w->is_command ? MUSTER__DOING__DOING_UNKNOWN : MUSTER__DOING__DOING_STARTING;
}

/* Of one that has shown no stack itself: a command, or one that does not answer. */
static void add_processes(const struct ms_worker *w, Muster__Activity *a)
{
    char *text = ms_proc_tree(w->pid);

    a->stack =
        text ? (Muster__Stack *)ms_proto_create(&muster__stack__descriptor) : NULL;
    if (a->stack)
        ms_proto_set_text(&a->stack->processes, text);
    free(text);
}

/* Its answer, or what is known without one; NULL: out of memory, or it has ended. */
static Muster__Activity *describe(struct ms_worker *w)
{
    Muster__Activity *a = MS_TAKE(w->activity);
    struct ms_proc_look look;
    int64_t since_ns = w->has_answered && w->asked_ns ? w->asked_ns : w->started_ns;

    if (!ms_proc_look(w->pid, &look)) {
        muster__activity__free_unpacked(a, NULL);
        return NULL;
    }
    if (!a) {
        a = (Muster__Activity *)ms_proto_create(&muster__activity__descriptor);
        if (!a)
            return NULL;
        a->doing = doing_of(w, look.is_stopped);
        a->for_ns = (uint64_t)(ms_now_ns() - since_ns);
    }
    a->uid = w->uid;
    a->memory = look.memory;
    a->cpu_ns = look.cpu_ns;
    if (!a->stack && is_stack_wanted(w))
        add_processes(w, a);
    a->has_device_memory = ms_device_memory_sum(&w->agent->activities.devices,
                                                w->spec->devices,
                                                w->spec->n_devices,
                                                &a->device_memory);
    return a;
}

/* ---- a round --------------------------------------------------------------------- */

static void add_store(struct ms_agent *a, Muster__Activities *all)
{
    Muster__StoreStats *stats = a->store ? ms_store_stats(a->store, 0) : NULL;

    if (stats)
        ms_proto_append(&all->stores, &all->n_stores, stats);
}

static void answer_all(struct ms_agent *a)
{
    Muster__Activities *all =
        (Muster__Activities *)ms_proto_create(&muster__activities__descriptor);
    struct ms_worker *w;
    struct asker *who;
    size_t at = 0;

    while (all && (w = ms_map_next(&a->by_pid, &at))) {
        Muster__Activity *one = describe(w);

        if (one)
            ms_proto_append(&all->workers, &all->n_workers, one);
    }
    if (all)
        add_store(a, all);
    while ((who = ms_list_take(&a->activities.askers, struct asker, link))) {
        if (all)
            ms_agent_send(a, who->request, MUSTER__AGENT_TO_HEAD__BODY_ACTIVITIES, all);
        else
            ms_agent_refuse(
                a, who->request, MUSTER__FAILURE__KIND__NO_MEMORY, "out of memory");
        asker_destroy(who);
    }
    muster__activities__free_unpacked(all, NULL);
}

static bool is_complete(const struct ms_agent *a)
{
    return a->activities.awaited == 0 && !a->activities.awaits_devices;
}

static void begin(struct ms_agent *a)
{
    struct ms_worker *w;
    size_t at = 0;

    ms_list_splice(&a->activities.askers, &a->activities.next);
    while ((w = ms_map_next(&a->by_pid, &at)))
        ask(w);
    a->activities.awaits_devices =
        ms_device_memory_ask(&a->activities.devices, a->shape);
    ms_timer_set(&a->activities.late,
                 is_complete(a)         ? 0
                 : are_stacks_wanted(a) ? MS_ACTIVITY_STACKS_NS
                                        : MS_ACTIVITY_NS);
}

/* All have answered, or it is late. */
static void end(struct ms_agent *a)
{
    struct ms_worker *w;
    size_t at = 0;

    ms_timer_cancel(&a->activities.late);
    while ((w = ms_map_next(&a->by_pid, &at)))
        w->is_awaited = false;
    a->activities.awaited = 0;
    a->activities.awaits_devices = false;
    answer_all(a);
    if (!ms_list_is_empty(&a->activities.next))
        begin(a);
}

static void on_late(void *arg)
{
    end(arg);
}

static void on_devices(void *arg)
{
    struct ms_agent *a = arg;
    bool was_awaited = a->activities.awaits_devices;

    a->activities.awaits_devices = false;
    if (was_awaited && is_complete(a))
        end(a);
}

static void is_no_longer_awaited(struct ms_worker *w)
{
    if (!w->is_awaited)
        return;
    w->is_awaited = false;
    w->agent->activities.awaited--;
    if (is_complete(w->agent))
        end(w->agent);
}

void ms_activity_answered(struct ms_worker *w, Muster__Activity *activity)
{
    bool is_wanted = !ms_list_is_empty(&w->agent->activities.askers);

    w->asked_ns = 0;
    w->has_answered = true;
    muster__activity__free_unpacked(w->activity, NULL);
    w->activity = is_wanted ? MS_TAKE(activity) : NULL;
    muster__activity__free_unpacked(activity, NULL);
    is_no_longer_awaited(w);
}

void ms_activity_forget(struct ms_worker *w)
{
    is_no_longer_awaited(w);
}

void ms_activities_ask(struct ms_agent *a, Muster__HeadToAgent *m)
{
    struct asker *who = calloc(1, sizeof *who);

    if (!who) {
        ms_agent_refuse(
            a, m->request, MUSTER__FAILURE__KIND__NO_MEMORY, "out of memory");
        return;
    }
    who->request = m->request;
    who->ask = MS_TAKE(m->ask_activity);
    ms_list_add_tail(&a->activities.next, &who->link);
    if (ms_list_is_empty(&a->activities.askers))
        begin(a);
}

/* ---- life ------------------------------------------------------------------------ */

int ms_activities_init(struct ms_agent *a)
{
    ms_list_init(&a->activities.askers);
    ms_list_init(&a->activities.next);
    ms_device_memory_init(&a->activities.devices, a->loop, on_devices, a);
    return a->loop ? ms_timer_init(&a->activities.late, a->loop, on_late, a) : -ENOMEM;
}

void ms_activities_finish(struct ms_agent *a)
{
    struct asker *who;

    ms_timer_finish(&a->activities.late);
    ms_device_memory_finish(&a->activities.devices);
    ms_list_splice(&a->activities.next, &a->activities.askers);
    while ((who = ms_list_take(&a->activities.next, struct asker, link)))
        asker_destroy(who);
}
