/* sessions.c - conversations: what their next turn begins with, and when they are forgotten */
#include "rollout/rollout_impl.h"

#include <errno.h>

static void arm_at(struct ms_rollout *r, int64_t at_ns)
{
    if (at_ns < r->tick_ns)
        r->tick_ns = at_ns;
    ms_rollout_arm(r);
}

int ms_rollout_session_open(struct ms_rollout *r,
                            uint64_t key,
                            uint32_t turn,
                            uint64_t *id,
                            struct ms_error *err)
{
    int rc;
    MS_ROLLOUT_ENTER(r, ms_error_set(err, -ECHILD, MS_ROLLOUT_FORKED));

    rc = ms_rollout_check(r);
    if (rc < 0)
        return ms_error_set(err, rc, "the scheduler is closed");
    rc = ms_gen_sessions_open(r->sessions, key, turn, ms_now_ns(), id);
    if (rc < 0)
        return ms_error_set(err, rc, "no memory for a session");
    arm_at(r, ms_gen_sessions_expire(r->sessions, ms_now_ns()));
    return 0;
}

int ms_rollout_session_finish(struct ms_rollout *r, uint64_t id)
{
    int rc;
    MS_ROLLOUT_ENTER(r, -ECHILD);

    rc = ms_rollout_check(r);
    return rc < 0 ? rc : ms_gen_sessions_finish(r->sessions, id);
}

int ms_rollout_session_replica(struct ms_rollout *r, uint64_t id, uint32_t *replica)
{
    struct ms_gen_turn turn;
    int rc;
    MS_ROLLOUT_ENTER(r, -ECHILD);

    rc = ms_rollout_check(r);
    if (rc == 0)
        rc = ms_gen_sessions_look(r->sessions, id, ms_now_ns(), &turn);
    if (rc == 0)
        *replica = turn.replica;
    return rc;
}

int ms_rollout_turn_of(struct ms_rollout *r,
                       const struct ms_rollout_submit *s,
                       struct ms_gen_turn *out)
{
    int rc;

    *out = (struct ms_gen_turn){.turn = s->turn, .replica = s->replica};
    if (s->session == 0) {
        out->key = s->key;
        return 0;
    }
    rc = ms_gen_sessions_look(r->sessions, s->session, ms_now_ns(), out);
    if (rc == 0 && s->key != 0)
        out->key = s->key;
    return rc;
}

/* The prefix is where its last sample was made. */
void ms_rollout_turn_over(struct ms_rollout *r, struct group *g)
{
    const struct ms_rollout_sample *last = NULL;
    int64_t now_ns = ms_now_ns();

    if (g->session == 0)
        return;
    for (uint32_t i = 0; i < g->out->count && g->out->why == MS_WHY_NONE; i++)
        if (g->out->samples[i].is_done)
            last = &g->out->samples[i];
    ms_gen_sessions_end(r->sessions,
                        g->session,
                        last ? last->replica : MS_NOWHERE,
                        last ? last->epoch : 0,
                        last ? last->weights : 0,
                        now_ns);
    g->session = 0;
    arm_at(r, ms_gen_sessions_expire(r->sessions, now_ns));
}
