/* selector.c - CLUSTER/RANK, and how a worker ended in words */
#include "cli/selector.h"
#include "base/name.h"
#include "cli/out.h"

#include <ctype.h>
#include <string.h>

enum { RANK_DIGITS_MAX = 9 };

size_t ms_rank_parse(const char *text, size_t len, uint32_t *rank)
{
    uint32_t n = 0;
    size_t i = 0;

    for (; i < len && i <= RANK_DIGITS_MAX && isdigit((unsigned char)text[i]); i++)
        n = n * 10 + (uint32_t)(text[i] - '0');
    if (i == 0 || i > RANK_DIGITS_MAX)
        return 0;
    *rank = n;
    return i;
}

enum ms_exit ms_cli_selector_parse(const struct ms_cli *cli,
                                   const char *text,
                                   struct ms_cli_selector *out)
{
    const char *slash = strchr(text, '/');
    size_t len = slash ? (size_t)(slash - text) : strlen(text);
    struct ms_cli_selector s = {.has_rank = slash != NULL};
    struct ms_error err = {0};

    if (len > MS_NAME_MAX)
        return ms_out_fail(cli, MS_EXIT_USAGE, "'%s' is too long for a cluster", text);
    memcpy(s.cluster, text, len);
    if (ms_name_check(s.cluster, "cluster", &err) < 0)
        return ms_out_fail(cli, MS_EXIT_USAGE, "%s", err.text);
    len = slash ? strcspn(slash + 1, "@") : 0;
    if (slash && (!len || ms_rank_parse(slash + 1, len, &s.rank) != len))
        return ms_out_fail(cli,
                           MS_EXIT_USAGE,
                           "'%s' has no rank behind the slash; write for example %s/0",
                           text,
                           s.cluster);
    *out = s;
    return MS_EXIT_OK;
}

bool ms_cli_selector_matches(const struct ms_cli_selector *s,
                             const char *cluster,
                             uint32_t rank)
{
    return (!s->cluster[0] || strcmp(s->cluster, cluster) == 0) &&
           (!s->has_rank || s->rank == rank);
}

const char *ms_exit_text(const Muster__Exit *e, char *out, size_t room)
{
    const char *signal = e->signaled ? sigabbrev_np(e->code) : NULL;
    bool detail = e->detail && e->detail[0];
    char what[64];

    if (e->requested)
        snprintf(what, sizeof what, "stopped");
    else if (e->signaled && signal)
        snprintf(what, sizeof what, "killed by SIG%s", signal);
    else if (e->signaled)
        snprintf(what, sizeof what, "killed by signal %d", e->code);
    else if (e->code < 0)
        snprintf(what, sizeof what, "lost"); /* its exit status was not seen */
    else
        snprintf(what, sizeof what, "exit code %d", e->code);
    snprintf(out,
             room,
             "%s%s%s%s",
             what,
             e->out_of_memory ? " (out of memory)" : "",
             detail ? ": " : "",
             detail ? e->detail : "");
    return out;
}
