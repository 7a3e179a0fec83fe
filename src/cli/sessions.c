/* sessions.c - the sessions of this machine */
#include "base/nearest.h"
#include "cli/out.h"
#include "cli/target.h"

#include <stdlib.h>
#include <string.h>

enum ms_exit ms_sessions_init(struct ms_sessions *s, const struct ms_cli *cli)
{
    struct ms_error err = {0};
    int count;

    *s = (struct ms_sessions){0};
    count = ms_session_list(&s->all, &err);
    if (count < 0)
        return ms_out_fail(cli, MS_EXIT_FAILED, "%s", err.text);
    s->count = (size_t)count;
    return MS_EXIT_OK;
}

void ms_sessions_finish(struct ms_sessions *s)
{
    if (s->all)
        explicit_bzero(s->all, s->count * sizeof *s->all); /* secrets */
    free(s->all);
    *s = (struct ms_sessions){0};
}

static enum ms_exit fail_unknown_session(const struct ms_cli *cli,
                                         const struct ms_sessions *s)
{
    struct ms_nearest near = {.word = cli->values[MS_OPT_SESSION]};

    for (size_t i = 0; i < s->count; i++)
        ms_nearest_consider(&near, s->all[i].name);
    if (near.best)
        return ms_out_fail(cli,
                           MS_EXIT_NOT_RUNNING,
                           "there is no session '%s'; did you mean '%s'?",
                           near.word,
                           near.best);
    return ms_out_fail(cli,
                       MS_EXIT_NOT_RUNNING,
                       "there is no session '%s'; leave --session out for the newest",
                       near.word);
}

static enum ms_exit find_named(const struct ms_cli *cli,
                               const struct ms_sessions *s,
                               bool alive,
                               const struct ms_session **out)
{
    const char *name = cli->values[MS_OPT_SESSION];

    for (size_t i = 0; i < s->count; i++) {
        if (strcmp(s->all[i].name, name) != 0)
            continue;
        if (alive && !s->all[i].alive)
            return ms_out_fail(
                cli,
                MS_EXIT_NOT_RUNNING,
                "session '%s' has ended; `muster logs --session %s` shows "
                "what it printed",
                name,
                name);
        *out = &s->all[i];
        return MS_EXIT_OK;
    }
    return fail_unknown_session(cli, s);
}

enum ms_exit ms_target_session(const struct ms_cli *cli,
                               const struct ms_sessions *s,
                               bool alive,
                               const struct ms_session **out)
{
    if (ms_cli_has(cli, MS_OPT_SESSION))
        return find_named(cli, s, alive, out);
    for (size_t i = 0; i < s->count; i++)
        if (s->all[i].alive) {
            *out = &s->all[i];
            return MS_EXIT_OK;
        }
    if (!alive && s->count) {
        *out = &s->all[0];
        return MS_EXIT_OK;
    }
    return ms_out_fail(cli,
                       MS_EXIT_NOT_RUNNING,
                       "nothing is running on this machine%s; a session begins when a "
                       "Python program calls muster.init()",
                       alive ? "" : ", and nothing has run");
}
