/* action.c - actions: their ids, what is said to people
 *
 * There is room for all actions that a step can ask for (ms_core_allocate). What is said has
 * what is left of it.
 */
#include "job/core/core_impl.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>

uint32_t ms_core_role_index(const struct ms_job_core *c, const struct ms_core_role *r)
{
    return (uint32_t)(r - c->roles);
}

struct ms_job_action *ms_act_again(struct ms_job_core *c, uint32_t what, uint64_t id)
{
    struct ms_job_action *a = &c->actions[c->action_count];

    assert(c->action_count < c->action_room);
    c->action_count++;
    *a = (struct ms_job_action){.what = what, .id = id, .role = MS_JOB_NO_ROLE};
    return a;
}

struct ms_job_action *ms_act(struct ms_job_core *c, uint32_t what)
{
    return ms_act_again(c, what, ++c->last_id);
}

void ms_act_rank(struct ms_job_core *c,
                 struct ms_job_action *a,
                 const struct ms_job_action_rank *rank)
{
    assert(c->rank_count < c->rank_room && a == &c->actions[c->action_count - 1]);
    if (a->rank_count == 0)
        a->ranks = &c->ranks[c->rank_count];
    c->ranks[c->rank_count++] = *rank;
    a->rank_count++;
}

void ms_say(struct ms_job_core *c,
            enum ms_job_level level,
            uint32_t role,
            uint32_t rank,
            enum ms_job_cause cause,
            const char *fmt,
            ...)
{
    size_t room = c->said_room - c->said_len;
    struct ms_job_action *a;
    va_list args;
    int n;

    /* half of the room is for what is to be done */
    if (c->action_count >= c->action_room / 2 || room < 2)
        return;
    va_start(args, fmt);
    n = vsnprintf(c->said + c->said_len, room, fmt, args);
    va_end(args);
    if (n < 0)
        return;
    a = ms_act_again(c, MS_JOB_DO_SAY, 0);
    a->level = (uint8_t)level;
    a->role = role;
    a->rank = rank;
    a->cause = (uint8_t)cause;
    a->text = c->said + c->said_len;
    c->said_len += (size_t)n < room ? (size_t)n + 1 : room;
}
